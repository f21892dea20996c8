//! Several replicas, and more than one that takes itself for an agent's: two processes with one token, and a replica that stood
//! still while its agent went elsewhere.

use std::time::Duration;

use tunnel_proto::mux::Side;

use crate::net::{GRACE, SOON, for_seeds};
use crate::replicas_store::STORE;
use crate::replicas_world::{E, LEASE, MOVED, OTHER, R, REPLICAS, World};

/// Waits until one of two processes with one token has stopped for good, and expects that the other one works.
fn one_is_left(world: &mut World, limit: Duration) {
    world.until("one of two gives up", limit, |fleet| {
        ["agent", "twin"].iter().filter(|host| fleet.shared.why_stopped(host).is_some()).count() == 1
    });
    let stopped = ["agent", "twin"].iter().find_map(|host| world.fleet.shared.why_stopped(host));
    let why = stopped.expect("one has stopped");
    assert!(why.contains("newer agent with the same token"), "{why}");
    world.up("well");
    world.run(SOON);
    let live = world.fleet.shared.sessions().into_iter().filter(|end| end.side == Side::Agent && end.end.is_none());
    assert_eq!(live.count(), 1, "one process has a session");
}

#[test]
fn newest_of_two_processes_with_one_token_at_two_replicas_is_left() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        let (_, before) = world.up("well");
        world.run_some(1, 3_000);
        world.agent("twin", "well", &[E]);
        one_is_left(&mut world, SOON);
        assert!(world.fleet.shared.why_stopped("agent").is_some(), "the older one");
        let (holder, after) = world.up("well");
        assert!(holder == E && after > before);
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn one_of_two_processes_that_begin_at_once_at_two_replicas_is_left() {
    for_seeds(0..1, |seed| {
        let mut world = World::new(seed);
        world.all_run();
        world.agent("agent", "well", &[R]);
        world.agent("twin", "well", &[E]);
        one_is_left(&mut world, SOON);
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn older_of_two_processes_ends_although_its_replica_cannot_be_reached_by_the_other() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        world.run_some(1, 3_000);
        world.sim.partition(R, E);
        world.note("R and E are cut off");
        world.agent("twin", "well", &[E]);
        // The rows of all sessions are read within a minute.
        one_is_left(&mut world, Duration::from_secs(65));
        world.sim.repair(R, E);
        world.note("repaired");
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn two_processes_with_one_token_may_both_run_while_the_store_is_down_and_one_does_after() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        // The token is known at E from a process that was there.
        let twin = world.agent("twin", "well", &[E]);
        one_is_left(&mut world, SOON);
        world.bounce("agent");
        twin.lead(&REPLICAS);
        world.run_some(1, 1_000);
        world.crash(STORE);
        world.run(Duration::from_secs(30));
        world.bounce("twin");
        world.run(Duration::from_secs(30));
        world.bounce(STORE);
        world.until("one gives up for good", MOVED, |fleet| World::settled(fleet, "well").is_some());
        world.run(SOON);
        assert_eq!(World::holders(&world.fleet, "well").len(), 1);
        world.all_reach("well");
        world.finish();
    });
}

