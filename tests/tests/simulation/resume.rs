//! Links that break under a session: at any moment, on one side or both, in the middle of the way back, again and
//! again. Nothing is lost, repeated or moved.

use std::time::Duration;

use futures_util::future::join_all;
use tunnel_link::backoff::Backoff;
use tunnel_link::channel_io::ChannelError;
use tunnel_proto::limit::RESUME_GRACE;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::drain::{REQUEST, drain};
use crate::middle::{Cut, Deaf, MIDDLE};
use crate::net::{GATEWAY, GRACE, NOTICED, Net, Outcome, SOON, Shape, for_seeds};
use crate::shared::Shared;
use crate::user::{self, Moved};

/// Bound on how long an agent whose link broke takes to be back when nothing hinders it.
const BACK: Duration = Duration::from_secs(2);

/// The gateway, a box before it, and an agent behind the box.
fn behind_middle(seed: u64) -> (Net, u64) {
    let mut net = Net::new(seed);
    net.middle();
    net.agent_behind_middle("agent", &["well"]);
    let generation = net.up("well", 0);
    // Long enough for a link to count as one that held.
    net.run(Duration::from_millis(1_500));
    (net, generation)
}

fn is_down(shared: &Shared, side: Side) -> bool {
    shared.newest("well", side).expect("a session").is_down()
}

/// Waits until both sides have counted another link than before, and are up.
fn up_again(net: &mut Net, before: [u64; 2], limit: Duration) {
    net.until("another link carries it", limit, |shared| {
        [Side::Gateway, Side::Agent].into_iter().zip(before).all(|(side, before)| {
            let session = shared.newest("well", side).expect("a session").session;
            session.stats().links > before && !session.is_detached()
        })
    });
}

/// Checks that the session is still the one that it was, and that it works.
fn goes_on(net: &mut Net, generation: u64) {
    assert_eq!(net.up("well", 0), generation, "it is the same session");
    for witness in net.shared.sessions() {
        assert_eq!(witness.session.end(), None, "{witness:?}");
    }
    let echo = net.user("well", |session| user::echo(session, 100_000));
    let moved = net.wait("an echo over the new link", SOON, &echo);
    assert_eq!(moved.map(|moved| moved.0), Ok(100_000));
}

/// What can happen to a link.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut(Cut),
    Swallow(Deaf),
    /// The link is cut again as soon as the next one is up, or on its way.
    Again,
    /// The box starts anew.
    Bounce,
    /// Everything is late.
    Hold,
    /// The way to the box is gone.
    Partition,
    /// The session goes on over a link whose welcome never arrives.
    LostWelcome,
}

const FAULTS: [Fault; 11] = [
    Fault::Cut(Cut::Both),
    Fault::Cut(Cut::Agent),
    Fault::Cut(Cut::Gateway),
    Fault::Swallow(Deaf::Up),
    Fault::Swallow(Deaf::Down),
    Fault::Swallow(Deaf::Both),
    Fault::Again,
    Fault::Bounce,
    Fault::Hold,
    Fault::Partition,
    Fault::LostWelcome,
];

impl Fault {
    fn strike(self, net: &mut Net) {
        net.note(&format!("{self:?}"));
        let time = net.rolls.millis(1, 3_000);
        match self {
            Self::Cut(cut) => net.shared.middle.cut(cut),
            Self::Swallow(deaf) => net.shared.middle.swallow(deaf),
            Self::Again => {
                net.shared.middle.cut(Cut::Both);
                // The way back takes about as long.
                let next = net.rolls.millis(0, 400);
                net.run(next);
                net.shared.middle.cut(Cut::Both);
            }
            Self::Bounce => {
                net.sim.crash(MIDDLE);
                net.run(time / 10);
                net.shared.middle.forget();
                net.sim.bounce(MIDDLE);
            }
            Self::Hold => {
                net.sim.hold(MIDDLE, "agent");
                net.run(time);
                net.sim.release(MIDDLE, "agent");
            }
            Self::Partition => {
                net.sim.partition(MIDDLE, "agent");
                net.run(time);
                net.sim.repair(MIDDLE, "agent");
            }
            Self::LostWelcome => {
                net.shared.middle.swallow_answers(true);
                net.shared.middle.cut(Cut::Both);
                net.run(time);
                net.shared.middle.swallow_answers(false);
                net.shared.middle.cut(Cut::Both);
            }
        }
        net.note("healed");
    }
}

/// Lets users move bytes in every way while links break. Returns the log.
fn storm(seed: u64) -> Vec<String> {
    let (mut net, generation) = behind_middle(seed);
    let mut work: Vec<Outcome<Moved>> = Vec::new();
    let time = Duration::from_secs(6);
    for _ in 0..2 {
        let rolls = net.rolls.fork();
        work.push(net.user("well", move |session| user::busy(session, rolls, time)));
    }
    work.push(net.user("well", move |session| user::slowly(session, time)));
    for _ in 0..4 {
        let pause = net.rolls.millis(1, 1_500);
        net.run(pause);
        let fault = FAULTS[usize::try_from(net.rolls.next()).expect("64 bits") % FAULTS.len()];
        fault.strike(&mut net);
        // Some faults strike again before the last one was even noticed.
        if net.rolls.next().is_multiple_of(2) {
            net.run(NOTICED + BACK);
        }
    }
    for work in &work {
        let moved = net.wait("the work ends", time + 2 * NOTICED + SOON, work);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 0), "{moved:?}");
    }
    // What was cut last may still be on its way back.
    net.run(NOTICED + BACK);
    goes_on(&mut net, generation);
    let [gateway, agent] = net.links("well");
    assert!((2..=gateway).contains(&agent), "{gateway} {agent}");
    let log = net.shared.log();
    net.finish();
    log
}

