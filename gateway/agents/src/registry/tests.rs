use std::time::Duration;

use tunnel_proto::hello::{AppProtocol, HostMode, Port as PortSettings};

use super::*;
use crate::testing::new;
use gateway_types::Port;

#[test]
fn release_by_displaced_session_keeps_the_newer_one() {
    let registry = Registry::new(10, 1);
    let (first, none) = registry.claim(new("a")).expect("room");
    assert!(none.is_none());
    let (second, displaced) = registry.claim(new("a")).expect("room");
    assert_eq!(displaced.map(|session| session.id), Some(first.id));
    assert!(second.generation() > first.generation());
    assert!(!registry.release(&first));
    assert_eq!(registry.of(&first.subject).map(|session| session.id), Some(second.id));
    assert!(registry.release(&second));
    assert!(registry.is_empty());
}

#[test]
fn full_registry_still_lets_an_agent_replace_its_own_session() {
    let registry = Registry::new(1, 1);
    assert!(registry.claim(new("a")).is_ok());
    assert_eq!(registry.claim(new("b")).err(), Some(ClaimRefused::Full));
    assert!(registry.claim(new("a")).is_ok());
}

#[test]
fn ids_and_generations_grow_over_restarts() {
    let before = Registry::new(1, 1_000).claim(new("a")).expect("room").0;
    let registry = Registry::new(1, 1_001);
    let after = registry.claim(new("a")).expect("room").0;
    assert!(after.generation() > before.generation() && after.id > before.id);
    assert!(registry.lane_id() > after.id);
}

#[test]
fn unnamed_ports_are_exposed_only_while_none_is_named() {
    let port = |number| Port::new(number).expect("a port");
    let registry = Registry::new(2, 1);
    let (open, _) = registry.claim(new("a")).expect("room");
    assert!(open.exposes(port(1)));
    let named = PortSettings { number: 5173, protocol: AppProtocol::Http2, host: HostMode::Localhost, tls: false };
    let (closed, _) = registry
        .claim(NewSession { ports: AgentPorts { exposed: vec![named], ..AgentPorts::default() }, ..new("b") })
        .expect("room");
    assert!(closed.exposes(port(5173)) && !closed.exposes(port(1)));
    assert_eq!(closed.mode(port(5173)).protocol, AppProtocol::Http2);
    assert_eq!(closed.mode(port(1)), PortMode::default());
}

#[test]
fn each_session_has_one_turn_of_all() {
    let registry = Registry::new(100, 1);
    let ids: Vec<_> = (0..50).map(|number| registry.claim(new(&format!("w{number}"))).expect("room").0.id).collect();
    let mut turns: Vec<_> = (0..60).flat_map(|turn| registry.in_turn(turn, 60)).map(|session| session.id).collect();
    turns.sort();
    assert_eq!(turns, ids);
    assert!((0..60).all(|turn| registry.in_turn(turn, 60).len() <= 1), "they are spread");
}

fn of_cluster(name: &str) -> NewSession {
    NewSession { subject: Subject::Cluster(name.parse().expect("a name")), ..new("unused") }
}

#[test]
fn cluster_named_like_a_workspace_is_never_found_by_that_name() {
    let registry = Registry::new(3, 1);
    let (cluster, none) = registry.claim(of_cluster("same")).expect("room");
    assert!(none.is_none());
    assert!(registry.current(&"same".parse().expect("a name")).is_none());
    let (workspace, none) = registry.claim(new("same")).expect("room");
    assert!(none.is_none(), "neither displaces the other");
    assert_eq!(registry.current(&"same".parse().expect("a name")).map(|found| found.id), Some(workspace.id));
    assert_eq!(registry.cluster(&"same".parse().expect("a name")).map(|found| found.id), Some(cluster.id));
    let (newer, displaced) = registry.claim(of_cluster("same")).expect("room");
    assert_eq!(displaced.map(|session| session.id), Some(cluster.id));
    assert!(!registry.release(&cluster) && registry.release(&workspace));
    assert_eq!(registry.all().iter().map(|session| session.id).collect::<Vec<_>>(), [newer.id]);
}

#[test]
fn arrivals_of_clusters_are_told_and_those_of_workspaces_are_not() {
    let registry = Registry::new(3, 1);
    let arrivals = registry.arrivals();
    registry.claim(new("a")).expect("room");
    assert!(!arrivals.has_changed().expect("the registry lives"));
    registry.claim(of_cluster("a")).expect("room");
    assert!(arrivals.has_changed().expect("the registry lives"));
    assert_eq!(registry.clusters().len(), 1);
}

/// A replica that users ask has a relay lane to an agent before that dials it, and keeps the lane when the agent moves on.
#[test]
fn session_of_an_agent_that_moves_on_becomes_a_lane_beside_the_one_that_is_there() {
    let registry = Registry::of_replica(9, 1);
    let moving = || NewSession { moves: true, ..new("a") };
    let (lane, _) = registry.claim(NewSession { way: SessionWay::Relay, ..moving() }).expect("room");
    let (first, _) = registry.claim(moving()).expect("room");
    assert!(first.ask_to_move(Duration::from_secs(1), Duration::ZERO) && first.is_moving());
    registry.displace(&first, first.instance);
    assert!(!first.is_moving() && first.way() == SessionWay::Relay && !first.tunnel.is_ended());
    assert_eq!(registry.relay(&first.subject).map(|session| session.id), Some(lane.id));
    // It is found by its id, counted, and goes with its end.
    let find = |id| registry.find(&first.subject, |session| session.id == id).map(|session| session.id);
    assert_eq!((find(lane.id), find(first.id)), (Some(lane.id), Some(first.id)));
    assert_eq!((registry.len(), registry.relays_len(), registry.with_relays().len()), (0, 2, 2));
    assert!(registry.release(&first) && !registry.release(&first));
    assert_eq!((registry.relays_len(), find(first.id)), (1, None));
    assert!(registry.release(&lane) && registry.relays_len() == 0);
}
