//! Messages from a cluster agent to the gateway.

use bytes::Bytes;

use super::{Blocker, ERRORS_MAX, Message, MessageError, ObjectRef, TRACKED_MAX};
use crate::reconcile::{ENTRIES_MAX, delimited, plain};
use crate::wire;

/// Answer of the agent to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// A step of one object. Some of these may be left out if they are not read in time.
    Progress(CallProgress),
    /// The last answer.
    Done(Done),
}

/// A step of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallProgress {
    /// The object.
    pub object: ObjectRef,
    /// The step.
    pub step: ObjectStep,
    /// For people; may be empty.
    pub message: String,
}

/// Step of an object in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectStep {
    /// It was written.
    Applied,
    /// It was already as it is to be.
    Unchanged,
    /// Its deletion was requested.
    Deleting,
    /// It is not there any more.
    Gone,
    /// It is left as it is: it is not this environment's, or says that it is to be kept.
    Kept,
    /// It could not be done.
    Failed,
    /// It has to be gone first, and is not yet.
    Waiting,
}

/// Result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Objects that are the environment's and in the cluster now, with those that could not be looked at and may be.
    /// They replace what was recorded.
    pub objects: Vec<ObjectRef>,
    /// Errors; empty: all is as it was asked for, except for `left`.
    pub errors: Vec<ObjectError>,
    /// Objects that are to go and are still there.
    pub left: Vec<Blocker>,
}

/// Error about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError {
    /// The object; `None`: the error is about the whole call.
    pub object: Option<ObjectRef>,
    /// Code of the error.
    pub code: ObjectErrorCode,
    /// For people.
    pub message: String,
}

/// Code of an error about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectErrorCode {
    /// It is there and not this environment's, or says that it is to be kept. To an apply: nothing was applied. To a remove: it was
    /// left as it is and is not the environment's any more, and the others were removed.
    NotOwned,
    /// The identity may not do it.
    Forbidden,
    /// The API server does not take it as it is.
    Invalid,
    /// The API server has no such kind.
    UnknownKind,
    /// Its namespace is not there.
    NamespaceMissing,
    /// Another client changes it, or it is still being deleted.
    Conflict,
    /// The API server does not answer.
    Unavailable,
    /// The agent does not act for a user of that name.
    Identity,
    /// A newer call for this environment came.
    Superseded,
}

impl CallAnswer {
    /// Encodes it with its length in front. Texts are cut to their bounds, and lists to their longest length.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        use wire::environment_answer::Body;
        let body = match self {
            Self::Progress(progress) => Body::Progress(wire::EnvironmentProgress {
                object: Some(progress.object.to_wire()),
                step: progress.step.to_wire() as i32,
                message: plain(&progress.message),
            }),
            Self::Done(done) => Body::Done(wire::EnvironmentDone {
                objects: done.objects.iter().take(TRACKED_MAX).map(ObjectRef::to_wire).collect(),
                errors: done.errors.iter().take(ERRORS_MAX).map(ObjectError::to_wire).collect(),
                left: done.left.iter().take(ENTRIES_MAX).map(Blocker::to_wire).collect(),
            }),
        };
        delimited(&wire::EnvironmentAnswer { body: Some(body) })
    }
}

impl Message for CallAnswer {
    fn decode(bytes: Bytes) -> Result<Self, MessageError> {
        use wire::environment_answer::Body;
        let answer: wire::EnvironmentAnswer = prost::Message::decode(bytes).map_err(|_| MessageError::Malformed)?;
        Ok(match answer.body.ok_or(MessageError::UnknownBody)? {
            Body::Progress(progress) => Self::Progress(CallProgress {
                object: ObjectRef::from_wire(progress.object.ok_or(MessageError::Field { field: "object" })?)?,
                step: ObjectStep::from_wire(progress.step),
                message: plain(&progress.message),
            }),
            Body::Done(done) => {
                if done.objects.len() > TRACKED_MAX {
                    return Err(MessageError::Field { field: "objects" });
                }
                let errors = done.errors.into_iter().take(ERRORS_MAX).map(ObjectError::from_wire);
                Self::Done(Done {
                    objects: done.objects.into_iter().map(ObjectRef::from_wire).collect::<Result<_, _>>()?,
                    errors: errors.collect::<Result<_, _>>()?,
                    left: done.left.iter().take(ENTRIES_MAX).map(Blocker::from_wire).collect(),
                })
            }
        })
    }
}

