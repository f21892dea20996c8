//! Several replicas: one dies or is cut off from another, and users of a third one notice a pause at most.

use std::time::Duration;

use tunnel_link::session::Session;
use turmoil::Sim;

use crate::net::{SOON, for_seeds};
use crate::replicas_store::STORE;
use crate::replicas_world::{E, LEASE, MOVED, OTHER, R, REPLICAS, World};

const LONG: Duration = Duration::from_secs(45);

#[test]
fn traffic_of_another_replica_loses_nothing_when_those_that_carry_it_die() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        let traffic = world.traffic(E, "well", LONG);
        let mut before = world.up("well").1;
        for _ in 0..2 {
            world.run_some(1_000, 3_000);
            let (holder, generation) = world.up("well");
            assert!(generation >= before);
            // The lane that users have ends at E. What E itself holds goes on too.
            let dies = if holder == E { OTHER } else { &holder };
            world.crash(dies);
            world.run_some(500, 6_000);
            let (_, after) = world.up("well");
            assert!(after > generation || holder == E, "{after} after {generation}");
            before = after;
            world.bounce(dies);
        }
        world.moved_all(&traffic, LONG);
        world.all_run();
        world.all_reach("well");
        world.finish();
    });
}

/// Cuts R off from E, in one direction or both, under traffic of E. Both see the store.
fn cut(seed: u64, cut: impl Fn(&Sim<'static>), repair: impl Fn(&Sim<'static>)) {
    let mut world = World::with_agent(seed);
    let traffic = world.traffic(E, "well", LONG);
    world.run_some(500, 3_000);
    cut(&world.sim);
    world.note("R and E are cut off");
    let before = world.up("well");
    world.run_some(15_000, 20_000);
    // Another replica carries the lane. The agent stays where it is.
    let echo = world.traffic(E, "well", Duration::from_secs(1));
    world.moved_all(&echo, Duration::from_secs(1));
    assert_eq!(world.up("well"), before);
    repair(&world.sim);
    world.note("repaired");
    world.moved_all(&traffic, LONG);
    world.none_ended();
    world.all_reach("well");
    world.finish();
}

#[test]
fn lane_goes_on_through_another_replica_when_two_are_cut_off_from_each_other() {
    for_seeds(0..1, |seed| cut(seed, |sim| sim.partition(R, E), |sim| sim.repair(R, E)));
}

#[test]
fn lane_goes_on_through_another_replica_when_one_direction_between_two_is_lost() {
    for (from, to) in [(R, E), (E, R)] {
        for_seeds(0..1, |seed| cut(seed, |sim| sim.partition_oneway(from, to), |sim| sim.repair_oneway(from, to)));
    }
}

#[test]
fn replica_that_alone_has_lost_the_store_keeps_its_agents_and_others_reach_them() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        let before = world.up("well");
        let traffic = world.traffic(E, "well", LONG);
        world.run_some(500, 3_000);
        world.sim.partition(R, STORE);
        world.note("R has lost the store");
        world.run(2 * LEASE);
        // Its lease is over by far; only itself can say that it is there.
        let echo = world.traffic(OTHER, "well", Duration::from_secs(1));
        world.moved_all(&echo, Duration::from_secs(1));
        world.sim.repair(R, STORE);
        world.note("repaired");
        world.moved_all(&traffic, LONG);
        world.none_ended();
        assert_eq!(world.up("well").0, before.0);
        world.run(SOON);
        world.none_ended();
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn request_costs_one_look_up_and_one_hop_and_the_next_one_none() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        world.run_some(1, 3_000);
        let first = world.user(E, "well", |session: Session| async move { session.stats().links });
        world.wait("a session", SOON, &first);
        assert_eq!(world.fleet.database.lookups(E), 1);
        world.all_reach("well");
        // One of each replica that has not the agent.
        let lookups = REPLICAS.map(|host| world.fleet.database.lookups(host));
        assert_eq!(lookups, [0, 1, 1]);
        let lanes = REPLICAS.map(|host| world.fleet.replica(host).expect("it runs").registry.relays_len());
        assert_eq!(lanes, [0, 1, 1]);
        assert_eq!(world.fleet.replica(R).expect("it runs").registry.len(), 1);
        world.finish();
    });
}

#[test]
fn replica_that_died_with_its_agents_is_believed_in_no_longer_than_its_lease() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        world.run_some(1, 3_000);
        world.crash("agent");
        world.crash(R);
        let died = world.now();
        let mut asked = 0;
        loop {
            let began = world.now() - died;
            let found = world.on(OTHER, |replica| async move { replica.session("well").await.err() });
            let why = world.wait("an answer", SOON, &found).expect("its agent is gone");
            if why == "absent" {
                break;
            }
            asked += 1;
            assert!(began <= LEASE + Duration::from_secs(1), "{why}, when asked after {began:?}");
            // What was found a moment ago is not looked up again.
            world.run(Duration::from_millis(1_100));
        }
        assert!(asked > 2, "it was believed in for a while");
        world.bounce("agent");
        world.bounce(R);
        world.up("well");
        world.all_reach("well");
        world.finish();
    });
}

#[test]
fn users_wait_for_an_agent_that_is_at_another_replica_by_now() {
    for_seeds(0..1, |seed| {
        let mut world = World::with_agent(seed);
        world.all_reach("well");
        for _ in 0..3 {
            let (holder, before) = world.up("well");
            world.crash(&holder);
            world.run_some(1, 500);
            world.bounce(&holder);
            let (_, after) = world.up("well");
            assert!(after > before);
            world.all_run();
            world.all_reach("well");
        }
        assert!(world.now() < 8 * MOVED);
        world.finish();
    });
}
