use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::database::{About, Connections};
use crate::each::each;
use crate::{ClaimResult, NewReplica, ReplicaState, SessionClaim};
use gateway_types::UnixSeconds;

const NOW: UnixSeconds = UnixSeconds::new(1_000);

async fn replica(store: &Store) -> Incarnation {
    let lease = Duration::from_secs(60);
    let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease };
    store.add_replica(&new).await.unwrap().unwrap()
}

async fn dies(store: &Store, replica: Incarnation) {
    store.renew_replica(replica, ReplicaState::Serving, Duration::ZERO).await.unwrap();
}

/// Two replicas, of which the first has the timers, and that one's store.
async fn timers(store: &Store) -> (Incarnation, Incarnation, Store, CancellationToken) {
    let (first, second, lost) = (replica(store).await, replica(store).await, CancellationToken::new());
    assert!(store.take_duty(Duty::Timers, first).await.unwrap());
    let fenced = store.fenced(Fence::of_duty(Duty::Timers, first, lost.clone()));
    (first, second, fenced, lost)
}

/// Writes by a single statement that returns a row, by one that returns none, and by a transaction.
async fn writes(store: &Store, name: &str) -> [Result<(), StoreError>; 3] {
    let (name, workspace) = (name.parse().unwrap(), name.parse().unwrap());
    let row = store.ensure_cluster(&name, NOW).await.map(drop);
    let none = store.give_duty_up(Duty::Sweeps, Incarnation(99)).await;
    let transaction = store.create_agent_token(&workspace, &"dev".parse().unwrap(), NOW).await.map(drop);
    [row, none, transaction]
}

async fn is_written(store: &Store, name: &str) -> (bool, bool) {
    let cluster = store.cluster(&name.parse().unwrap()).await.unwrap();
    let workspace = store.workspace(&name.parse().unwrap()).await.unwrap();
    (cluster.is_some(), workspace.is_some())
}

fn is_fenced(done: &Result<(), StoreError>) -> bool {
    matches!(done, Err(StoreError::Fenced))
}

#[tokio::test]
async fn owner_that_was_paused_writes_nothing_once_another_has_the_duty() {
    each(async |store| {
        let (first, second, fenced, lost) = timers(store).await;
        assert!(writes(&fenced, "one").await.iter().all(Result::is_ok));
        assert_eq!(is_written(store, "one").await, (true, true));
        // Its lease is over, and the duty is still its own: two cannot write.
        dies(store, first).await;
        assert!(writes(&fenced, "two").await.iter().all(Result::is_ok));
        assert!(!lost.is_cancelled());
        assert!(store.take_duty(Duty::Timers, second).await.unwrap());
        assert!(writes(&fenced, "three").await.iter().all(is_fenced));
        assert_eq!(is_written(store, "three").await, (false, false));
        assert!(lost.is_cancelled(), "the work is told to stop");
        // It reads as before, and the store itself writes as before.
        assert!(fenced.cluster(&"one".parse().unwrap()).await.unwrap().is_some());
        assert!(writes(store, "three").await.iter().all(Result::is_ok));
    })
    .await;
}

#[tokio::test]
async fn duty_is_not_taken_while_its_owner_writes() {
    each(async |store| {
        let Connections::Postgres(_) = store.writer.to else {
            // SQLite has one writer at a time.
            return;
        };
        let (first, second, fenced, _lost) = timers(store).await;
        let transaction = fenced.write(About::Nothing).await.unwrap();
        dies(store, first).await;
        assert!(!store.take_duty(Duty::Timers, second).await.unwrap());
        transaction.commit().await.unwrap();
        assert!(store.take_duty(Duty::Timers, second).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn owner_that_is_paused_while_it_writes_is_waited_for_only_for_a_moment() {
    each(async |store| {
        let Connections::Postgres(_) = store.writer.to else { return };
        let (first, second, fenced, _lost) = timers(store).await;
        let mut transaction = fenced.write(About::Nothing).await.unwrap();
        let change = crate::database::sql("UPDATE duties SET owner = 77 WHERE name = 'sweeps'");
        change.execute(&mut transaction).await.unwrap();
        dies(store, first).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(store.take_duty(Duty::Timers, second).await.unwrap());
        assert!(transaction.commit().await.is_err(), "the server has ended it");
        let sweeps = crate::database::sql("SELECT owner FROM duties WHERE name = 'sweeps'");
        let row = sweeps.fetch_one(&store.readers).await.unwrap();
        assert_eq!(row.get::<Option<i64>>("owner").unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn work_for_a_session_writes_nothing_once_a_newer_one_has_its_place() {
    each(async |store| {
        let (first, second) = (replica(store).await, replica(store).await);
        let cluster = store.ensure_cluster(&"prod".parse().unwrap(), NOW).await.unwrap();
        let key = SessionKey::Cluster(cluster.id);
        let claims = async |owner, instance| {
            let claim = SessionClaim { key, instance, known: None, is_late: false };
            match store.claim_sessions(owner, &[claim]).await.unwrap().unwrap()[0] {
                ClaimResult::Owned { generation, .. } => generation,
                ClaimResult::Displaced { .. } => panic!("displaced"),
            }
        };
        let fenced = |owner, generation| {
            let lost = CancellationToken::new();
            (store.fenced(Fence::of_session(key, owner, generation, lost.clone())), lost)
        };
        let (own, own_lost) = fenced(first, claims(first, 7).await);
        assert!(writes(&own, "one").await.iter().all(Result::is_ok));
        // A newer session at the same replica, and then one at another.
        let (newer, newer_lost) = fenced(first, claims(first, 8).await);
        assert!(writes(&own, "two").await.iter().all(is_fenced));
        assert!(writes(&newer, "two").await.iter().all(Result::is_ok));
        assert!(own_lost.is_cancelled() && !newer_lost.is_cancelled());
        claims(second, 9).await;
        assert!(writes(&newer, "three").await.iter().all(is_fenced));
        assert_eq!(is_written(store, "three").await, (false, false));
    })
    .await;
}
