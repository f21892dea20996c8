//! Observed state of each workspace: its Deployment, its pods, and warnings about its objects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tunnel_proto::reconcile::{Condition, Deployment, ObjectDetail, StartProgress};

use crate::object::WORKSPACE_LABEL;
use crate::reasons::{DETAILS_MAX, PodFacts, Warning, details, ending};

/// Warnings that are kept of one workspace: the newest.
const WARNINGS_MAX: usize = 24;

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamespacedName {
    namespace: String,
    name: String,
}

/// Observed state, by workspace.
#[derive(Debug, Default)]
pub(crate) struct View {
    seen: BTreeMap<String, ObservedObjects>,
    /// Workspaces that the gateway named, by namespace: the candidates for an event.
    named: BTreeMap<String, BTreeSet<String>>,
    pods: BTreeMap<NamespacedName, String>,
    /// Workspaces of warnings, by the event's own place.
    events: BTreeMap<NamespacedName, String>,
    are_deployments_listed: bool,
    are_pods_listed: bool,
}

#[derive(Debug, Default)]
struct ObservedObjects {
    namespace: String,
    deployment: Option<Deployment>,
    /// UID of the Deployment.
    uid: String,
    pods: BTreeMap<NamespacedName, PodFacts>,
    warnings: BTreeMap<NamespacedName, Warning>,
}

impl View {
    /// Notes that the gateway named a workspace.
    pub(crate) fn name(&mut self, workspace: &str, namespace: &str) {
        self.named.entry(namespace.to_owned()).or_default().insert(workspace.to_owned());
    }

    /// Forgets a workspace that is over.
    pub(crate) fn forget(&mut self, workspace: &str) {
        self.named.retain(|_, names| {
            names.remove(workspace);
            !names.is_empty()
        });
        self.seen.remove(workspace);
        self.pods.retain(|_, of| of != workspace);
        self.events.retain(|_, of| of != workspace);
    }

    /// Notes that all Deployments have been seen: one that was not is not there.
    pub(crate) fn deployments_listed(&mut self) {
        self.are_deployments_listed = true;
    }

    /// Notes that all pods have been seen.
    pub(crate) fn pods_listed(&mut self) {
        self.are_pods_listed = true;
    }

    /// Returns whether it is known which Deployments there are.
    pub(crate) fn has_deployments(&self) -> bool {
        self.are_deployments_listed
    }

    /// Returns whether it is known which Deployments and which pods there are.
    pub(crate) fn is_listed(&self) -> bool {
        self.are_deployments_listed && self.are_pods_listed
    }

    /// Takes a Deployment as it is now. Returns its workspace, if the observed state changes.
    pub(crate) fn deployment(&mut self, deployment: &apps::Deployment) -> Option<String> {
        let workspace = workspace(&deployment.metadata)?;
        // A workspace's Deployment has its name: another one with its label is an experiment of a user.
        if deployment.metadata.name.as_ref() != Some(&workspace) {
            return None;
        }
        let seen = self.seen.entry(workspace.clone()).or_default();
        let uid = deployment.metadata.uid.clone().unwrap_or_default();
        let now = state_of(deployment);
        // A watch may be behind the answer to an apply.
        let is_older = |known: &Deployment| seen.uid == uid && known.generation > now.generation;
        if seen.deployment.as_ref().is_some_and(is_older) {
            return None;
        }
        seen.namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        seen.uid = uid;
        let now = Some(now);
        (seen.deployment != now).then(|| {
            seen.deployment = now;
            workspace
        })
    }

    /// Takes a Deployment as the answer to its being applied showed it, if a watch has not shown as much already.
    pub(crate) fn applied(&mut self, deployment: &apps::Deployment) {
        let known = workspace(&deployment.metadata).and_then(|name| self.seen.get(&name)?.deployment.as_ref());
        let generation = deployment.metadata.generation.unwrap_or_default();
        if known.is_none_or(|known| known.generation < generation) {
            self.deployment(deployment);
        }
    }

    /// Removes a Deployment. Returns its workspace.
    pub(crate) fn deployment_gone(&mut self, deployment: &apps::Deployment) -> Option<String> {
        let workspace = workspace(&deployment.metadata)?;
        if deployment.metadata.name.as_ref() != Some(&workspace) {
            return None;
        }
        self.seen.get_mut(&workspace)?.deployment.take().map(|_gone| workspace)
    }

