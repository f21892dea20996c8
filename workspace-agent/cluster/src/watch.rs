//! Watch that goes on after every error: with longer waits each time, and one log line. An agent may lack the right to
//! watch for as long as it runs, and an API server may be away.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{debug, info, warn};
use work_queue::RetryDelays;

/// Waits after failures.
const WAITS: RetryDelays = RetryDelays { first: Duration::from_secs(1), max: Duration::from_secs(30) };

/// Time after which a failure counts as a first one again: a watch to which nothing happens says nothing while it
/// works.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Time after which a failure that lasts is logged again.
const TOLD_PERIOD: Duration = Duration::from_secs(60 * 60);

const _: () = assert!(WAITS.max.as_secs() < FORGOTTEN_AFTER.as_secs());

/// Watch on objects of one kind. Never ends.
pub(crate) struct ObjectWatch<K> {
    what: String,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    failures: Failures,
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> ObjectWatch<K> {
    /// Makes a watch; the log calls it `what`.
    pub(crate) fn new(what: impl Into<String>, api: kube::Api<K>, config: watcher::Config) -> Self {
        Self::of(what.into(), watcher(api, config))
    }
}

impl<K> ObjectWatch<K> {
    fn of(what: String, events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static) -> Self {
        Self { what, events: events.boxed(), failures: Failures::default() }
    }

    /// Returns the next event.
    ///
    /// Cancel safety: no event is lost; a wait after a failure is cut short.
    pub(crate) async fn next(&mut self) -> Event<K> {
        loop {
            let error = match self.events.next().await {
                Some(Ok(event)) => {
                    if is_success(&event) && self.failures.end() {
                        info!(what = self.what, "is watched again");
                    }
                    return event;
                }
                Some(Err(error)) => error,
                None => std::future::pending().await,
            };
            let (wait, is_news) = self.failures.add(Instant::now(), rand::random());
            if is_news {
                warn!(%error, what = self.what, "cannot be watched, trying again");
            } else {
                debug!(%error, what = self.what, ?wait, "still cannot be watched");
            }
            tokio::time::sleep(wait).await;
        }
    }
}

/// Returns whether an event shows that watching works. The beginning of a list does not: a list that is refused has
/// begun too.
fn is_success<K>(event: &Event<K>) -> bool {
    match event {
        Event::Init | Event::InitApply(_) => false,
        Event::InitDone | Event::Apply(_) | Event::Delete(_) => true,
    }
}

/// Failures in a row.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    last: Option<Instant>,
    told: Option<Instant>,
}

impl Failures {
    /// Adds a failure. Returns how long to wait, and whether it has to be logged. `roll` is uniform in `0.0..1.0`.
    fn add(&mut self, now: Instant, roll: f64) -> (Duration, bool) {
        let since = |before: Option<Instant>| before.map(|before| now.duration_since(before));
        if since(self.last).is_some_and(|since| since > FORGOTTEN_AFTER) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
        let is_news = since(self.told).is_none_or(|since| since >= TOLD_PERIOD);
        if is_news {
            self.told = Some(now);
        }
        // At least half of it: a request that is refused at once would be sent again at once.
        (WAITS.after(self.count, 0.5 + roll / 2.0), is_news)
    }

    /// Notes a success. Returns whether failures were logged.
    fn end(&mut self) -> bool {
        std::mem::take(self).told.is_some()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;

    use super::*;

    fn failed() -> watcher::Result<Event<Pod>> {
        Err(watcher::Error::NoResourceVersion)
    }

    /// Waits for the last of these events; returns how long that took.
    async fn took(events: Vec<watcher::Result<Event<Pod>>>) -> Duration {
        let began = Instant::now();
        let count = events.iter().filter(|event| event.is_ok()).count();
        let mut watch = ObjectWatch::of("pods".to_owned(), stream::iter(events));
        for _ in 0..count {
            watch.next().await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn list_that_begins_and_fails_is_begun_ever_more_seldom() {
        let mut refused = Vec::new();
        let mut broken_off = Vec::new();
        for _ in 0..20 {
            refused.extend([Ok(Event::Init), failed()]);
            broken_off.extend([Ok(Event::Init), Ok(Event::InitApply(Pod::default())), failed()]);
        }
        for mut events in [refused, broken_off] {
            events.push(Ok(Event::InitDone));
            let took = took(events).await;
            assert!(took > WAITS.max / 2 * 15, "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_worked_since_is_begun_again_at_once() {
        for works in [Event::InitDone, Event::Apply(Pod::default()), Event::Delete(Pod::default())] {
            let mut events = Vec::new();
            for _ in 0..20 {
                events.extend([failed(), Ok(Event::Init), Ok(works.clone())]);
            }
            let took = took(events).await;
            assert!(took <= WAITS.first * 20, "{took:?}");
        }
    }

    #[test]
    fn failure_that_lasts_is_told_once_an_hour() {
        let (mut failures, began) = (Failures::default(), Instant::now());
        let told: Vec<_> =
            (0..200_u64).filter(|minute| failures.add(began + Duration::from_secs(60 * minute), 0.5).1).collect();
        assert_eq!(told, [0, 60, 120, 180]);
        assert!(failures.end() && !failures.end());
        assert!(failures.add(began + Duration::from_secs(60 * 200), 0.5).1, "another one");
    }

    proptest! {
        #[test]
        fn wait_grows_up_to_its_ceiling_and_begins_anew_after_a_quiet_time(
            count in 1..40_usize, roll in 0.0..1.0_f64, quiet in 121..10_000_u64,
        ) {
            let mut failures = Failures::default();
            let mut now = Instant::now();
            let mut before = Duration::ZERO;
            for _ in 0..count {
                let (wait, _) = failures.add(now, roll);
                prop_assert!(wait >= before && wait <= WAITS.max);
                (before, now) = (wait, now + wait);
            }
            let (wait, _) = failures.add(now + Duration::from_secs(quiet), roll);
            prop_assert!(wait <= WAITS.first && wait >= WAITS.first / 2);
        }
    }
}
