//! The engine: worker threads, each with its own runtime and connections.
