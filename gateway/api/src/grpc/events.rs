//! Converts rows and events to messages.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use tonic::{Code, Status};

use super::status::{grpc_code, with_code};
use super::wire;
use crate::ApiShared;
use crate::environments::CallerPermit;
use crate::environments::view::{EnvironmentRow, EventRow, ObjectErrorRow, ObjectRow, OutcomeRow};
use crate::problem::ApiProblem;
use crate::problem::line::{WORDS_BYTES_MAX, cut};
use crate::state::BlockerRow;
use gateway_environments::progress::ProgressStream;
use gateway_environments::refusal::RefusalCode;

impl From<ObjectRow> for wire::Object {
    fn from(row: ObjectRow) -> Self {
        let ObjectRow { group, version, kind, namespace, name, uid } = row;
        Self { group, version, kind, namespace, name, uid }
    }
}

impl From<ObjectErrorRow> for wire::ObjectError {
    fn from(row: ObjectErrorRow) -> Self {
        Self { object: row.object.map(wire::Object::from), code: row.code, message: row.message }
    }
}

impl From<BlockerRow> for wire::Blocker {
    fn from(row: BlockerRow) -> Self {
        let since = row.since.unwrap_or_default();
        Self { object: row.object, finalizers: row.finalizers, since, message: row.message }
    }
}

impl From<EnvironmentRow> for wire::Shown {
    fn from(row: EnvironmentRow) -> Self {
        Self {
            id: row.id,
            agent_name: row.agent,
            project_id: row.project_id,
            project_path: row.project_path,
            name: row.name,
            slug: row.slug,
            key: row.key,
            tier: row.tier.unwrap_or_default(),
            url: row.url.unwrap_or_default(),
            state: row.state.to_owned(),
            since: row.since,
            template: row.template.unwrap_or_default(),
            deletion: row.deletion.unwrap_or_default(),
            objects: row.objects.into_iter().map(wire::Object::from).collect(),
            is_removal_due: row.removal_due,
            failure: row.failure.map(|failure| format!("{}: {}", failure.code, failure.message)).unwrap_or_default(),
            left: row.left.into_iter().map(wire::Blocker::from).collect(),
            page_url: row.page_url,
            reason: row.reason.unwrap_or_default(),
        }
    }
}

impl From<OutcomeRow> for wire::Done {
    fn from(row: OutcomeRow) -> Self {
        Self {
            outcome: row.outcome.to_owned(),
            code: row.code.unwrap_or_default(),
            message: row.message.unwrap_or_default(),
            objects: row.objects.into_iter().map(wire::Object::from).collect(),
            errors: row.errors.into_iter().map(wire::ObjectError::from).collect(),
            left: row.left.into_iter().map(wire::Blocker::from).collect(),
            environment: row.environment.map(wire::Shown::from),
            met: row.met.unwrap_or_default().to_owned(),
        }
    }
}

impl From<EventRow> for wire::Event {
    fn from(row: EventRow) -> Self {
        use wire::event::Event;
        let event = match row {
            EventRow::Waiting { why } => Event::Waiting(wire::Waiting { why: why.to_owned() }),
            EventRow::Object { object, step, message } => {
                Event::Object(wire::Progress { object: Some(object.into()), step: step.to_owned(), message })
            }
            EventRow::Retrying { code, message, at } => Event::Retrying(wire::Retrying { code, message, at }),
            EventRow::Done(outcome) => Event::Done((*outcome).into()),
        };
        Self { event: Some(event) }
    }
}

/// Events of an operation, as they come.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<wire::Event, Status>> + Send>>;

/// State of a stream.
enum Telling {
    /// Events are still to come.
    Following(Box<(Arc<ApiShared>, ProgressStream, CallerPermit)>),
    /// The end was told, and it was a failure.
    Failed(Status),
    /// Nothing comes any more.
    Over,
}

/// Streams the events, and at the end the status of a failure.
pub(super) fn events(api: Arc<ApiShared>, following: ProgressStream, held: CallerPermit) -> Events {
    Box::pin(stream::unfold(Telling::Following(Box::new((api, following, held))), next))
}

async fn next(telling: Telling) -> Option<(Result<wire::Event, Status>, Telling)> {
    let mut parts = match telling {
        Telling::Following(parts) => parts,
        Telling::Failed(status) => return Some((Err(status), Telling::Over)),
        Telling::Over => return None,
    };
    let draining = parts.0.drain.draining().clone();
    let event = tokio::select! {
        biased;
        () = draining.cancelled() => {
            let status = Status::new(Code::Unavailable, "the gateway is going down: call again");
            return Some((Err(with_code(status, "draining")), Telling::Over));
        }
        () = parts.2.ended() => {
            let status = Status::new(Code::Unauthenticated, "the job's right to listen has ended");
            return Some((Err(with_code(status, "job_refused")), Telling::Over));
        }
        event = parts.1.next() => EventRow::from(event?),
    };
    let after = match &event {
        EventRow::Done(outcome) => match &outcome.code {
            Some(code) => Telling::Failed(failed(code, outcome.message.as_deref().unwrap_or_default())),
            None => Telling::Over,
        },
        EventRow::Waiting { .. } | EventRow::Object { .. } | EventRow::Retrying { .. } => Telling::Following(parts),
    };
    Some((Ok(event.into()), after))
}

/// Makes the status of an operation that has failed.
fn failed(code: &str, message: &str) -> Status {
    // A code that another version stored at least means a failure.
    let known = RefusalCode::ALL.into_iter().find(|known| known.as_str() == code);
    let known = known.unwrap_or(RefusalCode::ObjectsFailed);
    let status = ApiProblem::Environment(known).status();
    // The event before it has the whole message.
    let message = cut(message, WORDS_BYTES_MAX);
    with_code(Status::new(grpc_code(known.as_str(), status), message), known.as_str())
}
