//! Kinds and paths that the API server does not know any more, or that something in between does not.

use serde_json::{Value, json};
use tunnel_proto::environments::{ObjectErrorCode, ObjectStep};

use super::desk::{Calling, Desk, Place};
use crate::trouble::Fault;

super::scenarios! {
    answer_that_does_not_name_the_object_is_not_taken_for_its_absence
    ; in memory alone:
    object_is_found_in_the_versions_that_are_served_now
    object_of_a_version_that_is_gone_has_its_error_until_it_is_back
    object_whose_kind_is_gone_is_gone
    object_whose_group_is_not_listed_yet_is_not_gone
}

const GROUP: &str = "source.toolkit.fluxcd.io";

fn bucket(place: &Place, version: &str) -> Value {
    place.object(&format!("{GROUP}/{version}"), "Bucket", &place.namespace, "app", &json!({"spec": {"interval": "1m"}}))
}

fn bucket_path(place: &Place, version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/{}/buckets/app", place.namespace)
}

async fn answer_that_does_not_name_the_object_is_not_taken_for_its_absence(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    let inventory = desk.inventory(&place).await;
    // A proxy, say, that lost its way to the API server: for reads, for deletions, for both.
    for methods in [&["GET"][..], &["DELETE"], &["GET", "DELETE"]] {
        for path in [place.path(), place.binding_path("ci"), place.account_path("app")] {
            let desk = desk.again();
            let asked_for = path.clone();
            let is_it =
                move |method: &http::Method, asked: &str| methods.contains(&method.as_str()) && asked == asked_for;
            desk.world.trouble.fail(usize::MAX, Fault::Refused(404), is_it);
            let heard = desk.remove(&place, &tracked).await;
            let name = path.rsplit('/').next().expect("a name");
            assert_eq!(
                heard.errors().first().map(|error| error.1),
                Some(ObjectErrorCode::Unavailable),
                "{methods:?} {heard:?}"
            );
            assert!(heard.done.objects.iter().any(|object| object.name == name), "{name} is forgotten: {heard:?}");
            assert!(
                heard.progress.iter().all(|said| said.step != ObjectStep::Gone || said.object.name != name),
                "{heard:?}"
            );
            assert!(desk.has(&path).await);
            desk.world.trouble.clear();
            desk.applied(&place, &place.usual(), &heard.done.objects).await;
        }
    }
    assert_eq!(desk.inventory(&place).await, inventory);
    // Nor is anything applied on such a word.
    let path = place.account_path("app");
    desk.world.trouble.fail(usize::MAX, Fault::Refused(404), move |method, asked| method == "GET" && asked == path);
    let heard = desk.apply(&place, &place.usual(), &tracked).await;
    assert_eq!(heard.errors(), [("ServiceAccount".to_owned(), ObjectErrorCode::Unavailable)], "{heard:?}");
    assert_eq!(heard.done.objects.len(), 3);
    desk.world.trouble.clear();
    desk.removed(&place, &tracked).await;
}

async fn object_is_found_in_the_versions_that_are_served_now(desk: &Desk) {
    let fake = desk.world.fake.as_ref().expect("a server in memory");
    fake.install(GROUP, "v1", "Bucket", "buckets");
    fake.install(GROUP, "v1beta2", "Bucket", "buckets");
    let place = desk.place("review");
    // One agent all along: it remembers where it found the kind.
    let agent = desk.agent();
    let mut objects = place.usual();
    objects.push(bucket(&place, "v1"));
    for objects in [&objects[..], &objects[..3], &objects[..]] {
        let heard = Calling::begin(&agent, &place.apply(objects, &[])).await.heard().await;
        assert_eq!((heard.errors(), heard.done.objects.len()), (Vec::new(), objects.len()), "{heard:?}");
    }
    fake.uninstall(GROUP, "v1");
    // The preferred version has another kind only.
    fake.install(GROUP, "v2", "GitRepository", "gitrepositories");
    let heard = Calling::begin(&agent, &place.apply(&objects[..3], &[])).await.heard().await;
    assert_eq!((heard.errors(), heard.done.objects.len()), (Vec::new(), 3), "{heard:?}");
    assert_eq!(heard.steps("Bucket"), [ObjectStep::Deleting, ObjectStep::Gone]);
    assert!(!desk.has(&bucket_path(&place, "v1beta2")).await);
    desk.removed(&place, &heard.done.objects).await;
}

