//! Command that is left without its wrapper: its process, and the descendants in the same process group, as `/proc`
//! shows them (proc(5)).

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Most searches for processes that were started meanwhile: programs that start others without end are not waited for.
const LOOKS_MAX: usize = 16;

/// One process, told from a later one that has the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TreeProcess {
    id: i32,
    /// Start time, in clock ticks since the machine was started.
    ticks: u64,
}

/// Facts about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    process: TreeProcess,
    parent: i32,
    group: i32,
}

/// A command that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree(Stat);

impl Tree {
    /// Takes note of a command, while no other process can have its number. `None` if it cannot be seen.
    pub(super) fn of(id: i32) -> Option<Self> {
        stat(id).map(Self)
    }

    /// Kills the command, if it has not ended, and its descendants; but none that left its group, which were to outlive
    /// it, and no other process of that group, which is not its own.
    pub(super) fn kill(self) {
        let mut found = vec![self.0.process];
        let mut seen = 0;
        for _ in 0..LOOKS_MAX {
            // A stopped process starts no other, and keeps its parent.
            for process in found.iter().skip(seen) {
                process.signal(Signal::STOP);
            }
            seen = found.len();
            add_descendants(&all(), self.0.group, &mut found);
            if found.len() == seen {
                break;
            }
        }
        // Children first. A process that ends can leave its group without a way out; were any of it stopped at that
        // moment, the system would hang up all of it (POSIX, _Exit(2)), and with it what is not the command's. The end
        // of a child whose parent is in the group is no such moment, and one that is being killed is not stopped.
        for process in found.into_iter().rev() {
            process.signal(Signal::KILL);
        }
    }
}

impl TreeProcess {
    /// Sends a signal, but to no other process that got the number meanwhile. There is no caller to tell that it
    /// failed.
    fn signal(self, signal: Signal) {
        let Some(Ok(held)) = Pid::from_raw(self.id).map(|id| pidfd_open(id, PidfdFlags::empty())) else { return };
        // The handle cannot come to mean another process: so compare after opening it.
        if stat(self.id).is_some_and(|stat| stat.process == self) {
            pidfd_send_signal(held, signal).unwrap_or_default();
        }
    }
}

/// Adds the descendants of the found processes that belong to a group.
fn add_descendants(all: &[Stat], group: i32, found: &mut Vec<TreeProcess>) {
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|process| process.id) {
        let is_new = |stat: &&Stat| stat.parent == parent && stat.group == group && !found.contains(&stat.process);
        let children: Vec<TreeProcess> = all.iter().filter(is_new).map(|stat| stat.process).collect();
        found.extend(children);
        next += 1;
    }
}

fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(stat).collect()
}

fn stat(id: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Reads `/proc/ID/stat`. The second field is the program's name in parentheses, and may have anything in it.
fn parse(text: &str) -> Option<Stat> {
    let (id, rest) = text.split_once(' ')?;
    let (_, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Counted from the state, which is the third of all.
    let (parent, group, ticks) = (fields.get(1)?, fields.get(2)?, fields.get(19)?);
    let process = TreeProcess { id: id.parse().ok()?, ticks: ticks.parse().ok()? };
    Some(Stat { process, parent: parent.parse().ok()?, group: group.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_program_calls_itself() {
        let fields = "S 7 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        let stat = parse(&format!("43 (a) b) (c) {fields}\n")).expect("a process");
        assert_eq!(stat, Stat { process: TreeProcess { id: 43, ticks: 98_765 }, parent: 7, group: 42 });
        for text in ["", "42", "42 (x", "42 (x) S 1 2", "x (x) S 7 42 40"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_what_comes_from_the_command_and_stays_in_its_group_is_its_own() {
        let of = |id, parent, group| Stat { process: TreeProcess { id, ticks: 1 }, parent, group };
        let all = [of(5, 1, 5), of(6, 5, 5), of(10, 5, 5), of(11, 10, 5), of(12, 11, 5), of(13, 11, 13), of(14, 13, 5)];
        let mut found = vec![of(10, 5, 5).process];
        add_descendants(&all, 5, &mut found);
        assert_eq!(found.iter().map(|process| process.id).collect::<Vec<_>>(), [10, 11, 12]);
    }

    #[test]
    fn another_process_with_the_same_number_is_left_alone() {
        let this = Tree::of(i32::try_from(std::process::id()).expect("a number")).expect("it runs");
        // This test would not survive.
        TreeProcess { ticks: this.0.process.ticks + 1, ..this.0.process }.signal(Signal::KILL);
        TreeProcess { id: i32::MAX, ticks: 1 }.signal(Signal::KILL);
    }
}
