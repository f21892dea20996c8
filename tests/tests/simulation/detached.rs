//! What is done while no link carries the session: opening, ending, giving up, draining.

use std::time::Duration;

use tunnel_link::channel_io::ChannelError;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::drain::{REQUEST, drain};
use crate::middle::{Cut, MIDDLE};
use crate::net::{GATEWAY, GIVEN_UP, NOTICED, Net, SOON, for_seeds};
use crate::resume::{BACK, behind_middle, goes_on, is_down, up_again};
use crate::shared::Shared;
use crate::user;

/// Cuts the link and keeps the agent away until something was done; returns what that gave.
fn while_detached<T>(net: &mut Net, work: impl FnOnce(&mut Net) -> T) -> T {
    net.sim.partition(MIDDLE, "agent");
    net.shared.middle.cut(Cut::Both);
    net.note("cut");
    let both = |shared: &Shared| is_down(shared, Side::Gateway) && is_down(shared, Side::Agent);
    net.until("both wait for a link", NOTICED, both);
    let done = work(net);
    let more = net.rolls.millis(0, 3_000);
    net.run(more);
    net.sim.repair(MIDDLE, "agent");
    net.note("healed");
    done
}

#[test]
fn channels_opened_and_halves_ended_while_there_is_no_link_go_on_over_the_next() {
    for_seeds(0..8, |seed| {
        let (mut net, generation) = behind_middle(seed);
        // Ends its half only while there is no link; the app answers after that.
        let halved = net.user("well", |session| user::upload_ending_detached(session, 300_000));
        net.run(Duration::from_millis(500));
        let (uploads, knock) = while_detached(&mut net, |net| {
            let uploads: Vec<_> = (0..20)
                .map(|number| net.user("well", move |session| user::upload(session, 1 + number * 7_919)))
                .collect();
            let knock = net.user("well", user::knock);
            net.run(Duration::from_millis(200));
            assert!(!knock.is_there() && uploads.iter().all(|upload| !upload.is_there()));
            (uploads, knock)
        });
        for (number, upload) in uploads.iter().enumerate() {
            let moved = net.wait("an upload", SOON, upload);
            assert_eq!(moved.map(|moved| moved.0), Ok(1 + number * 7_919));
        }
        assert_eq!(net.wait("an answer", SOON, &knock), Err(Reason::PortClosed));
        let moved = net.wait("the upload that was ended", SOON, &halved);
        assert_eq!(moved.map(|moved| moved.0), Ok(300_000));
        goes_on(&mut net, generation);
        assert_eq!(net.links("well"), [2, 2]);
        net.finish();
    });
}

#[test]
fn reset_while_there_is_no_link_reaches_the_other_side_and_no_other_channel() {
    for_seeds(0..8, |seed| {
        let (mut net, generation) = behind_middle(seed);
        let other = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
        // Given up by the user, in the middle of a transfer.
        let given_up = net.user("well", |session| async move {
            let chatter = user::chatter(session.clone());
            tokio::select! {
                error = chatter => panic!("{error:?}"),
                () = user::detached(&session) => {}
            }
        });
        // Given up by the app, somewhat later than the cut.
        let app = net.user("well", |session| user::fickle(session, Duration::from_millis(700)));
        net.run(Duration::from_millis(500));
        while_detached(&mut net, |net| {
            net.wait("the user gives up", Duration::from_millis(100), &given_up);
            net.run(Duration::from_millis(800));
            assert!(!app.is_there(), "the news waits for a link");
        });
        let error = net.wait("the user hears of the app", SOON, &app);
        assert!(matches!(error, ChannelError::Reset(reason) if reason != Reason::SessionLost), "{error:?}");
        let moved = net.wait("the other transfer", SOON, &other);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 50_000), "{moved:?}");
        net.run(Duration::from_secs(1));
        for side in [Side::Gateway, Side::Agent] {
            let stats = net.shared.newest("well", side).expect("a session").session.stats();
            assert_eq!((stats.channels_live, stats.window_bytes), (0, 0), "{side:?}");
        }
        goes_on(&mut net, generation);
        net.finish();
    });
}

