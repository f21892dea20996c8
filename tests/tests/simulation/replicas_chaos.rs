//! Several replicas and anything that may go wrong with them, in any order.

use std::time::Duration;

use crate::net::for_seeds;
use crate::replicas_store::STORE;
use crate::replicas_world::{LEASE, MOVED, REPLICAS, World};

const ROUNDS: u32 = 10;

/// Breaks something, or mends it.
fn change(world: &mut World, is_up: &mut bool) {
    let (one, other) = (pick(world), pick(world));
    match world.rolls.next() % 10 {
        0 | 1 => {
            world.crash(one);
            world.run_some(1, 8_000);
            world.bounce(one);
        }
        2 if one != other => {
            world.note(&format!("{one} and {other} are cut off"));
            world.sim.partition(one, other);
        }
        3 if one != other => {
            world.note(&format!("{one} says nothing to {other}"));
            world.sim.partition_oneway(one, other);
        }
        4 => {
            world.note(&format!("{one} has lost the store"));
            world.sim.partition(one, STORE);
        }
        5 => {
            world.note(&format!("the store says nothing to {one}"));
            world.sim.partition_oneway(STORE, one);
        }
        6 if *is_up => {
            world.crash(STORE);
            *is_up = false;
        }
        7 if *is_up => world.restore(),
        8 => {
            let pause = world.rolls.millis(0, 400);
            world.note(&format!("statements take {pause:?}"));
            *world.fleet.database.pause.lock().unwrap() = pause;
        }
        9 => {
            world.note(&format!("{one} is held"));
            world.with_links(one, &["agent", "mill", STORE], |sim, one, other| sim.hold(one, other));
        }
        _ => mend(world, is_up),
    }
}

fn pick(world: &mut World) -> &'static str {
    REPLICAS[usize::try_from(world.rolls.next() % 3).expect("few")]
}

fn mend(world: &mut World, is_up: &mut bool) {
    world.note("all is well again");
    *world.fleet.database.pause.lock().unwrap() = Duration::ZERO;
    for one in REPLICAS {
        world.with_links(one, &[&REPLICAS[..], &["agent", "mill", STORE]].concat(), |sim, one, other| {
            sim.release(one, other);
            sim.repair(one, other);
        });
    }
    if !*is_up {
        world.bounce(STORE);
        *is_up = true;
    }
}

#[test]
fn whatever_breaks_between_replicas_heals() {
    for_seeds(0..2, |seed| {
        let mut world = World::with_agent(seed);
        world.agent("mill", "mill", &REPLICAS);
        world.up("mill");
        world.back_up();
        let mut is_up = true;
        for _ in 0..ROUNDS {
            let (at, workspace) = (pick(&mut world), ["well", "mill"][usize::from(world.rolls.next() & 1 == 1)]);
            if world.fleet.replica(at).is_some() {
                // How it ends is in the log: with the replica, or with all its bytes.
                drop(world.traffic(at, workspace, Duration::from_secs(8)));
            }
            world.run_some(1, 6_000);
            change(&mut world, &mut is_up);
        }
        mend(&mut world, &mut is_up);
        // Those whose lease is over claim anew, and rows of sessions are read within a minute.
        world.until("all replicas run", MOVED, |fleet| fleet.running().len() == REPLICAS.len());
        world.run(2 * LEASE);
        for workspace in ["well", "mill"] {
            world.up(workspace);
            world.all_reach(workspace);
        }
        world.finish();
    });
}