#[test]
fn whatever_happens_to_links_loses_repeats_and_moves_no_byte() {
    for_seeds(0..8, |seed| {
        storm(seed);
    });
}

#[test]
fn same_seed_breaks_the_same_links_in_the_same_way() {
    let first = storm(500);
    assert_eq!(first, storm(500));
    assert_ne!(first, storm(501));
}

#[test]
fn welcomes_that_are_lost_leave_the_way_back_open_and_the_next_secret_works_too() {
    for_seeds(0..8, |seed| {
        let (mut net, generation) = behind_middle(seed);
        let work = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
        let lost = 1 + seed % 4;
        net.shared.middle.swallow_answers(true);
        for lost in 1..=lost {
            net.shared.middle.cut(Cut::Both);
            net.note("cut");
            net.until("the gateway took the session back", 2 * BACK, |shared| {
                shared.newest("well", Side::Gateway).expect("a session").session.stats().links == 1 + lost
            });
            let more = net.rolls.millis(0, 1_000);
            net.run(more);
            assert!(is_down(&net.shared, Side::Agent), "it was not told");
        }
        net.shared.middle.swallow_answers(false);
        for again in 1..=2 {
            net.shared.middle.cut(Cut::Both);
            net.note("cut");
            up_again(&mut net, [lost + again, again], 2 * BACK);
        }
        let moved = net.wait("the work ends", SOON, &work);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 50_000), "{moved:?}");
        goes_on(&mut net, generation);
        net.finish();
    });
}

#[test]
fn welcome_that_is_lost_in_silence_costs_time_and_nothing_else() {
    for_seeds(0..2, |seed| {
        let (mut net, generation) = behind_middle(seed);
        let work = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
        net.run(Duration::from_millis(300));
        net.shared.middle.swallow_answers(true);
        net.shared.middle.cut(Cut::Both);
        net.until("the gateway took the session back", 2 * BACK, |shared| {
            shared.newest("well", Side::Gateway).expect("a session").session.stats().links == 2
        });
        net.shared.middle.swallow_answers(false);
        up_again(&mut net, [2, 1], GRACE);
        let moved = net.wait("the work ends", SOON, &work);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 50_000), "{moved:?}");
        goes_on(&mut net, generation);
        net.finish();
    });
}

/// Cuts one side of the link; the other one has to find out, or is told by the next link.
fn one_side(seed: u64, cut: Cut) {
    let (mut net, generation) = behind_middle(seed);
    let work = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
    for again in 1..=2 {
        let into = net.rolls.millis(10, 500);
        net.run(into);
        let (noticing, other) =
            if cut == Cut::Agent { (Side::Agent, Side::Gateway) } else { (Side::Gateway, Side::Agent) };
        net.shared.middle.cut(cut);
        net.note("one side is cut");
        net.until("one side notices", Duration::from_secs(1), |shared| is_down(shared, noticing));
        assert!(!is_down(&net.shared, other), "the other one hears nothing");
        up_again(&mut net, [again, again], NOTICED + BACK);
    }
    let moved = net.wait("the work ends", SOON, &work);
    assert!(moved.is_ok_and(|(bytes, _)| bytes > 50_000), "{moved:?}");
    goes_on(&mut net, generation);
    assert_eq!(net.links("well"), [3, 3]);
    net.finish();
}

#[test]
fn cut_that_only_the_agent_noticed_takes_the_session_from_the_old_link_at_once() {
    for_seeds(0..8, |seed| one_side(seed, Cut::Agent));
}

#[test]
fn cut_that_only_the_gateway_noticed_waits_for_the_agent_to_notice() {
    for_seeds(0..8, |seed| one_side(seed, Cut::Gateway));
}

#[test]
fn bytes_of_an_old_link_that_arrive_after_the_next_one_took_over_do_not_count_twice() {
    for_seeds(0..8, |seed| {
        let (mut net, generation) = behind_middle(seed);
        let work = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
        let into = net.rolls.millis(100, 500);
        net.run(into);
        net.shared.middle.keep();
        net.run(Duration::from_millis(50));
        net.shared.middle.cut(Cut::Agent);
        net.note("the agent's side is cut");
        up_again(&mut net, [1, 1], BACK);
        let more = net.rolls.millis(0, 300);
        net.run(more);
        let late = net.shared.middle.hand_on();
        net.note("the old link says the rest");
        assert!(late > 10_000, "{late}");
        let moved = net.wait("the work ends", SOON, &work);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 50_000), "{moved:?}");
        goes_on(&mut net, generation);
        assert_eq!(net.links("well"), [2, 2]);
        net.finish();
    });
}

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

const HERD: usize = 300;
const HERD_HOSTS: usize = 5;

#[test]
fn herd_whose_links_all_break_comes_back_spread_out_and_loses_nothing() {
    for_seeds(0..2, |seed| {
        // The product's own back-off and grace.
        let shape = Shape { backoff: Backoff::default(), resume_grace: RESUME_GRACE, ..Shape::default() };
        let mut net = Net::shaped(seed, &shape);
        net.middle();
        let names: Vec<_> = (0..HERD).map(|number| format!("well-{number}")).collect();
        for (host, names) in names.chunks(HERD / HERD_HOSTS).enumerate() {
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
        let most = dials.iter().map(|start| {
            dials.iter().filter(|dial| (*start..*start + Duration::from_millis(20)).contains(dial)).count()
        });
        assert!(most.max().is_some_and(|most| most < HERD / 4), "{dials:?}");
        net.finish();
    });
}
