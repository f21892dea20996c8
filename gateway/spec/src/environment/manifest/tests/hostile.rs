//! Objects that are refused by name, each for what is wrong with it alone.

use super::*;

/// An object of one kind in the namespace that the template makes.
fn object(api_version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "own"}});
    merge(&mut object, rest);
    object
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn account(rest: &Value) -> Value {
    object("v1", "ServiceAccount", rest)
}

fn binding(rest: &Value) -> Value {
    object("rbac.authorization.k8s.io/v1", "RoleBinding", rest)
}

fn kustomization(spec: &Value) -> Value {
    object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", &json!({"spec": spec}))
}

fn release(spec: &Value) -> Value {
    object("helm.toolkit.fluxcd.io/v2", "HelmRelease", &json!({"spec": spec}))
}

#[track_caller]
fn check(object: Value, code: RefusedCode, shown: &str, part: &str) {
    let refused = made(vec![own(), object.clone()], Border::default()).expect_err(&object.to_string());
    let codes: Vec<_> = refused.iter().map(|refused| refused.code).collect();
    assert_eq!(codes, [code], "{refused:#?}");
    assert_eq!(refused[0].object, shown, "{refused:#?}");
    assert!(refused[0].message.contains(part), "{refused:#?}");
    assert!(refused[0].to_string().ends_with(&format!("({})", code.as_str())));
}

#[test]
fn kinds_that_templates_may_not_make_are_refused_by_name() {
    for (api_version, kind) in [
        ("v1", "Secret"),
        ("v1", "ConfigMap"),
        ("v1", "Pod"),
        ("v1", "List"),
        ("v1", "namespace"),
        ("v1", "Namespace "),
        ("apps/v1", "Deployment"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
        ("image.toolkit.fluxcd.io/v1", "ImagePolicy"),
        ("example.com/v1", "Any"),
    ] {
        let shown = if kind.ends_with(' ') { "objects[1]".to_owned() } else { format!("{kind} own/x") };
        check(object(api_version, kind, &json!({})), RefusedCode::KindNotAllowed, &shown, &format!("{kind:?}"));
    }
}

#[test]
fn groups_and_versions_that_the_kind_is_not_of_are_refused() {
    for (api_version, kind) in [
        ("example.com/v1", "ServiceAccount"),
        ("v2", "ServiceAccount"),
        ("v1beta1", "ServiceAccount"),
        ("/v1", "RoleBinding"),
        ("v1", "RoleBinding"),
        ("rbac.authorization.k8s.io/v1beta1", "RoleBinding"),
        ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
        ("source.toolkit.fluxcd.io/v1", "Kustomization"),
        ("kustomize.toolkit.fluxcd.io/v1/x", "Kustomization"),
        ("kustomize.toolkit.fluxcd.io/", "Kustomization"),
        ("kustomize.toolkit.fluxcd.io/1", "Kustomization"),
        ("kustomize.toolkit.fluxcd.io/v0", "Kustomization"),
        ("kustomize.toolkit.fluxcd.io/v1gamma1", "Kustomization"),
        ("kustomize.toolkit.fluxcd.io/v1beta", "Kustomization"),
        ("kustomize.toolkit.fluxcd.io/../../v1", "Kustomization"),
    ] {
        let shown = format!("{kind} own/x");
        check(
            object(api_version, kind, &json!({})),
            RefusedCode::ApiVersionNotAllowed,
            &shown,
            "is not allowed for the kind",
        );
    }
    for version in ["v1", "v2beta3", "v1alpha1"] {
        let fine = object(&format!("source.toolkit.fluxcd.io/{version}"), "OCIRepository", &json!({}));
        assert!(made(vec![own(), fine], Border::default()).is_ok(), "{version}");
    }
}

#[test]
fn names_that_the_agent_could_not_record_are_refused() {
    let bind = |name: &str| binding(&json!({"metadata": {"name": name}}));
    check(bind("bind-ann_b"), RefusedCode::NameInvalid, "RoleBinding own/bind-ann_b", "no underscores");
    // As an inventory writes it: the longest key of a ConfigMap has 253 bytes.
    let room = 253 - "own__rbac.authorization.k8s.io_RoleBinding".len();
    for (colons, is_good) in [(0, true), (10, false)] {
        let name = format!("{}{}", ":".repeat(colons), "a".repeat(room - colons));
        let made = made(vec![own(), bind(&name)], Border::default());
        assert_eq!(made.is_ok(), is_good, "{made:?}");
    }
    let name = "a".repeat(room + 1);
    check(bind(&name), RefusedCode::NameInvalid, &format!("RoleBinding own/{name}"), "at most 250 bytes");
    let name = ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60)].join(".");
    let long = account(&json!({"metadata": {"name": name}}));
    check(long, RefusedCode::NameInvalid, &format!("ServiceAccount own/{name}"), "too long");
}

