//! The database: workspaces, tokens, users and clusters, in SQLite or PostgreSQL.
//!
//! * `database`, `sqlite`, `postgres`, `migrate`, `json`: one statement for both databases, their pools and their schema.
//! * `workspaces`, `managed`, `create`, `lifecycles`, `idle`, `former`, `external`, `pins`, `ids`, `variables`: workspaces. `overview`:
//!   lists over all users, for operators.
//! * `ci`, `environments`, `clusters`: runs of CI jobs, environments, clusters with their configurations.
//! * `tokens`, `rotate`, `single_use_tokens`, `users`, `sign_ins`, `shared_sign_ins`, `shares`: credentials and rights. `changes`
//!   is the feed of their changes that gateways read.
//! * `replicas`, `sessions`, `connected`, `duties`: gateways that share a database, and which of them has which agent and does which background
//!   work. `fence` keeps the writes of a past owner out.
//! * `audit_records`: the audit log of all replicas, for a search. `git_credentials`: users' credentials for git servers, sealed.
//! * `seal`, `reseal`, `key_file`: secrets that have to be read again, and the exchange of their key. `generations`: what agents prove of their last session. `single`: one gateway
//!   for each database. `watch`: outages. `inspect` looks at a database and changes nothing. `backup`: copies of it, with the keys.
//!
//! To add a method, write its statement once, with [`sql`](database::sql), and read the rows into types of `model`; a
//! new table is a file with the same number in each folder of `migrations`. Every test of this crate runs on both
//! databases (`tests::each`).
//!
//! No clock inside: callers pass the time (see [`wall_clock`] for its source).

mod audit_records;
pub mod backup;
mod certificates;
mod changed_rows;
mod changes;
mod ci;
mod clusters;
mod connected;
mod create;
mod database;
mod duties;
mod environments;
mod external;
mod fence;
mod former;
mod generations;
mod git_credentials;
mod idle;
mod ids;
mod inspect;
mod json;
mod key_file;
mod lifecycles;
mod managed;
mod migrate;
mod model;
mod named_ports;
mod overview;
mod pins;
mod postgres;
mod quotas;
#[cfg(any(test, feature = "testing"))]
pub mod remote;
mod replicas;
mod reseal;
mod rotate;
mod seal;
mod sessions;
mod shared_sign_ins;
mod shares;
mod sign_ins;
mod single;
mod single_use_tokens;
mod sqlite;
mod time;
mod tokens;
mod users;
mod variables;
mod watch;
mod workspaces;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use self::database::{About, Connections, Pool, Transaction};
use self::former::NameHold;
use self::seal::Sealer;
use self::sqlite::Keeper;
use gateway_config::{BadStoreUrl, StoreConfig, StoreUrl};
use gateway_net::availability::Availability;
use gateway_types::token::NoRandomness;
use gateway_types::{RefusedShare, UnixSeconds, WorkspaceName};

pub use audit_records::{AuditCutoffs, AuditFilter, AuditPage, AuditSource, FoundRecord};
pub use certificates::Orderer;
pub use changed_rows::{ChangedRow, ChangedRows, ChangedRowsReader};
pub use changes::AccessChange;
pub use ci::{AwaitedRuns, CiProject, CiRun, CiState, NewCi, NewCiRun, RunOwner};
pub use clusters::{Cluster, ConfigVersion};
pub use create::{AGENT_TOKEN_FILE, CreateError, NewManaged};
pub use duties::{Duty, DutyOwners};
pub use environments::{
    BadEnvironmentState, EnvironmentFilter, EnvironmentId, EnvironmentState, ForgottenEnvironment, JobStart,
    KeptOnStop, NewEnvironment, NewPreparation, Preparation, PreparationEnd, PreparationId, PreparationStatus,
    StateSet, StoredEnvironment, Tries,
};
pub use external::HandOver;
pub use fence::Fence;
pub use gateway_types::quota::{Needs, Quotas};
pub use generations::{ProvedAgent, SealedAdmission, SealedAgent, SealedGeneration};
pub use git_credentials::{
    AccessTimes, GIT_CREDENTIALS_MAX, GitCredentialKey, GitCredentialKind, GitCredentialRow, NewGitCredential,
    SealedGitCredential,
};
pub use idle::WorkspaceActivity;
pub use inspect::{DatabaseClock, ReplicaVersion, StoreFacts, inspect};
pub use json::canonical_json;
pub use key_file::{KeyFileChange, change_key_file, key_file_ids};
pub use lifecycles::Observation;
pub use managed::{KubernetesState, ManagedWorkspace, Runs, UsedTemplate};
pub use model::{
    Admission, BadId, BadNote, ClusterId, Executor, NOTE_CHARS_MAX, NewToken, Note, Terms, TokenCreation, TokenId,
    TokenRecord, TokenRotation, TokenSubject, User, Workspace, WorkspaceId,
};
pub use overview::{AgentPlace, ListedUser, StateCount, UserFilter, WorkspaceFilter};
pub use quotas::{ClusterUsage, CountedWorkspace, OverQuota, StartWithin};
pub use replicas::{
    DifferingReplica, DrainRequest, Incarnation, NewReplica, Renewal, ReplicaReport, ReplicaState, StoredReplica,
};
pub use reseal::{KeyChange, NewKeys, ResealProgress, SealedCounts};
pub use seal::KeyId;
pub use sessions::{CLAIMS_MAX, ClaimResult, DifferingPlace, NewerSession, SessionClaim, SessionKey, SessionOwner};
pub use shared_sign_ins::Obsolete;
pub use shares::{ShareReplacement, SharedPort};
pub use single::{PATIENCE, SingleError, SingleGateway};
pub use single_use_tokens::{TokenUse, TokenUseOutcome, UsedToken};
#[cfg(any(test, feature = "testing"))]
pub use time::set_wall_clock;
pub use time::{wall_clock, wall_clock_ms};
pub use tokens::TOKENS_LIVE_MAX;
pub use variables::{SecretText, Variable, VariableKind};
pub use workspaces::ListPage;

