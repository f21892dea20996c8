//! `/events`: server-sent events, one a second.
//!
//! Tick `n` is due `n` seconds after the start of the app, so ticks need no memory: a client that comes back with the
//! last id it saw gets the ticks between, and a gap in the numbers always means that something on the way lost one.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::sleep_until;

use super::open::{OpenCount, OpenKind};
use super::{DemoApp, unix_ms};

/// Most ticks that are replayed to a returning client.
const REPLAY_TICKS_MAX: u64 = 120;

/// Time that a browser waits before it reconnects.
const RETRY: Duration = Duration::from_secs(2);

/// The resume point of a client that cannot set `Last-Event-ID`: a new `EventSource` in a script.
#[derive(Deserialize)]
pub(super) struct Resume {
    last_event_id: Option<u64>,
}

/// Data of one event.
#[derive(Debug, PartialEq, Serialize)]
struct Tick {
    seq: u64,
    time_unix_ms: u64,
    uptime_seconds: u64,
    /// Whether the tick was due before this stream was opened.
    replayed: bool,
}

/// Streams ticks until the client leaves or the app stops.
pub(super) async fn stream(
    State(app): State<DemoApp>,
    Query(resume): Query<Resume>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let last = last_event_id(&headers).or(resume.last_event_id);
    let latest = app.uptime().as_secs();
    let first = first_tick(latest, last);
    let held = OpenCount::new(&app, OpenKind::Events);
    let stop = app.stop.clone();
    let ticks = stream::unfold((first, held), move |(seq, held)| {
        let app = app.clone();
        async move {
            sleep_until(app.started + Duration::from_secs(seq)).await;
            let tick =
                Tick { seq, time_unix_ms: unix_ms(), uptime_seconds: app.uptime().as_secs(), replayed: seq < latest };
            Some((Ok::<_, Infallible>(event(&tick)), (seq.saturating_add(1), held)))
        }
    });
    Sse::new(ticks.take_until(stop.cancelled_owned()))
}

/// The header wins: the browser sets it when it reconnects by itself, while the address stays as it was.
fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

/// Returns the tick a stream begins with: the latest one, or the one after `last` if that is not too long ago.
fn first_tick(latest: u64, last: Option<u64>) -> u64 {
    match last {
        // An id from the future is from an earlier run of the app.
        Some(last) if last <= latest => (last + 1).max(latest.saturating_sub(REPLAY_TICKS_MAX)),
        Some(_) | None => latest,
    }
}

fn event(tick: &Tick) -> Event {
    let event = Event::default().id(tick.seq.to_string()).retry(RETRY);
    match serde_json::to_string(tick) {
        Ok(data) => event.data(data),
        // Plain numbers always become JSON; a comment keeps the stream alive if that ever changes.
        Err(_) => event.comment("tick without data"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{RunningApp, read_past, read_to_end};
    use super::*;

    #[test]
    fn a_stream_begins_after_the_last_tick_that_the_client_saw() {
        for (latest, last, first) in [
            (50, None, 50),
            (50, Some(50), 51),
            (50, Some(47), 48),
            (500, Some(3), 500 - REPLAY_TICKS_MAX),
            (50, Some(51), 50),
            (u64::MAX, Some(u64::MAX - 1), u64::MAX),
        ] {
            assert_eq!(first_tick(latest, last), first, "{latest} {last:?}");
        }
    }

    #[tokio::test]
    async fn the_first_tick_comes_at_once_and_the_next_has_the_next_number() {
        let app = RunningApp::start().await;
        let mut socket = app.send(b"GET /events HTTP/1.1\r\nhost: app\r\n\r\n").await;
        let mut told = text(read_past(&mut socket, b"\n\n").await);
        assert!(told.contains("content-type: text/event-stream"), "{told}");
        // Which it is depends on how long ago the app began.
        let id = told.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
        let id: u64 = id.parse().unwrap();
        while told.matches("\n\n").count() < 2 {
            told += &text(read_past(&mut socket, b"\n\n").await);
        }
        for (event, id) in told.split("\n\n").take(2).zip(id..) {
            assert!(event.contains(&format!("id: {id}\n")), "{told}");
            assert!(event.contains("retry: 2000\n"), "{told}");
            assert!(event.contains(&format!("data: {{\"seq\":{id},\"time_unix_ms\":")), "{told}");
            assert!(event.contains("\"replayed\":false"), "{told}");
        }
    }

    #[tokio::test]
    async fn a_stop_ends_the_stream_in_good_order() {
        let app = RunningApp::start().await;
        let mut socket = app.send(b"GET /events HTTP/1.1\r\nhost: app\r\n\r\n").await;
        read_past(&mut socket, b"\n\n").await;
        app.stop();
        let rest = text(read_to_end(&mut socket).await);
        // The last chunk shows that the body was finished and not cut (RFC 9112, section 7.1).
        assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
        app.stopped().await;
    }

    #[tokio::test]
    async fn the_header_of_a_reconnect_wins_over_the_address() {
        let mut headers = HeaderMap::new();
        assert_eq!(last_event_id(&headers), None);
        headers.insert("last-event-id", "41".parse().unwrap());
        assert_eq!(last_event_id(&headers), Some(41));
        headers.insert("last-event-id", "nonsense".parse().unwrap());
        assert_eq!(last_event_id(&headers), None);
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }
}
