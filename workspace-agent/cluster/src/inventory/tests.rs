use proptest::prelude::*;

use super::*;
use crate::object::key;

fn sent() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w-workspace-inventory", "namespace": "ns",
        "labels": {INVENTORY_LABEL: "w-workspace-inventory"}}})
}

#[test]
fn keys_are_written_as_cli_utils_writes_them() {
    for (object, text) in [
        (key("ns", "w", "apps", "Deployment"), "ns_w_apps_Deployment"),
        (key("ns", "w-env", "", "Secret"), "ns_w-env__Secret"),
        (key("", "foo", "", "Namespace"), "_foo__Namespace"),
        (key("", "system:x", RBAC_GROUP, "ClusterRole"), "_system__x_rbac.authorization.k8s.io_ClusterRole"),
        (key("ns", "a:b:c", RBAC_GROUP, "Role"), "ns_a__b__c_rbac.authorization.k8s.io_Role"),
    ] {
        assert_eq!(encode(&object).as_deref(), Ok(text));
        assert_eq!(decode(text), Ok(object));
    }
}

#[test]
fn keys_that_name_no_object_are_refused_and_not_dropped() {
    for text in ["", "a", "a_b", "a_b_c", "a___", "ns__apps_Deployment", "ns_a_b_c_Deployment", "ns_a__b__Secret"] {
        assert_eq!(decode(text), Err(BadInventory::Key(text.to_owned())), "{text}");
    }
    let inventory = json!({"data": {"ns_w_apps_Deployment": "", "nonsense": ""}});
    assert_eq!(tracked(&inventory), Err(BadInventory::Key("nonsense".into())));
}

#[test]
fn names_that_would_be_read_as_others_are_not_written() {
    for object in [
        key("ns", "a_b", "apps", "Deployment"),
        key("ns", "a:b", "", "Secret"),
        key("ns", &"a".repeat(253), "", "Secret"),
        key("n_s", "a", "", "Secret"),
        key("ns", "ä", "", "Secret"),
    ] {
        assert_eq!(encode(&object), Err(BadInventory::Object(object)));
    }
}

#[test]
fn inventory_without_data_tracks_nothing() {
    for data in [json!({}), json!({"data": null}), json!({"data": {}})] {
        assert_eq!(tracked(&data), Ok(BTreeSet::new()));
    }
}

#[test]
fn config_map_of_somebody_else_is_no_inventory() {
    assert_eq!(check(&sent(), "w-workspace-inventory"), Ok(()));
    let other = json!({"metadata": {"name": "w-workspace-inventory"}});
    assert_eq!(check(&other, "w-workspace-inventory"), Err(BadInventory::Foreign("w-workspace-inventory".into())));
    assert!(check(&sent(), "v-workspace-inventory").is_err());
}

#[test]
fn what_is_live_is_kept_and_only_the_tracked_objects_change() {
    let live = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "w-workspace-inventory", "resourceVersion": "7", "labels": {"theirs": "x"},
            "managedFields": [{"manager": "m"}]},
        "data": {"ns_w_apps_Deployment": "{\"actuation\":\"Succeeded\"}", "ns_old__Secret": ""}});
    let keys = BTreeSet::from([key("ns", "w", "apps", "Deployment"), key("ns", "w", "", "Service")]);
    let written = with_tracked(&sent(), Some(&live), &keys).expect("it can be written");
    assert_eq!(written["data"], json!({"ns_w_apps_Deployment": "{\"actuation\":\"Succeeded\"}", "ns_w__Service": ""}));
    assert_eq!(written["metadata"]["resourceVersion"], "7", "nobody may have changed it meanwhile");
    assert_eq!(written["metadata"]["labels"], json!({"theirs": "x", INVENTORY_LABEL: "w-workspace-inventory"}));
    assert_eq!(written["metadata"].get("managedFields"), None);
    assert!(!is_same(&live, &written));
    assert!(is_same(&written, &with_tracked(&sent(), Some(&written), &keys).expect("again")));
}

prop_compose! {
    fn objects()(
        namespace in "|[a-z]([a-z0-9-]{0,8}[a-z0-9])?",
        name in "[a-z]([a-z0-9.-]{0,8}[a-z0-9])?",
        middle in proptest::option::of("[a-z]{1,4}"),
        group in prop_oneof![Just(String::new()), Just("apps".to_owned()), Just(RBAC_GROUP.to_owned())],
        kind in "[A-Z][A-Za-z]{0,8}",
    ) -> ObjectKey {
        // Only there can a name have a colon.
        let name = match middle {
            Some(more) if group == RBAC_GROUP => format!("{name}:{more}"),
            Some(_) | None => name,
        };
        ObjectKey { namespace, name, group, kind }
    }
}

proptest! {
    #[test]
    fn gateway_knows_by_name_what_an_inventory_can_hold(
        namespace in "|[a-z_:]{1,3}|[a-z]{63}",
        name in "[a-z:_./A-Z]{0,4}|[a-z]{120,253}|[a:]{60,120}",
        group in prop_oneof![Just(String::new()), Just("a.b_c".to_owned()), Just(RBAC_GROUP.to_owned())],
        kind in "|[A-Z][A-Za-z_:]{0,8}",
    ) {
        let object = key(&namespace, &name, &group, &kind);
        let said = tunnel_proto::environments::ObjectRef { group, kind, namespace, name, ..Default::default() };
        prop_assert_eq!(encode(&object).is_ok(), said.is_trackable(), "{}", object);
    }

    #[test]
    fn every_object_of_kubernetes_survives_its_key(object in objects()) {
        let text = encode(&object).expect("names of Kubernetes fit");
        prop_assert_eq!(decode(&text), Ok(object));
    }

    #[test]
    fn whatever_stands_in_a_key_is_read_back_or_refused(text in "[-._a-zA-Z0-9]{0,40}") {
        if let Ok(object) = decode(&text) {
            prop_assert_eq!(encode(&object), Ok(text));
        }
    }

    #[test]
    fn inventory_tracks_what_was_written_into_it(objects in proptest::collection::btree_set(objects(), 0..12)) {
        let written = with_tracked(&sent(), None, &objects).expect("it fits");
        prop_assert_eq!(tracked(&written), Ok(objects));
    }
}
