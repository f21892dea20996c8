//! Requests of a workspace that CI cannot fulfil, or problems of the input for a pipeline.

use thiserror::Error;

/// Longest message, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}{}{message}", if .place.is_empty() { "" } else { ": " })]
pub struct PipelineProblem {
    /// Place: `component NAME`, `command ID`, `variable NAME`, `project`, a setting; empty for the whole.
    pub place: String,
    /// Description of the problem.
    pub message: String,
}

impl PipelineProblem {
    /// Makes a problem. Texts that are too long for people are cut.
    pub(super) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: cut(place.into()), message: cut(message.into()) }
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
