//! Processes that die, at any moment and on either side.

use std::time::Duration;

use tunnel_link::channel_io::ChannelError;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::net::{GATEWAY, GIVEN_UP, GRACE, NOTICED, Net, Outcome, SOON, for_seeds};
use crate::shared::Shared;
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
            // The agents kept their sessions until the new process told them that it knows none.
            for witness in net.shared.sessions() {
                if witness.side == Side::Agent && before.contains(&witness.generation) {
                    assert_eq!(witness.end.map(|(_, error)| error), Some(SessionError::LinkLost));
                }
            }
            before = after;
            let echo = net.user("well", |session| user::echo(session, 100_000));
            let moved = net.wait("an echo", SOON, &echo);
            assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
        }
        net.finish();
    });
}

/// Starts a chatting user and crashes the agent, whose kernel says so; the gateway waits for it then.
fn crash_while_chatting(net: &mut Net) -> Outcome<ChannelError> {
    let transfer = net.user("well", user::chatter);
    let into = net.rolls.millis(10, 500);
    net.run(into);
    net.crash("agent");
    let waits = |shared: &Shared| shared.newest("well", Side::Gateway).is_some_and(|gateway| gateway.is_down());
    // No keepalive has to run out.
    net.until("the gateway's session waits for a link", Duration::from_secs(1), waits);
    transfer
}

#[test]
fn agent_that_crashed_and_starts_again_displaces_what_was_left_of_it_at_once() {
    for_seeds(0..8, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let transfer = crash_while_chatting(&mut net);
        let down = net.rolls.millis(0, 2_000);
        net.run(down);
        assert!(!transfer.is_there(), "the agent may still come back with its session");
        net.bounce("agent");
        net.up("well", before);
        let result = net.wait("the user hears of it", Duration::from_millis(100), &transfer);
        assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
        let ended = net.ends_of(before, Side::Gateway);
        assert!(matches!(ended, Some(SessionError::Closed { reason: Reason::Displaced, .. })), "{ended:?}");
        let echo = net.user("well", |session| user::echo(session, 100_000));
        let moved = net.wait("an echo", SOON, &echo);
        assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
        net.finish();
    });
}

#[test]
fn channels_of_an_agent_that_crashed_and_stays_away_end_when_the_grace_is_over() {
    for_seeds(0..4, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let transfer = crash_while_chatting(&mut net);
        net.run(GRACE - Duration::from_millis(50));
        assert!(!transfer.is_there(), "not before");
        let result = net.wait("the user hears of it", Duration::from_millis(200), &transfer);
        assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
        net.run(Duration::from_millis(50));
        assert_eq!(net.ends_of(before, Side::Gateway), Some(SessionError::LinkLost));
        assert!(net.shared.gateway().registry.is_empty());
        net.bounce("agent");
        net.up("well", before);
        net.finish();
    });
}

#[test]
fn agent_that_lost_its_machine_displaces_the_session_that_the_gateway_still_believes_in() {
    for_seeds(0..4, |seed| {
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
        net.run(Duration::from_millis(50));
        let end = net.ends_of(before, Side::Gateway);
        assert!(matches!(end, Some(SessionError::Closed { reason: Reason::Displaced, .. })), "{end:?}");
        let result = net.wait("the user hears of it", SOON, &transfer);
        assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
        // What is left of the old session does not reach the new one.
        net.run(NOTICED + GIVEN_UP);
        assert_eq!(net.up("well", 0), after);
        net.finish();
    });
}
