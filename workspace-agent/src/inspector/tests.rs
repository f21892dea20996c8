//! The recorder with the log that it fills, and the pages' hostile content.

mod bytes;
mod pages;
