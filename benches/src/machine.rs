//! Facts of the load machine, for records.

use std::fs;

use serde::{Deserialize, Serialize};

/// Facts that a reader needs to compare two records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Processors that this process may use.
    pub processors: usize,
    /// Their model.
    pub model: String,
    /// Memory.
    pub memory_bytes: u64,
    /// Operating system and kernel.
    pub system: String,
    /// Version of this program.
    pub loadlab: String,
}

impl MachineFacts {
    /// Reads them from `/proc`; unreadable ones stay empty.
    #[must_use]
    pub fn here() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = field(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            model: field(&info, "model name").unwrap_or_default().to_owned(),
            memory_bytes: kib.unwrap_or_default() * 1024,
            system: format!("{} {}", std::env::consts::OS, release.trim()),
            loadlab: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Finds `key: value` in lines.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_found_by_its_whole_name() {
        assert_eq!(field("MemFree: 1 kB\nMemTotal:   24 kB\n", "MemTotal"), Some("24 kB"));
        assert_eq!(field("MemTotalX: 1\n", "MemTotal"), None);
    }
}
