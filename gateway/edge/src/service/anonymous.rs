//! Bounds the cost of clients without a valid credential: counted by address, refused by name.
//!
//! A client with a valid credential is never kept out by others of its address, as long as no look-up in the store is
//! needed for that: a session and a token that was used lately are known without one.

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tokio::time::Instant;

use super::Origin;
use gateway_auth::policy::{Decision, RequestShape};
use gateway_auth::request::OfferedCredential;
use gateway_http::respond::Failure;
use gateway_types::Limit;
use gateway_types::principal::Principal;

/// Makes the failure that names a limit.
pub fn overloaded(limit: Limit) -> Failure {
    Failure::Overloaded { limit: limit.name() }
}

/// Counts a request at a workspace's host by the decision on it.
pub(super) fn count(
    decision: &Decision,
    offered: &OfferedCredential,
    shape: RequestShape,
    origin: &Origin,
    now: Instant,
) -> Result<(), Failure> {
    let guest = &origin.guest;
    match decision {
        Decision::Allow(grant) if grant.user().is_some() => guest.prove(),
        // A known user is behind these, however the request came: strangers get other answers.
        Decision::NotFound | Decision::PortNotAllowed => guest.prove(),
        // A page visit begins the way to sign in, whatever old cookie it carries.
        Decision::Allow(_) | Decision::SignIn => guest.ask(now.into_std()).map_err(overloaded)?,
        Decision::Unauthorized => {
            guest.ask(now.into_std()).map_err(overloaded)?;
            if is_bad(offered, shape.cookie_counts()) {
                guest.fail(now.into_std()).map_err(overloaded)?;
            }
        }
    }
    Ok(())
}

/// Counts a request at the public host by whether its user is known.
pub(super) fn count_visitor(
    principal: Option<&Principal>,
    offered: &OfferedCredential,
    origin: &Origin,
    now: Instant,
) -> Result<(), Failure> {
    let guest = &origin.guest;
    if principal.is_some() {
        guest.prove();
        return Ok(());
    }
    guest.ask(now.into_std()).map_err(overloaded)?;
    // Users come to this host with old cookies, to sign in again.
    if is_bad(offered, false) {
        guest.fail(now.into_std()).map_err(overloaded)?;
    }
    Ok(())
}

/// Counts a credential that belongs to no user, and was checked without a look-up.
///
/// # Errors
/// [`Failure`] of the limits when the address has had its share.
pub fn checked(is_good: bool, is_bad: bool, origin: &Origin, now: Instant) -> Result<(), Failure> {
    let guest = &origin.guest;
    if is_good {
        guest.prove();
        return Ok(());
    }
    guest.ask(now.into_std()).map_err(overloaded)?;
    if is_bad {
        guest.fail(now.into_std()).map_err(overloaded)?;
    }
    Ok(())
}

/// Returns whether a credential that proved no user was meant to prove one.
fn is_bad(offered: &OfferedCredential, cookie_counts: bool) -> bool {
    match offered {
        OfferedCredential::Nothing => false,
        OfferedCredential::Session(_) => cookie_counts,
        OfferedCredential::Token(_) | OfferedCredential::Refused => true,
    }
}

/// Counts a code that a sign-in page did not accept. A good one is never refused.
///
/// # Errors
/// [`Failure`] of the limits when the address has had its share.
pub fn tried(parts: &Parts, answer: &Response<Bytes>, origin: &Origin, now: Instant) -> Result<(), Failure> {
    let has_code = parts.uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("code=")));
    if has_code && answer.status().is_client_error() {
        origin.guest.fail(now.into_std()).map_err(overloaded)?;
    }
    Ok(())
}