async fn object_of_a_version_that_is_gone_has_its_error_until_it_is_back(desk: &Desk) {
    let fake = desk.world.fake.as_ref().expect("a server in memory");
    fake.install(GROUP, "v1beta2", "Bucket", "buckets");
    fake.install(GROUP, "v1", "Bucket", "buckets");
    let place = desk.place("review");
    let agent = desk.agent();
    let mut objects = place.usual();
    objects.push(bucket(&place, "v1"));
    let tracked = Calling::begin(&agent, &place.apply(&objects, &[])).await.heard().await.done.objects;
    fake.uninstall(GROUP, "v1");
    objects.push(place.account(&place.namespace, "more"));
    let heard = Calling::begin(&agent, &place.apply(&objects, &tracked)).await.heard().await;
    assert_eq!(heard.errors(), [("Bucket".to_owned(), ObjectErrorCode::UnknownKind)], "{heard:?}");
    assert_eq!(heard.done.objects.len(), 5, "the others are made, and it is there in another version: {heard:?}");
    fake.install(GROUP, "v1", "Bucket", "buckets");
    let heard = Calling::begin(&agent, &place.apply(&objects, &tracked)).await.heard().await;
    assert_eq!((heard.errors(), heard.steps("Bucket")), (Vec::new(), vec![ObjectStep::Unchanged]), "{heard:?}");
    desk.removed(&place, &heard.done.objects).await;
}

async fn object_whose_kind_is_gone_is_gone(desk: &Desk) {
    let fake = desk.world.fake.as_ref().expect("a server in memory");
    fake.install(GROUP, "v1", "Bucket", "buckets");
    let place = desk.place("review");
    let agent = desk.agent();
    let mut objects = place.usual();
    objects.push(bucket(&place, "v1"));
    let tracked = Calling::begin(&agent, &place.apply(&objects, &[])).await.heard().await.done.objects;
    fake.uninstall(GROUP, "v1");
    let heard = Calling::begin(&agent, &place.remove(&tracked)).await.heard().await;
    assert_eq!(
        (heard.errors(), heard.done.objects.len(), heard.steps("Bucket")),
        (Vec::new(), 0, vec![ObjectStep::Gone]),
        "{heard:?}"
    );
}

async fn object_whose_group_is_not_listed_yet_is_not_gone(desk: &Desk) {
    let fake = desk.world.fake.as_ref().expect("a server in memory");
    fake.install(GROUP, "v1", "Bucket", "buckets");
    let place = desk.place("review");
    let mut objects = place.usual();
    objects.push(bucket(&place, "v1"));
    let tracked = desk.applied(&place, &objects, &[]).await;
    // An API server that has just started serves what it does not list, or says that it cannot tell.
    fake.list_no_groups();
    let group = format!("/apis/{GROUP}");
    desk.world.trouble.fail(usize::MAX, Fault::Refused(503), move |_, asked| asked == group);
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!(heard.errors().first().map(|error| error.1), Some(ObjectErrorCode::Unavailable), "{heard:?}");
    assert_eq!((heard.done.objects.len(), heard.steps("Bucket")), (4, vec![]), "{heard:?}");
    desk.world.trouble.clear();
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!(heard.errors(), [], "{heard:?}");
    assert_eq!(heard.steps("Bucket"), [ObjectStep::Deleting, ObjectStep::Gone]);
    assert!(!desk.has(&bucket_path(&place, "v1")).await);
}
