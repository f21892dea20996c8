//! Calls of a gateway to a cluster agent about workspaces that are in its cluster, as domain types: all that carry the agent's
//! marks are listed, whether the gateway knows them or not, and one is removed.
//!
//! Each call has a channel of its own in the session, to port 2, framed as the conversation of [`crate::reconcile`] is, whose
//! [`Decoder`] reads it: one [`OrphanCall`] down, then [`OrphanAnswer`]s up, of which the last one is
//! [`OrphanAnswer::Listed`] or [`OrphanAnswer::Removed`]. The gateway keeps its half open until then: to finish it earlier is to
//! call the call off, which ends between two requests to the cluster. An agent that does not know this refuses the port with
//! [`Reason::PortNotAllowed`](crate::reason::Reason::PortNotAllowed).

use bytes::Bytes;

pub use crate::reconcile::{Blocker, Decoder, Message, MessageError, NamespaceMode};
use crate::reconcile::{DETAIL_BYTES_MAX, ENTRIES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, delimited, name, plain};
use crate::wire;

/// The port of a cluster agent's session that is no port: calls of this module. No user's address has it.
pub const ORPHANS_PORT: u16 = 2;

/// Most workspaces of one [`OrphanAnswer::Page`].
pub const PAGE_MAX: usize = 256;

/// Most claims of a workspace that are named.
pub const CLAIMS_MAX: usize = 8;

/// Longest host template, in bytes: a host and its placeholder.
pub const HOST_TEMPLATE_BYTES_MAX: usize = 512;

/// A [`Marked`] on the wire, in bytes: its bounds and their overhead.
const MARKED_BYTES_MAX: usize = (CLAIMS_MAX + 2) * (NAME_BYTES_MAX + 8) + HOST_TEMPLATE_BYTES_MAX + 64;

const _: () = assert!(PAGE_MAX * MARKED_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(ENTRIES_MAX * (ENTRIES_MAX + 2) * (DETAIL_BYTES_MAX + 8) <= MESSAGE_BYTES_MAX);

/// Call of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanCall {
    /// Lists everything with the agent's marks.
    List(MarkedIn),
    /// Removes one workspace with its storage.
    Remove(MarkedRemove),
}

/// Cluster agent, and where its workspaces are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedIn {
    /// Name of the cluster agent.
    pub cluster: String,
    /// Namespaces of workspaces.
    pub namespaces: NamespaceMode,
}

/// A workspace to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedRemove {
    /// Cluster agent that made it.
    pub within: MarkedIn,
    /// Its name.
    pub workspace: String,
    /// Its namespace.
    pub namespace: String,
    /// Host template of the gateway that asks: inventories with another one were made by another gateway.
    pub host_template: String,
}

/// Answer of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanAnswer {
    /// Some of what was found.
    Page(Vec<Marked>),
    /// The last answer to a list: why it is not complete, if it is not.
    Listed(Option<String>),
    /// Objects that are still there. Some of these may be left out if they are not read in time.
    Removing(Vec<Blocker>),
    /// The last answer to a removal.
    Removed(MarkedRemoved),
}

/// A workspace in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// Its name.
    pub workspace: String,
    /// Its namespace.
    pub namespace: String,
    /// Hosts of the gateway that made it; empty if its inventories differ about it or have none.
    pub host_template: String,
    /// Number of objects that its inventories track.
    pub objects: u32,
    /// Names of its claims, at most [`CLAIMS_MAX`].
    pub claims: Vec<String>,
    /// Unix seconds at which its oldest inventory was made; 0 if not known.
    pub created: i64,
    /// Unix seconds of the agent's last write to an inventory of it; 0 if not known.
    pub changed: i64,
}

/// Result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedRemoved {
    /// It was there when the call came.
    pub was_there: bool,
    /// Why it is not gone; `None`: it is.
    pub failure: Option<String>,
}

impl OrphanCall {
    /// Encodes it with its length in front.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        use wire::orphan_call::Body;
        let body = match self {
            Self::List(within) => Body::List(wire::MarkedList {
                cluster: within.cluster.clone(),
                shared_namespace: within.shared_namespace(),
            }),
            Self::Remove(remove) => Body::Remove(wire::MarkedRemove {
                cluster: remove.within.cluster.clone(),
                shared_namespace: remove.within.shared_namespace(),
                workspace: remove.workspace.clone(),
                namespace: remove.namespace.clone(),
                host_template: remove.host_template.clone(),
            }),
        };
        delimited(&wire::OrphanCall { body: Some(body) })
    }
}

