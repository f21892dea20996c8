//! Decides whether the workload of a workspace may run: not beside a pod that is left of before. A Deployment's
//! strategy keeps its own pods from running beside each other when they change, and does not bear on one that was
//! scaled to nothing and is scaled up again (Kubernetes, "Deployments", strategy).
//!
//! The decision is made anew from the cluster in each pass, and nothing is kept of it: an agent that takes over holds
//! the same start back.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1::Pod;
use tunnel_proto::reconcile::{Deployment, ObjectDetail};

use crate::api::CancelableApi;
use crate::config::Scope;
use crate::object::{CLUSTER_LABEL, ObjectKey, Resource, SentObject, WORKSPACE_LABEL};
use crate::reasons::PodFacts;
use crate::retry::ApiError;
use crate::view::{is_at_rest, state_of};

/// Pods that a person is told of by name.
const NAMED: usize = 3;

/// Returns whether an object would have pods run.
pub(crate) fn runs(object: &SentObject) -> bool {
    object.key.kind == "Deployment"
        && object.value.pointer("/spec/replicas").and_then(|count| count.as_u64()) != Some(0)
}

/// Finds the pods that have to be gone before a Deployment may be applied; `None` if there are none.
///
/// # Errors
/// [`ApiError`] if it cannot be found out: then the Deployment may not be applied.
pub(crate) async fn obstacle(
    api: &CancelableApi,
    scope: &Scope,
    object: &SentObject,
    path: &str,
) -> Result<Option<ObjectDetail>, ApiError> {
    let live = api.get(path).await?.map(|live| {
        let live: apps::Deployment = serde_json::from_value(live).unwrap_or_default();
        state_of(&live)
    });
    if live.as_ref().is_some_and(runs_already) {
        return Ok(None);
    }
    // Asks for the API server's present state, which may be ahead of the watch.
    let labels = format!("{WORKSPACE_LABEL}={},{CLUSTER_LABEL}={}", scope.workspace, scope.cluster);
    let Some(pods) = Resource::known("", None, "Pod") else { return Ok(None) };
    let listed = api.list(&pods.collection(&scope.namespace), &labels).await?;
    let pods: Vec<Pod> = listed.into_iter().filter_map(|pod| serde_json::from_value(pod).ok()).collect();
    Ok(judge(&object.key, live.as_ref(), &pods))
}

fn runs_already(live: &Deployment) -> bool {
    live.replicas_wanted > 0
}

/// Judges whether a Deployment may be scaled up from nothing.
fn judge(key: &ObjectKey, live: Option<&Deployment>, pods: &[Pod]) -> Option<ObjectDetail> {
    if live.is_some_and(runs_already) {
        return None;
    }
    let left = pods.iter().filter(|pod| !PodFacts::read(pod).is_over);
    let names: Vec<_> = left.filter_map(|pod| pod.metadata.name.as_deref()).collect();
    let message = if !names.is_empty() {
        let named = names.get(..NAMED).unwrap_or(&names).join(", ");
        format!("starts when the pod of before has ended, {named}: both would write to the same volumes")
    } else if live.is_some_and(|live| !is_at_rest(live)) {
        "starts when the cluster has carried out its stop".to_owned()
    } else {
        return None;
    };
    Some(ObjectDetail { object: key.to_string(), reason: "Waiting".to_owned(), message })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::key;

    fn pod(metadata: &Value, status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "status": status})).expect("a pod")
    }

    fn deployment(wanted: u32, replicas: u32, observed: i64) -> Deployment {
        Deployment {
            generation: 2,
            observed_generation: observed,
            replicas_wanted: wanted,
            replicas,
            ..Deployment::default()
        }
    }

    #[track_caller]
    fn check(live: Option<&Deployment>, pods: &[Pod], expected: Option<&str>) {
        let found = judge(&key("ns", "w", "apps", "Deployment"), live, pods);
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) => assert!(found.message.contains(expected), "{found:?}"),
            (found, expected) => panic!("{found:?} and not {expected:?}"),
        }
    }

    #[test]
    fn start_waits_for_every_pod_that_may_still_write() {
        let running = pod(&json!({"name": "w-1"}), &json!({"phase": "Running"}));
        let pending = pod(&json!({"name": "w-2"}), &json!({"phase": "Pending"}));
        let leaving =
            pod(&json!({"name": "w-3", "deletionTimestamp": "2026-11-21T10:00:00Z"}), &json!({"phase": "Running"}));
        let at_rest = deployment(0, 0, 2);
        for (pod, name) in [(running, "w-1"), (pending, "w-2"), (leaving, "w-3")] {
            check(Some(&at_rest), std::slice::from_ref(&pod), Some(name));
            check(None, std::slice::from_ref(&pod), Some(name));
            check(Some(&deployment(1, 1, 2)), &[pod], None);
        }
    }

    #[test]
    fn pod_that_has_ended_with_all_its_containers_keeps_nothing_waiting() {
        let container = |state: Value| {
            json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "main", "image": "i", "imageID": "",
                "ready": false, "restartCount": 0, "state": state}]})
        };
        let evicted = pod(&json!({"name": "w-1"}), &container(json!({"terminated": {"exitCode": 137}})));
        check(Some(&deployment(0, 0, 2)), &[evicted], None);
        let told_early = pod(&json!({"name": "w-1"}), &container(json!({"running": {}})));
        check(Some(&deployment(0, 0, 2)), &[told_early], Some("w-1"));
    }

    #[test]
    fn start_waits_until_the_stop_before_it_was_carried_out() {
        check(Some(&deployment(0, 0, 2)), &[], None);
        check(None, &[], None);
        check(Some(&deployment(0, 0, 1)), &[], Some("carried out"));
        check(Some(&deployment(0, 1, 2)), &[], Some("carried out"));
    }

    #[test]
    fn workload_is_a_deployment_with_pods() {
        let object = |kind: &str, replicas: &Value| {
            SentObject::read(json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": {"replicas": replicas}}))
                .is_some_and(|object| runs(&object))
        };
        assert!(object("Deployment", &json!(1)) && object("Deployment", &json!(null)));
        assert!(!object("Deployment", &json!(0)) && !object("Service", &json!(1)));
    }
}
