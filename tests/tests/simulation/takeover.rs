//! Two agents with the token of one workspace. The newest wins.

use std::time::Duration;

use tunnel_link::channel_io::ChannelError;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::net::{GATEWAY, GIVEN_UP, NOTICED, Net, SOON, for_seeds};
use crate::user;

fn current(net: &Net) -> Option<u64> {
    let name = "well".parse().expect("a name");
    net.shared.gateway().registry.current(&name).map(|session| session.generation().get())
}

fn echoes(net: &mut Net) {
    let echo = net.user("well", |session| user::echo(session, 100_000));
    let moved = net.wait("an echo", SOON, &echo);
    assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
}

#[test]
fn second_agent_displaces_the_first_which_stops_and_takes_nothing_with_it() {
    for_seeds(0..4, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let transfer = net.user("well", user::chatter);
        let phase = net.rolls.millis(0, 2_000);
        net.run(phase);
        net.agent("newer", &["well"]);
        let after = net.up("well", before);
        net.until("the first agent stops", SOON, |shared| shared.why_stopped("agent").is_some());
        let end = net.shared.sessions().into_iter().find(|end| end.side == Side::Agent && end.generation == before);
        let end = end.expect("the first session").end.map(|(_, error)| error);
        assert!(matches!(end, Some(SessionError::Closed { reason: Reason::Displaced, .. })), "{end:?}");
        let fault = net.wait("the user of the first session hears of it", SOON, &transfer);
        assert_eq!(fault, ChannelError::Reset(Reason::SessionLost));
        // The first one's late release must keep the newer one's place.
        net.run(NOTICED);
        assert_eq!(current(&net), Some(after));
        assert_eq!(net.shared.why_stopped("newer"), None);
        echoes(&mut net);
        net.finish();
    });
}

/// Lets a newer agent take over behind the back of the first one, whose link is gone, and repairs the network after
/// both could notice and `more` went by.
fn displaced_behind_a_partition(seed: u64, more: Duration) -> (Net, u64) {
    let mut net = Net::with_agent(seed);
    let before = net.up("well", 0);
    let phase = net.rolls.millis(0, 4_000);
    net.run(phase);
    net.sim.partition(GATEWAY, "agent");
    net.agent("newer", &["well"]);
    let after = net.up("well", before);
    // The gateway's farewell to the first one is never heard, and its release comes late.
    net.run(NOTICED + more);
    assert_eq!(current(&net), Some(after));
    echoes(&mut net);
    net.sim.repair(GATEWAY, "agent");
    (net, after)
}

#[test]
fn agent_that_comes_back_for_a_session_that_a_newer_agent_took_over_stops() {
    for_seeds(0..4, |seed| {
        let (mut net, after) = displaced_behind_a_partition(seed, Duration::ZERO);
        net.until("the first agent stops", SOON, |shared| shared.why_stopped("agent").is_some());
        let why = net.shared.why_stopped("agent").expect("it did");
        assert!(why.contains("a newer agent with the same token took over"), "{why}");
        net.run(2 * NOTICED);
        assert_eq!(current(&net), Some(after));
        assert_eq!(net.shared.why_stopped("newer"), None);
        assert_eq!(net.links("well"), [1, 1], "the newer one noticed nothing");
        echoes(&mut net);
        net.finish();
    });
}

#[test]
fn agent_that_gave_its_session_up_behind_a_partition_comes_back_as_the_newest_and_it_ends_there() {
    for_seeds(0..4, |seed| {
        let (mut net, after) = displaced_behind_a_partition(seed, GIVEN_UP - NOTICED);
        let last = net.up("well", after);
        net.until("the other agent stops", SOON, |shared| shared.why_stopped("newer").is_some());
        // One stops for good, so the two never take turns.
        net.run(2 * NOTICED);
        assert_eq!(current(&net), Some(last));
        assert_eq!(net.shared.why_stopped("agent"), None);
        echoes(&mut net);
        net.finish();
    });
}
