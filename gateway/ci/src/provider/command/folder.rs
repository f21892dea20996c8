//! Folder of a workspace whose jobs are run by a program: inputs of the program, and the state of its run.
//!
//! ```text
//! DIRECTORY/CACHE_KEY/                       0700: the program's working folder, and what it leaves to the next run
//!   .gitlab-ci.yml                           0600: the pipeline
//!   .gitlab-ci-local-variables.yml           0600: its variables, which are paths of files in run/secrets, and of run/private
//!   run/secrets/                             0700: their values, 0600; deleted when the run is over
//!   run/private/                             0700: where jobs keep such values, and programs they fetched; deleted then too
//!   run/plan.json                            the wanted run, and how it is started
//!   run/lock                                 held for as long as a supervisor runs
//!   run/record.json                          the run and its outcome
//!   run/cancel                               the key of the run that is to end
//!   run/log, run/log.before
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::{ProviderError, RunKey};
use super::process::ProcessId;

/// Longest of the small files, in bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;

const DEFINITION: &str = ".gitlab-ci.yml";
const VARIABLES: &str = ".gitlab-ci-local-variables.yml";
const PLAN: &str = "run/plan.json";
const LOCK: &str = "run/lock";
const RECORD: &str = "run/record.json";
const CANCEL: &str = "run/cancel";
const SECRETS: &str = "run/secrets";
const PRIVATE: &str = "run/private";

/// Variable that names the private folder to jobs. A job's script is not given the time to clean up when it is killed.
pub(super) const PRIVATE_VARIABLE: &str = "GW_PRIVATE_DIR";

/// A workspace's folder.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

/// Instructions for a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunPlan {
    pub(super) key: RunKey,
    /// The program and its arguments.
    pub(super) program: Vec<String>,
    /// Longest time that the program may take to end on request.
    pub(super) grace_seconds: u64,
    /// Most bytes of the log.
    pub(super) log_bytes_max: u64,
}

/// A supervisor's record of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    pub(super) key: RunKey,
    /// Boot of the machine that the process numbers belong to.
    pub(super) boot: String,
    pub(super) supervisor: ProcessId,
    /// The program, which leads the session of all that it starts.
    pub(super) program: Option<ProcessId>,
    pub(super) started_at: i64,
    pub(super) end: Option<SupervisedEnd>,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SupervisedEnd {
    pub(super) how: How,
    /// The run was asked to end.
    pub(super) is_canceled: bool,
}

/// Outcome of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// With a status.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// Unknown: its supervisor was killed, or the machine went down.
    Lost,
}

/// Held while a run is supervised, or while none may be started.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Files that are written into a folder before a run.
pub(super) struct Files<'a> {
    pub(super) definition: &'a str,
    /// Names of variables, and contents of their files.
    pub(super) secrets: &'a [(String, String)],
    pub(super) plan: &'a RunPlan,
}

/// Returns options for writing a file that no other user may read.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

impl Folder {
    /// Creates the handle of a folder.
    pub(super) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn run_path(&self) -> PathBuf {
        self.0.join("run")
    }

    /// Creates the folder if there is none, and checks that it belongs to this user alone.
    pub(super) fn make(&self) -> Result<(), ProviderError> {
        let parent = self.0.parent().unwrap_or(&self.0);
        make(DirBuilder::new().recursive(true), parent)?;
        // A user who may write there could put another folder in the place of this one.
        check(parent, 0o022)?;
        for path in [self.0.clone(), self.run_path()] {
            make(&mut DirBuilder::new(), &path)?;
            check(&path, 0o077)?;
        }
        Ok(())
    }

