//! What looks like an environment's and is not: never applied over, never deleted.

use serde_json::{Value, json};
use tunnel_proto::environments::{ObjectErrorCode, ObjectStep};

use super::desk::{Desk, Place, account_path, withheld};

super::scenarios! {
    object_that_is_there_without_the_mark_is_not_applied_over_and_nothing_else_is_applied
    object_that_appears_while_it_is_being_applied_is_not_taken
    objects_that_lost_the_mark_or_were_made_again_by_others_are_not_deleted
    object_that_is_to_be_kept_is_left_and_named_at_the_end
    what_lost_the_mark_is_named_also_where_the_end_did_not_come_to_it
    object_that_is_made_again_between_the_look_and_the_deletion_is_not_deleted
    environments_in_one_namespace_leave_each_others_objects_alone
    config_map_of_somebody_else_in_the_inventorys_place_is_left_alone
}

/// Who else could have made an object: nobody that marks, another environment, a workspace.
const OWNERS: [Option<&str>; 3] = [None, Some("environment-other-3-1-00000000"), Some("w-workspace-inventory")];

fn marked(mut object: Value, owner: Option<&str>) -> Value {
    object["metadata"]["annotations"] = match owner {
        Some(owner) => json!({"config.k8s.io/owning-inventory": owner}),
        None => json!({}),
    };
    object
}

async fn shared_namespace(desk: &Desk) -> String {
    let name = format!("team-{}", desk.world.cluster);
    desk.world.make_namespace(&name, &json!({})).await;
    name
}

fn accounts(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts")
}

async fn object_that_is_there_without_the_mark_is_not_applied_over_and_nothing_else_is_applied(desk: &Desk) {
    let team = shared_namespace(desk).await;
    let place = desk.place("review");
    for (index, owner) in OWNERS.into_iter().enumerate() {
        let name = format!("app-{index}");
        let before = desk.world.make(&accounts(&team), &marked(place.account(&team, &name), owner)).await;
        let mut objects = place.usual();
        objects.push(place.account(&team, &name));
        let heard = desk.apply(&place, &objects, &[]).await;
        assert_eq!(heard.errors(), [("ServiceAccount".to_owned(), ObjectErrorCode::NotOwned)], "{owner:?}");
        assert_eq!((heard.done.objects.len(), heard.steps("Namespace").len()), (0, 0), "{heard:?}");
        assert_eq!(desk.world.get(&account_path(&team, &name)).await, Some(before));
        assert!(!desk.has(&place.path()).await, "nothing is applied");
        assert_eq!(desk.inventory(&place).await, None);
    }
    // A namespace that was there before is not the environment's either.
    desk.world.make_namespace(&place.namespace, &json!({})).await;
    let heard = desk.apply(&place, &place.usual(), &[]).await;
    assert_eq!(heard.errors(), [("Namespace".to_owned(), ObjectErrorCode::NotOwned)]);
    assert!(!desk.has(&place.account_path("app")).await);
    desk.removed(&place, &[]).await;
    assert!(desk.has(&place.path()).await);
}

async fn object_that_appears_while_it_is_being_applied_is_not_taken(desk: &Desk) {
    let place = desk.place("review");
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace}});
    let admin = desk.again();
    let path = place.path();
    let other = async move { drop(admin.world.make("/api/v1/namespaces", &made).await) };
    desk.world.trouble.meanwhile(move |method, asked| method == "PATCH" && asked == path, other);
    let heard = desk.apply(&place, &place.usual(), &[]).await;
    assert_eq!(heard.errors(), withheld(ObjectErrorCode::NotOwned), "{heard:?}");
    assert_eq!(heard.done.objects, []);
    assert!(!desk.has(&place.account_path("app")).await && !desk.has(&place.binding_path("ci")).await);
    let namespace = desk.world.get(&place.path()).await.expect("theirs");
    assert_eq!(namespace["metadata"]["annotations"]["config.k8s.io/owning-inventory"], json!(null));
    assert_eq!(namespace["metadata"]["labels"]["agent.gitlab.com/id-1"], json!(null));
    desk.removed(&place, &[]).await;
    assert!(desk.has(&place.path()).await);
}

async fn objects_that_lost_the_mark_or_were_made_again_by_others_are_not_deleted(desk: &Desk) {
    let team = shared_namespace(desk).await;
    let place = desk.place("review");
    let names: Vec<_> = (0..OWNERS.len()).map(|index| format!("app-{index}")).collect();
    let mut objects: Vec<_> = names.iter().map(|name| place.account(&team, name)).collect();
    objects.extend([place.account(&team, "lost"), place.account(&team, "ours")]);
    let tracked = desk.applied(&place, &objects, &[]).await;
    for (name, owner) in names.iter().zip(OWNERS) {
        desk.world.delete(&account_path(&team, name)).await;
        desk.world.make(&accounts(&team), &marked(place.account(&team, name), owner)).await;
    }
    let lost = account_path(&team, "lost");
    desk.world.change(&lost, |account| account["metadata"]["annotations"] = json!({})).await;
    // Neither because the template shrinks nor because the environment ends.
    let heard = desk.apply(&place, &[place.account(&team, "ours")], &tracked).await;
    assert_eq!((heard.errors(), heard.done.objects.len()), (Vec::new(), 1), "{heard:?}");
    assert_eq!(heard.steps("ServiceAccount").iter().filter(|step| **step == ObjectStep::Kept).count(), 4, "{heard:?}");
    let kept = ["app-0", "app-1", "app-2", "lost"];
    assert_eq!(desk.removed_but(&place, &tracked).await, kept, "whoever ends it hears of what stays");
    for name in kept {
        assert!(desk.has(&account_path(&team, name)).await, "{name}");
    }
    assert!(!desk.has(&account_path(&team, "ours")).await);
    assert!(desk.has(&format!("/api/v1/namespaces/{team}")).await);
}

