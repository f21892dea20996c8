//! Background work among replicas: one does it, another goes on when that one dies or drains, and who lost it writes nothing.

use std::time::Duration;

use e2e::cluster::ClusterAgent;
use e2e::fleet::{Fleet, free_address};
use e2e::{PATIENCE, TestGateway};
use gateway_store::{
    Duty, DutyOwners, Incarnation, ManagedWorkspace, Needs, NewManaged, Quotas, ReplicaState, SessionClaim, SessionKey,
    Store, WorkspaceId, wall_clock,
};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{ActualState, DesiredState, Lifecycle, UnixSeconds};
use tunnel_proto::reconcile::{Condition, Deployment, FromCluster, WorkspaceReport};
use workspace_spec::cluster_config::ClusterConfig;

/// Replicas in the order of their starts.
struct Replicas {
    all: Vec<Option<TestGateway>>,
    store: Store,
    fleet: Fleet,
}

impl Replicas {
    async fn new(count: usize) -> Self {
        let (fleet, mut all) = (Fleet::default(), Vec::new());
        for _ in 0..count {
            all.push(Some(fleet.replica().await));
        }
        // Of the last one, which no test ends.
        let store = all.last().unwrap().as_ref().unwrap().store.clone();
        Self { all, store, fleet }
    }

    async fn owners(&self) -> DutyOwners {
        let last = self.store.replicas().await.unwrap().last().unwrap().incarnation;
        self.store.duties(last).await.unwrap()
    }

    async fn owner(&self, duty: Duty) -> Option<Incarnation> {
        self.owners().await.owners.get(&duty).copied()
    }

    /// Waits until a duty has an owner other than this one.
    async fn other_owner(&self, duty: Duty, than: Option<Incarnation>) -> Incarnation {
        let found = async {
            loop {
                if let Some(owner) = self.owner(duty).await.filter(|owner| Some(*owner) != than) {
                    return owner;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("an owner in time")
    }

    fn take(&mut self, replica: Incarnation) -> TestGateway {
        let index = usize::try_from(replica.get()).unwrap() - 1;
        self.all[index].take().expect("it lives")
    }

    async fn finish(self) {
        for gateway in self.all.into_iter().flatten() {
            gateway.stop().await;
        }
    }
}

/// Makes a workspace in a cluster at a time.
async fn workspace(store: &Store, cluster: &str, name: &str, at: UnixSeconds) -> ManagedWorkspace {
    let cluster = store.ensure_cluster(&cluster.parse().unwrap(), at).await.unwrap();
    let config =
        ClusterConfig { enabled: true, tools_image: "registry.test/tools:1".into(), ..ClusterConfig::default() };
    let version = store.put_cluster_config(cluster.id, &config.to_json(), at).await.unwrap();
    let namespace = format!("ws-{name}");
    let new = NewManaged {
        name: &name.parse().unwrap(),
        owner: &"dev".parse().unwrap(),
        cluster: cluster.id,
        config_version: version,
        namespace: &namespace,
        template: None,
        devfile: "",
        frozen: "[]",
        variables: &[],
        ports: &[],
        agent_token: &Token::generate(TokenKind::Agent).unwrap(),
        needs: Needs::default(),
        quotas: Quotas::default(),
    };
    store.create_managed(&new, at).await.unwrap()
}

async fn life(store: &Store, id: WorkspaceId) -> Lifecycle {
    store.managed_by_id(id).await.unwrap().unwrap().lifecycle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timer_of_a_replica_that_was_killed_fires_once_at_another() {
    let mut replicas = Replicas::new(3).await;
    let first = replicas.other_owner(Duty::Timers, None).await;
    for duty in Duty::ALL.into_iter().filter(|duty| *duty != Duty::Ci) {
        replicas.other_owner(duty, None).await;
    }
    assert_eq!(replicas.owner(Duty::Ci).await, None, "no CI system is configured");
    assert_eq!(first.get(), 1, "the one that was first has all: the others came later");
    // Killed: nothing is given up, and its lease lives on for a while.
    drop(replicas.take(first));
    let now = wall_clock();
    let hours = |count: i64| UnixSeconds::new(now.get() - count * 3600);
    let due = workspace(&replicas.store, "prod", "due", hours(37)).await.workspace.id;
    let early = workspace(&replicas.store, "prod", "early", hours(35)).await.workspace.id;
    let before = life(&replicas.store, due).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(replicas.owner(Duty::Timers).await, Some(first), "its lease lives");
    assert_eq!(life(&replicas.store, due).await, before);
    replicas.store.renew_replica(first, ReplicaState::Serving, Duration::ZERO).await.unwrap();
    replicas.other_owner(Duty::Timers, Some(first)).await;
    let fired = async {
        while life(&replicas.store, due).await.desired != DesiredState::Stopped {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, fired).await.expect("the timer fires");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let after = life(&replicas.store, due).await;
    assert_eq!((after.generation, after.revision), (before.generation + 1, before.revision + 1), "once");
    assert_eq!(life(&replicas.store, early).await.desired, DesiredState::Running);
    replicas.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duties_are_given_up_in_a_drain_before_the_lease_is_over() {
    let mut replicas = Replicas::new(2).await;
    let first = replicas.other_owner(Duty::Environments, None).await;
    let drained = replicas.take(first);
    drained.stop().await;
    for duty in [Duty::Timers, Duty::Environments, Duty::Sweeps] {
        let owner = replicas.owners().await.owners.get(&duty).copied();
        assert_ne!(owner, Some(first), "{duty:?}");
        replicas.other_owner(duty, Some(first)).await;
    }
    replicas.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_is_not_stored_once_another_replica_has_claimed_the_clusters_session() {
    let replicas = Replicas::new(1).await;
    let gateway = replicas.all[0].as_ref().unwrap();
    let made = workspace(&gateway.store, "prod", "app", wall_clock()).await;
    let (mut agent, _) = ClusterAgent::begun(gateway, "prod").await;
    let report = |replicas: u32| {
        let condition = |kind: &str| Condition { kind: kind.into(), status: "True".into(), ..Condition::default() };
        let deployment = Deployment {
            generation: 1,
            observed_generation: 1,
            replicas_wanted: 1,
            replicas,
            updated: replicas,
            available: replicas,
            conditions: vec![condition("Available")],
            ..Deployment::default()
        };
        WorkspaceReport {
            workspace: "app".into(),
            namespace: "ws-app".into(),
            applied: 1,
            deployment: Some(deployment),
            ..WorkspaceReport::default()
        }
    };
    agent.report(report(0)).await;
    let before = life(&gateway.store, made.workspace.id).await;
    assert_eq!(before.actual, ActualState::Starting);
    // This replica hears nothing of it, as if it had been paused.
    let other = replicas.fleet.add_replica(&gateway.store, free_address()).await;
    let key = SessionKey::Cluster(made.cluster().unwrap());
    let claim = SessionClaim { key, instance: 99, known: None, is_late: false };
    gateway.store.claim_sessions(other, &[claim]).await.unwrap().expect("claimed");
    agent.say(&FromCluster::Report(Box::new(WorkspaceReport { number: 2, ..report(1) }))).await;
    while agent.try_next().await.is_some() {}
    assert_eq!(life(&gateway.store, made.workspace.id).await, before);
    gateway.until_cluster_is_gone("prod").await;
    replicas.finish().await;
}
