//! A database in memory that stores reach over a network of a test's making, which delays and loses what they say. Each
//! statement is the one that SQLite gets in production, and SQLite runs it. The database's clock is the test's too.
//!
//! [`RemoteServer`] runs the statements, and a test's [`RemoteDatabase`] carries [`RemoteWork`] there and [`RemoteAnswer`]s
//! back. For simulations: time stands still while SQLite works.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _, Sqlite, SqlitePool};
use tokio::runtime::Runtime;

use crate::Store;
use crate::database::{Connections, Pool, Value};
use crate::former::NameHold;
use crate::replicas::clock;
use crate::sqlite::BEGIN_WRITE;
use gateway_net::availability::Availability;

/// A boxed future: a trait object cannot return another one.
pub type RemoteFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Way of a store to its database.
pub trait RemoteDatabase: fmt::Debug + Send + Sync + 'static {
    /// Makes a connection.
    fn connect(&self) -> RemoteFuture<'_, Box<dyn RemoteConnection>>;
}

/// One connection. Dropped in a transaction, it has changed nothing.
pub trait RemoteConnection: Send + 'static {
    /// Has some work done.
    fn run(&mut self, work: RemoteWork) -> RemoteFuture<'_, RemoteAnswer>;
}

/// Work of the database.
#[derive(Debug)]
pub enum RemoteWork {
    /// Begin a transaction.
    Begin,
    /// Run a statement, and count the changed rows.
    Execute(RemoteStatement),
    /// Run a statement, and return its rows.
    Fetch(RemoteStatement),
    /// End the transaction.
    Commit,
}

/// Answer of the database.
pub struct RemoteAnswer(pub(super) Result<Answer, sqlx::Error>);

/// What it answers.
pub(super) enum Answer {
    /// The transaction began, or is over.
    Done,
    /// The number of changed rows.
    Changed(u64),
    /// The rows.
    Rows(Vec<SqliteRow>),
}

impl fmt::Debug for RemoteAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(Answer::Done) => formatter.write_str("done"),
            Ok(Answer::Changed(count)) => write!(formatter, "{count} changed"),
            Ok(Answer::Rows(rows)) => write!(formatter, "{} rows", rows.len()),
            Err(error) => write!(formatter, "{error}"),
        }
    }
}

/// A statement with its values.
#[derive(Debug)]
pub struct RemoteStatement {
    text: &'static str,
    values: Vec<OwnedValue>,
}

#[derive(Debug)]
enum OwnedValue {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Vec<u8>),
}

impl RemoteStatement {
    /// Makes it from SQLite's text.
    pub(super) fn new(text: &'static str, values: Vec<Value<'_>>) -> Self {
        let owned = |value| match value {
            Value::Integer(number) => OwnedValue::Integer(number),
            Value::Text(text) => OwnedValue::Text(text.map(str::to_owned)),
            Value::Owned(text) => OwnedValue::Text(text),
            Value::Bytes(bytes) => OwnedValue::Bytes(bytes.to_vec()),
            Value::Json(text) => OwnedValue::Text(Some(text.to_owned())),
        };
        Self { text, values: values.into_iter().map(owned).collect() }
    }

    /// Returns its text.
    #[must_use]
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// Makes the query, with a number in the place of SQLite's clock.
    fn at(self, now_ms: i64) -> Query<'static, Sqlite, SqliteArguments> {
        let text = self.text.replace(clock!(sqlite), &now_ms.to_string());
        // Kept by no connection: each moment has a text of its own.
        let query = sqlx::query(AssertSqlSafe(text)).persistent(false);
        self.values.into_iter().fold(query, |query, value| match value {
            OwnedValue::Integer(number) => query.bind(number),
            OwnedValue::Text(text) => query.bind(text),
            OwnedValue::Bytes(bytes) => query.bind(bytes),
        })
    }
}

/// One connection of a client, as the server has it.
#[derive(Debug, Default)]
pub struct RemoteSession(Arc<tokio::sync::Mutex<Option<sqlx::Transaction<'static, Sqlite>>>>);

impl RemoteSession {
    /// Returns whether it is in a transaction; between two pieces of work.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.0.try_lock().is_ok_and(|current| current.is_some())
    }
}

