//! Record of a run's measurements, which is written as JSON and shown in reports.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::clock::float;
use crate::load::LoadSpec;
use crate::machine::MachineFacts;
use crate::profile::ProfileName;
use crate::verdict::Finding;

/// One run of one profile against one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Profile of the run.
    pub profile: ProfileName,
    /// `gateway`, or a peer's name.
    pub subject: String,
    /// Beginning of the measured time.
    pub started_unix_ms: u64,
    /// Machine that generated the load.
    pub machine: MachineFacts,
    /// Requested load.
    pub load: LoadSpec,
    /// Measured time in seconds; shorter than asked for if the run was interrupted.
    pub measured_s: f64,
    /// Each second of the measured time, by the end of exchanges; those that ended after it stand in one more.
    pub seconds: Vec<Second>,
    /// Latency from the intended start.
    pub latency: Latency,
    /// Latency from the actual send.
    pub service: Latency,
    /// Delay of the generator itself: from the time at which it could have sent to the actual send.
    pub generator_late: Latency,
    /// Part of the measured time that the busiest worker thread ran or waited for a processor (0 to 1).
    pub generator_busy: f64,
    /// Arrivals in the measured time.
    pub offered: u64,
    /// Of these, those that ended well.
    pub carried: u64,
    /// Failed ones, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Payload bytes from the app.
    pub bytes_down: u64,
    /// Payload bytes to the app.
    pub bytes_up: u64,
    /// Resources that the subject's processes used, if these are known.
    pub usage: Option<Usage>,
    /// Figures of the profile, unit in the key: `added_p99_ms`.
    pub figures: BTreeMap<String, f64>,
    /// Notes for a reader.
    pub notes: Vec<String>,
    /// Verdict about the run.
    pub verdict: Finding,
}

impl RunOutcome {
    /// Returns how many failed.
    #[must_use]
    pub fn failed_total(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Returns exchanges carried per second of measured time.
    #[must_use]
    pub fn carried_per_second(&self) -> f64 {
        if self.measured_s > 0.0 { float(self.carried) / self.measured_s } else { 0.0 }
    }

    /// Returns payload bytes of both directions per second of measured time.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        if self.measured_s > 0.0 { float(self.bytes_down + self.bytes_up) / self.measured_s } else { 0.0 }
    }
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the measured time began.
    pub at: u64,
    /// Arrivals.
    pub offered: u64,
    /// Ended well.
    pub carried: u64,
    /// Failed.
    pub failed: u64,
    /// Payload bytes from the app.
    pub bytes_down: u64,
    /// Payload bytes to the app.
    pub bytes_up: u64,
    /// Median latency from intended start.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Largest.
    pub max_us: u64,
}

/// A distribution of latencies, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of recorded latencies.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Value and count of each bucket with something in it, rising.
    pub histogram: Vec<(u64, u64)>,
}

impl Latency {
    /// Reads a histogram of microseconds.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| if histogram.is_empty() { 0 } else { histogram.value_at_quantile(quantile) };
        Self {
            count: histogram.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: if histogram.is_empty() { 0 } else { histogram.max() },
            mean: if histogram.is_empty() { 0.0 } else { histogram.mean() },
            histogram: histogram
                .iter_recorded()
                .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
                .collect(),
        }
    }

    /// Returns the value below which a part of the recorded latencies lies (0 to 1).
    #[must_use]
    pub fn at(&self, quantile: f64) -> u64 {
        let wanted = quantile.clamp(0.0, 1.0) * float(self.count);
        let mut seen = 0;
        for (value, count) in &self.histogram {
            seen += count;
            if float(seen) >= wanted {
                return *value;
            }
        }
        self.max
    }
}

/// Resources that a subject's processes used during the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of the server side, seconds.
    pub gateway_cpu_s: f64,
    /// Processor time of the agent side, seconds.
    pub agent_cpu_s: f64,
    /// Processor time of the app, seconds.
    pub app_cpu_s: f64,
    /// Resident memory of the server side at the end.
    pub gateway_rss_bytes: u64,
    /// Resident memory of the agent side at the end.
    pub agent_rss_bytes: u64,
    /// Proportional share of memory of the server side at the end.
    pub gateway_pss_bytes: u64,
    /// Proportional share of memory of the agent side at the end.
    pub agent_pss_bytes: u64,
    /// Largest resident memory of the server side that was seen.
    pub gateway_rss_peak_bytes: u64,
    /// Largest resident memory of the agent side that was seen.
    pub agent_rss_peak_bytes: u64,
}