impl MarkedIn {
    fn shared_namespace(&self) -> String {
        match &self.namespaces {
            NamespaceMode::Unique => String::new(),
            NamespaceMode::Shared(namespace) => namespace.clone(),
        }
    }

    fn from_wire(cluster: String, shared: String) -> Result<Self, MessageError> {
        let namespaces = match shared.is_empty() {
            true => NamespaceMode::Unique,
            false => NamespaceMode::Shared(name(shared, "shared_namespace")?),
        };
        Ok(Self { cluster: name(cluster, "cluster")?, namespaces })
    }
}

impl Message for OrphanCall {
    fn decode(bytes: Bytes) -> Result<Self, MessageError> {
        use wire::orphan_call::Body;
        let call: wire::OrphanCall = prost::Message::decode(bytes).map_err(|_| MessageError::Malformed)?;
        Ok(match call.body.ok_or(MessageError::UnknownBody)? {
            Body::List(list) => Self::List(MarkedIn::from_wire(list.cluster, list.shared_namespace)?),
            Body::Remove(remove) => Self::Remove(MarkedRemove {
                within: MarkedIn::from_wire(remove.cluster, remove.shared_namespace)?,
                workspace: name(remove.workspace, "workspace")?,
                namespace: name(remove.namespace, "namespace")?,
                host_template: template(&remove.host_template).ok_or(MessageError::Field { field: "host_template" })?,
            }),
        })
    }
}

impl OrphanAnswer {
    /// Encodes it with its length in front. Texts are cut to their bounds, and lists to their longest length.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        use wire::orphan_answer::Body;
        let body = match self {
            Self::Page(workspaces) => Body::Page(wire::MarkedPage {
                workspaces: workspaces.iter().take(PAGE_MAX).map(Marked::to_wire).collect(),
            }),
            Self::Listed(failure) => Body::Listed(wire::MarkedListed { failure: said(failure.as_deref()) }),
            Self::Removing(left) => Body::Removing(wire::MarkedRemoving {
                left: left.iter().take(ENTRIES_MAX).map(Blocker::to_wire).collect(),
            }),
            Self::Removed(removed) => Body::Removed(wire::MarkedRemoved {
                was_there: removed.was_there,
                failure: said(removed.failure.as_deref()),
            }),
        };
        delimited(&wire::OrphanAnswer { body: Some(body) })
    }
}

impl Message for OrphanAnswer {
    fn decode(bytes: Bytes) -> Result<Self, MessageError> {
        use wire::orphan_answer::Body;
        let answer: wire::OrphanAnswer = prost::Message::decode(bytes).map_err(|_| MessageError::Malformed)?;
        Ok(match answer.body.ok_or(MessageError::UnknownBody)? {
            Body::Page(page) => {
                if page.workspaces.len() > PAGE_MAX {
                    return Err(MessageError::Field { field: "workspaces" });
                }
                Self::Page(page.workspaces.into_iter().map(Marked::from_wire).collect::<Result<_, _>>()?)
            }
            Body::Listed(listed) => Self::Listed(heard(&listed.failure)),
            Body::Removing(removing) => {
                Self::Removing(removing.left.iter().take(ENTRIES_MAX).map(Blocker::from_wire).collect())
            }
            Body::Removed(removed) => {
                Self::Removed(MarkedRemoved { was_there: removed.was_there, failure: heard(&removed.failure) })
            }
        })
    }
}

impl Marked {
    fn to_wire(&self) -> wire::MarkedWorkspace {
        wire::MarkedWorkspace {
            workspace: self.workspace.clone(),
            namespace: self.namespace.clone(),
            host_template: template(&self.host_template).unwrap_or_default(),
            objects: self.objects,
            claims: self.claims.iter().take(CLAIMS_MAX).cloned().collect(),
            created: self.created,
            changed: self.changed,
        }
    }

    fn from_wire(marked: wire::MarkedWorkspace) -> Result<Self, MessageError> {
        let claims = marked.claims.into_iter().take(CLAIMS_MAX).map(|claim| name(claim, "claims"));
        Ok(Self {
            workspace: name(marked.workspace, "workspace")?,
            namespace: name(marked.namespace, "namespace")?,
            host_template: template(&marked.host_template).unwrap_or_default(),
            objects: marked.objects,
            claims: claims.collect::<Result<_, _>>()?,
            created: marked.created,
            changed: marked.changed,
        })
    }
}

