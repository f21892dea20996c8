//! Databases for tests: the same tests for every kind. SQLite is always there; PostgreSQL is, if the variable
//! `TEST_POSTGRES_URL` names a database in which tests may make schemas. No test is for PostgreSQL alone: without a
//! server it would pass and have shown nothing. The suite `tests/real/suites/store.sh` has a server, and counts the
//! tests that had a schema there.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

use super::Store;
use super::database::{About, Connections};
use gateway_config::{StoreConfig, StoreUrl};

/// A database of one test's own.
pub(super) struct Fresh {
    pub(super) config: StoreConfig,
    schema: Option<Schema>,
    /// The key's file, and a file database.
    folder: TempDir,
}

struct Schema {
    server: String,
    name: String,
}

impl Fresh {
    /// In a file.
    pub(super) fn file() -> Self {
        // In memory if possible: a busy disk may take longer for one write than the next one waits.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let url = StoreUrl::SqliteFile(folder.path().join("gateway.db"));
        Self { config: StoreConfig::at(url), schema: None, folder }
    }

    /// On the server of the environment, if it names one.
    async fn on_server() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = std::env::var("TEST_POSTGRES_URL").ok()?;
        let name = format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&server).await.unwrap();
        let statement = AssertSqlSafe(format!("CREATE SCHEMA {name}"));
        sqlx::query(statement).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let first = if server.contains('?') { '&' } else { '?' };
        // The name is also the application name of its connections, so that a test can find them on the server.
        let url = format!("{server}{first}options=-c%20search_path%3D{name}&application_name={name}");
        let folder = tempfile::tempdir().unwrap();
        let key_file = Some(folder.path().join("gateway.key"));
        let config = StoreConfig { key_file, ..StoreConfig::at(url.parse().unwrap()) };
        Some(Self { config, schema: Some(Schema { server, name }), folder })
    }

    pub(super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Opens it, as one more program.
    pub(super) async fn open(&self) -> Store {
        Store::open_with(&self.config).await.unwrap()
    }

    pub(super) fn is_on_server(&self) -> bool {
        self.schema.is_some()
    }

    /// Causes a disturbance that a store must not notice: on a server, breaks all its connections; for a file, opens
    /// and closes it as another program.
    pub(super) async fn disturb(&self) {
        let Some(Schema { server, name }) = &self.schema else { return self.open().await.close().await };
        let mut beside = PgConnection::connect(server).await.unwrap();
        let statement = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()";
        let broken: i64 = sqlx::query_scalar(statement).bind(name).fetch_one(&mut beside).await.unwrap();
        assert!(broken > 0, "there was none");
    }

    /// Ends one session on the server.
    pub(super) async fn end_session(&self, pid: i32) {
        let schema = self.schema.as_ref().unwrap();
        let mut beside = PgConnection::connect(&schema.server).await.unwrap();
        sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&mut beside).await.unwrap();
        // The statement sends a signal: what the session held goes with its process.
        let still_there = "SELECT 1 FROM pg_stat_activity WHERE pid = $1";
        while sqlx::query(still_there).bind(pid).fetch_optional(&mut beside).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) async fn remove(self) {
        if let Some(Schema { server, name }) = self.schema {
            let mut connection = PgConnection::connect(&server).await.unwrap();
            let statement = AssertSqlSafe(format!("DROP SCHEMA {name} CASCADE"));
            sqlx::query(statement).execute(&mut connection).await.unwrap();
        }
        self.folder.close().unwrap();
    }
}

/// Opens several connections, if the store can have several, so that concurrent callers find one each.
pub(super) async fn warm(store: &Store) {
    if let Connections::Postgres(_) = store.writer.to {
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(store.write(About::Nothing).await.unwrap());
        }
    }
}

/// Runs a test with a new database of each kind.
pub(super) async fn each(test: impl AsyncFn(&Store)) {
    let store = Store::open("sqlite::memory:").await.unwrap();
    test(&store).await;
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        test(&store).await;
        store.close().await;
    })
    .await;
}

/// Runs a test with a new database of each kind that several programs can open.
pub(super) async fn each_fresh(test: impl AsyncFn(&Fresh)) {
    let file = Fresh::file();
    test(&file).await;
    file.remove().await;
    if let Some(schema) = Fresh::on_server().await {
        test(&schema).await;
        schema.remove().await;
    }
}
