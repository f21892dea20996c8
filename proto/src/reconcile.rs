//! Conversation between a gateway and a cluster agent, as domain types: desired state down, observed state up.
//!
//! It runs in the session's channel to port 0, as messages one after the other, each behind its length as a varint (the
//! protobuf encoding's delimited form). [`Decoder`] reads them from pieces of any size, [`ToCluster::encode`] and
//! [`FromCluster::encode`] write them. Generated types do not leave the folder.

mod decoder;
mod down;
mod start;
mod up;

use thiserror::Error;

pub(crate) use self::decoder::delimited;
pub use self::decoder::{Decoder, Message};
pub use self::down::{Intent, NamespaceMode, SecretRef, Terms, ToCluster};
pub use self::start::{StartProgress, StartStep};
pub use self::up::{
    Begin, Blocker, Condition, Deployment, FailureKind, FromCluster, ObjectDetail, ReconcileFailure, Termination,
    WorkspaceReport,
};

/// The port of a cluster agent's session that is no port: the conversation of this module. No user's address has it.
pub const RECONCILE_PORT: u16 = 0;

/// Largest encoded message. A workspace's objects are bounded at 256 KiB, its variables at 512 KiB, and base64 makes a
/// third more of those.
pub const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Longest name of a workspace, namespace or object, in bytes (RFC 1123 names as Kubernetes bounds them).
pub const NAME_BYTES_MAX: usize = 253;

/// Longest text for people, in bytes; longer ones are cut.
pub const DETAIL_BYTES_MAX: usize = 1024;

/// Most entries of a list in a report; further ones are left out.
pub const ENTRIES_MAX: usize = 32;

/// Most secrets that one intent names.
pub const PULL_SECRETS_MAX: usize = 64;

/// Bytes that are no message of this conversation, which ends there: the next length could not be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Longer than [`MESSAGE_BYTES_MAX`], as it says itself.
    #[error("a message of {bytes} bytes is longer than {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// Its length, as it says.
        bytes: u64,
    },
    /// Not protobuf, or not of this schema.
    #[error("a message that cannot be decoded")]
    Malformed,
    /// A message without a body, or with one that is not known here and that no feature announced.
    #[error("a message of an unknown kind")]
    UnknownBody,
    /// A value that no peer of this version sends.
    #[error("a message with a bad {field}")]
    Field {
        /// Name of the field.
        field: &'static str,
    },
}

/// Checks a name: it becomes part of addresses and log lines.
pub(crate) fn name(text: String, field: &'static str) -> Result<String, MessageError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(is_plain) {
        return Err(MessageError::Field { field });
    }
    Ok(text)
}

/// Makes a text for people one line of bounded length: it comes from programs of many makers and ends up in logs.
pub(crate) fn plain(text: &str) -> String {
    let mut kept = String::with_capacity(text.len().min(DETAIL_BYTES_MAX));
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if kept.len() + character.len_utf8() > DETAIL_BYTES_MAX {
            break;
        }
        kept.push(character);
    }
    kept
}

#[cfg(test)]
mod tests;
