//! Links that swallow, and links that are late.

use std::time::Duration;

use tunnel_link::channel_io::ChannelError;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::apps::ECHO;
use crate::net::{GATEWAY, INTERVAL, NOTICED, Net, SOON, TIMEOUT, for_seeds};
use crate::shared::Shared;
use crate::user;

/// What goes on when the network breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    /// A channel is just being opened: its first frame is lost.
    Open,
    /// Bytes flow in both directions.
    Data,
}

fn ends(shared: &Shared) -> [Option<SessionError>; 2] {
    [Side::Gateway, Side::Agent].map(|side| shared.newest("well", side)?.end.map(|(_, error)| error))
}

/// Breaks the network at a random moment, repairs it after `cut` or once both sides have noticed, and expects the
/// session to end by name, its channels with it, and a new one to work.
fn breaks(seed: u64, during: During, cut: Option<Duration>) {
    let mut net = Net::with_agent(seed);
    let before = net.up("well", 0);
    let phase = net.rolls.millis(0, 4_000);
    net.run(phase);
    let transfer = match during {
        During::Open => {
            // The network is gone before the first frame gets out.
            net.sim.partition(GATEWAY, "agent");
            net.user("well", user::chatter)
        }
        During::Data => {
            let transfer = net.user("well", user::chatter);
            let phase = net.rolls.millis(50, 300);
            net.run(phase);
            assert!(!transfer.is_there());
            net.sim.partition(GATEWAY, "agent");
            transfer
        }
    };
    net.note("partition");
    let cut_for = cut.unwrap_or(NOTICED);
    if cut.is_some() {
        net.run(cut_for);
        net.sim.repair(GATEWAY, "agent");
        net.note("repaired");
    }
    let left = NOTICED.saturating_sub(if cut.is_some() { cut_for } else { Duration::ZERO });
    net.until("both sides notice", left, |shared| ends(shared).iter().all(Option::is_some));
    let named = ends(&net.shared).map(|end| end.expect("it ended"));
    if cut.is_none() {
        assert_eq!(named, [SessionError::KeepaliveTimedOut, SessionError::KeepaliveTimedOut]);
        net.sim.repair(GATEWAY, "agent");
        net.note("repaired");
    } else {
        // Whoever notices first closes the connection, which the other side may hear before its own time is up.
        assert!(named.contains(&SessionError::KeepaliveTimedOut), "{named:?}");
    }
    let result = net.wait("the user hears of it", SOON, &transfer);
    assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
    net.up("well", before);
    works(&mut net);
    net.finish();
}

fn works(net: &mut Net) {
    let echo = net.user("well", |session| user::echo(session, 100_000));
    let moved = net.wait("an echo over the new session", SOON, &echo);
    assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
}

#[test]
fn partition_while_a_channel_opens_is_noticed_by_name_and_outlived() {
    for_seeds(0..8, |seed| breaks(seed, During::Open, None));
}

#[test]
fn partition_while_bytes_flow_is_noticed_by_name_and_outlived() {
    for_seeds(0..8, |seed| breaks(seed, During::Data, None));
}

#[test]
fn partition_repaired_before_the_timeout_still_ends_a_session_that_lost_frames() {
    let short = TIMEOUT / 2;
    for_seeds(0..8, |seed| breaks(seed, During::Open, Some(short)));
    for_seeds(0..8, |seed| breaks(seed, During::Data, Some(short)));
}

#[test]
fn partition_in_which_nothing_was_said_is_never_noticed() {
    for_seeds(0..8, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        // The first round of pings is through, the next one is most of an interval away.
        net.run(Duration::from_secs(1));
        net.sim.partition(GATEWAY, "agent");
        net.run(INTERVAL / 2);
        net.sim.repair(GATEWAY, "agent");
        net.run(NOTICED);
        assert_eq!(ends(&net.shared), [None, None]);
        assert_eq!(net.up("well", 0), before);
        works(&mut net);
        net.finish();
    });
}

/// Nothing gets through in one direction.
fn one_way(seed: u64, from: &str, to: &str) {
    let mut net = Net::with_agent(seed);
    let before = net.up("well", 0);
    let phase = net.rolls.millis(0, 4_000);
    net.run(phase);
    let transfer = net.user("well", user::chatter);
    let phase = net.rolls.millis(50, 300);
    net.run(phase);
    net.sim.partition_oneway(from, to);
    net.note("one way is gone");
    // The side that still hears may have to hear of the end from the other one, whose words may be lost: each side
    // asks for itself then.
    net.until("both sides notice", 2 * NOTICED, |shared| ends(shared).iter().all(Option::is_some));
    net.sim.repair_oneway(from, to);
    let result = net.wait("the user hears of it", SOON, &transfer);
    assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
    net.up("well", before);
    works(&mut net);
    net.finish();
}

#[test]
fn link_that_swallows_one_direction_ends_on_both_sides() {
    for_seeds(0..4, |seed| one_way(seed, GATEWAY, "agent"));
    for_seeds(0..4, |seed| one_way(seed, "agent", GATEWAY));
}

#[test]
fn link_held_for_less_than_the_timeout_loses_nothing() {
    for_seeds(0..8, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let chatter = net.user("well", user::chatter);
        let transfer = net.user("well", |session| user::echo(session, 3 << 20));
        let upload = net.user("well", |session| user::upload(session, 3 << 20));
        for _ in 0..3 {
            let (until_hold, held) = (net.rolls.millis(20, 150), net.rolls.millis(100, 1_900));
            net.run(until_hold);
            net.sim.hold(GATEWAY, "agent");
            net.note("held");
            net.run(held);
            net.sim.release(GATEWAY, "agent");
            net.note("released");
        }
        for work in [&transfer, &upload] {
            let moved = net.wait("the transfer goes on", 2 * SOON, work);
            assert_eq!(moved.map(|moved| moved.0), Ok(3 << 20));
        }
        assert_eq!(ends(&net.shared), [None, None]);
        assert_eq!(net.up("well", 0), before, "it is the same session");
        assert!(!chatter.is_there(), "nobody noticed");
        net.finish();
    });
}

#[test]
fn link_held_for_longer_than_the_timeout_ends_by_name_and_its_late_frames_harm_nobody() {
    for_seeds(0..8, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let phase = net.rolls.millis(0, 4_000);
        net.run(phase);
        let transfer = net.user("well", user::chatter);
        let phase = net.rolls.millis(50, 300);
        net.run(phase);
        net.sim.hold(GATEWAY, "agent");
        net.note("held");
        net.until("both sides notice", NOTICED, |shared| ends(shared).iter().all(Option::is_some));
        let named = ends(&net.shared).map(|end| end.expect("it ended"));
        assert_eq!(named, [SessionError::KeepaliveTimedOut, SessionError::KeepaliveTimedOut]);
        let while_held = net.rolls.millis(0, 3_000);
        net.run(while_held);
        net.sim.release(GATEWAY, "agent");
        net.note("released");
        let result = net.wait("the user hears of it", SOON, &transfer);
        assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
        net.up("well", before);
        works(&mut net);
        net.finish();
    });
}

#[test]
fn port_behind_which_nothing_listens_is_named_through_any_delay() {
    for_seeds(0..2, |seed| {
        let mut net = Net::with_agent(seed);
        assert_ne!(ECHO, crate::apps::CLOSED);
        let knock = net.user("well", user::knock);
        assert_eq!(net.wait("an answer", SOON, &knock), Err(Reason::PortClosed));
        net.finish();
    });
}
