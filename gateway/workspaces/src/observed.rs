//! Derives a workspace's actual state from a cluster agent's report, with the reason in words for its owner (Kubernetes
//! API, apps/v1 DeploymentStatus).

use tunnel_proto::reconcile::{Blocker, Condition, Deployment, ObjectDetail, ReconcileFailure, WorkspaceReport};

use gateway_types::{ActualState, DesiredState, Lifecycle};

/// Most objects that a reason names.
const NAMED_MAX: usize = 3;

/// Reasons that are told of a workspace that runs: a container of it ended, and runs again.
const AGAIN: [&str; 2] = ["Restarted", "OOMKilled"];

/// Outcome of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportOutcome {
    /// Actual state of the workspace.
    pub actual: ActualState,
    /// Reason of the state, if there is one.
    pub reason: Option<String>,
    /// Highest generation that was applied without a failure, never above the requested one.
    pub applied: u64,
}

/// Reads a report about a workspace with this lifecycle.
#[must_use]
pub fn observe(report: &WorkspaceReport, life: &Lifecycle) -> ReportOutcome {
    let (actual, reason) = state(report, life);
    // An agent that claims more than the requested generation would keep the gateway from ever sending it.
    ReportOutcome { actual, reason, applied: report.applied.min(life.generation) }
}

fn state(report: &WorkspaceReport, life: &Lifecycle) -> (ActualState, Option<String>) {
    // A failure of a withdrawn desired state says nothing about this one.
    let failure = report.failure.as_ref().filter(|failure| failure.generation >= life.generation);
    if life.desired == DesiredState::Terminated {
        return terminating(report, failure, life);
    }
    if let Some(failure) = failure {
        return (ActualState::Error, Some(of_failure(failure)));
    }
    match &report.deployment {
        Some(deployment) => of_deployment(deployment, &report.details),
        None if report.applied < life.generation && life.actual == ActualState::CreationRequested => {
            (ActualState::CreationRequested, first(&report.details))
        }
        // The Deployment was applied, and the cluster does not show it yet.
        None if life.actual == ActualState::CreationRequested => (ActualState::Starting, first(&report.details)),
        None => (ActualState::Unknown, Some("its Deployment is not in the cluster".to_owned())),
    }
}

fn terminating(
    report: &WorkspaceReport,
    failure: Option<&ReconcileFailure>,
    life: &Lifecycle,
) -> (ActualState, Option<String>) {
    match (&report.termination, failure) {
        (Some(termination), _) if termination.is_done => (ActualState::Terminated, None),
        (_, Some(failure)) => (ActualState::Error, Some(of_failure(failure))),
        (Some(termination), None) => (ActualState::Terminating, of_blockers(&termination.blockers)),
        // The agent has not begun.
        (None, None) => (life.actual, life.reason.as_deref().map(str::to_owned)),
    }
}

fn of_deployment(deployment: &Deployment, details: &[ObjectDetail]) -> (ActualState, Option<String>) {
    let stops = deployment.replicas_wanted == 0;
    if deployment.observed_generation < deployment.generation {
        // The rest of the status is about an earlier desired state.
        return (if stops { ActualState::Stopping } else { ActualState::Starting }, first(details));
    }
    if stops {
        return if deployment.replicas > 0 {
            (ActualState::Stopping, first(details))
        } else {
            (ActualState::Stopped, None)
        };
    }
    let condition = |kind: &str, status: &str| {
        deployment.conditions.iter().find(|condition| condition.kind == kind && condition.status == status)
    };
    let failed = condition("Progressing", "False").or_else(|| condition("ReplicaFailure", "True"));
    if let Some(failed) = failed {
        return (ActualState::Failed, first(details).or_else(|| of_condition(failed)));
    }
    let wanted = deployment.replicas_wanted;
    if condition("Available", "True").is_some() && deployment.updated >= wanted && deployment.available >= wanted {
        let again = details.iter().find(|detail| AGAIN.contains(&detail.reason.as_str()));
        return (ActualState::Running, again.map(of_detail));
    }
    // The Deployment was available before: nothing waits for it any more, and no deadline would ever report its crash
    // loop.
    let was_up = condition("Progressing", "True").is_some_and(|condition| condition.reason == "NewReplicaSetAvailable");
    let falls_over = details.iter().find(|detail| detail.reason == "CrashLoopBackOff");
    if let Some(detail) = falls_over.filter(|_| was_up) {
        return (ActualState::Failed, Some(of_detail(detail)));
    }
    (ActualState::Starting, first(details))
}

fn first(details: &[ObjectDetail]) -> Option<String> {
    details.first().map(of_detail)
}

