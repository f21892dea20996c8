//! One record as one line of JSON, in ASCII.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use super::AuditRecord;
use super::event::{AuditEvent, Credential, Text};
use gateway_types::UnixSeconds;

/// Version of the lines' schema: increased when a field changes its meaning or is removed.
pub(super) const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct AuditLine<'a> {
    v: u32,
    time: String,
    #[serde(flatten)]
    event: &'a AuditEvent,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<&'a Credential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a Text>,
}

/// Writes a record as a line, without its end.
pub(super) fn line(at_ms: u64, record: &AuditRecord) -> String {
    // Serialisation cannot fail: all keys are texts.
    ascii(&serde_json::to_string(&AuditLine::of(at_ms, record)).unwrap_or_default())
}

/// Writes a record as words, for a log that people read: `EVENT KEY=VALUE…`. The log has the time.
pub(super) fn words(record: &AuditRecord) -> String {
    let line = serde_json::to_value(AuditLine::of(0, record)).unwrap_or_default();
    let Some(fields) = line.as_object() else { return String::new() };
    let mut words = fields.get("event").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (name, value) in fields.iter().filter(|(name, _)| !matches!(name.as_str(), "v" | "time" | "event")) {
        // Writing into a string cannot fail.
        write!(words, " {name}={value}").unwrap_or_default();
    }
    ascii(&words)
}

impl<'a> AuditLine<'a> {
    fn of(at_ms: u64, record: &'a AuditRecord) -> Self {
        let AuditRecord { event, peer, credential, trace } = record;
        Self {
            v: SCHEMA,
            time: time(at_ms),
            event,
            peer: peer.map(|peer| peer.to_canonical().to_string()),
            credential: credential.as_ref(),
            trace: trace.as_ref(),
        }
    }
}

/// Writes a time as RFC 3339 in UTC with milliseconds.
fn time(at_ms: u64) -> String {
    let seconds = UnixSeconds::of_milliseconds(at_ms).to_string();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), at_ms % 1000)
}

/// Escapes everything that is not printable ASCII (RFC 8259, section 7), so that no terminal or viewer can be steered
/// by, say, the name of a user's machine. Such characters stand only inside strings.
pub(super) fn ascii(json: &str) -> String {
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
