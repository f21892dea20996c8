//! One way to both databases: a statement is written once, in what SQLite and PostgreSQL both speak, and run by a pool or
//! a transaction of either. Where they do not agree, [`sql_of`] takes two texts; the rest of the method stays one.
//!
//! What both speak: numbered parameters (`$1`), `RETURNING`, `ON CONFLICT (columns) DO …` with a target, and columns of the
//! table that is written to named with it (`users.disabled_at`). Integers are 64 bits wide in both.

use std::io;
use std::time::Duration;

use sqlx::{PgConnection, Postgres, Sqlite, SqlitePool};
use tokio::time::Instant;

use super::StoreError;
use super::postgres::{self, BEGIN, Server};
use super::sqlite::BEGIN_WRITE;
use crate::availability::Availability;

mod row;
mod statement;
mod trouble;

pub(super) use row::Row;
pub(super) use statement::{Statement, Value, sql, sql_of};
pub(super) use trouble::{cause, is_outage, is_unwritable};

/// How long PostgreSQL may take for one statement, waiting for locks included. Statements here take milliseconds; one
/// that takes this long waits for a network that is gone, and whoever waits for it should hear so.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long connections to a server are waited for at the end.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// What a write decides about by what it reads first. Of two writes about the same, the second begins when the first has
/// ended, so that it reads what that wrote. SQLite has one writer and needs no names for this.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    /// Nothing: its statements are each right by themselves.
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
    /// Who has which name.
    Users,
    /// The workspaces and configurations of a cluster.
    Cluster(i64),
    /// The workspaces of a CI system.
    Provider(&'a str),
    /// An environment, and what is prepared in it.
    Environment(i64),
    /// The key that secrets are sealed with.
    Seal,
}

impl About<'_> {
    /// Returns a text that differs for what differs; `None` for nothing.
    fn key(self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Workspace(name) => Some(format!("workspace {name}")),
            Self::Token(id) => Some(format!("token {id}")),
            Self::TokensOf(user) => Some(format!("tokens {user}")),
            Self::WorkspacesOf(user) => Some(format!("workspaces {user}")),
            Self::Use(id) => Some(format!("use {id}")),
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
}

/// Connections to one of the two.
#[derive(Clone, Debug)]
pub(super) enum Connections {
    /// To SQLite.
    Sqlite(SqlitePool),
    /// To PostgreSQL.
    Postgres(Server),
}

/// What is written together or not at all. Dropped without [`Transaction::commit`], it changes nothing.
pub(super) struct Transaction {
    to: OnOne,
    availability: Availability,
}

enum OnOne {
    /// In SQLite.
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// In PostgreSQL.
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Pool {
    pub(super) fn new(to: Connections, availability: Availability) -> Self {
        Self { to, availability }
    }

    /// Begins to write, as the only one who writes about this.
    pub(super) async fn begin(&self, about: About<'_>) -> Result<Transaction, StoreError> {
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
        }
    }

