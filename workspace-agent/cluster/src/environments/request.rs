//! Reads and checks calls.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tunnel_proto::environments::{Apply, Call, CallIdentity, ObjectError, ObjectErrorCode, ObjectRef, Scope};

use super::whole;
use crate::api::escape;
use crate::inventory::encode;
use crate::object::{CLUSTER_LABEL, INVENTORY_LABEL, NAMESPACE, OWNER_ANNOTATION, ObjectKey, SentObject};
use crate::order::sort_to_apply;
use crate::terminate::is_reserved;

/// Label of an inventory: the environment.
pub(super) const ENVIRONMENT_LABEL: &str = "workspace-gateway.dev/environment";

/// Prefix of the names of users and groups that the agent acts for: never a person, a service account or a group of the
/// cluster's own.
const USER_PREFIX: &str = "gitlab:";

/// Prefix of the keys of their extra fields.
const EXTRA_PREFIX: &str = "agent.gitlab.com/";

/// Returns the objects that the gateway has recorded.
pub(super) fn tracked(call: &Call) -> &[ObjectRef] {
    match call {
        Call::Apply(apply) => &apply.tracked,
        Call::Remove(remove) => &remove.tracked,
    }
}

/// Returns an object that the call is about: if it is about none, the environment's inventory, in `namespace`.
pub(super) fn first(call: &Call, namespace: &str) -> ObjectRef {
    let wanted = match call {
        Call::Apply(apply) => serde_json::from_slice::<Vec<Value>>(&apply.objects).ok(),
        Call::Remove(_) => None,
    };
    let mut wanted = wanted.into_iter().flatten().filter_map(SentObject::read);
    let wanted = wanted.next().map(|object| reference(&object.key, &object.version, "")).filter(ObjectRef::is_valid);
    wanted.or_else(|| tracked(call).first().cloned()).unwrap_or_else(|| {
        let SentObject { key, version, .. } = inventory(call.scope(), namespace);
        reference(&key, &version, "")
    })
}

/// Names an object as the gateway does.
pub(super) fn reference(key: &ObjectKey, version: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        group: key.group.clone(),
        version: version.to_owned(),
        kind: key.kind.clone(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: uid.to_owned(),
    }
}

/// Names an object as inventories do; `None` if one could not track it.
pub(super) fn key(object: &ObjectRef) -> Option<ObjectKey> {
    let key = ObjectKey {
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        group: object.group.clone(),
        kind: object.kind.clone(),
    };
    encode(&key).is_ok().then_some(key)
}

/// Reads the objects of a call, in the order in which they are applied.
///
/// # Errors
/// Everything that is wrong with them: then nothing is applied.
pub(super) fn objects(apply: &Apply) -> Result<Vec<SentObject>, Vec<ObjectError>> {
    let bad = |message: String| vec![whole(ObjectErrorCode::Invalid, message)];
    let values: Vec<Value> = serde_json::from_slice(&apply.objects)
        .map_err(|error| bad(format!("what is to be applied is not a JSON array of objects: {error}")))?;
    let (mut objects, mut errors, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (index, value) in values.into_iter().enumerate() {
        let object = SentObject::read(value).filter(|object| reference(&object.key, &object.version, "").is_valid());
        let Some(object) = object else {
            errors.extend(bad(format!("object {index} has no apiVersion, kind or name that Kubernetes could have")));
            continue;
        };
        if let Err(message) = check(&object, &apply.scope) {
            let named = reference(&object.key, &object.version, "");
            errors.push(ObjectError { object: Some(named), code: ObjectErrorCode::Invalid, message });
        } else if !seen.insert(object.key.clone()) {
            errors.extend(bad(format!("{} is there twice", object.key)));
        } else {
            objects.push(object);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    sort_to_apply(&mut objects, |object| &object.key);
    Ok(objects)
}

fn check(object: &SentObject, scope: &Scope) -> Result<(), String> {
    if object.annotation(OWNER_ANNOTATION) != Some(&scope.inventory) {
        return Err(format!("{} has not the mark of its environment", object.key));
    }
    if let Some(why) = reserved(&object.key, scope) {
        return Err(format!("the namespace {} is no environment's: {why}", object.key.name));
    }
    encode(&object.key).map(drop).map_err(|error| error.to_string())
}

/// Returns the reason why a namespace is neither made nor deleted for an environment, if it is none of its.
pub(super) fn reserved(key: &ObjectKey, scope: &Scope) -> Option<&'static str> {
    if !(key.group.is_empty() && key.kind == NAMESPACE) {
        None
    } else if is_reserved(&key.name) {
        Some("it belongs to Kubernetes")
    } else {
        scope.kept_namespaces.contains(&key.name).then_some("others share it")
    }
}

/// Makes the inventory of an environment, as yet without tracked objects.
pub(super) fn inventory(scope: &Scope, namespace: &str) -> SentObject {
    let name = &scope.inventory;
    let labels = json!({INVENTORY_LABEL: name, CLUSTER_LABEL: scope.cluster, ENVIRONMENT_LABEL: scope.environment});
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels}});
    let key = ObjectKey {
        namespace: namespace.to_owned(),
        name: name.clone(),
        group: String::new(),
        kind: "ConfigMap".to_owned(),
    };
    SentObject { key, version: "v1".to_owned(), value }
}

/// Makes the header fields by which requests are made as another user (Kubernetes, "User impersonation").
///
/// # Errors
/// A text that names the identity for which the agent does not act.
pub(super) fn impersonation(identity: &CallIdentity) -> Result<HeaderMap, String> {
    let refused = |what: &str, text: &str, prefix: &str| {
        Err(format!("the agent acts for no {what} `{text}`: only for those of `{prefix}`"))
    };
    if !identity.user.starts_with(USER_PREFIX) {
        return refused("user", &identity.user, USER_PREFIX);
    }
    if let Some(group) = identity.groups.iter().find(|group| !group.starts_with(USER_PREFIX)) {
        return refused("group", group, USER_PREFIX);
    }
    if let Some((key, _)) = identity.extra.iter().find(|(key, _)| !key.starts_with(EXTRA_PREFIX)) {
        return refused("extra field", key, EXTRA_PREFIX);
    }
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| "a name of an identity fits into no header".to_owned())
    };
    let mut headers = HeaderMap::new();
    headers.append("impersonate-user", value(&identity.user)?);
    for group in &identity.groups {
        headers.append("impersonate-group", value(group)?);
    }
    for (key, values) in &identity.extra {
        let name = format!("impersonate-extra-{}", escape(&key.to_ascii_lowercase()).to_ascii_lowercase());
        let name: HeaderName = name.parse().map_err(|_| "a key of an identity fits into no header".to_owned())?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
