//! Templates of workspaces: `agents_dir/NAME/workspace_templates/TEMPLATE.yaml` for the cluster agent `NAME`, read again each time a
//! file changes.
//!
//! A file with a mistake cannot be used until it is corrected: a workspace that was asked for by a template is made from what the file
//! says now, or not at all. The reason is logged once, and listed. A deleted file is no template any more, unless the agent's whole
//! folder is gone, which cannot have been meant. No workspace that exists depends on its template.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::agents_dir::templates::{self, About, ListedTemplates, ReadTemplate, TemplateKind, scan};
use crate::agents_dir::{self, FileRefusal, FolderReader, Stamp, name_of};
use gateway_store::StoreError;
use gateway_types::ClusterName;
use workspace_spec::document::Problem;
use workspace_spec::workspace_template::{TEMPLATE_BYTES_MAX, TemplateName, WorkspaceTemplate};

/// Templates of workspaces among the files of `agents_dir`.
enum WorkspaceKind {}

impl TemplateKind for WorkspaceKind {
    const FOLDER: &'static str = "workspace_templates";
    const BYTES_MAX: usize = TEMPLATE_BYTES_MAX;
    type Template = WorkspaceTemplate;

    fn parse(_name: &TemplateName, bytes: &[u8]) -> Result<WorkspaceTemplate, Vec<Problem>> {
        WorkspaceTemplate::parse(bytes)
    }
}

/// Reads every template below a folder, and returns the problems of each that cannot be used. A folder that cannot be read at all is
/// reported by [`crate::cluster_configs::check`].
#[must_use]
pub fn check(dir: &Path) -> Vec<FileRefusal> {
    templates::check::<WorkspaceKind>(dir)
}

/// A workspace cannot be made from a template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoTemplate {
    /// The cluster has none of that name.
    #[error("there is no workspace template of that name at this cluster")]
    NotFound,
    /// Its file, or the folder with it, has mistakes.
    #[error("the template's file has mistakes, which an operator has to correct: {}", told(.0))]
    Broken(Vec<Problem>),
}

