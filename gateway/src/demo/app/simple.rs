//! `/status`, `/slow` and `/health`: answers for tests of the way back.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;

use super::open::{OpenCount, OpenCounts, OpenKind};
use super::{DemoApp, problem};

/// The longest answer of `/slow`.
const SLOW_MAX: Duration = Duration::from_secs(600);

/// Answers with the status in the path. Interim ones are refused: they cannot end a request (RFC 9110, section 15.2).
pub(super) async fn status(Path(code): Path<u16>) -> Response {
    match StatusCode::from_u16(code) {
        Ok(status) if status.is_informational() => {
            problem(StatusCode::BAD_REQUEST, "an interim status cannot be an answer")
        }
        Ok(status) if matches!(status.as_u16(), 204 | 205 | 304) => status.into_response(),
        Ok(status) => (status, format!("{status}\n")).into_response(),
        Err(_) => problem(StatusCode::BAD_REQUEST, "a status is a number from 200 to 999"),
    }
}

/// Query of `/slow`.
#[derive(Deserialize)]
pub(super) struct Wait {
    seconds: f64,
}

/// Answers after a while, or early with 503 when the app stops. The wait ends with the client's connection.
pub(super) async fn slow(State(app): State<DemoApp>, Query(wait): Query<Wait>) -> Response {
    let wait = match Duration::try_from_secs_f64(wait.seconds) {
        Ok(wait) if wait <= SLOW_MAX => wait,
        Ok(_) | Err(_) => {
            return problem(StatusCode::BAD_REQUEST, "seconds is a number from 0 to 600");
        }
    };
    let _held = OpenCount::new(&app, OpenKind::Slow);
    match app.stop.run_until_cancelled(sleep(wait)).await {
        Some(()) => Json(json!({ "seconds": wait.as_secs_f64() })).into_response(),
        None => problem(StatusCode::SERVICE_UNAVAILABLE, "the sample app stops"),
    }
}

/// Answer of `/health`.
#[derive(Serialize)]
struct Health<'a> {
    status: &'static str,
    uptime_seconds: u64,
    open: &'a OpenCounts,
}

/// Answers that the app is well, for how long, and what is open.
pub(super) async fn health(State(app): State<DemoApp>) -> Response {
    let health = Health { status: "ok", uptime_seconds: app.uptime().as_secs(), open: &app.open };
    Json(health).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tokio::time::Instant;

    use super::super::tests::{RunningApp, answer, json_of, read_past};
    use super::*;

    #[tokio::test]
    async fn a_status_is_answered_as_asked() {
        for (path, expected) in [
            ("/status/200", 200),
            ("/status/204", 204),
            ("/status/304", 304),
            ("/status/418", 418),
            ("/status/503", 503),
            ("/status/999", 999),
            ("/status/101", 400),
            ("/status/99", 400),
            ("/status/many", 400),
        ] {
            let response = get(path).await;
            assert_eq!(response.status().as_u16(), expected, "{path}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.is_empty(), matches!(expected, 204 | 304), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_takes_its_time() {
        let began = Instant::now();
        let response = get("/slow?seconds=90.5").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(json_of(response).await["seconds"], 90.5);
        assert!(began.elapsed() >= Duration::from_millis(90_500));
    }

    #[tokio::test]
    async fn a_wait_that_is_no_duration_or_too_long_is_refused() {
        for seconds in ["-1", "NaN", "inf", "601", "soon", ""] {
            let response = get(&format!("/slow?seconds={seconds}")).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{seconds}");
        }
    }

    #[tokio::test]
    async fn a_stop_answers_a_slow_request_early() {
        let app = RunningApp::start().await;
        let mut slow = app.send(b"GET /slow?seconds=600 HTTP/1.1\r\nhost: app\r\n\r\n").await;
        wait_for_open(&app, "\"slow\":1").await;
        app.stop();
        read_past(&mut slow, b"503 Service Unavailable").await;
        app.stopped().await;
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_its_slow_request() {
        let app = RunningApp::start().await;
        let slow = app.send(b"GET /slow?seconds=600 HTTP/1.1\r\nhost: app\r\n\r\n").await;
        wait_for_open(&app, "\"slow\":1").await;
        drop(slow);
        wait_for_open(&app, "\"slow\":0").await;
    }

    #[tokio::test]
    async fn health_is_ok() {
        let response = get("/health").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(json_of(response).await["status"], "ok");
    }

    async fn get(target: &str) -> Response {
        answer(Request::get(target).body(Body::empty()).unwrap()).await
    }

    /// Asks until `count` is true; each question is a round trip, so this does not spin.
    async fn wait_for_open(app: &RunningApp, count: &str) {
        for _ in 0..10_000 {
            let mut socket = app.send(b"GET /health HTTP/1.1\r\nhost: app\r\n\r\n").await;
            let answer = read_past(&mut socket, b"}}").await;
            if String::from_utf8_lossy(&answer).contains(count) {
                return;
            }
        }
        panic!("never {count}");
    }
}
