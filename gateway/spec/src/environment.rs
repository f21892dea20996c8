//! Environments of CI jobs: the facts of one, the templates of its objects, and the rules for what may be applied.

#[cfg(test)]
mod example_tests;
pub mod facts;
pub mod labels;
pub mod manifest;
pub mod slug;
pub mod template;
