//! The database: workspaces, tokens and users, in SQLite.
//!
//! One writer and several readers: SQLite allows one writer at a time, and a pool of one makes ours queue here, in order,
//! instead of spinning inside SQLite. `gateway serve` and the commands open the same file from several processes; the
//! write-ahead log lets them read while one writes, and a busy writer is waited for.
//!
//! No clock inside: callers pass the time (see [`wall_clock`] for where it comes from).

mod model;
mod rotate;
mod shares;
mod sqlite;
mod time;
mod tokens;
mod users;
mod uses;
mod workspaces;

use std::path::PathBuf;

use sqlx::SqlitePool;
use thiserror::Error;

use self::sqlite::Keeper;
use crate::auth::token::NoRandomness;
use crate::config::{BadStoreUrl, StoreUrl};
use crate::model::WorkspaceName;

pub use model::{
    Admission, BadId, BadNote, Created, Executor, NOTE_CHARS_MAX, NewToken, Note, Rotated, Terms, TokenId, TokenRecord,
    TokenSubject, User, Workspace, WorkspaceId,
};
pub use shares::Replaced;
pub use time::{wall_clock, wall_clock_ms};
pub use tokens::TOKENS_LIVE_MAX;
pub use uses::{Spent, TokenUse, UsedToken};
pub use workspaces::Listed;

/// A database, open. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    /// At most one connection, so writes of this process queue.
    writer: SqlitePool,
    /// Cannot write. The same pool as `writer` for a database in memory.
    readers: SqlitePool,
    _keeper: Option<Keeper>,
}

/// Why the store did not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The URL names no database.
    #[error("the store's URL is wrong: {0}")]
    Url(#[from] BadStoreUrl),
    /// The file cannot be opened or created.
    #[error("cannot open the database {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite or the system says.
        #[source]
        source: sqlx::Error,
    },
    /// A newer program has changed the database's shape; going on could destroy what that program stored.
    #[error(
        "the database has schema {found}, made by a newer version of this program, and this one knows up to \
         {known}: run the newer version, or use another database"
    )]
    Newer {
        /// The schema of the database.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
    },
    /// The database's shape cannot be brought up to date.
    #[error("cannot bring the database's schema up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The workspace exists and belongs to somebody else.
    #[error("the workspace {0} belongs to another user")]
    OtherOwner(WorkspaceName),
    /// A stored value that no version of the program writes.
    #[error("the database holds a value in {table}.{column} that cannot be")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// No token could be made.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// A statement failed.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl Store {
    /// Opens the database that `url` names (`sqlite://PATH` or `sqlite::memory:`), creates it if there is none, and
    /// brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Url`], [`StoreError::Open`], [`StoreError::Newer`] or [`StoreError::Migrate`].
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let (writer, readers, keeper) = match url.parse()? {
            StoreUrl::SqliteFile(path) => {
                let (writer, readers) = sqlite::open_file(path).await?;
                (writer, readers, None)
            }
            StoreUrl::SqliteMemory => {
                let (only, keeper) = sqlite::open_memory().await?;
                (only.clone(), only, Some(keeper))
            }
        };
        let store = Self { writer, readers, _keeper: keeper };
        sqlite::migrate(&store.writer).await?;
        Ok(store)
    }

    /// Waits for statements in flight and closes the connections; the last one to leave folds the log into the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

#[cfg(test)]
mod tests;