    async fn execute(&self, statement: Statement<'_>) -> Result<u64, StoreError> {
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
        }
    }

    async fn fetch_all(&self, statement: Statement<'_>) -> Result<Vec<Row>, StoreError> {
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
        }
    }

    /// Runs a statement on a connection that is let go where no answer came on it.
    async fn on_server<T>(
        &self,
        server: &Server,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let pool = server.pool();
        let mut connection = Box::pin(guard(&self.availability, in_time(pool.acquire()))).await?;
        let done = guard(&self.availability, in_time(work(&mut connection))).await;
        if done.as_ref().is_err_and(StoreError::is_unanswered) {
            // What is in flight on it cannot be waited for.
            drop(connection.detach());
        }
        done
    }

    /// Asks for rows whether the store counts as away or not, and says nothing to those who wait for it. Takes as long as it
    /// takes.
    pub(super) async fn probe(&self, statement: Statement<'_>) -> Result<Vec<Row>, sqlx::Error> {
        match &self.to {
            Connections::Sqlite(pool) => Ok(sqlite_rows(statement.for_sqlite().fetch_all(pool).await?)),
            Connections::Postgres(server) => {
                let rows = statement.for_postgres()?.fetch_all(&server.pool()).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Lets all connections go: on those that there are, nothing may ever come again.
    pub(super) fn renew(&self) {
        if let Connections::Postgres(server) = &self.to {
            server.renew();
        }
    }

    /// Waits for statements in flight and closes the connections.
    pub(super) async fn close(&self) {
        match &self.to {
            Connections::Sqlite(pool) => pool.close().await,
            // A server that is away gives none of them back.
            Connections::Postgres(server) => drop(tokio::time::timeout(CLOSE_TIME_MAX, server.pool().close()).await),
        }
    }
}

impl Transaction {
    /// Makes it last.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let availability = self.availability;
        match self.to {
            OnOne::Sqlite(transaction) => {
                let done = guard(&availability, transaction.commit()).await;
                noting_failure(&availability, done)
            }
            OnOne::Postgres(transaction) => guard(&availability, in_time(transaction.commit())).await,
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
        }
    }
}

/// Does work that the store has a part in: not while the store is away, and no longer than until it is.
async fn guard<T>(
    availability: &Availability,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    if availability.outage().is_some() {
        return Err(StoreError::Away);
    }
    let began = Instant::now();
    tokio::select! {
        biased;
        done = work => done.map_err(|error| {
            if is_outage(&error) {
                availability.failed(began);
            }
            StoreError::from(error)
        }),
        () = availability.lost() => Err(StoreError::Away),
    }
}

/// Takes note of a file that could not be written. What was done well says nothing: it may have been to read.
fn noting_failure<T>(availability: &Availability, done: Result<T, StoreError>) -> Result<T, StoreError> {
    if let Err(StoreError::Database(error)) = &done
        && is_unwritable(error)
        && availability.writable(false, Instant::now())
    {
        tracing::error!(why = %cause(error), "the store cannot be written: what is read goes on, nothing can be changed");
    }
    done
}

/// Where a statement runs.
pub(super) enum On<'c> {
    /// By itself, on whichever connection is free.
    Pool(&'c Pool),
    /// As part of a transaction.
    Transaction(&'c mut Transaction),
}

impl<'c> From<&'c Pool> for On<'c> {
    fn from(pool: &'c Pool) -> Self {
        Self::Pool(pool)
    }
}

impl<'c> From<&'c mut Transaction> for On<'c> {
    fn from(transaction: &'c mut Transaction) -> Self {
        Self::Transaction(transaction)
    }
}

/// In boxes: a future here has room for what either database does, and is part of every future that asks the store.
impl Statement<'_> {
    /// Runs it and returns how many rows it changed.
    pub(super) async fn execute<'c>(self, on: impl Into<On<'c>>) -> Result<u64, StoreError> {
        match on.into() {
            On::Pool(pool) => Box::pin(pool.execute(self)).await,
            On::Transaction(transaction) => Box::pin(transaction.execute(self)).await,
        }
    }

    /// Runs it and returns all rows.
    pub(super) async fn fetch_all<'c>(self, on: impl Into<On<'c>>) -> Result<Vec<Row>, StoreError> {
        match on.into() {
            On::Pool(pool) => Box::pin(pool.fetch_all(self)).await,
            On::Transaction(transaction) => Box::pin(transaction.fetch_all(self)).await,
        }
    }

    /// Runs it and returns the first row, if there is one.
    pub(super) async fn fetch_optional<'c>(self, on: impl Into<On<'c>>) -> Result<Option<Row>, StoreError> {
        Ok(self.fetch_all(on).await?.into_iter().next())
    }

    /// Runs it and returns the first row; that there is none is an error.
    pub(super) async fn fetch_one<'c>(self, on: impl Into<On<'c>>) -> Result<Row, StoreError> {
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
