//! Metrics of this process from the system, under the names that all of Prometheus' libraries use.

use std::fs;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit};

/// Clock ticks in a second, as Linux counts them for programs on all systems that we build for (proc(5), `sysconf`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Facts of a process from `/proc`. Units: seconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Facts {
    cpu: f64,
    /// Start of the process, since boot.
    began: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    threads: u64,
}

/// Registers the facts that are available: none without `/proc`.
pub(super) fn register(registry: &mut Registry) {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let Some(facts) = facts(&read("/proc/self/stat"), &read("/proc/self/status")) else { return };
    registry.register(
        "process_cpu_seconds",
        "Processor time of this process, in user and system mode",
        ConstCounter::new(facts.cpu),
    );
    if let Some(booted) = boot_time(&read("/proc/stat")) {
        let help = "When this process began, in seconds since 1970";
        registry.register("process_start_time_seconds", help, ConstGauge::new(booted + facts.began));
    }
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let numbers = [
        ("process_virtual_memory_bytes", "Virtual memory", facts.virtual_bytes),
        ("process_resident_memory_bytes", "Resident memory", facts.resident_bytes),
        ("process_threads", "Threads", facts.threads),
        ("process_open_fds", "Open files and sockets", u64::try_from(open).unwrap_or(u64::MAX)),
    ];
    for (name, help, number) in numbers {
        super::gauge(registry, name, help).set(number);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        super::gauge(registry, "process_max_fds", "Most files and sockets that may be open").set(most);
    }
}

/// Reads `/proc/PID/stat` and `/proc/PID/status` (proc(5)).
#[expect(clippy::cast_precision_loss, reason = "ticks of a process stay far below 2^53")]
fn facts(stat: &str, status: &str) -> Option<Facts> {
    // The name may hold anything, also blanks and parentheses. The fields after it begin with the third.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let kib = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
    };
    let ticks = field(14)?.saturating_add(field(15)?);
    Some(Facts {
        cpu: ticks as f64 / TICKS_PER_SECOND,
        began: field(22)? as f64 / TICKS_PER_SECOND,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: kib("VmRSS:")?,
    })
}

/// Reads the boot time from `/proc/stat`, in seconds since 1970.
fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_whatever_the_program_is_called() {
        let stat = "4711 (a) (b c) S 1 4711 4711 0 -1 4194560 2500 0 3 0 150 50 0 0 20 0 7 0 12345 1073741824 9000 1 2";
        let status = "Name:\ta\nVmSize:\t 1048576 kB\nVmRSS:\t   36000 kB\n";
        let found = facts(stat, status).unwrap();
        let expected =
            Facts { cpu: 2.0, began: 123.45, virtual_bytes: 1 << 30, resident_bytes: 36000 * 1024, threads: 7 };
        assert_eq!(found, expected);
        for (stat, status) in [("", ""), ("1 (a) S 1", status), (stat, "")] {
            assert_eq!(facts(stat, status), None, "{stat} {status}");
        }
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000.0));
    }
}
