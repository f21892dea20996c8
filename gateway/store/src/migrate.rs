//! Brings a database's schema up to date. Both kinds of database have the same versions, each with a text of its own.

use std::sync::LazyLock;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType};

use super::StoreError;
use super::database::{Connections, Pool};
use super::postgres::{BEGIN, LOCK};
use super::sqlite::BEGIN_WRITE;

/// Table of the applied migrations.
const MIGRATIONS_TABLE: &str = "_migrations";

/// End of the description of a version that takes nothing away and demands nothing new, which is kept in the database: programs that do
/// not know the version run with it.
pub(super) const ADDITIVE: &str = " (additive)";

/// One version of the schema, for each kind of database.
#[derive(Clone, Debug)]
pub(super) struct SchemaVersion {
    sqlite: Migration,
    postgres: Migration,
}

impl SchemaVersion {
    pub(super) fn new(version: i64, description: &'static str, sqlite: &'static str, postgres: &'static str) -> Self {
        let migration = |text: &'static str| {
            Migration::new(version, description.into(), MigrationType::Simple, text.into_sql_str(), false)
        };
        Self { sqlite: migration(sqlite), postgres: migration(postgres) }
    }
}

/// Reads the two files of a version.
macro_rules! step {
    ($version:literal, $description:literal, $file:literal) => {
        SchemaVersion::new(
            $version,
            $description,
            include_str!(concat!("../migrations/sqlite/", $file)),
            include_str!(concat!("../migrations/postgres/", $file)),
        )
    };
}

/// Oldest first.
pub(super) static STEPS: LazyLock<Vec<SchemaVersion>> = LazyLock::new(|| {
    vec![
        step!(1, "workspaces and tokens", "0001_workspaces_and_tokens.sql"),
        step!(2, "shares", "0002_shares.sql"),
        step!(3, "users", "0003_users.sql"),
        step!(4, "own tokens and lists", "0004_own_tokens_and_lists.sql"),
        step!(5, "uses of tokens", "0005_agent_token_uses.sql"),
        step!(6, "workspaces with a lifecycle", "0006_lifecycles.sql"),
        step!(7, "workspaces in CI systems", "0007_ci_workspaces.sql"),
        step!(8, "environments of jobs", "0008_environments.sql"),
        step!(9, "sign-ins that outlive the process", "0009_sign_ins.sql"),
        step!(10, "changes of access", "0010_access_changes.sql"),
        step!(11, "replicas and sessions", "0011_replicas_and_sessions.sql"),
        step!(12, "sign-ins that replicas share", "0012_shared_sign_ins.sql"),
        step!(13, "duties", "0013_duties.sql"),
        step!(14, "changed rows", "0014_changed_rows.sql"),
        step!(16, "replica reports", "0016_replica_reports.sql"),
        step!(17, "shared certificate", "0017_shared_certificate.sql"),
        step!(18, "credentials for git servers", "0018_git_credentials.sql"),
        step!(19, "use of workspaces", "0019_idle.sql"),
        step!(20, "needs of workspaces", "0020_workspace_needs.sql"),
        step!(21, "named ports", "0021_named_ports.sql"),
        step!(22, "progress of starts", "0022_start_progress.sql"),
        step!(23, "audit records", "0023_audit_records.sql"),
        step!(24, "display names and pins", "0024_display_names_and_pins.sql"),
        step!(25, "templates of workspaces", "0025_workspace_templates.sql"),
    ]
});

/// Applies the missing migrations, under a lock: of two programs that start at once, one migrates and the other finds
/// nothing left to do. All or nothing.
pub(super) async fn migrate(writer: &Pool) -> Result<(), StoreError> {
    migrate_to(&STEPS, writer).await
}

pub(super) async fn migrate_to(steps: &[SchemaVersion], writer: &Pool) -> Result<(), StoreError> {
    match &writer.to {
        Connections::Sqlite(pool) => {
            let migrations: Vec<&Migration> = steps.iter().map(|step| &step.sqlite).collect();
            let mut transaction = pool.begin_with(BEGIN_WRITE).await?;
            match apply_missing(&migrations, &mut *transaction).await {
                Err(StoreError::Newer { found, known }) => {
                    let newer = sqlx::query_scalar(NEWER).bind(known).fetch_all(&mut *transaction).await?;
                    accept(&newer, StoreError::Newer { found, known })?;
                }
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            Ok(transaction.commit().await?)
        }
        Connections::Postgres(server) => {
            let pool = server.pool();
            let migrations: Vec<&Migration> = steps.iter().map(|step| &step.postgres).collect();
            // Without a deadline: another replica's migration may take a while.
            let mut transaction = pool.begin_with(BEGIN).await?;
            sqlx::query(LOCK).bind("migrations").execute(&mut *transaction).await?;
            match apply_missing(&migrations, &mut *transaction).await {
                Err(StoreError::Newer { found, known }) => {
                    let newer = sqlx::query_scalar(NEWER).bind(known).fetch_all(&mut *transaction).await?;
                    accept(&newer, StoreError::Newer { found, known })?;
                }
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            Ok(transaction.commit().await?)
        }
        // Its server has done so.
        #[cfg(any(test, feature = "testing"))]
        Connections::Remote(_) => Ok(()),
    }
}

/// Reads the descriptions of versions that this program does not know.
const NEWER: &str = "SELECT description FROM _migrations WHERE version > $1";

/// Accepts a newer schema if all that it has more is additive; returns `refused` if not.
fn accept(newer: &[String], refused: StoreError) -> Result<(), StoreError> {
    if newer.iter().any(|description| !description.ends_with(ADDITIVE)) {
        return Err(refused);
    }
    tracing::warn!(versions = newer.len(), "the database has a newer schema, which this version can run with");
    Ok(())
}

async fn apply_missing(migrations: &[&Migration], connection: &mut impl Migrate) -> Result<(), StoreError> {
    connection.ensure_migrations_table(MIGRATIONS_TABLE).await.map_err(StoreError::Migrate)?;
    let applied = connection.list_applied_migrations(MIGRATIONS_TABLE).await.map_err(StoreError::Migrate)?;
    let known = migrations.last().map_or(0, |last| last.version);
    if let Some(found) = applied.iter().map(|applied| applied.version).max().filter(|found| *found > known) {
        return Err(StoreError::Newer { found, known });
    }
    for migration in migrations {
        match applied.iter().find(|applied| applied.version == migration.version) {
            Some(applied) if applied.checksum == migration.checksum => {}
            Some(_) => return Err(StoreError::Migrate(MigrateError::VersionMismatch(migration.version))),
            None => {
                connection.apply(MIGRATIONS_TABLE, migration).await.map_err(StoreError::Migrate)?;
            }
        }
    }
    Ok(())
}

impl SchemaVersion {
    /// Returns its two texts.
    #[cfg(test)]
    pub(super) fn texts(&self) -> [&str; 2] {
        [self.sqlite.sql.as_str(), self.postgres.sql.as_str()]
    }

    /// Returns its description.
    #[cfg(test)]
    pub(super) fn description(&self) -> &str {
        &self.sqlite.description
    }

    /// Returns its number.
    pub(super) fn version(&self) -> i64 {
        self.sqlite.version
    }
}
