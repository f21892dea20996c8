use bytes::Bytes;

use super::*;

fn scope() -> Scope {
    Scope {
        cluster: "c".into(),
        environment: "review-3-1".into(),
        inventory: "environment-review-3-1-0a1b2c3d".into(),
        identity: None,
        kept_namespaces: vec!["shared".into()],
    }
}

fn object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind,
        "metadata": {"name": name, "annotations": {OWNER_ANNOTATION: scope().inventory}}})
}

fn read(objects: &Value) -> Result<Vec<String>, Vec<ObjectError>> {
    let apply = Apply { scope: scope(), objects: Bytes::from(objects.to_string()), tracked: Vec::new() };
    super::objects(&apply).map(|objects| objects.iter().map(|object| object.key.to_string()).collect())
}

#[track_caller]
fn refused(objects: &Value, texts: &[&str]) {
    let errors = read(objects).expect_err("refused");
    assert_eq!(errors.len(), texts.len(), "{errors:?}");
    for (error, text) in errors.iter().zip(texts) {
        assert_eq!(error.code, ObjectErrorCode::Invalid);
        assert!(error.message.contains(text), "{error:?}");
    }
}

#[test]
fn objects_are_read_into_the_order_in_which_they_are_applied() {
    let objects = json!([object("ServiceAccount", "a"), object("Namespace", "n")]);
    assert_eq!(read(&objects), Ok(vec!["Namespace n".to_owned(), "ServiceAccount a".to_owned()]));
    assert_eq!(read(&json!([])), Ok(Vec::new()));
}

#[test]
fn call_is_about_an_object_that_is_wanted_or_recorded_or_else_about_the_inventory() {
    let first = |objects: Value, tracked: &[ObjectRef]| {
        let (objects, tracked) = (Bytes::from(objects.to_string()), tracked.to_vec());
        let first = first(&Call::Apply(Apply { scope: scope(), objects, tracked }), "agents");
        assert!(first.is_valid(), "{first:?}");
        (first.kind, first.namespace, first.name)
    };
    let named = |kind: &str, namespace: &str, name: &str| (kind.to_owned(), namespace.to_owned(), name.to_owned());
    let recorded = [ObjectRef { kind: "ServiceAccount".into(), name: "app".into(), ..ObjectRef::default() }];
    assert_eq!(first(json!([object("Namespace", "n")]), &recorded), named("Namespace", "", "n"));
    let inventory = named("ConfigMap", "agents", &scope().inventory);
    for nothing in [json!([]), json!({}), json!([object("Namespace", "a/b")])] {
        assert_eq!(first(nothing.clone(), &recorded), named("ServiceAccount", "", "app"));
        assert_eq!(first(nothing, &[]), inventory);
    }
}

#[test]
fn objects_that_are_not_the_environments_or_have_no_name_are_refused_all_at_once() {
    let mut unmarked = object("Namespace", "n");
    unmarked["metadata"]["annotations"] = json!({});
    let mut anothers = object("Namespace", "m");
    anothers["metadata"]["annotations"][OWNER_ANNOTATION] = json!("environment-other");
    refused(&json!([unmarked, anothers]), &["Namespace n has not the mark", "Namespace m has not the mark"]);
    let odd = [json!(7), object("Name/space", "n"), object("Namespace", "a/b"), object("Namespace", "")];
    refused(&json!(odd), &["object 0", "object 1", "object 2", "object 3"]);
    refused(&json!([object("Namespace", "n"), object("Namespace", "n")]), &["Namespace n is there twice"]);
    for name in ["default", "kube-system", "kube-public"] {
        refused(&json!([object("Namespace", name)]), &["belongs to Kubernetes"]);
    }
    refused(&json!([object("Namespace", "shared")]), &["others share it"]);
    assert!(read(&json!([object("ServiceAccount", "shared")])).is_ok(), "only a namespace is one");
    refused(&json!([object("Secret", "a:b")]), &["cannot be tracked"]);
    refused(&json!({}), &["not a JSON array"]);
}

fn identity() -> CallIdentity {
    CallIdentity {
        user: "gitlab:ci_job:7".into(),
        groups: vec!["gitlab:ci_job".into(), "gitlab:project_env:3:review".into()],
        extra: vec![
            ("agent.gitlab.com/project_id".into(), vec!["3".into()]),
            ("agent.gitlab.com/username".into(), vec!["jö".into(), "k".into()]),
        ],
    }
}

#[test]
fn identity_becomes_the_headers_of_an_impersonation() {
    let headers = impersonation(&identity()).expect("headers");
    let all: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let expected: [(&str, &[u8]); 6] = [
        ("impersonate-user", b"gitlab:ci_job:7"),
        ("impersonate-group", b"gitlab:ci_job"),
        ("impersonate-group", b"gitlab:project_env:3:review"),
        ("impersonate-extra-agent.gitlab.com%2fproject_id", b"3"),
        ("impersonate-extra-agent.gitlab.com%2fusername", "jö".as_bytes()),
        ("impersonate-extra-agent.gitlab.com%2fusername", b"k"),
    ];
    assert_eq!(all, expected);
}

#[test]
fn agent_acts_for_nobody_of_the_cluster_itself() {
    let bad = [
        (CallIdentity { user: "system:admin".into(), ..identity() }, "user `system:admin`"),
        (CallIdentity { user: "jo".into(), ..identity() }, "user `jo`"),
        (CallIdentity { user: "system:serviceaccount:kube-system:x".into(), ..identity() }, "user"),
        (
            CallIdentity { groups: vec!["gitlab:ci_job".into(), "system:masters".into()], ..identity() },
            "group `system:masters`",
        ),
        (CallIdentity { extra: vec![("scopes".into(), vec!["x".into()])], ..identity() }, "extra field `scopes`"),
    ];
    for (identity, text) in bad {
        let message = impersonation(&identity).expect_err("refused");
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn inventory_says_whose_it_is() {
    let inventory = inventory(&scope(), "workspace-gateway");
    assert_eq!(inventory.label(INVENTORY_LABEL), Some(inventory.key.name.as_str()));
    assert_eq!((inventory.label(CLUSTER_LABEL), inventory.label(ENVIRONMENT_LABEL)), (Some("c"), Some("review-3-1")));
    assert_eq!(inventory.label(crate::object::WORKSPACE_LABEL), None, "it is no workspace's");
    assert_eq!(inventory.key.namespace, "workspace-gateway");
}
