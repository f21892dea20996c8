//! Links that swallow, and links that are late.

use std::future::Future;
use std::time::Duration;

use tunnel_link::channel_io::ChannelError;
use tunnel_link::session::Session;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::apps::ECHO;
use crate::net::{GATEWAY, GIVEN_UP, GRACE, INTERVAL, NOTICED, Net, Outcome, SOON, Shape, TIMEOUT, for_seeds};
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
    [Side::Gateway, Side::Agent].map(|side| shared.newest("well", side)?.session.end())
}

fn without_resume() -> Shape {
    Shape { resume_grace: Duration::ZERO, ..Shape::default() }
}

/// Breaks the network at a random moment, while a user begins or is at work.
fn break_during<T, F>(net: &mut Net, during: During, work: impl FnOnce(Session) -> F + Send + 'static) -> Outcome<T>
where
    F: Future<Output = T> + Send + 'static,
    T: std::fmt::Debug + Send + 'static,
{
    let phase = net.rolls.millis(0, 4_000);
    net.run(phase);
    let transfer = match during {
        During::Open => {
            // The network is gone before the first frame gets out.
            net.sim.partition(GATEWAY, "agent");
            net.user("well", work)
        }
        During::Data => {
            let transfer = net.user("well", work);
            let phase = net.rolls.millis(50, 300);
            net.run(phase);
            assert!(!transfer.is_there());
            net.sim.partition(GATEWAY, "agent");
            transfer
        }
    };
    net.note("partition");
    transfer
}

fn repair(net: &mut Net) {
    net.sim.repair(GATEWAY, "agent");
    net.note("repaired");
}

fn both_down(shared: &Shared) -> bool {
    [Side::Gateway, Side::Agent].iter().all(|side| shared.newest("well", *side).expect("a session").is_down())
}

/// Breaks the network under a session that ends with its link, repairs it after `cut` or once both sides have noticed,
/// and expects the session to end by name, its channels with it, and a new one to work.
fn breaks_for_good(seed: u64, during: During, cut: Option<Duration>) {
    let mut net = Net::with_agent_shaped(seed, &without_resume());
    let before = net.up("well", 0);
    let transfer = break_during(&mut net, during, user::chatter);
    if let Some(cut) = cut {
        net.run(cut);
        repair(&mut net);
    }
    let left = NOTICED.saturating_sub(cut.unwrap_or_default());
    net.until("both sides notice", left, |shared| ends(shared).iter().all(Option::is_some));
    let named = ends(&net.shared).map(|end| end.expect("it ended"));
    if cut.is_none() {
        assert_eq!(named, [SessionError::KeepaliveTimedOut, SessionError::KeepaliveTimedOut]);
        repair(&mut net);
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

/// How long a partition lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// It is over before anybody notices.
    Short,
    /// It lasts longer than it takes both sides to notice, and not as long as a session is kept.
    Noticed,
}

/// Breaks the network for a time that a session survives: everything goes on over one more link.
fn breaks_and_goes_on(seed: u64, during: During, cut: Cut) {
    let mut net = Net::with_agent(seed);
    let before = net.up("well", 0);
    let transfer = break_during(&mut net, during, |session| user::slowly(session, Duration::from_secs(3)));
    match cut {
        Cut::Short => {
            net.run(TIMEOUT / 2);
            repair(&mut net);
        }
        Cut::Noticed => {
            net.until("both sides notice", NOTICED, both_down);
            let more = net.rolls.millis(0, 5_000);
            net.run(more);
            repair(&mut net);
        }
    }
    net.until("another link carries it", NOTICED + SOON, |shared| {
        [Side::Gateway, Side::Agent].into_iter().all(|side| {
            let session = shared.newest("well", side).expect("a session").session;
            session.stats().links == 2 && !session.is_detached()
        })
    });
    let moved = net.wait("the transfer goes on to its end", SOON, &transfer);
    assert!(moved.is_ok_and(|(bytes, _)| bytes > 30_000), "{moved:?}");
    assert_eq!(net.up("well", 0), before, "it is the same session");
    assert_eq!(ends(&net.shared), [None, None]);
    works(&mut net);
    assert_eq!(net.links("well"), [2, 2]);
    net.finish();
}

/// Breaks the network for longer than a session is kept.
fn breaks_for_too_long(seed: u64, during: During) {
    let mut net = Net::with_agent(seed);
    let before = net.up("well", 0);
    let transfer = break_during(&mut net, during, user::chatter);
    net.until("both sides notice", NOTICED, both_down);
    net.run(GRACE - NOTICED);
    assert_eq!(ends(&net.shared), [None, None], "both wait");
    assert!(!transfer.is_there());
    net.until("both sides give it up", GIVEN_UP, |shared| ends(shared).iter().all(Option::is_some));
    let named = ends(&net.shared).map(|end| end.expect("it ended"));
    assert_eq!(named, [SessionError::LinkLost, SessionError::LinkLost]);
    let result = net.wait("the user has heard of it", Duration::from_millis(50), &transfer);
    assert_eq!(result, ChannelError::Reset(Reason::SessionLost));
    assert!(net.shared.gateway().registry.is_empty());
    for side in [Side::Gateway, Side::Agent] {
        // Its apps' connections too.
        let stats = net.shared.newest("well", side).expect("the old session").session.stats();
        assert_eq!((stats.channels_live, stats.replay_bytes), (0, 0), "{side:?}");
    }
    repair(&mut net);
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
fn session_that_ends_with_its_link_ends_by_name_whether_it_opens_a_channel_or_moves_bytes() {
    for_seeds(0..8, |seed| breaks_for_good(seed, During::Open, None));
    for_seeds(0..8, |seed| breaks_for_good(seed, During::Data, None));
}

#[test]
fn session_that_ends_with_its_link_ends_too_if_the_partition_was_short_and_took_frames() {
    let short = TIMEOUT / 2;
    for_seeds(0..8, |seed| breaks_for_good(seed, During::Open, Some(short)));
    for_seeds(0..8, |seed| breaks_for_good(seed, During::Data, Some(short)));
}

#[test]
fn partition_shorter_than_the_grace_loses_nothing() {
    for during in [During::Open, During::Data] {
        for_seeds(0..8, |seed| breaks_and_goes_on(seed, during, Cut::Short));
        for_seeds(0..8, |seed| breaks_and_goes_on(seed, during, Cut::Noticed));
    }
}

#[test]
fn partition_longer_than_the_grace_ends_the_session_on_both_sides_and_a_new_one_comes_up() {
    for_seeds(0..6, |seed| breaks_for_too_long(seed, During::Open));
    for_seeds(0..6, |seed| breaks_for_too_long(seed, During::Data));
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

/// Nothing gets through in one direction, until both sides have noticed.
fn one_way(seed: u64, from: &str, to: &str) {
    let mut net = Net::with_agent(seed);
    let before = net.up("well", 0);
    let phase = net.rolls.millis(0, 4_000);
    net.run(phase);
    let transfer = net.user("well", |session| user::slowly(session, Duration::from_secs(3)));
    let phase = net.rolls.millis(50, 300);
    net.run(phase);
    net.sim.partition_oneway(from, to);
    net.note("one way is gone");
    // The side that still hears may have to hear of the end from the other one, whose words may be lost: each side
    // asks for itself then.
    net.until("both sides notice", 2 * NOTICED, both_down);
    net.sim.repair_oneway(from, to);
    let moved = net.wait("the transfer goes on to its end", SOON, &transfer);
    assert!(moved.is_ok_and(|(bytes, _)| bytes > 30_000), "{moved:?}");
    assert_eq!(net.up("well", 0), before, "it is the same session");
    assert_eq!(ends(&net.shared), [None, None]);
    works(&mut net);
    net.finish();
}

#[test]
fn link_that_swallows_one_direction_is_given_up_on_both_sides_and_the_session_goes_on() {
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
        assert_eq!(net.links("well"), [1, 1], "and the same link");
        net.finish();
    });
}

#[test]
fn link_held_for_longer_than_the_timeout_is_replaced_and_its_late_frames_harm_nobody() {
    for_seeds(0..8, |seed| {
        let mut net = Net::with_agent(seed);
        let before = net.up("well", 0);
        let phase = net.rolls.millis(0, 4_000);
        net.run(phase);
        let transfer = net.user("well", |session| user::slowly(session, Duration::from_secs(3)));
        let phase = net.rolls.millis(50, 300);
        net.run(phase);
        net.sim.hold(GATEWAY, "agent");
        net.note("held");
        net.until("both sides notice", NOTICED, both_down);
        let while_held = net.rolls.millis(0, 5_000);
        net.run(while_held);
        net.sim.release(GATEWAY, "agent");
        net.note("released");
        let moved = net.wait("the transfer goes on to its end", SOON, &transfer);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 30_000), "{moved:?}");
        assert_eq!(net.up("well", 0), before, "it is the same session");
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
