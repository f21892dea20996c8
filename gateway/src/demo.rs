//! (being written)

pub mod app;
