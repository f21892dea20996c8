//! Who leads works; nobody else does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_cluster::lease::{Lease, lead};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::trouble::{Fault, Trouble};
use crate::world::{Mode, World};

/// Candidates for one lease, of whom each counts itself while it works.
struct Race {
    world: World,
    working: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

struct Candidate {
    trouble: Trouble,
    stop: CancellationToken,
    is_working: Arc<AtomicUsize>,
}

struct Working(Vec<Arc<AtomicUsize>>);

impl Drop for Working {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Race {
    fn new(world: World) -> Self {
        Self { world, working: Arc::default(), begun: Arc::default(), tasks: JoinSet::new() }
    }

    fn enter(&mut self, name: &str) -> Candidate {
        let trouble = Trouble::default();
        let lease = Lease {
            client: trouble.wrap(self.world.admin.clone()),
            namespace: "default".into(),
            name: format!("lease-{}", self.world.cluster),
            identity: name.to_owned(),
        };
        let stop = CancellationToken::new();
        let is_working = Arc::new(AtomicUsize::new(0));
        let candidate = Candidate { trouble, stop: stop.clone(), is_working: is_working.clone() };
        let (working, begun) = (self.working.clone(), self.begun.clone());
        self.tasks.spawn(async move {
            let work = |end: CancellationToken| {
                let counts = vec![working.clone(), is_working.clone()];
                let begun = begun.clone();
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    for count in &counts {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    assert_eq!(counts[0].load(Ordering::SeqCst), 1, "two lead at once");
                    let _working = Working(counts);
                    end.cancelled().await;
                }
            };
            assert_eq!(lead(&lease, &stop, work).await.unwrap_or_default(), ());
        });
        candidate
    }

    async fn until(&self, what: &str, is_it: impl Fn() -> bool) -> Duration {
        let started = Instant::now();
        while !is_it() {
            assert!(started.elapsed() < Duration::from_secs(60), "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        started.elapsed()
    }
}

impl Candidate {
    fn works(&self) -> bool {
        self.is_working.load(Ordering::SeqCst) == 1
    }

    fn cut_off(&self, fault: Fault) {
        self.trouble.fail(usize::MAX, fault, |_, _| true);
    }
}

async fn race() -> Race {
    let world = World::fake(Mode::Unique).await;
    world.make_namespace("default", &serde_json::json!({})).await;
    Race::new(world)
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over_when_the_leader_stops_and_gives_the_lease_back() {
    let mut race = race().await;
    let first = race.enter("a");
    race.until("a leader", || first.works()).await;
    let second = race.enter("b");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(first.works() && !second.works());
    first.stop.cancel();
    let after = race.until("the standby", || second.works()).await;
    assert!(after < Duration::from_secs(6), "it did not have to wait for the lease's end: {after:?}");
}

#[tokio::test(start_paused = true)]
async fn leader_that_is_cut_off_stops_before_another_begins_and_comes_back_as_a_standby() {
    for fault in [Fault::Silence, Fault::Refused(500), Fault::Refused(403)] {
        let mut race = race().await;
        let first = race.enter("a");
        race.until("a leader", || first.works()).await;
        let second = race.enter("b");
        tokio::time::sleep(Duration::from_secs(5)).await;
        first.cut_off(fault);
        let ended = race.until("the end of its work", || !first.works()).await;
        assert!(ended <= Duration::from_secs(13), "{fault:?}: {ended:?}");
        race.until("the standby", || second.works()).await;
        first.trouble.clear();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(second.works() && !first.works());
        second.stop.cancel();
        race.until("the first one again", || first.works()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn leader_goes_on_through_trouble_that_is_shorter_than_its_deadline() {
    let mut race = race().await;
    let first = race.enter("a");
    race.until("a leader", || first.works()).await;
    for _ in 0..10 {
        first.trouble.fail(1, Fault::Silence, |_, _| true);
        tokio::time::sleep(Duration::from_secs(8)).await;
    }
    assert!(first.works());
    assert_eq!(race.begun.load(Ordering::SeqCst), 1, "its work was not begun anew");
}

#[tokio::test(start_paused = true)]
async fn lease_that_was_lost_for_a_while_is_held_again_and_the_work_begun_anew() {
    let mut race = race().await;
    let only = race.enter("a");
    race.until("a leader", || only.works()).await;
    only.cut_off(Fault::Silence);
    race.until("the end of its work", || !only.works()).await;
    only.trouble.clear();
    race.until("its work again", || only.works()).await;
    assert_eq!(race.begun.load(Ordering::SeqCst), 2);
}

#[cfg(feature = "real-server")]
#[tokio::test]
async fn one_of_three_leads_on_a_real_server() {
    let mut race = Race::new(World::real(Mode::Unique).await);
    let candidates = ["a", "b", "c"].map(|name| race.enter(name));
    race.until("a leader", || race.working.load(Ordering::SeqCst) == 1).await;
    let leader = candidates.iter().find(|candidate| candidate.works()).expect("one works");
    leader.stop.cancel();
    race.until("another one", || !leader.works() && race.working.load(Ordering::SeqCst) == 1).await;
}
