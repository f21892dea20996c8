//! Progress while a run goes on: one line redrawn on a terminal, plain lines elsewhere.

use crate::outcome::Second;

/// Where progress goes.
#[derive(Clone, Debug, Default)]
pub struct Live {
    quiet: bool,
}

impl Live {
    /// Makes one that tells nothing.
    #[must_use]
    pub const fn quiet() -> Self {
        Self { quiet: true }
    }

    /// Tells how one second went.
    pub fn second(&self, _second: &Second) {}

    /// Tells something in words.
    pub fn note(&self, _words: &str) {}
}
