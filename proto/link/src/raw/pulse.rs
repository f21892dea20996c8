//! Detects whether the other end is still there.
//!
//! Each end says so at an interval, on its own account. An end that does not read, because the consumer behind it does
//! not take bytes, hears nothing, and must not be taken for dead by itself or by the other. So it goes on saying that
//! it is there, and for it the silence of an interval counts only if it could read all the time. A program of another
//! maker that only answers pings cannot answer those that do not get through to it: while it does not take written
//! bytes, its silence counts for nothing either.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::SILENCES_MAX;

/// The two ends' signs of life, as seen from one of them.
#[derive(Debug)]
pub(super) struct Pulse {
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    /// Whether something came since the last ping, or nothing was asked for yet.
    heard: bool,
    /// Whether for some of the time since the last ping nothing could have come, or nothing could be said.
    hindered: bool,
    silences: u32,
    /// Whether the other end pings by itself.
    is_lively: bool,
}

/// Next action of a [`Pulse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// It is time for a ping.
    Ping,
    /// The other end is gone.
    Dead,
}

impl Pulse {
    pub(super) fn new(interval: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(interval));
        Self { interval, timer, heard: true, hindered: false, silences: 0, is_lively: false }
    }

    /// Notes that something came.
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Notes that the other end said by itself that it is there, and will again.
    pub(super) fn pinged(&mut self) {
        self.is_lively = true;
    }

    /// Waits for the next action. `is_reading`: this end waits for the other one's next message; `is_writing`: it also
    /// waits for the other one to take something.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, is_reading: bool, is_writing: bool) -> Poll<Beat> {
        let hindered = !is_reading || (is_writing && !self.is_lively);
        self.hindered |= hindered;
        if self.timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.timer.as_mut().reset(Instant::now() + self.interval);
        self.silences = if self.heard || self.hindered { 0 } else { self.silences + 1 };
        (self.heard, self.hindered) = (false, hindered);
        Poll::Ready(if self.silences >= SILENCES_MAX { Beat::Dead } else { Beat::Ping })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    async fn beat(pulse: &mut Pulse, hindered: bool) -> Beat {
        poll_fn(|context| pulse.poll(context, !hindered, false)).await
    }

    #[tokio::test(start_paused = true)]
    async fn end_that_says_nothing_is_dead_after_two_pings_without_an_answer() {
        let start = Instant::now();
        let mut pulse = Pulse::new(INTERVAL);
        assert_eq!(beat(&mut pulse, false).await, Beat::Ping);
        assert_eq!(beat(&mut pulse, false).await, Beat::Ping);
        assert_eq!(beat(&mut pulse, false).await, Beat::Dead);
        assert_eq!(start.elapsed(), 3 * INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_comes_is_a_sign_of_life() {
        let mut pulse = Pulse::new(INTERVAL);
        for _ in 0..10 {
            assert_eq!(beat(&mut pulse, false).await, Beat::Ping);
            assert_eq!(beat(&mut pulse, false).await, Beat::Ping);
            pulse.heard();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_while_nothing_could_be_heard_counts_for_nothing() {
        let mut pulse = Pulse::new(INTERVAL);
        for _ in 0..10 {
            assert_eq!(beat(&mut pulse, true).await, Beat::Ping);
        }
        assert_eq!(beat(&mut pulse, false).await, Beat::Ping, "it was hindered when the interval began");
        assert_eq!(beat(&mut pulse, false).await, Beat::Ping);
        assert_eq!(beat(&mut pulse, false).await, Beat::Dead);
    }

    #[tokio::test(start_paused = true)]
    async fn end_that_takes_nothing_is_dead_when_it_stops_to_ping_by_itself() {
        let mut pulse = Pulse::new(INTERVAL);
        let writing = async |pulse: &mut Pulse| poll_fn(|context| pulse.poll(context, true, true)).await;
        for _ in 0..10 {
            assert_eq!(writing(&mut pulse).await, Beat::Ping, "it may never have pinged");
        }
        pulse.pinged();
        pulse.heard();
        for _ in 0..2 {
            assert_eq!(writing(&mut pulse).await, Beat::Ping);
        }
        assert_eq!(writing(&mut pulse).await, Beat::Dead);
    }
}
