//! Calls of a gateway to a cluster agent for environments of CI jobs, as domain types: their objects are applied, or
//! removed.
//!
//! Each call has a channel of its own in the session, to port 1, framed as the conversation of [`crate::reconcile`] is, whose
//! [`Decoder`] reads it: one [`Call`] down, then [`CallAnswer::Progress`] any number of times and one [`CallAnswer::Done`] up, with
//! which the agent finishes. The gateway keeps its half open until then: to finish it earlier is to call the call off, which
//! ends between two requests to the cluster. An agent that knows no environments refuses the port with
//! [`Reason::PortNotAllowed`](crate::reason::Reason::PortNotAllowed), one that has too much to do with
//! [`Reason::Overloaded`](crate::reason::Reason::Overloaded).

mod down;
mod object;
mod up;

pub use self::down::{Apply, Call, CallIdentity, Remove, Scope};
pub use self::object::{INVENTORY_KEY_BYTES_MAX, ObjectRef};
pub use self::up::{CallAnswer, CallProgress, Done, ObjectError, ObjectErrorCode, ObjectStep};
pub use crate::reconcile::{Blocker, Decoder, Message, MessageError};

use crate::reconcile::{DETAIL_BYTES_MAX, ENTRIES_MAX, MESSAGE_BYTES_MAX};

/// The port of a cluster agent's session that is no port: calls of this module. No user's address has it.
pub const ENVIRONMENTS_PORT: u16 = 1;

/// Prefix of the name of every environment's inventory: no other inventory can be meant by a call.
pub const INVENTORY_PREFIX: &str = "environment-";

/// Largest array of objects in a call, in bytes: the bound on templates, with labels and annotations, several times.
pub const OBJECTS_BYTES_MAX: usize = 1024 * 1024;

/// Most objects that are tracked for an environment: a template has at most 100, and objects of earlier ones go.
pub const TRACKED_MAX: usize = 512;

/// Most errors in one answer; further ones are left out.
pub const ERRORS_MAX: usize = 200;

/// Most groups, extra keys, and values of one of these, of an identity.
pub const IDENTITY_ENTRIES_MAX: usize = 16;

/// Most namespaces that a call keeps: an agent's configuration has fewer entries that could name one.
pub const KEPT_NAMESPACES_MAX: usize = 1024;

/// Longest text of an identity, in bytes.
pub const IDENTITY_TEXT_BYTES_MAX: usize = 512;

/// An [`ObjectRef`] on the wire, in bytes: its bounds and their overhead.
const OBJECT_BYTES_MAX: usize = object::BYTES_MAX + 32;

/// A [`Blocker`] on the wire, in bytes: its texts, its finalizers, and their overhead.
const BLOCKER_BYTES_MAX: usize = (ENTRIES_MAX + 2) * (DETAIL_BYTES_MAX + 8) + 16;

const IDENTITY_BYTES_MAX: usize =
    (2 + IDENTITY_ENTRIES_MAX * (2 + IDENTITY_ENTRIES_MAX)) * (IDENTITY_TEXT_BYTES_MAX + 8);

/// The namespaces that are kept, on the wire.
const KEPT_BYTES_MAX: usize = KEPT_NAMESPACES_MAX * (object::LABEL_BYTES_MAX + 2);

const _: () = assert!(
    OBJECTS_BYTES_MAX + TRACKED_MAX * OBJECT_BYTES_MAX + IDENTITY_BYTES_MAX + KEPT_BYTES_MAX + 4 * OBJECT_BYTES_MAX
        <= MESSAGE_BYTES_MAX
);
const _: () = assert!(
    (TRACKED_MAX + ERRORS_MAX) * OBJECT_BYTES_MAX
        + ERRORS_MAX * (DETAIL_BYTES_MAX + 16)
        + ENTRIES_MAX * BLOCKER_BYTES_MAX
        <= MESSAGE_BYTES_MAX
);

#[cfg(test)]
mod tests;
