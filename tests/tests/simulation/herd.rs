//! Many agents lose their gateway, or only their links to it, at the same moment.

use std::time::Duration;

use futures_util::future::join_all;
use tunnel_link::backoff::Backoff;
use tunnel_proto::limit::RESUME_GRACE;

use crate::middle::Cut;
use crate::net::{GATEWAY, Net, SOON, Shape, for_seeds};
use crate::resume::BACK;
use crate::user;

const HOSTS: usize = 5;
const AGENTS: usize = 50;

/// Crashes the gateway, starts it again after `down`, and returns when each agent dialed after that, in order and
/// counted from the restart.
fn dials_after_a_bounce(seed: u64, down: Duration) -> Vec<Duration> {
    // The product's own back-off and grace.
    let mut net =
        Net::shaped(seed, &Shape { backoff: Backoff::default(), resume_grace: RESUME_GRACE, ..Shape::default() });
    let names: Vec<_> = (0..AGENTS).map(|number| format!("well-{number}")).collect();
    for (host, names) in names.chunks(AGENTS / HOSTS).enumerate() {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        net.agent(&format!("agents-{host}"), &names);
    }
    net.run(Duration::from_millis(10));
    let all_up = |shared: &crate::shared::Shared| shared.gateway().registry.len() == AGENTS;
    net.until("all agents are connected", SOON, all_up);
    // All links have held for long enough to be worth the quick way back.
    net.run(Duration::from_secs(2));
    net.crash(GATEWAY);
    if !down.is_zero() {
        stay_down(&mut net, down);
    }
    net.bounce(GATEWAY);
    let bounced = net.now();
    // The old registry is still there until the new process has started.
    net.run(Duration::from_millis(10));
    net.until("all agents are back", Duration::from_secs(60), all_up);
    let mut dials: Vec<_> = names
        .iter()
        .map(|name| {
            let dials = net.shared.dials();
            let mut mine = dials.iter().filter(|dial| dial.workspace == *name && dial.at >= bounced);
            mine.next().expect("it is back").at - bounced
        })
        .collect();
    dials.sort();
    // A wait that was cut to its bound would be the same for many.
    let bound = format!("redials after {:?}:", Backoff::default().absence_max);
    assert!(!net.shared.log().iter().any(|line| line.contains(&bound)), "{bound}");
    net.finish();
    dials
}

/// Lets the agents find the gateway's machine without a gateway. A simulated host that crashed swallows what it is
/// sent; behind a partition it refuses, as a machine without the process does.
fn stay_down(net: &mut Net, time: Duration) {
    let hosts: Vec<_> = (0..HOSTS).map(|host| format!("agents-{host}")).collect();
    // Not before the ends of the connections have arrived.
    net.run(Duration::from_millis(50));
    for host in &hosts {
        net.sim.partition(GATEWAY, host.as_str());
    }
    net.run(time);
    for host in &hosts {
        net.sim.repair(GATEWAY, host.as_str());
    }
}

/// Returns the most dials that fall into any span of this length.
fn most_within(dials: &[Duration], span: Duration) -> usize {
    let within = |start: &Duration| dials.iter().filter(|dial| (*start..*start + span).contains(*dial)).count();
    dials.iter().map(within).max().unwrap_or(0)
}

#[test]
fn herd_that_lost_its_gateway_for_a_moment_comes_back_spread_out() {
    for_seeds(0..2, |seed| {
        let dials = dials_after_a_bounce(seed, Duration::ZERO);
        assert_eq!(dials.len(), AGENTS);
        // Each still has a session to save, so the first wait is up to 200 ms: jitter fills all of it.
        let most = most_within(&dials, Duration::from_millis(50));
        assert!(most < AGENTS / 2, "{most} dials within 50 ms");
        let span = dials[AGENTS - 1] - dials[0];
        assert!((Duration::from_millis(150)..Duration::from_millis(250)).contains(&span), "{span:?}");
    });
}

#[test]
fn herd_that_found_its_gateway_down_comes_back_more_spread_out() {
    for_seeds(0..2, |seed| {
        let dials = dials_after_a_bounce(seed, Duration::from_secs(12));
        let most = most_within(&dials, Duration::from_millis(100));
        assert!(most < AGENTS / 4, "{most} dials within 100 ms");
        let span = dials[AGENTS - 1] - dials[0];
        assert!(span > Duration::from_secs(2), "{span:?}");
        // Nobody who has a session to save waits for longer than this.
        assert!(dials[AGENTS - 1] <= Backoff::default().absence_max, "{span:?}");
    });
}

/// Agents of the herd whose links break under it.
const HERD: usize = 300;

#[test]
fn herd_whose_links_all_break_comes_back_spread_out_and_loses_nothing() {
    for_seeds(0..1, |seed| {
        // The product's own back-off and grace.
        let shape = Shape { backoff: Backoff::default(), resume_grace: RESUME_GRACE, ..Shape::default() };
        let mut net = Net::shaped(seed, &shape);
        net.middle();
        let names: Vec<_> = (0..HERD).map(|number| format!("well-{number}")).collect();
        for (host, names) in names.chunks(HERD / HOSTS).enumerate() {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            net.agent_behind_middle(&format!("agents-{host}"), &names);
        }
        net.run(Duration::from_millis(10));
        net.until("all agents are connected", SOON, |shared| shared.gateway().registry.len() == HERD);
        net.run(Duration::from_secs(2));
        let work = net.on_gateway(|gateway| async move {
            let sessions = gateway.registry.all().into_iter();
            join_all(sessions.map(|session| user::echo(session.tunnel.clone(), 100_000))).await
        });
        net.run(Duration::from_millis(60));
        assert!(!work.is_there());
        let cut = net.now();
        net.shared.middle.cut(Cut::Both);
        net.note("all links break");
        let back = net.until("all are back", BACK, |shared| {
            let mut sessions = shared.sessions().into_iter();
            sessions.all(|witness| witness.session.stats().links == 2 && !witness.is_down())
        });
        assert!(back < Duration::from_millis(500), "{back:?}");
        let moved = net.wait("all of the work", SOON, &work);
        assert!(moved.iter().all(|moved| moved.is_ok_and(|(bytes, _)| bytes == 100_000)), "{moved:?}");
        assert_eq!(net.shared.sessions().len(), 2 * HERD, "no session is new");
        let mut dials: Vec<_> =
            net.shared.dials().iter().filter(|dial| dial.at > cut).map(|dial| dial.at - cut).collect();
        dials.sort();
        assert_eq!(dials.len(), HERD, "each came back with its first dial");
        let most = most_within(&dials, Duration::from_millis(20));
        assert!(most < HERD / 4, "{most} dials within 20 ms");
        net.finish();
    });
}
