//! What is stored and is no frozen config.

use serde_json::{Value, json};

use super::super::*;
use super::default_frozen;

fn stored() -> Value {
    serde_json::from_str(&default_frozen().to_json()).expect("JSON")
}

fn said(value: &Value) -> Option<String> {
    let problems = FrozenConfig::from_json(&value.to_string()).err()?;
    Some(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Sets what a JSON pointer leads to, and checks that the config is refused for the right reason.
#[track_caller]
fn check(pointer: &str, new: Value, reason: &str) {
    let mut value = stored();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let key = key.replace("~1", "/");
    match value.pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {parent}")) {
        Value::Object(members) => {
            members.insert(key, new);
        }
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = new,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => panic!("{pointer} is in a scalar"),
    }
    let said = said(&value).unwrap_or_else(|| panic!("{pointer} was accepted"));
    assert!(said.contains(reason), "{pointer}: {said}");
}

const POD: &str = "/1/spec/template/spec";

#[test]
fn what_is_not_understood_is_refused() {
    for (pointer, new) in [
        ("/1/status", json!({})),
        ("/1/metadata/managedFields", json!([{}])),
        ("/1/metadata/resourceVersion", json!("1")),
        ("/1/spec/paused", json!(true)),
        ("/1/spec/template/spec/hostNetwork", json!(true)),
        ("/1/spec/template/spec/containers/0/securityContext/runAsGroups", json!(0)),
        ("/1/spec/template/spec/containers/0/volumeDevices", json!([{}])),
        ("/1/spec/template/spec/volumes/1/hostPath", json!({"path": "/"})),
        ("/2/spec/externalIPs", json!(["1.2.3.4"])),
        ("/5/spec/ingress", json!([{}])),
        ("/8/data", json!({"a": "YQ=="})),
        ("/9/stringData", json!({"agent-token": "x"})),
    ] {
        let field = pointer.rsplit('/').next().expect("a field");
        check(pointer, new, &format!("unknown field `{field}`"));
    }
}

#[test]
fn fields_of_the_wrong_type_or_none_are_refused() {
    check("/1/spec/replicas", json!("1"), "invalid type");
    check("/1/spec/replicas", json!(1.5), "invalid type");
    check("/1/spec/replicas", json!(2), "more than one replica");
    check("/1/spec/selector", Value::Null, "has a null");
    check("/1/spec/template/spec/containers", json!([]), "has an empty list");
    check("/1/spec/template/spec/containers/0/command", json!(["a\0b"]), "has a NUL");
    check("/0/metadata/labels", json!(7), "invalid type");
    check("/0/data", json!({"a": ""}), "stored without data");
    check("/6/immutable", json!("yes"), "invalid type");
    check("/6/data", json!({}), "has no scripts");
    check("/6/data", json!({"../a": ""}), "no name of a file");
}

#[test]
fn privileges_are_refused() {
    check(
        &format!("{POD}/containers/0/securityContext/privileged"),
        json!(true),
        "must not be privileged nor run as root",
    );
    check(&format!("{POD}/containers/0/securityContext/runAsUser"), json!(0), "must not be privileged nor run as root");
    check(
        &format!("{POD}/initContainers/0/securityContext/runAsNonRoot"),
        json!(false),
        "must not be privileged nor run as root",
    );
    check(&format!("{POD}/securityContext/runAsUser"), json!(0), "must not run as root");
    check(&format!("{POD}/hostUsers"), json!(true), "hostUsers can only be false");
    check(&format!("{POD}/automountServiceAccountToken"), json!(true), "token of the cluster");
    check("/4/automountServiceAccountToken", json!(true), "must not give pods its token");
    check("/5/spec/policyTypes", json!(["Egress"]), "ingress and egress");
}

#[test]
fn names_labels_and_owners_have_to_agree() {
    check("/1/metadata/namespace", json!("other"), "another namespace");
    check("/0/metadata/namespace", json!("A"), "no DNS label");
    check("/1/metadata/name", json!("other"), "is not an object of this workspace");
    check("/0/metadata/name", json!("other-workspace-inventory"), "is not an object of this workspace");
    check(
        "/0/metadata/labels/workspace-gateway.dev~1workspace",
        json!("8080-a"),
        "label workspace-gateway.dev/workspace",
    );
    check("/0/metadata/labels/workspace-gateway.dev~1workspace", json!("default"), "of its own");
    check("/0/metadata/labels/workspace-gateway.dev~1cluster", json!("No"), "names no cluster");
    check("/2/metadata/labels/workspace-gateway.dev~1workspace", json!("other"), "must be mine");
    check("/2/metadata/labels/a b", json!("x"), "is no label");
    check("/2/metadata/annotations/a b", json!("x"), "is no key of an annotation");
    let owner = "metadata/annotations/config.k8s.io~1owning-inventory";
    check(&format!("/3/{owner}"), json!("mine-secrets-inventory"), "must be mine-workspace-inventory");
    check(&format!("/8/{owner}"), json!("mine-workspace-inventory"), "must be mine-secrets-inventory");
    check(&format!("/7/{owner}"), json!("mine-workspace-inventory"), "must be absent");
    let id = "metadata/labels/cli-utils.sigs.k8s.io~1inventory-id";
    check(&format!("/0/{id}"), json!("x"), "must be mine-workspace-inventory");
    check(&format!("/1/{id}"), json!("mine"), "must be absent");
    check("/1/apiVersion", json!("apps/v1beta1"), "must be of apps/v1");
    check("/1/kind", json!("Namespace"), "is not an object of this workspace");
    check("/1/kind", json!("ClusterRole"), "is not an object of this workspace");
}

#[test]
fn pods_have_to_be_selected_by_their_own_labels() {
    check("/1/spec/selector/matchLabels/app", json!("x"), "does not select");
    check("/1/spec/selector/matchLabels", json!({}), "does not select");
    check(
        "/1/spec/template/metadata/labels/workspace-gateway.dev~1cluster",
        json!("x"),
        "does not select its own pods",
    );
    check("/2/spec/selector", json!({"workspace-gateway.dev/workspace": "other"}), "does not select");
    check("/5/spec/podSelector/matchLabels", json!({}), "does not select");
    check("/5/spec/egress/1/to/0/ipBlock/cidr", json!("0.0.0.0"), "no block of addresses");
    check("/5/spec/egress/0/to/0/namespaceSelector/matchLabels", json!({"a": ""}), "selects every namespace");
}

#[test]
fn parts_of_a_pod_have_to_fit() {
    let container = format!("{POD}/containers/0");
    check(&format!("{container}/name"), json!("gw-tools"), "or there twice");
    check(&format!("{container}/name"), json!("A"), "no name of a container");
    check(&format!("{container}/image"), json!("a b"), "is no image");
    check(&format!("{container}/env/0/name"), json!("PROJECT_SOURCE"), "or there twice");
    check(&format!("{container}/env/0/name"), json!("A=B"), "no name of a variable");
    check(&format!("{container}/volumeMounts/0/name"), json!("nothing"), "there is no volume");
    check(&format!("{container}/volumeMounts/0/mountPath"), json!("/workspace-gateway/files/"), "or there twice");
    check(&format!("{container}/volumeMounts/0/mountPath"), json!("/a/../b"), "no path of a volume");
    check(&format!("{container}/resources"), json!({"limits": {"cpu": "lots"}}), "cpu is not a Kubernetes quantity");
    check(
        &format!("{container}/resources"),
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
        "than its limit",
    );
    check(&format!("{container}/resources"), json!({"limits": {"gpu": "1"}}), "something else than CPU and memory");
    let port = json!({"name": "80-tcp", "containerPort": 80, "protocol": "TCP"});
    check(&format!("{container}/ports"), json!([port, port]), "is there twice");
    check(&format!("{container}/ports"), json!([{"name": "8080", "containerPort": 80, "protocol": "TCP"}]), "is none");
    check(&format!("{POD}/volumes/1/secret"), json!({"secretName": "a", "defaultMode": 256}), "must be of one kind");
    check(&format!("{POD}/volumes/3/secret/secretName"), json!("other"), "refers to Secret \"other\"");
    check(&format!("{POD}/serviceAccountName"), json!("other"), "refers to ServiceAccount");
    check(&format!("{container}/envFrom/0/secretRef/name"), json!("other"), "refers to Secret");
    check("/3/spec/resources/requests/storage", json!("0"), "has no size");
}

#[test]
fn order_and_number_of_objects_count() {
    let change = |change: fn(&mut Vec<Value>)| {
        let mut value = stored();
        change(value.as_array_mut().expect("a list"));
        said(&value).expect("refused")
    };
    assert!(change(|list| list.swap(1, 2)).contains("not in their order"));
    assert!(change(|list| list.swap(0, 7)).contains("not in their order"));
    assert!(change(|list| drop(list.remove(7))).contains("there is no SecretsInventory"));
    assert!(change(|list| drop(list.remove(6))).contains("refers to ConfigMap \"mine-scripts\""));
    assert!(change(|list| list.insert(1, list[1].clone())).contains("2 objects for Deployment"));
    assert!(change(|list| list.insert(3, list[3].clone())).contains("is there twice"));
    assert!(change(Vec::clear).contains("has 0 objects"));
    assert!(change(|list| *list = vec![list[0].clone(); 129]).contains("has 129 objects"));
}

#[test]
fn text_that_is_no_list_of_objects_is_refused() {
    let long = format!("[\"{}\"]", "x".repeat(2 * FROZEN_BYTES_MAX));
    for text in ["", "{}", "null", "[1]", "[{}]", "[[]]", "\u{0}", &"[".repeat(1000), &long] {
        assert!(FrozenConfig::from_json(text).is_err(), "{text:.20}");
    }
}

#[test]
fn only_so_many_problems_are_told_and_none_repeats_a_long_text() {
    let mut value = stored();
    let long = "x".repeat(10_000);
    let env: Vec<_> = (0..1000).map(|number| json!({"name": format!("={number}{long}"), "value": ""})).collect();
    value[1]["spec"]["template"]["spec"]["containers"][0]["env"] = json!(env[..20]);
    let problems = FrozenConfig::from_json(&value.to_string()).expect_err("refused");
    assert!(problems.iter().all(|problem| problem.message.len() < 400), "{problems:?}");
    let short: Vec<_> = (0..1000).map(|number| json!({"name": format!("={number}"), "value": ""})).collect();
    value[1]["spec"]["template"]["spec"]["containers"][0]["env"] = json!(short);
    assert_eq!(FrozenConfig::from_json(&value.to_string()).expect_err("refused").len(), 50);
}
