//! Reference to an object of a cluster.

use super::MessageError;
use crate::wire;

/// Longest group and name (RFC 1123 subdomains as Kubernetes bounds them), in bytes.
const SUBDOMAIN_BYTES_MAX: usize = 253;

/// Longest version, kind and namespace (RFC 1123 labels), in bytes.
pub(super) const LABEL_BYTES_MAX: usize = 63;

/// Longest uid, in bytes: Kubernetes makes UUIDs, which are shorter.
const UID_BYTES_MAX: usize = 64;

/// All texts of an [`ObjectRef`], in bytes.
pub(super) const BYTES_MAX: usize = 2 * SUBDOMAIN_BYTES_MAX + 3 * LABEL_BYTES_MAX + UID_BYTES_MAX;

/// Longest key of a ConfigMap (Kubernetes, "ConfigMaps"), in bytes: an inventory names an object by such a key.
pub const INVENTORY_KEY_BYTES_MAX: usize = 253;

/// Group of the kinds whose names may have colons.
const COLONS_GROUP: &str = "rbac.authorization.k8s.io";

/// Returns whether a text can stand in an address of the Kubernetes API as it is.
pub(super) fn is_segment(text: &str, bytes_max: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    text.len() <= bytes_max && text.bytes().all(is_plain) && text != "." && text != ".."
}

/// Name of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// API group; empty for the core group.
    pub group: String,
    /// Version of the group; empty: not known.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Empty: not known.
    pub uid: String,
}

impl ObjectRef {
    /// Returns whether each part can stand in an address of the Kubernetes API as it is, and the parts that name the
    /// object are there.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.kind.is_empty()
            && !self.name.is_empty()
            && [&self.group, &self.name].iter().all(|text| is_segment(text, SUBDOMAIN_BYTES_MAX))
            && [&self.version, &self.kind, &self.namespace].iter().all(|text| is_segment(text, LABEL_BYTES_MAX))
            && is_segment(&self.uid, UID_BYTES_MAX)
    }

    /// Returns whether an inventory can track it: kubernetes-sigs/cli-utils keeps objects there by keys of a ConfigMap,
    /// each of which is `namespace_name_group_kind`, with two underscores for a colon.
    #[must_use]
    pub fn is_trackable(&self) -> bool {
        let Self { group, kind, namespace, name, .. } = self;
        let colons = name.bytes().filter(|byte| *byte == b':').count();
        let bytes: usize = [namespace, name, group, kind].iter().map(|text| text.len()).sum();
        let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        !name.is_empty()
            && !kind.is_empty()
            && [namespace, group, kind].into_iter().all(is_plain)
            && is_plain(&name.replace(':', ""))
            && (colons == 0 || group == COLONS_GROUP)
            && bytes + colons + 3 <= INVENTORY_KEY_BYTES_MAX
    }

    pub(super) fn to_wire(&self) -> wire::ObjectRef {
        wire::ObjectRef {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }

    pub(super) fn from_wire(object: wire::ObjectRef) -> Result<Self, MessageError> {
        let wire::ObjectRef { group, version, kind, namespace, name, uid } = object;
        let object = Self { group, version, kind, namespace, name, uid };
        if object.is_valid() { Ok(object) } else { Err(MessageError::Field { field: "object" }) }
    }
}
