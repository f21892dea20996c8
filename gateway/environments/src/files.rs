//! Reads templates from `agents_dir/NAME/environment_templates/TEMPLATE.yaml` for the cluster agent `NAME`, again each
//! time a file changes.
//!
//! A file with a mistake changes nothing: the last good version stays in force, also over a restart. The reason is
//! logged once, and [`TemplateFiles::refused`] has it for as long as it applies. A deleted file takes its template out
//! of force, unless the agent's whole folder is gone: then the template alone cannot have been meant, and what was in
//! force stays. `default` has a built-in template if no file can be meant as `default`, whatever its ending.

mod folder;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::folder::{EnvironmentKind, FOLDER};
use gateway_store::StoreError;
use gateway_types::ClusterName;
use gateway_workspaces::agents_dir::templates::{About, ListedTemplates, ReadTemplate, scan};
use gateway_workspaces::agents_dir::{self, FileRefusal, FolderReader, Stamp, name_of};
use workspace_spec::document::Problem;
use workspace_spec::environment::template::{DEFAULT_NAME, Template, TemplateName};

pub use self::folder::check;

/// A template that was in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTemplate {
    /// The cluster whose agent has it.
    pub cluster: ClusterName,
    /// Its name.
    pub name: TemplateName,
    /// Its source text.
    pub text: String,
}

/// Stores the templates that are in force, for the next start of the gateway.
pub trait KeepTemplates: Send + Sync + 'static {
    /// Returns all of them.
    fn templates(&self) -> impl Future<Output = Result<Vec<KeptTemplate>, StoreError>> + Send;

    /// Keeps one, instead of another of that name if there is one.
    fn put_template(&self, template: &KeptTemplate) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets one.
    fn remove_template(
        &self,
        cluster: &ClusterName,
        name: &TemplateName,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// No template can be rendered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoTemplate {
    /// No template of that name exists.
    #[error("there is no template of that name")]
    NotFound,
    /// Its file, or the folder with it, cannot be read or parsed, and never could be before.
    #[error("the template has mistakes: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Problem>),
}

/// The templates of all cluster agents.
#[derive(Debug)]
pub struct TemplateFiles {
    dir: Option<PathBuf>,
    built_in: Arc<Template>,
    in_force: RwLock<BTreeMap<ClusterName, BTreeMap<TemplateName, Arc<Template>>>>,
    refusals: RwLock<BTreeMap<PathBuf, RejectedTemplate>>,
}

/// A file that is not in force as it is, or a folder that cannot be read.
#[derive(Clone, Debug)]
struct RejectedTemplate {
    about: About,
    refusal: Arc<FileRefusal>,
}

/// A refused file, as it is shown to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFile {
    /// Name of the file, relative to the agent's folder.
    pub file: String,
    /// The template that it would be, if it would be one.
    pub template: Option<TemplateName>,
    /// All that is wrong with it; never empty.
    pub problems: Vec<Problem>,
}

impl RejectedTemplate {
    /// Returns whether this refusal may be the reason for a template not to be in force.
    fn is_about(&self, cluster: &ClusterName, name: &TemplateName) -> bool {
        let is_it = match &self.about {
            About::Template(meant) => meant == name,
            About::Nothing => false,
            About::Folder => true,
        };
        is_it && self.is_of(cluster)
    }

    fn is_of(&self, cluster: &ClusterName) -> bool {
        self.refusal.cluster == cluster.as_str()
    }

    fn file(&self) -> String {
        match &self.about {
            About::Folder => FOLDER.to_owned(),
            About::Template(_) | About::Nothing => format!("{FOLDER}/{}", name_of(&self.refusal.path)),
        }
    }

    /// Returns the problems, with the file's name before each place: callers that ask for a template do not know of
    /// files.
    fn problems(&self) -> Vec<Problem> {
        let file = self.file();
        let at = |path: &str| if path.is_empty() { file.clone() } else { format!("{file}: {path}") };
        self.refusal.problems.iter().map(|one| Problem { path: at(&one.path), ..one.clone() }).collect()
    }
}

