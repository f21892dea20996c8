//! The last failed requests of this replica, to be explained by their trace ids. In memory and bounded: only a failure costs
//! anything here, and those of strangers are as many as their log lines.

use std::collections::VecDeque;

use parking_lot::Mutex;

use gateway_types::WorkspaceName;
use gateway_types::failed_request::FailedRequest;

/// Requests that are kept.
pub const FAILED_REQUESTS_MAX: usize = 10_000;

/// Time for which they are kept, in milliseconds: 24 hours.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// The last failed requests, the newest at the end.
#[derive(Debug, Default)]
pub struct FailedRequests(Mutex<VecDeque<FailedRequest>>);

impl FailedRequests {
    /// Takes a request in. The oldest goes if there are too many, and all that are too old.
    pub fn note(&self, failed: FailedRequest) {
        let mut kept = self.0.lock();
        let oldest = failed.at_ms.saturating_sub(KEPT_MS);
        while kept.len() >= FAILED_REQUESTS_MAX || kept.front().is_some_and(|first| first.at_ms < oldest) {
            kept.pop_front();
        }
        kept.push_back(failed);
    }

    /// Finds a request by its trace id, if it is not too old by `now_ms`.
    #[must_use]
    pub fn find(&self, trace: &str, now_ms: u64) -> Option<FailedRequest> {
        let kept = self.0.lock();
        let found = kept.iter().rev().find(|failed| failed.trace_id == trace)?;
        (found.at_ms >= now_ms.saturating_sub(KEPT_MS)).then(|| found.clone())
    }

    /// Returns the last of a workspace since a time in milliseconds, the newest first.
    #[must_use]
    pub fn of_workspace(&self, name: &WorkspaceName, since_ms: u64, most: usize) -> Vec<FailedRequest> {
        let kept = self.0.lock();
        let is_meant = |failed: &&FailedRequest| failed.workspace.as_deref() == Some(name.as_str());
        kept.iter().rev().take_while(|failed| failed.at_ms >= since_ms).filter(is_meant).take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use gateway_types::failed_request::Side;

    use super::*;

    fn failed(at_ms: u64) -> FailedRequest {
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
            user: None,
            workspace: Some(if at_ms.is_multiple_of(2) { "even" } else { "odd" }.to_owned()),
            port: None,
            address: None,
        }
    }

    #[test]
    fn newest_ten_thousand_of_a_day_are_found_and_no_other() {
        let requests = FailedRequests::default();
        for at_ms in 0..10_500 {
            requests.note(failed(at_ms));
        }
        assert_eq!(requests.find("499", 10_500), None, "pushed out");
        assert_eq!(requests.find("500", 10_500).map(|found| found.at_ms), Some(500));
        assert_eq!(requests.find("10499", 10_499 + KEPT_MS).map(|found| found.at_ms), Some(10_499));
        assert_eq!(requests.find("10499", 10_500 + KEPT_MS), None, "a day old");
        let odd = requests.of_workspace(&"odd".parse().unwrap(), 10_000, 3);
        assert_eq!(odd.iter().map(|one| one.at_ms).collect::<Vec<_>>(), [10_499, 10_497, 10_495]);
        assert_eq!(requests.of_workspace(&"odd".parse().unwrap(), 10_498, 3).len(), 1, "since that time");
        requests.note(failed(10_400 + KEPT_MS));
        assert_eq!(requests.find("10399", 10_399), None, "let go when a newer one came");
        assert!(requests.find("10400", 10_400).is_some());
    }
}
