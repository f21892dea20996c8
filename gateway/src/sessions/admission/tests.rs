use tunnel_proto::limit::OPEN_CREDIT_BYTES;
use tunnel_proto::version;

use super::*;
use crate::config::Config;

const WORKSPACE: &str = "one";

fn admission(started_ms: u64) -> Admission {
    let config = Config::default();
    Admission {
        registry: Arc::new(Registry::new(10, started_ms)),
        budget: ReplicaBudget::new(config.tunnel.replica_budget),
        tunnel: Tunnel { lanes_max: 4, ..config.tunnel },
        requests_max: 10,
        drain: Drain::default(),
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
    }
}

fn candidate(hello: Hello) -> Candidate {
    Candidate {
        workspace: name(),
        token: "t-1".parse().expect("an id"),
        peer: ([127, 0, 0, 1], 1).into(),
        via: Via::Http2,
        hello,
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
    let admission = admission(1);
    let hello = hello(1, 2);
    let first = admission.admit(candidate(hello.clone())).expect("in");
    let session = first.claim.session.clone();
    let join = Join { session: session.id, secret: first.welcome.join_secret.clone() };
    let lane = admission.admit(candidate(Hello { join: Some(join), ..hello.clone() })).expect("in");
    assert_eq!(session.lanes.all().len(), 1);
    drop(lane);
    assert_eq!(session.lanes.all().len(), 0, "the lane's place is free again");
    assert!(!session.tunnel.is_ended(), "it is the lane's end only");

    // Another link has the session: the first one's claim is nothing any more.
    let resumed = admission.admit(candidate(again(&hello, &first.welcome))).expect("in");
    assert!(resumed.welcome.resumed.is_some());
    drop(first);
    assert_eq!(admission.registry.len(), 1);
    drop(resumed);
    assert!(admission.registry.is_empty() && session.tunnel.is_ended());
}
