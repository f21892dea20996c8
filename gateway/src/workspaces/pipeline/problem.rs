//! What a workspace asks for and CI cannot give, or what is wrong with what a pipeline should be made from.

use thiserror::Error;

/// Longest message, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}{}{message}", if .place.is_empty() { "" } else { ": " })]
pub struct PipelineProblem {
    /// Where: `component NAME`, `command ID`, `variable NAME`, `project`, a setting; empty for the whole.
    pub place: String,
    /// What is wrong there.
    pub message: String,
}

impl PipelineProblem {
    /// Says what is wrong somewhere. What is too long for people is cut.
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