/// A database, open. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    /// At most one connection to SQLite, so writes of this process queue.
    writer: Pool,
    /// Cannot write to a file. The same pool as `writer` for a database in memory or on a server.
    readers: Pool,
    availability: Availability,
    sealer: Arc<Sealer>,
    /// Time for which names of workspaces are held back for their owners.
    name_hold: NameHold,
    _keeper: Option<Keeper>,
}

/// Failure of an operation of the store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The URL names no database.
    #[error("the store's URL is wrong: {0}")]
    Url(#[from] BadStoreUrl),
    /// The file cannot be opened or created.
    #[error("cannot open the database {}: {why}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Message of SQLite or the system, and the remedy.
        why: String,
    },
    /// The server cannot be reached, or refuses the login.
    #[error("cannot open the database {database}: {why}")]
    Connect {
        /// The URL, without the password.
        database: String,
        /// Message of the server or the system.
        why: String,
    },
    /// The file of `store.password_file` cannot be used.
    #[error("store.password_file {} cannot be used: {error}", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        error: io::Error,
    },
    /// The file of `store.key_file` cannot be used.
    #[error("store.key_file {} cannot be used: {error}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        error: io::Error,
    },
    /// The database has sealed secrets, and the key is not there. A new one would not open them.
    #[error(
        "the key that the database's secrets are sealed with is missing: store.key_file {} does not exist; bring it back, \
         or use another database", path.display()
    )]
    KeyMissing {
        /// The file.
        path: PathBuf,
    },
    /// The database's secrets are sealed with another key.
    #[error(
        "store.key_file {} holds another key than the one that the database's secrets are sealed with", path.display()
    )]
    KeyWrong {
        /// The file.
        path: PathBuf,
    },
    /// Secrets are sealed with a key that is not in the file any more.
    #[error(
        "store.key_file {} lacks a key with which {count} secrets are still sealed: bring it back, behind the others, and run \
         gateway key reseal", path.display()
    )]
    KeyNeeded {
        /// The file.
        path: PathBuf,
        /// Number of these secrets.
        count: u64,
    },
    /// The key with which this process seals is not in the file any more.
    #[error(
        "store.key_file {} lacks the key that seals here, although nothing that is stored needs it: have the gateway read the file          after each step of an exchange, before a key is dropped", path.display()
    )]
    KeySeals {
        /// The file.
        path: PathBuf,
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
    #[error("cannot bring the database's schema up to date: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    /// The workspace exists and belongs to another user.
    #[error("the workspace {0} belongs to another user")]
    OtherOwner(WorkspaceName),
    /// The name was another user's until recently.
    #[error(
        "the name {name} was another user's: browsers still have what its pages stored, so it is free for others from {until} \
         (store.name_hold)"
    )]
    NameHeld {
        /// The name.
        name: WorkspaceName,
        /// Time from which others may have it.
        until: UnixSeconds,
    },
    /// The database holds a value that no version of the program writes.
    #[error("the database holds an invalid value in {table}.{column}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// A sealed value does not open with the key: it was changed, or belongs elsewhere.
    #[error("a sealed value in {table} does not open")]
    Unsealable {
        /// The table.
        table: &'static str,
    },
    /// A value for a JSON column is not JSON.
    #[error("the value for {table}.{column} is not JSON")]
    NotJson {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The problem with it.
        #[source]
        source: serde_json::Error,
    },
    /// The database would return another value than the one written.
    #[error("the database altered the value that was written to {table}.{column}")]
    Altered {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// Such a share is not allowed.
    #[error(transparent)]
    Share(#[from] RefusedShare),
    /// No token or seal could be made.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The store did not answer a moment ago, and has not been asked since.
    #[error("the store is away")]
    Away,
    /// The work has another owner by now: nothing was written.
    #[error("another replica does this work by now")]
    Fenced,
    /// A statement failed.
    #[error("the database failed: {}", database::cause(.0))]
    Database(sqlx::Error),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl StoreError {
    /// Returns whether the store did not answer; all other errors are its own replies.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Away) || matches!(self, Self::Database(error) if database::is_outage(error))
    }
}

impl Store {
    /// Opens the database that `url` names, with defaults for the rest of [`StoreConfig`].
    ///
    /// # Errors
    /// As [`Store::open_with`], and [`StoreError::Url`].
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(&StoreConfig::at(url.parse()?)).await
    }

    /// Opens a database, creates a file if there is none, brings the schema up to date, and checks that the key for sealed
    /// secrets is the right one; a new database gets a new key, if its file is not there.
    ///
    /// # Errors
    /// [`StoreError::Open`], [`StoreError::Connect`], [`StoreError::Newer`] or [`StoreError::Migrate`], or one of those about
    /// the files of password and key.
    pub async fn open_with(config: &StoreConfig) -> Result<Self, StoreError> {
        // Boxed: the future has room for the start of either database.
        let (writer, readers, keeper) = Box::pin(Self::connect(config)).await?;
        let availability = Availability::new(config.outage_max);
        let [writer, readers] = [writer, readers].map(|to| Pool::new(to, availability.clone()));
        Box::pin(migrate::migrate(&writer)).await.map_err(|error| opening(config, error))?;
        let sealer = Arc::new(seal::unlock(&writer, config.key_file()).await.map_err(|error| opening(config, error))?);
        Ok(Self { writer, readers, availability, sealer, name_hold: NameHold(config.name_hold), _keeper: keeper })
    }

    /// Returns the availability of the store.
    #[must_use]
    pub fn availability(&self) -> &Availability {
        &self.availability
    }

    /// Returns the writer, the readers, and the connection that keeps a database in memory alive.
    async fn connect(config: &StoreConfig) -> Result<(Connections, Connections, Option<Keeper>), StoreError> {
        Ok(match &config.url {
            StoreUrl::SqliteFile(path) => {
                let (writer, readers) = sqlite::open_file(path.clone()).await?;
                (Connections::Sqlite(writer), Connections::Sqlite(readers), None)
            }
            StoreUrl::SqliteMemory => {
                let (only, keeper) = sqlite::open_memory().await?;
                (Connections::Sqlite(only.clone()), Connections::Sqlite(only), Some(keeper))
            }
            StoreUrl::Postgres(url) => {
                let only = Connections::Postgres(postgres::open(url, config.password_file.as_deref()).await?);
                (only.clone(), only, None)
            }
        })
    }

    /// Begins a write transaction, exclusive for this subject.
    async fn write(&self, about: About<'_>) -> Result<Transaction, StoreError> {
        self.writer.begin(about).await
    }

    /// Waits for statements in flight and closes the connections; the last one to close merges the write-ahead log into
    /// the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Adds the name of the database to a failure while it is opened.
fn opening(config: &StoreConfig, error: StoreError) -> StoreError {
    match (&config.url, error) {
        (StoreUrl::SqliteFile(path), StoreError::Database(error)) => sqlite::unopened(path, &error),
        (StoreUrl::Postgres(url), StoreError::Database(error)) => postgres::unreachable(url, &error),
        (StoreUrl::SqliteFile(_) | StoreUrl::SqliteMemory | StoreUrl::Postgres(_), error) => error,
    }
}

#[cfg(any(test, feature = "testing"))]
mod testing;

#[cfg(test)]
mod each;
#[cfg(test)]
mod tests;
