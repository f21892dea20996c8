//! Objects: their names, and the parts of their JSON that decide how they are treated.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Annotation of an object: the inventory that it is in (cli-utils).
pub(crate) const OWNER_ANNOTATION: &str = "config.k8s.io/owning-inventory";

/// Label of an inventory: its id (cli-utils).
pub(crate) const INVENTORY_LABEL: &str = "cli-utils.sigs.k8s.io/inventory-id";

/// Label of every object of ours: the workspace.
pub(crate) const WORKSPACE_LABEL: &str = "workspace-gateway.dev/workspace";

/// Label of every object of ours: the cluster agent that looks after it.
pub(crate) const CLUSTER_LABEL: &str = "workspace-gateway.dev/cluster";

/// Annotation of a copy of a pull secret: `namespace/name` of its source.
pub(crate) const COPY_ANNOTATION: &str = "workspace-gateway.dev/copied-from";

/// Kind, of the core group, of the namespaces that other objects are in.
pub(crate) const NAMESPACE: &str = "Namespace";

/// Name of an object in a cluster, whatever version of its API it is written in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    /// Empty for objects of the whole cluster.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) kind: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

/// Object as it was sent.
#[derive(Clone, PartialEq)]
pub(crate) struct SentObject {
    pub(crate) key: ObjectKey,
    /// Version of its API group.
    pub(crate) version: String,
    pub(crate) value: Value,
}

impl fmt::Debug for SentObject {
    /// Shows the name alone: the object may be a Secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Object").field(&self.key).finish()
    }
}

impl SentObject {
    /// Reads the name of an object; `None` if a part of it is missing or no text.
    pub(crate) fn read(value: Value) -> Option<Self> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let api = text("/apiVersion")?;
        let (group, version) = api.split_once('/').unwrap_or(("", api));
        let key = ObjectKey {
            namespace: text("/metadata/namespace").unwrap_or_default().to_owned(),
            name: text("/metadata/name")?.to_owned(),
            group: group.to_owned(),
            kind: text("/kind")?.to_owned(),
        };
        let version = version.to_owned();
        Some(Self { key, version, value })
    }

    /// Returns a label's value.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.of("labels", name)
    }

    /// Returns an annotation's value.
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.of("annotations", name)
    }

    /// Returns whether a live object has every field that this one has, and so would not be changed by applying it:
    /// other fields are not ours. Equal amounts that are spelled in two ways are not found to be the same.
    pub(crate) fn is_said_by(&self, live: &Value) -> bool {
        says(live, &self.value)
    }

    fn of(&self, map: &str, name: &str) -> Option<&str> {
        self.value.get("metadata")?.get(map)?.get(name)?.as_str()
    }
}

/// Metadata of a live object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveObject {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) finalizers: Vec<String>,
    /// Time since which it is being deleted, in Unix seconds.
    pub(crate) deleting_since: Option<i64>,
}

impl LiveObject {
    /// Reads the metadata of an object of any kind.
    pub(crate) fn read(value: &Value) -> Self {
        let Some(metadata) = value.get("metadata") else { return Self::default() };
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let map = |name: &str| -> BTreeMap<String, String> {
            let entries = metadata.get(name).and_then(Value::as_object).into_iter().flatten();
            entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        let finalizers = metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten();
        let deleting = metadata.get("deletionTimestamp").and_then(Value::as_str);
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            labels: map("labels"),
            annotations: map("annotations"),
            finalizers: finalizers.filter_map(Value::as_str).map(str::to_owned).collect(),
            // A time that cannot be read still says that it is being deleted.
            deleting_since: deleting.map(|text| text.parse().map_or(0, |time: Timestamp| time.as_second())),
        }
    }

    /// Returns whether the object carries both our labels with these values.
    pub(crate) fn is_of(&self, workspace: &str, cluster: &str) -> bool {
        let is = |label: &str, value: &str| self.labels.get(label).is_some_and(|found| found == value);
        is(WORKSPACE_LABEL, workspace) && is(CLUSTER_LABEL, cluster)
    }
}

/// Place of the objects of a kind in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) is_namespaced: bool,
}

