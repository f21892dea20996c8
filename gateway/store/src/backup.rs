//! Backups of a gateway: its SQLite database, as it was at one moment, and the keys of its secrets, in one file that can be checked;
//! and how they are brought back.
//!
//! PostgreSQL has backups of its own (`pg_dump`). For such a database the file has the keys alone, and a restoration settles
//! the database that `pg_restore` has brought back.
//!
//! A restored database is settled before it is used ([`settle`]): what it says of processes and sign-ins was true when the backup
//! was made, and is not any more.

mod container;
mod restore;
mod settle;

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use thiserror::Error;

use super::database::{Connections, Pool, cause};
use super::seal::{Keys, fit, present_keys};
use super::{StoreError, inspect, sqlite};
use gateway_config::{StoreConfig, StoreUrl};
use gateway_net::availability::Availability;
use gateway_types::UnixSeconds;

pub use container::{BackupHead, BadBackup};
pub use restore::{Replacing, Restored, restore};

/// Tries to find a moment at which the keys and the database fit: a key may be exchanged meanwhile.
const TRIES: u32 = 3;

/// Failure to make a backup, or to bring one back.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The file is there already.
    #[error("{} is there already, and no backup is written over another file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written or read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        error: io::Error,
    },
    /// The file is no good backup.
    #[error("{} cannot be restored: {bad}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        bad: BadBackup,
    },
    /// The copy of the database is not whole.
    #[error("the copy of the database is damaged: {0}")]
    Copy(String),
    /// A gateway or a command has the database open.
    #[error("the database is in use ({holder}): end that first")]
    InUse {
        /// What has it.
        holder: String,
    },
    /// There is a database, or a file of keys, that would be lost.
    #[error("{} is there already: --replace puts it aside and restores in its place", path.display())]
    Present {
        /// The file.
        path: PathBuf,
    },
    /// The database in whose place the backup would come is of a later program.
    #[error(
        "the database {} has schema {found}, made by a newer version of this program, and this one knows up to {known}: restore \
         with that version", path.display()
    )]
    PresentIsNewer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
    },
    /// The backup is of another kind of database than the configuration names.
    #[error(
        "the backup has {found}, and store.url names {wanted}: use the configuration of the gateway that it was made of"
    )]
    OtherKind {
        /// What is in it.
        found: &'static str,
        /// What is configured.
        wanted: &'static str,
    },
    /// A database in memory ends with its process.
    #[error("store.url is sqlite::memory:, which ends with its gateway; there is nothing to back up or restore")]
    Memory,
    /// Without keys there is nothing to write.
    #[error("the database is PostgreSQL's, which pg_dump backs up, and without its keys nothing is left to write")]
    Nothing,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether the keys are in the backup too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithKeys {
    /// They are: who has the file can read all secrets.
    Yes,
    /// They are not, and have to be kept elsewhere.
    No,
}

/// Makes a backup of the database that a configuration names, also while gateways use it. The new file can be read by its owner
/// alone; it is there whole, or not at all.
///
/// # Errors
/// [`BackupError`].
///
/// # Cancel safety
/// Dropped before it returns, it may leave files beside `to` whose names end in `.part`.
pub async fn backup(
    config: &StoreConfig,
    to: &Path,
    with: WithKeys,
    program: &str,
    now: UnixSeconds,
) -> Result<BackupHead, BackupError> {
    if to.exists() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    let (copy, whole) = (Part::beside(to, "database.part"), Part::beside(to, "part"));
    let mut head =
        BackupHead { program: program.to_owned(), made_at: now.get(), schema: None, database_bytes: 0, keys_bytes: 0 };
    let key_file = config.key_file().ok_or(BackupError::Memory)?;
    let keys = match &config.url {
        StoreUrl::SqliteMemory => return Err(BackupError::Memory),
        StoreUrl::SqliteFile(path) => {
            let keys = Box::pin(copy_with_keys(path, &copy, &key_file)).await?;
            head.schema = inspect(&StoreConfig::at(StoreUrl::SqliteFile(copy.path.clone()))).await?.schema;
            head.database_bytes = fs::metadata(&copy.path).map_err(failed(&copy.path))?.len();
            keys
        }
        StoreUrl::Postgres(_) if with == WithKeys::No => return Err(BackupError::Nothing),
        // Opened only to see that the keys are those of its secrets.
        StoreUrl::Postgres(_) => {
            present_keys(&key_file)?;
            read_file(&key_file)?
        }
    };
    let keys = if with == WithKeys::Yes { keys } else { Vec::new() };
    head.keys_bytes = u64::try_from(keys.len()).unwrap_or_default();
    let out = private(&whole.path)?;
    let written = match &config.url {
        StoreUrl::SqliteFile(_) => {
            let database = File::open(&copy.path).map_err(failed(&copy.path))?;
            container::write(BufWriter::new(&out), &head, BufReader::new(database), &keys)
        }
        StoreUrl::SqliteMemory | StoreUrl::Postgres(_) => {
            container::write(BufWriter::new(&out), &head, io::empty(), &keys)
        }
    };
    written.and_then(|()| out.sync_all()).map_err(failed(to))?;
    // A link fails where a rename would replace.
    match fs::hard_link(&whole.path, to) {
        Ok(()) => Ok(head),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(BackupError::Exists { path: to.to_owned() }),
        Err(error) => Err(failed(to)(error)),
    }
}

