//! One record as one line of JSON, in ASCII.

use std::fmt::Write;

use serde::Serialize;

use super::event::{Credential, Event, Text};
use super::{Record, Timed};
use crate::model::UnixSeconds;

/// Version of the lines' shape: it grows when a field changes its meaning or goes.
pub(super) const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    time: String,
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<&'a Credential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a Text>,
}

/// Writes a record as a line, without its end.
pub(super) fn line(timed: &Timed) -> String {
    let Timed { at_ms, record: Record { event, peer, credential, trace } } = timed;
    let line = Line {
        v: SCHEMA,
        time: time(*at_ms),
        event,
        peer: peer.map(|peer| peer.to_canonical().to_string()),
        credential: credential.as_ref(),
        trace: trace.as_ref(),
    };
    // Nothing in it can fail to be JSON: all keys are texts.
    ascii(&serde_json::to_string(&line).unwrap_or_default())
}

/// Writes a time as RFC 3339 in UTC with milliseconds.
fn time(at_ms: u64) -> String {
    let seconds = UnixSeconds::new(i64::try_from(at_ms / 1000).unwrap_or(i64::MAX)).to_string();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), at_ms % 1000)
}

/// Escapes everything that is not printable ASCII (RFC 8259, section 7), so that no terminal or viewer can be steered by
/// what somebody called their machine. Such characters stand only inside strings.
fn ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            escaped.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                // Writing into a string cannot fail.
                write!(escaped, "\\u{unit:04x}").unwrap_or_default();
            }
        }
    }
    escaped
}
