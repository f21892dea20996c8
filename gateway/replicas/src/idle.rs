//! Decides which relay lanes have been of no use for so long that they end. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tunnel_proto::id::SessionId;

/// Time after which a lane that carries nothing ends.
pub const IDLE_TIME: Duration = Duration::from_secs(60);

/// Lanes that carry nothing, and since when.
#[derive(Debug, Default)]
pub struct IdleLanes {
    since: HashMap<SessionId, Instant>,
}

impl IdleLanes {
    /// Takes note of all lanes, each with whether it carries something now. Returns those that end.
    pub fn note(&mut self, lanes: impl IntoIterator<Item = (SessionId, bool)>, now: Instant) -> Vec<SessionId> {
        let before = std::mem::take(&mut self.since);
        let mut over = Vec::new();
        for (id, is_busy) in lanes {
            if is_busy {
                continue;
            }
            let since = before.get(&id).copied().unwrap_or(now);
            if now.saturating_duration_since(since) >= IDLE_TIME {
                over.push(id);
            } else {
                self.since.insert(id, since);
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_ends_only_after_it_carried_nothing_for_a_while() {
        let (mut idle, began, id) = (IdleLanes::default(), tokio::time::Instant::now().into_std(), SessionId::new(7));
        assert!(idle.note([(id, false)], began).is_empty());
        assert!(idle.note([(id, false)], began + IDLE_TIME / 2).is_empty());
        assert!(idle.note([(id, true)], began + IDLE_TIME).is_empty(), "it carries something again");
        let again = began + 2 * IDLE_TIME;
        assert!(idle.note([(id, false)], again).is_empty());
        assert_eq!(idle.note([(id, false)], again + IDLE_TIME), [id]);
        assert!(idle.since.is_empty());
    }
}
