//! Histograms of durations, counted without a lock: each request passes here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Upper bounds of the buckets, in microseconds: from the gateway's own time to the longest of an app.
const BOUNDS_MICROS: [u64; 15] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 60_000_000,
];

/// Kinds of one thing that takes time: the values of a label, each with a histogram of its own.
pub(super) trait Kind: Copy + fmt::Debug + Send + Sync + 'static {
    /// Name of the label.
    const LABEL: &'static str;
    /// Values of the label, in the order of [`Kind::place`].
    const NAMES: &'static [&'static str];

    /// Returns its place in [`Kind::NAMES`].
    fn place(self) -> usize;
}

/// Origin of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The app in the workspace.
    App,
    /// The gateway itself: its pages, its API, its failures.
    Gateway,
}

impl Kind for AnsweredBy {
    const LABEL: &'static str = "by";
    const NAMES: &'static [&'static str] = &["app", "gateway"];

    fn place(self) -> usize {
        match self {
            Self::App => 0,
            Self::Gateway => 1,
        }
    }
}

/// Part of the time that a request to an app takes, until its answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In the gateway, before the request is sent: decisions, look-ups, the wait for a session or a permit.
    Queue,
    /// On the way to the workspace and back: a round trip of the link, as last measured.
    Tunnel,
    /// The rest: the app's, with the connection to it.
    App,
}

impl Kind for Phase {
    const LABEL: &'static str = "phase";
    const NAMES: &'static [&'static str] = &["queue", "tunnel", "app"];

    fn place(self) -> usize {
        match self {
            Self::Queue => 0,
            Self::Tunnel => 1,
            Self::App => 2,
        }
    }
}

/// A system that the gateway waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The database: one statement.
    Store,
    /// The identity provider: one request.
    Provider,
}

impl Kind for Dependency {
    const LABEL: &'static str = "of";
    const NAMES: &'static [&'static str] = &["store", "provider"];

    fn place(self) -> usize {
        match self {
            Self::Store => 0,
            Self::Provider => 1,
        }
    }
}

/// A histogram for each kind. Clones share it.
#[derive(Debug)]
pub(super) struct Durations<K> {
    series: Arc<[Series]>,
    kinds: std::marker::PhantomData<K>,
}

impl<K> Clone for Durations<K> {
    fn clone(&self) -> Self {
        Self { series: self.series.clone(), kinds: self.kinds }
    }
}

impl<K: Kind> Default for Durations<K> {
    fn default() -> Self {
        Self { series: K::NAMES.iter().map(|_| Series::default()).collect(), kinds: std::marker::PhantomData }
    }
}

#[derive(Debug, Default)]
struct Series {
    /// One count for each bound, and one for durations above all of them.
    counts: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl<K: Kind> Durations<K> {
    /// Counts one duration.
    pub(super) fn observe(&self, kind: K, took: Duration) {
        let Some(series) = self.series.get(kind.place()) else { return };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(count) = series.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        series.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl<K: Kind> EncodeMetric for Durations<K> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, series) in K::NAMES.iter().zip(&*self.series) {
            let bounds = BOUNDS_MICROS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64());
            let counts = series.counts.iter().map(|count| count.load(Ordering::Relaxed));
            let buckets: Vec<(f64, u64)> = bounds.chain(std::iter::once(f64::INFINITY)).zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let seconds = Duration::from_micros(series.micros.load(Ordering::Relaxed)).as_secs_f64();
            let labels = [(K::LABEL, *name)];
            encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    #[test]
    fn durations_are_in_the_bucket_that_bounds_them() {
        let durations = Durations::default();
        for micros in [1, 500, 501, 60_000_000, 60_000_001] {
            durations.observe(AnsweredBy::App, Duration::from_micros(micros));
        }
        let mut registry = Registry::default();
        registry.register_with_unit("took", "Time", Unit::Seconds, durations);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "took_seconds_bucket{le=\"0.0005\",by=\"app\"} 2",
            "took_seconds_bucket{le=\"0.001\",by=\"app\"} 3",
            "took_seconds_bucket{le=\"60.0\",by=\"app\"} 4",
            "took_seconds_bucket{le=\"+Inf\",by=\"app\"} 5",
            "took_seconds_count{by=\"app\"} 5",
            "took_seconds_count{by=\"gateway\"} 0",
            "took_seconds_sum{by=\"app\"} 120.001003",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn kinds_are_in_the_place_of_their_name() {
        fn place<K: Kind>(kind: K) -> &'static str {
            K::NAMES[kind.place()]
        }
        assert_eq!([AnsweredBy::App, AnsweredBy::Gateway].map(place), ["app", "gateway"]);
        assert_eq!([Phase::Queue, Phase::Tunnel, Phase::App].map(place), ["queue", "tunnel", "app"]);
        assert_eq!([Dependency::Store, Dependency::Provider].map(place), ["store", "provider"]);
    }
}
