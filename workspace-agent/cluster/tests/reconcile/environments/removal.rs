//! Ends of environments that do not go smoothly.

use serde_json::json;
use tunnel_proto::environments::{ObjectErrorCode, Step};

use super::desk::Desk;
use crate::trouble::Fault;

super::scenarios! {
    namespace_that_something_holds_is_named_as_left_until_it_is_gone
    object_that_something_holds_keeps_its_namespace_until_it_is_gone
    object_that_may_not_be_deleted_has_its_error_and_keeps_its_namespace
    what_controllers_look_after_is_gone_before_what_they_use
}

async fn namespace_that_something_holds_is_named_as_left_until_it_is_gone(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    let held = format!("{}/configmaps/held", place.path());
    if let Some(fake) = &desk.world.fake {
        fake.let_namespaces_linger();
    } else {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "namespace": place.namespace, "finalizers": ["example.net/hold"]}});
        desk.world.make(&format!("{}/configmaps", place.path()), &map).await;
    }
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!(heard.errors(), []);
    let [left] = heard.done.left.as_slice() else { panic!("{heard:?}") };
    assert_eq!(left.object, format!("Namespace {}", place.namespace));
    assert!(left.since > 0);
    assert_eq!((heard.kinds(), desk.inventory(&place).await.map(|keys| keys.len())), (vec!["Namespace"], Some(1)));
    let steps = heard.steps("Namespace");
    assert!(steps.starts_with(&[Step::Deleting, Step::Waiting, Step::Waiting]), "{steps:?}");
    if let Some(fake) = &desk.world.fake {
        fake.finish_namespace(&place.namespace);
    } else {
        assert!(left.message.contains("example.net/hold"), "{left:?}");
        desk.world.change(&held, |map| map["metadata"]["finalizers"] = json!([])).await;
    }
    desk.removed(&place, &heard.done.objects).await;
}

async fn object_that_something_holds_keeps_its_namespace_until_it_is_gone(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    let path = place.account_path("app");
    desk.world.change(&path, |account| account["metadata"]["finalizers"] = json!(["example.net/hold"])).await;
    let heard = desk.remove(&place, &tracked).await;
    let [left] = heard.done.left.as_slice() else { panic!("{heard:?}") };
    assert_eq!(left.object, format!("ServiceAccount {}/app", place.namespace));
    assert_eq!((left.finalizers.as_slice(), left.since > 0), (&["example.net/hold".to_owned()][..], true));
    let namespace = desk.world.get(&place.path()).await.expect("the namespace");
    assert!(namespace["metadata"]["deletionTimestamp"].is_null(), "it would hold the namespace too");
    assert_eq!((heard.kinds(), heard.errors()), (vec!["Namespace", "ServiceAccount"], Vec::new()));
    desk.world.change(&path, |account| account["metadata"]["finalizers"] = json!([])).await;
    if let Some(fake) = &desk.world.fake {
        fake.drop_finalized(&place.namespace);
    }
    desk.removed(&place, &heard.done.objects).await;
}

async fn object_that_may_not_be_deleted_has_its_error_and_keeps_its_namespace(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    let binding = place.binding_path("ci");
    desk.world.trouble.fail(usize::MAX, Fault::Refused(403), move |method, path| method == "DELETE" && path == binding);
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!(heard.errors(), [("RoleBinding".to_owned(), ObjectErrorCode::Forbidden)], "{heard:?}");
    assert!(!desk.has(&place.account_path("app")).await, "the others are deleted");
    assert_eq!(heard.kinds(), ["Namespace", "RoleBinding"]);
    assert_eq!(heard.done.left.len(), 1, "{heard:?}");
    desk.world.trouble.clear();
    desk.removed(&place, &heard.done.objects).await;
}

async fn what_controllers_look_after_is_gone_before_what_they_use(desk: &Desk) {
    let Some(fake) = &desk.world.fake else { return };
    fake.install("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations");
    let place = desk.place("review");
    let mut objects = place.usual();
    let api = "kustomize.toolkit.fluxcd.io/v1";
    objects.push(place.object(api, "Kustomization", &place.namespace, "app", &json!({"spec": {"prune": true}})));
    let tracked = desk.applied(&place, &objects, &[]).await;
    let path = format!("/apis/{api}/namespaces/{}/kustomizations/app", place.namespace);
    desk.world.change(&path, |object| object["metadata"]["finalizers"] = json!(["finalizers.fluxcd.io"])).await;
    let heard = desk.remove(&place, &tracked).await;
    let [left] = heard.done.left.as_slice() else { panic!("{heard:?}") };
    assert_eq!(left.object, format!("Kustomization {}/app", place.namespace));
    assert!(desk.has(&place.account_path("app")).await && desk.has(&place.binding_path("ci")).await);
    desk.world.change(&path, |object| object["metadata"]["finalizers"] = json!([])).await;
    fake.drop_finalized(&place.namespace);
    desk.removed(&place, &heard.done.objects).await;
}
