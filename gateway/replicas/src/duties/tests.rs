use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gateway_store::{NewReplica, ReplicaState};

use super::*;

const LEASE: Duration = Duration::from_secs(60);

async fn added(store: &Store) -> Incarnation {
    let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease: LEASE };
    store.add_replica(&new).await.expect("the store").expect("the same settings")
}

/// A replica with timers that count how many are at work, here and in all.
struct Stage {
    replica: Incarnation,
    stops: KeeperStops,
    own: Arc<AtomicUsize>,
    keeper: JoinSet<()>,
}

impl Stage {
    async fn new(store: &Store, all: &Arc<AtomicUsize>) -> Self {
        let (replica, own) = (added(store).await, Arc::new(AtomicUsize::new(0)));
        let (all, counted) = (all.clone(), own.clone());
        let work: DutyWork = Box::new(move |held: HeldDuty| {
            let counts = [all.clone(), counted.clone()];
            Box::pin(async move {
                let before = counts.each_ref().map(|count| count.fetch_add(1, Ordering::SeqCst));
                assert_eq!(before, [0, 0], "two are at work");
                held.ending.cancelled().await;
                // What is under way takes a while, unless it has to stop.
                held.lost.run_until_cancelled(tokio::time::sleep(Duration::from_millis(300))).await;
                for count in counts {
                    count.fetch_sub(1, Ordering::SeqCst);
                }
            })
        });
        let new = CancellationToken::new;
        let stops = KeeperStops { draining: new(), closed: new(), lost: new() };
        let mut keeper = JoinSet::new();
        let works = BTreeMap::from([(Duty::Timers, work)]);
        keeper.spawn(DutyKeeper::new(store.clone(), replica, works).run(stops.clone()));
        Self { replica, stops, own, keeper }
    }

    fn works(&self) -> bool {
        self.own.load(Ordering::SeqCst) > 0
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn work_is_done_by_one_and_handed_over_when_its_replica_drains() {
    let (store, all) = (Store::open("sqlite::memory:").await.expect("a store"), Arc::default());
    let first = Stage::new(&store, &all).await;
    until(|| first.works()).await;
    let second = Stage::new(&store, &all).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.works());
    first.stops.draining.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let owner = async || store.duties(second.replica).await.expect("the store").owners.get(&Duty::Timers).copied();
    assert_eq!(owner().await, Some(first.replica), "kept while the work under way ends");
    first.keeper.join_all().await;
    assert_eq!(owner().await, None);
    until(|| second.works()).await;
    // The process ends.
    second.stops.closed.cancel();
    second.keeper.join_all().await;
    assert_eq!((owner().await, all.load(Ordering::SeqCst)), (None, 0));
}

#[tokio::test]
async fn work_of_a_replica_that_lost_its_lease_is_done_by_another() {
    let (store, all) = (Store::open("sqlite::memory:").await.expect("a store"), Arc::default());
    let first = Stage::new(&store, &all).await;
    until(|| first.works()).await;
    store.renew_replica(first.replica, ReplicaState::Serving, Duration::ZERO).await.expect("the store");
    first.stops.lost.cancel();
    until(|| !first.works()).await;
    let second = Stage::new(&store, &all).await;
    until(|| second.works()).await;
    first.keeper.join_all().await;
}

#[tokio::test]
async fn work_stops_when_the_lease_may_be_over_although_the_store_says_nothing() {
    let (store, all) = (Store::open("sqlite::memory:").await.expect("a store"), Arc::default());
    let first = Stage::new(&store, &all).await;
    // The next look finds a lease that ends soon after it.
    store.renew_replica(first.replica, ReplicaState::Serving, TICK + TICK / 2).await.expect("the store");
    until(|| first.works()).await;
    tokio::time::sleep(TICK + TICK / 6).await;
    store.close().await;
    tokio::time::timeout(TICK, until(|| !first.works())).await.expect("it stops");
}
