//! State of each workspace as this agent knows it, and as the gateway was told.

use std::collections::BTreeMap;
use std::time::Duration;

use tunnel_proto::reconcile::{FailureKind, FromCluster, ObjectDetail, Termination, WorkspaceReport};

use crate::tracker::{Attempts, Tracker};
use crate::view::View;

/// Longest time for the gateway to note a report before it is sent again. Its database may be away.
const NOTED_WITHIN: Duration = Duration::from_secs(15);

/// Books of one conversation.
#[derive(Debug, Default)]
pub(crate) struct ConversationBooks {
    pub(crate) view: View,
    tracker: Tracker,
    known: BTreeMap<String, NamedWorkspace>,
    wants_full: bool,
}

/// A workspace that the gateway named.
#[derive(Debug, Default)]
struct NamedWorkspace {
    namespace: String,
    attempts: Attempts,
    is_tried: bool,
    termination: Option<Termination>,
    secrets: Vec<ObjectDetail>,
    waits: Vec<ObjectDetail>,
    /// Last full round that named it.
    round: u64,
}

/// Result of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Attempted {
    pub(crate) generation: u64,
    pub(crate) failure: Option<(FailureKind, String)>,
    /// Nothing of the intent is left to be applied.
    pub(crate) is_complete: bool,
    pub(crate) termination: Option<Termination>,
    pub(crate) secrets: Vec<ObjectDetail>,
    /// Objects that have to be gone before the rest is applied.
    pub(crate) waits: Vec<ObjectDetail>,
}

impl ConversationBooks {
    /// Makes the books of a conversation that goes on in the channel of an earlier one.
    pub(crate) fn after(last_number: u64) -> Self {
        Self { tracker: Tracker::after(last_number), ..Self::default() }
    }

    /// Returns the number of the last report.
    pub(crate) fn last_number(&self) -> u64 {
        self.tracker.last_number()
    }

    /// Notes that the gateway named a workspace. Returns whether its intent counts.
    ///
    /// # Errors
    /// The namespace that the workspace was in before.
    pub(crate) fn intend(&mut self, name: &str, namespace: &str, generation: u64, round: u64) -> Result<bool, String> {
        let known = self.known.entry(name.to_owned()).or_default();
        known.round = known.round.max(round);
        if !known.attempts.intend(generation) {
            return Ok(false);
        }
        if known.namespace.is_empty() {
            namespace.clone_into(&mut known.namespace);
            self.view.name(name, namespace);
        } else if known.namespace != namespace {
            return Err(known.namespace.clone());
        }
        Ok(true)
    }

    /// Notes the end of an attempt.
    pub(crate) fn attempted(&mut self, name: &str, attempted: Attempted) {
        let Some(known) = self.known.get_mut(name) else { return };
        let Attempted { generation, failure, is_complete, termination, secrets, waits } = attempted;
        if let Some((kind, message)) = failure {
            if !known.attempts.failed(generation, kind, message) {
                // The result of an earlier intent is of no interest.
                return;
            }
        } else if is_complete {
            known.attempts.succeeded(generation);
        } else if !waits.is_empty() {
            known.attempts.held(generation);
        }
        known.is_tried = true;
        known.secrets = secrets;
        known.waits = waits;
        if termination.is_some() {
            known.termination = termination;
        }
        self.refresh(name);
    }

    /// Forgets a workspace that is over, as the gateway knows.
    pub(crate) fn forget(&mut self, name: &str) {
        self.known.remove(name);
        self.tracker.forget(name);
        self.view.forget(name);
    }

    /// Updates the report of a workspace, if there is something to say of it.
    pub(crate) fn refresh(&mut self, name: &str) {
        let Some(known) = self.known.get(name) else { return };
        let deployment = self.view.deployment_of(name);
        let failure = known.attempts.failure().cloned();
        // Before the cluster was looked at, unknown cannot be told from absent.
        let is_seen = self.view.is_listed() && (known.is_tried || deployment.is_some());
        if !is_seen && failure.is_none() {
            return;
        }
        let mut details = known.waits.clone();
        details.extend(self.view.details_of(name));
        // A secret that is missing is the cause of little, and only of what is told before it.
        details.extend(known.secrets.iter().cloned());
        let report = WorkspaceReport {
            number: 0,
            workspace: name.to_owned(),
            namespace: known.namespace.clone(),
            applied: known.attempts.applied(),
            deployment,
            details,
            termination: known.termination.clone(),
            failure,
            start: self.view.start_of(name),
        };
        self.tracker.update_or_set(name, report);
    }

    /// Updates the reports of all workspaces.
    pub(crate) fn refresh_all(&mut self) {
        let names: Vec<_> = self.known.keys().cloned().collect();
        for name in names {
            self.refresh(&name);
        }
    }

    /// Asks the gateway for a full round.
    pub(crate) fn want_full(&mut self) {
        self.wants_full = true;
    }

    /// Returns the next message to send.
    pub(crate) fn next(&mut self, now: Duration) -> Option<FromCluster> {
        if std::mem::take(&mut self.wants_full) {
            return Some(FromCluster::FullRequest);
        }
        self.tracker.next_due(now).map(|report| FromCluster::Report(Box::new(report)))
    }

