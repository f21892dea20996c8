//! Links that break under a session: at any moment, on one side or both, in the middle of the way back, again and
//! again. Nothing is lost, repeated or moved.

use std::time::Duration;

use tunnel_proto::mux::Side;

use crate::middle::{Cut, Deaf, MIDDLE};
use crate::net::{NOTICED, Net, Outcome, SOON, for_seeds};
use crate::shared::Shared;
use crate::user::{self, Moved};

/// Bound on how long an agent whose link broke takes to be back when nothing hinders it.
pub(crate) const BACK: Duration = Duration::from_secs(2);

/// The gateway, a box before it, and an agent behind the box.
pub(crate) fn behind_middle(seed: u64) -> (Net, u64) {
    let mut net = Net::new(seed);
    net.middle();
    net.agent_behind_middle("agent", &["well"]);
    let generation = net.up("well", 0);
    // Long enough for a link to count as one that held.
    net.run(Duration::from_millis(1_500));
    (net, generation)
}

pub(crate) fn is_down(shared: &Shared, side: Side) -> bool {
    shared.newest("well", side).expect("a session").is_down()
}

/// Waits until both sides have counted another link than before, and are up.
pub(crate) fn up_again(net: &mut Net, before: [u64; 2], limit: Duration) {
    net.until("another link carries it", limit, |shared| {
        [Side::Gateway, Side::Agent].into_iter().zip(before).all(|(side, before)| {
            let session = shared.newest("well", side).expect("a session").session;
            session.stats().links > before && !session.is_detached()
        })
    });
}

/// Checks that the session is still the one that it was, and that it works.
pub(crate) fn goes_on(net: &mut Net, generation: u64) {
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
    for_seeds(0..4, |seed| one_side(seed, Cut::Agent));
}

#[test]
fn cut_that_only_the_gateway_noticed_waits_for_the_agent_to_notice() {
    for_seeds(0..4, |seed| one_side(seed, Cut::Gateway));
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
