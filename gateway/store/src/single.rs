//! Ensures one gateway for each database: its drivers remember the jobs that they began, and two gateways would end
//! each other's.
//!
//! The system releases the lock the moment its process ends, however it ends: it is on a file beside SQLite's, or an
//! advisory lock of a session of PostgreSQL (documentation, section 13.3.5). Commands of the operator take none.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Executor as _, Row as _};
use thiserror::Error;
use tokio::time::Instant;

use super::database::{Connections, Pool};
use super::{StoreError, postgres, sqlite};
use gateway_config::{PostgresUrl, StoreConfig, StoreUrl};

/// Time limit of a gateway for its predecessor to end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Poll interval meanwhile.
const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// Attempts to take a lock after its session was just ended.
const TRIES: u32 = 20;

/// Names the lock: one for each schema, as tests have several in one database.
macro_rules! lock {
    () => {
        "hashtextextended(coalesce(current_schema(), '') || ' one gateway', 0)"
    };
}

/// Tries to take the lock, and returns the session.
const TAKE: &str = concat!(
    "SELECT pg_try_advisory_lock(",
    lock!(),
    ") AS is_ours, pg_backend_pid() AS pid, \
     (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS began"
);

/// Finds the session that has it. The key is kept in two halves (documentation, section 54.12).
const HOLDER: &str = concat!(
    "SELECT activity.pid, coalesce(activity.backend_start::text, '') AS began, \
     coalesce(host(activity.client_addr), 'local') AS address FROM pg_locks \
     JOIN pg_stat_activity AS activity ON activity.pid = pg_locks.pid \
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND ((classid::bigint << 32) | objid::bigint) = ",
    lock!()
);

/// A session with a silently vanished client ends after 10 s and three probes, and not after hours.
const KEEPALIVE: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3";

/// Reason why this process is not the gateway of its database.
#[derive(Debug, Error)]
pub enum SingleError {
    /// Another gateway is.
    #[error(
        "another gateway serves the database {database} ({holder}), and this version serves one gateway per database: \
         end that one, take its place (directory = \"host\" and gateway serve --replace), or give this one a database of its own"
    )]
    Taken {
        /// The database, without the password.
        database: String,
        /// Description of the other gateway.
        holder: String,
    },
    /// The check failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The right of this process to be the gateway of its database. Dropping it releases the lock.
#[derive(Debug)]
pub struct SingleGateway {
    hold: Hold,
    database: String,
}

#[derive(Debug)]
enum Hold {
    /// Not needed: no other process can have a database in memory, and replicas share one on purpose.
    Unlocked,
    /// Of a file, until this one is closed, and the copies of it that other processes were given.
    File { locked: Mutex<Option<File>> },
    /// Of a server.
    Server { options: Box<PgConnectOptions>, session: Mutex<Option<Session>> },
}

/// The session that has the lock.
#[derive(Debug)]
struct Session {
    /// Never used for statements; it exists because its end releases the lock.
    _connection: PgConnection,
    id: SessionId,
}

/// A process of the server: process numbers recur, but not with the same start time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SessionId {
    pid: i32,
    began: String,
}

