mod hostile;
mod properties;

use serde_json::json;

use super::*;
use crate::environment::facts::testing::info;
use crate::environment::template::{Deletion, Template};

fn rendered(objects: Vec<Value>) -> RenderedTemplate {
    RenderedTemplate { template: "custom".parse().unwrap(), deletion: Deletion::OnStop, objects }
}

fn own() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}})
}

fn made(objects: Vec<Value>, border: Border<'_>) -> Result<Manifest, Vec<RejectedObject>> {
    manifest(&rendered(objects), &info(), border)
}

#[test]
fn objects_of_the_built_in_template_get_the_documented_labels_and_the_annotation() {
    let rendered = Template::built_in().render(&info()).unwrap();
    let made = manifest(&rendered, &info(), Border::default()).unwrap();
    let key = "review-feature-1-1q251u-42-7";
    let labels = json!({
        "agent.gitlab.com/id-7": "",
        "agent.gitlab.com/project_id-42": "",
        format!("agent.gitlab.com/env-{key}"): "",
        "agent.gitlab.com/environment_slug-review-feature-1-1q251u": "",
    });
    for object in &made.objects {
        assert_eq!(object["metadata"]["labels"], labels);
        let annotations = object["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), 1);
        let told: Value =
            serde_json::from_str(annotations[&format!("agent.gitlab.com/env-{key}")].as_str().unwrap()).unwrap();
        assert_eq!(
            told,
            json!({
                "environment_id": 31,
                "environment_name": "review/feature-1",
                "environment_slug": "review-feature-1-1q251u",
                "environment_url": "https://feature-1.example.com",
                "environment_page_url": "https://gateway.example.com/api/v1/environments/31",
                "environment_tier": "development",
                "agent_id": 7,
                "agent_name": "prod-eu",
                "agent_url": "https://gateway.example.com/api/v1/agents/prod-eu",
                "project_id": 42,
                "project_slug": "group-shop",
                "project_path": "group/shop",
                "project_url": "https://gitlab.example.com/group/shop",
                "template_name": "default",
            })
        );
    }
    let tracked: Vec<_> = made.tracked.iter().map(ToString::to_string).collect();
    assert_eq!(tracked, [format!("Namespace {key}"), format!("RoleBinding {key}/bind-{key}")]);
    assert_eq!((made.tracked[1].group.as_str(), made.tracked[1].version.as_str()), ("rbac.authorization.k8s.io", "v1"));
}

#[test]
fn annotation_leaves_out_what_is_not_known() {
    let mut bare = info();
    (bare.environment.url, bare.environment.tier) = (None, None);
    let made = manifest(&rendered(vec![own()]), &bare, Border::default()).unwrap();
    let annotations = made.objects[0]["metadata"]["annotations"].as_object().unwrap();
    let told = annotations.values().next().unwrap().as_str().unwrap();
    assert!(!told.contains("environment_url") && !told.contains("tier"), "{told}");
}

#[test]
fn own_labels_and_annotations_of_a_template_stay() {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "own", "labels": {"team": "shop"}, "annotations": {"example.com/note": "any: {text}"}, "finalizers": ["example.com/x"],
    }});
    let made = made(vec![object], Border::default()).unwrap();
    let metadata = &made.objects[0]["metadata"];
    assert_eq!((&metadata["labels"]["team"], metadata["labels"].as_object().unwrap().len()), (&json!("shop"), 5));
    assert_eq!(metadata["annotations"]["example.com/note"], "any: {text}");
    let null = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own", "labels": null, "annotations": null}});
    assert_eq!(manifest(&rendered(vec![null]), &info(), Border::default()).unwrap().tracked.len(), 1);
}

