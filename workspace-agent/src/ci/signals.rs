//! Signals that reach a job, and the processes that they went to.
//!
//! A signal that ends a job goes either to this process alone, and then has to be handed on to the command, or to the
//! whole process group (a terminal's Ctrl-C, a runner that cancels), and then the command has it already: a second one
//! makes many programs give up cleaning up. No program can see which of the two it was. A second process of the group
//! can: see [`signal_probe`](super::signal_probe).

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Longest wait for the witness to say by itself that it was hit too. Some senders signal the processes of a group one
/// by one.
const WITNESS_PATIENCE: Duration = Duration::from_millis(100);

/// Longest wait for an answer once the witness is asked: on a busy machine its silence says nothing.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Returns the signals that are handed on. Signals that stop and continue are the group's: a process that catches them
/// is not stopped the way its shell waits for. Signals that cannot be caught end this process.
fn handed_on() -> [SignalKind; 8] {
    [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::alarm(),
        SignalKind::window_change(),
    ]
}

/// Returns whether a signal asks the job to end.
pub(super) fn asks_to_end(number: i32) -> bool {
    let asks = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()];
    asks.iter().any(|kind| kind.as_raw_value() == number)
}

/// Signals that this process takes instead of ending.
pub(super) struct Signals {
    taken: Vec<(i32, Signal)>,
    /// SIGCHLD: a process that ignores it cannot find out how a child ended.
    _children: Signal,
}