    /// Removes all Deployments but these: the others went while there was no watch. Returns their workspaces.
    pub(crate) fn only_deployments(&mut self, there: &BTreeSet<String>) -> Vec<String> {
        let gone = self.seen.iter_mut().filter(|(name, seen)| !there.contains(*name) && seen.deployment.is_some());
        gone.map(|(name, seen)| {
            seen.deployment = None;
            name.clone()
        })
        .collect()
    }

    /// Takes a pod as it is now. Returns its workspace, if the observed state changes.
    pub(crate) fn pod(&mut self, pod: &Pod) -> Option<String> {
        let workspace = workspace(&pod.metadata)?;
        let place = place(&pod.metadata);
        let facts = PodFacts::read(pod);
        self.pods.insert(place.clone(), workspace.clone());
        let seen = self.seen.entry(workspace.clone()).or_default();
        let before = seen.pods.insert(place, facts.clone());
        (before != Some(facts)).then_some(workspace)
    }

    /// Removes a pod. Returns its workspace.
    pub(crate) fn pod_gone(&mut self, place: &NamespacedName) -> Option<String> {
        let workspace = self.pods.remove(place)?;
        self.seen.get_mut(&workspace)?.pods.remove(place);
        Some(workspace)
    }

    /// Removes all pods but these. Returns their workspaces.
    pub(crate) fn only_pods(&mut self, there: &BTreeSet<NamespacedName>) -> Vec<String> {
        let gone: Vec<_> = self.pods.keys().filter(|place| !there.contains(*place)).cloned().collect();
        gone.iter().filter_map(|place| self.pod_gone(place)).collect()
    }

    /// Takes an event. Returns its workspace, if it is a warning about one that the gateway named.
    pub(crate) fn event(&mut self, event: &Event) -> Option<String> {
        let warning = Warning::read(event)?;
        let namespace = event.involved_object.namespace.as_deref().or(event.metadata.namespace.as_deref())?;
        let workspace = self.about(namespace, &warning)?;
        let place = place(&event.metadata);
        let seen = self.seen.entry(workspace.clone()).or_default();
        if seen.warnings.get(&place) == Some(&warning) {
            return None;
        }
        self.events.insert(place.clone(), workspace.clone());
        seen.warnings.insert(place, warning);
        if seen.warnings.len() > WARNINGS_MAX {
            let oldest = seen.warnings.iter().min_by_key(|(_, warning)| warning.at).map(|(place, _)| place.clone());
            if let Some(oldest) = oldest {
                seen.warnings.remove(&oldest);
                self.events.remove(&oldest);
            }
        }
        Some(workspace)
    }

    /// Removes an event: events live for an hour. Returns its workspace.
    pub(crate) fn event_gone(&mut self, place: &NamespacedName) -> Option<String> {
        let workspace = self.events.remove(place)?;
        self.seen.get_mut(&workspace)?.warnings.remove(place);
        Some(workspace)
    }

    /// Removes all events but these. Returns their workspaces.
    pub(crate) fn only_events(&mut self, there: &BTreeSet<NamespacedName>) -> Vec<String> {
        let gone: Vec<_> = self.events.keys().filter(|place| !there.contains(*place)).cloned().collect();
        gone.iter().filter_map(|place| self.event_gone(place)).collect()
    }