#[test]
fn what_others_stand_in_or_refer_to_is_applied_first() {
    let one = |group: &str, kind: &str, name: &str| json!({"apiVersion": format!("{group}v1"), "kind": kind, "metadata": {"name": name, "namespace": "own"}});
    let objects = vec![
        one("helm.toolkit.fluxcd.io/", "HelmRelease", "release"),
        one("notification.toolkit.fluxcd.io/", "Alert", "alert"),
        one("kustomize.toolkit.fluxcd.io/", "Kustomization", "two"),
        one("kustomize.toolkit.fluxcd.io/", "Kustomization", "one"),
        one("rbac.authorization.k8s.io/", "RoleBinding", "system:a"),
        one("", "ServiceAccount", "deploy"),
        one("source.toolkit.fluxcd.io/", "GitRepository", "git"),
        own(),
        one("notification.toolkit.fluxcd.io/", "Provider", "provider"),
        one("source.toolkit.fluxcd.io/", "HelmChart", "chart"),
    ];
    let made = made(objects, Border::default()).unwrap();
    let kinds: Vec<_> = made.tracked.iter().map(|one| format!("{}/{}", one.kind, one.name)).collect();
    assert_eq!(
        kinds,
        [
            "Namespace/own",
            "ServiceAccount/deploy",
            "RoleBinding/system:a",
            "GitRepository/git",
            "HelmChart/chart",
            "Kustomization/two",
            "Kustomization/one",
            "HelmRelease/release",
            "Provider/provider",
            "Alert/alert"
        ]
    );
    assert!(made.objects.iter().zip(&made.tracked).all(|(object, tracked)| object["metadata"]["name"] == tracked.name));
}

#[test]
fn object_without_a_namespace_is_in_the_default_one_if_there_is_one() {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deploy"}});
    let border = Border { default_namespace: Some("team"), ..Border::default() };
    let inside = made(vec![account.clone()], border).unwrap();
    assert_eq!(
        (inside.objects[0]["metadata"]["namespace"].as_str(), inside.tracked[0].namespace.as_str()),
        (Some("team"), "team")
    );
    let refused = made(vec![account], Border::default()).unwrap_err();
    assert_eq!(refused[0].code, RefusedCode::NamespaceNotAllowed);
    // It may also be named, and referred to.
    let named = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "app", "namespace": "own"}, "spec": {"targetNamespace": "team", "dependsOn": [{"name": "x", "namespace": "own"}]}});
    assert!(made(vec![own(), named], border).is_ok());
}

#[test]
fn too_many_and_too_large_objects_are_refused_as_a_whole() {
    let account = |name: String| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    let border = Border { default_namespace: Some("team"), ..Border::default() };
    let many: Vec<_> = (0..=OBJECTS_MAX).map(|index| account(format!("a{index}"))).collect();
    assert_eq!(made(many.clone(), border).unwrap_err()[0].code, RefusedCode::TooManyObjects);
    assert!(made(many[1..].to_vec(), border).is_ok());
    let mut large = account("a".to_owned());
    large["metadata"]["annotations"] = json!({"a": "x".repeat(RENDERED_BYTES_MAX)});
    assert_eq!(made(vec![large], border).unwrap_err()[0].code, RefusedCode::TooLarge);
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let mut nested = account("a".to_owned());
    nested["spec"] = deep;
    assert_eq!(made(vec![nested], border).unwrap_err()[0].code, RefusedCode::TooLarge);
}

#[test]
fn objects_that_were_let_through_are_within_their_border_and_not_within_one_that_changed() {
    let named = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "app", "namespace": "own"}, "spec": {"targetNamespace": "team"}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deploy"}});
    let (team, others) = (["team".to_owned()], ["team".to_owned(), "own".to_owned()]);
    let border = |default_namespace, default_namespaces| Border { default_namespace, default_namespaces };
    for objects in [vec![own(), named], vec![own(), account]] {
        let Manifest { objects, .. } = made(objects, border(Some("team"), &team)).unwrap();
        assert!(is_within(&objects, border(Some("team"), &team)), "with our own labels, too");
        assert!(!is_within(&objects, border(None, &team)), "it has no default namespace any more");
        assert!(!is_within(&objects, border(Some("other"), &team)));
        assert!(!is_within(&objects, border(Some("team"), &others)), "others share what it makes");
    }
    let alone = made(vec![own()], Border::default()).unwrap().objects;
    assert!(is_within(&alone, border(Some("other"), &team)), "what does not matter to it");
}
