//! Opens SQLite databases.
//!
//! One writer and several readers: SQLite allows one writer at a time, and a pool of one makes ours queue here, in order,
//! instead of spinning inside SQLite. `gateway serve` and the commands open the same file from several processes; the
//! write-ahead log lets them read while one writes, and a busy writer is waited for.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection, SqlitePool};
use tokio::time::Instant;

use super::StoreError;
use super::database::cause;

/// Time limit of SQLite for another process's write. Writes take milliseconds; a longer wait means that something
/// hangs.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before a retry, for operations in which SQLite does not wait by itself.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Time limit of a statement for getting a connection of the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that only read. Look-ups take microseconds, so a few serve many tasks.
const READERS_MAX: u32 = 4;

/// Starts a transaction that has the write lock from its first statement: one that begins by reading could find, when
/// it comes to write, that another process wrote in between, and waiting cannot mend that.
pub(super) const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";

/// Opens or creates a file; returns writer and readers.
pub(super) async fn open_file(path: PathBuf) -> Result<(SqlitePool, SqlitePool), StoreError> {
    // With a write-ahead log, NORMAL can lose the last commits on power loss, but never corrupts.
    let write = options().filename(&path).create_if_missing(true).synchronous(SqliteSynchronous::Normal);
    let read = options().filename(&path).pragma("query_only", "1");
    let is_new = !path.exists();
    let opened = async {
        let writer = pool(1).connect_with(write).await?;
        if is_new {
            make_private(&path)?;
        }
        use_write_ahead_log(&writer).await?;
        Ok(writer)
    };
    let writer = opened.await.map_err(|error| unopened(&path, &error))?;
    Ok((writer, pool(READERS_MAX).connect_lazy_with(read)))
}

/// Opens a file that is there, for reading.
pub(super) async fn open_present(path: &Path) -> Result<SqlitePool, StoreError> {
    let read = options().filename(path).pragma("query_only", "1");
    pool(1).connect_with(read).await.map_err(|error| unopened(path, &error))
}

/// Makes the error of a file that cannot be opened: a problem of its folder says more than SQLite's message.
pub(super) fn unopened(path: &Path, error: &sqlx::Error) -> StoreError {
    let why = folder_problem(path).unwrap_or_else(|| cause(error).to_string());
    StoreError::Open { path: path.to_owned(), why }
}

/// Returns the problem with the place of a database, and its remedy; `None` if a file can be made there.
pub(super) fn folder_problem(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some("it is a folder: name a file in store.url".to_owned());
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    };
    let shown = folder.display();
    match folder.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(format!("the folder {shown} does not exist: make it, or change store.url"))
        }
        Err(error) => Some(format!("the folder {shown} cannot be read: {error}")),
        Ok(found) if !found.is_dir() => Some(format!("{shown} is no folder: change store.url")),
        Ok(_) => {
            // A trial file is the only sure check for any user on any file system. The log of the database has to be
            // made there too.
            let tried = tempfile_in(folder).err()?;
            Some(format!(
                "no file can be made in the folder {shown} ({tried}): let the gateway's user write there, or change store.url"
            ))
        }
    }
}

/// Makes and removes a file.
fn tempfile_in(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".gateway-{}.try", std::process::id()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
    drop(std::fs::remove_file(&path));
    made.map(|_| ())
}

/// Lets only the owner read a new database. SQLite gives its log the rights of the database, so this comes before the
/// log is made. By path: opening the file here and closing it would end the locks that this process has on it.
fn make_private(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Switches the file to a write-ahead log, for good. If two programs do that to a new file at once, SQLite answers one
/// of them `busy` at once, unlike elsewhere, so the wait is done here.
async fn use_write_ahead_log(writer: &SqlitePool) -> Result<(), sqlx::Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match sqlx::query("PRAGMA journal_mode = WAL").execute(writer).await {
            Err(error) if is_busy(&error) && Instant::now() < deadline => tokio::time::sleep(BUSY_PAUSE).await,
            done => return done.map(|_| ()),
        }
    }
}

/// Returns whether SQLite's primary result code, the low byte, is `SQLITE_BUSY`.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<u32>().ok());
    code.is_some_and(|code| code & 0xff == 5)
}

/// Keeps a database in memory alive.
pub(super) type Keeper = Arc<Mutex<SqliteConnection>>;

/// Makes a database in memory. It lives as long as any connection to it, and the pool closes a connection whose user
/// was cancelled in the middle of a look-up, so an unused connection keeps it alive.
pub(super) async fn open_memory() -> Result<(SqlitePool, Keeper), StoreError> {
    let failed = |error| unopened(Path::new(":memory:"), &error);
    // The text gives each database a name of its own, under which its connections share it.
    let options = common(SqliteConnectOptions::from_str("sqlite::memory:").map_err(failed)?);
    let keeper = options.connect().await.map_err(failed)?;
    let pool = pool(1).connect_with(options).await.map_err(failed)?;
    Ok((pool, Arc::new(Mutex::new(keeper))))
}

fn options() -> SqliteConnectOptions {
    common(SqliteConnectOptions::new())
}

fn common(options: SqliteConnectOptions) -> SqliteConnectOptions {
    // Statements are not logged: they would fill the log at its debug level without adding to the spans.
    options.busy_timeout(BUSY_TIMEOUT).foreign_keys(true).disable_statement_logging()
}

fn pool(connections_max: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // SQLite ends a transaction by itself on a full disk, and the library still counts it: a connection counted as
        // in a transaction begins no other, so it is closed.
        .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
}
