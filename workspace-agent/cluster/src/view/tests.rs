use serde_json::{Value, json};

use super::*;

fn deployment(name: &str, label: &str, version: &str) -> apps::Deployment {
    let value = json!({"metadata": {"name": name, "namespace": "ns", "labels": {WORKSPACE_LABEL: label},
        "resourceVersion": version, "generation": 3},
        "spec": {"replicas": 1, "selector": {}, "template": {}},
        "status": {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": -1,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSet", "message": "m"}]}});
    serde_json::from_value(value).expect("a deployment")
}

fn in_ns(name: &str) -> NamespacedName {
    NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() }
}

fn pod(name: &str, label: &str, status: &Value) -> Pod {
    let value = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {WORKSPACE_LABEL: label}},
        "status": status});
    serde_json::from_value(value).expect("a pod")
}

fn event(name: &str, kind: &str, about: &str, at: u32) -> Event {
    let value = json!({"metadata": {"name": name, "namespace": "ns"}, "type": "Warning", "reason": "FailedMount",
        "message": "m", "lastTimestamp": format!("2026-11-21T10:{:02}:{:02}Z", at / 60, at % 60),
        "involvedObject": {"kind": kind, "name": about, "uid": about, "namespace": "ns"}});
    serde_json::from_value(value).expect("an event")
}

#[test]
fn deployment_is_read_whole_and_only_a_change_is_news() {
    let mut view = View::default();
    assert_eq!(view.deployment(&deployment("w", "w", "7")).as_deref(), Some("w"));
    assert_eq!(view.deployment(&deployment("w", "w", "7")), None);
    let seen = view.deployment_of("w").expect("it was seen");
    assert_eq!((seen.resource_version.as_str(), seen.generation, seen.observed_generation), ("7", 3, 2));
    assert_eq!((seen.replicas_wanted, seen.replicas, seen.available), (1, 1, 0));
    let condition = Condition {
        kind: "Progressing".into(),
        status: "True".into(),
        reason: "NewReplicaSet".into(),
        message: "m".into(),
    };
    assert_eq!(seen.conditions, [condition]);
    assert_eq!(view.deployed().collect::<Vec<_>>(), [("w", "ns")]);
}

#[test]
fn deployment_of_another_name_is_not_the_workspaces() {
    let mut view = View::default();
    assert_eq!(view.deployment(&deployment("experiment", "w", "7")), None);
    assert_eq!(view.deployment_of("w"), None);
    view.deployment(&deployment("w", "w", "7"));
    assert_eq!(view.deployment_gone(&deployment("experiment", "w", "8")), None);
    assert!(view.deployment_of("w").is_some());
}

#[test]
fn answer_to_an_apply_is_seen_at_once_and_hides_nothing_newer() {
    let at = |generation: i64, version: &str| {
        let mut deployment = deployment("w", "w", version);
        deployment.metadata.generation = Some(generation);
        deployment
    };
    let version = |view: &View| view.deployment_of("w").map(|seen| seen.resource_version.clone()).unwrap_or_default();
    let mut view = View::default();
    view.applied(&at(1, "1"));
    assert_eq!(version(&view), "1");
    assert!(view.deployment(&at(1, "9")).is_some());
    view.applied(&at(1, "2"));
    assert_eq!(version(&view), "9", "the watch has shown more already");
    view.applied(&at(2, "10"));
    assert_eq!(view.deployment(&at(1, "9")), None, "a watch that is late says nothing of the newer one");
    assert_eq!(version(&view), "10");
    let mut another = at(1, "20");
    another.metadata.uid = Some("another".into());
    assert!(view.deployment(&another).is_some(), "it was made anew");
}

#[test]
fn what_went_while_nobody_looked_is_gone_after_the_next_list() {
    let mut view = View::default();
    view.deployment(&deployment("a", "a", "1"));
    view.deployment(&deployment("b", "b", "1"));
    assert_eq!(view.only_deployments(&BTreeSet::from(["b".to_owned()])), ["a"]);
    assert_eq!(view.only_deployments(&BTreeSet::from(["b".to_owned()])), [""; 0], "once");
    let failing = json!({"phase": "Failed", "reason": "Evicted", "message": "m"});
    view.pod(&pod("a-1", "a", &failing));
    assert_eq!(view.details_of("a").len(), 1);
    assert_eq!(view.only_pods(&BTreeSet::new()), ["a"]);
    assert_eq!(view.details_of("a").len(), 0);
}

