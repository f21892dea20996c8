//! Credentials for git servers: users store them, sealed, and programs in their workspaces get them, one host at a time.
//!
//! ```text
//! git in a workspace -> its helper -> gateway-agents -> credentials -> store (sealed)
//!                                                         step, oauth -> the git server's token endpoint
//! ```
//!
//! * [`credentials`]: the answer to a workspace's question, bounded in its rate.
//! * [`step`]: what is to be done about an access token. Pure.
//! * [`oauth`]: exchanges refresh tokens for access tokens, at servers that the operator named.

pub mod credentials;
pub mod oauth;
pub mod step;
