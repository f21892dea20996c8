//! Namespaces that a template makes: nothing goes into one that turns out to be somebody else's, and none goes with what stays.

use serde_json::{Value, json};
use tunnel_proto::environments::{ObjectErrorCode, ObjectStep};

use super::desk::{Desk, Place, withheld};
use crate::trouble::Fault;

super::scenarios! {
    nothing_is_put_into_a_namespace_that_another_environment_makes_meanwhile
    nothing_is_put_into_a_namespace_that_may_not_be_looked_at
    nothing_is_put_into_a_namespace_that_may_not_be_made
    what_is_in_a_namespace_that_may_not_be_looked_at_stays_recorded
    namespace_stays_with_what_is_to_be_kept_or_lost_the_mark
    namespace_is_named_as_left_also_where_the_end_takes_more_than_one_call
    what_is_to_be_kept_is_recorded_until_the_environment_ends
    what_is_not_to_be_kept_any_more_goes
    namespace_that_a_template_gives_up_stays_with_what_lost_the_mark
    ; in memory alone:
    nothing_is_put_into_a_namespace_that_others_make_again_meanwhile
}

/// Checks that nothing is in an environment's namespace.
async fn check_empty(desk: &Desk, place: &Place) {
    assert!(desk.has(&place.path()).await);
    assert!(!desk.has(&place.account_path("app")).await && !desk.has(&place.binding_path("ci")).await);
    assert_eq!(desk.inventory(place).await.unwrap_or_default(), [""; 0], "nothing is tracked");
}

/// Has requests for an environment's namespace refused.
fn forbid(desk: &Desk, place: &Place, forbidden: &'static str) {
    let path = place.path();
    let is_it = move |method: &http::Method, asked: &str| method == forbidden && asked == path;
    desk.world.trouble.fail(usize::MAX, Fault::Refused(403), is_it);
}

async fn nothing_is_put_into_a_namespace_that_another_environment_makes_meanwhile(desk: &Desk) {
    let place = desk.place("review");
    // As with a template that names its namespace by the slug alone, in two projects.
    let other = Place { namespace: place.namespace.clone(), ..desk.place("other") };
    let (admin, theirs, path) = (desk.again(), other.clone(), place.path());
    let making = async move { drop(admin.applied(&theirs, &[theirs.own_namespace()], &[]).await) };
    desk.world.trouble.meanwhile(move |method, asked| method == "PATCH" && asked == path, making);
    let heard = desk.apply(&place, &place.usual(), &[]).await;
    assert_eq!(heard.errors(), withheld(ObjectErrorCode::NotOwned), "{heard:?}");
    assert_eq!(heard.done.objects, []);
    check_empty(desk, &place).await;
    desk.removed(&place, &[]).await;
    assert!(desk.has(&place.path()).await);
    desk.removed(&other, &[]).await;
}

// On a real server a namespace takes its time to go.
async fn nothing_is_put_into_a_namespace_that_others_make_again_meanwhile(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    let (admin, name, path) = (desk.again(), place.namespace.clone(), place.path());
    let making = async move {
        admin.world.delete(&format!("/api/v1/namespaces/{name}")).await;
        admin.world.make_namespace(&name, &json!({})).await;
    };
    desk.world.trouble.meanwhile(move |method, asked| method == "PATCH" && asked == path, making);
    let heard = desk.apply(&place, &place.usual(), &tracked).await;
    assert_eq!(heard.errors(), withheld(ObjectErrorCode::NotOwned), "{heard:?}");
    assert_eq!(heard.done.objects, []);
    check_empty(desk, &place).await;
    assert_eq!(desk.removed_but(&place, &tracked).await, [place.namespace.as_str()]);
}

async fn nothing_is_put_into_a_namespace_that_may_not_be_looked_at(desk: &Desk) {
    let place = desk.place("monitoring");
    desk.world.make_namespace(&place.namespace, &json!({})).await;
    forbid(desk, &place, "GET");
    let heard = desk.apply(&place, &place.usual(), &[]).await;
    assert_eq!(heard.errors(), withheld(ObjectErrorCode::Forbidden), "{heard:?}");
    check_empty(desk, &place).await;
    desk.world.trouble.clear();
    assert_eq!(desk.removed_but(&place, &[]).await, [""; 0]);
    assert!(desk.has(&place.path()).await);
}

async fn nothing_is_put_into_a_namespace_that_may_not_be_made(desk: &Desk) {
    let place = desk.place("review");
    let (admin, name, path) = (desk.again(), place.namespace.clone(), place.path());
    let making = async move { admin.world.make_namespace(&name, &json!({})).await };
    desk.world.trouble.meanwhile(move |method, asked| method == "PATCH" && asked == path, making);
    forbid(desk, &place, "PATCH");
    let heard = desk.apply(&place, &place.usual(), &[]).await;
    assert_eq!(heard.errors(), withheld(ObjectErrorCode::Forbidden), "{heard:?}");
    assert_eq!(heard.done.objects, []);
    check_empty(desk, &place).await;
}

async fn what_is_in_a_namespace_that_may_not_be_looked_at_stays_recorded(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    forbid(desk, &place, "GET");
    let mut more = place.usual();
    more.push(place.account(&place.namespace, "more"));
    let heard = desk.apply(&place, &more, &tracked).await;
    let codes: Vec<_> = heard.errors().into_iter().map(|error| error.1).collect();
    let conflict = ObjectErrorCode::Conflict;
    assert_eq!(codes, [ObjectErrorCode::Forbidden, conflict, conflict, conflict], "{heard:?}");
    assert!(!desk.has(&place.account_path("more")).await);
    assert_eq!(heard.done.objects, tracked, "what is the environment's by its mark, and what may be");
    assert_eq!(desk.inventory(&place).await.map(|keys| keys.len()), Some(3));
    desk.world.trouble.clear();
    desk.removed(&place, &heard.done.objects).await;
}

