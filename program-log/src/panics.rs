//! Panic hook that counts panics and writes them into the log, cannot panic itself, and does not wait for the stream.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lines::stderr;

/// Panics since the start, in any thread.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts every panic from now on and writes it into the log. A panic ends its task and nothing else, so without this
/// it might go unnoticed.
///
/// A panic inside the hook would end the process. So it takes the way of no other event: no subscriber, whose locks the
/// panicking thread may hold, and not the hook that was there before, which writes to standard error itself and waits
/// for it.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        stderr().push_from_hook(line(panic).as_bytes());
    }));
}

/// Returns the number of panics since [`watch_panics`].
#[must_use]
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

fn line(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let trace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let mut fields = vec![
        ("thread", thread.name().unwrap_or("unnamed")),
        ("said", panic.payload_as_str().unwrap_or("nothing that is a text")),
    ];
    if let Some(trace) = &trace {
        fields.push(("backtrace", trace));
    }
    stderr().form().line("ERROR", &format!("a task panicked at {place}: this is a bug"), &fields)
}
