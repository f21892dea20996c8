//! Reasons why a workspace is not as it should be, in words that help: from its pods (Kubernetes, "Pod Lifecycle") and
//! from the warnings among the events about its objects.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Event, Pod, PodCondition, PodStatus,
};
use tunnel_proto::reconcile::{ObjectDetail, StartProgress};

use crate::start::start_of;

/// Most details of one workspace.
pub(crate) const DETAILS_MAX: usize = 8;

/// Longest message of a detail, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;

/// Reasons in the order in which they are told: first those that a person can act on at once.
const RANKS: [&str; 19] = [
    "QuotaExceeded",
    "Unschedulable",
    "InvalidImageName",
    "ErrImagePull",
    "ImagePullBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "OOMKilled",
    "CrashLoopBackOff",
    "Error",
    "FailedMount",
    "FailedAttachVolume",
    "ProvisioningFailed",
    "Evicted",
    "FailedCreate",
    "NotConnected",
    "Unhealthy",
    "Restarted",
];

/// Warnings that tell the owner of a workspace nothing: they are about the node's own settings.
const OF_THE_NODE: [&str; 2] = ["MissingClusterDNS", "DNSConfigForming"];

/// Last bytes of what a container wrote that a person reads of its end.
const LAST_BYTES: usize = 320;

/// Facts that are kept of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub(crate) uid: String,
    pub(crate) is_ready: bool,
    /// It has a node.
    pub(crate) is_scheduled: bool,
    /// One of its containers runs, or did: its volumes are there.
    pub(crate) is_started: bool,
    /// It is being deleted: its details are of the past.
    pub(crate) is_leaving: bool,
    /// It has come to its end, with all of its containers (Kubernetes, "Pod Lifecycle", phases): nothing of it writes any more.
    pub(crate) is_over: bool,
    /// How far its start is, or was when it became ready.
    pub(crate) start: StartProgress,
    pub(crate) details: Vec<ObjectDetail>,
}

/// Facts that are kept of a warning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// UID of the object.
    pub(crate) uid: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Time at which it was last seen, in Unix seconds.
    pub(crate) at: i64,
}

impl PodFacts {
    /// Reads a pod.
    pub(crate) fn read(pod: &Pod) -> Self {
        let object = format!("Pod {}", pod.metadata.name.as_deref().unwrap_or_default());
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.iter().flatten();
        let is_ready = conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let is_scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let is_waiting = |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
        let mut details = Vec::new();
        for condition in conditions.filter(is_waiting).filter(|_| !is_scheduled) {
            let reason = condition.reason.as_deref().unwrap_or("Unschedulable");
            details.push(detail(&object, reason, condition.message.as_deref().unwrap_or_default()));
        }
        if status.phase.as_deref() == Some("Failed") && status.reason.is_some() {
            let reason = status.reason.as_deref().unwrap_or_default();
            details.push(detail(&object, reason, status.message.as_deref().unwrap_or_default()));
        }
        details.extend(containers(&status).filter_map(|container| of_container(&object, container)));
        let has_run = |state: &Option<ContainerState>| {
            state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let is_running =
            |container: &ContainerStatus| container.state.as_ref().is_some_and(|state| state.running.is_some());
        let mut all = containers(&status);
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            is_ready,
            is_scheduled,
            is_started: all.any(|container| has_run(&container.state) || has_run(&container.last_state)),
            is_leaving: pod.metadata.deletion_timestamp.is_some(),
            is_over: has_ended && !containers(&status).any(is_running),
            start: start_of(pod),
            details,
        }
    }
}

impl Warning {
    /// Reads an event; `None` if it is no warning or about nothing with a name.
    pub(crate) fn read(event: &Event) -> Option<Self> {
        let reason = event.reason.as_deref().unwrap_or_default();
        if event.type_.as_deref() != Some("Warning") || OF_THE_NODE.contains(&reason) {
            return None;
        }
        let about = &event.involved_object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let seen = event.last_timestamp.as_ref().map(|time| time.0).or(event.event_time.as_ref().map(|time| time.0));
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
        let at = series.or(seen).map_or(0, |time| time.as_second());
        Some(Self {
            kind: about.kind.clone()?,
            name: about.name.clone()?,
            uid: text(&about.uid),
            reason: text(&event.reason),
            message: text(&event.message),
            at,
        })
    }
}

/// Joins the details of pods and warnings: each thing once, the most useful first, and not more than a person reads.
pub(crate) fn details<'a>(
    pods: impl Iterator<Item = &'a PodFacts> + Clone,
    warnings: impl Iterator<Item = &'a Warning>,
) -> Vec<ObjectDetail> {
    let living = pods.filter(|pod| !pod.is_leaving);
    // A pod that was evicted stays, and is of the past once another one is well.
    let is_well = living.clone().any(|pod| pod.is_ready);
    let told = living.clone().filter(|pod| !(pod.is_over && is_well));
    let mut found: Vec<ObjectDetail> = told.flat_map(|pod| pod.details.iter().cloned()).collect();
    let mut warnings: Vec<_> = warnings.filter(|warning| still_counts(warning, living.clone())).collect();
    warnings.sort_by(|one, other| other.at.cmp(&one.at).then_with(|| one.name.cmp(&other.name)));
    for warning in warnings {
        let told = of_warning(warning);
        match found
            .iter_mut()
            .find(|detail| detail.object == told.object && is_same_matter(&detail.reason, &told.reason))
        {
            // The kubelet's event says which image and why; the container's state only that it waits.
            Some(known) if known.message.len() < told.message.len() => known.message = told.message,
            Some(_) => {}
            None => found.push(told),
        }
    }
    blame_eviction(&mut found);
    found.sort_by_key(|detail| RANKS.iter().position(|reason| *reason == detail.reason).unwrap_or(RANKS.len()));
    found.truncate(DETAILS_MAX);
    found
}

