//! Anything, in any order; and the same again from the same seed.

use std::time::Duration;

use crate::net::{GATEWAY, NOTICED, Net, SOON, Shape, for_seeds};
use crate::user;

const AGENTS: [(&str, &str); 2] = [("one", "well"), ("two", "mill")];

/// Kinds of faults; the last ones are crashes of the gateway.
const FAULTS: u64 = 6;

/// Breaks something every second or so while users work, heals everything, and expects everything to work. Returns
/// the log.
fn chaos(seed: u64, shape: &Shape, faults: u64) -> Vec<String> {
    let mut net = Net::shaped(seed, shape);
    for (host, workspace) in AGENTS {
        net.agent(host, &[workspace]);
    }
    for (_, workspace) in AGENTS {
        net.up(workspace, 0);
    }
    for _ in 0..12 {
        let (host, workspace) = AGENTS[usize::from(net.rolls.next() & 1 == 1)];
        work(&mut net, workspace);
        let pause = net.rolls.millis(1, 400);
        net.run(pause);
        break_something(&mut net, host, faults);
    }
    for (host, _) in AGENTS {
        net.sim.release(GATEWAY, host);
        net.sim.repair(GATEWAY, host);
    }
    net.note("all is well again");
    // Sessions that lost frames still have to find out.
    net.run(2 * NOTICED);
    for (_, workspace) in AGENTS {
        net.up(workspace, 0);
        let echo = net.user(workspace, |session| user::echo(session, 100_000));
        let moved = net.wait("an echo", SOON, &echo);
        assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
    }
    let log = net.shared.log();
    net.finish();
    log
}

/// Starts what a user does, if there is a session to do it with. How it ends is told by the log.
fn work(net: &mut Net, workspace: &str) {
    let name = workspace.parse().expect("a name");
    if net.shared.gateway().registry.current(&name).is_none() {
        return;
    }
    let bytes = usize::try_from(net.rolls.next() % 1_000_000).expect("small") + 1;
    match net.rolls.next() % 4 {
        0 => drop(net.user(workspace, move |session| user::echo(session, bytes))),
        1 => drop(net.user(workspace, move |session| user::upload(session, bytes))),
        2 => drop(net.user(workspace, move |session| user::download(session, bytes, 10))),
        _ => drop(net.user(workspace, |session| async move {
            // Gives up in the middle.
            tokio::time::timeout(Duration::from_millis(30), user::chatter(session)).await.is_err()
        })),
    }
}

fn break_something(net: &mut Net, host: &str, faults: u64) {
    let time = net.rolls.millis(1, 2_500);
    match net.rolls.next() % faults {
        0 => {
            net.note("partition");
            net.sim.partition(GATEWAY, host);
            net.run(time);
            net.sim.repair(GATEWAY, host);
        }
        1 => {
            net.note("one way is gone");
            net.sim.partition_oneway(host, GATEWAY);
            net.run(time);
            net.sim.repair_oneway(host, GATEWAY);
        }
        2 | 3 => {
            net.note("hold");
            net.sim.hold(GATEWAY, host);
            net.run(time);
            net.sim.release(GATEWAY, host);
        }
        4 => {
            net.crash(host);
            net.run(time);
            net.bounce(host);
        }
        _ => {
            net.crash(GATEWAY);
            net.run(time);
            net.bounce(GATEWAY);
            net.run(Duration::from_millis(10));
        }
    }
}

#[test]
fn whatever_breaks_heals_and_leaves_nothing_behind() {
    for_seeds(0..8, |seed| {
        chaos(seed, &Shape::default(), FAULTS);
    });
}

#[track_caller]
fn check_repeats(shape: &Shape, faults: u64) {
    let (first, second) = (chaos(100, shape, faults), chaos(100, shape, faults));
    for (line, (first, second)) in first.iter().zip(&second).enumerate() {
        assert_eq!(first, second, "line {line}");
    }
    assert_eq!(first.len(), second.len());
    assert_ne!(first, chaos(101, shape, faults));
}

#[test]
fn same_seed_is_the_same_run_and_another_one_is_not() {
    check_repeats(&Shape::default(), FAULTS - 1);
    // A runtime that is torn down drops its tasks in an order that depends on how many this process has ever had, and
    // so do the delays of a gateway's last words. Where all delays are the same, that does not show.
    let even = Duration::from_millis(10);
    check_repeats(&Shape { latency: (even, even), ..Shape::default() }, FAULTS);
}
