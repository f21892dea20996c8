//! Opens PostgreSQL databases.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool};
use tokio::time::Instant;

use super::StoreError;
use super::database::cause;
use gateway_config::PostgresUrl;

/// Connections of one replica. Most statements take under a millisecond, and PostgreSQL serves 100 connections by
/// default.
const CONNECTIONS_MAX: u32 = 12;

/// Time limit of a statement for getting a connection of the pool, and of a connection for reaching the server. A
/// sign-in while the server is away waits this long for the error.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of the start for a server that is starting too.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the next attempt to reach it.
const START_PAUSE: Duration = Duration::from_millis(200);

/// Begins a transaction in which every statement sees the commits before it, whatever the server's default: after a
/// wait in [`LOCK`], writes made meanwhile have to be visible.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Waits until no other transaction holds the lock of that name in the same schema, and holds it until the transaction
/// ends.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || $1, 0))";

/// A replica that vanished in the middle of a transaction must not keep its locks until TCP gives up, hours later.
const SETTINGS: &str = "SET idle_in_transaction_session_timeout = '30s'";

/// Longest password file that is read, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// Opens an existing database; waits a moment for a server that is not there yet.
pub(super) async fn open(url: &PostgresUrl, password_file: Option<&Path>) -> Result<Server, StoreError> {
    open_within(url, password_file, START_TIMEOUT).await
}

/// Opens an existing database; waits for as long as `patience` for a server that is not there yet.
pub(super) async fn open_within(
    url: &PostgresUrl,
    password_file: Option<&Path>,
    patience: Duration,
) -> Result<Server, StoreError> {
    let options = options(url, password_file)?;
    // The pool would report every failure as a timeout; a direct connection reports the cause.
    let connection = connect_within(&options, patience).await.map_err(|source| unreachable(url, &source))?;
    drop(connection.close().await);
    Ok(Server { pool: Arc::new(RwLock::new(pool(&options))), options: Arc::new(options) })
}

/// Makes the error of a server that cannot be reached or refuses the login.
pub(super) fn unreachable(url: &PostgresUrl, error: &sqlx::Error) -> StoreError {
    StoreError::Connect { database: url.to_string(), why: cause(error).to_string() }
}

/// Reads the connection options of a server.
pub(super) fn options(url: &PostgresUrl, password_file: Option<&Path>) -> Result<PgConnectOptions, StoreError> {
    let mut options: PgConnectOptions = url.reveal().parse().map_err(|error| unreachable(url, &error))?;
    if let Some(path) = password_file {
        options = options.password(&read_password(path)?);
    }
    // Statements are not logged: they would fill the log at its debug level without adding to the spans.
    Ok(options.disable_statement_logging())
}

/// Connections to a server, which can all be replaced at once.
#[derive(Clone)]
pub(super) struct Server {
    options: Arc<PgConnectOptions>,
    pool: Arc<RwLock<PgPool>>,
}

/// Without the options: the library would show the password in them.
impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn pool(&self) -> PgPool {
        self.pool.read().clone()
    }

    /// Replaces the pool by a new one. The old pool waits for an answer on each connection before it drops it, which
    /// may never come.
    pub(super) fn renew(&self) {
        let before = std::mem::replace(&mut *self.pool.write(), pool(&self.options));
        // The call alone makes it give out no more connections; nothing waits for those in use.
        drop(before.close());
    }
}

fn pool(options: &PgConnectOptions) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX).acquire_timeout(ACQUIRE_TIMEOUT).after_connect(
        |connection, _| {
            Box::pin(async move {
                connection.execute(SETTINGS).await?;
                Ok(())
            })
        },
    );
    pool.connect_lazy_with(options.clone())
}

/// Connects, and waits a moment for a server that is not there yet.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    connect_within(options, START_TIMEOUT).await
}

async fn connect_within(options: &PgConnectOptions, patience: Duration) -> Result<PgConnection, sqlx::Error> {
    let deadline = Instant::now() + patience;
    loop {
        let late = || sqlx::Error::Io(io::ErrorKind::TimedOut.into());
        let connected = tokio::time::timeout_at(deadline, options.connect()).await.unwrap_or_else(|_| Err(late()));
        match connected {
            Ok(connection) => return Ok(connection),
            Err(error) if is_starting(&error) && Instant::now() + START_PAUSE < deadline => {
                tokio::time::sleep(START_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether a server may be there soon: no process listens, or it reports that it is starting (PostgreSQL
/// documentation, appendix A, `57P03`).
fn is_starting(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Io(error) = error {
        return matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
    }
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("57P03"))
}

/// Reads the one line of the file.
fn read_password(path: &Path) -> Result<String, StoreError> {
    let failed = |error| StoreError::PasswordFile { path: path.to_owned(), error };
    let bad = |wrong: &str| failed(io::Error::new(io::ErrorKind::InvalidData, wrong));
    if std::fs::metadata(path).map_err(failed)?.len() > PASSWORD_BYTES_MAX {
        return Err(bad("it is too long for a password"));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains(['\n', '\0']) {
        return Err(bad("it has to hold one line, the password"));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_the_one_line_of_its_file_and_never_part_of_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        for (text, expected) in [
            ("hunter2", Some("hunter2")),
            ("hunter2\n", Some("hunter2")),
            ("hunter2\r\n", Some("hunter2")),
            ("with space", Some("with space")),
            ("", None),
            ("\n", None),
            ("hunter2\nmore", None),
        ] {
            std::fs::write(&path, text).unwrap();
            match read_password(&path) {
                Ok(read) => assert_eq!(Some(read.as_str()), expected, "{text:?}"),
                Err(error) => assert!(expected.is_none() && !format!("{error:?}").contains("hunter2"), "{text:?}"),
            }
        }
        assert!(read_password(&folder.path().join("absent")).is_err());
    }

    #[tokio::test]
    async fn server_that_refuses_at_once_is_told_with_its_reason_and_without_the_password() {
        // A socket's folder that is there, with no server in it, is waited for; one that answers nonsense is not.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    .await
                    .unwrap_or_default();
            }
        });
        let url: PostgresUrl = format!("postgres://u:hunter2@127.0.0.1:{port}/db").parse().unwrap();
        let error = open(&url, None).await.unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(told.contains(&format!("postgres://u:********@127.0.0.1:{port}/db")), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
