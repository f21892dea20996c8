//! One way to both databases: a statement is written once, in what SQLite and PostgreSQL both speak, and run by a pool or
//! a transaction of either. Where they do not agree, [`sql_of`] takes two texts; the rest of the method stays one.
//!
//! What both speak: numbered parameters (`$1`), `RETURNING`, `ON CONFLICT (columns) DO …` with a target, and columns of the
//! table that is written to named with it (`users.disabled_at`). Integers are 64 bits wide in both.

use std::io;
use std::time::Duration;

use sqlx::{PgPool, Postgres, Sqlite, SqlitePool};

use super::postgres::{self, BEGIN};
use super::sqlite::BEGIN_WRITE;

mod row;
mod statement;

pub(super) use row::Row;
pub(super) use statement::{Statement, Value, sql, sql_of};

/// How long PostgreSQL may take for one statement, waiting for locks included. Statements here take milliseconds; one
/// that takes this long waits for a network that is gone, and whoever waits for it should hear so.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

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
pub(super) enum Pool {
    /// To SQLite.
    Sqlite(SqlitePool),
    /// To PostgreSQL.
    Postgres(PgPool),
}

/// What is written together or not at all. Dropped without [`Transaction::commit`], it changes nothing.
pub(super) enum Transaction {
    /// In SQLite.
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// In PostgreSQL.
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Pool {
    /// Begins to write, as the only one who writes about this.
    pub(super) async fn begin(&self, about: About<'_>) -> Result<Transaction, sqlx::Error> {
        match self {
            Self::Sqlite(pool) => Ok(Transaction::Sqlite(pool.begin_with(BEGIN_WRITE).await?)),
            Self::Postgres(pool) => {
                let begun = Box::pin(in_time(pool.begin_with(BEGIN))).await?;
                let mut transaction = Transaction::Postgres(begun);
                if let Some(key) = about.key() {
                    sql(postgres::LOCK).bind(key).execute(&mut transaction).await?;
                }
                Ok(transaction)
            }
        }
    }

    async fn execute(&self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(pool) => Ok(statement.for_sqlite().execute(pool).await?.rows_affected()),
            Self::Postgres(pool) => {
                let mut connection = pool.acquire().await?;
                let done = in_time(statement.for_postgres()?.execute(&mut *connection)).await;
                if is_late(&done) {
                    // What is in flight on it cannot be waited for.
                    connection.close_on_drop();
                }
                Ok(done?.rows_affected())
            }
        }
    }

    async fn fetch_all(&self, statement: Statement<'_>) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(pool) => Ok(sqlite_rows(statement.for_sqlite().fetch_all(pool).await?)),
            Self::Postgres(pool) => {
                let mut connection = pool.acquire().await?;
                let done = in_time(statement.for_postgres()?.fetch_all(&mut *connection)).await;
                if is_late(&done) {
                    connection.close_on_drop();
                }
                Ok(done?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Waits for statements in flight and closes the connections.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Transaction {
    /// Makes it last.
    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => in_time(transaction.commit()).await,
        }
    }

    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(connection) => Ok(statement.for_sqlite().execute(&mut **connection).await?.rows_affected()),
            Self::Postgres(connection) => {
                Ok(in_time(statement.for_postgres()?.execute(&mut **connection)).await?.rows_affected())
            }
        }
    }

    async fn fetch_all(&mut self, statement: Statement<'_>) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(connection) => Ok(sqlite_rows(statement.for_sqlite().fetch_all(&mut **connection).await?)),
            Self::Postgres(connection) => {
                let rows = in_time(statement.for_postgres()?.fetch_all(&mut **connection)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }
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
    pub(super) async fn execute<'c>(self, on: impl Into<On<'c>>) -> Result<u64, sqlx::Error> {
        match on.into() {
            On::Pool(pool) => Box::pin(pool.execute(self)).await,
            On::Transaction(transaction) => Box::pin(transaction.execute(self)).await,
        }
    }

    /// Runs it and returns all rows.
    pub(super) async fn fetch_all<'c>(self, on: impl Into<On<'c>>) -> Result<Vec<Row>, sqlx::Error> {
        match on.into() {
            On::Pool(pool) => Box::pin(pool.fetch_all(self)).await,
            On::Transaction(transaction) => Box::pin(transaction.fetch_all(self)).await,
        }
    }

    /// Runs it and returns the first row, if there is one.
    pub(super) async fn fetch_optional<'c>(self, on: impl Into<On<'c>>) -> Result<Option<Row>, sqlx::Error> {
        Ok(self.fetch_all(on).await?.into_iter().next())
    }

    /// Runs it and returns the first row; that there is none is an error.
    pub(super) async fn fetch_one<'c>(self, on: impl Into<On<'c>>) -> Result<Row, sqlx::Error> {
        self.fetch_optional(on).await?.ok_or(sqlx::Error::RowNotFound)
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

fn is_late<T>(done: &Result<T, sqlx::Error>) -> bool {
    matches!(done, Err(sqlx::Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut)
}
