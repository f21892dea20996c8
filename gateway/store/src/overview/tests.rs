use std::time::Duration;

use super::super::each::each;
use super::*;
use crate::{NewCi, NewReplica, Quotas, SessionClaim, SessionKey};
use gateway_types::{DesiredState, Lifecycle};

const NOW: UnixSeconds = UnixSeconds::new(1_000);

/// Texts that mean something to a database, and nothing here.
const HOSTILE: [&str; 8] = ["%", "_", "'", "\\", "' OR 1=1 --", "*", "[a-z]", "\u{1f980}"];

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

fn page(limit: u32) -> ListPage<'static> {
    ListPage { after: None, limit }
}

async fn job(store: &Store, name: &str, owner: &str) -> WorkspaceId {
    let key = format!("cache of {name}");
    let new = NewCi {
        name: &name.parse().unwrap(),
        owner: &user(owner),
        provider: &"lab".parse().unwrap(),
        cache_key: &key,
        project: None,
        tags: &[],
        devfile: "",
        variables: &[],
        ports: &[],
        quotas: Quotas::default(),
    };
    store.create_ci(&new, NOW).await.unwrap().workspace.id
}

async fn bring(store: &Store, id: WorkspaceId, desired: DesiredState, actual: ActualState) {
    let managed = store.managed_by_id(id).await.unwrap().unwrap();
    let next = Lifecycle { desired, actual, ..managed.lifecycle.clone() };
    assert!(store.swap_lifecycle(id, managed.lifecycle.revision, &next).await.unwrap());
}

async fn names(store: &Store, filter: WorkspaceFilter<'_>) -> Vec<String> {
    let found = store.listed_workspaces(filter, page(100)).await.unwrap();
    found.iter().map(|workspace| workspace.name.to_string()).collect()
}

