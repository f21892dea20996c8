//! Ends of environments that do not go smoothly.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tunnel_proto::environments::{ObjectErrorCode, ObjectStep};

use super::desk::{Desk, Place};
use crate::fake::Fake;
use crate::trouble::Fault;

super::scenarios! {
    namespace_that_something_holds_is_named_as_left_until_it_is_gone
    object_that_something_holds_keeps_its_namespace_until_it_is_gone
    object_that_may_not_be_deleted_has_its_error_and_keeps_its_namespace
    namespace_that_others_share_by_now_is_let_go_and_stays
    ; in memory alone:
    what_controllers_look_after_is_gone_before_what_they_use
    accounts_stay_while_what_controllers_look_after_could_not_be_deleted
    accounts_stay_while_what_controllers_look_after_cannot_be_seen_to_go
}

/// A kind whose objects controllers look after.
const API: &str = "kustomize.toolkit.fluxcd.io/v1";

fn install(fake: &Fake) {
    fake.install("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations");
}

fn kustomization(place: &Place, name: &str) -> Value {
    place.object(API, "Kustomization", &place.namespace, name, &json!({"spec": {"prune": true}}))
}

fn kustomization_path(place: &Place, name: &str) -> String {
    format!("/apis/{API}/namespaces/{}/kustomizations/{name}", place.namespace)
}

async fn hold(desk: &Desk, path: &str, finalizers: &[&str]) {
    desk.world.change(path, |object| object["metadata"]["finalizers"] = json!(finalizers)).await;
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
    assert!(steps.starts_with(&[ObjectStep::Deleting, ObjectStep::Waiting, ObjectStep::Waiting]), "{steps:?}");
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
    assert_eq!(heard.done.left, [], "the namespace's turn does not come");
    desk.world.trouble.clear();
    desk.removed(&place, &heard.done.objects).await;
}

async fn what_controllers_look_after_is_gone_before_what_they_use(desk: &Desk) {
    let fake = desk.world.fake.as_ref().expect("a server in memory");
    install(fake);
    let place = desk.place("review");
    let mut objects = place.usual();
    objects.push(kustomization(&place, "app"));
    let tracked = desk.applied(&place, &objects, &[]).await;
    let path = kustomization_path(&place, "app");
    hold(desk, &path, &["finalizers.fluxcd.io"]).await;
    let heard = desk.remove(&place, &tracked).await;
    let [left] = heard.done.left.as_slice() else { panic!("{heard:?}") };
    assert_eq!(left.object, format!("Kustomization {}/app", place.namespace));
    assert!(desk.has(&place.account_path("app")).await && desk.has(&place.binding_path("ci")).await);
    hold(desk, &path, &[]).await;
    fake.drop_finalized(&place.namespace);
    desk.removed(&place, &heard.done.objects).await;
}

async fn accounts_stay_while_what_controllers_look_after_could_not_be_deleted(desk: &Desk) {
    let fake = desk.world.fake.as_ref().expect("a server in memory");
    install(fake);
    // It may not be deleted; or a controller writes it all the time.
    for (refusal, code) in [(403, ObjectErrorCode::Forbidden), (409, ObjectErrorCode::Conflict)] {
        let place = desk.place("review");
        let mut objects = place.usual();
        objects.extend(["app", "other"].map(|name| kustomization(&place, name)));
        let tracked = desk.applied(&place, &objects, &[]).await;
        let path = kustomization_path(&place, "app");
        let is_it = move |method: &http::Method, asked: &str| method == "DELETE" && asked == path;
        desk.world.trouble.fail(usize::MAX, Fault::Refused(refusal), is_it);
        let heard = desk.remove(&place, &tracked).await;
        assert_eq!(heard.errors(), [("Kustomization".to_owned(), code)], "{heard:?}");
        assert!(desk.has(&place.account_path("app")).await && desk.has(&place.binding_path("ci")).await);
        assert!(!desk.has(&kustomization_path(&place, "other")).await, "its like are not held up");
        assert_eq!((heard.kinds().len(), desk.inventory(&place).await.map(|keys| keys.len())), (4, Some(4)));
        desk.world.trouble.clear();
        desk.removed(&place, &heard.done.objects).await;
    }
}

async fn accounts_stay_while_what_controllers_look_after_cannot_be_seen_to_go(desk: &Desk) {
    let fake = desk.world.fake.as_ref().expect("a server in memory");
    install(fake);
    let place = desk.place("review");
    let mut objects = place.usual();
    objects.push(kustomization(&place, "app"));
    let tracked = desk.applied(&place, &objects, &[]).await;
    let path = kustomization_path(&place, "app");
    hold(desk, &path, &["finalizers.fluxcd.io"]).await;
    let (looks, asked_for) = (AtomicUsize::new(0), path.clone());
    // It is seen once, before it is deleted.
    let is_late = move |method: &http::Method, asked: &str| {
        method == "GET" && asked == asked_for && looks.fetch_add(1, Ordering::Relaxed) > 0
    };
    desk.world.trouble.fail(usize::MAX, Fault::Refused(403), is_late);
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!(heard.steps("Kustomization"), [ObjectStep::Deleting, ObjectStep::Failed], "{heard:?}");
    assert_eq!(heard.errors(), [("Kustomization".to_owned(), ObjectErrorCode::Forbidden)]);
    assert!(desk.has(&place.account_path("app")).await && desk.has(&place.binding_path("ci")).await);
    assert_eq!(heard.kinds(), ["Kustomization", "Namespace", "RoleBinding", "ServiceAccount"]);
    desk.world.trouble.clear();
    hold(desk, &path, &[]).await;
    fake.drop_finalized(&place.namespace);
    desk.removed(&place, &heard.done.objects).await;
}

async fn namespace_that_others_share_by_now_is_let_go_and_stays(desk: &Desk) {
    for is_end in [true, false] {
        let mut place = desk.place(if is_end { "stopped" } else { "shrunk" });
        let tracked = desk.applied(&place, &place.usual(), &[]).await;
        place.scope.kept_namespaces = vec!["other".to_owned(), place.namespace.clone()];
        if is_end {
            assert_eq!(desk.removed_but(&place, &tracked).await, [place.namespace.clone()]);
        } else {
            // A template that makes it no more, and has nothing in it.
            assert_eq!(desk.applied(&place, &[], &tracked).await, []);
            assert!(desk.inventory(&place).await.unwrap_or_default().is_empty(), "it is forgotten");
        }
        let namespace = desk.world.get(&place.path()).await.expect("the namespace");
        assert!(namespace["metadata"]["deletionTimestamp"].is_null(), "what others have in it goes with it");
        assert!(!desk.has(&place.account_path("app")).await, "what is in it is the environment's own");
    }
}
