//! Keepalive and round trip of the link: one ping at a time.

use std::time::{Duration, Instant};

use crate::limit::PING_INTERVAL_BUSY;

/// Pings, their answers and the round trip.
#[derive(Debug)]
pub(super) struct Keepalive {
    interval: Duration,
    timeout: Duration,
    state: KeepaliveState,
    /// Whether bytes flowed since the last ping, so that the round trip is worth measuring sooner.
    busy: bool,
    token: u64,
    last_heard: Instant,
    /// The two latest measurements; their minimum is least disturbed by queues.
    round_trips: [Option<Duration>; 2],
    pong_due: Option<u64>,
}

#[derive(Debug)]
enum KeepaliveState {
    /// A ping goes out at this time.
    Quiet { since: Instant },
    /// A ping is to be sent; a link that does not even take it is as dead as one that does not answer.
    Due { since: Instant },
    /// A ping was sent; silence until the timeout ends the session.
    Asked { at: Instant },
}

/// The peer has been silent for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedOut;

impl Keepalive {
    /// Starts with a ping that is due at once, so that the round trip is known early.
    pub(super) fn new(interval: Duration, timeout: Duration, now: Instant) -> Self {
        Self {
            interval,
            timeout,
            state: KeepaliveState::Due { since: now },
            busy: false,
            token: 0,
            last_heard: now,
            round_trips: [None; 2],
            pong_due: None,
        }
    }

    /// Starts again on a new link, whose round trip is not known yet.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { token: self.token, ..Self::new(self.interval, self.timeout, now) };
    }

    /// Returns the least disturbed of the latest measurements.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trips.iter().flatten().min().copied()
    }

    /// Pings the peer now, because its answer carries an acknowledgement that is waited for. One ping at a time.
    pub(super) fn probe(&mut self, now: Instant) {
        if let KeepaliveState::Quiet { .. } = self.state {
            self.state = KeepaliveState::Due { since: now };
        }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    pub(super) fn payload_flowed(&mut self) {
        self.busy = true;
    }

    pub(super) fn handle_ping(&mut self, token: u64) {
        // Only the latest is answered: an honest peer asks one at a time, and a flood must not queue.
        self.pong_due = Some(token);
    }

    pub(super) fn handle_pong(&mut self, now: Instant, token: u64) {
        if let KeepaliveState::Asked { at } = self.state
            && token == self.token
        {
            self.round_trips = [Some(now.saturating_duration_since(at)), self.round_trips.first().copied().flatten()];
            self.state = KeepaliveState::Quiet { since: now };
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), TimedOut> {
        match self.state {
            KeepaliveState::Quiet { .. } if self.deadline() <= now => self.state = KeepaliveState::Due { since: now },
            KeepaliveState::Asked { .. } | KeepaliveState::Due { .. } if self.deadline() <= now => {
                return Err(TimedOut);
            }
            KeepaliveState::Quiet { .. } | KeepaliveState::Asked { .. } | KeepaliveState::Due { .. } => {}
        }
        Ok(())
    }

    /// Returns the time of the next [`Keepalive::handle_timeout`].
    pub(super) fn deadline(&self) -> Instant {
        match self.state {
            KeepaliveState::Quiet { since } => {
                since + if self.busy { self.interval.min(PING_INTERVAL_BUSY) } else { self.interval }
            }
            // Anything heard proves life, even if the pong is stuck behind bulk.
            KeepaliveState::Asked { at: since } | KeepaliveState::Due { since } => {
                since.max(self.last_heard) + self.timeout
            }
        }
    }

    pub(super) fn wants_transmit(&self) -> bool {
        self.pong_due.is_some() || matches!(self.state, KeepaliveState::Due { .. })
    }

    pub(super) fn poll_pong(&mut self) -> Option<u64> {
        self.pong_due.take()
    }

    pub(super) fn poll_ping(&mut self, now: Instant) -> Option<u64> {
        match self.state {
            KeepaliveState::Due { .. } => {
                self.token = self.token.wrapping_add(1);
                self.state = KeepaliveState::Asked { at: now };
                self.busy = false;
                Some(self.token)
            }
            KeepaliveState::Quiet { .. } | KeepaliveState::Asked { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(20);
    const TIMEOUT: Duration = Duration::from_secs(10);

    fn instant() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
        Instant::now()
    }

    #[test]
    fn silence_after_a_ping_times_out_and_any_frame_proves_life() {
        let start = instant();
        let mut keepalive = Keepalive::new(INTERVAL, TIMEOUT, start);
        assert_eq!(keepalive.poll_ping(start), Some(1));
        assert_eq!(keepalive.poll_ping(start), None, "one at a time");
        assert_eq!(keepalive.handle_timeout(start + TIMEOUT - Duration::from_millis(1)), Ok(()));
        keepalive.heard(start + Duration::from_secs(5));
        assert_eq!(keepalive.handle_timeout(start + TIMEOUT), Ok(()));
        assert_eq!(keepalive.handle_timeout(start + Duration::from_secs(15)), Err(TimedOut));
    }

    #[test]
    fn round_trip_is_the_smaller_of_the_latest_two_and_wrong_tokens_do_not_count() {
        let start = instant();
        let mut keepalive = Keepalive::new(INTERVAL, TIMEOUT, start);
        assert_eq!(keepalive.poll_ping(start), Some(1));
        keepalive.handle_pong(start, 99);
        assert_eq!(keepalive.round_trip(), None);
        keepalive.handle_pong(start + Duration::from_millis(80), 1);
        assert_eq!(keepalive.round_trip(), Some(Duration::from_millis(80)));
        let second = keepalive.deadline();
        assert_eq!(second, start + Duration::from_millis(80) + INTERVAL);
        assert_eq!(keepalive.handle_timeout(second), Ok(()));
        assert_eq!(keepalive.poll_ping(second), Some(2));
        keepalive.handle_pong(second + Duration::from_millis(300), 2);
        assert_eq!(keepalive.round_trip(), Some(Duration::from_millis(80)));
    }

    #[test]
    fn busy_link_is_measured_every_second() {
        let start = instant();
        let mut keepalive = Keepalive::new(INTERVAL, TIMEOUT, start);
        assert_eq!(keepalive.poll_ping(start), Some(1));
        keepalive.handle_pong(start, 1);
        keepalive.payload_flowed();
        assert_eq!(keepalive.deadline(), start + PING_INTERVAL_BUSY);
    }
}
