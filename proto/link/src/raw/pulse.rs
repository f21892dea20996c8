//! Whether the other end is still there.
//!
//! Each end says so at an interval, on its own account. An end that does not read, because what is behind it does not
//! take bytes, hears nothing, and must not be taken for dead by itself or by the other: so the silence of an interval
//! counts only if this end could read and write all the time, and an end that cannot read goes on saying that it is
//! there.

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
    /// Something came since the last ping, or nothing was asked for yet.
    heard: bool,
    /// For some of the time since the last ping nothing could have come, or nothing could be said.
    hindered: bool,
    silences: u32,
}

/// What a [`Pulse`] has to say.
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
        Self { interval, timer, heard: true, hindered: false, silences: 0 }
    }

    /// Something came.
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Waits for the next thing to do. `hindered`: this end waits for something else than the other end's next message.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, hindered: bool) -> Poll<Beat> {
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
        poll_fn(|context| pulse.poll(context, hindered)).await
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
}
