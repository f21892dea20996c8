//! Messages from the gateway to a cluster agent.

use bytes::Bytes;

use super::{
    IDENTITY_ENTRIES_MAX, IDENTITY_TEXT_BYTES_MAX, INVENTORY_PREFIX, KEPT_NAMESPACES_MAX, Message, MessageError,
    OBJECTS_BYTES_MAX, ObjectRef, TRACKED_MAX, object,
};
use crate::reconcile::{delimited, name};
use crate::wire;

/// Call of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Applies the environment's objects.
    Apply(Apply),
    /// Removes the environment's objects.
    Remove(Remove),
}

/// An environment, and the identity to act as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Name of the cluster agent.
    pub cluster: String,
    /// The environment's key: slug, project and agent.
    pub environment: String,
    /// Name of its inventory, which begins with [`INVENTORY_PREFIX`]: the mark on its objects.
    pub inventory: String,
    /// Identity that reads and writes its objects (Kubernetes, "User impersonation"); `None`: the agent itself.
    pub identity: Option<CallIdentity>,
    /// Namespaces that others share: they are neither made nor deleted, as Kubernetes' own are not.
    pub kept_namespaces: Vec<String>,
}

/// User that the agent acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallIdentity {
    /// User name.
    pub user: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra fields and their values.
    pub extra: Vec<(String, Vec<String>)>,
}

/// Makes an environment be what `objects` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    /// The environment.
    pub scope: Scope,
    /// A JSON array of Kubernetes objects in the order to apply them, each with the mark.
    pub objects: Bytes,
    /// Objects recorded for it: those that are not in `objects` any more are deleted.
    pub tracked: Vec<ObjectRef>,
}

/// Deletes the objects of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remove {
    /// The environment.
    pub scope: Scope,
    /// Objects recorded for it.
    pub tracked: Vec<ObjectRef>,
}

impl Call {
    /// Returns the environment that it is about.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        match self {
            Self::Apply(apply) => &apply.scope,
            Self::Remove(remove) => &remove.scope,
        }
    }

    /// Encodes it with its length in front.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        use wire::environment_call::Body;
        let refs = |tracked: &[ObjectRef]| tracked.iter().map(ObjectRef::to_wire).collect();
        let body = match self {
            Self::Apply(apply) => Body::Apply(wire::EnvironmentApply {
                scope: Some(apply.scope.to_wire()),
                objects: apply.objects.clone(),
                tracked: refs(&apply.tracked),
            }),
            Self::Remove(remove) => Body::Remove(wire::EnvironmentRemove {
                scope: Some(remove.scope.to_wire()),
                tracked: refs(&remove.tracked),
            }),
        };
        delimited(&wire::EnvironmentCall { body: Some(body) })
    }
}

impl Message for Call {
    fn decode(bytes: Bytes) -> Result<Self, MessageError> {
        use wire::environment_call::Body;
        let call: wire::EnvironmentCall = prost::Message::decode(bytes).map_err(|_| MessageError::Malformed)?;
        Ok(match call.body.ok_or(MessageError::UnknownBody)? {
            Body::Apply(apply) => {
                if apply.objects.len() > OBJECTS_BYTES_MAX {
                    return Err(MessageError::Field { field: "objects" });
                }
                Self::Apply(Apply {
                    scope: Scope::from_wire(apply.scope)?,
                    objects: apply.objects,
                    tracked: tracked(apply.tracked)?,
                })
            }
            Body::Remove(remove) => {
                Self::Remove(Remove { scope: Scope::from_wire(remove.scope)?, tracked: tracked(remove.tracked)? })
            }
        })
    }
}

fn tracked(refs: Vec<wire::ObjectRef>) -> Result<Vec<ObjectRef>, MessageError> {
    if refs.len() > TRACKED_MAX {
        return Err(MessageError::Field { field: "tracked" });
    }
    refs.into_iter().map(ObjectRef::from_wire).collect()
}

/// Checks names of namespaces. One too many is never left out: it would be deleted.
fn kept(namespaces: Vec<String>) -> Result<Vec<String>, MessageError> {
    let is_name = |name: &String| !name.is_empty() && object::is_segment(name, object::LABEL_BYTES_MAX);
    let is_good = namespaces.len() <= KEPT_NAMESPACES_MAX && namespaces.iter().all(is_name);
    if is_good { Ok(namespaces) } else { Err(MessageError::Field { field: "kept_namespaces" }) }
}

impl Scope {
    fn to_wire(&self) -> wire::EnvironmentScope {
        wire::EnvironmentScope {
            cluster: self.cluster.clone(),
            environment: self.environment.clone(),
            inventory: self.inventory.clone(),
            identity: self.identity.as_ref().map(CallIdentity::to_wire),
            kept_namespaces: self.kept_namespaces.clone(),
        }
    }

    fn from_wire(scope: Option<wire::EnvironmentScope>) -> Result<Self, MessageError> {
        let scope = scope.ok_or(MessageError::Field { field: "scope" })?;
        if !scope.inventory.starts_with(INVENTORY_PREFIX) {
            return Err(MessageError::Field { field: "inventory" });
        }
        Ok(Self {
            cluster: name(scope.cluster, "cluster")?,
            environment: name(scope.environment, "environment")?,
            inventory: name(scope.inventory, "inventory")?,
            identity: scope.identity.map(CallIdentity::from_wire).transpose()?,
            kept_namespaces: kept(scope.kept_namespaces)?,
        })
    }
}

impl CallIdentity {
    fn to_wire(&self) -> wire::Identity {
        let extra =
            |(key, values): &(String, Vec<String>)| wire::IdentityExtra { key: key.clone(), values: values.clone() };
        wire::Identity {
            user: self.user.clone(),
            groups: self.groups.clone(),
            extra: self.extra.iter().map(extra).collect(),
        }
    }

    fn from_wire(identity: wire::Identity) -> Result<Self, MessageError> {
        let extra = identity.extra.into_iter().map(|extra| Ok((text(extra.key)?, texts(extra.values)?)));
        let extra = extra.collect::<Result<Vec<_>, MessageError>>()?;
        if extra.len() > IDENTITY_ENTRIES_MAX {
            return Err(MessageError::Field { field: "identity" });
        }
        Ok(Self { user: text(identity.user)?, groups: texts(identity.groups)?, extra })
    }
}

fn texts(texts: Vec<String>) -> Result<Vec<String>, MessageError> {
    if texts.len() > IDENTITY_ENTRIES_MAX {
        return Err(MessageError::Field { field: "identity" });
    }
    texts.into_iter().map(text).collect()
}

/// Checks a text of an identity: it becomes a header field.
fn text(text: String) -> Result<String, MessageError> {
    let is_plain = !text.is_empty() && text.len() <= IDENTITY_TEXT_BYTES_MAX && !text.chars().any(char::is_control);
    if is_plain && text.trim() == text { Ok(text) } else { Err(MessageError::Field { field: "identity" }) }
}