/// Reads a backup whole, and returns what it says of itself.
///
/// # Errors
/// [`BackupError::File`] or [`BackupError::Bad`].
pub fn check(from: &Path) -> Result<BackupHead, BackupError> {
    let file = File::open(from).map_err(failed(from))?;
    let read = container::read(BufReader::new(file), io::sink());
    read.map(|(head, _)| head).map_err(|bad| BackupError::Bad { path: from.to_owned(), bad })
}

/// Copies a database and reads the keys, so that these fit.
async fn copy_with_keys(database: &Path, copy: &Part, key_file: &Path) -> Result<Vec<u8>, BackupError> {
    for _ in 1..TRIES {
        if let Some(keys) = Box::pin(try_copy_with_keys(database, copy, key_file)).await? {
            return Ok(keys);
        }
    }
    let last = Box::pin(try_copy_with_keys(database, copy, key_file)).await?;
    last.ok_or_else(|| StoreError::KeyWrong { path: key_file.to_owned() }.into())
}

async fn try_copy_with_keys(database: &Path, copy: &Part, key_file: &Path) -> Result<Option<Vec<u8>>, BackupError> {
    let (keys, text) = (present_keys(key_file)?, read_file(key_file)?);
    snapshot(database, &copy.path).await?;
    Ok(is_good(&copy.path, &keys).await?.then_some(text))
}

/// Copies a database as it is at one moment. Others go on reading and writing it.
async fn snapshot(database: &Path, copy: &Path) -> Result<(), BackupError> {
    fs::remove_file(copy).unwrap_or_default();
    // SQLite writes into a file that is there and empty, so that no other user can ever read it.
    drop(private(copy)?);
    let opened = SqliteConnectOptions::new().filename(database).create_if_missing(false).disable_statement_logging();
    let unopened = |error| BackupError::Store(sqlite::unopened(database, &error));
    let mut connection = opened.connect().await.map_err(unopened)?;
    let text = copy.to_str().ok_or_else(|| failed(copy)(io::Error::other("its path is no UTF-8")))?;
    let copied = sqlx::query("VACUUM INTO $1").bind(text).execute(&mut connection).await;
    connection.close().await.unwrap_or_default();
    copied.map_err(|error| BackupError::Copy(cause(&error).to_string()))?;
    Ok(())
}

/// Checks the copy of a database, and returns whether the keys are those of its secrets.
async fn is_good(copy: &Path, keys: &Keys) -> Result<bool, BackupError> {
    let pool = sqlite::open_present(copy).await?;
    let checked: Result<String, _> = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&pool).await;
    let fits = fit(&Pool::new(Connections::Sqlite(pool.clone()), Availability::default()), keys).await;
    pool.close().await;
    match checked {
        Ok(answer) if answer == "ok" => Ok(fits?),
        Ok(answer) => Err(BackupError::Copy(answer)),
        Err(error) => Err(BackupError::Copy(cause(&error).to_string())),
    }
}

/// A file that is removed at the end, with what SQLite leaves beside it.
struct Part {
    path: PathBuf,
}

impl Part {
    /// Names a file beside another.
    fn beside(path: &Path, suffix: &str) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.{suffix}", std::process::id()));
        Self { path: name.into() }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = self.path.as_os_str().to_owned();
            name.push(suffix);
            fs::remove_file(PathBuf::from(name)).unwrap_or_default();
        }
    }
}

/// Makes a file that only its owner can read.
fn private(path: &Path) -> Result<File, BackupError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(failed(path))
}

fn read_file(path: &Path) -> Result<Vec<u8>, BackupError> {
    fs::read(path).map_err(failed(path))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> BackupError {
    move |error| BackupError::File { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests;
