//! Counts what is open right now, so that a test can see a client's disconnect arrive at the app.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::DemoApp;

/// Kind of work that a handler keeps open for longer than a moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum OpenKind {
    /// A WebSocket of `/ws`.
    WebSocket,
    /// A stream of `/events`.
    Events,
    /// A body that `/upload` still reads.
    Upload,
    /// A body that `/download` still writes.
    Download,
    /// A request that waits in `/slow`.
    Slow,
}

/// Number of open ones of each kind.
#[derive(Debug, Default, Serialize)]
pub(super) struct OpenCounts {
    websockets: AtomicU64,
    events: AtomicU64,
    uploads: AtomicU64,
    downloads: AtomicU64,
    slow: AtomicU64,
}

impl OpenCounts {
    fn counter(&self, kind: OpenKind) -> &AtomicU64 {
        match kind {
            OpenKind::WebSocket => &self.websockets,
            OpenKind::Events => &self.events,
            OpenKind::Upload => &self.uploads,
            OpenKind::Download => &self.downloads,
            OpenKind::Slow => &self.slow,
        }
    }
}

/// Counts as open until it is dropped, which also happens when hyper drops the work of a client that went away.
pub(super) struct OpenCount {
    app: DemoApp,
    kind: OpenKind,
}

impl OpenCount {
    /// Counts one more of `kind`.
    pub(super) fn new(app: &DemoApp, kind: OpenKind) -> Self {
        app.open.counter(kind).fetch_add(1, Ordering::Relaxed);
        Self { app: app.clone(), kind }
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.app.open.counter(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn a_held_kind_counts_until_it_is_dropped() {
        let app = DemoApp::new(CancellationToken::new());
        let held = OpenCount::new(&app, OpenKind::Slow);
        let expected = json!({"websockets": 0, "events": 0, "uploads": 0, "downloads": 0, "slow": 1});
        assert_eq!(serde_json::to_value(&app.open).unwrap(), expected);
        drop(held);
        assert_eq!(serde_json::to_value(&app.open).unwrap()["slow"], 0);
    }
}
