//! Resources that a subject's processes use during a measurement, and a check for an idle machine before it.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::float;
use crate::lab::usage::{cpu_seconds_of, memory_of, reset_peak, tree};
use crate::outcome::Usage;

/// Part of the processors' time below which a machine is idle.
const BUSY_MAX: f64 = 0.10;

/// Interval of checks while waiting.
const LOOK: Duration = Duration::from_millis(500);

/// The process trees of one subject.
#[derive(Debug, Clone, Default)]
pub struct Trees {
    /// Roots of the half that users reach.
    pub server: Vec<u32>,
    /// Roots of the half beside the app.
    pub agent: Vec<u32>,
    /// Roots of the app.
    pub app: Vec<u32>,
}

/// Processor time up to some moment.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    server: f64,
    agent: f64,
    app: f64,
}

fn whole(roots: &[u32]) -> Vec<u32> {
    roots.iter().flat_map(|root| tree(*root)).collect()
}

impl Trees {
    /// Begins to measure: peaks of memory are forgotten, processor time is read.
    #[must_use]
    pub fn begin(&self) -> Reading {
        for pid in whole(&self.server).into_iter().chain(whole(&self.agent)) {
            if let Err(error) = reset_peak(pid) {
                tracing::debug!(%error, pid, "the peak of a process's memory could not be reset");
            }
        }
        self.read()
    }

    fn read(&self) -> Reading {
        let seconds = |roots: &[u32]| cpu_seconds_of(&whole(roots));
        Reading { server: seconds(&self.server), agent: seconds(&self.agent), app: seconds(&self.app) }
    }

    /// Returns the usage since `begin`.
    #[must_use]
    pub fn since(&self, begin: Reading) -> Usage {
        let now = self.read();
        let server = memory_of(&whole(&self.server));
        let agent = memory_of(&whole(&self.agent));
        Usage {
            gateway_cpu_s: (now.server - begin.server).max(0.0),
            agent_cpu_s: (now.agent - begin.agent).max(0.0),
            app_cpu_s: (now.app - begin.app).max(0.0),
            gateway_rss_bytes: server.rss,
            agent_rss_bytes: agent.rss,
            gateway_pss_bytes: server.pss,
            agent_pss_bytes: agent.pss,
            gateway_rss_peak_bytes: server.peak,
            agent_rss_peak_bytes: agent.peak,
        }
    }
}

/// Seconds of all processors together since the start of the machine.
#[derive(Debug, Clone, Copy)]
struct Processors {
    all: f64,
    idle: f64,
}

impl Processors {
    fn read() -> Option<Self> {
        Self::in_text(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn in_text(text: &str) -> Option<Self> {
        let numbers = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest times behind them are in user already.
        let all = ticks.iter().take(8).sum();
        let idle = ticks.iter().skip(3).take(2).sum();
        Some(Self { all: float(all), idle: float(idle) })
    }

    /// Returns the part of the time between two readings in which processors were busy.
    fn busy_since(self, before: Self) -> f64 {
        let all = self.all - before.all;
        if all > 0.0 { (1.0 - (self.idle - before.idle) / all).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Waits until the machine is idle, at most `patience`; returns how busy it still was.
pub async fn wait_until_idle(patience: Duration) -> f64 {
    let until = Instant::now() + patience;
    loop {
        let before = Processors::read();
        tokio::time::sleep(LOOK).await;
        let busy = match (before, Processors::read()) {
            (Some(before), Some(now)) => now.busy_since(before),
            _ => return 0.0,
        };
        if busy < BUSY_MAX || Instant::now() >= until {
            return busy;
        }
    }
}

/// Returns whether the machine did not become idle.
#[must_use]
pub fn is_busy(busy: f64) -> bool {
    busy >= BUSY_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_part_counts_neither_idle_nor_guests_twice() {
        let before = Processors::in_text("cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1\n").unwrap();
        let now = Processors::in_text("cpu  120 0 110 760 110 0 0 0 99 0\n").unwrap();
        assert!((now.busy_since(before) - 0.3).abs() < 1e-9);
        assert!(Processors::in_text("intr 5").is_none());
    }

    #[test]
    fn own_work_shows_in_the_reading() {
        let trees = Trees { server: vec![std::process::id()], ..Trees::default() };
        let begin = trees.begin();
        let mut sum = 0_u64;
        while trees.since(begin).gateway_cpu_s < 0.02 {
            sum = (0..1_000_000).fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number));
        }
        let usage = trees.since(begin);
        assert!(usage.gateway_rss_bytes > 0 && usage.agent_rss_bytes == 0, "{usage:?} {sum}");
    }
}
