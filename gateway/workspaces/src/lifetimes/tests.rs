use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::task::JoinSet;

use super::*;
use crate::testing::{config, workspace};
use gateway_types::{ActualState, DesiredState, Lifecycle};

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

    /// Makes timers, as a gateway does that starts.
    fn timers(&self) -> LifetimeController {
        let time = self.time.clone();
        let clock: Clock = Arc::new(move || UnixSeconds::new(time.load(Ordering::SeqCst)));
        LifetimeController::new(self.store.clone(), self.changes.clone(), clock)
    }

    async fn life(&self, workspace: WorkspaceId) -> Lifecycle {
        self.store.managed_by_id(workspace).await.unwrap().unwrap().lifecycle
    }

    async fn desired(&self, workspace: WorkspaceId) -> DesiredState {
        self.life(workspace).await.desired
    }

    async fn swap(&self, managed: &ManagedWorkspace, next: &Lifecycle) {
        let revision = self.life(managed.workspace.id).await.revision;
        assert!(self.store.swap_lifecycle(managed.workspace.id, revision, next).await.unwrap());
        let change = ChangeNotice { workspace: managed.workspace.id, cluster: managed.cluster() };
        self.changes.publish(change);
    }
}

/// Timers of which each look is asked for: what they do, they do at the first one after it is due.
struct Looking {
    timers: LifetimeController,
    is_read: bool,
}

impl Looking {
    fn new(stage: &Stage) -> Self {
        Self { timers: stage.timers(), is_read: false }
    }

    async fn look(&mut self) {
        self.timers.look(&mut self.is_read).await.unwrap();
    }
}

#[tokio::test]
async fn workspace_stops_after_its_active_hours_and_ends_after_its_stopped_hours_in_time() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let id = made.workspace.id;
    let (mut heard, mut looking) = (stage.changes.listen(), Looking::new(&stage));
    looking.look().await;
    stage.pass(stage.limits.active - Duration::from_secs(1));
    looking.look().await;
    assert_eq!(stage.desired(id).await, DesiredState::Running, "not a second early");
    stage.pass(Duration::from_secs(1));
    looking.look().await;
    assert_eq!(stage.desired(id).await, DesiredState::Stopped);
    assert_eq!(heard.next().await, ChangeNews::Change(ChangeNotice { workspace: id, cluster: made.cluster() }));
    stage.pass(stage.limits.stopped);
    looking.look().await;
    assert_eq!(stage.desired(id).await, DesiredState::Terminated);
    assert_eq!(stage.life(id).await.generation, 3);
}

#[tokio::test]
async fn intent_begins_the_time_anew_and_what_was_due_before_is_forgotten() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let id = made.workspace.id;
    let mut looking = Looking::new(&stage);
    looking.look().await;
    stage.pass(stage.limits.active / 2);
    let stopped = stage.life(id).await.request(DesiredState::Stopped, stage.now()).unwrap();
    stage.swap(&made, &stopped).await;
    let again = stopped.request(DesiredState::Running, stage.now()).unwrap();
    stage.swap(&made, &again).await;
    stage.pass(stage.limits.active - Duration::from_secs(1));
    looking.look().await;
    assert_eq!(stage.desired(id).await, DesiredState::Running);
    stage.pass(Duration::from_secs(1));
    looking.look().await;
    assert_eq!(stage.desired(id).await, DesiredState::Stopped);
}

#[tokio::test]
async fn workspace_that_is_made_while_they_run_has_its_time_too() {
    let stage = Stage::new().await;
    let first = workspace(&stage.store, "prod", "first", stage.now()).await;
    stage.pass(stage.limits.active);
    let (mut heard, mut running) = (stage.changes.listen(), JoinSet::new());
    running.spawn(stage.timers().run(CancellationToken::new()));
    // They look, and have read what there is.
    assert_eq!(
        heard.next().await,
        ChangeNews::Change(ChangeNotice { workspace: first.workspace.id, cluster: first.cluster() })
    );
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    stage.changes.publish(ChangeNotice { workspace: made.workspace.id, cluster: made.cluster() });
    stage.pass(stage.limits.active);
    let stopped = async {
        while stage.desired(made.workspace.id).await != DesiredState::Stopped {
            heard.next().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), stopped).await;
    assert!(waited.is_ok(), "nobody looks at it before everything is read anew");
}

#[tokio::test]
async fn what_fell_due_while_nobody_looked_is_done_after_a_restart() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let other = workspace(&stage.store, "prod", "other", stage.now()).await;
    Looking::new(&stage).look().await;
    stage.pass(stage.limits.active);
    Looking::new(&stage).look().await;
    assert_eq!(stage.desired(made.workspace.id).await, DesiredState::Stopped);
    assert_eq!(stage.desired(other.workspace.id).await, DesiredState::Stopped);
}

#[tokio::test]
async fn old_workspace_ends_whatever_it_is() {
    let stage = Stage::new().await;
    let made = workspace(&stage.store, "prod", "app", stage.now()).await;
    let failed = stage.life(made.workspace.id).await.observe(ActualState::Failed, Some("no image"), stage.now());
    stage.swap(&made, &failed).await;
    stage.pass(stage.limits.age);
    Looking::new(&stage).look().await;
    assert_eq!(stage.desired(made.workspace.id).await, DesiredState::Terminated);
}