    /// Finds the workspace that a warning is about: its pod's, or the one whose name is a prefix of the object's.
    fn about(&self, namespace: &str, warning: &Warning) -> Option<String> {
        if warning.kind == "Pod"
            && let Some(workspace) =
                self.pods.get(&NamespacedName { namespace: namespace.to_owned(), name: warning.name.clone() })
        {
            return Some(workspace.clone());
        }
        let is_of = |workspace: &&String| {
            let rest = warning.name.strip_prefix(workspace.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        // Of `a` and `a-b`, an object `a-b-data` is of the longer one.
        self.named.get(namespace)?.iter().filter(is_of).max_by_key(|workspace| workspace.len()).cloned()
    }

    /// Returns a workspace's Deployment. Its number of pods includes those on their way out, which the cluster's own
    /// number leaves out: they run and write until they are gone (Kubernetes, "Pod Lifecycle", termination of pods).
    pub(crate) fn deployment_of(&self, workspace: &str) -> Option<Deployment> {
        let seen = self.seen.get(workspace)?;
        let deployment = seen.deployment.clone()?;
        let pods = u32::try_from(seen.living().count()).unwrap_or(u32::MAX);
        Some(Deployment { replicas: deployment.replicas.max(pods), ..deployment })
    }

    /// Returns whether nothing of a workspace runs or is about to, as far as is observed.
    pub(crate) fn is_at_rest(&self, workspace: &str) -> bool {
        let Some(seen) = self.seen.get(workspace) else { return true };
        seen.living().next().is_none() && seen.deployment.as_ref().is_none_or(is_at_rest)
    }

    /// Returns the details that pods and warnings give about a workspace.
    pub(crate) fn details_of(&self, workspace: &str) -> Vec<ObjectDetail> {
        let Some(seen) = self.seen.get(workspace) else { return Vec::new() };
        let mut details = details(seen.pods.values(), seen.warnings.values());
        if seen.deployment.as_ref().is_some_and(|deployment| deployment.replicas_wanted == 0) {
            let leaving = seen.pods.iter().filter(|(_, pod)| pod.is_leaving && !pod.is_over);
            details.extend(leaving.map(|(place, _)| ending(&place.name)).take(DETAILS_MAX - details.len()));
        }
        details
    }

    /// Returns how far the start of a workspace's pod is; `None` if none is about to be ready. A pod is ready for a moment before its
    /// Deployment counts it, and the start goes on until then: a start never goes back.
    pub(crate) fn start_of(&self, workspace: &str) -> Option<StartProgress> {
        let seen = self.seen.get(workspace)?;
        let deployment = seen.deployment.as_ref().filter(|deployment| deployment.replicas_wanted > 0)?;
        let coming = seen.living().filter(|pod| !pod.is_leaving).min_by_key(|pod| pod.is_ready)?;
        (!coming.is_ready || deployment.available == 0).then(|| coming.start.clone())
    }

    /// Returns the workspaces that have a Deployment, with its namespace.
    pub(crate) fn deployed(&self) -> impl Iterator<Item = (&str, &str)> {
        let deployed = self.seen.iter().filter(|(_, seen)| seen.deployment.is_some());
        deployed.map(|(name, seen)| (name.as_str(), seen.namespace.as_str()))
    }
}

impl ObservedObjects {
    /// Returns the pods that may still run.
    fn living(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.values().filter(|pod| !pod.is_over)
    }
}

/// Returns an object's place.
pub(crate) fn place(metadata: &ObjectMeta) -> NamespacedName {
    NamespacedName {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

fn workspace(metadata: &ObjectMeta) -> Option<String> {
    metadata.labels.as_ref()?.get(WORKSPACE_LABEL).cloned()
}

/// Returns whether a Deployment that wants no pods has none, and no controller makes one for it: its earlier state is
/// over.
pub(crate) fn is_at_rest(deployment: &Deployment) -> bool {
    deployment.replicas_wanted == 0
        && deployment.observed_generation >= deployment.generation
        && deployment.replicas == 0
}

/// Reads the parts of a Deployment that tell a workspace's state. What they mean is the gateway's to decide.
pub(crate) fn state_of(deployment: &apps::Deployment) -> Deployment {
    let count = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
    let metadata = &deployment.metadata;
    let status = deployment.status.clone().unwrap_or_default();
    let condition = |condition: apps::DeploymentCondition| Condition {
        kind: condition.type_,
        status: condition.status,
        reason: condition.reason.unwrap_or_default(),
        message: condition.message.unwrap_or_default(),
    };
    // An absent `spec.replicas` is 1 (Kubernetes API, DeploymentSpec).
    let wanted = deployment.spec.as_ref().map_or(0, |spec| count(spec.replicas.or(Some(1))));
    Deployment {
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        observed_generation: status.observed_generation.unwrap_or_default(),
        replicas_wanted: wanted,
        replicas: count(status.replicas),
        updated: count(status.updated_replicas),
        available: count(status.available_replicas),
        unavailable: count(status.unavailable_replicas),
        conditions: status.conditions.into_iter().flatten().map(condition).collect(),
    }
}

#[cfg(test)]
mod tests;
