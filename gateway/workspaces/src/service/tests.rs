//! What is stored and told of workspaces that are made and changed, on an embedded store.

use super::*;
use crate::changes::ChangeNews;
use gateway_store::Observation;
use gateway_types::{ActualState, IdleLimit};
use workspace_spec::cluster_config;

const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);
const LATER: UnixSeconds = UnixSeconds::new(1_800_000_100);

async fn service(config: &str) -> Workspaces {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let cluster = store.ensure_cluster(&"one".parse().unwrap(), NOW).await.unwrap();
    let config = json(config);
    store.put_cluster_config(cluster.id, &config, NOW).await.unwrap();
    let addresses = Addresses {
        zone: "ws.example".parse().unwrap(),
        public_url: "https://gw.example".to_owned(),
        agents_url: "https://gw.example:8081".to_owned(),
    };
    Workspaces::new(store, Changes::default(), addresses)
}

/// Makes a configuration from what is below `workspaces`.
fn json(config: &str) -> String {
    let lines: String = config.lines().map(|line| format!("  {line}\n")).collect();
    let config = format!("workspaces:\n  tools_image: registry.example/tools:1\n{lines}");
    cluster_config::parse(config.as_bytes()).unwrap().to_json()
}

fn new(name: &str, devfile: Option<&str>) -> NewWorkspace {
    let devfile = devfile.map(|text| Bytes::copy_from_slice(text.as_bytes()));
    let on = NewOn::Kubernetes(NewInCluster {
        cluster: "one".parse().unwrap(),
        projects: Vec::new(),
        editor: None,
        template: None,
    });
    NewWorkspace {
        name: name.parse().unwrap(),
        on,
        devfile,
        variables: Vec::new(),
        idle: IdleLimit::Inherited,
        ports: Vec::new(),
    }
}

async fn make(service: &Workspaces, name: &str) -> ManagedWorkspace {
    service.create(&"ann".parse().unwrap(), new(name, None), NOW).await.unwrap()
}

#[tokio::test]
async fn workspace_of_the_built_in_devfile_is_stored_whole_and_told() {
    let service = service("enabled: true\n").await;
    let mut listener = service.listen();
    let made = make(&service, "app").await;
    assert_eq!((made.kubernetes().unwrap().namespace.as_str(), made.lifecycle.generation), ("ws-app", 1));
    let told = ChangeNotice { workspace: made.workspace.id, cluster: made.cluster() };
    assert_eq!(listener.next().await, ChangeNews::Change(told));
    let stored = service.store.managed(&made.workspace.name).await.unwrap().unwrap();
    assert_eq!(stored.lifecycle, made.lifecycle);
    let devfile = service.store.devfile_of(made.workspace.id).await.unwrap();
    assert_eq!(devfile.as_deref(), Some(devfile::DEFAULT_DEVFILE));
    let frozen = service.store.frozen(made.workspace.id).await.unwrap().unwrap();
    assert!(frozen.contains("ws-app") && frozen.contains("gw.example"), "{frozen}");
    let token = service.store.variables(made.workspace.id).await.unwrap().remove(0);
    let token = Token::parse(token.value.reveal()).unwrap();
    assert_eq!(token.kind(), TokenKind::Agent);
    assert!(service.store.token_by_hash(&token.hash()).await.unwrap().is_some());
}

#[tokio::test]
async fn same_wish_gives_the_same_objects() {
    let frozen = async || {
        let service = service("enabled: true\n").await;
        let made = make(&service, "app").await;
        service.store.frozen(made.workspace.id).await.unwrap().unwrap()
    };
    assert_eq!(frozen().await, frozen().await);
}

