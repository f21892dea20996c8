//! Step 5 of a request's way: authenticates and authorises the caller, before anything is sent to an agent.

use http::HeaderValue;
use http::request::Parts;
use tokio::time::Instant;

use super::access::Judged;
use super::anonymous::count;
use super::failures::RequestFacts;
use super::server_timing;
use super::{Edge, EdgeAnswer, Origin};
use crate::address::Address;
use gateway_auth::policy::{Because, Decision, Grant, Purpose};
use gateway_auth::request::OfferedCredential;
use gateway_auth::sign_in::PageVisit;
use gateway_http::respond::Failure;
use gateway_types::Port;

/// A request to a workspace's host, as its steps read it.
pub(super) struct Visit<'a> {
    pub(super) parts: &'a Parts,
    /// Credential that the request offers.
    pub(super) offered: &'a OfferedCredential,
    pub(super) origin: &'a Origin,
    pub(super) address: &'a Address,
    /// Time at which its head was there.
    pub(super) now: Instant,
}

impl Edge {
    /// Authorises a request to a port. Notes its user for the log.
    ///
    /// # Errors
    /// [`EdgeAnswer`] with the refusal, which is a redirect to sign in for a page without a user.
    pub(super) async fn authorise(
        &self,
        visit: &Visit<'_>,
        port: Port,
        known: &mut RequestFacts,
    ) -> Result<Grant, EdgeAnswer> {
        let Visit { parts, offered, origin, address, now } = *visit;
        let turn = self.access.visitors.may_try(offered, origin, now).await?;
        let shape = self.hosts.shape(parts, address, offered);
        let Judged { decision, user } = self.access.decide(offered, address, port, shape, now).await?;
        known.user = user;
        drop(turn);
        count(&decision, offered, shape, origin, now)?;
        match decision {
            Decision::Allow(grant) => {
                known.is_owner = matches!(grant.because(), Because::Owner);
                known.is_timed = known.is_owner && server_timing::is_wanted(&parts.headers);
                known.is_page_visit = shape.purpose == Purpose::PageVisit;
                Ok(grant)
            }
            refused @ (Decision::SignIn | Decision::Unauthorized | Decision::NotFound | Decision::PortNotAllowed) => {
                Err(self.refusal(refused, visit))
            }
        }
    }

    /// Makes the answer to a request that is not let through. `Allow` should not get here; it is answered as
    /// `no_such_host`.
    pub(super) fn refusal(&self, decision: Decision, visit: &Visit<'_>) -> EdgeAnswer {
        match decision {
            Decision::SignIn => {
                let page = PageVisit::new(visit.parts, visit.origin.peer);
                let mut response = self.access.visitors.sign_in.begin(page, &visit.address.host, visit.now);
                let code = HeaderValue::from_static(Failure::SignInRequired.code());
                response.headers_mut().insert("gateway-error", code);
                if let Ok(trace) = HeaderValue::try_from(self.failures.trace()) {
                    response.headers_mut().insert("gateway-trace", trace);
                }
                EdgeAnswer::Response(Box::new(response))
            }
            Decision::Unauthorized => Failure::SignInRequired.into(),
            Decision::NotFound | Decision::Allow(_) => Failure::NoSuchHost.into(),
            Decision::PortNotAllowed => Failure::PortNotAllowed.into(),
        }
    }
}
