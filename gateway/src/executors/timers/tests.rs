use std::sync::atomic::{AtomicI64, Ordering};

use tokio::task::JoinSet;

use super::*;
use crate::executors::testing::{config, workspace};
use crate::model::{ActualState, DesiredState, Lifecycle};

const START: i64 = 1_000_000;

/// A store, timers on a clock that the test turns, and a listener.
struct Stage {
    store: Store,
    changes: Changes,
    time: Arc<AtomicI64>,
    limits: TimeLimits,
}

impl Stage {
    async fn new() -> Self {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let limits = config().time_limits();
        Self { store, changes: Changes::default(), time: Arc::new(AtomicI64::new(START)), limits }
    }

    fn now(&self) -> UnixSeconds {
        UnixSeconds::new(self.time.load(Ordering::SeqCst))
    }

    fn pass(&self, duration: Duration) {
        self.time.fetch_add(i64::try_from(duration.as_secs()).unwrap(), Ordering::SeqCst);
    }

    /// Runs the timers, until the returned is dropped.
    fn run(&self) -> JoinSet<()> {
        let time = self.time.clone();
        let clock: Clock = Arc::new(move || UnixSeconds::new(time.load(Ordering::SeqCst)));
        let mut running = JoinSet::new();
        running.spawn(Timers::new(self.store.clone(), self.changes.clone(), clock).run(CancellationToken::new()));
        running
    }

    async fn life(&self, workspace: WorkspaceId) -> Lifecycle {
        self.store.managed_by_id(workspace).await.unwrap().unwrap().lifecycle
    }

    async fn swap(&self, managed: &Managed, next: &Lifecycle) {
        let revision = self.life(managed.workspace.id).await.revision;
        assert!(self.store.swap_lifecycle(managed.workspace.id, revision, next).await.unwrap());
        let change = Change { workspace: managed.workspace.id, cluster: managed.cluster() };
        self.changes.say(change);
    }

    /// Waits until a workspace is to be something. Within two looks, or it is late.
    async fn until(&self, workspace: WorkspaceId, desired: DesiredState) {
        let looks = 3 * LOOK_INTERVAL;
        let waited = tokio::time::timeout(looks, async {
            while self.life(workspace).await.desired != desired {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "{:?} is late", desired);
    }
}

#[tokio::test]
async fn workspace_stops_after_its_active_hours_and_ends_after_its_stopped_hours_in_time() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let id = made.workspace.id;
    let mut heard = stage.changes.listen();
    let _running = stage.run();
    stage.pass(stage.limits.active - Duration::from_secs(1));
    tokio::time::sleep(2 * LOOK_INTERVAL).await;
    assert_eq!(stage.life(id).await.desired, DesiredState::Running, "not a second early");
    stage.pass(Duration::from_secs(1));
    stage.until(id, DesiredState::Stopped).await;
    assert_eq!(heard.next().await, Heard::Change(Change { workspace: id, cluster: made.cluster() }));
    stage.pass(stage.limits.stopped);
    stage.until(id, DesiredState::Terminated).await;
    assert_eq!(stage.life(id).await.generation, 3);
}

#[tokio::test]
async fn intent_begins_the_time_anew_and_what_was_due_before_is_forgotten() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let id = made.workspace.id;
    let _running = stage.run();
    tokio::time::sleep(LOOK_INTERVAL).await;
    stage.pass(stage.limits.active / 2);
    let stopped = stage.life(id).await.request(DesiredState::Stopped, stage.now()).unwrap();
    stage.swap(&made, &stopped).await;
    let again = stopped.request(DesiredState::Running, stage.now()).unwrap();
    stage.swap(&made, &again).await;
    stage.pass(stage.limits.active - Duration::from_secs(1));
    tokio::time::sleep(2 * LOOK_INTERVAL).await;
    assert_eq!(stage.life(id).await.desired, DesiredState::Running);
    stage.pass(Duration::from_secs(1));
    stage.until(id, DesiredState::Stopped).await;
}

#[tokio::test]
async fn workspace_that_is_made_while_they_run_has_its_time_too() {
    let stage = Stage::new().await;
    let _running = stage.run();
    tokio::time::sleep(LOOK_INTERVAL).await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    stage.changes.say(Change { workspace: made.workspace.id, cluster: made.cluster() });
    stage.pass(stage.limits.active);
    stage.until(made.workspace.id, DesiredState::Stopped).await;
}

#[tokio::test]
async fn what_fell_due_while_nobody_looked_is_done_after_a_restart() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let other = workspace(&stage.store, "prod", "other", stage.now()).await;
    drop(stage.run());
    stage.pass(stage.limits.active);
    let _running = stage.run();
    stage.until(made.workspace.id, DesiredState::Stopped).await;
    stage.until(other.workspace.id, DesiredState::Stopped).await;
}

#[tokio::test]
async fn old_workspace_ends_whatever_it_is() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let failed = stage.life(made.workspace.id).await.observe(ActualState::Failed, Some("no image"), stage.now());
    stage.swap(&made, &failed).await;
    stage.pass(stage.limits.age);
    let _running = stage.run();
    stage.until(made.workspace.id, DesiredState::Terminated).await;
}
