//! Processes that die, at any moment and on either side.

use std::time::Duration;

use tunnel_link::channel_io::ChannelError;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::net::{GATEWAY, NOTICED, Net, SOON, for_seeds};
use crate::user;

#[test]
fn agents_come_back_to_a_gateway_that_crashed_and_their_generation_grows() {
    for_seeds(0..8, |seed| {
        let mut net = Net::new(seed);
        net.agent("agent", &["well", "mill"]);
        let mut before = [net.up("well", 0), net.up("mill", 0)];
        for _ in 0..3 {
            // The users go down with it.
            for workspace in ["well", "mill"] {
                drop(net.user(workspace, user::chatter));
            }
            let (into, down) = (net.rolls.millis(10, 500), net.rolls.millis(0, 3_000));
            net.run(into);
            net.crash(GATEWAY);
            net.run(down);
            net.bounce(GATEWAY);
            let after = [net.up("well", before[0]), net.up("mill", before[1])];
            assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
            before = after;
            let echo = net.user("well", |session| user::echo(session, 100_000));
            let moved = net.wait("an echo", SOON, &echo);
            assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
        }
        net.finish();
    });
}

#[test]
fn channels_of_an_agent_that_crashed_end_at_once_and_it_comes_back() {
    for_seeds(0..8, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let transfer = net.user("well", user::chatter);
        let into = net.rolls.millis(10, 500);
        net.run(into);
        net.crash("agent");
        // Its kernel says so: no keepalive has to run out.
        let result = net.wait("the user hears of it", Duration::from_secs(1), &transfer);
        assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
        let down = net.rolls.millis(0, 2_000);
        net.run(down);
        net.bounce("agent");
        net.up("well", before);
        let echo = net.user("well", |session| user::echo(session, 100_000));
        let moved = net.wait("an echo", SOON, &echo);
        assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
        net.finish();
    });
}

#[test]
fn agent_that_lost_its_machine_displaces_the_session_that_the_gateway_still_believes_in() {
    for_seeds(0..8, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let transfer = net.user("well", user::chatter);
        let into = net.rolls.millis(10, 500);
        net.run(into);
        // Power is lost: nobody says goodbye, and nobody answers any more. The workspace starts on another machine.
        net.sim.partition(GATEWAY, "agent");
        net.crash("agent");
        net.agent("spare", &["well"]);
        let after = net.up("well", before);
        assert!(after > before);
        let old = net
            .shared
            .sessions()
            .into_iter()
            .find(|witness| witness.side == Side::Gateway && witness.generation == before);
        let end = old.expect("the old session").end.map(|(_, error)| error);
        assert!(matches!(end, Some(SessionError::Closed { reason: Reason::Displaced, .. })), "{end:?}");
        let result = net.wait("the user hears of it", SOON, &transfer);
        assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
        // What is left of the old session does not reach the new one.
        net.run(2 * NOTICED);
        assert_eq!(net.up("well", 0), after);
        net.finish();
    });
}
