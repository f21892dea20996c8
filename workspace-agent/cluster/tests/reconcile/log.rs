//! What the agent writes into its log, in a test with one thread.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Lines for those who run it: from INFO on.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Begins to take down what this thread says, until the guard is dropped.
    pub(crate) fn begin() -> (Self, DefaultGuard) {
        // While there is but one subscriber, what a thread without one says first is never asked about again, in no thread.
        static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));
        LazyLock::force(&OTHER);
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }

    /// Returns the lines that have all of these words.
    pub(crate) fn lines(&self, words: &[&str]) -> Vec<String> {
        let lines = self.0.lock().expect("the lines");
        lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("agent_cluster")
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("the lines").push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("room");
    }
}
