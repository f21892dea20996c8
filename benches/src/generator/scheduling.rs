//! Processor time of a thread, and its wait for processors.

use std::fs;
use std::time::Duration;

/// Time that this thread ran or was ready to run, since it began. `None` if the kernel does not tell.
pub(super) fn wanted() -> Option<Duration> {
    in_text(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Reads nanoseconds run and nanoseconds waited.
fn in_text(text: &str) -> Option<Duration> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let (Ok(run), Ok(waited)): (Result<u64, _>, Result<u64, _>) = (numbers.next()?, numbers.next()?) else {
        return None;
    };
    Some(Duration::from_nanos(run.saturating_add(waited)))
}

/// Lets timers of this thread fire at once instead of up to 50 µs late.
pub(super) fn without_slack() {
    let path = fs::read_link("/proc/thread-self").ok();
    let thread = path.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    if let Some(thread) = thread
        && let Err(error) = fs::write(format!("/proc/{thread}/timerslack_ns"), "1")
    {
        tracing::debug!(%error, "timers keep their slack");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_run_and_time_waited_add_up() {
        assert_eq!(in_text("1500 500 7\n"), Some(Duration::from_micros(2)));
        assert_eq!(in_text(""), None);
    }
}
