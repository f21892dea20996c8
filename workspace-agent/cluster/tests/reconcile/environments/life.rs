//! Environments made, changed and removed.

use serde_json::json;
use tunnel_proto::environments::{ObjectErrorCode, ObjectRef, ObjectStep};

use super::desk::{Desk, account_path};
use crate::trouble::Fault;

super::scenarios! {
    environment_is_made_again_without_a_change_shrunk_and_removed
    template_that_changes_changes_only_what_it_says
    error_of_one_object_does_not_keep_the_others_from_being_applied
    objects_are_asked_for_as_whom_the_call_says_and_the_inventory_as_the_agent
    call_that_makes_no_sense_changes_nothing
    environment_is_made_again_while_the_last_one_is_still_going
    environment_whose_template_makes_nothing_any_more_has_no_inventory
}

async fn environment_is_made_again_without_a_change_shrunk_and_removed(desk: &Desk) {
    let place = desk.place("review");
    let heard = desk.apply(&place, &place.usual(), &[]).await;
    assert_eq!((heard.errors(), heard.done.left.len()), (Vec::new(), 0), "{heard:?}");
    assert_eq!(heard.kinds(), ["Namespace", "RoleBinding", "ServiceAccount"]);
    assert!(heard.done.objects.iter().all(|object| !object.uid.is_empty() && object.version == "v1"), "{heard:?}");
    let steps: Vec<_> = heard.progress.iter().map(|progress| (progress.object.kind.as_str(), progress.step)).collect();
    let applied = ["Namespace", "ServiceAccount", "RoleBinding"].map(|kind| (kind, ObjectStep::Applied));
    assert_eq!(steps, applied, "in their order");
    assert_eq!(desk.inventory(&place).await.map(|keys| keys.len()), Some(3));

    let before = desk.world.get(&place.binding_path("ci")).await;
    let again = desk.apply(&place, &place.usual(), &heard.done.objects).await;
    assert!(again.progress.iter().all(|progress| progress.step == ObjectStep::Unchanged), "{again:?}");
    assert_eq!(desk.world.get(&place.binding_path("ci")).await, before);
    assert_eq!(again.done.objects, heard.done.objects);

    let shrunk = desk.apply(&place, &place.usual()[..2], &again.done.objects).await;
    assert_eq!((shrunk.errors(), shrunk.kinds()), (Vec::new(), vec!["Namespace", "RoleBinding"]));
    assert_eq!(shrunk.steps("ServiceAccount"), [ObjectStep::Deleting, ObjectStep::Gone]);
    assert!(!desk.has(&place.account_path("app")).await);
    assert_eq!(desk.inventory(&place).await.map(|keys| keys.len()), Some(2));

    let gone = desk.remove(&place, &shrunk.done.objects).await;
    assert_eq!((gone.errors(), gone.done.left.len(), gone.done.objects.len()), (Vec::new(), 0, 0), "{gone:?}");
    assert_eq!(gone.steps("Namespace").last(), Some(&ObjectStep::Gone));
    assert!(!desk.has(&place.path()).await);
    assert_eq!(desk.inventory(&place).await, None);
    desk.removed(&place, &shrunk.done.objects).await;
    // What was recorded by the agent alone, whose last answer was lost, goes as well.
    desk.applied(&place, &place.usual(), &[]).await;
    desk.removed(&place, &[]).await;
    assert!(!desk.has(&place.path()).await);
}

async fn template_that_changes_changes_only_what_it_says(desk: &Desk) {
    let place = desk.place("review");
    let mut objects = place.usual();
    objects[2]["metadata"]["labels"]["team"] = json!("one");
    let tracked = desk.applied(&place, &objects, &[]).await;
    // Somebody else's label stays, the template's goes.
    let path = place.account_path("app");
    desk.world.change(&path, |account| account["metadata"]["labels"]["theirs"] = json!("x")).await;
    objects[2] = place.account(&place.namespace, "app");
    let heard = desk.apply(&place, &objects, &tracked).await;
    assert_eq!(
        (heard.steps("ServiceAccount"), heard.steps("Namespace")),
        (vec![ObjectStep::Applied], vec![ObjectStep::Unchanged])
    );
    let account = desk.world.get(&path).await.expect("the account");
    assert_eq!(account["metadata"]["labels"]["team"], json!(null));
    if desk.world.fake.is_none() {
        assert_eq!(account["metadata"]["labels"]["theirs"], "x");
    }
    desk.removed(&place, &heard.done.objects).await;
}

async fn error_of_one_object_does_not_keep_the_others_from_being_applied(desk: &Desk) {
    let place = desk.place("review");
    let old = place.account(&place.namespace, "old");
    let mut first = place.usual();
    first.push(old);
    let tracked = desk.applied(&place, &first, &[]).await;
    let namespace = &place.namespace;
    let mut objects = place.usual();
    objects.push(place.object("example.net/v1", "Widget", namespace, "w", &json!({})));
    objects.push(place.account("nowhere-at-all", "lost"));
    objects.push(place.account(namespace, "new"));
    let binding = place.binding_path("ci");
    desk.world.trouble.fail(usize::MAX, Fault::Refused(403), move |method, path| method == "PATCH" && path == binding);
    let heard = desk.apply(&place, &objects, &tracked).await;
    let mut errors = heard.errors();
    errors.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("RoleBinding", ObjectErrorCode::Forbidden),
        ("ServiceAccount", ObjectErrorCode::NamespaceMissing),
        ("Widget", ObjectErrorCode::UnknownKind),
    ];
    assert_eq!(errors, expected.map(|(kind, code)| (kind.to_owned(), code)), "{heard:?}");
    assert!(desk.has(&place.account_path("new")).await);
    assert!(desk.has(&place.account_path("old")).await, "nothing is pruned while something is wrong");
    assert_eq!(heard.done.objects.len(), 5, "{heard:?}");
    assert_eq!(desk.inventory(&place).await.map(|keys| keys.len()), Some(5), "what is not there is not tracked");
    desk.world.trouble.clear();
    desk.removed(&place, &heard.done.objects).await;
}