#[test]
fn drain_while_a_session_waits_for_its_link_ends_it_by_name_and_leaves_nothing() {
    for_seeds(0..4, |seed| {
        let (mut net, before) = behind_middle(seed);
        let stuck = net.user("well", user::chatter);
        let into = net.rolls.millis(10, 500);
        net.run(into);
        let drained = while_detached(&mut net, |net| {
            let began = net.now();
            let drained = net.on_gateway(drain);
            net.wait("the drain", REQUEST.deadline + Duration::from_millis(100), &drained);
            net.now() - began
        });
        // It is given all of the time to come back.
        assert!(drained > REQUEST.deadline - Duration::from_millis(200), "{drained:?}");
        let fault = net.wait("the user has heard of it", Duration::ZERO, &stuck);
        assert_eq!(fault, ChannelError::Reset(Reason::SessionLost));
        let ended = net.ends_of(before, Side::Gateway);
        assert!(matches!(ended, Some(SessionError::Closed { reason: Reason::Shutdown, .. })), "{ended:?}");
        let gateway = net.shared.gateway();
        assert!(gateway.registry.is_empty());
        assert_eq!(gateway.budget.reserved(), 0);
        net.crash(GATEWAY);
        net.bounce(GATEWAY);
        net.up("well", before);
        assert_eq!(net.ends_of(before, Side::Agent), Some(SessionError::LinkLost), "nobody knows it any more");
        net.finish();
    });
}

#[test]
fn gateway_that_drains_says_why_over_a_second_link_too() {
    for_seeds(0..4, |seed| {
        let (mut net, before) = behind_middle(seed);
        net.shared.middle.cut(Cut::Both);
        up_again(&mut net, [1, 1], BACK);
        let more = net.rolls.millis(100, 2_000);
        net.run(more);
        let drained = net.on_gateway(drain);
        net.wait("the drain", SOON, &drained);
        net.crash(GATEWAY);
        net.until("the agent hears of it", Duration::from_secs(1), |shared| is_down(shared, Side::Agent));
        let ended = net.shared.newest("well", Side::Agent).expect("a session").session.end();
        assert!(matches!(ended, Some(SessionError::Closed { reason: Reason::Shutdown, .. })), "{ended:?}");
        net.bounce(GATEWAY);
        net.up("well", before);
        net.finish();
    });
}

/// Asks the agent to stop while its session waits for a link, and returns how long the gateway keeps that session.
fn stopped_while_detached(seed: u64, heal: bool) -> (Duration, SessionError) {
    let (mut net, generation) = behind_middle(seed);
    let stuck = net.user("well", user::chatter);
    let into = net.rolls.millis(10, 500);
    net.run(into);
    net.sim.partition(MIDDLE, "agent");
    net.shared.middle.cut(Cut::Both);
    net.note("cut");
    let both = |shared: &Shared| is_down(shared, Side::Gateway) && is_down(shared, Side::Agent);
    net.until("both wait for a link", NOTICED, both);
    let more = net.rolls.millis(0, 2_000);
    net.run(more);
    if heal {
        net.sim.repair(MIDDLE, "agent");
    }
    net.note("stop");
    net.shared.stop.cancel();
    let agent = |shared: &Shared| shared.newest("well", Side::Agent).expect("a session").session.is_ended();
    net.until("the agent has stopped", Duration::from_millis(2_100), agent);
    let gateway = |shared: &Shared| shared.newest("well", Side::Gateway).expect("a session").session.is_ended();
    let kept = net.until("the gateway has given it up", GIVEN_UP, gateway);
    let fault = net.wait("the user has heard of it", Duration::from_millis(50), &stuck);
    assert_eq!(fault, ChannelError::Reset(Reason::SessionLost));
    let end = net.ends_of(generation, Side::Gateway).expect("it ended");
    net.finish();
    (kept, end)
}

#[test]
fn agent_that_is_stopped_while_it_waits_for_a_link_dials_once_more_to_say_so() {
    for_seeds(0..8, |seed| {
        let (kept, end) = stopped_while_detached(seed, true);
        assert!(matches!(end, SessionError::Closed { reason: Reason::Shutdown, .. }), "{end:?}");
        assert!(kept < Duration::from_secs(1), "{kept:?}");
    });
}

#[test]
fn agent_that_is_stopped_and_reaches_nobody_leaves_without_a_word() {
    for_seeds(0..2, |seed| {
        let (_kept, end) = stopped_while_detached(seed, false);
        assert_eq!(end, SessionError::LinkLost);
    });
}