    /// Returns whether the folder exists.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_dir()
    }

    /// Takes the lock; `None` if it is held.
    pub(super) fn try_lock(&self) -> Result<Option<Lock>, ProviderError> {
        let path = self.0.join(LOCK);
        let open = || private().create(true).truncate(false).open(&path);
        let file = open().map_err(|error| failed("open", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed("lock", &path, &error)),
        }
    }

    /// Writes the files of a run. The lock is the proof that none is under way.
    pub(super) fn write(&self, files: &Files<'_>, _lock: &Lock) -> Result<(), ProviderError> {
        self.forget_secrets()?;
        for folder in [SECRETS, PRIVATE] {
            make(&mut DirBuilder::new(), &self.0.join(folder))?;
        }
        // A text, which happens to be a path: of variables of type `file`, gitlab-ci-local leaves copies below /tmp.
        let named = |folder: &str| {
            let path = self.0.join(folder).to_string_lossy().into_owned();
            json!({"type": "variable", "values": {"*": path}})
        };
        let mut variables = Map::from_iter([(PRIVATE_VARIABLE.to_owned(), named(PRIVATE))]);
        for (name, content) in files.secrets {
            let file = format!("{SECRETS}/{name}");
            self.put(&file, content.as_bytes())?;
            variables.insert(name.clone(), named(&file));
        }
        self.put(DEFINITION, files.definition.as_bytes())?;
        // It is read as YAML, of which JSON is a part.
        self.put(VARIABLES, Value::Object(variables).to_string().as_bytes())?;
        self.put_json(PLAN, files.plan)
    }

    /// Deletes the values of the variables, and what a job made of them: the run is over, or has not begun.
    pub(super) fn forget_secrets(&self) -> Result<(), ProviderError> {
        let deleted = [SECRETS, PRIVATE].map(|folder| delete(&self.0.join(folder)));
        deleted.into_iter().collect()
    }

    pub(super) fn plan(&self) -> Result<Option<RunPlan>, ProviderError> {
        self.get_json(PLAN)
    }

    pub(super) fn record(&self) -> Result<Option<RunRecord>, ProviderError> {
        self.get_json(RECORD)
    }

    pub(super) fn put_record(&self, record: &RunRecord) -> Result<(), ProviderError> {
        self.put_json(RECORD, record)
    }

    /// Records that a run is to end.
    pub(super) fn ask_to_end(&self, key: &RunKey) -> Result<(), ProviderError> {
        self.put(CANCEL, key.as_str().as_bytes())
    }

    /// Returns whether a run was asked to end.
    pub(super) fn is_asked_to_end(&self, key: &RunKey) -> Result<bool, ProviderError> {
        Ok(self.get(CANCEL)?.is_some_and(|bytes| bytes == key.as_str().as_bytes()))
    }

    /// Deletes the folder with its contents.
    pub(super) fn delete(&self, _lock: Lock) -> Result<(), ProviderError> {
        delete(&self.0)
    }

    fn put_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), ProviderError> {
        let bytes = serde_json::to_vec(value).map_err(|error| failed("write", &self.0.join(name), &error.into()))?;
        self.put(name, &bytes)
    }

    /// Replaces a file atomically: a reader sees the old one or the new one.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), ProviderError> {
        let (path, draft) = (self.0.join(name), self.0.join(format!("{name}.new")));
        let write = || {
            let mut file = private().create(true).truncate(true).open(&draft)?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        };
        write().map_err(|error| failed("write", &path, &error))
    }

    /// Reads a small file as JSON. Invalid contents count as missing: files are replaced as a whole, so another program
    /// wrote it.
    fn get_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ProviderError> {
        Ok(self.get(name)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ProviderError> {
        let path = self.0.join(name);
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(&path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }
}

/// Creates the error of a failed operation on a file or a folder.
pub(super) fn failed(what: &'static str, path: &Path, error: &io::Error) -> ProviderError {
    ProviderError::Folder { what, path: path.to_owned(), why: error.to_string() }
}

fn make(builder: &mut DirBuilder, path: &Path) -> Result<(), ProviderError> {
    match builder.mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("make", path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Deletes a folder with its contents, if it exists.
fn delete(folder: &Path) -> Result<(), ProviderError> {
    let mut deleted = fs::remove_dir_all(folder);
    if deleted.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        // Caches of build tools have read-only folders.
        deleted = make_writable(folder).and_then(|()| fs::remove_dir_all(folder));
    }
    match deleted {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("delete", folder, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Refuses a path that is no folder of this process's user, or that gives others rights in `forbidden`.
fn check(path: &Path, forbidden: u32) -> Result<(), ProviderError> {
    let metadata = fs::symlink_metadata(path).map_err(|error| failed("use", path, &error))?;
    let why = if !metadata.is_dir() {
        "it is no folder"
    } else if metadata.uid() != geteuid().as_raw() {
        "it belongs to another user"
    } else if metadata.mode() & forbidden != 0 {
        "others may use it: its rights are too wide"
    } else {
        return Ok(());
    };
    Err(ProviderError::Folder { what: "use", path: path.to_owned(), why: why.to_owned() })
}

/// Gives the owner write access to a folder and all folders in it. Links are not followed.
fn make_writable(folder: &Path) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_that_others_may_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::at(directory.path().join("jobs/one"));
        folder.make().unwrap();
        folder.make().unwrap();
        for path in [folder.path().parent().unwrap(), folder.path(), &folder.run_path()] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700, "{path:?}");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(folder.make().unwrap_err().to_string().contains("rights are too wide"));
        let linked = Folder::at(directory.path().join("jobs/two"));
        std::os::unix::fs::symlink(folder.path(), linked.path()).unwrap();
        assert!(linked.make().unwrap_err().to_string().contains("no folder"));
        fs::set_permissions(directory.path().join("jobs"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(folder.make().unwrap_err().to_string().contains("rights are too wide"));
    }

    #[test]
    fn folders_that_are_only_to_be_read_are_opened_and_links_out_of_them_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (ours, theirs) = (directory.path().join("ours/cache/deep"), directory.path().join("theirs"));
        fs::create_dir_all(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::symlink(&theirs, ours.join("link")).unwrap();
        let closed = [&theirs, &ours, ours.parent().unwrap()];
        for path in closed {
            fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
        }
        make_writable(&directory.path().join("ours")).unwrap();
        let modes = closed.map(|path| fs::metadata(path).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o555, 0o700, 0o700]);
        fs::remove_dir_all(directory.path().join("ours")).unwrap();
    }

    #[test]
    fn lock_is_one_persons_and_is_free_when_its_holder_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::at(directory.path().join("jobs/one"));
        folder.make().unwrap();
        let lock = folder.try_lock().unwrap().unwrap();
        assert!(folder.try_lock().unwrap().is_none());
        drop(lock);
        assert!(folder.try_lock().unwrap().is_some());
    }

    #[test]
    fn files_are_private_whatever_was_there_and_nonsense_counts_as_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::at(directory.path().join("jobs/one"));
        folder.make().unwrap();
        assert_eq!(folder.record().unwrap(), None);
        fs::write(folder.path().join("run/cancel.new"), "x").unwrap();
        fs::set_permissions(folder.path().join("run/cancel.new"), fs::Permissions::from_mode(0o666)).unwrap();
        let key = RunKey::generate().unwrap();
        folder.ask_to_end(&key).unwrap();
        assert_eq!(fs::metadata(folder.path().join(CANCEL)).unwrap().mode() & 0o777, 0o600);
        assert!(folder.is_asked_to_end(&key).unwrap());
        assert!(!folder.is_asked_to_end(&RunKey::generate().unwrap()).unwrap());
        fs::write(folder.path().join(RECORD), "{\"key\": 7").unwrap();
        assert_eq!(folder.record().unwrap(), None);
    }
}
