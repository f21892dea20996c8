use std::future::pending;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::*;
use crate::database::Connections;
use crate::each::{Fresh, each};
use gateway_config::StoreConfig;
use gateway_types::UnixSeconds;

const NOW: UnixSeconds = UnixSeconds::new(1_000);

/// Watches a store as a gateway does; returns what it is told of changes.
async fn watched(store: &Store, config: &StoreConfig, tasks: &mut JoinSet<()>) -> Arc<Mutex<Vec<AccessChange>>> {
    let told: Arc<Mutex<Vec<AccessChange>>> = Arc::default();
    let single = SingleGateway::take(config, Duration::ZERO).await.unwrap();
    let (store, sink) = (store.clone(), told.clone());
    tasks.spawn(async move {
        let stop = CancellationToken::new();
        store.watch(&single, stop, |change| sink.lock().push(change.clone())).await.unwrap();
    });
    told
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(Duration::from_secs(60), waited).await.is_ok(), "{what}");
}

#[tokio::test]
async fn change_by_another_program_is_told_to_who_watches() {
    let fresh = Fresh::file();
    let (store, beside, mut tasks) = (fresh.open().await, fresh.open().await, JoinSet::new());
    let token = store.create_user_token(&"ann".parse().unwrap(), NOW).await.unwrap();
    let told = watched(&store, &fresh.config, &mut tasks).await;
    assert!(beside.revoke_token(token.id, NOW).await.unwrap());
    until("the change is told", || told.lock().contains(&AccessChange::Token(token.token.hash()))).await;
}

#[tokio::test]
async fn file_on_a_full_or_read_only_disk_is_read_on_and_said_to_be_away_until_it_can_be_written() {
    for (full, empty) in [
        ("PRAGMA query_only = 1", "PRAGMA query_only = 0"),
        // Fewer pages than there are: as many as there are.
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 4294967294"),
    ] {
        let fresh = Fresh::file();
        let (store, mut tasks) = (fresh.open().await, JoinSet::new());
        let ann = "ann".parse().unwrap();
        let known = store.create_user_token(&ann, NOW).await.unwrap().token.hash();
        drop(watched(&store, &fresh.config, &mut tasks).await);
        let availability = store.availability().clone();
        let Connections::Sqlite(writer) = &store.writer.to else { panic!("it is a file") };
        until("it is watched", || {
            availability.writable(false, Instant::now());
            availability.unwritable_since().is_some()
        })
        .await;
        availability.writable(true, Instant::now());
        sqlx::query(full).execute(writer).await.unwrap();
        let mut failed = false;
        // There is room left in the pages that there are.
        for _ in 0..10_000 {
            failed = store.create_user_token(&ann, NOW).await.is_err();
            if failed {
                break;
            }
        }
        assert!(failed && availability.unwritable_since().is_some(), "{full}");
        assert!(availability.outage().is_none(), "{full}");
        assert!(store.token_by_hash(&known).await.unwrap().is_some(), "what is there is read on");
        sqlx::query(empty).execute(writer).await.unwrap();
        until("it can be written again", || availability.unwritable_since().is_none()).await;
        store.create_user_token(&ann, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn statement_in_flight_and_those_behind_it_end_as_soon_as_the_store_is_away() {
    each(async |store| {
        store.availability().watched();
        let mut held = store.write(super::super::About::Users).await.unwrap();
        super::super::database::sql("SELECT 1").execute(&mut held).await.unwrap();
        // It waits for the lock of the first.
        let waiting = async {
            let error = store.write(super::super::About::Users).await.map(drop).unwrap_err();
            assert!(error.is_unanswered(), "{error}");
        };
        let lost = async {
            tokio::task::yield_now().await;
            assert!(store.availability().failed(Instant::now()));
            pending::<()>().await;
        };
        tokio::select! {
            () = waiting => {}
            () = lost => {}
        }
        let began = Instant::now();
        let error = store.token_by_hash(&[0; 32]).await.unwrap_err();
        assert!(matches!(error, crate::StoreError::Away) && began.elapsed() < Duration::from_secs(1));
        store.availability().answered(Instant::now());
        store.readers.renew();
        drop(held);
        assert!(store.token_by_hash(&[0; 32]).await.unwrap().is_none());
    })
    .await;
}
