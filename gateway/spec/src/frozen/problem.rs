//! Problems of a frozen config, or of the input for one.

use thiserror::Error;

use super::FROZEN_BYTES_MAX;

/// Longest message about a value, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}{}{message}", if .place.is_empty() { "" } else { ": " })]
pub struct FrozenProblem {
    /// Place: an object (`Deployment NAME`), an input (`name`, `component NAME`); empty for the whole.
    pub place: String,
    /// Description of the problem.
    pub message: String,
}

impl FrozenProblem {
    /// Makes a problem. Texts that are too long for people are cut.
    pub(super) fn new(place: String, message: impl Into<String>) -> Self {
        Self { place: cut(place), message: cut(message.into()) }
    }

    pub(super) fn too_large() -> Self {
        let kib = FROZEN_BYTES_MAX / 1024;
        Self::new(String::new(), format!("the Kubernetes objects of the workspace are larger than {kib} KiB together"))
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