impl Signals {
    /// Takes the signals from here on. Ignored ones stay ignored: the command inherits that, as it would from a shell.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn take() -> io::Result<Self> {
        let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
        let kinds = handed_on().into_iter().filter(|kind| !has(ignored, kind.as_raw_value()));
        let taken = kinds.map(|kind| Ok((kind.as_raw_value(), signal(kind)?)));
        Ok(Self { taken: taken.collect::<io::Result<_>>()?, _children: signal(SignalKind::child())? })
    }

    /// Waits for a signal.
    ///
    /// Cancel safety: safe; none is lost, but several of one kind may be told as one, as the system itself does.
    pub(super) async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, signal) in &mut self.taken {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Reads which signals a process ignores (proc(5), "SigIgn"): one bit each, from signal 1.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn has(mask: u64, number: i32) -> bool {
    u32::try_from(number - 1).is_ok_and(|bit| mask.checked_shr(bit).is_some_and(|rest| rest & 1 == 1))
}

/// Pure decision about which signals are handed on, and at what time.
#[derive(Debug, Default)]
pub(super) struct Handing {
    /// Signals that came, and of which the witness has not said anything yet.
    waiting: Vec<PendingSignal>,
    /// Signals that hit the witness, not long ago.
    witnessed: Vec<(i32, Instant)>,
    /// Questions so far, and answers.
    asked: u64,
    answered: u64,
}

/// A signal that waits for what the witness says.
#[derive(Debug)]
struct PendingSignal {
    number: i32,
    /// Time at which the witness is asked, or, once it was, at which the signal is handed on without an answer.
    due: Instant,
    /// Number of the question about it.
    question: Option<u64>,
}

impl Handing {
    /// Notes that a signal came.
    pub(super) fn came(&mut self, number: i32, now: Instant) {
        self.witnessed.retain(|(_, at)| now < *at + WITNESS_PATIENCE);
        if let Some(at) = self.witnessed.iter().position(|(seen, _)| *seen == number) {
            // The whole group was hit.
            self.witnessed.swap_remove(at);
        } else if !self.waiting.iter().any(|waits| waits.number == number) {
            self.waiting.push(PendingSignal { number, due: now + WITNESS_PATIENCE, question: None });
        }
    }

    /// Notes that a signal hit the witness.
    pub(super) fn witnessed(&mut self, number: i32, now: Instant) {
        if let Some(at) = self.waiting.iter().position(|waits| waits.number == number) {
            self.waiting.swap_remove(at);
        } else if self.witnessed.len() < handed_on().len() {
            self.witnessed.push((number, now));
        }
    }

    /// Hands on all signals that wait for the witness, because it is gone.
    pub(super) fn unwitnessed(&mut self, now: Instant) {
        for waits in &mut self.waiting {
            (waits.due, waits.question) = (now, Some(0));
        }
    }

    /// Returns whether the witness is to be asked by now.
    pub(super) fn asks(&mut self, now: Instant) -> bool {
        let question = self.asked + 1;
        for waits in self.waiting.iter_mut().filter(|waits| waits.question.is_none() && waits.due <= now) {
            (waits.due, waits.question) = (now + ANSWER_PATIENCE, Some(question));
            self.asked = question;
        }
        self.asked == question
    }

    /// Notes an answer of the witness, which it gives after all signals that hit it until then.
    pub(super) fn answered(&mut self, now: Instant) {
        self.answered += 1;
        let answered = self.answered;
        for waits in self.waiting.iter_mut().filter(|waits| waits.question.is_some_and(|question| question <= answered))
        {
            waits.due = now;
        }
    }

    /// Returns a signal that is to be handed on by now.
    pub(super) fn due(&mut self, now: Instant) -> Option<i32> {
        let at = self.waiting.iter().position(|waits| waits.question.is_some() && waits.due <= now)?;
        Some(self.waiting.swap_remove(at).number)
    }

    /// Returns the time of the next question or hand-over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.iter().map(|waits| waits.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: i32 = 15;
    const INT: i32 = 2;

    fn at(milliseconds: u64) -> Instant {
        thread_local!(static START: Instant = Instant::now());
        START.with(|start| *start + Duration::from_millis(milliseconds))
    }

    #[test]
    fn ignored_signals_are_read_from_what_the_system_says() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\nSigCgt:\tffffffffffffffff\n";
        let mask = ignored(status);
        for number in 0..70 {
            assert_eq!(has(mask, number), [1, 2, 13].contains(&number), "{number}");
        }
        for status in ["", "SigIgn:", "SigIgn:\tmany", "SigIgn:\t1000000000000000000000"] {
            assert_eq!(ignored(status), 0, "{status}");
        }
        assert!(has(1 << 63, 64));
    }

    #[test]
    fn signal_to_this_process_alone_is_handed_on() {
        let mut handing = Handing::default();
        handing.came(TERM, at(0));
        assert_eq!((handing.asks(at(99)), handing.next_due()), (false, Some(at(100))));
        assert_eq!((handing.asks(at(100)), handing.asks(at(100)), handing.due(at(100))), (true, false, None));
        handing.answered(at(130));
        assert_eq!(handing.due(at(130)), Some(TERM));
        assert_eq!((handing.due(at(1_000)), handing.next_due()), (None, None), "once");
    }

    #[test]
    fn silence_of_the_witness_is_no_answer_for_as_long_as_a_busy_machine_may_take() {
        let mut handing = Handing::default();
        handing.came(INT, at(0));
        assert!(handing.asks(at(100)));
        assert_eq!((handing.due(at(5_099)), handing.next_due()), (None, Some(at(5_100))));
        handing.witnessed(INT, at(5_099));
        handing.answered(at(5_099));
        assert_eq!(handing.due(at(10_000)), None);
        handing.came(TERM, at(10_000));
        assert!(handing.asks(at(10_100)));
        assert_eq!(handing.due(at(15_100)), Some(TERM), "it does not wait for ever");
    }

    #[test]
    fn answer_counts_for_what_was_asked_before_it() {
        let mut handing = Handing::default();
        handing.came(INT, at(0));
        handing.came(TERM, at(50));
        assert_eq!((handing.asks(at(100)), handing.asks(at(150))), (true, true));
        handing.answered(at(160));
        assert_eq!((handing.due(at(160)), handing.due(at(160))), (Some(INT), None));
        handing.answered(at(170));
        assert_eq!(handing.due(at(170)), Some(TERM));
    }

    #[test]
    fn signal_to_the_whole_group_is_not_handed_on_whoever_is_hit_first() {
        for witness_first in [true, false] {
            let mut handing = Handing::default();
            if witness_first {
                handing.witnessed(INT, at(0));
                handing.came(INT, at(50));
            } else {
                handing.came(INT, at(0));
                handing.witnessed(INT, at(50));
            }
            assert_eq!((handing.asks(at(1_000)), handing.due(at(1_000))), (false, None));
            // The next one is judged anew, and so is another one.
            handing.came(INT, at(2_000));
            handing.came(TERM, at(2_000));
            handing.witnessed(TERM, at(2_001));
            assert!(handing.asks(at(2_100)));
            handing.answered(at(2_101));
            assert_eq!((handing.due(at(2_101)), handing.due(at(2_101))), (Some(INT), None));
        }
    }

    #[test]
    fn witness_of_long_ago_keeps_no_signal_back_and_a_dead_one_keeps_none_waiting() {
        let mut handing = Handing::default();
        handing.witnessed(TERM, at(0));
        handing.came(TERM, at(100));
        assert_eq!((handing.asks(at(100)), handing.due(at(100))), (false, None));
        handing.unwitnessed(at(110));
        assert_eq!(handing.due(at(110)), Some(TERM));
        for _ in 0..1_000 {
            handing.witnessed(TERM, at(200));
        }
        assert!(handing.witnessed.len() <= handed_on().len());
    }

    #[test]
    fn those_who_end_a_job_are_told_from_those_who_talk_to_it() {
        let ends: Vec<i32> =
            handed_on().iter().map(|kind| kind.as_raw_value()).filter(|kind| asks_to_end(*kind)).collect();
        assert_eq!(ends, [1, 2, 3, 15]);
    }
}
