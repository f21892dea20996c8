//! Order in which objects are applied, and in reverse deleted: that of kubernetes-sigs/cli-utils (`pkg/ordering`).
//! Objects that others need come first.

use std::cmp::Ordering;

use crate::object::ObjectKey;

/// Kinds that go first, in their order.
const FIRST: [&str; 20] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Service",
    "LimitRange",
    "PriorityClass",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// Kind that goes last: it could refuse everything else.
const LAST: &str = "ValidatingWebhookConfiguration";

/// Compares two objects by the order in which they are applied.
pub(crate) fn compare(one: &ObjectKey, other: &ObjectKey) -> Ordering {
    let place = |key: &ObjectKey| {
        let listed = FIRST.iter().position(|kind| *kind == key.kind);
        listed.unwrap_or(if key.kind == LAST { FIRST.len() + 1 } else { FIRST.len() })
    };
    let whole =
        |key: &ObjectKey| (place(key), key.group.clone(), key.kind.clone(), key.namespace.clone(), key.name.clone());
    whole(one).cmp(&whole(other))
}

/// Sorts objects into the order in which they are applied.
pub(crate) fn sort_to_apply<T>(objects: &mut [T], key: impl Fn(&T) -> &ObjectKey) {
    objects.sort_by(|one, other| compare(key(one), key(other)));
}

/// Sorts objects into the order in which they are deleted: the reverse.
pub(crate) fn sort_to_delete<T>(objects: &mut [T], key: impl Fn(&T) -> &ObjectKey) {
    objects.sort_by(|one, other| compare(key(other), key(one)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::key;

    fn kinds(mut keys: Vec<ObjectKey>) -> Vec<String> {
        sort_to_apply(&mut keys, |key| key);
        keys.into_iter().map(|key| format!("{}/{}", key.kind, key.name)).collect()
    }

    #[test]
    fn objects_of_a_workspace_come_before_what_needs_them() {
        let keys = vec![
            key("ns", "w", "networking.k8s.io", "NetworkPolicy"),
            key("ns", "w-data", "", "PersistentVolumeClaim"),
            key("ns", "w", "apps", "Deployment"),
            key("ns", "w-env", "", "Secret"),
            key("ns", "w-b", "", "Secret"),
            key("ns", "w", "", "ServiceAccount"),
            key("ns", "w", "", "Service"),
            key("", "v", "admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
            key("ns", "w", "", "ResourceQuota"),
            key("", "ns", "", "Namespace"),
            key("ns", "w-scripts", "", "ConfigMap"),
        ];
        assert_eq!(
            kinds(keys),
            [
                "Namespace/ns",
                "ResourceQuota/w",
                "ServiceAccount/w",
                "ConfigMap/w-scripts",
                "Secret/w-b",
                "Secret/w-env",
                "Service/w",
                "Deployment/w",
                "PersistentVolumeClaim/w-data",
                "NetworkPolicy/w",
                "ValidatingWebhookConfiguration/v",
            ]
        );
    }

    proptest! {
        #[test]
        fn deletion_is_the_reverse_whatever_the_order_before(
            picks in proptest::collection::vec((0..FIRST.len(), 0..3_u8, 0..3_u8), 0..24),
        ) {
            let mut unique: Vec<_> = picks.iter()
                .map(|(kind, namespace, name)| key(&format!("n{namespace}"), &format!("o{name}"), "", FIRST[*kind]))
                .collect();
            unique.sort();
            unique.dedup();
            let (mut apply, mut delete) = (unique.clone(), unique);
            apply.reverse();
            sort_to_apply(&mut apply, |key| key);
            sort_to_delete(&mut delete, |key| key);
            delete.reverse();
            prop_assert_eq!(apply, delete);
        }
    }
}
