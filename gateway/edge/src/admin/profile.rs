//! Processor profiles of this process: where its time goes, sampled for some seconds, as folded stacks (`a;b;c 12` on each line), which
//! flame graph tools read.
//!
//! Only in programs that are built with the feature `profile`: the sampler's unwinder is in no other. While nothing is sampled it costs
//! nothing; while it runs, 99 interrupts for each second of processor time.

use std::time::Duration;

use axum::extract::Query;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

/// Longest time of a profile, in seconds.
const SECONDS_MAX: u64 = 60;

/// Length of a profile.
#[derive(Debug, Deserialize)]
pub(super) struct Length {
    seconds: Option<u64>,
}

/// Samples for so many seconds (10, unless it is said), and answers with the stacks.
pub(super) async fn show(Query(Length { seconds }): Query<Length>) -> Response {
    let seconds = seconds.unwrap_or(10);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        let words = format!("seconds is 1 to {SECONDS_MAX}\n");
        return (StatusCode::BAD_REQUEST, words).into_response();
    }
    match sample(Duration::from_secs(seconds)).await {
        Ok(stacks) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], stacks).into_response(),
        #[cfg(feature = "profile")]
        Err(NotSampled::Running) => (StatusCode::CONFLICT, "another profile is being taken\n").into_response(),
        #[cfg(not(feature = "profile"))]
        Err(NotSampled::Absent) => {
            let words = "this program is built without profiles: cargo build --features profile\n";
            (StatusCode::NOT_IMPLEMENTED, words).into_response()
        }
        #[cfg(feature = "profile")]
        Err(NotSampled::Failed(why)) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
    }
}

/// Reason why there is no profile.
enum NotSampled {
    /// One is being taken already.
    #[cfg(feature = "profile")]
    Running,
    /// The program has no sampler.
    #[cfg(not(feature = "profile"))]
    Absent,
    /// The sampler's own reason.
    #[cfg(feature = "profile")]
    Failed(String),
}

#[cfg(not(feature = "profile"))]
#[expect(clippy::unused_async, reason = "the same as with a sampler")]
async fn sample(_for_long: Duration) -> Result<String, NotSampled> {
    Err(NotSampled::Absent)
}

/// Cancel safety: dropped, the sampling ends.
#[cfg(feature = "profile")]
async fn sample(for_long: Duration) -> Result<String, NotSampled> {
    /// Samples in a second of processor time; no divisor of the intervals of timers.
    const FREQUENCY: i32 = 99;
    let guard = match pprof::ProfilerGuard::new(FREQUENCY) {
        Ok(guard) => guard,
        Err(pprof::Error::Running) => return Err(NotSampled::Running),
        Err(error) => return Err(NotSampled::Failed(format!("{error}\n"))),
    };
    tokio::time::sleep(for_long).await;
    // Names of functions are looked up in the program's file.
    let folded = tokio::task::spawn_blocking(move || guard.report().build().map(|report| folded(&report)));
    match folded.await {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(NotSampled::Failed(format!("{error}\n"))),
        Err(error) => Err(NotSampled::Failed(format!("{error}\n"))),
    }
}

/// Writes each stack from its root, with its thread first, and the number of its samples.
#[cfg(feature = "profile")]
fn folded(report: &pprof::Report) -> String {
    let line = |(frames, count): (&pprof::Frames, &isize)| {
        let thread = std::iter::once(frames.thread_name_or_id());
        let names = frames.frames.iter().rev().flat_map(|inlined| inlined.iter().rev().map(|symbol| symbol.name()));
        let stack: Vec<String> = thread.chain(names).map(|name| name.replace([';', '\n'], ":")).collect();
        format!("{} {count}\n", stack.join(";"))
    };
    let mut lines: Vec<String> = report.data.iter().map(line).collect();
    lines.sort();
    lines.concat()
}
