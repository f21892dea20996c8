//! A person that the gateway knows, and how it knows.

use std::sync::Arc;

use crate::model::{GroupName, UserName};

/// How a principal proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A session cookie, which a browser attaches on its own: whoever caused the request need not be the user.
    Browser,
    /// An API token, which only a program that holds it can attach.
    ApiToken,
}

/// A signed-in user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Who it is.
    pub user: UserName,
    /// The groups that the identity provider puts them into.
    pub groups: Arc<[GroupName]>,
    /// How the gateway knows.
    pub via: Via,
}