    /// Notes that the gateway has stored all reports up to this number.
    pub(crate) fn noted(&mut self, number: u64) {
        self.tracker.noted(number);
    }

    /// Makes lost reports due again. Returns how many.
    pub(crate) fn repeat(&mut self, now: Duration) -> usize {
        self.tracker.repeat(now, NOTED_WITHIN)
    }

    /// Returns the number of workspaces that a full round named.
    pub(crate) fn named_in(&self, round: u64) -> usize {
        self.known.values().filter(|known| known.round == round).count()
    }

    /// Returns whether the gateway named a workspace in this round or a later one; with round 0, whether it ever did.
    pub(crate) fn is_named(&self, name: &str, round: u64) -> bool {
        self.known.get(name).is_some_and(|known| known.round >= round)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;
    use crate::object::WORKSPACE_LABEL;

    const NOW: Duration = Duration::ZERO;

    fn books() -> ConversationBooks {
        let mut books = ConversationBooks::default();
        listed(&mut books);
        assert_eq!(books.intend("w", "ns", 1, 1), Ok(true));
        books
    }

    fn listed(books: &mut ConversationBooks) {
        books.view.deployments_listed();
        books.view.pods_listed();
    }

    fn deployment() -> Deployment {
        let value = json!({"metadata": {"name": "w", "namespace": "ns", "labels": {WORKSPACE_LABEL: "w"}}});
        serde_json::from_value(value).expect("a deployment")
    }

    fn attempt(generation: u64, failure: Option<&str>) -> Attempted {
        let failure = failure.map(|message| (FailureKind::Kubernetes, message.to_owned()));
        Attempted { generation, failure, is_complete: true, ..Attempted::default() }
    }

    fn said(books: &mut ConversationBooks) -> Option<WorkspaceReport> {
        match books.next(NOW)? {
            FromCluster::Report(report) => Some(*report),
            FromCluster::Begin(_) | FromCluster::FullRequest => None,
        }
    }

    #[test]
    fn nothing_is_said_of_a_workspace_before_the_cluster_was_looked_at() {
        let mut books = ConversationBooks::default();
        assert_eq!(books.intend("w", "ns", 1, 1), Ok(true));
        books.view.deployment(&deployment());
        books.refresh_all();
        assert_eq!(said(&mut books), None, "a Deployment that is not listed yet would look like one that is gone");
        books.view.deployments_listed();
        books.refresh_all();
        assert_eq!(said(&mut books), None, "and one whose pods are not, like one that has none");
        books.view.pods_listed();
        books.refresh_all();
        assert!(said(&mut books).is_some_and(|report| report.deployment.is_some() && report.applied == 0));
    }

    #[test]
    fn failure_is_told_even_while_the_cluster_cannot_be_looked_at() {
        let mut books = ConversationBooks::default();
        assert_eq!(books.intend("w", "ns", 1, 1), Ok(true));
        books.attempted("w", attempt(1, Some("down")));
        assert!(said(&mut books).is_some_and(|report| report.failure.is_some()));
    }

    #[test]
    fn late_end_of_an_earlier_attempt_says_nothing() {
        let mut books = books();
        assert_eq!(books.intend("w", "ns", 2, 0), Ok(true));
        books.attempted("w", attempt(1, Some("late")));
        assert_eq!(said(&mut books), None);
        books.attempted("w", attempt(2, None));
        assert!(said(&mut books).is_some_and(|report| report.applied == 2 && report.failure.is_none()));
        assert_eq!(books.intend("w", "ns", 1, 0), Ok(false));
    }

    #[test]
    fn what_is_waited_for_is_told_first_and_is_not_applied() {
        let mut books = books();
        books.view.deployment(&deployment());
        let waits =
            vec![ObjectDetail { object: "Deployment w".into(), reason: "Waiting".into(), message: "for a pod".into() }];
        books.attempted("w", Attempted { is_complete: false, waits: waits.clone(), ..attempt(1, None) });
        assert!(said(&mut books).is_some_and(|report| (report.applied, report.details) == (0, waits)));
        books.attempted("w", attempt(1, None));
        assert!(said(&mut books).is_some_and(|report| (report.applied, report.details.len()) == (1, 0)));
    }

    #[test]
    fn workspace_does_not_move_to_another_namespace() {
        let mut books = books();
        assert_eq!(books.intend("w", "other", 2, 0), Err("ns".to_owned()));
    }

    #[test]
    fn rounds_tell_who_was_named() {
        let mut books = books();
        assert_eq!(books.intend("v", "ns", 1, 0), Ok(true));
        assert_eq!((books.named_in(1), books.is_named("w", 1), books.is_named("v", 1)), (1, true, false));
        books.forget("w");
        assert_eq!(books.named_in(1), 0);
        books.want_full();
        assert_eq!(books.next(NOW), Some(FromCluster::FullRequest));
        assert_eq!(books.next(NOW), None);
    }
}