/// Has an account say that it is to be kept.
fn keep(account: &mut Value) {
    account["metadata"]["annotations"]["cli-utils.sigs.k8s.io/on-remove"] = json!("keep");
}

/// Takes the mark from an account.
fn take_the_mark(account: &mut Value) {
    account["metadata"]["annotations"] = json!({});
}

/// Returns whether an environment's namespace is there, and is not going.
async fn stands(desk: &Desk, place: &Place) -> bool {
    let namespace = desk.world.get(&place.path()).await;
    namespace.is_some_and(|namespace| namespace["metadata"]["deletionTimestamp"].is_null())
}

async fn namespace_stays_with_what_is_to_be_kept_or_lost_the_mark(desk: &Desk) {
    for is_kept in [true, false] {
        let (name, change): (_, fn(&mut Value)) = if is_kept { ("kept", keep) } else { ("lost", take_the_mark) };
        let place = desk.place(name);
        let tracked = desk.applied(&place, &place.usual(), &[]).await;
        desk.world.change(&place.account_path("app"), change).await;
        let heard = desk.remove(&place, &tracked).await;
        assert_eq!(heard.steps("Namespace"), [ObjectStep::Kept], "{heard:?}");
        let mut left = heard.errors();
        left.sort_by(|one, other| one.0.cmp(&other.0));
        let not_owned = ["Namespace", "ServiceAccount"].map(|kind| (kind.to_owned(), ObjectErrorCode::NotOwned));
        assert_eq!((left.as_slice(), heard.done.left.as_slice()), (&not_owned[..], &[][..]), "both are named");
        assert_eq!((heard.done.objects.as_slice(), desk.inventory(&place).await), (&[][..], None));
        assert!(stands(desk, &place).await && desk.has(&place.account_path("app")).await);
        assert!(!desk.has(&place.binding_path("ci")).await);
        // It was told, and is nobody's now.
        desk.removed(&place, &[]).await;
        assert!(stands(desk, &place).await);
    }
}

async fn namespace_is_named_as_left_also_where_the_end_takes_more_than_one_call(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    desk.world.change(&place.account_path("app"), keep).await;
    let binding = place.binding_path("ci");
    desk.world.trouble.fail(usize::MAX, Fault::Refused(403), move |method, path| method == "DELETE" && path == binding);
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!(heard.kinds(), ["Namespace", "RoleBinding"], "{heard:?}");
    desk.world.trouble.clear();
    // The gateway has it recorded until the last call.
    assert_eq!(desk.removed_but(&place, &tracked).await, ["app", place.namespace.as_str()]);
    assert!(stands(desk, &place).await && desk.has(&place.account_path("app")).await);
}

async fn what_is_to_be_kept_is_recorded_until_the_environment_ends(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    desk.world.change(&place.account_path("app"), keep).await;
    // The template has it no more.
    let heard = desk.apply(&place, &place.usual()[..2], &tracked).await;
    assert_eq!((heard.errors(), heard.steps("ServiceAccount")), (Vec::new(), vec![ObjectStep::Kept]), "{heard:?}");
    assert_eq!((heard.kinds().len(), desk.inventory(&place).await.map(|keys| keys.len())), (3, Some(3)));
    // Nor its namespace.
    let heard = desk.apply(&place, &[], &heard.done.objects).await;
    assert_eq!((heard.errors(), heard.steps("Namespace")), (Vec::new(), vec![ObjectStep::Kept]), "{heard:?}");
    assert_eq!((heard.kinds(), heard.done.left.len()), (vec!["Namespace", "ServiceAccount"], 0), "{heard:?}");
    assert_eq!(desk.removed_but(&place, &heard.done.objects).await, ["app", place.namespace.as_str()]);
    assert!(stands(desk, &place).await && desk.has(&place.account_path("app")).await);
}

async fn what_is_not_to_be_kept_any_more_goes(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    let app = place.account_path("app");
    desk.world.change(&app, keep).await;
    let tracked = desk.applied(&place, &place.usual()[..2], &tracked).await;
    let unkeep =
        |account: &mut Value| account["metadata"]["annotations"]["cli-utils.sigs.k8s.io/on-remove"] = json!("");
    desk.world.change(&app, unkeep).await;
    let tracked = desk.applied(&place, &place.usual()[..2], &tracked).await;
    assert!(!desk.has(&app).await);
    assert_eq!((tracked.len(), desk.inventory(&place).await.map(|keys| keys.len())), (2, Some(2)));
    desk.removed(&place, &tracked).await;
}

async fn namespace_that_a_template_gives_up_stays_with_what_lost_the_mark(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    desk.world.change(&place.account_path("app"), take_the_mark).await;
    let heard = desk.apply(&place, &[], &tracked).await;
    assert_eq!((heard.done.errors.as_slice(), heard.done.left.as_slice()), (&[][..], &[][..]), "{heard:?}");
    assert_eq!(
        (heard.steps("ServiceAccount"), heard.steps("Namespace")),
        (vec![ObjectStep::Kept], vec![ObjectStep::Kept])
    );
    assert_eq!((heard.done.objects.as_slice(), desk.inventory(&place).await), (&[][..], None));
    assert!(stands(desk, &place).await && desk.has(&place.account_path("app")).await);
}
