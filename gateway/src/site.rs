//! The public host: sign-in, the API, and the pages.

pub(crate) mod public_host;
mod sign_in_pages;
mod zone;
