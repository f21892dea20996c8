//! Events of an environment as they happen (server-sent events, HTML Living Standard, section 9.2), or the outcome
//! alone.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use futures_util::stream;
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};

use super::CallerPermit;
use super::view::{EventRow, OutcomeRow};
use crate::problem::{ApiProblem, Objects, ProblemRow};
use crate::{ApiShared, answer};
use gateway_environments::progress::ProgressStream;
use gateway_environments::refusal::RefusalCode;

/// Longest silence of a stream, so that no proxy takes it for dead.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// Returns whether a client asks for events as they happen.
pub(super) fn wants_events(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.split(',').any(|kind| kind.trim_start().starts_with("text/event-stream")))
}

/// Streams events as they happen.
pub(super) fn events(api: &Arc<ApiShared>, following: ProgressStream, held: CallerPermit) -> Response {
    let teller = Teller { api: api.clone(), following, is_over: false, held };
    answer::events(stream::unfold(teller, Teller::next))
}

struct Teller {
    api: Arc<ApiShared>,
    following: ProgressStream,
    is_over: bool,
    held: CallerPermit,
}

impl Teller {
    /// Waits for something to tell. A drain ends it without an event, so that the listener asks again, elsewhere; so
    /// does the end of a job's right to listen.
    async fn next(mut self) -> Option<(Result<String, Infallible>, Self)> {
        if self.is_over {
            return None;
        }
        let draining = self.api.drain.draining().clone();
        let text = tokio::select! {
            biased;
            () = draining.cancelled() => return None,
            () = self.held.ended() => return None,
            event = self.following.next() => {
                let event = EventRow::from(event?);
                self.is_over = matches!(event, EventRow::Done(_));
                told(&event)
            }
            () = tokio::time::sleep(HEARTBEAT_INTERVAL) => ":\n\n".to_owned(),
        };
        Some((Ok(text), self))
    }
}

/// Writes an event.
fn told(event: &EventRow) -> String {
    // The text has no line break: JSON escapes them.
    let data = serde_json::to_string(event).unwrap_or_default();
    let mut text = String::with_capacity(data.len() + 32);
    // Writing into a string cannot fail.
    write!(text, "event: {}\ndata: {data}\n\n", event.name()).unwrap_or_default();
    text
}

/// Waits for the end and answers with that alone.
pub(super) async fn end(
    api: &ApiShared,
    following: ProgressStream,
    held: CallerPermit,
) -> Result<Response, ProblemRow> {
    let draining = api.drain.draining().clone();
    let outcome = tokio::select! {
        biased;
        () = draining.cancelled() => return Err(ApiProblem::Overloaded { limit: "draining" }.into()),
        () = held.ended() => return Err(ApiProblem::NotSuchJob { reason: "credential_ended" }.into()),
        outcome = following.outcome() => outcome,
    };
    drop(held);
    let row = OutcomeRow::from(outcome);
    match &row.code {
        None => Ok(answer::json(StatusCode::OK, &row)),
        Some(code) => {
            let objects = Objects { errors: row.errors.clone(), left: row.left.clone() };
            // A code that another version stored at least means a failure.
            let known = RefusalCode::ALL.into_iter().find(|known| known.as_str() == code);
            Err(ProblemRow::ended(known.unwrap_or(RefusalCode::ObjectsFailed), objects))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn event_is_one_line_of_data_whatever_is_in_it() {
        let event =
            EventRow::Retrying { code: "x".to_owned(), message: "a\nb\r\ndata: c".to_owned(), at: String::new() };
        let text = told(&event);
        assert_eq!(text.lines().count(), 3, "{text:?}");
        assert!(text.starts_with("event: retrying\ndata: {") && text.ends_with("}\n\n"), "{text:?}");
    }

    #[test]
    fn events_are_for_those_who_accept_them() {
        let wants = |value: &'static str| {
            wants_events(&[(ACCEPT, HeaderValue::from_static(value))].into_iter().collect::<HeaderMap>())
        };
        assert!(wants("text/event-stream") && wants("application/json;q=0.1, text/event-stream"));
        assert!(!wants("*/*") && !wants("application/json") && !wants_events(&HeaderMap::new()));
    }
}
