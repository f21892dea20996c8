//! Several replicas, and a database that is down, slow, restored from an older copy, or has another time.

use std::time::Duration;

use crate::net::for_seeds;
use crate::replicas_store::STORE;
use crate::replicas_world::{E, LEASE, OTHER, R, REPLICAS, World};

const LONG: Duration = Duration::from_secs(45);

/// Time in which all replicas and sessions have their rows again after an outage.
const BACK: Duration = Duration::from_secs(10);

#[test]
fn store_that_is_down_for_a_minute_ends_no_session() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        world.agent("mill", "mill", &REPLICAS);
        let before = [world.up("well"), world.up("mill")];
        let traffic = world.traffic(E, "well", LONG);
        world.run_some(500, 3_000);
        world.crash(STORE);
        world.run(Duration::from_secs(60));
        world.moved_all(&traffic, LONG);
        world.none_ended();
        // Also a replica that has asked for no session of it is led there.
        world.all_reach("well");
        world.all_reach("mill");
        world.bounce(STORE);
        world.run(BACK);
        assert_eq!([world.up("well"), world.up("mill")], before, "all kept their places");
        world.run(2 * LEASE);
        world.none_ended();
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn agent_that_moves_while_the_store_is_down_has_its_place_when_it_is_back() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        let (_, before) = world.up("well");
        // Its seal is of the last minute.
        let traffic = world.traffic(E, "well", LONG);
        world.run_some(500, 3_000);
        world.crash(STORE);
        world.run_some(2_000, 10_000);
        world.crash(R);
        world.until("the agent is elsewhere", Duration::from_secs(40), |fleet| {
            World::holders(fleet, "well").iter().any(|(_, session)| session.generation().get() > before)
        });
        let late: usize = [E, OTHER].iter().map(|host| world.waiting(host)).sum();
        assert_eq!(late, 1, "its place is still to be claimed");
        let echo = world.traffic(OTHER, "well", Duration::from_secs(1));
        world.moved_all(&echo, Duration::from_secs(1));
        world.run_some(1_000, 20_000);
        world.bounce(STORE);
        world.run(BACK);
        let (_, after) = world.up("well");
        assert!(after > before);
        world.moved_all(&traffic, LONG);
        assert_eq!(world.ended().len(), 1, "the session at the replica that died, and no other");
        world.bounce(R);
        world.all_run();
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn generations_grow_over_a_store_that_was_restored_from_an_older_copy() {
    for_seeds(0..2, |seed| {
        let mut world = World::with_agent(seed);
        world.back_up();
        let mut before = world.up("well").1;
        for _ in 0..2 {
            let (holder, _) = world.up("well");
            world.crash(&holder);
            let (_, after) = world.up("well");
            assert!(after > before);
            before = after;
            world.bounce(&holder);
            world.all_run();
        }
        world.run_some(1_000, 5_000);
        world.restore();
        assert_eq!(world.fleet.claimed("well"), Some(1), "it is older");
        world.run(BACK);
        world.all_run();
        world.all_reach("well");
        // Agents that come back prove what they had.
        for _ in 0..2 {
            let (holder, _) = world.up("well");
            world.crash(&holder);
            let (_, after) = world.up("well");
            assert!(after > before, "{after} after {before}");
            before = after;
            world.bounce(&holder);
            world.all_run();
        }
        world.all_reach("well");
        world.finish();
    });
}

/// A standby that is a moment behind: the leases of all replicas are good in it, and nothing makes them claim their sessions anew.
#[test]
fn agent_that_the_store_has_forgotten_is_reached_within_a_minute() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        world.back_up();
        world.agent("mill", "mill", &[R]);
        let (_, before) = world.up("mill");
        world.run_some(500, 2_000);
        world.restore();
        assert_eq!(world.fleet.claimed("mill"), None, "it is older");
        world.run(Duration::from_secs(70));
        assert_eq!(world.fleet.claimed("mill"), Some(before + 1));
        world.none_ended();
        world.all_reach("mill");
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn store_that_answers_far_too_late_ends_no_session() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        let before = world.up("well");
        let traffic = world.traffic(E, "well", LONG);
        world.run_some(500, 3_000);
        *world.fleet.database.pause.lock().unwrap() = Duration::from_secs(5);
        world.note("each statement takes five seconds");
        world.run(2 * LEASE);
        world.none_ended();
        world.all_reach("well");
        *world.fleet.database.pause.lock().unwrap() = Duration::ZERO;
        world.run(BACK);
        world.moved_all(&traffic, LONG);
        assert_eq!(world.up("well"), before, "it kept its place");
        world.none_ended();
        world.finish();
    });
}

/// Makes a world whose clocks differ by an hour or two, that of the database too, with an agent at R.
fn with_clocks(seed: u64) -> World {
    let mut world = World::new(seed);
    for (host, hours) in [(R, 1), (E, -1), (OTHER, 0)] {
        world.fleet.clocks.lock().unwrap().insert(host.to_owned(), hours * 3_600_000);
    }
    *world.fleet.database.ahead.lock().unwrap() = Duration::from_secs(seed % 2 * 7_200);
    world.all_run();
    let balancer = world.agent("agent", "well", &[R]);
    world.up("well");
    balancer.lead(&REPLICAS);
    world
}

#[test]
fn clocks_that_differ_by_hours_decide_nothing_while_the_store_answers() {
    for_seeds(0..1, |seed| {
        let mut world = with_clocks(seed);
        world.run(2 * LEASE);
        world.none_ended();
        let traffic = world.traffic(E, "well", Duration::from_secs(30));
        for _ in 0..2 {
            world.run_some(500, 3_000);
            let (holder, before) = world.up("well");
            let dies = if holder == E { OTHER } else { &holder };
            world.crash(dies);
            world.run_some(1, 3_000);
            world.bounce(dies);
            world.all_run();
            let (_, after) = world.up("well");
            assert!(after > before || holder == E, "{after} after {before}");
        }
        world.moved_all(&traffic, Duration::from_secs(30));
        world.all_reach("well");
        world.finish();
    });
}

/// Seals are compared with clocks: those of an hour ahead count for nothing, and nothing else comes of that.
#[test]
fn agent_with_a_seal_of_an_hour_ahead_waits_for_the_store_and_loses_nothing_else() {
    for_seeds(0..1, |seed| {
        let mut world = with_clocks(seed);
        let (_, before) = world.up("well");
        world.crash(STORE);
        world.run_some(2_000, 5_000);
        world.crash(R);
        world.run_some(8_000, 15_000);
        assert!(World::holders(&world.fleet, "well").is_empty());
        world.bounce(STORE);
        let (_, after) = world.up("well");
        assert!(after > before);
        world.bounce(R);
        world.all_run();
        world.all_reach("well");
        world.finish();
    });
}