/// Returns a host template that can be one; it is compared, and shown to operators.
fn template(text: &str) -> Option<String> {
    let is_possible = text.len() <= HOST_TEMPLATE_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_possible.then(|| text.to_owned())
}

/// Writes a failure; one without words is still one.
fn said(failure: Option<&str>) -> String {
    match failure.map(plain) {
        None => String::new(),
        Some(text) if text.is_empty() => "no reason was given".to_owned(),
        Some(text) => text,
    }
}

fn heard(failure: &str) -> Option<String> {
    let text = plain(failure);
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded<M: Message>(bytes: &[u8]) -> Result<Option<M>, MessageError> {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        decoder.next_message()
    }

    fn within(shared: Option<&str>) -> MarkedIn {
        let namespaces = shared.map_or(NamespaceMode::Unique, |name| NamespaceMode::Shared(name.to_owned()));
        MarkedIn { cluster: "prod".to_owned(), namespaces }
    }

    fn marked(claims: Vec<String>) -> Marked {
        Marked {
            workspace: "app".to_owned(),
            namespace: "ws-app".to_owned(),
            host_template: "{port}-app.ws.example".to_owned(),
            objects: 9,
            claims,
            created: 5,
            changed: 7,
        }
    }

    #[test]
    fn calls_and_answers_are_what_they_were() {
        let remove = MarkedRemove {
            within: within(None),
            workspace: "app".to_owned(),
            namespace: "ws-app".to_owned(),
            host_template: "{port}-app.ws.example".to_owned(),
        };
        for call in [OrphanCall::List(within(Some("team"))), OrphanCall::List(within(None)), OrphanCall::Remove(remove)]
        {
            assert_eq!(decoded(&call.encode()), Ok(Some(call)));
        }
        let removed = |failure: Option<&str>| {
            OrphanAnswer::Removed(MarkedRemoved { was_there: true, failure: failure.map(str::to_owned) })
        };
        for answer in [
            OrphanAnswer::Page(vec![marked(vec!["app-data".to_owned()])]),
            OrphanAnswer::Listed(None),
            OrphanAnswer::Listed(Some("forbidden".to_owned())),
            OrphanAnswer::Removing(vec![Blocker { object: "Pod a".to_owned(), ..Blocker::default() }]),
            removed(None),
            removed(Some("held")),
        ] {
            assert_eq!(decoded(&answer.encode()), Ok(Some(answer)));
        }
    }

    #[test]
    fn largest_page_is_a_message_and_failure_without_words_stays_one() {
        let long = "a".repeat(NAME_BYTES_MAX);
        let most = Marked {
            workspace: long.clone(),
            namespace: long.clone(),
            host_template: "h".repeat(HOST_TEMPLATE_BYTES_MAX),
            objects: u32::MAX,
            created: i64::MIN,
            changed: i64::MIN,
            ..marked(vec![long; CLAIMS_MAX + 1])
        };
        let encoded = OrphanAnswer::Page(vec![most; PAGE_MAX + 1]).encode();
        let Ok(Some(OrphanAnswer::Page(page))) = decoded(&encoded) else { panic!("no page") };
        assert_eq!((page.len(), page[0].claims.len()), (PAGE_MAX, CLAIMS_MAX));
        let answer = decoded(&OrphanAnswer::Listed(Some("\u{0}".repeat(0))).encode());
        assert!(matches!(answer, Ok(Some(OrphanAnswer::Listed(Some(_))))), "{answer:?}");
    }

    #[test]
    fn names_that_could_not_stand_in_a_path_are_refused() {
        let bad = |workspace: &str| {
            let call = wire::MarkedRemove {
                cluster: "prod".to_owned(),
                workspace: workspace.to_owned(),
                namespace: "ws".to_owned(),
                ..wire::MarkedRemove::default()
            };
            let call = wire::OrphanCall { body: Some(wire::orphan_call::Body::Remove(call)) };
            decoded::<OrphanCall>(&delimited(&call))
        };
        for workspace in ["", "../x", "a/b", "A", "a?b"] {
            assert_eq!(bad(workspace), Err(MessageError::Field { field: "workspace" }), "{workspace}");
        }
        assert!(bad("app").is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            drop(decoded::<OrphanCall>(&bytes));
            drop(decoded::<OrphanAnswer>(&bytes));
        }
    }
}
