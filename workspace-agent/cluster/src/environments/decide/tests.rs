use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::object::key;

fn live(owner: Option<&str>, deleting: bool) -> LiveObject {
    let annotations = owner.map(|owner| (OWNER_ANNOTATION.to_owned(), owner.to_owned()));
    LiveObject {
        uid: "u".into(),
        annotations: annotations.into_iter().collect::<BTreeMap<_, _>>(),
        deleting_since: deleting.then_some(1),
        ..LiveObject::default()
    }
}

#[test]
fn only_an_object_with_this_inventorys_mark_is_the_environments() {
    let ours = live(Some("environment-a"), false);
    assert_eq!(ownership(None, "environment-a"), ObjectOwnership::New);
    assert_eq!(ownership(Some(ours.clone()), "environment-a"), ObjectOwnership::Ours(ours));
    let leaving = live(Some("environment-a"), true);
    assert_eq!(ownership(Some(leaving.clone()), "environment-a"), ObjectOwnership::Leaving(leaving));
    for owner in [None, Some("environment-b"), Some("environment-a2"), Some(""), Some("w-workspace-inventory")] {
        for deleting in [false, true] {
            assert_eq!(ownership(Some(live(owner, deleting)), "environment-a"), ObjectOwnership::Foreign, "{owner:?}");
        }
    }
}

#[test]
fn answers_of_the_api_server_have_names() {
    // As Kubernetes 1.36 says them.
    let forbidden = |text: &str| code(&ApiError::Forbidden(text.into()));
    let not_found = |text: &str| code(&ApiError::NotFound(text.into()));
    assert_eq!(
        forbidden(
            r#"users "gitlab:ci_job:1" is forbidden: User "a" cannot impersonate resource "users" in API group """#
        ),
        ObjectErrorCode::Identity
    );
    assert_eq!(
        forbidden(r#"namespaces "c" is forbidden: User "a" cannot patch resource "namespaces" in API group """#),
        ObjectErrorCode::Forbidden
    );
    assert_eq!(
        forbidden("unable to create new content in namespace a because it is being terminated"),
        ObjectErrorCode::Conflict
    );
    assert_eq!(not_found(r#"namespaces "zz" not found"#), ObjectErrorCode::NamespaceMissing);
    assert_eq!(not_found(r#"clusterroles.rbac.authorization.k8s.io "x" not found"#), ObjectErrorCode::Invalid);
    for text in ["no message", "the server could not find the requested resource", "the API server has no kind Foo"] {
        assert_eq!(not_found(text), ObjectErrorCode::UnknownKind, "{text}");
    }
    let unavailable = ApiError::Unavailable { message: "no".into(), after: None };
    assert_eq!(code(&unavailable), ObjectErrorCode::Unavailable);
    assert!(is_of_all(code(&unavailable)) && is_of_all(code(&ApiError::Superseded)));
    assert!(!is_of_all(code(&ApiError::Invalid("no".into()))) && !is_of_all(code(&ApiError::Conflict("no".into()))));
}

#[test]
fn namespaces_go_last_and_what_controllers_look_after_goes_before_what_they_use() {
    let kustomization = key("ns", "app", "kustomize.toolkit.fluxcd.io", "Kustomization");
    let source = key("ns", "app", "source.toolkit.fluxcd.io", "GitRepository");
    let account = key("ns", "app", "", "ServiceAccount");
    let binding = key("ns", "app", "rbac.authorization.k8s.io", "RoleBinding");
    let namespace = key("", "ns", "", "Namespace");
    // A kind of that name of somebody's own group is no namespace.
    let odd = key("", "ns", "example.net", "Namespace");
    let all = [&account, &namespace, &source, &binding, &kustomization, &odd].map(Clone::clone);
    assert_eq!(waves(all), [vec![source, kustomization, odd], vec![binding, account], vec![namespace]]);
}

proptest! {
    #[test]
    fn each_object_is_in_one_wave_and_no_namespace_before_the_last(
        picks in proptest::collection::btree_set((0..3_usize, 0..4_usize, 0..4_u8), 0..24),
    ) {
        let groups = ["", "rbac.authorization.k8s.io", "example.net"];
        let kinds = ["Namespace", "RoleBinding", "ServiceAccount", "Thing"];
        let keys: Vec<_> = picks.iter().map(|(group, kind, name)| key("n", &name.to_string(), groups[*group], kinds[*kind])).collect();
        let [first, second, last] = waves(keys.clone());
        prop_assert!(first.iter().chain(&second).all(|key| !is_namespace(key)));
        prop_assert!(last.iter().all(is_namespace));
        let mut all: Vec<_> = first.into_iter().chain(second).chain(last).collect();
        all.sort();
        let mut keys = keys;
        keys.sort();
        prop_assert_eq!(all, keys);
    }
}