/// Runs statements of stores elsewhere, one at a time: work outside a transaction must not be given while another session is
/// in one.
#[derive(Debug)]
pub struct RemoteServer {
    store: Store,
    pool: SqlitePool,
    /// Has real threads and real time, as SQLite has. There until this is dropped.
    runtime: Option<Runtime>,
}

impl RemoteServer {
    /// Makes an empty database.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    #[expect(clippy::expect_used, reason = "for tests")]
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let store = wait(&runtime, async { Store::open("sqlite::memory:").await }).expect("a database in memory");
        let pool = store.writer.sqlite().expect("it is SQLite").clone();
        Self { store, pool, runtime: Some(runtime) }
    }

    /// Makes a store that reaches this database through another one, as another process would: with the key of the same file,
    /// and its own view whether the database answers.
    #[must_use]
    pub fn client(&self, database: Box<dyn RemoteDatabase>, outage_max: Duration) -> Store {
        let availability = Availability::new(outage_max);
        let pool = Pool::new(Connections::Remote(Arc::new(database)), availability.clone());
        let sealer = self.store.sealer.clone();
        let name_hold = NameHold(Duration::ZERO);
        Store { writer: pool.clone(), readers: pool, availability, sealer, name_hold, _keeper: None }
    }

    /// Does something with the database itself, and waits for that.
    pub fn with<T, F>(&self, work: impl FnOnce(Store) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.wait(work(self.store.clone()))
    }

    /// Has some work done for a client at a time of the database's clock, and waits for that.
    pub fn run(&self, session: &RemoteSession, work: RemoteWork, now_ms: i64) -> RemoteAnswer {
        let (current, pool) = (session.0.clone(), self.pool.clone());
        RemoteAnswer(self.wait(async move { run(&mut *current.lock().await, &pool, work, now_ms).await }))
    }

    /// Ends a client's connection; a transaction that it was in has changed nothing.
    ///
    /// # Errors
    /// The database's.
    pub fn end(&self, session: &RemoteSession) -> Result<(), sqlx::Error> {
        let current = session.0.clone();
        self.wait(async move {
            match current.lock().await.take() {
                Some(transaction) => transaction.rollback().await,
                None => Ok(()),
            }
        })
    }

    /// Returns numbers of a query's rows. Of a client in a transaction, what that sees.
    ///
    /// # Errors
    /// The database's.
    pub fn numbers(&self, session: &RemoteSession, text: &'static str) -> Result<Vec<Vec<Option<i64>>>, sqlx::Error> {
        let statement = RemoteStatement { text, values: Vec::new() };
        let rows = self.run(session, RemoteWork::Fetch(statement), 0).0.and_then(Answer::rows)?;
        let read = |row: SqliteRow| (0..row.len()).map(|column| row.try_get(column)).collect();
        rows.into_iter().map(read).collect()
    }

    /// Runs work in real time, and blocks until it is done.
    #[expect(clippy::expect_used, reason = "for tests")]
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        wait(self.runtime.as_ref().expect("it lives"), work)
    }

    /// Copies the database into a new file, as a backup does.
    ///
    /// # Errors
    /// The database's.
    pub fn save(&self, file: &Path) -> Result<(), sqlx::Error> {
        let (pool, file) = (self.pool.clone(), on_disk(file));
        self.wait(async move { sqlx::query("VACUUM INTO $1").bind(file).execute(&pool).await.map(drop) })
    }

    /// Makes the database what it was when a file was saved.
    ///
    /// # Errors
    /// The database's.
    pub fn restore(&self, file: &Path) -> Result<(), sqlx::Error> {
        let (pool, file) = (self.pool.clone(), on_disk(file));
        self.wait(async move {
            let mut connection = pool.acquire().await?;
            let attach = ["PRAGMA foreign_keys = OFF", "ATTACH $1 AS saved"];
            sqlx::query(attach[0]).execute(&mut *connection).await?;
            sqlx::query(attach[1]).bind(file).execute(&mut *connection).await?;
            let tables = "SELECT name FROM saved.sqlite_master WHERE type = 'table'";
            let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *connection).await?;
            for table in tables {
                for text in [
                    format!("DELETE FROM main.{table}"),
                    format!("INSERT INTO main.{table} SELECT * FROM saved.{table}"),
                ] {
                    sqlx::query(AssertSqlSafe(text)).persistent(false).execute(&mut *connection).await?;
                }
            }
            sqlx::query("DETACH saved").execute(&mut *connection).await?;
            sqlx::query("PRAGMA foreign_keys = ON").execute(&mut *connection).await.map(drop)
        })
    }
}

