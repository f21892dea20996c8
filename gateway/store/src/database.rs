//! Common access to both databases: a statement is written once, in the SQL common to SQLite and PostgreSQL, and run by
//! a pool or a transaction of either. [`sql_of`] takes two texts if they differ; the rest of the method stays the same.
//!
//! The common SQL: numbered parameters (`$1`), `RETURNING`, `ON CONFLICT (columns) DO …` with a target, and columns of
//! the table that is written to named with it (`users.disabled_at`). Integers are 64 bits wide in both.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgConnection, Postgres, Sqlite, SqlitePool};
use tokio::time::Instant;

use super::postgres::{self, BEGIN, Server};
use super::sqlite::BEGIN_WRITE;
use super::{Fence, StoreError};
use gateway_net::availability::Availability;
use gateway_net::telemetry::Dependency;

#[cfg(any(test, feature = "testing"))]
mod remote;
mod row;
mod statement;
mod trouble;

pub(super) use row::Row;
pub(super) use statement::{Statement, Value, sql, sql_of};
pub(super) use trouble::{cause, is_outage, is_unwritable};

/// Time limit of PostgreSQL for one statement, including waits for locks. Statements here take milliseconds; one that
/// takes this long waits for a network that is gone, and its caller should get an error.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for closing the connections to a server.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// Record that a write concerns, if the write depends on what it reads first. Two writes about the same record run one
/// after the other, so that the second reads what the first wrote. SQLite has one writer and needs no names for this.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    /// None: each statement is correct by itself.
    Nothing,
    /// The workspace of that name: its shares, its agents' tokens.
    Workspace(&'a str),
    /// A token.
    Token(i64),
    /// The tokens of a user.
    TokensOf(&'a str),
    /// The external workspaces of a user.
    WorkspacesOf(&'a str),
    /// One use of a token, by its issuer's id for it.
    Use(&'a str),
    /// The replicas that live.
    Replicas,
    /// The names of users.
    Users,
    /// The workspaces and configurations of a cluster.
    Cluster(i64),
    /// The workspaces of a CI system.
    Provider(&'a str),
    /// An environment and its preparations.
    Environment(i64),
    /// The key that secrets are sealed with.
    Seal,
}

impl About<'_> {
    /// Returns a text unique to the subject; `None` for [`About::Nothing`].
    fn key(self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Workspace(name) => Some(format!("workspace {name}")),
            Self::Token(id) => Some(format!("token {id}")),
            Self::TokensOf(user) => Some(format!("tokens {user}")),
            Self::WorkspacesOf(user) => Some(format!("workspaces {user}")),
            Self::Use(id) => Some(format!("use {id}")),
            Self::Replicas => Some("replicas".to_owned()),
            Self::Users => Some("users".to_owned()),
            Self::Cluster(id) => Some(format!("cluster {id}")),
            Self::Provider(name) => Some(format!("provider {name}")),
            Self::Environment(id) => Some(format!("environment {id}")),
            Self::Seal => Some("seal".to_owned()),
        }
    }
}

/// Connections to a database. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) to: Connections,
    availability: Availability,
    /// Condition of every write.
    fence: Option<Arc<Fence>>,
}

/// Connections to one of the two.
#[derive(Clone, Debug)]
pub(super) enum Connections {
    /// To SQLite.
    Sqlite(SqlitePool),
    /// To PostgreSQL.
    Postgres(Server),
    /// To a database behind a test's network. As thin as the others: each future that uses the store has room for it.
    #[cfg(any(test, feature = "testing"))]
    Remote(Arc<Box<dyn crate::remote::RemoteDatabase>>),
}

/// Writes that succeed or fail together. Dropped without [`Transaction::commit`], it changes nothing.
pub(super) struct Transaction {
    to: OnOne,
    availability: Availability,
}

enum OnOne {
    /// In SQLite.
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// In PostgreSQL.
    Postgres(sqlx::Transaction<'static, Postgres>),
    /// In a database behind a test's network.
    #[cfg(any(test, feature = "testing"))]
    Remote(Box<dyn crate::remote::RemoteConnection>),
}

impl Pool {
    pub(super) fn new(to: Connections, availability: Availability) -> Self {
        Self { to, availability, fence: None }
    }

    /// Returns the connections to SQLite.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn sqlite(&self) -> Option<&SqlitePool> {
        match &self.to {
            Connections::Sqlite(pool) => Some(pool),
            Connections::Postgres(_) | Connections::Remote(_) => None,
        }
    }

    /// Returns the same connections, for writes that are made only while the fence lets them pass.
    pub(super) fn fenced(&self, fence: Arc<Fence>) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// Begins a write transaction, exclusive for this subject.
    pub(super) async fn begin(&self, about: About<'_>) -> Result<Transaction, StoreError> {
        let mut transaction = self.begin_unfenced(about).await?;
        if let Some(fence) = &self.fence {
            // Boxed: most stores have no fence, and every future that writes would have room for it. After the wait for other
            // writes about the subject, so that the owner's row is locked for as short a time as possible.
            Box::pin(fence.pass(&mut transaction)).await?;
        }
        Ok(transaction)
    }

    async fn begin_unfenced(&self, about: About<'_>) -> Result<Transaction, StoreError> {
        let availability = self.availability.clone();
        match &self.to {
            Connections::Sqlite(pool) => {
                let begun = guard(&availability, pool.begin_with(BEGIN_WRITE)).await;
                let begun = noting_failure(&availability, begun)?;
                Ok(Transaction { to: OnOne::Sqlite(begun), availability })
            }
            Connections::Postgres(server) => {
                let pool = server.pool();
                let begun = Box::pin(guard(&availability, in_time(pool.begin_with(BEGIN)))).await?;
                let mut transaction = Transaction { to: OnOne::Postgres(begun), availability };
                if let Some(key) = about.key() {
                    sql(postgres::LOCK).bind(key).execute(&mut transaction).await?;
                }
                Ok(transaction)
            }
            #[cfg(any(test, feature = "testing"))]
            Connections::Remote(database) => {
                let begun = Box::pin(guard(&availability, in_time(remote::begin(&***database)))).await?;
                Ok(Transaction { to: OnOne::Remote(begun), availability })
            }
        }
    }

    async fn execute(&self, statement: Statement<'_>) -> Result<u64, StoreError> {
        if self.fence.is_some() {
            let mut transaction = self.begin(About::Nothing).await?;
            let changed = transaction.execute(statement).await?;
            transaction.commit().await?;
            return Ok(changed);
        }
        match &self.to {
            Connections::Sqlite(pool) => {
                let done = guard(&self.availability, statement.for_sqlite().execute(pool)).await;
                Ok(noting_failure(&self.availability, done)?.rows_affected())
            }
            Connections::Postgres(server) => {
                let query = statement.for_postgres()?;
                let done = Box::pin(self.on_server(server, async |connection| query.execute(connection).await)).await?;
                Ok(done.rows_affected())
            }
            #[cfg(any(test, feature = "testing"))]
            Connections::Remote(database) => {
                Box::pin(guard(&self.availability, in_time(remote::execute(&***database, statement)))).await
            }
        }
    }

    async fn fetch_all(&self, statement: Statement<'_>) -> Result<Vec<Row>, StoreError> {
        if self.fence.is_some() {
            let mut transaction = self.begin(About::Nothing).await?;
            let rows = transaction.fetch_all(statement).await?;
            transaction.commit().await?;
            return Ok(rows);
        }
        match &self.to {
            Connections::Sqlite(pool) => {
                let done = guard(&self.availability, statement.for_sqlite().fetch_all(pool)).await;
                Ok(sqlite_rows(noting_failure(&self.availability, done)?))
            }
            Connections::Postgres(server) => {
                let query = statement.for_postgres()?;
                let rows =
                    Box::pin(self.on_server(server, async |connection| query.fetch_all(connection).await)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
            #[cfg(any(test, feature = "testing"))]
            Connections::Remote(database) => {
                Box::pin(guard(&self.availability, in_time(remote::fetch_all(&***database, statement)))).await
            }
        }
    }

    /// Runs a statement on a connection, which is dropped if no answer came on it.
    async fn on_server<T>(
        &self,
        server: &Server,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let pool = server.pool();
        let mut connection = Box::pin(guard(&self.availability, in_time(pool.acquire()))).await?;
        let done = guard(&self.availability, in_time(work(&mut connection))).await;
        if done.as_ref().is_err_and(StoreError::is_unanswered) {
            // Its statement in flight cannot be waited for.
            drop(connection.detach());
        }
        done
    }

    /// Fetches rows whether the store counts as away or not, and does not update the availability. Has no deadline.
    pub(super) async fn probe(&self, statement: Statement<'_>) -> Result<Vec<Row>, sqlx::Error> {
        match &self.to {
            Connections::Sqlite(pool) => Ok(sqlite_rows(statement.for_sqlite().fetch_all(pool).await?)),
            Connections::Postgres(server) => {
                let rows = statement.for_postgres()?.fetch_all(&server.pool()).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
            #[cfg(any(test, feature = "testing"))]
            Connections::Remote(database) => Box::pin(remote::fetch_all(&***database, statement)).await,
        }
    }

    /// Replaces all connections: no answer may ever come on the existing ones.
    pub(super) fn renew(&self) {
        if let Connections::Postgres(server) = &self.to {
            server.renew();
        }
    }

    /// Waits for statements in flight and closes the connections.
    pub(super) async fn close(&self) {
        match &self.to {
            Connections::Sqlite(pool) => pool.close().await,
            // A server that is away returns none of them.
            Connections::Postgres(server) => drop(tokio::time::timeout(CLOSE_TIME_MAX, server.pool().close()).await),
            #[cfg(any(test, feature = "testing"))]
            Connections::Remote(_) => {}
        }
    }
}

impl Transaction {
    /// Commits the transaction.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let availability = self.availability;
        match self.to {
            OnOne::Sqlite(transaction) => {
                let done = guard(&availability, transaction.commit()).await;
                noting_failure(&availability, done)
            }
            OnOne::Postgres(transaction) => guard(&availability, in_time(transaction.commit())).await,
            #[cfg(any(test, feature = "testing"))]
            OnOne::Remote(connection) => Box::pin(guard(&availability, in_time(remote::commit(connection)))).await,
        }
    }

    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, StoreError> {
        match &mut self.to {
            OnOne::Sqlite(connection) => {
                let done = guard(&self.availability, statement.for_sqlite().execute(&mut **connection)).await;
                Ok(noting_failure(&self.availability, done)?.rows_affected())
            }
            OnOne::Postgres(connection) => {
                let work = in_time(statement.for_postgres()?.execute(&mut **connection));
                Ok(guard(&self.availability, work).await?.rows_affected())
            }
            #[cfg(any(test, feature = "testing"))]
            OnOne::Remote(connection) => {
                Box::pin(guard(&self.availability, in_time(remote::execute_on(connection, statement)))).await
            }
        }
    }

    async fn fetch_all(&mut self, statement: Statement<'_>) -> Result<Vec<Row>, StoreError> {
        match &mut self.to {
            OnOne::Sqlite(connection) => {
                let done = guard(&self.availability, statement.for_sqlite().fetch_all(&mut **connection)).await;
                Ok(sqlite_rows(noting_failure(&self.availability, done)?))
            }
            OnOne::Postgres(connection) => {
                let work = in_time(statement.for_postgres()?.fetch_all(&mut **connection));
                let rows = guard(&self.availability, work).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
            #[cfg(any(test, feature = "testing"))]
            OnOne::Remote(connection) => {
                Box::pin(guard(&self.availability, in_time(remote::fetch_all_on(connection, statement)))).await
            }
        }
    }
}

/// Runs work on the store: fails at once while the store is away, and as soon as it goes away.
async fn guard<T>(
    availability: &Availability,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    if availability.outage().is_some() {
        return Err(StoreError::Away);
    }
    let began = Instant::now();
    let done = tokio::select! {
        biased;
        done = work => done.map_err(|error| {
            if is_outage(&error) {
                availability.failed(began);
            }
            StoreError::from(error)
        }),
        () = availability.lost() => Err(StoreError::Away),
    };
    availability.latency().observe(Dependency::Store, began.elapsed());
    done
}

/// Records a failed write to a file. Success proves nothing: it may have been a read.
fn noting_failure<T>(availability: &Availability, done: Result<T, StoreError>) -> Result<T, StoreError> {
    if let Err(StoreError::Database(error)) = &done
        && is_unwritable(error)
        && availability.writable(false, Instant::now())
    {
        tracing::error!(why = %cause(error), "the store cannot be written: reads go on, changes fail");
    }
    done
}

/// Target of a statement.
pub(super) enum StatementTarget<'c> {
    /// By itself, on whichever connection is free.
    Pool(&'c Pool),
    /// As part of a transaction.
    Transaction(&'c mut Transaction),
}

impl<'c> From<&'c Pool> for StatementTarget<'c> {
    fn from(pool: &'c Pool) -> Self {
        Self::Pool(pool)
    }
}

impl<'c> From<&'c mut Transaction> for StatementTarget<'c> {
    fn from(transaction: &'c mut Transaction) -> Self {
        Self::Transaction(transaction)
    }
}

/// Futures are boxed: each has room for the work of either database, and is part of every future that uses the store.
impl Statement<'_> {
    /// Runs it and returns the number of changed rows.
    pub(super) async fn execute<'c>(self, on: impl Into<StatementTarget<'c>>) -> Result<u64, StoreError> {
        match on.into() {
            StatementTarget::Pool(pool) => Box::pin(pool.execute(self)).await,
            StatementTarget::Transaction(transaction) => Box::pin(transaction.execute(self)).await,
        }
    }

    /// Runs it and returns all rows.
    pub(super) async fn fetch_all<'c>(self, on: impl Into<StatementTarget<'c>>) -> Result<Vec<Row>, StoreError> {
        match on.into() {
            StatementTarget::Pool(pool) => Box::pin(pool.fetch_all(self)).await,
            StatementTarget::Transaction(transaction) => Box::pin(transaction.fetch_all(self)).await,
        }
    }

    /// Runs it and returns the first row, if there is one.
    pub(super) async fn fetch_optional<'c>(
        self,
        on: impl Into<StatementTarget<'c>>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.fetch_all(on).await?.into_iter().next())
    }

    /// Runs it and returns the first row; fails if there is none.
    pub(super) async fn fetch_one<'c>(self, on: impl Into<StatementTarget<'c>>) -> Result<Row, StoreError> {
        self.fetch_optional(on).await?.ok_or(StoreError::Database(sqlx::Error::RowNotFound))
    }
}

fn sqlite_rows(rows: Vec<sqlx::sqlite::SqliteRow>) -> Vec<Row> {
    rows.into_iter().map(Row::Sqlite).collect()
}

/// Bounds the wait for a database that may be behind a network.
async fn in_time<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into())),
    }
}
