//! Load of a run, and its objective.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{ArrivalRate, seconds, seconds_option};

/// Distribution of arrivals over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Independent of each other, as people are: exponential gaps.
    Poisson,
    /// Equal gaps.
    Uniform,
}

/// Load of a run; with the seed it determines every arrival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSpec {
    /// Arrivals per second, or as many as go (closed loop).
    pub rate: ArrivalRate,
    /// Distribution of arrivals.
    pub arrivals: Arrivals,
    /// Connections kept open, or at most used at once.
    pub connections: usize,
    /// Measured time.
    #[serde(with = "seconds")]
    pub duration: Duration,
    /// Time before the measured time, with the same load.
    #[serde(with = "seconds")]
    pub warm_up: Duration,
    /// Seed of arrivals and of payloads.
    pub seed: u64,
    /// Payload bytes of one message, request body or response body.
    pub size: u64,
    /// Threads that generate the load.
    pub workers: usize,
    /// An exchange that takes longer has failed.
    #[serde(with = "seconds")]
    pub timeout: Duration,
    /// Objective of a passing run.
    pub slo: Slo,
    /// Settings of one profile (`--set agents=1000`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl LoadSpec {
    /// Returns a setting of the profile, or its default.
    ///
    /// # Errors
    /// The setting is there and cannot be read.
    pub fn setting<T>(&self, key: &str, default: T) -> anyhow::Result<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        match self.settings.get(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|error| anyhow::anyhow!("--set {key}={text}: {error}")),
        }
    }
}

/// A service level objective: the bounds of a passing run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// Least part of the offered load that must be carried (0 to 1); says nothing in a closed loop.
    pub carried: f64,
    /// Part of the ended exchanges that may fail (0 to 1), exclusive.
    pub failed: f64,
    /// Bound of the 99th percentile of latency from intended start; none: not judged.
    #[serde(with = "seconds_option", default)]
    pub p99: Option<Duration>,
}

impl Default for Slo {
    fn default() -> Self {
        Self { carried: 0.9, failed: 0.01, p99: Some(Duration::from_millis(500)) }
    }
}