async fn object_that_is_to_be_kept_is_left_and_named_at_the_end(desk: &Desk) {
    let team = shared_namespace(desk).await;
    let place = desk.place("review");
    let tracked = desk.applied(&place, &[place.account(&team, "kept"), place.account(&team, "app")], &[]).await;
    let kept = account_path(&team, "kept");
    let keep =
        |account: &mut Value| account["metadata"]["annotations"]["cli-utils.sigs.k8s.io/on-remove"] = json!("keep");
    desk.world.change(&kept, keep).await;
    let heard = desk.remove(&place, &tracked).await;
    let [error] = heard.done.errors.as_slice() else { panic!("{heard:?}") };
    assert_eq!(
        (error.code, error.object.as_ref().map(|object| object.name.as_str())),
        (ObjectErrorCode::NotOwned, Some("kept"))
    );
    assert!(error.message.contains("to be kept"), "{error:?}");
    assert_eq!((heard.done.objects.as_slice(), desk.inventory(&place).await), (&[][..], None));
    assert!(desk.has(&kept).await && !desk.has(&account_path(&team, "app")).await);
    // It was told, and is nobody's now.
    desk.removed(&place, &[]).await;
}

async fn what_lost_the_mark_is_named_also_where_the_end_did_not_come_to_it(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    desk.world.change(&place.path(), |namespace| namespace["metadata"]["annotations"] = json!({})).await;
    let app = place.account_path("app");
    desk.world.change(&app, |account| account["metadata"]["finalizers"] = json!(["example.net/hold"])).await;
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!((heard.errors(), heard.done.left.len()), (vec![("Namespace".to_owned(), ObjectErrorCode::NotOwned)], 1));
    assert_eq!(heard.kinds(), ["ServiceAccount"]);
    desk.world.change(&app, |account| account["metadata"]["finalizers"] = json!([])).await;
    if let Some(fake) = &desk.world.fake {
        fake.drop_finalized(&place.namespace);
    }
    desk.removed(&place, &heard.done.objects).await;
    assert!(desk.has(&place.path()).await);
}

async fn object_that_is_made_again_between_the_look_and_the_deletion_is_not_deleted(desk: &Desk) {
    let team = shared_namespace(desk).await;
    let place = desk.place("review");
    let tracked = desk.applied(&place, &[place.account(&team, "app")], &[]).await;
    let path = account_path(&team, "app");
    let admin = desk.again();
    let (made, asked_for, collection) = (marked(place.account(&team, "app"), None), path.clone(), accounts(&team));
    let other = async move {
        admin.world.delete(&asked_for).await;
        admin.world.make(&collection, &made).await;
    };
    let asked_for = path.clone();
    desk.world.trouble.meanwhile(move |method, asked| method == "DELETE" && asked == asked_for, other);
    let heard = desk.remove(&place, &tracked).await;
    assert_eq!(heard.steps("ServiceAccount"), [ObjectStep::Kept], "{heard:?}");
    assert_eq!(heard.errors(), [("ServiceAccount".to_owned(), ObjectErrorCode::NotOwned)]);
    assert_eq!(heard.done.objects, []);
    let account = desk.world.get(&path).await.expect("theirs");
    assert!(account["metadata"]["deletionTimestamp"].is_null() && account["metadata"]["uid"] != tracked[0].uid);
    assert_eq!(desk.inventory(&place).await, None);
}

async fn environments_in_one_namespace_leave_each_others_objects_alone(desk: &Desk) {
    let team = shared_namespace(desk).await;
    let (one, other) = (desk.place("one"), desk.place("other"));
    let of = |place: &Place, name: &str| vec![place.account(&team, name)];
    let tracked = desk.applied(&one, &of(&one, "one"), &[]).await;
    let others = desk.applied(&other, &of(&other, "other"), &[]).await;
    let heard = desk.apply(&one, &of(&one, "other"), &tracked).await;
    assert_eq!(heard.errors(), [("ServiceAccount".to_owned(), ObjectErrorCode::NotOwned)]);
    // A gateway that mixes up what it has recorded does no harm.
    assert_eq!(desk.removed_but(&one, &others).await, ["other"]);
    assert!(desk.has(&account_path(&team, "other")).await);
    assert!(!desk.has(&account_path(&team, "one")).await);
    assert_eq!(desk.inventory(&other).await.map(|keys| keys.len()), Some(1));
    desk.removed(&other, &others).await;
}

async fn config_map_of_somebody_else_in_the_inventorys_place_is_left_alone(desk: &Desk) {
    let place = desk.place("review");
    let maps = format!("/api/v1/namespaces/{}/configmaps", desk.home);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": place.scope.inventory, "namespace": desk.home}});
    desk.world.make(&maps, &map).await;
    for heard in [desk.apply(&place, &place.usual(), &[]).await, desk.remove(&place, &[]).await] {
        assert_eq!(heard.errors(), [(String::new(), ObjectErrorCode::Invalid)], "{heard:?}");
    }
    assert!(!desk.has(&place.path()).await);
    let there = desk.world.get(&format!("{maps}/{}", place.scope.inventory)).await.expect("theirs");
    assert_eq!(there["data"], json!({"a": "b"}));
}
