//! Brings a backup back.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};

use super::container::{self, BackupHead};
use super::{BackupError, Part, failed, private};
use crate::seal::{Target, write_private};
use crate::{SingleError, SingleGateway, Store, StoreError, inspect, sqlite};
use gateway_config::{StoreConfig, StoreUrl};

/// Whether a database that is there may be put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacing {
    /// It may.
    Allowed,
    /// It stays, and nothing is restored.
    Refused,
}

/// A backup that was brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What the backup says of itself.
    pub head: BackupHead,
    /// Files that were put aside.
    pub aside: Vec<PathBuf>,
    /// Sign-ins of browsers that ended.
    pub sign_ins: u64,
}

/// Brings a backup back to where the configuration says that database and keys are. With PostgreSQL, brings the keys back, and
/// settles the database, which has to be there.
///
/// # Errors
/// [`BackupError`]; then database and keys are what they were, except after a failure to rename one of them.
///
/// # Cancel safety
/// Dropped before it returns, it may leave files whose names end in `.part`.
pub async fn restore(config: &StoreConfig, from: &Path, replacing: Replacing) -> Result<Restored, BackupError> {
    let key_file = config.key_file().ok_or(BackupError::Memory)?;
    // Also keeps a gateway from starting meanwhile.
    let _single = SingleGateway::take(config, Duration::ZERO).await.map_err(in_use)?;
    match &config.url {
        StoreUrl::SqliteMemory => Err(BackupError::Memory),
        StoreUrl::SqliteFile(path) => {
            let place = Place { database: path, key_file: &key_file, from, replacing };
            Box::pin(place.restore(config)).await
        }
        StoreUrl::Postgres(_) => Box::pin(restore_keys(config, &key_file, from, replacing)).await,
    }
}

fn in_use(error: SingleError) -> BackupError {
    match error {
        SingleError::Taken { holder, .. } => BackupError::InUse { holder },
        SingleError::Store(error) => BackupError::Store(error),
    }
}

/// Files of a restoration.
struct Place<'a> {
    database: &'a Path,
    key_file: &'a Path,
    from: &'a Path,
    replacing: Replacing,
}