/// State that is kept between two scans.
#[derive(Debug, Default)]
struct TemplateScan {
    stamps: HashMap<PathBuf, Stamp>,
    /// Templates whose files were missing at the last scan: editors may remove a file for a moment.
    missing: BTreeSet<(ClusterName, TemplateName)>,
}

/// The watch over the files.
struct TemplateReader<K> {
    files: Arc<TemplateFiles>,
    keep: K,
    seen: TemplateScan,
}

impl<K: KeepTemplates> FolderReader for TemplateReader<K> {
    async fn look(&mut self) -> Result<(), StoreError> {
        self.files.look(&self.keep, &mut self.seen).await
    }

    fn log_failure(&self, error: &StoreError) {
        warn!(%error, "templates of environments cannot be stored now");
    }
}

impl TemplateFiles {
    /// Creates the templates for a folder, if there is one. Nothing is read yet.
    #[must_use]
    pub fn new(dir: Option<PathBuf>) -> Arc<Self> {
        let built_in = Arc::new(Template::built_in());
        Arc::new(Self { dir, built_in, in_force: RwLock::default(), refusals: RwLock::default() })
    }

    /// Returns a template of a cluster agent. Reads no files.
    ///
    /// # Errors
    /// [`NoTemplate`].
    pub fn get(&self, cluster: &ClusterName, name: &TemplateName) -> Result<Arc<Template>, NoTemplate> {
        let found = self.in_force.read().get(cluster).and_then(|templates| templates.get(name)).cloned();
        if let Some(template) = found {
            return Ok(template);
        }
        // A file that was meant to be in force is never answered with something else.
        let problems = self.problems(cluster, name);
        if !problems.is_empty() {
            return Err(NoTemplate::Invalid(problems));
        }
        if name.as_str() == DEFAULT_NAME { Ok(self.built_in.clone()) } else { Err(NoTemplate::NotFound) }
    }

    /// Returns the built-in template, for agents that have no other of the name `default`.
    #[must_use]
    pub fn built_in(&self) -> &Arc<Template> {
        &self.built_in
    }

    /// Returns the names of a cluster agent's templates, in order; `default` is always one.
    #[must_use]
    pub fn names(&self, cluster: &ClusterName) -> Vec<TemplateName> {
        let mut names: BTreeSet<_> = BTreeSet::from([TemplateName::default_one()]);
        names.extend(self.in_force.read().get(cluster).into_iter().flat_map(BTreeMap::keys).cloned());
        names.into_iter().collect()
    }

    /// Returns a cluster agent's files that are not in force as they are, and the reasons.
    #[must_use]
    pub fn refused(&self, cluster: &ClusterName) -> Vec<RefusedFile> {
        let file = |refused: &RejectedTemplate| RefusedFile {
            file: refused.file(),
            template: match &refused.about {
                About::Template(name) => Some(name.clone()),
                About::Nothing | About::Folder => None,
            },
            problems: refused.refusal.problems.clone(),
        };
        self.refusals.read().values().filter(|refused| refused.is_of(cluster)).map(file).collect()
    }

    /// Returns whether a cluster agent has refused files.
    #[must_use]
    pub fn has_refused(&self, cluster: &ClusterName) -> bool {
        self.refusals.read().values().any(|refused| refused.is_of(cluster))
    }

    /// Returns the problems of files that may be meant to be a template: if there are any, the template in force
    /// differs from its file.
    #[must_use]
    pub fn problems(&self, cluster: &ClusterName, name: &TemplateName) -> Vec<Problem> {
        let refusals = self.refusals.read();
        refusals
            .values()
            .filter(|refused| refused.is_about(cluster, name))
            .flat_map(RejectedTemplate::problems)
            .collect()
    }

