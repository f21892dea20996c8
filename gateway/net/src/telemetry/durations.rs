//! Histogram of request durations, counted without a lock: each request passes here.

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

/// Origin of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The app in the workspace.
    App,
    /// The gateway itself: its pages, its API, its failures.
    Gateway,
}

/// A histogram for each origin. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Durations(Arc<[Series; 2]>);

#[derive(Debug, Default)]
struct Series {
    /// One count for each bound, and one for durations above all of them.
    counts: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl Durations {
    /// Counts one request.
    pub(super) fn observe(&self, by: AnsweredBy, took: Duration) {
        let [app, gateway] = &*self.0;
        let series = match by {
            AnsweredBy::App => app,
            AnsweredBy::Gateway => gateway,
        };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(count) = series.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        series.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (by, series) in ["app", "gateway"].into_iter().zip(&*self.0) {
            let bounds = BOUNDS_MICROS.iter().map(|micros| Duration::from_micros(*micros).as_secs_f64());
            let counts = series.counts.iter().map(|count| count.load(Ordering::Relaxed));
            let buckets: Vec<(f64, u64)> = bounds.chain(std::iter::once(f64::INFINITY)).zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let seconds = Duration::from_micros(series.micros.load(Ordering::Relaxed)).as_secs_f64();
            let labels = [("by", by)];
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
}
