//! Judges which tracked objects that are not wanted any more may be deleted (the prune filters of
//! kubernetes-sigs/cli-utils, `pkg/apply/filter`).

use std::collections::BTreeSet;

use crate::object::{LiveObject, OWNER_ANNOTATION, ObjectKey};
use crate::order::sort_to_delete;

/// Annotations of an object whose makers want it to outlive its inventory (cli-utils), with their values.
const KEEP: [(&str, &str); 2] =
    [("cli-utils.sigs.k8s.io/on-remove", "keep"), ("client.lifecycle.config.k8s.io/deletion", "detach")];

/// Verdict about an object that is not wanted any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PruneVerdict {
    /// It is being deleted: the inventory tracks it until it is gone.
    Leaving,
    /// It is to be deleted, if it still is what was judged.
    Delete { uid: String, resource_version: String },
    /// It stays, and the inventory forgets it.
    Released(Why),
    /// It stays, and the inventory tracks it.
    Held,
}

/// Reason why an object is not ours to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is the same object as one that was just applied, under another group's name.
    JustApplied,
    /// It says that it is in another inventory, or in none.
    Foreign,
    /// It says that it is to be kept.
    Kept,
}

/// Knowledge for judging objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// The inventory's name.
    pub(crate) inventory: &'a str,
    /// UIDs of the objects that this pass applied.
    pub(crate) applied: &'a BTreeSet<String>,
    /// Namespaces in which objects of ours are left.
    pub(crate) occupied: &'a BTreeSet<String>,
}

/// Returns the objects that are tracked and not wanted, in the order in which they are to be deleted.
pub(crate) fn stale(tracked: &BTreeSet<ObjectKey>, wanted: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
    let mut stale: Vec<_> = tracked.difference(wanted).cloned().collect();
    sort_to_delete(&mut stale, |key| key);
    stale
}

/// Judges an object by the live one under its name.
pub(crate) fn judge(key: &ObjectKey, live: &LiveObject, context: Context<'_>) -> PruneVerdict {
    if context.applied.contains(&live.uid) {
        return PruneVerdict::Released(Why::JustApplied);
    }
    if live.annotations.get(OWNER_ANNOTATION).map(String::as_str) != Some(context.inventory) {
        return PruneVerdict::Released(Why::Foreign);
    }
    if KEEP.iter().any(|(name, value)| live.annotations.get(*name).is_some_and(|found| found == value)) {
        return PruneVerdict::Released(Why::Kept);
    }
    if live.deleting_since.is_some() {
        return PruneVerdict::Leaving;
    }
    if key.kind == "Namespace" && key.group.is_empty() && context.occupied.contains(&key.name) {
        return PruneVerdict::Held;
    }
    PruneVerdict::Delete { uid: live.uid.clone(), resource_version: live.resource_version.clone() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::object::key;

    fn live(annotations: &[(&str, &str)]) -> LiveObject {
        let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LiveObject {
            uid: "u".into(),
            resource_version: "7".into(),
            annotations: annotations.collect(),
            ..LiveObject::default()
        }
    }

    fn ours() -> LiveObject {
        live(&[(OWNER_ANNOTATION, "i")])
    }

    #[track_caller]
    fn check(kind: &str, live: &LiveObject, applied: &[&str], occupied: &[&str], expected: PruneVerdict) {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let (applied, occupied) = (set(applied), set(occupied));
        let context = Context { inventory: "i", applied: &applied, occupied: &occupied };
        assert_eq!(judge(&key("", "ns", "", kind), live, context), expected);
    }

    fn delete() -> PruneVerdict {
        PruneVerdict::Delete { uid: "u".into(), resource_version: "7".into() }
    }

    #[test]
    fn object_that_is_ours_and_not_wanted_is_deleted_as_it_was_seen() {
        check("Secret", &ours(), &["other"], &["ns"], delete());
    }

    #[test]
    fn object_that_was_just_applied_under_another_group_stays() {
        check("Secret", &ours(), &["u"], &[], PruneVerdict::Released(Why::JustApplied));
    }

    #[test]
    fn object_of_another_inventory_or_of_none_stays() {
        check("Secret", &live(&[(OWNER_ANNOTATION, "j")]), &[], &[], PruneVerdict::Released(Why::Foreign));
        check("Secret", &live(&[]), &[], &[], PruneVerdict::Released(Why::Foreign));
    }

    #[test]
    fn object_that_says_so_is_kept() {
        for (name, value) in KEEP {
            let kept = live(&[(OWNER_ANNOTATION, "i"), (name, value)]);
            check("Secret", &kept, &[], &[], PruneVerdict::Released(Why::Kept));
            check("Secret", &live(&[(OWNER_ANNOTATION, "i"), (name, "no")]), &[], &[], delete());
        }
    }

    #[test]
    fn object_that_is_being_deleted_is_waited_for() {
        let leaving = LiveObject { deleting_since: Some(1), ..ours() };
        check("Secret", &leaving, &[], &[], PruneVerdict::Leaving);
    }

    #[test]
    fn namespace_with_objects_of_ours_is_held() {
        check("Namespace", &ours(), &[], &["ns"], PruneVerdict::Held);
        check("Namespace", &ours(), &[], &["other"], delete());
    }

    #[test]
    fn what_is_not_wanted_goes_in_reverse_order() {
        let tracked = BTreeSet::from([
            key("ns", "w", "apps", "Deployment"),
            key("ns", "w", "", "ServiceAccount"),
            key("ns", "w", "", "Service"),
            key("ns", "w-data", "", "PersistentVolumeClaim"),
        ]);
        let wanted = BTreeSet::from([key("ns", "w", "", "Service")]);
        let kinds: Vec<_> = stale(&tracked, &wanted).into_iter().map(|key| key.kind).collect();
        assert_eq!(kinds, ["PersistentVolumeClaim", "Deployment", "ServiceAccount"]);
    }

    proptest! {
        #[test]
        fn nothing_is_deleted_that_is_not_provably_ours(
            owner in proptest::option::of(prop_oneof![Just("i"), Just("j")]),
            keeps in any::<bool>(),
            uid in prop_oneof![Just("u"), Just("v")],
            deleting in any::<bool>(),
        ) {
            let mut annotations = BTreeMap::new();
            if let Some(owner) = owner {
                annotations.insert(OWNER_ANNOTATION.to_owned(), owner.to_owned());
            }
            if keeps {
                annotations.insert(KEEP[0].0.to_owned(), KEEP[0].1.to_owned());
            }
            let live = LiveObject {
                uid: uid.into(), annotations, deleting_since: deleting.then_some(1), ..LiveObject::default()
            };
            let applied = BTreeSet::from(["v".to_owned()]);
            let context = Context { inventory: "i", applied: &applied, occupied: &BTreeSet::new() };
            let verdict = judge(&key("ns", "a", "", "Secret"), &live, context);
            let is_deleted = matches!(verdict, PruneVerdict::Delete { .. });
            prop_assert_eq!(is_deleted, owner == Some("i") && !keeps && uid == "u" && !deleting);
        }
    }
}
