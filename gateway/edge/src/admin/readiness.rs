//! Readiness: whether a balancer may send users here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use gateway_net::availability::Availability;
use gateway_store::wall_clock;
use gateway_types::UnixSeconds;

/// Listeners that are being served; counts the lost ones.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    /// Number that stopped accepting although they were not told to stop.
    lost: Arc<AtomicUsize>,
}

/// A listener that is being served.
struct Serving {
    lost: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.stop.is_cancelled() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Listeners {
    /// Serves a listener, and records a loss if that ends before `stop` for any reason.
    pub async fn serving(self, served: impl Future<Output = ()>, stop: CancellationToken) {
        let serving = Serving { lost: self.lost, stop };
        served.await;
        drop(serving);
    }
}

/// Answers not ready during a drain and from its announcement on, and after the loss of a listener. A store that is away is reported, but is no
/// reason: every replica would be taken out of the balancer at once, while each goes on for all known users.
pub(super) fn answer(is_draining: bool, listeners: &Listeners, availability: &Availability) -> (StatusCode, String) {
    if is_draining {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned());
    }
    if listeners.lost.load(Ordering::Relaxed) > 0 {
        return (StatusCode::SERVICE_UNAVAILABLE, "a listener is lost: the log says why\n".to_owned());
    }
    let trouble = store_trouble(availability).map(|trouble| trouble + "\n").unwrap_or_default();
    (StatusCode::OK, format!("ok\n{trouble}"))
}

/// Describes since when the store is away, or cannot be written.
pub(super) fn store_trouble(availability: &Availability) -> Option<String> {
    let since = |since: Instant| {
        let seconds = i64::try_from(since.elapsed().as_secs()).unwrap_or(i64::MAX);
        UnixSeconds::new(wall_clock().get().saturating_sub(seconds))
    };
    if let Some(outage) = availability.outage() {
        return Some(format!("store: away since {}", since(outage.since.into())));
    }
    let unwritable_since = availability.unwritable_since()?;
    Some(format!("store: away since {} (it can be read, and not written)", since(unwritable_since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_that_is_away_is_said_and_takes_nobody_out_of_a_balancer() {
        let (listeners, availability) = (Listeners::default(), Availability::default());
        let ready = || answer(false, &listeners, &availability);
        assert_eq!(ready(), (StatusCode::OK, "ok\n".to_owned()));
        availability.watched();
        assert!(availability.failed(Instant::now()));
        let (status, told) = ready();
        assert!(status == StatusCode::OK && told.starts_with("ok\nstore: away since 20"), "{status} {told}");
        assert!(availability.answered(Instant::now()).is_some());
        assert_eq!(ready(), (StatusCode::OK, "ok\n".to_owned()));
        assert!(availability.writable(false, Instant::now()));
        assert!(ready().1.starts_with("ok\nstore: away since 20"));
        assert_eq!(answer(true, &listeners, &availability).0, StatusCode::SERVICE_UNAVAILABLE, "a drain");
    }

    #[tokio::test]
    async fn listener_that_ends_by_itself_is_lost_and_one_that_was_stopped_is_not() {
        let (listeners, availability) = (Listeners::default(), Availability::default());
        let stop = CancellationToken::new();
        stop.cancel();
        listeners.clone().serving(std::future::ready(()), stop).await;
        assert_eq!(answer(false, &listeners, &availability).0, StatusCode::OK);
        listeners.clone().serving(std::future::ready(()), CancellationToken::new()).await;
        assert_eq!(answer(false, &listeners, &availability).0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