#[test]
fn names_that_kubernetes_would_not_take_are_refused() {
    for bad in ["A", "a_b", "-a", "a/b", "../x", "a b", "", "a:b", &"a".repeat(254)] {
        let object = account(&json!({"metadata": {"name": bad}}));
        let refused = made(vec![own(), object], Border::default()).unwrap_err();
        assert_eq!(refused[0].code, RefusedCode::NameInvalid, "{bad}: {refused:?}");
        assert_eq!(refused.len(), 1, "{bad}: {refused:?}");
    }
    for bad in ["a/b", "a%2fb", ".", "..", "a b", "", "é"] {
        let refused = made(vec![own(), binding(&json!({"metadata": {"name": bad}}))], Border::default()).unwrap_err();
        assert_eq!(refused[0].code, RefusedCode::NameInvalid, "{bad}: {refused:?}");
    }
    check(
        account(&json!({"metadata": {"name": null}})),
        RefusedCode::NameInvalid,
        "objects[1]",
        "has no metadata.name",
    );
    check(
        account(&json!({"metadata": {"name": 42}})),
        RefusedCode::NameInvalid,
        "objects[1]",
        "must be text: put it in quotes",
    );
    let dotted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}});
    check(dotted, RefusedCode::NameInvalid, "Namespace a.b", "must be a DNS label");
}

#[test]
fn account_that_kubernetes_makes_itself_is_no_templates_to_make() {
    check(
        account(&json!({"metadata": {"name": "default"}})),
        RefusedCode::NameInvalid,
        "ServiceAccount own/default",
        "Kubernetes makes that account itself",
    );
    assert!(made(vec![own(), account(&json!({"metadata": {"name": "default-2"}}))], Border::default()).is_ok());
    assert!(made(vec![own(), binding(&json!({"metadata": {"name": "default"}}))], Border::default()).is_ok());
}

#[test]
fn namespaces_that_are_not_the_environments_are_refused() {
    for bad in ["default", "kube-system", "kube-public", "kube-x"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bad}});
        check(namespace.clone(), RefusedCode::NamespaceNotAllowed, &format!("Namespace {bad}"), "Kubernetes' own");
        // Making it does not make it the environment's either.
        let inside = account(&json!({"metadata": {"namespace": bad}}));
        let refused = made(vec![namespace, inside], Border::default()).unwrap_err();
        assert_eq!(
            refused.iter().map(|refused| refused.code).collect::<Vec<_>>(),
            [RefusedCode::NamespaceNotAllowed; 2]
        );
    }
    let other = account(&json!({"metadata": {"namespace": "other-environment-1-2"}}));
    check(
        other,
        RefusedCode::NamespaceNotAllowed,
        "ServiceAccount other-environment-1-2/x",
        "it is \"other-environment-1-2\"",
    );
    let inside = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "namespace": "own"}});
    check(inside, RefusedCode::ObjectInvalid, "Namespace own/x", "must be left out");
    check(
        account(&json!({"metadata": {"namespace": 1}})),
        RefusedCode::ObjectInvalid,
        "ServiceAccount x",
        "put it in quotes",
    );
    // A look-alike of another group makes no namespace.
    let look_alike = json!({"apiVersion": "example.com/v1", "kind": "Namespace", "metadata": {"name": "mine"}});
    let refused =
        made(vec![look_alike, account(&json!({"metadata": {"namespace": "mine"}}))], Border::default()).unwrap_err();
    assert_eq!(refused[1].code, RefusedCode::NamespaceNotAllowed, "{refused:?}");
}

#[test]
fn namespace_that_objects_of_other_environments_are_in_is_not_made() {
    let shared = ["infra".to_owned(), "team".to_owned()];
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let others = Border { default_namespace: None, default_namespaces: &shared };
    let own = Border { default_namespace: Some("team"), default_namespaces: &[] };
    for (border, name) in [(others, "team"), (others, "infra"), (own, "team")] {
        let refused = made(vec![namespace(name)], border).unwrap_err();
        let [refused] = refused.as_slice() else { panic!("{refused:?}") };
        assert_eq!(
            (refused.code, refused.object.as_str()),
            (RefusedCode::NamespaceNotAllowed, &*format!("Namespace {name}"))
        );
        assert!(refused.message.contains("default_namespace of an access entry"), "{refused}");
    }
    assert!(made(vec![namespace("team-a"), namespace("tea")], others).is_ok());
}

