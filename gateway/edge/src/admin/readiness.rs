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

/// What readiness is judged by.
pub(super) struct Seen<'a> {
    pub(super) is_draining: bool,
    pub(super) listeners: &'a Listeners,
    pub(super) availability: &'a Availability,
    /// `None` for a gateway that is alone.
    pub(super) directory: Option<DirectorySeen>,
    /// End of the certificate that ends first.
    pub(super) certificates_end: Option<UnixSeconds>,
    pub(super) now: UnixSeconds,
}

/// The directory of all replicas' sessions, as this one sees it.
#[derive(Clone, Copy)]
pub(super) struct DirectorySeen {
    /// Other replicas that take agents.
    pub(super) others: usize,
    /// Sessions that wait for a place in it.
    pub(super) provisional: usize,
}

/// Answers not ready only for what another replica would do better: during a drain and from its announcement on, and after the loss
/// of a listener. Store, directory and certificates are reported and are no reason: what is wrong with them is wrong with every replica,
/// which a balancer would take out all at once, while each goes on for all known users. The first line is the answer, and each
/// other one a part.
pub(super) fn answer(seen: &Seen<'_>) -> (StatusCode, String) {
    let (status, first) = if seen.is_draining {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if seen.listeners.lost.load(Ordering::Relaxed) > 0 {
        (StatusCode::SERVICE_UNAVAILABLE, "a listener is lost: the log says why")
    } else {
        (StatusCode::OK, "ok")
    };
    let store = store_trouble(seen.availability).unwrap_or_else(|| "store: ok".to_owned());
    let (directory, certificates) = (directory(seen.directory), certificates(seen.certificates_end, seen.now));
    (status, format!("{first}\n{store}\n{directory}\n{certificates}\n"))
}

fn directory(seen: Option<DirectorySeen>) -> String {
    match seen {
        None => "directory: this process alone".to_owned(),
        Some(DirectorySeen { others, provisional: 0 }) => format!("directory: ok, with {others} other replicas"),
        Some(DirectorySeen { others, provisional }) => {
            format!("directory: {provisional} sessions wait for a place, with {others} other replicas")
        }
    }
}

fn certificates(end: Option<UnixSeconds>, now: UnixSeconds) -> String {
    match end {
        None => "certificates: none".to_owned(),
        Some(end) if end <= now => format!("certificates: one is not good any more since {end}"),
        Some(end) => format!("certificates: ok until {end}"),
    }
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

    /// A gateway alone, seen at second 1000, that lacks nothing.
    fn alone<'a>(listeners: &'a Listeners, availability: &'a Availability) -> Seen<'a> {
        let now = UnixSeconds::new(1_000);
        Seen { is_draining: false, listeners, availability, directory: None, certificates_end: None, now }
    }

    #[test]
    fn store_that_is_away_is_said_and_takes_nobody_out_of_a_balancer() {
        let (listeners, availability) = (Listeners::default(), Availability::default());
        let ready = || answer(&alone(&listeners, &availability));
        let well = "ok\nstore: ok\ndirectory: this process alone\ncertificates: none\n".to_owned();
        assert_eq!(ready(), (StatusCode::OK, well.clone()));
        availability.watched();
        assert!(availability.failed(Instant::now()));
        let (status, told) = ready();
        assert!(status == StatusCode::OK && told.starts_with("ok\nstore: away since 20"), "{status} {told}");
        assert!(availability.answered(Instant::now()).is_some());
        assert_eq!(ready(), (StatusCode::OK, well));
        assert!(availability.writable(false, Instant::now()));
        assert!(ready().1.starts_with("ok\nstore: away since 20"));
        let (status, told) = answer(&Seen { is_draining: true, ..alone(&listeners, &availability) });
        assert!(
            status == StatusCode::SERVICE_UNAVAILABLE && told.starts_with("draining\nstore: away"),
            "{status} {told}"
        );
    }

    #[test]
    fn directory_and_certificates_are_said_and_take_nobody_out_of_a_balancer() {
        let (listeners, availability) = (Listeners::default(), Availability::default());
        let told = |directory: Option<DirectorySeen>, end: i64| {
            let certificates_end = Some(UnixSeconds::new(end));
            let (status, told) = answer(&Seen { directory, certificates_end, ..alone(&listeners, &availability) });
            assert_eq!(status, StatusCode::OK);
            told.lines().skip(2).collect::<Vec<_>>().join("; ")
        };
        let with = |others, provisional| Some(DirectorySeen { others, provisional });
        assert_eq!(
            told(with(2, 0), 86_401),
            "directory: ok, with 2 other replicas; certificates: ok until 1970-01-02T00:00:01Z"
        );
        assert_eq!(
            told(with(0, 3), 1_000),
            "directory: 3 sessions wait for a place, with 0 other replicas; \
             certificates: one is not good any more since 1970-01-01T00:16:40Z"
        );
    }

    #[tokio::test]
    async fn listener_that_ends_by_itself_is_lost_and_one_that_was_stopped_is_not() {
        let (listeners, availability) = (Listeners::default(), Availability::default());
        let stop = CancellationToken::new();
        stop.cancel();
        listeners.clone().serving(std::future::ready(()), stop).await;
        assert_eq!(answer(&alone(&listeners, &availability)).0, StatusCode::OK);
        listeners.clone().serving(std::future::ready(()), CancellationToken::new()).await;
        assert_eq!(answer(&alone(&listeners, &availability)).0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