impl ObjectStep {
    const ALL: [Self; 7] =
        [Self::Applied, Self::Unchanged, Self::Deleting, Self::Gone, Self::Kept, Self::Failed, Self::Waiting];

    /// Returns the step as one lower-case word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Deleting => "deleting",
            Self::Gone => "gone",
            Self::Kept => "kept",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
        }
    }

    /// Returns the step of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.as_str() == word)
    }

    fn to_wire(self) -> wire::EnvironmentStep {
        match self {
            Self::Applied => wire::EnvironmentStep::Applied,
            Self::Unchanged => wire::EnvironmentStep::Unchanged,
            Self::Deleting => wire::EnvironmentStep::Deleting,
            Self::Gone => wire::EnvironmentStep::Gone,
            Self::Kept => wire::EnvironmentStep::Kept,
            Self::Failed => wire::EnvironmentStep::Failed,
            Self::Waiting => wire::EnvironmentStep::Waiting,
        }
    }

    /// A step of a newer agent counts as one that goes on: nothing is decided by it.
    fn from_wire(step: i32) -> Self {
        match wire::EnvironmentStep::try_from(step) {
            Ok(wire::EnvironmentStep::Applied) => Self::Applied,
            Ok(wire::EnvironmentStep::Unchanged) => Self::Unchanged,
            Ok(wire::EnvironmentStep::Deleting) => Self::Deleting,
            Ok(wire::EnvironmentStep::Gone) => Self::Gone,
            Ok(wire::EnvironmentStep::Kept) => Self::Kept,
            Ok(wire::EnvironmentStep::Failed) => Self::Failed,
            Ok(wire::EnvironmentStep::Waiting | wire::EnvironmentStep::Unknown) | Err(_) => Self::Waiting,
        }
    }
}

impl ObjectError {
    fn to_wire(&self) -> wire::ObjectError {
        let code = match self.code {
            ObjectErrorCode::NotOwned => wire::ObjectErrorCode::NotOwned,
            ObjectErrorCode::Forbidden => wire::ObjectErrorCode::Forbidden,
            ObjectErrorCode::Invalid => wire::ObjectErrorCode::Invalid,
            ObjectErrorCode::UnknownKind => wire::ObjectErrorCode::UnknownKind,
            ObjectErrorCode::NamespaceMissing => wire::ObjectErrorCode::NamespaceMissing,
            ObjectErrorCode::Conflict => wire::ObjectErrorCode::Conflict,
            ObjectErrorCode::Unavailable => wire::ObjectErrorCode::Unavailable,
            ObjectErrorCode::Identity => wire::ObjectErrorCode::Identity,
            ObjectErrorCode::Superseded => wire::ObjectErrorCode::Superseded,
        };
        let object = self.object.as_ref().map(ObjectRef::to_wire);
        wire::ObjectError { object, code: code as i32, message: plain(&self.message) }
    }

    fn from_wire(error: wire::ObjectError) -> Result<Self, MessageError> {
        let code = match wire::ObjectErrorCode::try_from(error.code) {
            Ok(wire::ObjectErrorCode::NotOwned) => ObjectErrorCode::NotOwned,
            Ok(wire::ObjectErrorCode::Forbidden) => ObjectErrorCode::Forbidden,
            // An error of a newer agent that is not known here: the same call again helps least of all.
            Ok(wire::ObjectErrorCode::Invalid | wire::ObjectErrorCode::Unknown) | Err(_) => ObjectErrorCode::Invalid,
            Ok(wire::ObjectErrorCode::UnknownKind) => ObjectErrorCode::UnknownKind,
            Ok(wire::ObjectErrorCode::NamespaceMissing) => ObjectErrorCode::NamespaceMissing,
            Ok(wire::ObjectErrorCode::Conflict) => ObjectErrorCode::Conflict,
            Ok(wire::ObjectErrorCode::Unavailable) => ObjectErrorCode::Unavailable,
            Ok(wire::ObjectErrorCode::Identity) => ObjectErrorCode::Identity,
            Ok(wire::ObjectErrorCode::Superseded) => ObjectErrorCode::Superseded,
        };
        let object = error.object.map(ObjectRef::from_wire).transpose()?;
        Ok(Self { object, code, message: plain(&error.message) })
    }
}