    /// Puts the stored templates into force, and then those of the files. Must be awaited before templates are asked
    /// for.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn begin(&self, keep: &impl KeepTemplates) -> Result<(), StoreError> {
        for kept in keep.templates().await? {
            match Template::parse(&kept.name, kept.text.as_bytes()) {
                Ok(template) => self.put(&kept.cluster, template),
                Err(problems) => {
                    let KeptTemplate { cluster, name, .. } = &kept;
                    warn!(%cluster, template = %name, ?problems, "a template that was in force cannot be read any more");
                }
            }
        }
        self.look(keep, &mut TemplateScan::default()).await
    }

    /// Scans the folder at intervals and takes over changes, until `stop`.
    pub async fn watch(self: Arc<Self>, keep: impl KeepTemplates, stop: CancellationToken) {
        let reader = TemplateReader { files: self, keep, seen: TemplateScan::default() };
        agents_dir::watch(reader, stop).await;
    }

    async fn look(&self, keep: &impl KeepTemplates, seen: &mut TemplateScan) -> Result<(), StoreError> {
        let Some(dir) = self.dir.clone() else {
            return Ok(());
        };
        let stamps = seen.stamps.clone();
        // A folder may be on a file system that answers slowly.
        let scanned =
            tokio::task::spawn_blocking(move || scan::<EnvironmentKind>(&dir, &stamps)).await.unwrap_or_default();
        for ListedTemplates { cluster, folder, files } in scanned.listed {
            self.forget(keep, seen, &cluster, &files).await?;
            seen.stamps.retain(|path, _| !path.starts_with(&folder) || files.contains_key(path));
            let is_there = |path: &PathBuf| !path.starts_with(&folder) || files.contains_key(path);
            self.refusals.write().retain(|path, _| is_there(path));
        }
        for found in scanned.found {
            match found.read {
                ReadTemplate::Good { cluster, template, .. } => {
                    self.take_over(keep, &cluster, template, &found.path).await?;
                }
                ReadTemplate::Refused(about, refusal) => self.refuse(about, refusal),
            }
            if let Some(stamp) = found.stamp {
                seen.stamps.insert(found.path, stamp);
            }
        }
        Ok(())
    }

    /// Takes templates out of force whose files were missing in two scans.
    async fn forget(
        &self,
        keep: &impl KeepTemplates,
        seen: &mut TemplateScan,
        cluster: &ClusterName,
        files: &BTreeMap<PathBuf, Option<TemplateName>>,
    ) -> Result<(), StoreError> {
        let there: BTreeSet<&TemplateName> = files.values().flatten().collect();
        seen.missing.retain(|(of, name)| of != cluster || !there.contains(name));
        let known: Vec<_> = self.in_force.read().get(cluster).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for name in known.into_iter().filter(|name| !there.contains(name)) {
            let key = (cluster.clone(), name);
            if seen.missing.insert(key.clone()) {
                continue;
            }
            keep.remove_template(cluster, &key.1).await?;
            self.in_force.write().entry(cluster.clone()).or_default().remove(&key.1);
            info!(%cluster, template = %key.1, "a template of environments is gone");
            seen.missing.remove(&key);
        }
        Ok(())
    }

    async fn take_over(
        &self,
        keep: &impl KeepTemplates,
        cluster: &ClusterName,
        template: Template,
        path: &PathBuf,
    ) -> Result<(), StoreError> {
        let before = self.in_force.read().get(cluster).and_then(|templates| templates.get(template.name())).cloned();
        if before.is_none_or(|before| before.text() != template.text()) {
            let (name, text) = (template.name().clone(), template.text().to_owned());
            keep.put_template(&KeptTemplate { cluster: cluster.clone(), name, text }).await?;
            info!(%cluster, template = %template.name(), file = %path.display(), "a template of environments is in force");
            self.put(cluster, template);
        }
        self.refusals.write().remove(path);
        Ok(())
    }

    fn put(&self, cluster: &ClusterName, template: Template) {
        let mut in_force = self.in_force.write();
        in_force.entry(cluster.clone()).or_default().insert(template.name().clone(), Arc::new(template));
    }

    /// Keeps the reason for a file not to be in force, and logs it once.
    fn refuse(&self, about: About, refusal: FileRefusal) {
        let mut refusals = self.refusals.write();
        if refusals.get(&refusal.path).is_none_or(|before| *before.refusal != refusal) {
            let code = refusal.code.as_str();
            warn!(code, problems = %refusal, "a template of environments is refused, and what was in force stays");
            refusals.insert(refusal.path.clone(), RejectedTemplate { about, refusal: Arc::new(refusal) });
        }
    }
}

#[cfg(test)]
mod tests;
