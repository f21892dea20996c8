//! Looks at a database from outside: changes nothing, makes nothing, and migrates nothing.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::database::{Connections, Pool, sql_of};
use super::migrate::STEPS;
use super::replicas::clocked;
use super::time::wall_clock_ms;
use super::{StoreError, postgres, sqlite};
use gateway_config::{StoreConfig, StoreUrl};
use gateway_net::availability::Availability;

/// Time limit for a server to be there.
const PATIENCE: Duration = Duration::from_secs(3);

/// Questions of which the quickest says how long the way is.
const QUESTIONS: u32 = 10;

/// Facts about a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// Newest version of its schema; `None` for a database without one.
    pub schema: Option<i64>,
    /// Newest version that this program knows.
    pub known: i64,
    /// Number of versions that this program knows and the database lacks.
    pub missing: usize,
    /// Time of a statement that does nothing.
    pub latency: Duration,
    /// Its clock; `None` if it has none of its own.
    pub clock: Option<DatabaseClock>,
    /// Replicas that live, with their versions.
    pub replicas: Vec<ReplicaVersion>,
}

/// A server's clock between two readings of this machine's, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseClock {
    /// This machine's, before.
    pub before: i64,
    /// This machine's, after.
    pub after: i64,
    /// The server's.
    pub server: i64,
}

/// Version of a replica that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaVersion {
    /// Its number.
    pub id: i64,
    /// Its version.
    pub version: String,
}

/// Looks at the database that a configuration names. A file that is not there is an error.
///
/// # Errors
/// [`StoreError::Open`], [`StoreError::Connect`] or one about the file of the password; [`StoreError::Database`] for a statement.
///
/// Cancel safety: safe.
pub async fn inspect(config: &StoreConfig) -> Result<StoreFacts, StoreError> {
    // Boxed: the future has room for either database.
    let to = Box::pin(connect(config)).await?;
    let pool = Pool::new(to, Availability::new(PATIENCE));
    let facts = Box::pin(facts(&pool)).await;
    pool.close().await;
    facts
}

async fn connect(config: &StoreConfig) -> Result<Connections, StoreError> {
    Ok(match &config.url {
        StoreUrl::SqliteFile(path) => Connections::Sqlite(sqlite::open_present(path).await?),
        StoreUrl::SqliteMemory => Connections::Sqlite(sqlite::open_memory().await?.0),
        StoreUrl::Postgres(url) => {
            let open = postgres::open_within(url, config.password_file.as_deref(), PATIENCE);
            let late = |_elapsed| StoreError::Connect {
                database: url.to_string(),
                why: format!("it did not answer within {} s", PATIENCE.as_secs()),
            };
            Connections::Postgres(timeout(2 * PATIENCE, open).await.map_err(late)??)
        }
    })
}

async fn facts(pool: &Pool) -> Result<StoreFacts, StoreError> {
    let mut latency = Duration::MAX;
    for _ in 0..QUESTIONS {
        let began = Instant::now();
        pool.probe(sql_of("SELECT 1", "SELECT 1")).await?;
        latency = latency.min(began.elapsed());
    }
    let clock = clock(pool).await?;
    let known = STEPS.iter().map(|step| step.version()).max().unwrap_or_default();
    let applied = applied(pool).await?;
    let missing = STEPS.iter().filter(|step| !applied.contains(&step.version())).count();
    let schema = applied.iter().copied().max();
    let replicas = if schema == Some(known) { replicas(pool).await? } else { Vec::new() };
    Ok(StoreFacts { schema, known, missing, latency, clock, replicas })
}

async fn applied(pool: &Pool) -> Result<Vec<i64>, StoreError> {
    let tables = sql_of(
        "SELECT name FROM sqlite_master WHERE name = '_migrations'",
        "SELECT tablename AS name FROM pg_tables WHERE tablename = '_migrations' AND schemaname = current_schema()",
    );
    if pool.probe(tables).await?.is_empty() {
        return Ok(Vec::new());
    }
    const APPLIED: &str = "SELECT version FROM _migrations";
    pool.probe(sql_of(APPLIED, APPLIED)).await?.iter().map(|row| Ok(row.get("version")?)).collect()
}

async fn clock(pool: &Pool) -> Result<Option<DatabaseClock>, StoreError> {
    if matches!(pool.to, Connections::Sqlite(_)) {
        return Ok(None);
    }
    let own = || i64::try_from(wall_clock_ms()).unwrap_or(i64::MAX);
    let before = own();
    let rows = pool.probe(clocked!("SELECT ", " AS now")).await?;
    let after = own();
    let server = rows.first().map(|row| row.get("now")).transpose()?;
    Ok(server.map(|server| DatabaseClock { before, after, server }))
}

async fn replicas(pool: &Pool) -> Result<Vec<ReplicaVersion>, StoreError> {
    let living = clocked!("SELECT id, version FROM replicas WHERE expires_at > ", " ORDER BY id");
    let rows = pool.probe(living).await?;
    rows.iter().map(|row| Ok(ReplicaVersion { id: row.get("id")?, version: row.get("version")? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn file_is_inspected_and_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.db");
        let config = StoreConfig::at(format!("sqlite://{}", path.display()).parse().unwrap());
        assert!(matches!(inspect(&config).await, Err(StoreError::Open { .. })));
        assert!(!path.exists(), "it was made");
        let store = Store::open_with(&config).await.unwrap();
        let facts = inspect(&config).await.unwrap();
        assert_eq!((facts.schema, facts.missing, facts.clock), (Some(facts.known), 0, None));
        let pool = store.writer.sqlite().unwrap();
        sqlx::query("DELETE FROM _migrations WHERE version = (SELECT MAX(version) FROM _migrations)")
            .execute(pool)
            .await
            .unwrap();
        let older = inspect(&config).await.unwrap();
        assert_eq!(older.missing, 1);
        assert!(older.schema < Some(older.known), "{older:?}");
        sqlx::query("UPDATE _migrations SET version = 4000 WHERE version = 1").execute(pool).await.unwrap();
        assert_eq!(inspect(&config).await.unwrap().schema, Some(4000));
    }

    #[tokio::test]
    async fn database_without_a_schema_is_empty() {
        let config = StoreConfig::at("sqlite::memory:".parse().unwrap());
        let facts = inspect(&config).await.unwrap();
        assert_eq!((facts.schema, facts.missing), (None, STEPS.len()));
    }

    #[tokio::test]
    async fn server_that_is_away_is_named_without_its_password() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = StoreConfig::at(format!("postgres://u:hunter2@127.0.0.1:{port}/db").parse().unwrap());
        let told = inspect(&config).await.unwrap_err().to_string();
        assert!(told.contains("127.0.0.1") && !told.contains("hunter2"), "{told}");
    }
}
