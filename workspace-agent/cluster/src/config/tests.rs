use proptest::prelude::*;
use serde_json::json;

use super::*;

fn scope() -> Scope {
    Scope { cluster: "c".into(), workspace: "w".into(), namespace: "ns".into() }
}

fn inventory(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns",
        "labels": {WORKSPACE_LABEL: "w", CLUSTER_LABEL: "c", INVENTORY_LABEL: name}}})
}

fn owned(api: &str, kind: &str, name: &str, inventory: &str) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "ns",
        "labels": {WORKSPACE_LABEL: "w", CLUSTER_LABEL: "c"}, "annotations": {OWNER_ANNOTATION: inventory}}})
}

fn read(objects: &[Value], is_terminated: bool) -> Result<Vec<Group>, ConfigError> {
    parse(json!(objects).to_string().as_bytes(), &scope(), is_terminated)
}

#[track_caller]
fn check_refused(objects: &[Value], is_terminated: bool, named: &str) {
    let error = read(objects, is_terminated).expect_err("it is wrong").to_string();
    assert!(error.contains(named), "{error}");
}

#[test]
fn objects_are_grouped_by_inventory_and_ordered() {
    let groups = read(
        &[
            inventory("core"),
            owned("apps/v1", "Deployment", "w", "core"),
            owned("v1", "Service", "w", "core"),
            inventory("secrets"),
            owned("v1", "Secret", "w-env", "secrets"),
        ],
        false,
    )
    .expect("a configuration");
    let names: Vec<_> = groups.iter().map(|group| (group.name(), group.keys().len())).collect();
    assert_eq!(names, [("core", 2), ("secrets", 1)]);
    let kinds: Vec<_> = groups[0].objects.iter().map(|object| object.key.kind.as_str()).collect();
    assert_eq!(kinds, ["Service", "Deployment"]);
}

#[test]
fn nothing_to_apply_is_nothing() {
    assert_eq!(parse(b"", &scope(), false), Ok(Vec::new()));
    assert_eq!(read(&[], false), Ok(Vec::new()));
}

#[test]
fn inventories_come_with_their_objects_or_alone_to_terminate() {
    assert_eq!(read(&[inventory("core"), inventory("secrets")], true).map(|groups| groups.len()), Ok(2));
    // The failure of the reference: a partial message with the secrets' inventory and no secret deletes them all.
    check_refused(
        &[inventory("core"), owned("v1", "Service", "w", "core"), inventory("secrets")],
        false,
        "secrets came without",
    );
    check_refused(&[inventory("core"), owned("v1", "Service", "w", "core")], true, "Service w came for");
}

#[test]
fn object_that_is_not_of_this_workspace_is_refused_by_name() {
    let mut elsewhere = owned("v1", "Secret", "w", "core");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    check_refused(&[inventory("core"), elsewhere], false, "Secret w is not in the workspace's namespace ns");
    let mut cluster_wide = owned("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "w", "core");
    cluster_wide["metadata"].as_object_mut().expect("metadata").remove("namespace");
    check_refused(&[inventory("core"), cluster_wide], false, "ClusterRoleBinding w is not in");
    let mut others = owned("v1", "Secret", "w", "core");
    others["metadata"]["labels"][WORKSPACE_LABEL] = json!("v");
    check_refused(&[inventory("core"), others], false, WORKSPACE_LABEL);
    let mut others = owned("v1", "Secret", "w", "core");
    others["metadata"]["labels"][CLUSTER_LABEL] = json!("d");
    check_refused(&[inventory("core"), others], false, CLUSTER_LABEL);
    check_refused(&[inventory("core"), owned("v1", "Secret", "../x", "core")], false, "Secret ../x cannot be tracked");
}

#[test]
fn object_without_its_inventory_is_refused() {
    check_refused(&[owned("v1", "Secret", "w", "core")], false, "Secret w is in no inventory");
    check_refused(&[inventory("core"), owned("v1", "Secret", "w", "other")], false, "in no inventory");
    let same = owned("v1", "Secret", "w", "core");
    check_refused(&[inventory("core"), same.clone(), same], false, "twice");
    check_refused(&[json!({"kind": "Secret"})], false, "object 0");
    check_refused(&[json!(7)], false, "object 0");
    assert!(matches!(parse(b"{}", &scope(), false), Err(ConfigError::Json(_))));
    assert!(matches!(parse(b"[", &scope(), false), Err(ConfigError::Json(_))));
}

proptest! {
    #[test]
    fn whatever_arrives_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(parse(&bytes, &scope(), false));
    }

    /// Everything that is accepted is in this workspace's namespace, labelled as ours, and in exactly one inventory.
    #[test]
    fn accepted_objects_are_provably_of_the_workspace(
        picks in proptest::collection::vec((0..2_usize, 0..3_usize, 0..3_usize, 0..3_usize), 0..6),
    ) {
        let mut objects = vec![inventory("i0"), inventory("i1")];
        for (index, (namespace, owner, workspace, cluster)) in picks.into_iter().enumerate() {
            let mut object = owned("v1", "Secret", &format!("s{index}"), &format!("i{owner}"));
            object["metadata"]["namespace"] = json!(["ns", "other"][namespace]);
            object["metadata"]["labels"][WORKSPACE_LABEL] = json!(["w", "w", "v"][workspace]);
            object["metadata"]["labels"][CLUSTER_LABEL] = json!(["c", "c", "d"][cluster]);
            objects.push(object);
        }
        if let Ok(groups) = read(&objects, false) {
            for group in groups {
                prop_assert!(!group.objects.is_empty());
                for object in group.objects {
                    prop_assert_eq!(object.key.namespace.as_str(), "ns");
                    prop_assert_eq!(object.label(WORKSPACE_LABEL), Some("w"));
                    prop_assert_eq!(object.annotation(OWNER_ANNOTATION), Some(group.inventory.key.name.as_str()));
                }
            }
        }
    }
}
