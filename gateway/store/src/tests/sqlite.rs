//! What only SQLite has: databases in memory and in files.

use super::super::database::{Pool, sql};
use super::super::each::Fresh;
use super::super::sqlite::BEGIN_WRITE;
use super::*;

fn pool(pool: &Pool) -> &sqlx::SqlitePool {
    pool.sqlite().expect("it is SQLite's")
}

#[tokio::test]
async fn two_databases_in_memory_share_nothing() {
    let (one, other) = (Store::open("sqlite::memory:").await.unwrap(), Store::open("sqlite::memory:").await.unwrap());
    one.create_user_token(&user("alice"), at(1)).await.unwrap();
    assert_eq!(other.list_tokens().await.unwrap(), []);
}

#[tokio::test]
async fn file_is_private_and_has_the_pragmas() {
    let fresh = Fresh::file();
    let store = fresh.open().await;
    for pool in [pool(&store.writer), pool(&store.readers)] {
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(pool).await.unwrap();
        let keys: i64 = sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(pool).await.unwrap();
        let busy: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(pool).await.unwrap();
        assert_eq!((mode.as_str(), keys, busy), ("wal", 1, 5000));
    }
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(pool(&store.writer)).await.unwrap();
    assert_eq!(synchronous, 1, "NORMAL");
    assert!(sql("DELETE FROM tokens").execute(&store.readers).await.is_err(), "readers cannot write");
    #[cfg(unix)]
    for name in ["gateway.db", "gateway.db-wal", "gateway.db-shm", "gateway.key"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(fresh.folder().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    store.close().await;
    fresh.remove().await;
}

#[tokio::test]
async fn write_that_begins_by_reading_lets_no_other_program_write_in_between() {
    let fresh = Fresh::file();
    let (one, other) = (fresh.open().await, fresh.open().await);
    sql("PRAGMA busy_timeout = 0").execute(&other.writer).await.unwrap();
    let mut transaction = pool(&one.writer).begin_with(BEGIN_WRITE).await.unwrap();
    sqlx::query("SELECT id FROM tokens").fetch_all(&mut *transaction).await.unwrap();
    assert!(other.create_user_token(&user("bob"), at(1)).await.is_err(), "has to wait");
    assert_eq!(other.list_tokens().await.unwrap(), [], "reading goes on");
    sqlx::query("UPDATE tokens SET revoked_at = 1").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    other.create_user_token(&user("bob"), at(1)).await.unwrap();
    one.close().await;
    other.close().await;
    fresh.remove().await;
}

#[tokio::test]
async fn open_says_which_file_or_url_is_wrong() {
    let error = Store::open("sqlite:///no/such/directory/gateway.db").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open the database /no/such/directory/gateway.db: the folder /no/such/directory does not exist: make it, or change store.url"
    );
    assert!(matches!(Store::open("mysql://h/db").await, Err(StoreError::Url(BadStoreUrl::Scheme))));
    let fresh = Fresh::file();
    let text = "this is a text file, and not a short one: it has more than a header";
    std::fs::write(fresh.folder().join("gateway.db"), text).unwrap();
    assert!(matches!(Store::open_with(&fresh.config).await, Err(StoreError::Open { .. })));
    fresh.remove().await;
}
