//! Bytes that depend on their position: any byte lost, repeated or moved is seen.