async fn objects_are_asked_for_as_whom_the_call_says_and_the_inventory_as_the_agent(desk: &Desk) {
    let place = desk.place("review").acting();
    if desk.world.fake.is_none() {
        // The real server lets nobody of that name do anything: this is what the error looks like.
        let heard = desk.apply(&place, &place.usual(), &[]).await;
        assert!(heard.errors().iter().all(|(_, code)| *code == ObjectErrorCode::Forbidden), "{heard:?}");
        assert_eq!((heard.errors().len(), heard.done.objects.len()), (3, 0), "{heard:?}");
        return;
    }
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    desk.removed(&place, &tracked).await;
    let sent = desk.world.trouble.sent();
    assert!(sent.len() > 10, "{sent:?}");
    for (method, path, user) in sent {
        let expected = if path.contains("/configmaps") { None } else { Some("gitlab:ci_job:7") };
        assert_eq!(user.as_deref(), expected, "{method} {path}");
    }
}

async fn call_that_makes_no_sense_changes_nothing(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    let mut unmarked = place.account(&place.namespace, "more");
    unmarked["metadata"]["annotations"] = json!({});
    let heard = desk.apply(&place, &[place.own_namespace(), unmarked], &tracked).await;
    assert_eq!(heard.errors(), [("ServiceAccount".to_owned(), ObjectErrorCode::Invalid)]);
    assert_eq!(heard.done.objects, tracked);
    let placeless = place.account("", "app");
    let heard = desk.apply(&place, &[place.own_namespace(), placeless], &tracked).await;
    assert_eq!(heard.errors(), [("ServiceAccount".to_owned(), ObjectErrorCode::Invalid)], "{heard:?}");
    let mut stranger = place.clone();
    stranger.scope.identity = Some(tunnel_proto::environments::CallIdentity {
        user: "system:admin".into(),
        groups: vec!["system:masters".into()],
        extra: Vec::new(),
    });
    let heard = desk.remove(&stranger, &tracked).await;
    assert_eq!(heard.errors(), [(String::new(), ObjectErrorCode::Identity)]);
    assert_eq!(heard.done.objects, tracked);
    assert!(desk.has(&account_path(&place.namespace, "app")).await);
    desk.removed(&place, &tracked).await;
}

async fn environment_is_made_again_while_the_last_one_is_still_going(desk: &Desk) {
    let place = desk.place("review");
    let tracked: Vec<ObjectRef> = desk.applied(&place, &place.usual(), &[]).await;
    if let Some(fake) = desk.world.fake.clone() {
        fake.let_namespaces_linger();
        let namespace = place.namespace.clone();
        let looks = std::sync::atomic::AtomicUsize::new(0);
        let path = place.path();
        // The controller is done between two looks at it.
        let is_fourth = move |method: &http::Method, asked: &str| {
            method == "GET" && asked == path && looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 3
        };
        desk.world.trouble.meanwhile(is_fourth, async move { fake.finish_namespace(&namespace) });
    }
    desk.world.delete(&place.path()).await;
    let heard = desk.apply(&place, &place.usual(), &tracked).await;
    assert_eq!((heard.errors(), heard.kinds().len()), (Vec::new(), 3), "{heard:?}");
    assert!(heard.done.objects.iter().all(|object| tracked.iter().all(|old| old.uid != object.uid)), "all are new");
    if let Some(fake) = &desk.world.fake {
        assert_eq!(heard.steps("Namespace").first(), Some(&ObjectStep::Waiting), "{heard:?}");
        // This time it does not end.
        desk.world.delete(&place.path()).await;
        let heard = desk.apply(&place, &place.usual(), &tracked).await;
        assert!(heard.errors().iter().all(|(_, code)| *code == ObjectErrorCode::Conflict), "{heard:?}");
        assert_eq!((heard.errors().len(), heard.kinds().len()), (3, 3), "{heard:?}");
        fake.finish_namespace(&place.namespace);
    }
    desk.removed(&place, &heard.done.objects).await;
}

async fn environment_whose_template_makes_nothing_any_more_has_no_inventory(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    assert_eq!(desk.applied(&place, &[], &tracked).await, []);
    assert_eq!(desk.inventory(&place).await, None);
    assert!(!desk.has(&place.path()).await);
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    assert_eq!(desk.inventory(&place).await.map(|keys| keys.len()), Some(3));
    desk.removed(&place, &tracked).await;
    // One that never made anything has none either, nor does one that could not.
    assert_eq!(desk.applied(&place, &[], &[]).await, []);
    let heard = desk.apply(&place, &[place.account("nowhere-at-all", "lost")], &[]).await;
    assert_eq!(heard.errors(), [("ServiceAccount".to_owned(), ObjectErrorCode::NamespaceMissing)], "{heard:?}");
    assert_eq!(desk.inventory(&place).await, None);
}