#[tokio::test]
async fn refusal_has_a_name_and_stores_and_tells_nothing() {
    let service = service("enabled: true\nquota: 1\n").await;
    let closed = service.store.ensure_cluster(&"closed".parse().unwrap(), NOW).await.unwrap();
    let config = json("enabled: false\n");
    service.store.put_cluster_config(closed.id, &config, NOW).await.unwrap();
    service.store.ensure_cluster(&"empty".parse().unwrap(), NOW).await.unwrap();
    let mut listener = service.listen();
    let create = async |wanted: NewWorkspace| service.create(&"ann".parse().unwrap(), wanted, NOW).await.unwrap_err();
    let at = |cluster: &str| NewWorkspace {
        on: NewOn::Kubernetes(NewInCluster {
            cluster: cluster.parse().unwrap(),
            projects: Vec::new(),
            editor: None,
            template: None,
        }),
        ..new("app", None)
    };
    assert!(matches!(create(at("absent")).await, WorkspaceError::NoSuchCluster));
    assert!(matches!(create(at("empty")).await, WorkspaceError::NoSuchCluster));
    assert!(matches!(create(at("closed")).await, WorkspaceError::ClusterDisabled));
    let bad = create(new("app", Some("schemaVersion: 1\nparent: {}\n"))).await;
    assert!(matches!(&bad, WorkspaceError::Devfile(problems) if problems.len() > 1), "{bad:?}");
    let long = create(new(&"a".repeat(57), None)).await;
    assert!(matches!(long, WorkspaceError::Frozen(_) | WorkspaceError::NameTooLong { .. }), "{long:?}");
    let made = make(&service, "first").await;
    assert!(matches!(listener.next().await, ChangeNews::Change(change) if change.workspace == made.workspace.id));
    assert!(matches!(create(new("app", None)).await, WorkspaceError::OverQuota(_)));
    assert!(service.store.managed(&"app".parse().unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn name_that_is_taken_is_refused_to_everybody() {
    let service = service("enabled: true\n").await;
    make(&service, "app").await;
    for owner in ["ann", "bob"] {
        let refused = service.create(&owner.parse().unwrap(), new("app", None), NOW).await.unwrap_err();
        assert!(matches!(refused, WorkspaceError::NameTaken), "{owner}: {refused:?}");
    }
}

#[tokio::test]
async fn intent_that_races_with_a_report_is_not_lost() {
    let service = service("enabled: true\n").await;
    let found = make(&service, "app").await;
    let running = found.lifecycle.observe(ActualState::Running, None, LATER);
    let observed = Observation { applied_generation: 1, reported_at: Some(LATER), ..Observation::default() };
    let (id, revision) = (found.workspace.id, found.lifecycle.revision);
    assert!(service.store.swap_report(id, revision, &running, &observed).await.unwrap());
    let stopped = service.change(found, DesiredState::Stopped, |_| true, LATER).await.unwrap();
    let life = stopped.lifecycle.clone();
    assert_eq!((life.desired, life.actual, life.generation), (DesiredState::Stopped, ActualState::Running, 2));
    assert_eq!(stopped.kubernetes().unwrap().applied_generation, 1, "what was observed is kept");
}

#[tokio::test]
async fn condition_is_asked_of_what_is_overwritten() {
    let service = service("enabled: true\n").await;
    let found = make(&service, "app").await;
    service.request(&found.workspace.name, DesiredState::Stopped, LATER).await.unwrap();
    // What was found is old by now; the condition holds for it, and not for what is there.
    let changed = service.change(found, DesiredState::Running, |life| life.generation == 1, LATER).await;
    assert!(matches!(changed, Err(WorkspaceError::Changed)), "{changed:?}");
    let stored = service.store.managed(&"app".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((stored.lifecycle.desired, stored.lifecycle.generation), (DesiredState::Stopped, 2));
}

#[tokio::test]
async fn another_workspace_of_the_same_name_is_not_changed_by_mistake() {
    let service = service("enabled: true\n").await;
    let found = make(&service, "app").await;
    let ending = service.request(&found.workspace.name, DesiredState::Terminated, LATER).await.unwrap();
    assert!(matches!(service.forget(&ending, LATER).await, Err(WorkspaceError::NotOver)));
    let over = ending.lifecycle.observe(ActualState::Terminated, None, LATER);
    assert!(service.store.swap_lifecycle(found.workspace.id, ending.lifecycle.revision, &over).await.unwrap());
    service.forget(&found, LATER).await.unwrap();
    let successor = make(&service, "app").await;
    let late = service.change(found, DesiredState::Stopped, |_| true, LATER).await;
    assert!(matches!(late, Err(WorkspaceError::NoSuchWorkspace)), "{late:?}");
    let stored = service.store.managed_by_id(successor.workspace.id).await.unwrap().unwrap();
    assert_eq!(stored.lifecycle, successor.lifecycle);
}

#[tokio::test]
async fn shared_namespace_is_the_clusters_and_others_are_made_of_prefix_and_name() {
    let shared = service("enabled: true\nshared_namespace: team\n").await;
    assert_eq!(make(&shared, "app").await.kubernetes().unwrap().namespace, "team");
    let prefixed = service("enabled: true\nnamespace_prefix: gw-\n").await;
    assert_eq!(make(&prefixed, "app").await.kubernetes().unwrap().namespace, "gw-app");
}

#[test]
fn agents_token_is_stored_under_the_name_that_the_pod_reads() {
    assert_eq!(gateway_store::AGENT_TOKEN_FILE, workspace_spec::frozen::AGENT_TOKEN_FILE);
}