impl Place<'_> {
    async fn restore(&self, config: &StoreConfig) -> Result<Restored, BackupError> {
        let (copy, keys) = (Part::beside(self.database, "part"), Part::beside(self.key_file, "part"));
        let (head, text) = unpack(self.from, Some(&copy.path))?;
        if head.schema.is_none() {
            return Err(BackupError::OtherKind { found: "only the keys of a PostgreSQL database", wanted: "SQLite" });
        }
        if self.database.exists() {
            self.may_be_replaced(config).await?;
        }
        let new_keys = KeysFile::compare(self.key_file, &text)?;
        if new_keys == KeysFile::Differs && self.replacing == Replacing::Refused {
            return Err(BackupError::Present { path: self.key_file.to_owned() });
        }
        let mut key_file = self.key_file.to_owned();
        if new_keys != KeysFile::Same {
            write_private(&keys.path, &text, Target::New).map_err(failed(&keys.path))?;
            key_file.clone_from(&keys.path);
        }
        // Checks schema and keys, and brings an older schema up to date.
        let url = StoreUrl::SqliteFile(copy.path.clone());
        let store = Store::open_with(&StoreConfig { url, key_file: Some(key_file), ..config.clone() }).await?;
        let settled = store.settle_restored().await;
        store.close().await;
        let sign_ins = settled?;
        File::open(&copy.path).and_then(|file| file.sync_all()).map_err(failed(&copy.path))?;
        let mut aside = Vec::new();
        if self.database.exists() {
            leave_alone(self.database).await?;
            aside.push(put_aside(self.database)?);
        }
        if new_keys == KeysFile::Differs {
            aside.push(put_aside(self.key_file)?);
        }
        if new_keys != KeysFile::Same {
            fs::rename(&keys.path, self.key_file).map_err(failed(self.key_file))?;
        }
        // Also of a database that is gone: SQLite would take them for a part of the restored one.
        put_logs_aside(self.database)?;
        fs::rename(&copy.path, self.database).map_err(failed(self.database))?;
        let folder = self.database.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())
            .map_err(failed(self.database))?;
        Ok(Restored { head, aside, sign_ins })
    }

    async fn may_be_replaced(&self, config: &StoreConfig) -> Result<(), BackupError> {
        if self.replacing == Replacing::Refused {
            return Err(BackupError::Present { path: self.database.to_owned() });
        }
        // One that cannot be read is a reason to restore.
        let Ok(facts) = inspect(config).await else { return Ok(()) };
        match facts.schema {
            Some(found) if found > facts.known => {
                Err(BackupError::PresentIsNewer { path: self.database.to_owned(), found, known: facts.known })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The keys' file that is there, beside that of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeysFile {
    /// There is none.
    Missing,
    /// It is the same, or the backup has none.
    Same,
    /// It is another one.
    Differs,
}

impl KeysFile {
    fn compare(path: &Path, text: &[u8]) -> Result<Self, BackupError> {
        if text.is_empty() {
            let missing = || StoreError::KeyMissing { path: path.to_owned() };
            return if path.exists() { Ok(Self::Same) } else { Err(missing().into()) };
        }
        match fs::read(path) {
            Ok(present) if present == text => Ok(Self::Same),
            Ok(_) => Ok(Self::Differs),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) => Err(failed(path)(error)),
        }
    }
}

/// Brings the keys of a PostgreSQL database back, and settles it.
async fn restore_keys(
    config: &StoreConfig,
    key_file: &Path,
    from: &Path,
    replacing: Replacing,
) -> Result<Restored, BackupError> {
    let (head, text) = unpack(from, None)?;
    if head.schema.is_some() {
        return Err(BackupError::OtherKind { found: "a SQLite database", wanted: "PostgreSQL" });
    }
    let mut aside = Vec::new();
    match KeysFile::compare(key_file, &text)? {
        KeysFile::Same => {}
        KeysFile::Missing => write_private(key_file, &text, Target::New).map_err(failed(key_file))?,
        KeysFile::Differs if replacing == Replacing::Refused => {
            return Err(BackupError::Present { path: key_file.to_owned() });
        }
        KeysFile::Differs => {
            aside.push(put_aside(key_file)?);
            write_private(key_file, &text, Target::New).map_err(failed(key_file))?;
        }
    }
    let store = Store::open_with(config).await?;
    let settled = Box::pin(settle_unless_used(&store)).await;
    store.close().await;
    Ok(Restored { head, aside, sign_ins: settled? })
}

async fn settle_unless_used(store: &Store) -> Result<u64, BackupError> {
    let replicas = store.replicas().await?;
    if let Some(first) = replicas.first() {
        return Err(BackupError::InUse { holder: format!("replica {} lives", first.incarnation) });
    }
    Ok(store.settle_restored().await?)
}

/// Reads a backup, and writes its database to a new file.
fn unpack(from: &Path, to: Option<&Path>) -> Result<(BackupHead, Vec<u8>), BackupError> {
    let file = BufReader::new(File::open(from).map_err(failed(from))?);
    let bad = |bad| BackupError::Bad { path: from.to_owned(), bad };
    let Some(to) = to else { return container::read(file, io::sink()).map_err(bad) };
    let out = private(to)?;
    let read = container::read(file, BufWriter::new(&out)).map_err(bad)?;
    out.sync_all().map_err(failed(to))?;
    Ok(read)
}

/// Has SQLite write all of a database into its one file: what lay beside it would be taken for a part of the restored one. Fails if
/// another process has it open.
async fn leave_alone(database: &Path) -> Result<(), BackupError> {
    let options = SqliteConnectOptions::new().filename(database).disable_statement_logging();
    let opened = options.connect().await;
    let done = match opened {
        Ok(connection) => checkpoint(connection).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => Ok(()),
        Err(error) if sqlite::is_busy(&error) => {
            Err(BackupError::InUse { holder: "another program has it open".to_owned() })
        }
        // It is no database any more: its log is put aside with it.
        Err(_) => Ok(()),
    }
}

/// Puts the files aside that SQLite keeps beside a database.
fn put_logs_aside(database: &Path) -> Result<(), BackupError> {
    for suffix in ["-wal", "-shm", "-journal"] {
        let mut name = database.as_os_str().to_owned();
        name.push(suffix);
        put_aside_if_there(Path::new(&name))?;
    }
    Ok(())
}

async fn checkpoint(mut connection: SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("PRAGMA busy_timeout = 1000").execute(&mut connection).await?;
    sqlx::query("PRAGMA journal_mode = DELETE").execute(&mut connection).await?;
    connection.close().await
}

fn put_aside_if_there(path: &Path) -> Result<(), BackupError> {
    if path.exists() { put_aside(path).map(drop) } else { Ok(()) }
}

/// Renames a file to a name that no file has.
fn put_aside(path: &Path) -> Result<PathBuf, BackupError> {
    for number in 1_u32.. {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".before-restore-{number}"));
        let aside = PathBuf::from(name);
        // A link fails where a rename would replace.
        match fs::hard_link(path, &aside) {
            Ok(()) => {
                fs::remove_file(path).map_err(failed(path))?;
                return Ok(aside);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(path)(error)),
        }
    }
    Err(failed(path)(io::ErrorKind::AlreadyExists.into()))
}
