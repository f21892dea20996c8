use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(status: Value) -> PodFacts {
    let value = json!({"metadata": {"name": "w-1", "uid": "p1"}, "status": status});
    PodFacts::read(&serde_json::from_value(value).expect("a pod"))
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}}}]})
}

fn warning(kind: &str, name: &str, uid: &str, reason: &str, message: &str) -> Warning {
    let value = json!({"metadata": {"name": "e"}, "type": "Warning", "reason": reason, "message": message,
        "involvedObject": {"kind": kind, "name": name, "uid": uid}, "lastTimestamp": "2026-11-21T10:00:00Z"});
    Warning::read(&serde_json::from_value(value).expect("an event")).expect("a warning")
}

#[track_caller]
fn check(pods: &[PodFacts], warnings: &[Warning], expected: &[(&str, &str, &str)]) {
    let found = details(pods.iter(), warnings.iter());
    let found: Vec<_> =
        found.iter().map(|detail| (detail.object.as_str(), detail.reason.as_str(), detail.message.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn image_that_cannot_be_pulled_is_named_with_the_kubelets_reason() {
    let waits = pod(waiting("ImagePullBackOff", "Back-off pulling image \"x\""));
    check(
        std::slice::from_ref(&waits),
        &[],
        &[("Pod w-1", "ImagePullBackOff", "container main: Back-off pulling image \"x\"")],
    );
    let why = "Failed to pull image \"x\": rpc error: code = NotFound desc = failed to resolve reference: not found";
    check(&[waits], &[warning("Pod", "w-1", "p1", "Failed", why)], &[("Pod w-1", "ImagePullBackOff", why)]);
    check(&[pod(waiting("ErrImagePull", "denied"))], &[], &[("Pod w-1", "ErrImagePull", "container main: denied")]);
}

#[test]
fn container_that_ends_again_and_again_is_told_with_its_exit_code() {
    let crashing = pod(json!({"containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": false,
        "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 127, "reason": "Error"}}}]}));
    check(
        &[crashing],
        &[],
        &[("Pod w-1", "CrashLoopBackOff", "container main ended with exit code 127, 4 restarts: Error")],
    );
}

#[test]
fn memory_that_ran_out_is_told_instead_of_the_crash_and_after_the_restart() {
    let last = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    for state in [json!({"waiting": {"reason": "CrashLoopBackOff"}}), json!({"running": {}}), last.clone()] {
        let killed = pod(json!({"containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": false,
            "restartCount": 2, "state": state, "lastState": last}]}));
        check(
            &[killed],
            &[],
            &[("Pod w-1", "OOMKilled", "container main used more memory than its limit allows, 2 restarts")],
        );
    }
}

#[test]
fn container_that_runs_again_is_told_with_what_it_wrote_last() {
    let said = format!("{}\n  Traceback:\n\nno such table\n", "x".repeat(500));
    let again = pod(json!({"containerStatuses": [{"name": "db", "image": "i", "imageID": "", "ready": true,
        "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}}]}));
    let found = details([again].iter(), [].iter());
    let message = &found.first().expect("a detail").message;
    assert!(message.starts_with("container db ended with exit code 1, 2 restarts: x"), "{message}");
    assert!(message.ends_with("x; Traceback:; no such table") && message.len() < 400, "{message}");
    assert_eq!(found[0].reason, "Restarted");
    // What a pod waits for now comes first, and one that ended well at last is no news.
    let first = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    let waits = pod(
        json!({"initContainerStatuses": [{"name": "gw-clone", "image": "i", "imageID": "", "ready": true, "restartCount": 1,
            "state": {"terminated": {"exitCode": 0}}, "lastState": first}],
        "containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"running": {}}, "lastState": first}]}),
    );
    let event = warning("Pod", "w-1", "p1", "Unhealthy", "Startup probe failed: the agent is not connected: refused");
    check(
        &[waits],
        &[event],
        &[
            ("Pod w-1", "NotConnected", "the agent is not connected: refused"),
            ("Pod w-1", "Restarted", "container main ended with exit code 1, 1 restarts: Error"),
        ],
    );
}

#[test]
fn agent_that_is_not_connected_is_told_in_its_own_words_and_the_nodes_matters_are_not() {
    let waits = pod(
        json!({"containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"running": {}}}]}),
    );
    let said = "Startup probe failed: the agent is not connected: cannot reach the gateway: connection refused\n";
    let expected = "the agent is not connected: cannot reach the gateway: connection refused";
    check(&[waits], &[warning("Pod", "w-1", "p1", "Unhealthy", said)], &[("Pod w-1", "NotConnected", expected)]);
    let of_the_node = json!({"metadata": {}, "type": "Warning", "reason": "MissingClusterDNS", "involvedObject": {"kind": "Pod", "name": "w"}});
    assert_eq!(Warning::read(&serde_json::from_value(of_the_node).expect("an event")), None);
}

#[test]
fn pod_that_fits_nowhere_is_told_in_the_schedulers_words() {
    let message = "0/3 nodes are available: 3 Insufficient memory.";
    let pending = pod(json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}));
    let event = warning("Pod", "w-1", "p1", "FailedScheduling", message);
    check(&[pending], &[event], &[("Pod w-1", "Unschedulable", message)]);
}

#[test]
fn quota_that_leaves_no_room_for_a_pod_is_told_until_there_is_one() {
    let message = "pods \"w-1\" is forbidden: exceeded quota: w, requested: limits.memory=8Gi, used: 0, limited: 4Gi";
    let event = warning("ReplicaSet", "w-7d9f", "r1", "FailedCreate", message);
    check(&[], std::slice::from_ref(&event), &[("ReplicaSet w-7d9f", "QuotaExceeded", message)]);
    check(&[pod(json!({"phase": "Running"}))], &[event], &[]);
}

#[test]
fn volumes_and_evictions_are_told() {
    let event = warning("Pod", "w-1", "p1", "FailedMount", "MountVolume.SetUp failed for volume \"data\"");
    check(
        &[pod(waiting("ContainerCreating", ""))],
        &[event],
        &[("Pod w-1", "FailedMount", "MountVolume.SetUp failed for volume \"data\"")],
    );
    let evicted = pod(json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}));
    check(std::slice::from_ref(&evicted), &[], &[("Pod w-1", "Evicted", "The node was low on memory.")]);
    let waits = pod(json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 node(s) had untolerated taint(s)."}]}));
    let both = "the pod before was evicted: The node was low on memory. Now: 1 node(s) had untolerated taint(s).";
    check(
        &[evicted.clone(), waits],
        &[],
        &[("Pod w-1", "Unschedulable", both), ("Pod w-1", "Evicted", "The node was low on memory.")],
    );
    let ready = pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    check(&[evicted, ready], &[], &[]);
}

#[test]
fn warnings_about_what_is_gone_or_well_are_not_told() {
    let ready = pod(json!({"conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}}]}));
    let about = |uid| warning("Pod", "w-1", uid, "FailedMount", "m");
    check(&[ready], &[about("p1"), warning("PersistentVolumeClaim", "w-data", "v", "ProvisioningFailed", "m")], &[]);
    check(&[], &[about("p1")], &[]);
    check(&[pod(json!({}))], &[about("an earlier pod")], &[]);
    let leaving = PodFacts { is_leaving: true, ..pod(waiting("ErrImagePull", "denied")) };
    check(&[leaving], &[about("p1")], &[]);
    let normal =
        json!({"metadata": {}, "type": "Normal", "reason": "Pulled", "involvedObject": {"kind": "Pod", "name": "w"}});
    assert_eq!(Warning::read(&serde_json::from_value(normal).expect("an event")), None);
}

#[test]
fn warning_of_what_a_pod_has_left_behind_does_not_hide_what_it_waits_for_now() {
    let read = |value: Value| PodFacts::read(&serde_json::from_value(value).expect("a pod"));
    let scheduled = read(json!({"metadata": {"name": "w-1", "uid": "p1"}, "spec": {"nodeName": "n", "containers": []},
        "status": waiting("ImagePullBackOff", "Back-off pulling image")}));
    let unbound = warning("Pod", "w-1", "p1", "FailedScheduling", "pod has unbound immediate PersistentVolumeClaims");
    check(
        &[scheduled],
        std::slice::from_ref(&unbound),
        &[("Pod w-1", "ImagePullBackOff", "container main: Back-off pulling image")],
    );
    check(
        &[pod(json!({}))],
        &[unbound],
        &[("Pod w-1", "Unschedulable", "pod has unbound immediate PersistentVolumeClaims")],
    );
    let crashing = pod(json!({"containerStatuses": [{"name": "main", "image": "i", "imageID": "", "ready": false,
        "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}}]}));
    let earlier = [
        warning("Pod", "w-1", "p1", "FailedMount", "no such volume"),
        warning("Pod", "w-1", "p1", "Failed", "Failed to pull image"),
        warning("PersistentVolumeClaim", "w-data", "v", "ProvisioningFailed", "no storage"),
    ];
    check(
        &[crashing],
        &earlier,
        &[("Pod w-1", "CrashLoopBackOff", "container main ended with exit code 2, 1 restarts: Error")],
    );
}

#[test]
fn most_useful_reason_comes_first() {
    let events = [
        warning("Pod", "w-1", "p1", "Unhealthy", "u"),
        warning("Pod", "w-1", "p1", "SomethingNew", "s"),
        warning("Pod", "w-1", "p1", "FailedMount", "m"),
    ];
    let found = details([pod(waiting("ErrImagePull", "denied"))].iter(), events.iter());
    let reasons: Vec<_> = found.iter().map(|detail| detail.reason.as_str()).collect();
    assert_eq!(reasons, ["ErrImagePull", "FailedMount", "Unhealthy", "SomethingNew"]);
}

proptest! {
    #[test]
    fn details_are_bounded_and_each_is_told_once(
        reasons in proptest::collection::vec("[A-Z][a-z]{2,8}|FailedMount|Failed|BackOff", 0..40),
        message in "\\PC{0,900}",
    ) {
        let warnings: Vec<_> = reasons.iter().map(|reason| warning("Pod", "w-1", "p1", reason, &message)).collect();
        let found = details([pod(waiting("ErrImagePull", &message))].iter(), warnings.iter());
        prop_assert!(found.len() <= DETAILS_MAX);
        for (index, one) in found.iter().enumerate() {
            prop_assert!(one.message.len() <= MESSAGE_BYTES_MAX);
            prop_assert!(found.iter().skip(index + 1).all(|other| other.reason != one.reason));
        }
    }
}