impl Default for RemoteServer {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        // Where it is dropped, nothing may block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Answer {
    pub(super) fn changed(self) -> Result<u64, sqlx::Error> {
        match self {
            Self::Changed(count) => Ok(count),
            Self::Done | Self::Rows(_) => Err(lost()),
        }
    }

    pub(super) fn rows(self) -> Result<Vec<SqliteRow>, sqlx::Error> {
        match self {
            Self::Rows(rows) => Ok(rows),
            Self::Done | Self::Changed(_) => Err(lost()),
        }
    }
}

async fn run(
    current: &mut Option<sqlx::Transaction<'static, Sqlite>>,
    pool: &SqlitePool,
    work: RemoteWork,
    now_ms: i64,
) -> Result<Answer, sqlx::Error> {
    match (work, current) {
        (RemoteWork::Begin, current) => {
            *current = Some(pool.begin_with(BEGIN_WRITE).await?);
            Ok(Answer::Done)
        }
        (RemoteWork::Commit, current) => {
            current.take().ok_or_else(lost)?.commit().await?;
            Ok(Answer::Done)
        }
        (RemoteWork::Execute(statement), Some(transaction)) => {
            let done = statement.at(now_ms).execute(&mut **transaction).await?;
            Ok(Answer::Changed(done.rows_affected()))
        }
        (RemoteWork::Execute(statement), None) => {
            Ok(Answer::Changed(statement.at(now_ms).execute(pool).await?.rows_affected()))
        }
        (RemoteWork::Fetch(statement), Some(transaction)) => {
            Ok(Answer::Rows(statement.at(now_ms).fetch_all(&mut **transaction).await?))
        }
        (RemoteWork::Fetch(statement), None) => Ok(Answer::Rows(statement.at(now_ms).fetch_all(pool).await?)),
    }
}

/// Runs work on a runtime of real time, and blocks until it is done.
#[expect(clippy::expect_used, reason = "for tests")]
fn wait<T: Send + 'static>(runtime: &Runtime, work: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = mpsc::sync_channel(1);
    drop(runtime.spawn(async move { sender.send(work.await) }));
    receiver.recv().expect("the work does not panic")
}

/// Names a file to a connection whose own database is in memory, and which would make this one in memory too.
fn on_disk(file: &Path) -> String {
    format!("file:{}?mode=rwc&cache=private", file.display())
}

fn lost() -> sqlx::Error {
    sqlx::Error::Io(io::ErrorKind::ConnectionAborted.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_is_restored_as_it_was_saved() {
        let (server, folder) = (RemoteServer::new(), tempfile::tempdir().unwrap());
        let add = || {
            server.with(|store| async move {
                let (name, owner) = ("well".parse().unwrap(), "ann".parse().unwrap());
                store.create_agent_token(&name, &owner, crate::wall_clock()).await.unwrap();
            });
        };
        let count = || server.numbers(&RemoteSession::default(), "SELECT count(*) FROM tokens").unwrap()[0][0];
        add();
        server.save(&folder.path().join("backup")).unwrap();
        add();
        assert_eq!(count(), Some(2));
        server.restore(&folder.path().join("backup")).unwrap();
        assert_eq!(count(), Some(1));
        add();
        assert_eq!(count(), Some(2));
    }
}
