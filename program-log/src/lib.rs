//! Output of lines for people: logs, terminal lines, panics.
//!
//! A line that cannot be written must not end a program, and one that is not read must not make it wait. So every line
//! goes into a bounded [queue](Lines), which one thread empties into the stream. Lines that find the queue full, or
//! that the system does not take (a full disk, a closed pipe), are dropped and counted; the number is written, once, as
//! soon as the stream takes lines again, and [`Lines::lost`] has it at any time.
//!
//! `lines` is the stream of the process with its thread, `backlog` the bounded buffer, which decides and does nothing
//! else, and `delivery` writes and keeps account of what the stream refused. `panics` is the panic hook, `report` the
//! lines that this crate writes about itself.
//!
//! `tracing-appender` does not fit: its non-blocking writer neither counts nor mentions lines that the system refused,
//! bounds its queue in lines and not in bytes, and glues the line after a torn one to it.

mod backlog;
mod delivery;
mod lines;
mod panics;
mod report;

pub use lines::{LineWriter, Lines, finish, stderr, stdout};
pub use panics::{panics, watch_panics};
pub use report::Form;

/// Returns whether colours help the reader of standard error: on a terminal, unless the environment says no
/// (<https://no-color.org>).
#[must_use]
pub fn wants_colours() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