fn told(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A file in the folder of templates.
#[derive(Clone, Debug)]
pub struct ListedTemplate {
    /// The template's name; the name of a file, or of the folder, that can be no template's.
    pub name: String,
    /// The template, or all that is wrong with its file.
    pub template: Result<Arc<WorkspaceTemplate>, Vec<Problem>>,
}

/// The templates of all clusters.
#[derive(Debug)]
pub struct WorkspaceTemplates {
    dir: Option<PathBuf>,
    files: RwLock<BTreeMap<PathBuf, TemplateFile>>,
    stamps: Mutex<HashMap<PathBuf, Stamp>>,
}

/// A file as it was read last.
#[derive(Debug)]
enum TemplateFile {
    Good { cluster: ClusterName, name: TemplateName, template: Arc<WorkspaceTemplate> },
    Refused { about: About, refusal: FileRefusal },
}

impl TemplateFile {
    fn is_of(&self, of: &ClusterName) -> bool {
        match self {
            Self::Good { cluster, .. } => cluster == of,
            Self::Refused { refusal, .. } => refusal.cluster == of.as_str(),
        }
    }
}

/// The watch over the files.
struct TemplateReader(Arc<WorkspaceTemplates>);

impl FolderReader for TemplateReader {
    async fn look(&mut self) -> Result<(), StoreError> {
        self.0.look().await;
        Ok(())
    }

    fn log_failure(&self, _error: &StoreError) {}
}

impl WorkspaceTemplates {
    /// Creates the templates of a folder, if there is one. Nothing is read yet.
    #[must_use]
    pub fn new(dir: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { dir, files: RwLock::default(), stamps: Mutex::default() })
    }

    /// Creates the templates and reads the files that exist.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn open(dir: Option<PathBuf>) -> Arc<Self> {
        let templates = Self::new(dir);
        templates.look().await;
        templates
    }

    /// Returns a template of a cluster. Reads no files.
    ///
    /// # Errors
    /// [`NoTemplate`].
    pub fn get(&self, cluster: &ClusterName, name: &TemplateName) -> Result<Arc<WorkspaceTemplate>, NoTemplate> {
        let files = self.files.read();
        let mut problems = Vec::new();
        for file in files.values().filter(|file| file.is_of(cluster)) {
            match file {
                TemplateFile::Good { name: of, template, .. } if of == name => return Ok(template.clone()),
                TemplateFile::Refused { about: About::Template(of), refusal } if of == name => {
                    problems.extend(refusal.problems.iter().cloned());
                }
                TemplateFile::Refused { about: About::Folder, refusal } => {
                    problems.extend(refusal.problems.iter().cloned());
                }
                TemplateFile::Good { .. } | TemplateFile::Refused { .. } => {}
            }
        }
        if problems.is_empty() { Err(NoTemplate::NotFound) } else { Err(NoTemplate::Broken(problems)) }
    }

    /// Returns the templates of a cluster, and the files that cannot be one, by their names.
    #[must_use]
    pub fn list(&self, cluster: &ClusterName) -> Vec<ListedTemplate> {
        let files = self.files.read();
        let listed = |(path, file): (&PathBuf, &TemplateFile)| match file {
            TemplateFile::Good { name, template, .. } => {
                ListedTemplate { name: name.to_string(), template: Ok(template.clone()) }
            }
            TemplateFile::Refused { refusal, .. } => {
                let file = name_of(path);
                let stem = file.strip_suffix(".yaml").filter(|stem| stem.parse::<TemplateName>().is_ok());
                ListedTemplate { name: stem.unwrap_or(&file).to_owned(), template: Err(refusal.problems.clone()) }
            }
        };
        let mut listed: Vec<_> = files.iter().filter(|(_, file)| file.is_of(cluster)).map(listed).collect();
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        listed
    }

    /// Scans the folder at intervals and takes over changes, until `stop`.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        agents_dir::watch(TemplateReader(self), stop).await;
    }

    /// Scans the folder once, and takes over changes.
    async fn look(&self) {
        let Some(dir) = self.dir.clone() else { return };
        let stamps = self.stamps.lock().clone();
        // A folder may be on a file system that answers slowly.
        let scanned = tokio::task::spawn_blocking(move || scan::<WorkspaceKind>(&dir, &stamps)).await;
        let scanned = scanned.unwrap_or_default();
        for ListedTemplates { folder, files, .. } in scanned.listed {
            let is_there = |path: &PathBuf| !path.starts_with(&folder) || files.contains_key(path);
            self.stamps.lock().retain(|path, _| is_there(path));
            self.files.write().retain(|path, _| {
                let is_there = is_there(path);
                if !is_there {
                    info!(file = %path.display(), "a template of workspaces is gone");
                }
                is_there
            });
        }
        for found in scanned.found {
            if let Some(stamp) = found.stamp {
                self.stamps.lock().insert(found.path.clone(), stamp);
            }
            self.take_over(found.path, found.read);
        }
    }

    fn take_over(&self, path: PathBuf, read: ReadTemplate<WorkspaceTemplate>) {
        let mut files = self.files.write();
        let file = match read {
            ReadTemplate::Good { cluster, name, template } => {
                info!(%cluster, template = %name, file = %path.display(), "a template of workspaces can be used");
                TemplateFile::Good { cluster, name, template: Arc::new(template) }
            }
            ReadTemplate::Refused(about, refusal) => {
                // A folder is read each time.
                if matches!(files.get(&path), Some(TemplateFile::Refused { refusal: before, .. }) if *before == refusal)
                {
                    return;
                }
                let code = refusal.code.as_str();
                warn!(code, problems = %refusal, "a template of workspaces is refused, and cannot be used");
                TemplateFile::Refused { about, refusal }
            }
        };
        files.insert(path, file);
    }
}

#[cfg(test)]
mod tests;