fn of_detail(detail: &ObjectDetail) -> String {
    match (detail.message.is_empty(), detail.object.is_empty()) {
        (true, true) => detail.reason.clone(),
        (true, false) => format!("{} ({})", detail.reason, detail.object),
        (false, true) => format!("{}: {}", detail.reason, detail.message),
        (false, false) => format!("{}: {} ({})", detail.reason, detail.message, detail.object),
    }
}

fn of_condition(condition: &Condition) -> Option<String> {
    let Condition { reason, message, .. } = condition;
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => None,
        (false, true) => Some(reason.clone()),
        (true, false) => Some(message.clone()),
        (false, false) => Some(format!("{reason}: {message}")),
    }
}

fn of_failure(failure: &ReconcileFailure) -> String {
    if failure.message.is_empty() { "the cluster agent gave no reason".to_owned() } else { failure.message.clone() }
}

/// Names the remaining objects, and who holds them.
fn of_blockers(blockers: &[Blocker]) -> Option<String> {
    let one = |blocker: &Blocker| {
        let holders = blocker.finalizers.join(", ");
        match (holders.is_empty(), blocker.message.is_empty()) {
            (true, true) => blocker.object.clone(),
            (true, false) => format!("{} ({})", blocker.object, blocker.message),
            (false, true) => format!("{} (held by {holders})", blocker.object),
            (false, false) => format!("{} (held by {holders}: {})", blocker.object, blocker.message),
        }
    };
    let named: Vec<String> = blockers.iter().take(NAMED_MAX).map(one).collect();
    match blockers.len().saturating_sub(NAMED_MAX) {
        _ if named.is_empty() => None,
        0 => Some(format!("still there: {}", named.join("; "))),
        more => Some(format!("still there: {}; and {more} more", named.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tunnel_proto::reconcile::{FailureKind, Termination};

    use super::*;
    use gateway_types::UnixSeconds;

    fn life(desired: DesiredState, actual: ActualState) -> Lifecycle {
        Lifecycle { desired, actual, generation: 5, ..Lifecycle::new(UnixSeconds::new(1)) }
    }

    fn running() -> Lifecycle {
        life(DesiredState::Running, ActualState::Starting)
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Condition {
        Condition { kind: kind.into(), status: status.into(), reason: reason.into(), message: String::new() }
    }

    fn deployed(wanted: u32, there: u32, available: u32, conditions: &[(&str, &str, &str)]) -> WorkspaceReport {
        let conditions = conditions.iter().map(|(kind, status, reason)| condition(kind, status, reason)).collect();
        let deployment = Deployment {
            generation: 2,
            observed_generation: 2,
            replicas_wanted: wanted,
            replicas: there,
            updated: there,
            available,
            conditions,
            ..Deployment::default()
        };
        WorkspaceReport { applied: 5, deployment: Some(deployment), ..WorkspaceReport::default() }
    }

    fn with_detail(mut report: WorkspaceReport, reason: &str) -> WorkspaceReport {
        report.details.push(ObjectDetail { object: "Pod a".into(), reason: reason.into(), message: "because".into() });
        report
    }

    #[test]
    fn deployment_tells_the_state() {
        let up = ("Available", "True", "MinimumReplicasAvailable");
        let down = ("Available", "False", "MinimumReplicasUnavailable");
        let rolling = ("Progressing", "True", "ReplicaSetUpdated");
        let rolled = ("Progressing", "True", "NewReplicaSetAvailable");
        let late = ("Progressing", "False", "ProgressDeadlineExceeded");
        let quota = ("ReplicaFailure", "True", "FailedCreate");
        for (wanted, there, available, conditions, actual) in [
            (1, 1, 1, &[up, rolled][..], ActualState::Running),
            (1, 1, 0, &[down, rolling], ActualState::Starting),
            (1, 0, 0, &[], ActualState::Starting),
            (1, 1, 0, &[down, rolled], ActualState::Starting),
            (1, 1, 0, &[down, late], ActualState::Failed),
            (1, 0, 0, &[down, rolling, quota], ActualState::Failed),
            (0, 1, 1, &[up, rolled], ActualState::Stopping),
            (0, 0, 0, &[up, rolled], ActualState::Stopped),
        ] {
            let observed = observe(&deployed(wanted, there, available, conditions), &running());
            assert_eq!(observed.actual, actual, "{wanted} {there} {available} {conditions:?}");
        }
    }

    #[test]
    fn status_of_an_earlier_intent_is_not_believed() {
        for (wanted, actual) in [(1, ActualState::Starting), (0, ActualState::Stopping)] {
            let mut report = deployed(wanted, 0, 0, &[("Available", "True", "")]);
            report.deployment.as_mut().expect("one").observed_generation = 1;
            assert_eq!(observe(&report, &running()).actual, actual);
        }
    }

    #[test]
    fn pod_that_cannot_start_is_named_while_it_is_waited_for() {
        let starting =
            with_detail(deployed(1, 1, 0, &[("Progressing", "True", "ReplicaSetUpdated")]), "ImagePullBackOff");
        let observed = observe(&starting, &running());
        assert_eq!(observed.actual, ActualState::Starting);
        assert_eq!(observed.reason.as_deref(), Some("ImagePullBackOff: because (Pod a)"));
    }

    #[test]
    fn pod_that_ran_and_keeps_falling_over_has_failed() {
        let rolled = [("Progressing", "True", "NewReplicaSetAvailable"), ("Available", "False", "")];
        let falling = with_detail(deployed(1, 1, 0, &rolled), "CrashLoopBackOff");
        assert_eq!(observe(&falling, &running()).actual, ActualState::Failed);
        let pulling = with_detail(deployed(1, 1, 0, &rolled), "ImagePullBackOff");
        assert_eq!(observe(&pulling, &running()).actual, ActualState::Starting);
    }

    #[test]
    fn failure_of_an_intent_that_was_taken_back_is_dropped() {
        let mut report = deployed(0, 0, 0, &[]);
        report.failure = Some(ReconcileFailure { kind: FailureKind::Kubernetes, generation: 4, message: "old".into() });
        let stopped = life(DesiredState::Stopped, ActualState::Stopping);
        assert_eq!(observe(&report, &stopped).actual, ActualState::Stopped);
        report.failure =
            Some(ReconcileFailure { kind: FailureKind::Kubernetes, generation: 5, message: "forbidden".into() });
        let observed = observe(&report, &stopped);
        assert_eq!((observed.actual, observed.reason.as_deref()), (ActualState::Error, Some("forbidden")));
    }

    #[test]
    fn nothing_there_is_not_yet_only_before_the_first_apply() {
        let nothing = |applied| WorkspaceReport { applied, ..WorkspaceReport::default() };
        let new = life(DesiredState::Running, ActualState::CreationRequested);
        assert_eq!(observe(&nothing(0), &new).actual, ActualState::CreationRequested);
        assert_eq!(observe(&nothing(5), &new).actual, ActualState::Starting);
        assert_eq!(observe(&nothing(5), &running()).actual, ActualState::Unknown);
    }

    #[test]
    fn end_is_told_by_the_agent_and_what_holds_it_up_is_named() {
        let ending = life(DesiredState::Terminated, ActualState::Running);
        assert_eq!(observe(&deployed(1, 1, 1, &[]), &ending).actual, ActualState::Running, "it has not begun");
        let blocker = |object: &str, finalizers: &[&str]| Blocker {
            object: object.into(),
            finalizers: finalizers.iter().map(|&text| text.into()).collect(),
            ..Blocker::default()
        };
        let blockers = vec![blocker("Pod a", &[]), blocker("Volume b", &["x/y"]), blocker("c", &[]), blocker("d", &[])];
        let mut report = WorkspaceReport {
            termination: Some(Termination { is_done: false, blockers }),
            ..WorkspaceReport::default()
        };
        let observed = observe(&report, &ending);
        assert_eq!(observed.actual, ActualState::Terminating);
        assert_eq!(observed.reason.as_deref(), Some("still there: Pod a; Volume b (held by x/y); c; and 1 more"));
        report.termination = Some(Termination { is_done: true, blockers: Vec::new() });
        assert_eq!(observe(&report, &ending).actual, ActualState::Terminated);
    }

    #[test]
    fn agent_cannot_end_a_workspace_that_is_to_live_nor_claim_more_than_was_asked() {
        let report = WorkspaceReport {
            applied: u64::MAX,
            termination: Some(Termination { is_done: true, blockers: Vec::new() }),
            ..deployed(1, 1, 1, &[("Available", "True", "")])
        };
        let observed = observe(&report, &running());
        assert_eq!((observed.actual, observed.applied), (ActualState::Running, 5));
    }

    proptest! {
        #[test]
        fn only_a_workspace_that_is_to_end_is_ever_seen_to_end(
            desired in 0_usize..4, actual in 0_usize..10, wanted in 0_u32..3, there in 0_u32..3, done in any::<bool>(),
        ) {
            let life = life(DesiredState::ALL[desired], ActualState::ALL[actual]);
            let ends = |state| matches!(state, ActualState::Terminating | ActualState::Terminated);
            let termination = Some(Termination { is_done: done, blockers: Vec::new() });
            let seen = observe(&WorkspaceReport { termination, ..deployed(wanted, there, there, &[]) }, &life);
            prop_assert!(life.desired == DesiredState::Terminated || !ends(seen.actual));
        }
    }
}
