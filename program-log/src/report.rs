//! Lines that this crate writes about itself, in the form of the log around them.

use std::fmt::Write;

use serde_json::json;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Form of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `TIME LEVEL MESSAGE KEY=VALUE…`
    #[default]
    Text,
    /// One object per line, as `tracing-subscriber` writes it.
    Json,
}

impl Form {
    /// Writes one event as a line, with its end.
    pub(crate) fn line(self, level: &str, message: &str, fields: &[(&str, &str)]) -> String {
        match self {
            Self::Text => {
                let mut line = format!("{} {level:>5} {message}", now());
                for (name, value) in fields {
                    // Writing into a string cannot fail.
                    write!(line, " {name}={value:?}").unwrap_or_default();
                }
                line + "\n"
            }
            Self::Json => {
                let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
                let fields: serde_json::Map<_, _> =
                    std::iter::once(("message".to_owned(), json!(message))).chain(fields).collect();
                format!("{}\n", json!({"timestamp": now(), "level": level, "fields": fields}))
            }
        }
    }

    /// Writes the report of lost lines.
    pub(crate) fn lost(self, lines: u64, because: &str) -> String {
        self.line("WARN", "lines of this log were lost", &[("lines", &lines.to_string()), ("because", because)])
    }
}

/// Writes the time in the form of the log's lines.
fn now() -> String {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time)).unwrap_or_default();
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_one_line_in_either_form() {
        let text = Form::Text.lost(3, "No space left\non device");
        assert!(
            text.ends_with(" WARN lines of this log were lost lines=\"3\" because=\"No space left\\non device\"\n"),
            "{text}"
        );
        let json = Form::Json.lost(3, "No space left\non device");
        assert_eq!(json.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["fields"]["lines"], "3");
        assert_eq!(value["level"], "WARN");
    }
}
