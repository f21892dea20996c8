use super::*;
use crate::testing::{config, workspace};
use gateway_store::{WorkspaceActivity, WorkspaceId};
use gateway_types::{Activity, ActivityKind, ActualState, IdleLimit};

const START: i64 = 1_000_000;

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(START + seconds)
}

/// A workspace that runs, and what stops it.
struct Stage {
    store: Store,
    id: WorkspaceId,
    stops: IdleStops,
}

impl Stage {
    /// Records use each minute; the cluster's limit is `minutes`, its largest `max`.
    async fn new(minutes: u32, max: u32) -> Self {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let made = workspace(&store, "prod", "app", at(0)).await;
        let life = made.lifecycle.observe(ActualState::Running, None, at(0));
        assert!(store.swap_lifecycle(made.workspace.id, made.lifecycle.revision, &life).await.unwrap());
        let stage =
            Self { store, id: made.workspace.id, stops: IdleStops::new(Duration::from_mins(1), Audit::default()) };
        stage.configure(minutes, max).await;
        stage
    }

    async fn configure(&self, idle_minutes: u32, max_idle_minutes: u32) {
        let config = workspace_spec::cluster_config::ClusterConfig { idle_minutes, max_idle_minutes, ..config() };
        let cluster = self.managed().await.cluster().unwrap();
        self.store.put_cluster_config(cluster, &config.to_json(), at(0)).await.unwrap();
    }

    async fn managed(&self) -> ManagedWorkspace {
        self.store.managed_by_id(self.id).await.unwrap().unwrap()
    }

    /// Looks at a time until nothing is to be done, and returns when to look next; `None` also for a stopped one.
    async fn look(&self, seconds: i64) -> Option<i64> {
        loop {
            match self.stops.step(&self.store, &self.managed().await, at(seconds)).await.unwrap() {
                IdleStep::Again | IdleStep::Stopped => {}
                IdleStep::Wait(next) => return next.map(|next| next.get() - START),
            }
        }
    }

    async fn is_stopped(&self) -> bool {
        self.managed().await.lifecycle.desired == DesiredState::Stopped
    }

    async fn used(&self, seconds: i64) {
        let activity = Activity { at: at(seconds), kind: ActivityKind::Change, user: "dev".parse().ok() };
        let seen = WorkspaceActivity { workspace: "app".parse().unwrap(), activity };
        self.store.note_activity(vec![seen]).await.unwrap();
    }
}

#[tokio::test]
async fn workspace_without_a_limit_is_never_stopped_and_gets_one_from_its_cluster_later() {
    let stage = Stage::new(0, 0).await;
    assert_eq!(stage.look(1 << 30).await, None);
    assert!(!stage.is_stopped().await);
    stage.configure(30, 0).await;
    assert_eq!(stage.look(10).await, Some(1_800));
    assert_eq!(stage.managed().await.idle.limit, Some(Duration::from_mins(30)));
}

#[tokio::test]
async fn idle_workspace_is_stopped_at_its_time_and_says_why() {
    let stage = Stage::new(30, 0).await;
    assert_eq!(stage.look(0).await, Some(1_800));
    stage.used(1_000).await;
    assert_eq!(stage.look(1_800).await, Some(2_800), "the use is found when the stop would be due");
    assert_eq!(stage.look(2_799).await, Some(2_800));
    stage.look(2_800).await;
    let stopped = stage.managed().await;
    assert_eq!((stopped.lifecycle.desired, stopped.lifecycle.generation), (DesiredState::Stopped, 2));
    let reason = stopped.idle.stop_reason(&stopped.lifecycle).unwrap();
    assert!(reason.starts_with("stopped: idle since ") && reason.contains("a changing request by dev"), "{reason}");
}

#[tokio::test]
async fn use_between_the_decision_and_the_stop_cancels_it() {
    let stage = Stage::new(30, 0).await;
    stage.look(0).await;
    let decided_on = stage.managed().await;
    stage.used(1_799).await;
    assert_eq!(stage.stops.step(&stage.store, &decided_on, at(1_800)).await.unwrap(), IdleStep::Again);
    assert!(!stage.is_stopped().await);
    assert_eq!(stage.look(1_800).await, Some(1_799 + 1_800));
}

#[tokio::test]
async fn owner_chooses_within_the_largest_and_use_is_not_missed_with_a_short_limit() {
    let stage = Stage::new(0, 60).await;
    for (wanted, expected) in [
        (IdleLimit::Inherited, 60 * 60),
        (IdleLimit::Off, 60 * 60),
        (IdleLimit::After(Duration::from_hours(9)), 60 * 60),
        (IdleLimit::After(Duration::from_mins(20)), 20 * 60),
        (IdleLimit::After(Duration::from_secs(5)), 63),
    ] {
        stage.store.want_idle_limit(stage.id, wanted).await.unwrap();
        assert_eq!(stage.look(1).await, Some(expected), "{wanted:?}");
    }
}

#[tokio::test]
async fn kept_workspace_stays_until_then() {
    let stage = Stage::new(30, 0).await;
    stage.store.keep_awake(stage.id, at(5_000)).await.unwrap();
    assert_eq!(stage.look(4_999).await, Some(5_000));
    stage.look(5_000).await;
    assert!(stage.is_stopped().await);
}

#[tokio::test]
async fn workspace_on_its_way_is_left_alone() {
    let stage = Stage::new(30, 0).await;
    let managed = stage.managed().await;
    let life = managed.lifecycle.observe(ActualState::Starting, None, at(10));
    assert!(stage.store.swap_lifecycle(stage.id, managed.lifecycle.revision, &life).await.unwrap());
    assert_eq!(stage.look(1 << 30).await, None);
    assert!(!stage.is_stopped().await);
}