/// Says at a pod that finds no node why the one before it left its own: the scheduler's words do not.
fn blame_eviction(found: &mut [ObjectDetail]) {
    let evicted = found.iter().find(|detail| detail.reason == "Evicted").map(|detail| detail.message.clone());
    if let (Some(why), Some(waiting)) = (evicted, found.iter_mut().find(|detail| detail.reason == "Unschedulable")) {
        let message = format!("the pod before was evicted: {why} Now: {}", waiting.message);
        *waiting = detail(&waiting.object, &waiting.reason, &message);
    }
}

/// Returns whether a warning still counts. It outlives its cause by up to an hour: its object may be gone or well by
/// now.
fn still_counts<'a>(warning: &Warning, mut living: impl Iterator<Item = &'a PodFacts>) -> bool {
    match warning.kind.as_str() {
        "Pod" => living.any(|pod| pod.uid == warning.uid && !pod.is_ready && is_unsolved(warning, pod)),
        // A warning that no pod could be made is over once there is one.
        "ReplicaSet" | "Deployment" => living.next().is_none(),
        _ => !living.any(|pod| pod.is_started),
    }
}

/// Returns whether a warning about a pod that is not ready still holds: the pod may wait for another matter by now.
fn is_unsolved(warning: &Warning, pod: &PodFacts) -> bool {
    match of_warning(warning).reason.as_str() {
        "Unschedulable" => !pod.is_scheduled,
        "FailedMount" | "FailedAttachVolume" | "FailedCreatePodSandBox" => !pod.is_started,
        reason @ ("ErrImagePull" | "CrashLoopBackOff") => {
            !pod.is_started || pod.details.iter().any(|detail| is_same_matter(&detail.reason, reason))
        }
        _ => true,
    }
}

fn is_same_matter(known: &str, told: &str) -> bool {
    let is_image = |reason: &str| matches!(reason, "ErrImagePull" | "ImagePullBackOff");
    known == told || (is_image(known) && is_image(told))
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

fn of_container(object: &str, container: &ContainerStatus) -> Option<ObjectDetail> {
    let name = &container.name;
    let terminated = |state: &Option<ContainerState>| state.as_ref().and_then(|state| state.terminated.clone());
    let last = terminated(&container.last_state);
    let restarts = container.restart_count;
    if let Some(waiting) = container.state.as_ref().and_then(|state| state.waiting.as_ref()) {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        return match (reason, last) {
            // Every container begins so.
            ("" | "ContainerCreating" | "PodInitializing", _) => None,
            ("CrashLoopBackOff", Some(last)) => Some(ended(object, name, &last, "CrashLoopBackOff", restarts)),
            (reason, _) => {
                let message = waiting.message.as_deref().unwrap_or_default();
                Some(detail(object, reason, &format!("container {name}: {message}")))
            }
        };
    }
    if let Some(now) = terminated(&container.state).filter(|state| state.exit_code != 0) {
        return Some(ended(object, name, &now, "Error", restarts));
    }
    // It runs again. Why it ended is worth knowing all the same: it may end for that once more.
    let runs = container.state.as_ref().is_some_and(|state| state.running.is_some());
    last.filter(|last| runs && last.exit_code != 0).map(|last| ended(object, name, &last, "Restarted", restarts))
}

fn is_out_of_memory(state: &ContainerStateTerminated) -> bool {
    state.reason.as_deref() == Some("OOMKilled")
}

fn ended(object: &str, name: &str, state: &ContainerStateTerminated, reason: &str, restarts: i32) -> ObjectDetail {
    if is_out_of_memory(state) {
        let message = format!("container {name} used more memory than its limit allows, {restarts} restarts");
        return detail(object, "OOMKilled", &message);
    }
    let said = state.message.as_deref().map(last_lines).filter(|said| !said.is_empty());
    let why = said.or(state.reason.clone()).unwrap_or_else(|| "no reason given".to_owned());
    let code = state.exit_code;
    detail(object, reason, &format!("container {name} ended with exit code {code}, {restarts} restarts: {why}"))
}

/// Returns the end of what a container wrote, in one line.
fn last_lines(said: &str) -> String {
    let mut begin = said.len().saturating_sub(LAST_BYTES);
    while !said.is_char_boundary(begin) {
        begin += 1;
    }
    let last = said.get(begin..).unwrap_or_default();
    last.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

fn of_warning(warning: &Warning) -> ObjectDetail {
    let object = format!("{} {}", warning.kind, warning.name);
    // The workspace's own probe, whose words are for the owner.
    if let Some(said) = warning.message.strip_prefix("Startup probe failed: ") {
        return detail(&object, "NotConnected", said.trim());
    }
    let is_pull = warning.message.contains("pull image") || warning.message.contains("pulling image");
    let reason = match warning.reason.as_str() {
        "FailedScheduling" => "Unschedulable",
        "FailedCreate" if warning.message.contains("exceeded quota") => "QuotaExceeded",
        "Failed" | "BackOff" if is_pull => "ErrImagePull",
        "BackOff" => "CrashLoopBackOff",
        other => other,
    };
    detail(&object, reason, &warning.message)
}

/// Reports a pod that is on its way out and not gone.
pub(crate) fn ending(pod: &str) -> ObjectDetail {
    detail(&format!("Pod {pod}"), "Ending", "its processes have not ended yet")
}

fn detail(object: &str, reason: &str, message: &str) -> ObjectDetail {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let message = message.get(..end).unwrap_or_default();
    ObjectDetail { object: object.to_owned(), reason: reason.to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests;