#[test]
fn references_to_other_namespaces_are_refused_wherever_they_stand() {
    let foreign = |subject: Value| binding(&json!({"subjects": [subject]}));
    for object in [
        foreign(json!({"kind": "ServiceAccount", "name": "a", "namespace": "kube-system"})),
        foreign(json!({"kind": "User", "name": "system:serviceaccount:other:a"})),
        foreign(json!({"kind": "Group", "name": "system:serviceaccounts:other"})),
        foreign(json!({"kind": "Group", "name": "system:serviceaccounts"})),
        foreign(json!({"kind": "Group", "name": "system:authenticated"})),
        foreign(json!({"kind": "Group", "name": "system:unauthenticated"})),
        foreign(json!({"kind": "User", "name": "system:anonymous"})),
    ] {
        check(object, RefusedCode::NamespaceReference, "RoleBinding own/x", "subjects[0].name");
    }
    for (object, path) in [
        (kustomization(&json!({"targetNamespace": "other"})), "spec.targetNamespace"),
        (
            kustomization(&json!({"sourceRef": {"kind": "GitRepository", "name": "a", "namespace": "other"}})),
            "spec.sourceRef.namespace",
        ),
        (
            kustomization(&json!({"dependsOn": [{"name": "a"}, {"name": "b", "namespace": "other"}]})),
            "spec.dependsOn[1].namespace",
        ),
        (kustomization(&json!({"healthChecks": [{"namespace": "other"}]})), "spec.healthChecks[0].namespace"),
        (release(&json!({"targetNamespace": "other"})), "spec.targetNamespace"),
        (release(&json!({"storageNamespace": "kube-system"})), "spec.storageNamespace"),
        (
            release(&json!({"chart": {"spec": {"sourceRef": {"namespace": "other"}}}})),
            "spec.chart.spec.sourceRef.namespace",
        ),
        (release(&json!({"chartRef": {"namespace": "other"}})), "spec.chartRef.namespace"),
        (release(&json!({"values": {"deep": [{"namespace": "other"}]}})), "spec.values.deep[0].namespace"),
        (
            object(
                "notification.toolkit.fluxcd.io/v1beta3",
                "Alert",
                &json!({"spec": {"eventSources": [{"namespace": "*"}]}}),
            ),
            "spec.eventSources[0].namespace",
        ),
        (
            object(
                "notification.toolkit.fluxcd.io/v1",
                "Receiver",
                &json!({"spec": {"resources": [{"namespace": "other"}]}}),
            ),
            "spec.resources[0].namespace",
        ),
        (account(&json!({"namespace": "other"})), "namespace"),
    ] {
        let shown = format!("{} own/x", object["kind"].as_str().unwrap());
        let shown = if shown.starts_with("RoleBinding") { "RoleBinding own/x".to_owned() } else { shown };
        check(object, RefusedCode::NamespaceReference, &shown, path);
    }
    let list = kustomization(&json!({"targetNamespace": ["own"]}));
    check(list, RefusedCode::ObjectInvalid, "Kustomization own/x", "spec.targetNamespace must be text");
    let fine = binding(&json!({"subjects": [
        {"kind": "ServiceAccount", "name": "a", "namespace": "own"},
        {"kind": "User", "name": "system:serviceaccount:own:a"},
        {"kind": "Group", "name": "system:serviceaccounts:own"},
        {"kind": "Group", "name": "gitlab:project:42"},
    ]}));
    assert!(made(vec![own(), fine], Border::default()).is_ok());
}

#[test]
fn keys_that_say_whose_an_object_is_are_the_gateways_alone() {
    for key in [
        "agent.gitlab.com/id-7",
        "agent.gitlab.com/env-other-1-2",
        "config.k8s.io/owning-inventory",
        "cli-utils.sigs.k8s.io/inventory-id",
        "workspace-gateway.dev/workspace",
        "sub.config.k8s.io/x",
    ] {
        for place in ["labels", "annotations"] {
            let object = account(&json!({"metadata": {place: {key: ""}}}));
            check(object, RefusedCode::ReservedKey, "ServiceAccount own/x", key);
            let common = kustomization(&json!({"commonMetadata": {place: {key: ""}}}));
            check(common, RefusedCode::ReservedKey, "Kustomization own/x", "spec.commonMetadata");
        }
    }
    assert!(
        made(vec![own(), account(&json!({"metadata": {"labels": {"myconfig.k8s.io/x": ""}}}))], Border::default())
            .is_ok()
    );
}

