//! Limits how long a command retries a gateway that is away, which may be starting anew.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::ClientError;

/// Interval between attempts to reach a gateway that is away, or that broke off.
pub(super) const AGAIN_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time that a gateway may be out of reach, one attempt after the other. It may be starting anew; a wrong
/// address stays one.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Time for which the gateway has been away so far.
#[derive(Debug, Default)]
pub(super) struct Patience {
    away_since: Option<Instant>,
}

impl Patience {
    /// Notes that the gateway is there.
    pub(super) fn reached(&mut self) {
        self.away_since = None;
    }

    /// Tells whether to try again after this error.
    pub(super) fn lasts(&mut self, error: &ClientError, now: Instant) -> bool {
        let is_passing = error.is_passing() || error.code() == Some("too_many_requests");
        is_passing && now.duration_since(*self.away_since.get_or_insert(now)) < AWAY_MAX
    }
}

/// Sends a request that may be repeated, until the gateway answers, is away for too long, or `by`. `tell` hears of each
/// attempt that is followed by another.
///
/// # Errors
/// Error of the last attempt.
///
/// # Cancel safety
/// Dropped, it may have sent the request.
pub(super) async fn patiently<T>(
    by: Instant,
    mut tell: impl FnMut(&ClientError),
    ask: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut patience = Patience::default();
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let again = Instant::now() + AGAIN_INTERVAL;
        if again >= by || !patience.lasts(&error, Instant::now()) {
            return Err(error);
        }
        tell(&error);
        tokio::time::sleep_until(again).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn refused(status: u16, code: &str) -> ClientError {
        let refusal = serde_json::from_str(&format!(r#"{{"status":{status},"code":"{code}"}}"#)).unwrap();
        ClientError::Refused(Box::new(refusal))
    }

    /// Asks a gateway that answers after so many attempts that it does not; returns the answer, the attempts and the time.
    async fn asked(failures: usize, error: (u16, &str), within: u64) -> (bool, usize, u64) {
        let (began, attempts, told) = (Instant::now(), Cell::new(0), Cell::new(0));
        let ask = async || {
            attempts.set(attempts.get() + 1);
            if attempts.get() > failures { Ok(()) } else { Err(refused(error.0, error.1)) }
        };
        let by = began + Duration::from_secs(within);
        let is_answered = patiently(by, |_| told.set(told.get() + 1), ask).await.is_ok();
        assert_eq!(told.get() + 1, attempts.get(), "each but the last is told");
        (is_answered, attempts.get(), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn gateway_that_is_away_is_asked_again_for_a_minute_and_one_that_says_no_is_not() {
        assert_eq!(asked(0, (503, "draining"), 900).await, (true, 1, 0));
        assert_eq!(asked(3, (503, "draining"), 900).await, (true, 4, 6));
        assert_eq!(asked(3, (429, "too_many_requests"), 900).await, (true, 4, 6));
        assert_eq!(asked(usize::MAX, (503, "draining"), 900).await, (false, 31, 60));
        assert_eq!(asked(usize::MAX, (503, "draining"), 9).await, (false, 5, 8));
        assert_eq!(asked(1, (404, "no_such_agent"), 900).await, (false, 1, 0));
    }
}
