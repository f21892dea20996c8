//! The last requests that were refused, for operators who ask why a user does not get through. In memory, of this
//! replica alone, and bounded: only a refusal costs anything here.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;

use gateway_types::{UserName, WorkspaceName};

/// Refusals that are kept.
pub const REFUSALS_MAX: usize = 1_000;

/// Equal refusals within this time of the first count as one, in milliseconds.
const SAME_MS: u64 = 1_000;

/// A refused request, or several that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Time of the first of them, in milliseconds since 1970.
    pub at_ms: u64,
    /// Code of the failure.
    pub code: &'static str,
    /// What exactly failed where the code covers several cases: of `overloaded`, the limit.
    pub detail: Option<&'static str>,
    /// User who asked.
    pub user: Option<UserName>,
    /// Workspace that was asked for.
    pub workspace: Option<WorkspaceName>,
    /// Address of the client; `None` for one that was not let in.
    pub peer: Option<IpAddr>,
    /// Trace id of the last of them.
    pub trace: String,
    /// Number of them.
    pub count: u32,
}

impl Refusal {
    fn is_like(&self, other: &Self) -> bool {
        (self.code, self.detail, self.peer) == (other.code, other.detail, other.peer)
            && (&self.user, &self.workspace) == (&other.user, &other.workspace)
            && other.at_ms.saturating_sub(self.at_ms) < SAME_MS
    }
}

/// The last refusals, the newest at the end.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<VecDeque<Refusal>>);

impl Refusals {
    /// Takes a refusal in, and lets the oldest go if there are too many.
    pub fn note(&self, refusal: Refusal) {
        let mut kept = self.0.lock();
        if let Some(last) = kept.back_mut().filter(|last| last.is_like(&refusal)) {
            last.count = last.count.saturating_add(refusal.count);
            last.trace = refusal.trace;
            return;
        }
        if kept.len() >= REFUSALS_MAX {
            kept.pop_front();
        }
        kept.push_back(refusal);
    }

    /// Returns those that `is_meant` holds for, the newest first.
    pub fn newest(&self, most: usize, is_meant: impl Fn(&Refusal) -> bool) -> Vec<Refusal> {
        self.0.lock().iter().rev().filter(|refusal| is_meant(refusal)).take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(at_ms: u64, code: &'static str, user: &str) -> Refusal {
        Refusal {
            at_ms,
            code,
            detail: None,
            user: user.parse().ok(),
            workspace: None,
            peer: None,
            trace: at_ms.to_string(),
            count: 1,
        }
    }

    #[test]
    fn newest_come_first_and_the_oldest_go() {
        let refusals = Refusals::default();
        for at_ms in 0..1_500 {
            refusals.note(refusal(at_ms, if at_ms % 2 == 0 { "agent_absent" } else { "overloaded" }, "ann"));
        }
        let all = refusals.newest(usize::MAX, |_| true);
        assert_eq!((all.len(), all[0].at_ms, all[999].at_ms), (REFUSALS_MAX, 1_499, 500));
        let some = refusals.newest(2, |refusal| refusal.code == "agent_absent");
        assert_eq!(some.iter().map(|refusal| refusal.at_ms).collect::<Vec<_>>(), [1_498, 1_496]);
    }

    #[test]
    fn flood_of_one_user_is_one_row_and_pushes_no_other_out() {
        let refusals = Refusals::default();
        refusals.note(refusal(0, "port_closed", "bob"));
        for number in 0..5_000 {
            refusals.note(refusal(number / 10, "overloaded", "ann"));
        }
        let all = refusals.newest(usize::MAX, |_| true);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].count, &*all[0].trace, all[0].at_ms), (5_000, "499", 0));
        refusals.note(refusal(1_000, "overloaded", "ann"));
        refusals.note(refusal(1_000, "overloaded", "eve"));
        assert_eq!(refusals.newest(usize::MAX, |_| true).len(), 4, "a second later, or of another user");
    }
}
