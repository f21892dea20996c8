//! How far the start of a workspace is, read from its pod (Kubernetes, "Pod Lifecycle" and "Init Containers").

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use tunnel_proto::reconcile::{StartProgress, StartStep};

/// Containers that the gateway puts before those of a devfile, which has no such names, and what each of them does.
const BEFORE: [(&str, StartStep); 2] = [("gw-tools", StartStep::Tools), ("gw-clone", StartStep::Projects)];

/// Reads a pod whose agent is not known to be connected. Its steps are done one after the other.
pub(crate) fn start_of(pod: &Pod) -> StartProgress {
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let before = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let beside = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let has = |name: &str| {
        let all = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        all.iter().any(|container| container.name == name)
    };
    let ended = |name: &str| before.iter().any(|container| container.name == name && has_ended_well(container));
    let mut steps = vec![(StartStep::Node, spec.is_some_and(|spec| spec.node_name.is_some()))];
    steps.extend(BEFORE.iter().filter(|(name, _)| has(name)).map(|(name, step)| (*step, ended(name))));
    steps.push((StartStep::Containers, !beside.is_empty() && beside.iter().all(runs)));
    // The pod is ready once its main container's probe has seen the agent connected.
    steps.push((StartStep::Agent, false));
    let done = steps.iter().take_while(|(_, is_done)| *is_done).count();
    StartProgress { steps: steps.into_iter().map(|(step, _)| step).collect(), done }
}

fn has_ended_well(container: &ContainerStatus) -> bool {
    let ended = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

fn runs(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, status: Value) -> StartProgress {
        start_of(&serde_json::from_value(json!({"spec": spec, "status": status})).expect("a pod"))
    }

    fn words(start: &StartProgress) -> (String, usize) {
        (start.steps.iter().map(|step| step.as_str()).collect::<Vec<_>>().join(" "), start.done)
    }

    #[test]
    fn pod_goes_through_its_steps() {
        let init = json!([{"name": "gw-tools"}, {"name": "gw-clone"}, {"name": "devfile"}]);
        let bare = json!({"containers": [], "initContainers": init});
        let placed = json!({"containers": [], "initContainers": init, "nodeName": "one"});
        let ended = |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let running = |name: &str| json!({"name": name, "state": {"running": {}}});
        let waiting = |name: &str| json!({"name": name, "state": {"waiting": {"reason": "PodInitializing"}}});
        let all = "node tools projects containers agent".to_owned();
        for (spec, before, beside, done) in [
            (&bare, json!(null), json!(null), 0),
            (&placed, json!(null), json!(null), 1),
            (&placed, json!([running("gw-tools"), waiting("gw-clone")]), json!([waiting("main")]), 1),
            (&placed, json!([ended("gw-tools", 1)]), json!([waiting("main")]), 1),
            (&placed, json!([ended("gw-tools", 0), running("gw-clone")]), json!([waiting("main")]), 2),
            (&placed, json!([ended("gw-tools", 0), ended("gw-clone", 0)]), json!([waiting("main")]), 3),
            (&placed, json!([ended("gw-tools", 0), ended("gw-clone", 0)]), json!([running("main"), waiting("x")]), 3),
            (&placed, json!([ended("gw-tools", 0), ended("gw-clone", 0)]), json!([running("main"), running("x")]), 4),
        ] {
            let status = json!({"initContainerStatuses": before, "containerStatuses": beside});
            assert_eq!(words(&pod(spec.clone(), status.clone())), (all.clone(), done), "{status}");
        }
    }

    #[test]
    fn pod_without_projects_has_no_step_for_them() {
        let spec = json!({"containers": [], "initContainers": [{"name": "gw-tools"}]});
        assert_eq!(words(&pod(spec, json!({}))).0, "node tools containers agent");
        assert_eq!(words(&start_of(&Pod::default())), ("node containers agent".to_owned(), 0));
    }
}
