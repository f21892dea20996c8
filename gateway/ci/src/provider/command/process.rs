//! Finds the processes of a run in `/proc` (proc(5)), also once its supervisor is gone.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::super::{RUN_VARIABLE, RunKey};

/// Most bytes of a process's environment that are read: the system's limit is some MiB.
const ENVIRONMENT_BYTES_MAX: u64 = 4 << 20;

/// One process, distinguished from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub(super) pid: i32,
    /// Time of its start, in clock ticks since the machine's boot.
    pub(super) ticks: u64,
}

/// Status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    process: ProcessId,
    parent: i32,
    session: i32,
    is_dead: bool,
}

impl ProcessId {
    /// Returns a living process.
    pub(super) fn of(pid: u32) -> Option<Self> {
        stat(i32::try_from(pid).ok()?).map(|stat| stat.process)
    }

    /// Sends a signal, and never to another process that got the number meanwhile. A process that has ended is no
    /// failure.
    pub(super) fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        // The held process cannot become another one: so it is compared after it was taken.
        if stat(self.pid).is_none_or(|stat| stat.process != self) {
            return Ok(());
        }
        Ok(pidfd_send_signal(held, signal)?)
    }
}

/// Returns the id of the machine's current boot: process numbers and ticks mean nothing across boots.
pub(super) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Returns the living descendants of `ancestor`, without itself.
pub(super) fn descendants(ancestor: u32) -> Vec<i32> {
    let all = all();
    let mut found: Vec<i32> = i32::try_from(ancestor).into_iter().collect();
    add_descendants(&all, &mut found);
    found.into_iter().skip(1).filter(|pid| is_alive(&all, *pid)).collect()
}

/// Returns the living processes of an unsupervised run: those of its session, those that still have its key in their
/// environment, and the descendants of these.
pub(super) fn left_over(key: &RunKey, session: Option<ProcessId>) -> Vec<i32> {
    let all = all();
    // Another process may have the number by now.
    let is_another =
        |leader: ProcessId| all.iter().any(|stat| stat.process.pid == leader.pid && stat.process != leader);
    let session = session.filter(|leader| !is_another(*leader)).map(|leader| leader.pid);
    let mark = format!("{RUN_VARIABLE}={key}");
    let is_of_run = |stat: &&Stat| Some(stat.session) == session || has_mark(stat.process.pid, mark.as_bytes());
    let mut found: Vec<i32> = all.iter().filter(is_of_run).map(|stat| stat.process.pid).collect();
    add_descendants(&all, &mut found);
    let own = i32::try_from(std::process::id()).ok();
    found.into_iter().filter(|pid| Some(*pid) != own && is_alive(&all, *pid)).collect()
}

/// Adds the descendants of processes.
fn add_descendants(all: &[Stat], found: &mut Vec<i32>) {
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = all.iter().filter(|stat| stat.parent == parent && !found.contains(&stat.process.pid));
        let children: Vec<i32> = children.map(|stat| stat.process.pid).collect();
        found.extend(children);
        next += 1;
    }
}

fn is_alive(all: &[Stat], pid: i32) -> bool {
    all.iter().any(|stat| stat.process.pid == pid && !stat.is_dead)
}

/// Sends a signal to each of some processes. One that has ended is no failure; nor is one that may not be signalled,
/// which shows by its staying.
pub(super) fn signal_all(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        kill_process(pid, signal).unwrap_or_default();
    }
}

fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(stat).collect()
}

fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`. The second field is the program's name in parentheses, and may have anything in it.
fn parse(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(' ')?;
    let (_, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Counted from the state, which is the third of all.
    let (state, parent, session, ticks) = (fields.first()?, fields.get(1)?, fields.get(3)?, fields.get(19)?);
    let process = ProcessId { pid: pid.parse().ok()?, ticks: ticks.parse().ok()? };
    let is_dead = matches!(*state, "Z" | "X" | "x");
    Some(Stat { process, parent: parent.parse().ok()?, session: session.parse().ok()?, is_dead })
}

fn has_mark(pid: i32, mark: &[u8]) -> bool {
    let path = format!("/proc/{pid}/environ");
    let mut environment = Vec::new();
    let Ok(file) = fs::File::open(Path::new(&path)) else { return false };
    // Environments of other users' processes cannot be read.
    if file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment).is_err() {
        return false;
    }
    environment.split(|byte| *byte == 0).any(|entry| entry == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_program_calls_itself() {
        let fields = "S 7 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        let stat = parse(&format!("42 (a) b) (c) {fields}\n")).unwrap();
        assert_eq!(stat.process, ProcessId { pid: 42, ticks: 98_765 });
        assert_eq!((stat.parent, stat.session, stat.is_dead), (7, 40, false));
        assert!(parse("42 (x) Z 7 42 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1").unwrap().is_dead);
        for text in ["", "42", "42 (x", "42 (x) S 1 2", "x (x) S 7 42 40"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn process_is_known_by_its_start_and_another_with_its_number_is_left_alone() {
        let this = ProcessId::of(std::process::id()).unwrap();
        assert_eq!(ProcessId::of(std::process::id()), Some(this));
        // This test would not survive.
        ProcessId { ticks: this.ticks + 1, ..this }.signal(Signal::KILL).unwrap();
        ProcessId { pid: i32::MAX, ticks: 1 }.signal(Signal::KILL).unwrap();
    }
}
