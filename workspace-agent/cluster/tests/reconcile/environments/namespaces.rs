//! Namespaces that a template makes: nothing goes into one that turns out to be somebody else's.

use serde_json::json;
use tunnel_proto::environments::ObjectErrorCode;

use super::desk::{Desk, Place, withheld};
use crate::trouble::Fault;

super::scenarios! {
    nothing_is_put_into_a_namespace_that_another_environment_makes_meanwhile
    nothing_is_put_into_a_namespace_that_others_make_again_meanwhile
    nothing_is_put_into_a_namespace_that_may_not_be_looked_at
    nothing_is_put_into_a_namespace_that_may_not_be_made
    what_is_in_a_namespace_that_may_not_be_looked_at_stays_recorded
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

async fn nothing_is_put_into_a_namespace_that_others_make_again_meanwhile(desk: &Desk) {
    if desk.world.fake.is_none() {
        // There a namespace takes its time to go.
        return;
    }
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