#[test]
fn what_is_not_a_templates_to_say_is_refused() {
    for (rest, part) in [
        (json!({"metadata": {"ownerReferences": [{"kind": "Pod"}]}}), "ownerReferences"),
        (json!({"metadata": {"generateName": "a-"}}), "generateName"),
        (json!({"metadata": {"resourceVersion": "1"}}), "resourceVersion"),
        (json!({"metadata": {"uid": "1"}}), "uid"),
        (json!({"metadata": {"managedFields": []}}), "managedFields"),
        (json!({"metadata": {"deletionTimestamp": "x"}}), "deletionTimestamp"),
        (json!({"metadata": {"labels": []}}), "metadata.labels must be a map of texts"),
        (json!({"metadata": {"labels": {"a": 1}}}), "put it in quotes"),
        (json!({"metadata": {"labels": {"a": "b c"}}}), "metadata.labels.\"a\""),
        (json!({"metadata": {"annotations": {"a b": ""}}}), "must be a key"),
        (json!({"metadata": {"annotations": {"a": {}}}}), "put it in quotes"),
        (json!({"metadata": {"finalizers": "x"}}), "finalizers"),
        (json!({"status": {"phase": "x"}}), "status"),
    ] {
        check(account(&rest), RefusedCode::ObjectInvalid, "ServiceAccount own/x", part);
    }
    check(
        json!({"apiVersion": "v1", "metadata": {"name": "x"}}),
        RefusedCode::ObjectInvalid,
        "objects[1]",
        "has no kind",
    );
    check(
        json!({"kind": "ServiceAccount", "metadata": {"name": "x", "namespace": "own"}}),
        RefusedCode::ObjectInvalid,
        "ServiceAccount own/x",
        "has no apiVersion",
    );
    check(
        json!({"apiVersion": "v1", "kind": "ServiceAccount"}),
        RefusedCode::ObjectInvalid,
        "objects[1]",
        "has no metadata",
    );
    check(
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": []}),
        RefusedCode::ObjectInvalid,
        "objects[1]",
        "has no metadata",
    );
}

#[test]
fn same_object_twice_is_refused_also_in_another_version() {
    let one = |version: &str| object(&format!("source.toolkit.fluxcd.io/{version}"), "Bucket", &json!({}));
    let refused = made(vec![own(), one("v1"), one("v1beta2")], Border::default()).unwrap_err();
    assert_eq!(
        (refused.len(), refused[0].code, refused[0].object.as_str()),
        (1, RefusedCode::DuplicateObject, "Bucket own/x")
    );
    assert!(refused[0].message.contains("objects[1]"), "{refused:?}");
    assert_eq!(made(vec![own(), own()], Border::default()).unwrap_err()[0].code, RefusedCode::DuplicateObject);
}

#[test]
fn all_refusals_are_told_at_once_and_nothing_comes_of_the_good_objects() {
    let secret = object("v1", "Secret", &json!({}));
    let foreign = account(
        &json!({"metadata": {"namespace": "other", "labels": {"agent.gitlab.com/id-1": ""}}, "status": {"a": 1}}),
    );
    let refused = made(vec![own(), secret, foreign], Border::default()).unwrap_err();
    let codes: Vec<_> = refused.iter().map(|refused| refused.code.as_str()).collect();
    assert_eq!(codes, ["kind_not_allowed", "namespace_not_allowed", "object_invalid", "reserved_key"]);
}

#[test]
fn values_of_a_job_cannot_leave_the_environment() {
    let text = "objects:\n  - apiVersion: v1\n    kind: Namespace\n    metadata: {name: 'review-{{ .project.id }}'}\n  - apiVersion: v1\n    \
                kind: ServiceAccount\n    metadata:\n      name: deploy\n      namespace: '{{ .environment.name }}'\n";
    let template = Template::parse(&"custom".parse().unwrap(), text.as_bytes()).unwrap();
    for (name, is_fine) in [
        ("review-42", true),
        ("kube-system", false),
        ("review-42\n  - kind: Secret", false),
        ("review-42'", false),
        ("../kube-system", false),
        ("{{ .project.id }}", false),
    ] {
        let mut facts = info();
        facts.environment.name = name.to_owned();
        let made = manifest(&template.render(&facts).unwrap(), &facts, Border::default());
        assert_eq!(made.is_ok(), is_fine, "{name}: {made:?}");
        if let Err(refused) = made {
            assert_eq!(refused[0].code, RefusedCode::NamespaceNotAllowed, "{refused:?}");
        }
    }
}
