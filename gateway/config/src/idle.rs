//! `idle`: how the use of workspaces is recorded.

use std::time::Duration;

use super::keys::section;
use super::value::DURATION;

section! {
    /// Use of workspaces, by which idle ones are stopped.
    pub struct Idle, IDLE: IdleKeys below "idle." {
        /// Time between two writes of one workspace's last activity by one gateway. No idle stop comes sooner after the last
        /// activity than that.
        record_interval: Duration = DURATION, or Duration::from_mins(1), in Duration::from_secs(1)..=Duration::from_hours(1);
        /// Longest time for which one `workspace-agent busy` keeps its workspace awake.
        busy_max: Duration = DURATION, or Duration::from_hours(12), in Duration::ZERO..=Duration::from_hours(8760);
    }
}