/// Group, version, kind and plural of the kinds that workspaces and environments are made of: asking the API server for what never
/// changes would cost a request for each of them.
const KNOWN: [(&str, &str, &str, &str); 16] = [
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "LimitRange", "limitranges"),
    ("", "v1", NAMESPACE, "namespaces"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "ResourceQuota", "resourcequotas"),
    ("", "v1", "Secret", "secrets"),
    ("", "v1", "Service", "services"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("batch", "v1", "Job", "jobs"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses"),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
];

impl Resource {
    /// Finds a kind among those that every Kubernetes has. `version` of `None` is the one that is known.
    pub(crate) fn known(group: &str, version: Option<&str>, kind: &str) -> Option<Self> {
        let found = KNOWN
            .iter()
            .find(|known| known.0 == group && known.2 == kind && version.is_none_or(|version| version == known.1))?;
        Some(Self {
            group: group.to_owned(),
            version: found.1.to_owned(),
            plural: found.3.to_owned(),
            is_namespaced: kind != NAMESPACE,
        })
    }

    /// Returns the path of all objects, in a namespace if there is one.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let api = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{api}/{}{within}/{}", self.version, self.plural)
    }

    /// Returns the path of one object.
    pub(crate) fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

/// Returns whether deleting objects of a kind leaves others behind that the garbage collector has to find: then they
/// are deleted first, so that an object is gone only with everything that it made.
pub(crate) fn has_dependents(key: &ObjectKey) -> bool {
    matches!(
        (key.group.as_str(), key.kind.as_str()),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") | ("batch", "Job" | "CronJob")
    )
}

/// Returns whether the API server writes an object of a kind anew when it is applied without a change. The stored claim
/// has no phase when it is made: the phase is put in when the claim is read, which so differs from what is stored. No
/// field of a claim that was sent once is left out later.
pub(crate) fn is_rewritten(key: &ObjectKey) -> bool {
    (key.group.as_str(), key.kind.as_str()) == ("", "PersistentVolumeClaim")
}

/// Returns whether everything in `wanted` is in `live` too; lists have to be as long.
fn says(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| live.get(key).is_some_and(|live| says(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| says(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

/// Makes a key of a kind without looking at an object.
#[cfg(test)]
pub(crate) fn key(namespace: &str, name: &str, group: &str, kind: &str) -> ObjectKey {
    ObjectKey { namespace: namespace.into(), name: name.into(), group: group.into(), kind: kind.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_is_named_by_group_kind_namespace_and_name() {
        let value = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "ns",
            "labels": {"x": "y"}, "annotations": {OWNER_ANNOTATION: "i"}}});
        let object = SentObject::read(value.clone()).expect("an object");
        assert_eq!(object.key, key("ns", "a", "apps", "Deployment"));
        assert_eq!((object.version.as_str(), object.label("x")), ("v1", Some("y")));
        assert_eq!(object.annotation(OWNER_ANNOTATION), Some("i"));
        assert_eq!(object.value, value, "it is kept as it came");
        assert_eq!(object.key.to_string(), "Deployment a");
        for bad in [json!(null), json!({}), json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": 7}})] {
            assert_eq!(SentObject::read(bad), None);
        }
    }

    #[test]
    fn live_object_says_what_was_sent_whatever_it_says_beside() {
        let sent = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}}});
        let object = SentObject::read(sent.clone()).expect("an object");
        assert!(is_rewritten(&object.key));
        let mut live = sent.clone();
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["labels"]["of"] = json!("somebody else");
        live["spec"]["volumeMode"] = json!("Filesystem");
        live["status"] = json!({"phase": "Pending"});
        assert!(object.is_said_by(&live));
        for (place, other) in [
            ("/spec/resources/requests/storage", json!("51200Mi")),
            ("/spec/accessModes", json!(["ReadWriteOnce", "ReadOnlyMany"])),
            ("/spec/accessModes/0", json!("ReadOnlyMany")),
            ("/metadata/labels/x", json!(null)),
            ("/spec", json!([])),
        ] {
            let mut live = live.clone();
            *live.pointer_mut(place).expect("a place") = other;
            assert!(!object.is_said_by(&live), "{place}");
        }
        let missing = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": sent["spec"]});
        assert!(!object.is_said_by(&missing));
    }

    #[test]
    fn metadata_of_a_live_object_is_read_and_what_is_odd_is_not_lost() {
        let live = LiveObject::read(&json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7",
            "labels": {WORKSPACE_LABEL: "w", CLUSTER_LABEL: "c"}, "finalizers": ["f"],
            "deletionTimestamp": "2026-11-21T10:00:00Z"}}));
        assert_eq!((live.uid.as_str(), live.resource_version.as_str()), ("u", "7"));
        assert_eq!((live.deleting_since, live.finalizers.as_slice()), (Some(1_795_255_200), &["f".to_owned()][..]));
        assert!(live.is_of("w", "c"));
        assert!(!live.is_of("w", "d") && !live.is_of("v", "c"));
        let odd = LiveObject::read(&json!({"metadata": {"deletionTimestamp": "soon"}}));
        assert_eq!(odd.deleting_since, Some(0), "it is being deleted, whenever that began");
        assert_eq!(LiveObject::read(&json!([])), LiveObject::default());
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let deployment = Resource::known("apps", None, "Deployment").expect("known");
        assert_eq!(deployment.path("ns", "a"), "/apis/apps/v1/namespaces/ns/deployments/a");
        let secret = Resource::known("", Some("v1"), "Secret").expect("known");
        assert_eq!(secret.collection(""), "/api/v1/secrets");
        assert_eq!(
            Resource::known("apps", Some("v1beta1"), "Deployment"),
            None,
            "another version may be another thing"
        );
    }
}
