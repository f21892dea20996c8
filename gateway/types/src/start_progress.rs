//! How far the start of a workspace's pod is, as the store keeps it: JSON, for people.

use serde::Deserialize;
use serde_json::json;

pub use tunnel_proto::reconcile::{StartProgress, StartStep};

/// A missing member is empty: older and newer programs write the same column.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    steps: Vec<String>,
    done: usize,
}

/// Writes it.
#[must_use]
pub fn to_json(start: &StartProgress) -> String {
    let steps: Vec<_> = start.steps.iter().map(|step| step.as_str()).collect();
    json!({"steps": steps, "done": start.done}).to_string()
}

/// Reads it. It is only shown, so an unreadable one, and a step of another version, is left out.
#[must_use]
pub fn from_json(text: &str) -> StartProgress {
    let Stored { steps, done } = serde_json::from_str(text).unwrap_or_default();
    let known = |names: &[String]| names.iter().filter_map(|name| StartStep::named(name)).collect::<Vec<_>>();
    let done = known(steps.get(..done.min(steps.len())).unwrap_or_default()).len();
    StartProgress { steps: known(&steps), done }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_as_it_was_written_and_nonsense_is_nothing() {
        let start = StartProgress { steps: vec![StartStep::Node, StartStep::Tools, StartStep::Agent], done: 2 };
        assert_eq!(from_json(&to_json(&start)), start);
        for text in ["", "null", "[]", r#"{"steps": 1}"#, r#"{"steps": [1], "done": 1}"#, r#"{"done": -1}"#] {
            assert_eq!(from_json(text), StartProgress::default(), "{text}");
        }
        let later = from_json(r#"{"steps": ["node", "warmth", "agent"], "done": 9, "more": 1}"#);
        assert_eq!(later, StartProgress { steps: vec![StartStep::Node, StartStep::Agent], done: 2 });
    }
}