#[test]
fn pods_that_are_on_their_way_out_are_counted_until_they_are_gone() {
    let mut view = View::default();
    let stopped = |status: Value| {
        let value = json!({"metadata": {"name": "w", "namespace": "ns", "labels": {WORKSPACE_LABEL: "w"}, "generation": 3},
            "spec": {"replicas": 0, "selector": {}, "template": {}}, "status": status});
        serde_json::from_value::<apps::Deployment>(value).expect("a deployment")
    };
    let count = |view: &View| view.deployment_of("w").map(|seen| seen.replicas);
    view.deployment(&stopped(json!({"observedGeneration": 2, "replicas": 1})));
    assert_eq!((count(&view), view.is_at_rest("w")), (Some(1), false));
    view.deployment(&stopped(json!({"observedGeneration": 3})));
    assert_eq!((count(&view), view.is_at_rest("w"), view.details_of("w").len()), (Some(0), true, 0));
    let mut leaving = pod("w-1", "w", &json!({"phase": "Running"}));
    view.pod(&leaving);
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-21T10:00:00Z")).expect("a time");
    assert!(view.pod(&leaving).is_some(), "it is news");
    assert_eq!((count(&view), view.is_at_rest("w")), (Some(1), false));
    let details = view.details_of("w");
    assert_eq!((details[0].object.as_str(), details[0].reason.as_str(), details.len()), ("Pod w-1", "Ending", 1));
    view.pod(&pod("w-2", "w", &json!({"phase": "Succeeded"})));
    assert_eq!(count(&view), Some(1), "what has ended does not run");
    view.pod_gone(&in_ns("w-1"));
    assert_eq!((count(&view), view.is_at_rest("w"), view.details_of("w").len()), (Some(0), true, 0));
}

#[test]
fn start_goes_on_until_the_deployment_counts_the_pod_and_never_back() {
    let mut view = View::default();
    let counted = |available: i32, version: &str| {
        let mut deployment = deployment("w", "w", version);
        deployment.status.as_mut().expect("a status").available_replicas = Some(available);
        deployment
    };
    let done = |view: &View| view.start_of("w").map(|start| start.done);
    let running = json!([{"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]);
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": running});
    let placed = |name: &str, status: &Value| {
        let mut pod = pod(name, "w", status);
        pod.spec = serde_json::from_value(json!({"containers": [], "nodeName": "one"})).expect("a spec");
        pod
    };
    view.deployment(&counted(0, "1"));
    assert_eq!(done(&view), None, "there is no pod");
    view.pod(&placed("w-2", &json!({})));
    assert_eq!(done(&view), Some(1));
    view.pod(&placed("w-2", &ready));
    assert_eq!(done(&view), Some(2), "it is ready, and not counted");
    view.deployment(&counted(1, "2"));
    assert_eq!(done(&view), None, "it is over");
    view.pod(&placed("w-1", &json!({})));
    assert_eq!(done(&view), Some(1), "another one begins");
    view.pod_gone(&in_ns("w-1"));
    view.pod(&placed("w-3", &json!({})));
    assert_eq!(done(&view), Some(1), "wherever it is in the list");
}

#[test]
fn events_are_of_the_workspace_whose_object_they_are_about() {
    let mut view = View::default();
    for name in ["a", "a-b"] {
        view.name(name, "ns");
    }
    assert_eq!(view.event(&event("e1", "PersistentVolumeClaim", "a-data", 1)).as_deref(), Some("a"));
    assert_eq!(view.event(&event("e2", "PersistentVolumeClaim", "a-b-data", 1)).as_deref(), Some("a-b"));
    assert_eq!(view.event(&event("e3", "ReplicaSet", "a-b", 1)).as_deref(), Some("a-b"));
    assert_eq!(view.event(&event("e4", "ReplicaSet", "ab", 1)), None);
    assert_eq!(view.event(&event("e1", "PersistentVolumeClaim", "a-data", 1)), None, "the same is no news");
    view.pod(&pod("a-b-x", "a", &json!({})));
    assert_eq!(view.event(&event("e5", "Pod", "a-b-x", 1)).as_deref(), Some("a"), "the pod says whose it is");
    let place = in_ns("e1");
    assert_eq!(view.event_gone(&place).as_deref(), Some("a"));
    assert_eq!(view.event_gone(&place), None);
    let there = BTreeSet::from([in_ns("e2"), in_ns("e3")]);
    assert_eq!(view.only_events(&there), ["a"], "one went while nobody looked");
}

#[test]
fn events_of_one_workspace_are_bounded_and_the_newest_stay() {
    let mut view = View::default();
    view.name("w", "ns");
    for at in 0..200 {
        view.event(&event(&format!("e{at}"), "PersistentVolumeClaim", "w-data", at));
    }
    let kept: Vec<_> = view.seen["w"].warnings.values().map(|warning| warning.at).collect();
    assert_eq!(kept.len(), WARNINGS_MAX);
    assert_eq!(view.events.len(), WARNINGS_MAX);
    assert_eq!(kept.iter().max().zip(kept.iter().min()).map(|(newest, oldest)| newest - oldest), Some(23));
}

#[test]
fn workspace_that_is_over_leaves_nothing_behind() {
    let mut view = View::default();
    view.name("w", "ns");
    view.deployment(&deployment("w", "w", "1"));
    view.pod(&pod("w-1", "w", &json!({})));
    view.event(&event("e", "Pod", "w-1", 1));
    view.forget("w");
    assert!(view.seen.is_empty() && view.named.is_empty() && view.pods.is_empty() && view.events.is_empty());
}
