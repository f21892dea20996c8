use tunnel_link::drain::Drain;
use tunnel_proto::hello::{HostMode, Join, Resume, Role, Welcome};
use tunnel_proto::limit::OPEN_CREDIT_BYTES;
use tunnel_proto::mux::ReplicaBudget;
use tunnel_proto::version;

use super::*;
use crate::registry::{Credential, Registry, SessionLease, Subject};
use gateway_config::{Config, Tunnel};
use gateway_types::{UnixSeconds, WorkspaceName};

const WORKSPACE: &str = "one";

fn factory(started_ms: u64) -> SessionFactory {
    let config = Config::default();
    SessionFactory {
        registry: Arc::new(Registry::new(10, started_ms)),
        budget: ReplicaBudget::new(config.tunnel.replica_budget),
        owners: Owners::default(),
        tunnel: Tunnel { lanes_max: 4, ..config.tunnel },
        requests_max: 10,
        workspace_url: "https://{name}.example.com/".into(),
        drain: Drain::default(),
        peers: None,
    }
}

/// What an agent says whose process has this number; `lanes` links are wanted.
fn hello(instance: u64, lanes: u32) -> Hello {
    Hello {
        versions: version::OURS,
        features: version::FEATURES.iter().map(|name| (*name).to_owned()).collect(),
        agent_version: "0".into(),
        role: Role::Workspace,
        instance,
        resume: None,
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: Vec::new(),
        default_port: None,
        join: None,
        lanes,
        apps: Vec::new(),
        host: HostMode::Auto,
        relay: None,
        seal: bytes::Bytes::new(),
    }
}

fn candidate(hello: Hello) -> Candidate {
    Candidate {
        subject: Subject::Workspace(name()),
        owned: None,
        lease: SessionLease::renewable(Credential::Token("t-1".parse().expect("an id")), None, UnixSeconds::new(0)),
        peer: ([127, 0, 0, 1], 1).into(),
        via: Via::Http2,
        hello,
        generation: None,
        lane: None,
    }
}

fn name() -> WorkspaceName {
    WORKSPACE.parse().expect("a name")
}

/// The Hello of the agent that got this welcome, after its link broke.
fn again(hello: &Hello, welcome: &Welcome) -> Hello {
    let resume = Resume { session: welcome.session, secret: welcome.resume_secret.clone(), received: 0 };
    Hello { resume: Some(resume), ..hello.clone() }
}

#[tokio::test]
async fn session_that_nobody_came_to_serve_gives_its_place_back() {
    let factory = factory(1);
    let hello = hello(1, 2);
    let first = factory.provide(candidate(hello.clone())).expect("in");
    let session = first.claim.session.clone();
    let join = Join { session: session.id, secret: first.welcome.join_secret.clone() };
    let lane = factory.provide(candidate(Hello { join: Some(join), ..hello.clone() })).expect("in");
    assert_eq!(session.lanes.all().len(), 1);
    drop(lane);
    assert_eq!(session.lanes.all().len(), 0, "the lane's place is free again");
    assert!(!session.tunnel.is_ended(), "it is the lane's end only");

    // Another link has the session: the first one's claim is nothing any more.
    let resumed = factory.provide(candidate(again(&hello, &first.welcome))).expect("in");
    assert!(resumed.welcome.resumed.is_some());
    drop(first);
    assert_eq!(factory.registry.len(), 1);
    drop(resumed);
    assert!(factory.registry.is_empty() && session.tunnel.is_ended());
}

#[tokio::test]
async fn agent_of_a_workspace_is_told_where_people_reach_it_and_a_cluster_agent_nothing() {
    let factory = factory(1);
    let told = factory.provide(candidate(hello(1, 1))).expect("in").welcome.workspace_url;
    assert_eq!(told, "https://one.example.com/");
    let hello = Hello {
        role: Role::Cluster,
        features: version::features(Role::Cluster).iter().map(|name| (*name).to_owned()).collect(),
        ..hello(1, 1)
    };
    let cluster = Candidate { subject: Subject::Cluster("one".parse().expect("a name")), ..candidate(hello) };
    assert_eq!(factory.provide(cluster).expect("in").welcome.workspace_url, "");
}

/// What becomes of two agents with one token, of which `older` has lost its link before `newer` came, when the gateway
/// restarts and they come back.
fn check_restart(sessions_before: u64, older_first: bool) {
    let before = factory(1_000);
    for _ in 1..sessions_before {
        assert!(before.registry.lane_id().get() > 0);
    }
    let (older, newer) = (hello(1, 1), hello(2, 1));
    let of_older = before.provide(candidate(older.clone())).expect("in");
    let of_newer = before.provide(candidate(newer.clone())).expect("in");
    assert!(of_newer.welcome.session > of_older.welcome.session);
    let (older, newer) = (again(&older, &of_older.welcome), again(&newer, &of_newer.welcome));

    let after = factory(2_000);
    let comes = |hello: &Hello| after.provide(candidate(hello.clone())).map_err(|refused| refused.code);
    let told = format!("{sessions_before} sessions before, older first: {older_first}");
    let first = comes(if older_first { &older } else { &newer }).expect("nobody else is there yet");
    assert!(first.welcome.resumed.is_none() && first.welcome.session > of_newer.welcome.session, "{told}");
    let second = comes(if older_first { &newer } else { &older });
    if older_first {
        assert!(second.is_ok() && first.claim.session.tunnel.is_ended(), "{told}: {second:?}");
    } else {
        assert_eq!(second.err(), Some(Code::Aborted), "{told}");
    }
    let current = after.registry.current(&name()).expect("the newer one");
    assert_eq!((current.instance, current.tunnel.is_ended()), (2, false), "{told}");
}

#[tokio::test]
async fn newest_agent_wins_after_a_restart_too_whoever_comes_first() {
    for sessions_before in [1, 1_000] {
        for older_first in [true, false] {
            check_restart(sessions_before, older_first);
        }
    }
}

#[tokio::test]
async fn agent_of_an_earlier_run_never_names_the_session_of_another_one() {
    let hello = hello(1, 1);
    let (before, after) = (factory(1_000), factory(2_000));
    let of_before = before.provide(candidate(hello.clone())).expect("in");
    let of_after = after.provide(candidate(hello.clone())).expect("in");
    assert!(of_after.welcome.session != of_before.welcome.session);
    // With equal numbers this would be a resume with a wrong secret, and one more dial.
    let back = after.provide(candidate(again(&hello, &of_before.welcome))).expect("in");
    assert!(back.welcome.resumed.is_none() && back.welcome.session > of_after.welcome.session);
}
