//! Scans folders of templates, `agents_dir/NAME/FOLDER/TEMPLATE.yaml`, of any kind: which files exist, which have changed, and what is
//! wrong with them.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{FileRefusal, Stamp, cluster_of, folders, name_of, read_bounded};
use gateway_types::ClusterName;
use workspace_spec::document::Problem;
use workspace_spec::environment::template::TemplateName;

/// Ending of template files.
const ENDING: &str = "yaml";

/// Most templates of one kind of a cluster agent.
pub const TEMPLATES_MAX: usize = 200;

/// A kind of templates.
pub trait TemplateKind {
    /// The folder with them, in that of each cluster agent.
    const FOLDER: &'static str;

    /// The largest file, in bytes.
    const BYTES_MAX: usize;

    /// A template that was read.
    type Template;

    /// Parses a file.
    ///
    /// # Errors
    /// All mistakes of it; never empty.
    fn parse(name: &TemplateName, bytes: &[u8]) -> Result<Self::Template, Vec<Problem>>;
}

/// Result of one scan.
#[derive(Debug)]
pub struct TemplateScan<T> {
    /// Files that are new or have changed, and folders that cannot be read.
    pub found: Vec<ChangedTemplate<T>>,
    /// Cluster agents whose files are all known now.
    pub listed: Vec<ListedTemplates>,
}

// Not derived, which would ask the same of templates.
impl<T> Default for TemplateScan<T> {
    fn default() -> Self {
        Self { found: Vec::new(), listed: Vec::new() }
    }
}

/// The files of a cluster agent.
#[derive(Debug)]
pub struct ListedTemplates {
    /// The cluster agent.
    pub cluster: ClusterName,
    /// The folder.
    pub folder: PathBuf,
    /// Each file, with the template that it is or would be.
    pub files: BTreeMap<PathBuf, Option<TemplateName>>,
}

/// A file that is new or has changed.
#[derive(Debug)]
pub struct ChangedTemplate<T> {
    /// The file.
    pub path: PathBuf,
    /// `None` for folders, which are scanned each time.
    pub stamp: Option<Stamp>,
    /// What is in it.
    pub read: ReadTemplate<T>,
}

/// Outcome of reading a file.
#[derive(Debug)]
pub enum ReadTemplate<T> {
    /// A template.
    Good {
        /// The cluster agent.
        cluster: ClusterName,
        /// The template's name.
        name: TemplateName,
        /// The template.
        template: T,
    },
    /// None.
    Refused(About, FileRefusal),
}

/// Template that a refusal affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// The template that the file would be.
    Template(TemplateName),
    /// No template: the file's name is no template's name in any reading.
    Nothing,
    /// Any template: it is not known which files there are.
    Folder,
}

impl From<Option<TemplateName>> for About {
    fn from(meant: Option<TemplateName>) -> Self {
        meant.map_or(Self::Nothing, Self::Template)
    }
}

/// Reads every template of a kind below a folder, and returns the problems of each that cannot be used. A folder that cannot be read at
/// all is reported by the readers of configurations there.
#[must_use]
pub fn check<K: TemplateKind>(dir: &Path) -> Vec<FileRefusal> {
    let refused = |found: ChangedTemplate<K::Template>| match found.read {
        ReadTemplate::Good { .. } => None,
        ReadTemplate::Refused(_, refusal) => Some(refusal),
    };
    scan::<K>(dir, &HashMap::new()).found.into_iter().filter_map(refused).collect()
}

/// Reads the files that have changed.
#[must_use]
pub fn scan<K: TemplateKind>(dir: &Path, seen: &HashMap<PathBuf, Stamp>) -> TemplateScan<K::Template> {
    let mut scanned = TemplateScan::default();
    for folder in folders(dir).unwrap_or_default() {
        if folder.is_dir() {
            look::<K>(&folder, seen, &mut scanned);
        }
    }
    scanned
}

fn look<K: TemplateKind>(agent: &Path, seen: &HashMap<PathBuf, Stamp>, scanned: &mut TemplateScan<K::Template>) {
    let (folder, name) = (agent.join(K::FOLDER), name_of(agent));
    let refuse = |message: String| {
        let refusal = FileRefusal::whole(folder.clone(), name.as_str(), message);
        ChangedTemplate { path: folder.clone(), stamp: None, read: ReadTemplate::Refused(About::Folder, refusal) }
    };
    let paths = match files(&folder) {
        Ok(paths) => paths,
        Err(message) => return scanned.found.push(refuse(message)),
    };
    let cluster = match cluster_of(&name) {
        Ok(cluster) => cluster,
        Err(_) if paths.is_empty() => return,
        Err(message) => return scanned.found.push(refuse(message)),
    };
    let mut listed = BTreeMap::new();
    for path in paths {
        // A file may be gone since it was listed.
        let Some(stamp) = Stamp::of(&path) else { continue };
        listed.insert(path.clone(), meant(&path));
        if seen.get(&path) != Some(&stamp) {
            let read = read::<K>(&cluster, &path);
            scanned.found.push(ChangedTemplate { path, stamp: Some(stamp), read });
        }
    }
    scanned.listed.push(ListedTemplates { cluster, folder, files: listed });
}

/// Returns the files of a folder that look like templates; none if there is no folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("the folder cannot be read: {error}")),
    };
    let mut paths = Vec::new();
    for entry in entries {
        // An entry that cannot be read would look like a deleted file.
        let path = entry.map_err(|error| format!("the folder cannot be read: {error}"))?.path();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        // Editors and mounted volumes keep hidden files beside those that are meant.
        if !name_of(&path).starts_with('.') && matches!(ending.as_deref(), Some("yaml" | "yml")) {
            paths.push(path);
        }
        if paths.len() > TEMPLATES_MAX {
            return Err(format!("the folder has more than {TEMPLATES_MAX} templates"));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns the template that a file's name was meant as, also if its ending or a capital letter is wrong.
fn meant(path: &Path) -> Option<TemplateName> {
    path.file_stem()?.to_str()?.to_ascii_lowercase().parse().ok()
}

/// Returns the template that a file is.
fn template_of(path: &Path) -> Result<TemplateName, String> {
    let name = name_of(path);
    let stem = name.strip_suffix(&format!(".{ENDING}"));
    let stem = stem.ok_or_else(|| format!("the file's name {name:?} must end in .{ENDING}"))?;
    stem.parse().map_err(|bad| format!("the file's name {name:?} is no template's: {bad}"))
}

fn read<K: TemplateKind>(cluster: &ClusterName, path: &Path) -> ReadTemplate<K::Template> {
    let whole = |message| FileRefusal::whole(path.to_owned(), cluster.as_str(), message);
    let name = match template_of(path) {
        Ok(name) => name,
        Err(message) => return ReadTemplate::Refused(meant(path).into(), whole(message)),
    };
    let bytes = match read_bounded(path, K::BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(message) => return ReadTemplate::Refused(About::Template(name), whole(message)),
    };
    match K::parse(&name, &bytes) {
        Ok(template) => ReadTemplate::Good { cluster: cluster.clone(), name, template },
        Err(problems) => {
            let refusal = FileRefusal::of_file(path.to_owned(), cluster.as_str(), problems);
            ReadTemplate::Refused(About::Template(name), refusal)
        }
    }
}
