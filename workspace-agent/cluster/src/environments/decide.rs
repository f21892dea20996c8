//! Decisions about objects that were found.

use tunnel_proto::environments::{Blocker, ObjectErrorCode};

use crate::object::{LiveObject, NAMESPACE, OWNER_ANNOTATION, ObjectKey};
use crate::order::sort_to_delete;
use crate::retry::ApiError;

/// Groups whose objects every cluster has: other objects of an environment may need these while they end.
const PLAIN_GROUPS: [&str; 2] = ["", "rbac.authorization.k8s.io"];

/// Ownership of the object that has a wanted object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ObjectOwnership {
    /// There is none.
    New,
    /// It is this environment's.
    Ours(LiveObject),
    /// The same, and it is being deleted.
    Leaving(LiveObject),
    /// It is another owner's, or has no owner.
    Foreign,
}

/// Judges the live object under the name of a wanted one.
pub(super) fn ownership(live: Option<LiveObject>, inventory: &str) -> ObjectOwnership {
    match live {
        None => ObjectOwnership::New,
        Some(live) if live.annotations.get(OWNER_ANNOTATION).map(String::as_str) != Some(inventory) => {
            ObjectOwnership::Foreign
        }
        Some(live) if live.deleting_since.is_some() => ObjectOwnership::Leaving(live),
        Some(live) => ObjectOwnership::Ours(live),
    }
}

/// Returns the code of an error. The API server tells some of it in words only.
pub(super) fn code(error: &ApiError) -> ObjectErrorCode {
    match error {
        ApiError::Forbidden(message) if message.contains("cannot impersonate") => ObjectErrorCode::Identity,
        ApiError::Forbidden(message) if message.contains("being terminated") => ObjectErrorCode::Conflict,
        ApiError::Forbidden(_) => ObjectErrorCode::Forbidden,
        ApiError::NotFound(message) if message.starts_with("namespaces \"") => ObjectErrorCode::NamespaceMissing,
        // A role that a binding names, say.
        ApiError::NotFound(message) if message.ends_with("\" not found") => ObjectErrorCode::Invalid,
        ApiError::NotFound(_) => ObjectErrorCode::UnknownKind,
        // It was there a moment ago.
        ApiError::Absent(_) | ApiError::Conflict(_) => ObjectErrorCode::Conflict,
        ApiError::Invalid(_) => ObjectErrorCode::Invalid,
        ApiError::Unavailable { .. } | ApiError::NotServed(_) => ObjectErrorCode::Unavailable,
        ApiError::Superseded => ObjectErrorCode::Superseded,
    }
}

/// Returns whether an error about one object would occur with all others too, and ends the call.
pub(super) fn is_of_all(code: ObjectErrorCode) -> bool {
    match code {
        ObjectErrorCode::Unavailable | ObjectErrorCode::Identity | ObjectErrorCode::Superseded => true,
        ObjectErrorCode::NotOwned
        | ObjectErrorCode::Forbidden
        | ObjectErrorCode::Invalid
        | ObjectErrorCode::UnknownKind
        | ObjectErrorCode::NamespaceMissing
        | ObjectErrorCode::Conflict => false,
    }
}

/// Returns objects in the order in which they are deleted, in waves: one begins when the one before it is gone. Objects
/// of controllers go first, while the accounts and bindings that they use are there; namespaces go last.
pub(super) fn waves(keys: impl IntoIterator<Item = ObjectKey>) -> [Vec<ObjectKey>; 3] {
    let mut waves = [const { Vec::new() }; 3];
    let [looked_after, plain, namespaces] = &mut waves;
    for key in keys {
        if is_namespace(&key) {
            namespaces.push(key);
        } else if PLAIN_GROUPS.contains(&key.group.as_str()) {
            plain.push(key);
        } else {
            looked_after.push(key);
        }
    }
    for wave in &mut waves {
        sort_to_delete(wave, |key| key);
    }
    waves
}

/// Returns whether an object is a namespace.
pub(super) fn is_namespace(key: &ObjectKey) -> bool {
    key.group.is_empty() && key.kind == NAMESPACE
}

/// Names the finalizers that hold an object that is to go.
pub(super) fn blocker(key: &ObjectKey, live: &LiveObject, message: String) -> Blocker {
    let place = if key.namespace.is_empty() { String::new() } else { format!("{}/", key.namespace) };
    Blocker {
        object: format!("{} {place}{}", key.kind, key.name),
        finalizers: live.finalizers.clone(),
        since: live.deleting_since.unwrap_or_default(),
        message,
    }
}

/// Says which finalizers hold an object that is being deleted.
pub(super) fn held_by(live: &LiveObject) -> String {
    if live.finalizers.is_empty() { String::new() } else { format!(", held by {}", live.finalizers.join(", ")) }
}

#[cfg(test)]
mod tests;
