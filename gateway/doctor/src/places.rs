//! Disks: whether the gateway can write where it has to.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use doctor::judge;
use doctor::{Check, Outcome};
use rustix::fs::statvfs;

use crate::Installation;
use gateway_config::{Config, StoreUrl};

/// Bytes that are written for a trial: more than what a file system keeps beside the file's name.
const TRIAL_BYTES: usize = 64 * 1024;

/// A place that the gateway writes to.
enum Place<'a> {
    /// A file that is written at its end, or made.
    End(&'a Path),
    /// A folder in which files are made.
    Folder(&'a Path),
}

/// Looks at every place of the configuration.
pub(crate) async fn look(it: Arc<Installation>) -> Vec<Check> {
    let looked = tokio::task::spawn_blocking(move || {
        let config = &it.config;
        let mut checks = of_store(config);
        checks.push(match &config.audit.path {
            Some(path) => check("disk of audit.path", &Place::End(path)),
            None => Check::skipped("disk of audit.path", "no file is configured"),
        });
        checks.push(match &config.tls.acme {
            Some(acme) if acme.folder.exists() => check("disk of tls.acme.folder", &Place::Folder(&acme.folder)),
            Some(_) => Check::skipped("disk of tls.acme.folder", "the folder is not there yet"),
            None => Check::skipped("disk of tls.acme.folder", "certificates come from elsewhere"),
        });
        checks
    });
    // One that broke off is reported as unfinished by its group.
    looked.await.unwrap_or_default()
}

/// Looks at the place of the database.
pub(crate) fn of_store(config: &Config) -> Vec<Check> {
    let name = "disk of store.url";
    match &config.store.url {
        StoreUrl::SqliteFile(path) => {
            let folder = parent_of(path);
            let mut checks = vec![check(name, &Place::Folder(&folder))];
            // The log of the database is made beside it; the file itself may be another's.
            if path.exists() && !checks.iter().any(Check::has_error) {
                checks = vec![check(name, &Place::End(path))];
            }
            checks
        }
        StoreUrl::SqliteMemory => vec![Check::skipped(name, "the database is in memory")],
        StoreUrl::Postgres(_) => vec![Check::skipped(name, "the database is on a server")],
    }
}

fn check(name: &str, place: &Place<'_>) -> Check {
    let (path, tried) = match place {
        Place::End(path) if path.exists() => (*path, OpenOptions::new().append(true).open(path).map(drop)),
        Place::End(path) => (*path, trial(&parent_of(path))),
        Place::Folder(path) => (*path, trial(path)),
    };
    let shown = path.display().to_string();
    let found = match tried {
        Err(error) => Some(judge::unwritable(&error, &shown)),
        Ok(()) => free(&parent_of(path)).and_then(|free| judge::room(free, &shown)),
    };
    Check::new(name, Outcome::of(found.into_iter().collect(), format!("{shown} can be written")))
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// Writes a file, down to the disk, and removes it.
fn trial(folder: &Path) -> io::Result<()> {
    // Processes of containers have few numbers, and a folder may be theirs together.
    let number = RandomState::new().build_hasher().finish();
    let path = folder.join(format!(".gateway-doctor-{number:016x}.try"));
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let written = file.write_all(&[0; TRIAL_BYTES]).and_then(|()| file.sync_data());
    // Also where it was not written whole.
    fs::remove_file(&path).unwrap_or_default();
    written
}

/// Returns the room that is left there, in bytes.
fn free(folder: &Path) -> Option<u64> {
    statvfs(folder).ok().map(|system| system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(test)]
mod tests {
    use doctor::FindingId;

    use super::*;

    #[test]
    fn trial_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        trial(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let gone = folder.path().join("gone");
        let Outcome::Found(found) = check("disk", &Place::Folder(&gone)).outcome else { panic!("it is not there") };
        assert_eq!(found[0].id, FindingId::DiskNotWritable);
    }
}
