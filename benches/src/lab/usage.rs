//! Processor time and memory of processes, from `/proc`.

use std::fs;
use std::io;
use std::path::PathBuf;

/// `AT_CLKTCK` of the auxiliary vector: ticks per second of the times in `/proc`.
const CLOCK_TICKS_KEY: u64 = 17;

/// `AT_PAGESZ` of the auxiliary vector, in bytes.
const PAGE_BYTES_KEY: u64 = 6;

/// Ticks per second on every Linux of today, in case the auxiliary vector cannot be read.
const CLOCK_TICKS_DEFAULT: u64 = 100;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident, shared pages counted in full.
    pub rss: u64,
    /// Resident, shared pages divided by the number of processes that share them.
    pub pss: u64,
    /// The most that was resident at a time, since the start or [`reset_peak`].
    pub peak: u64,
}

/// Returns the processor seconds, user and system, of a process and of its ended children that it waited for.
///
/// # Errors
/// The process is gone.
pub fn cpu_seconds(pid: u32) -> io::Result<f64> {
    let text = fs::read_to_string(path(pid, "stat"))?;
    let ticks = stat_ticks(&text).ok_or(io::ErrorKind::InvalidData)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of ticks")]
    let seconds = ticks as f64 / ticks_per_second() as f64;
    Ok(seconds)
}

/// Returns the memory of a process.
///
/// # Errors
/// The process is gone.
pub fn memory(pid: u32) -> io::Result<ProcessMemory> {
    let rollup = fs::read_to_string(path(pid, "smaps_rollup"))?;
    let status = fs::read_to_string(path(pid, "status"))?;
    let field = |text: &str, name: &str| kib_field(text, name).unwrap_or(0);
    Ok(ProcessMemory { rss: field(&rollup, "Rss:"), pss: field(&rollup, "Pss:"), peak: field(&status, "VmHWM:") })
}

/// Returns the resident memory of a process without the cost of [`memory`].
///
/// # Errors
/// The process is gone.
pub fn rss(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(path(pid, "status"))?;
    kib_field(&status, "VmRSS:").ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Makes the peak of resident memory start again from what is resident now.
///
/// # Errors
/// The process is gone, or another user's.
pub fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(path(pid, "clear_refs"), "5")
}

/// Kernel's memory for TCP in all, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpMemory {
    /// Buffers of all sockets of this network namespace.
    pub used: u64,
    /// Threshold above which it gives sockets less, and drops arriving bytes.
    pub pressure: u64,
}

/// Returns the kernel's memory for TCP.
///
/// # Errors
/// It does not say.
pub fn tcp_memory() -> io::Result<TcpMemory> {
    let page = auxiliary(PAGE_BYTES_KEY).ok_or(io::ErrorKind::NotFound)?;
    let pages = |text: Option<&str>| Some(text?.parse::<u64>().ok()? * page);
    let sockets = fs::read_to_string("/proc/net/sockstat")?;
    let limits = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem")?;
    let used =
        sockets.lines().find_map(|line| pages(line.strip_prefix("TCP:")?.rsplit_once("mem ")?.1.split(' ').next()));
    let pressure = pages(limits.split_ascii_whitespace().nth(1));
    used.zip(pressure)
        .map(|(used, pressure)| TcpMemory { used, pressure })
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the process and all its descendants.
#[must_use]
pub fn tree(pid: u32) -> Vec<u32> {
    let parents = all_parents();
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(parent) = tree.get(next).copied() {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        next += 1;
    }
    tree
}

/// Returns the processor seconds of the processes together; gone ones count nothing.
#[must_use]
pub fn cpu_seconds_of(pids: &[u32]) -> f64 {
    pids.iter().filter_map(|pid| cpu_seconds(*pid).ok()).sum()
}

/// Returns the memory of the processes together; gone ones count nothing.
#[must_use]
pub fn memory_of(pids: &[u32]) -> ProcessMemory {
    let add = |sum: ProcessMemory, one: ProcessMemory| ProcessMemory {
        rss: sum.rss + one.rss,
        pss: sum.pss + one.pss,
        peak: sum.peak + one.peak,
    };
    pids.iter().filter_map(|pid| memory(*pid).ok()).fold(ProcessMemory::default(), add)
}

fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Returns the numbers of `stat` from the third on: a process's name may hold blanks and parentheses.
fn after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

fn stat_ticks(stat: &str) -> Option<u64> {
    // Fields 14 to 17 of proc(5): utime, stime, cutime, cstime.
    let times: Vec<u64> = after_name(stat)?.skip(11).take(4).filter_map(|number| number.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

fn all_parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(path(pid, "stat")).ok()?;
        Some((pid, after_name(&stat)?.nth(1)?.parse().ok()?))
    })
    .collect()
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn ticks_per_second() -> u64 {
    auxiliary(CLOCK_TICKS_KEY).unwrap_or(CLOCK_TICKS_DEFAULT)
}

/// Returns a number of the auxiliary vector.
fn auxiliary(wanted: u64) -> Option<u64> {
    let vector = fs::read("/proc/self/auxv").ok()?;
    let (words, _) = vector.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if key == wanted && value > 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_blanks_and_parentheses() {
        let stat = "42 (a (b) c) S 7 42 42 0 -1 4194560 1 0 0 0 11 22 33 44 20 0 1 0 5 6 7";
        assert_eq!(stat_ticks(stat), Some(110));
        assert_eq!(after_name(stat).unwrap().nth(1), Some("7"));
        assert_eq!(stat_ticks("42 (cut) S 7"), None);
    }

    #[test]
    fn own_process_uses_memory_and_time() {
        let me = std::process::id();
        let memory = memory(me).unwrap();
        assert!(memory.rss > 0 && memory.pss > 0 && memory.peak >= memory.rss / 2, "{memory:?}");
        assert!(cpu_seconds(me).unwrap() >= 0.0);
        assert!(tree(me).contains(&me));
    }

    #[test]
    fn gone_process_is_an_error_and_counts_nothing() {
        // Larger than any pid that a kernel gives out.
        let gone = u32::MAX;
        assert!(cpu_seconds(gone).is_err() && memory(gone).is_err());
        assert_eq!(memory_of(&[gone]), ProcessMemory::default());
    }
}
