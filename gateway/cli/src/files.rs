//! Limit of open files of this process, of which each connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, info, warn};

use gateway_config::{Config, Limits, Origin};

/// Open files beside connections of users and agents: listeners, the operator's connections, the store, each worker's
/// own, and room to read certificates anew.
const SPARE: u64 = 512;

/// A limit of open files that is below what the configured limits may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Open files at most.
    pub allowed: u64,
    /// Open files when every limit is reached.
    pub needed: u64,
}

/// Lets this process open as many files as the system allows, and warns when the configured limits may need more: above
/// that, connections wait in vain though no limit of the gateway's is reached.
///
/// Defaults leave room for large installations, and no operator asked for them: their need is worth a warning only if
/// so few files are allowed that a small crowd reaches it.
pub fn allow_open_files(config: &Config) {
    let limits = &config.limits;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        debug!(%error, "the limit of open files stays as it is");
    }
    let Some(Shortage { allowed, needed }) = shortage(limits, getrlimit(Resource::Nofile).current) else { return };
    if !is_worth_a_warning(allowed, is_asked_for(config)) {
        info!(allowed, "as many connections and files may be open at once as the system allows");
        return;
    }
    warn!(
        allowed,
        needed,
        limits.connections,
        limits.sessions,
        limits.handshakes,
        "too few open files are allowed for the configured limits: raise the hard limit (ulimit -Hn, LimitNOFILE=) or \
         lower limits.connections and limits.sessions"
    );
}

/// Returns a shortage that is worth a warning, if so many files may be open; `None` stands for no limit.
#[must_use]
pub fn notable_shortage(config: &Config, allowed: Option<u64>) -> Option<Shortage> {
    shortage(&config.limits, allowed).filter(|short| is_worth_a_warning(short.allowed, is_asked_for(config)))
}

/// Returns whether an operator has set one of the limits.
fn is_asked_for(config: &Config) -> bool {
    let keys = ["limits.connections", "limits.sessions", "limits.handshakes"];
    keys.iter().any(|key| config.origin(key) != Some(Origin::Default))
}

/// Open files that are enough for a crowd of some thousand users and agents.
const AMPLE: u64 = 4096;

fn is_worth_a_warning(allowed: u64, is_asked_for: bool) -> bool {
    is_asked_for || allowed < AMPLE
}

/// Compares the configured limits with the limit of open files; `None` stands for no limit.
#[must_use]
pub fn shortage(limits: &Limits, allowed: Option<u64>) -> Option<Shortage> {
    // As many links may be there as sessions and handshakes: a new link comes before the old one goes.
    let connections = [limits.connections, limits.sessions, limits.handshakes];
    let needed = connections.into_iter().filter_map(|count| u64::try_from(count).ok()).fold(SPARE, u64::saturating_add);
    allowed.filter(|allowed| *allowed < needed).map(|allowed| Shortage { allowed, needed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_config::Config;

    #[test]
    fn first_start_with_nothing_configured_is_no_reason_to_warn() {
        assert!(!is_worth_a_warning(20_000, false), "defaults on an ordinary machine");
        assert!(is_worth_a_warning(20_000, true) && is_worth_a_warning(1_024, false));
    }

    #[test]
    fn limits_that_need_more_open_files_than_are_allowed_are_found() {
        let limits = Limits { connections: 1_000, sessions: 500, handshakes: 100, ..Config::default().limits };
        let needed = 1_600 + SPARE;
        for (allowed, expected) in [
            (None, None),
            (Some(needed), None),
            (Some(needed - 1), Some(Shortage { allowed: needed - 1, needed })),
            (Some(256), Some(Shortage { allowed: 256, needed })),
        ] {
            assert_eq!(shortage(&limits, allowed), expected, "{allowed:?}");
        }
        let boundless = Limits { connections: usize::MAX, sessions: usize::MAX, ..limits };
        assert_eq!(shortage(&boundless, Some(1)).map(|shortage| shortage.needed), Some(u64::MAX));
    }
}
