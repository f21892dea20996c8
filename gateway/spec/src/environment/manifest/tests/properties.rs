//! What holds for all objects that are let through, and that no objects are too strange to be looked at.

use proptest::prelude::*;

use super::*;
use crate::environment::labels::reserved;

const ALLOWED: [(&str, &str); 13] = [
    ("", "Namespace"),
    ("", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("source.toolkit.fluxcd.io", "GitRepository"),
    ("source.toolkit.fluxcd.io", "HelmRepository"),
    ("source.toolkit.fluxcd.io", "HelmChart"),
    ("source.toolkit.fluxcd.io", "Bucket"),
    ("source.toolkit.fluxcd.io", "OCIRepository"),
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
    ("notification.toolkit.fluxcd.io", "Alert"),
    ("notification.toolkit.fluxcd.io", "Provider"),
    ("notification.toolkit.fluxcd.io", "Receiver"),
];

/// Names, of which most are such that the rest of an object matters.
fn name() -> impl Strategy<Value = Value> {
    let bad = vec!["other", "default", "kube-system", "", "a/b", "A"];
    prop_oneof![
        20 => prop::sample::select(vec!["own", "team"]).prop_map(Value::from),
        1 => prop::sample::select(bad).prop_map(Value::from),
        1 => Just(json!(1)),
    ]
}

fn leaf() -> impl Strategy<Value = Value> {
    let text = prop::sample::select(vec!["own", "team", "other", "kube-system", ""]).prop_map(Value::from);
    prop_oneof![3 => text, 1 => Just(Value::Null), 1 => any::<bool>().prop_map(Value::from), 1 => any::<String>().prop_map(Value::from)]
}

fn tree() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 16, 3, |inner| {
        let keys = vec![
            "namespace",
            "targetNamespace",
            "storageNamespace",
            "name",
            "spec",
            "a",
            "kind",
            "commonMetadata",
            "labels",
            "annotations",
            "config.k8s.io/owning-inventory",
            "agent.gitlab.com/id-1",
            "subjects",
            "team",
        ];
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            2 => prop::collection::btree_map(prop::sample::select(keys), inner, 0..3)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

fn labels() -> impl Strategy<Value = Value> {
    let good = prop::sample::select(vec!["team", "example.com/a"]);
    let any = prop::sample::select(vec![
        "team",
        "config.k8s.io/x",
        "agent.gitlab.com/id-7",
        "a b",
        "workspace-gateway.dev/a",
    ]);
    prop_oneof![
        6 => Just(Value::Null),
        4 => prop::collection::btree_map(good, "[a-z]{0,3}", 0..3).prop_map(|fields| json!(fields)),
        2 => prop::collection::btree_map(any, "[a-z ]{0,3}", 0..2).prop_map(|fields| json!(fields)),
    ]
}

prop_compose! {
    fn object()(
        (group, kind) in prop_oneof![
            20 => prop::sample::select(ALLOWED.to_vec()),
            1 => prop::sample::select(vec![("", "Secret"), ("apps", "Deployment"), ("rbac.authorization.k8s.io", "ClusterRoleBinding")]),
        ],
        version in prop_oneof![20 => Just("v1"), 1 => prop::sample::select(vec!["v1beta2", "x"])],
        name in name(),
        namespace in prop_oneof![4 => Just(json!("team")), 1 => Just(Value::Null), 1 => name()],
        labels in labels(),
        annotations in labels(),
        spec in prop::option::of(tree()),
        subjects in prop::option::weighted(0.3, tree()),
    ) -> Value {
        let slash = if group.is_empty() { "" } else { "/" };
        let mut object = json!({
            "apiVersion": format!("{group}{slash}{version}"),
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
        });
        if kind == "Namespace" {
            object["metadata"]["namespace"] = Value::Null;
        }
        if let Some(spec) = spec {
            object["spec"] = spec;
        }
        if let Some(subjects) = subjects {
            object["subjects"] = subjects;
        }
        object
    }
}

/// Returns every namespace that is named anywhere but in an object's own metadata.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                if key.to_lowercase().ends_with("namespace") {
                    found.extend(value.as_str().map(str::to_owned));
                }
                references(value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns whether a controller would put a reserved key on what it makes.
fn has_reserved_common(value: &Value) -> bool {
    let is_reserved = |common: &Value| {
        let parts = ["labels", "annotations"].iter().filter_map(|part| common.get(part)?.as_object());
        parts.flat_map(|fields| fields.keys()).any(|key| reserved(key).is_some())
    };
    match value {
        Value::Array(items) => items.iter().any(has_reserved_common),
        Value::Object(fields) => {
            fields.get("commonMetadata").is_some_and(is_reserved) || fields.values().any(has_reserved_common)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn check_made(made: &Manifest, before: &[Value]) {
    let namespaces: Vec<_> = made
        .tracked
        .iter()
        .filter(|one| one.kind == "Namespace")
        .map(|one| one.name.as_str())
        .chain(["team"])
        .collect();
    assert!(namespaces.iter().all(|name| *name != "default" && !name.starts_with("kube-")));
    assert_eq!((made.objects.len(), made.tracked.len()), (before.len(), before.len()));
    for (object, tracked) in made.objects.iter().zip(&made.tracked) {
        assert!(ALLOWED.contains(&(tracked.group.as_str(), tracked.kind.as_str())), "{tracked:?}");
        assert_eq!(object["kind"], tracked.kind);
        if tracked.kind == "Namespace" {
            assert_eq!(tracked.namespace, "");
        } else {
            assert_eq!(object["metadata"]["namespace"], tracked.namespace);
            assert!(namespaces.contains(&tracked.namespace.as_str()), "{tracked:?}");
        }
        let mut found = Vec::new();
        for (_, value) in object.as_object().unwrap().iter().filter(|(key, _)| *key != "metadata") {
            references(value, &mut found);
        }
        assert!(found.iter().all(|one| one.is_empty() || namespaces.contains(&one.as_str())), "{object}");
        assert!(!has_reserved_common(object), "{object}");
        let own: Vec<_> = ["labels", "annotations"]
            .iter()
            .map(|part| {
                object["metadata"][part].as_object().unwrap().keys().filter(|key| reserved(key).is_some()).count()
            })
            .collect();
        assert_eq!(own, [4, 1], "{object}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn whatever_is_let_through_has_allowed_kinds_namespaces_and_our_labels(objects in prop::collection::vec(object(), 0..4), has_own in any::<bool>()) {
        let mut objects = objects;
        if has_own {
            objects.insert(0, own());
        }
        match made(objects.clone(), Border { default_namespace: Some("team"), ..Border::default() }) {
            Ok(made) => check_made(&made, &objects),
            Err(refused) => prop_assert!(!refused.is_empty()),
        }
    }

    #[test]
    fn any_tree_is_let_through_or_refused(objects in prop::collection::vec(tree(), 0..4)) {
        let refused = made(objects.clone(), Border::default());
        prop_assert!(objects.is_empty() == refused.is_ok());
    }
}
