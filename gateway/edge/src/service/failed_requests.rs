//! The last failed requests of this replica, to be explained by their trace ids. In memory and bounded: only a failure costs
//! anything here, and those of strangers are as many as their log lines.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use gateway_types::failed_request::FailedRequest;

/// Requests that are kept.
pub const FAILED_REQUESTS_MAX: usize = 10_000;

/// Time for which they are kept, in milliseconds: 24 hours.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// Requests of one user that are kept, so that none pushes out those of others. All without a user count as one.
const OF_A_USER_MAX: usize = 1_000;

/// The last failed requests.
#[derive(Debug, Default)]
pub struct FailedRequests(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The newest at the end.
    requests: VecDeque<FailedRequest>,
    of_users: HashMap<Option<String>, usize>,
}

impl Kept {
    /// Lets a request go.
    fn forget(&mut self, place: usize) {
        let Some(gone) = self.requests.remove(place) else { return };
        if let Some(count) = self.of_users.get_mut(&gone.user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_users.remove(&gone.user);
            }
        }
    }
}

impl FailedRequests {
    /// Takes a request in. The oldest of its user goes if there are too many of these, the oldest of all if there are too many, and
    /// all that are too old.
    pub fn note(&self, failed: FailedRequest) {
        let mut kept = self.0.lock();
        let oldest = failed.at_ms.saturating_sub(KEPT_MS);
        while kept.requests.front().is_some_and(|first| first.at_ms < oldest) {
            kept.forget(0);
        }
        if kept.of_users.get(&failed.user).is_some_and(|count| *count >= OF_A_USER_MAX)
            && let Some(place) = kept.requests.iter().position(|other| other.user == failed.user)
        {
            kept.forget(place);
        }
        if kept.requests.len() >= FAILED_REQUESTS_MAX {
            kept.forget(0);
        }
        *kept.of_users.entry(failed.user.clone()).or_default() += 1;
        kept.requests.push_back(failed);
    }

    /// Returns the last failed requests of a user to a workspace, the newest first, `most` of them at most, if they are not too old by
    /// `now_ms`.
    #[must_use]
    pub fn last(&self, workspace: &str, user: &str, most: usize, now_ms: u64) -> Vec<FailedRequest> {
        let kept = self.0.lock();
        let of_both = kept.requests.iter().rev().filter(|failed| {
            failed.workspace.as_deref() == Some(workspace)
                && failed.user.as_deref() == Some(user)
                && failed.at_ms >= now_ms.saturating_sub(KEPT_MS)
        });
        of_both.take(most).cloned().collect()
    }

    /// Finds a request by its trace id, if it is not too old by `now_ms`.
    #[must_use]
    pub fn find(&self, trace: &str, now_ms: u64) -> Option<FailedRequest> {
        let kept = self.0.lock();
        let found = kept.requests.iter().rev().find(|failed| failed.trace_id == trace)?;
        (found.at_ms >= now_ms.saturating_sub(KEPT_MS)).then(|| found.clone())
    }
}

#[cfg(test)]
mod tests {
    use gateway_types::failed_request::Side;

    use super::*;

    fn failed(at_ms: u64, user: &str) -> FailedRequest {
        FailedRequest {
            trace_id: at_ms.to_string(),
            at_ms,
            code: "port_closed".to_owned(),
            detail: None,
            side: Side::App,
            what: String::new(),
            to_do: String::new(),
            status: 502,
            took_ms: 1,
            user: Some(user.to_owned()),
            workspace: None,
            port: None,
            address: None,
        }
    }

    #[test]
    fn newest_ten_thousand_of_a_day_are_found_and_no_other() {
        let requests = FailedRequests::default();
        for at_ms in 0..10_500 {
            requests.note(failed(at_ms, &format!("user-{}", at_ms % 20)));
        }
        assert_eq!(requests.find("499", 10_500), None, "pushed out");
        assert_eq!(requests.find("500", 10_500).map(|found| found.at_ms), Some(500));
        assert_eq!(requests.find("10499", 10_499 + KEPT_MS).map(|found| found.at_ms), Some(10_499));
        assert_eq!(requests.find("10499", 10_500 + KEPT_MS), None, "a day old");
        requests.note(failed(10_400 + KEPT_MS, "ann"));
        assert_eq!(requests.find("10399", 10_399), None, "let go when a newer one came");
        assert!(requests.find("10400", 10_400).is_some());
    }

    #[test]
    fn last_of_a_user_at_a_workspace_are_the_newest_first() {
        let requests = FailedRequests::default();
        for at_ms in 0..12 {
            let workspace = if at_ms % 2 == 0 { "one" } else { "two" };
            let user = if at_ms % 3 == 0 { "bob" } else { "ann" };
            requests.note(FailedRequest { workspace: Some(workspace.to_owned()), ..failed(at_ms, user) });
        }
        let times = |found: Vec<FailedRequest>| found.into_iter().map(|found| found.at_ms).collect::<Vec<_>>();
        assert_eq!(times(requests.last("one", "ann", 3, 12)), [10, 8, 4]);
        assert_eq!(times(requests.last("one", "ann", 9, 5 + KEPT_MS)), [10, 8]);
        assert_eq!(requests.last("none", "ann", 9, 12), []);
    }

    #[test]
    fn flood_of_one_user_pushes_no_other_out() {
        let requests = FailedRequests::default();
        requests.note(failed(0, "bob"));
        for at_ms in 1..20_000 {
            requests.note(failed(at_ms, "ann"));
        }
        assert!(requests.find("0", 20_000).is_some(), "bob's");
        assert_eq!(requests.find("18999", 20_000), None, "her thousand last");
        assert!(requests.find("19000", 20_000).is_some() && requests.find("19999", 20_000).is_some());
    }
}