#[tokio::test]
async fn workspaces_of_all_users_are_found_by_part_state_and_owner() {
    each(async |store| {
        let (one, two) = (job(store, "api-one", "ann").await, job(store, "api-two", "Bob").await);
        bring(store, one, DesiredState::Running, ActualState::Failed).await;
        bring(store, two, DesiredState::Stopped, ActualState::Stopped).await;
        store.create_agent_token(&"laptop".parse().unwrap(), &user("ann"), NOW).await.unwrap();
        assert_eq!(names(store, WorkspaceFilter::default()).await, ["api-one", "api-two", "laptop"]);
        let part = |part| WorkspaceFilter { part, ..WorkspaceFilter::default() };
        assert_eq!(names(store, part("api")).await, ["api-one", "api-two"]);
        assert_eq!(names(store, part("bob")).await, ["api-two"], "the owner's name, whatever its case");
        for hostile in HOSTILE {
            assert_eq!(names(store, part(hostile)).await, [""; 0], "{hostile}");
        }
        let failed = WorkspaceFilter { state: Some(ActualState::Failed), ..WorkspaceFilter::default() };
        assert_eq!(names(store, failed).await, ["api-one"]);
        let ann = user("ann");
        let of_ann = WorkspaceFilter { owner: Some(&ann), ..WorkspaceFilter::default() };
        assert_eq!(names(store, of_ann).await, ["api-one", "laptop"]);
        assert_eq!(names(store, WorkspaceFilter { part: "two", ..of_ann }).await, [""; 0]);
        let after = "api-one".parse().unwrap();
        let second = ListPage { after: Some(&after), limit: 1 };
        let found = store.listed_workspaces(WorkspaceFilter::default(), second).await.unwrap();
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["api-two"]);
        let managed = store.managed_of(&[one, two]).await.unwrap();
        let mut states: Vec<_> = managed.iter().map(|one| one.lifecycle.actual.as_str()).collect();
        states.sort_unstable();
        assert_eq!(states, ["Failed", "Stopped"]);
        assert_eq!(store.managed_of(&[]).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn users_are_those_who_signed_in_own_something_or_have_a_token() {
    each(async |store| {
        let groups = ["devs".parse().unwrap()];
        store.admit("https://id.example", "u-1", &user("ann"), &groups, NOW).await.unwrap();
        job(store, "one", "bob").await;
        job(store, "two", "bob").await;
        store.create_user_token(&user("Cleo"), NOW).await.unwrap();
        assert!(store.disable_user(&user("Cleo"), NOW).await.unwrap());
        let list = async |filter| store.listed_users(filter).await.unwrap();
        let all = UserFilter { limit: 10, ..UserFilter::default() };
        let shown = |users: Vec<ListedUser>| {
            users.iter().map(|user| (user.name.to_string(), user.workspaces)).collect::<Vec<_>>()
        };
        let own = |name: &str, count| (name.to_owned(), count);
        assert_eq!(shown(list(all).await), [own("Cleo", 0), own("ann", 0), own("bob", 2)]);
        assert_eq!(shown(list(UserFilter { limit: 1, ..all }).await), [own("Cleo", 0)]);
        let ann = user("ann");
        assert_eq!(shown(list(UserFilter { after: Some(&ann), ..all }).await), [own("bob", 2)]);
        assert_eq!(shown(list(UserFilter { part: "cle", ..all }).await), [own("Cleo", 0)]);
        assert_eq!(shown(list(UserFilter { is_disabled: Some(true), ..all }).await), [own("Cleo", 0)]);
        assert_eq!(shown(list(UserFilter { is_disabled: Some(false), ..all }).await), [own("ann", 0), own("bob", 2)]);
        for hostile in HOSTILE {
            assert_eq!(list(UserFilter { part: hostile, ..all }).await, [], "{hostile}");
        }
        let found = list(all).await;
        assert_eq!((found[0].disabled_at, found[0].last_seen), (Some(NOW), None));
        assert_eq!((&*found[1].groups, found[1].last_seen), (&groups[..], Some(NOW)));
        assert_eq!(found[2].groups.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn what_a_user_runs_is_what_is_desired_to_run() {
    each(async |store| {
        let one = job(store, "one", "ann").await;
        let (two, three) = (job(store, "two", "ann").await, job(store, "three", "ann").await);
        job(store, "other", "bob").await;
        bring(store, two, DesiredState::Stopped, ActualState::Running).await;
        bring(store, three, DesiredState::RestartRequested, ActualState::Running).await;
        store.create_agent_token(&"laptop".parse().unwrap(), &user("ann"), NOW).await.unwrap();
        assert_eq!(store.running_of(&user("ann")).await.unwrap(), [one, three]);
        assert_eq!(store.running_of(&user("eve")).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn places_of_agents_are_those_of_replicas_that_live() {
    each(async |store| {
        let lease = Duration::from_secs(60);
        let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease };
        let replica = store.add_replica(&new).await.unwrap().unwrap();
        let jobs = [job(store, "one", "ann").await, job(store, "two", "bob").await];
        let cluster = store.ensure_cluster(&"prod".parse().unwrap(), NOW).await.unwrap().id;
        for key in [SessionKey::Workspace(jobs[0]), SessionKey::Workspace(jobs[1]), SessionKey::Cluster(cluster)] {
            let claim = SessionClaim { key, instance: 7, known: None, is_late: false };
            store.claim_sessions(replica, &[claim]).await.unwrap().unwrap();
        }
        let found = store.agent_places("", page(10)).await.unwrap();
        let shown: Vec<_> = found.iter().map(|one| (one.workspace.as_str(), one.owner.as_str())).collect();
        assert_eq!(shown, [("one", "ann"), ("two", "bob")]);
        assert!(found.iter().all(|one| one.replica == replica));
        assert_eq!(store.agent_places("bob", page(10)).await.unwrap(), found[1..]);
        assert_eq!(store.agent_places("", page(1)).await.unwrap(), found[..1]);
        assert_eq!(store.cluster_places().await.unwrap(), HashMap::from([(cluster, replica)]));
        store.renew_replica(replica, crate::ReplicaState::Serving, Duration::ZERO).await.unwrap();
        assert_eq!(store.agent_places("", page(10)).await.unwrap(), []);
        assert_eq!(store.cluster_places().await.unwrap(), HashMap::new());
    })
    .await;
}