impl SingleGateway {
    /// Becomes the gateway of a database; waits up to `patience` for another one to end, and says so.
    ///
    /// # Errors
    /// [`SingleError::Taken`] when it does not end; [`SingleError::Store`] when the database cannot be reached, or no file can be
    /// made beside it.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it holds nothing.
    pub async fn take(config: &StoreConfig, patience: Duration) -> Result<Self, SingleError> {
        let deadline = Instant::now() + patience;
        let mut is_told = false;
        let database = config.url.to_string();
        loop {
            let holder = match attempt(config).await? {
                Ok(hold) => return Ok(Self { hold, database }),
                Err(holder) => holder,
            };
            if Instant::now() >= deadline {
                return Err(SingleError::Taken { database, holder });
            }
            if !is_told {
                is_told = true;
                tracing::warn!(%database, %holder, "another gateway serves this database: waiting up to {} s for it to end", patience.as_secs());
            }
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }

    /// Becomes one of the gateways that share a database on purpose. No lock is taken.
    #[must_use]
    pub fn shared(config: &StoreConfig) -> Self {
        Self { hold: Hold::Unlocked, database: config.url.to_string() }
    }

    /// Becomes the gateway of a database in the place of another process of this host, whose locked file this is.
    #[must_use]
    pub fn handed_over(config: &StoreConfig, locked: File) -> Self {
        note_process(&locked);
        Self { hold: Hold::File { locked: Mutex::new(Some(locked)) }, database: config.url.to_string() }
    }

    /// Returns a copy of the locked file for the process that takes this one's place; `None` if there is none.
    ///
    /// # Errors
    /// The system's.
    pub fn copy(&self) -> io::Result<Option<OwnedFd>> {
        match &self.hold {
            Hold::File { locked } => locked.lock().as_ref().map(|file| file.as_fd().try_clone_to_owned()).transpose(),
            Hold::Unlocked | Hold::Server { .. } => Ok(None),
        }
    }

    /// Gives up this process' part of a lock that another process has by now.
    pub fn give_up(&self) {
        match &self.hold {
            Hold::File { locked } => drop(locked.lock().take()),
            Hold::Unlocked | Hold::Server { .. } => {}
        }
    }

    /// Ensures that this is still the gateway of the database, after an outage (`is_back`) or in normal operation: a
    /// lock that the server has released is taken again.
    ///
    /// # Errors
    /// Outer: the database does not answer. Inner: [`SingleError::Taken`].
    pub(super) async fn confirm(&self, pool: &Pool, is_back: bool) -> Result<Result<(), SingleError>, sqlx::Error> {
        let (Hold::Server { options, session }, Connections::Postgres(server)) = (&self.hold, &pool.to) else {
            return Ok(Ok(()));
        };
        let ours = session.lock().as_ref().map(|session| session.id.clone());
        for _ in 0..TRIES {
            let found = holder(&server.pool()).await?;
            match found {
                // After an outage it is unknown whether that session is still connected to this process.
                Some((holder, _)) if Some(&holder) == ours.as_ref() && is_back => {
                    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2";
                    sqlx::query(end).bind(holder.pid).bind(holder.began).execute(&server.pool()).await?;
                }
                Some((holder, _)) if Some(&holder) == ours.as_ref() => return Ok(Ok(())),
                Some((_, told)) => {
                    return Ok(Err(SingleError::Taken { database: self.database.clone(), holder: told }));
                }
                None => {}
            }
            if let Ok(taken) = begin(options).await? {
                tracing::info!(database = %self.database, "this gateway has taken the lock of its database again");
                *session.lock() = Some(taken);
                return Ok(Ok(()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()))
    }
}

/// Tries once; on failure returns a description of the holder.
async fn attempt(config: &StoreConfig) -> Result<Result<Hold, String>, StoreError> {
    match &config.url {
        StoreUrl::SqliteMemory => Ok(Ok(Hold::Unlocked)),
        StoreUrl::SqliteFile(path) => {
            Ok(lock_file(path)?.map(|locked| Hold::File { locked: Mutex::new(Some(locked)) }))
        }
        StoreUrl::Postgres(url) => on_server(url, config.password_file.as_deref()).await,
    }
}

async fn on_server(url: &PostgresUrl, password_file: Option<&Path>) -> Result<Result<Hold, String>, StoreError> {
    let failed = |error: sqlx::Error| postgres::unreachable(url, &error);
    let options = postgres::options(url, password_file)?;
    let connection = postgres::connect(&options).await.map_err(failed)?;
    match take(connection).await.map_err(failed)? {
        Ok(session) => Ok(Ok(Hold::Server { options: Box::new(options), session: Mutex::new(Some(session)) })),
        Err(mut connection) => {
            let found = holder(&mut connection).await.map_err(failed)?;
            Ok(Err(found.map_or_else(|| "it is ending".to_owned(), |(_, told)| told)))
        }
    }
}

async fn begin(options: &PgConnectOptions) -> Result<Result<Session, PgConnection>, sqlx::Error> {
    take(options.connect().await?).await
}

/// Takes the lock on a connection of its own, or returns the connection.
async fn take(mut connection: PgConnection) -> Result<Result<Session, PgConnection>, sqlx::Error> {
    connection.execute(KEEPALIVE).await?;
    let row = sqlx::query(TAKE).fetch_one(&mut connection).await?;
    if !row.try_get::<bool, _>("is_ours")? {
        return Ok(Err(connection));
    }
    let id = SessionId { pid: row.try_get("pid")?, began: row.try_get("began")? };
    Ok(Ok(Session { _connection: connection, id }))
}

/// Returns the session that has the lock, and a description for people.
async fn holder<'c>(
    on: impl sqlx::Executor<'c, Database = sqlx::Postgres>,
) -> Result<Option<(SessionId, String)>, sqlx::Error> {
    let Some(row) = sqlx::query(HOLDER).fetch_optional(on).await? else { return Ok(None) };
    let id = SessionId { pid: row.try_get("pid")?, began: row.try_get("began")? };
    let address: &str = row.try_get("address")?;
    let told = format!("connected from {address}, server process {}, since {}", id.pid, id.began);
    Ok(Some((id, told)))
}

/// Locks the file beside a database; on failure returns a description of the process that has it.
fn lock_file(database: &Path) -> Result<Result<File, String>, StoreError> {
    // One database may have several names.
    let path = beside(&database.canonicalize().unwrap_or_else(|_| database.to_owned()));
    let failed = |error: io::Error| StoreError::Open {
        path: database.to_owned(),
        why: sqlite::folder_problem(database).unwrap_or_else(|| format!("{}: {error}", path.display())),
    };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {
            note_process(&file);
            Ok(Ok(file))
        }
        Err(TryLockError::WouldBlock) => {
            let mut told = String::new();
            drop(file.rewind().and_then(|()| file.take(32).read_to_string(&mut told)));
            Ok(Err(match told.trim() {
                "" => format!("it has locked {}", path.display()),
                pid => format!("process {pid}, which has locked {}", path.display()),
            }))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Writes the number of this process into the locked file, for people only: the lock alone counts, even if this cannot be written.
fn note_process(mut file: &File) {
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.unwrap_or_default();
}

fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
