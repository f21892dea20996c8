//! The code of the fuzz target.
//!
//! `gateway/http1-guard/tests/fuzz_replay.rs` includes this file too, so that the committed corpus runs in every
//! `cargo test`.

#![allow(clippy::panic, clippy::indexing_slicing, reason = "a broken law ends the test case")]

pub mod heads;
