//! How a fleet hears of its agents' sessions.
//!
//! The agent's library has no hook for it, but it logs each session that comes up and each redial, and events reach the
//! subscriber that is set for the agent's future alone. The subscriber below turns these two into roster entries and
//! keeps the log of ten thousand agents out of the terminal. A test with a real gateway fails when the texts change.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use super::roster::Roster;

/// Where the agent's dial loop logs.
const TARGET: &str = "workspace_agent::dial";

/// A session came up.
const CONNECTED: &str = "connected";

/// A dial failed or a link ended.
const REDIALS: &str = "not connected, dialing again";

tokio::task_local! {
    /// Which agent runs.
    pub(super) static AGENT: usize;
}

/// Makes the subscriber that enters what it hears into the roster.
pub(super) fn dispatch(roster: Arc<Roster>) -> Dispatch {
    Dispatch::new(Listener { roster })
}

struct Listener {
    roster: Arc<Roster>,
}

fn is_of_interest(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target() == TARGET
}

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_of_interest(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_of_interest(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        // Outside an agent there is nobody to enter.
        AGENT
            .try_with(|agent| match message.0.as_str() {
                CONNECTED => self.roster.connected(*agent, Instant::now()),
                REDIALS => self.roster.redials(*agent),
                _ => {}
            })
            .unwrap_or_default();
    }

    // Spans are never enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.clear();
            // Writing into a string cannot fail.
            write!(self.0, "{value:?}").unwrap_or_default();
        }
    }
}