/// Holds everything that a replica says and is told for longer than its lease: what a process that stood still looks like from
/// outside, although its own timers run.
#[test]
fn replica_that_comes_back_after_its_lease_writes_nothing_over_newer_claims() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        let (_, before) = world.up("well");
        let traffic = world.traffic(E, "well", Duration::from_secs(30));
        world.run_some(500, 3_000);
        let others = [E, OTHER, STORE, "agent"];
        world.with_links(R, &others, |sim, one, other| sim.hold(one, other));
        world.note("R stands still");
        world.until("the agent is elsewhere", MOVED, |fleet| {
            World::settled(fleet, "well").is_some_and(|(host, _)| host != R) || {
                let of = |(host, session): &(String, std::sync::Arc<gateway_agents::registry::LiveSession>)| {
                    host != R && session.generation().get() > before
                };
                World::holders(fleet, "well").iter().any(of)
            }
        });
        world.run(LEASE);
        world.run_some(1, 5_000);
        world.with_links(R, &others, |sim, one, other| sim.release(one, other));
        world.note("R goes on");
        world.run(SOON);
        let (holder, after) = world.up("well");
        assert!(holder != R && after > before, "{holder} {after}");
        world.moved_all(&traffic, Duration::from_secs(30));
        world.run(SOON);
        assert_eq!(world.up("well"), (holder, after));
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn replica_that_was_cut_off_from_all_others_claims_nothing_over_a_newer_process() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        world.run_some(1, 3_000);
        let others = [E, OTHER, STORE];
        world.with_links(R, &others, |sim, one, other| sim.partition(one, other));
        world.note("R has its agent alone");
        world.run_some(1_000, 20_000);
        world.agent("twin", "well", &[E]);
        let (holder, after) = loop {
            world.run_some(1_000, 2_000);
            let newest = World::holders(&world.fleet, "well").into_iter().find(|(host, _)| host == E);
            if let Some((host, session)) = newest {
                break (host, session.generation().get());
            }
        };
        world.run(LEASE);
        world.none_ended();
        world.with_links(R, &others, |sim, one, other| sim.repair(one, other));
        world.note("repaired");
        one_is_left(&mut world, SOON);
        assert!(world.fleet.shared.why_stopped("agent").is_some(), "the older one");
        assert_eq!(world.up("well"), (holder, after));
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn agent_that_starts_again_at_its_replica_keeps_the_place_that_it_has_claimed() {
    for_seeds(0..2, |seed| {
        let mut world = World::new(seed);
        world.all_run();
        world.agent("agent", "well", &[R]);
        let (_, mut before) = world.up("well");
        for round in 0..4 {
            world.crash("agent");
            // At once, or as the session ends that waits for it.
            let wait = if round == 0 { Duration::ZERO } else { GRACE - Duration::from_secs(1) };
            let some = world.rolls.millis(0, 1_000);
            world.run(wait + some);
            world.bounce("agent");
            world.until("a newer session is there", MOVED, |fleet| {
                World::settled(fleet, "well").is_some_and(|(_, generation)| generation > before)
            });
            let (_, after) = world.up("well");
            // The place of the session before is given back meanwhile.
            world.run(Duration::from_secs(2));
            assert_eq!(world.up("well"), (R.to_owned(), after));
            before = after;
        }
        world.all_reach("well");
        world.finish();
    });
}

/// What answers its Hello is lost, twice, and its replica has claimed two generations of which it knows nothing. Then it gets a
/// session elsewhere while the store is down, from what it does know.
#[test]
fn agent_whose_welcomes_were_lost_is_not_taken_for_two() {
    for_seeds(0..1, |seed| {
        let mut world = World::new(seed);
        world.all_run();
        let balancer = world.agent("agent", "well", &[OTHER]);
        let (_, mut claimed) = world.up("well");
        world.run_some(1, 3_000);
        for _ in 0..2 {
            balancer.lead(&[R]);
            if world.fleet.replica(OTHER).is_some() {
                world.crash(OTHER);
            }
            world.until("R claims", MOVED, |fleet| fleet.claimed("well").is_some_and(|now| now > claimed));
            claimed = world.fleet.claimed("well").expect("a row");
            world.sim.partition(R, "agent");
            world.note("the welcome is lost");
            balancer.lead(&[OTHER]);
            let dials = world.fleet.shared.dials().len();
            world.until("it gives up", MOVED, |fleet| fleet.shared.dials().len() > dials);
            world.sim.repair(R, "agent");
        }
        world.crash(STORE);
        world.run(Duration::from_secs(3));
        balancer.lead(&[E]);
        world.until("it is at E", SOON, |fleet| World::holders(fleet, "well").iter().any(|(host, _)| host == E));
        world.bounce(STORE);
        world.run(SOON);
        assert_eq!(world.fleet.shared.why_stopped("agent"), None);
        let (holder, after) = world.up("well");
        assert!(holder == E && after > claimed, "{after} after {claimed}");
        world.bounce(OTHER);
        world.all_run();
        world.all_reach("well");
        world.finish();
    });
}
