//! Layers of the public host: each an async function that gets a request and the rest of its stack.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use tokio::time::Instant;

use super::{Arrival, Host, is_page};
use crate::sign_in_pages::is_sign_in;
use crate::zone;
use gateway_api::stack::{Delivery, EdgeFailure};
use gateway_api::{Caller, Proof, RefusalCode};
use gateway_auth::policy::RequestShape;
use gateway_auth::request::OfferedCredential;
use gateway_auth::shape::{self, Here};
use gateway_auth::sign_in::PageVisit;
use gateway_edge::service::{FailureLine, RequestFacts, checked, overloaded, record_sign_in, tried};
use gateway_http::host::{BadHost, authority_of};
use gateway_http::respond::Failure;

/// Identifies the caller of the API or of a service, and counts callers who prove nothing.
///
/// Cancel safety: safe.
pub(super) async fn identify(
    State(host): State<Arc<Host>>,
    Extension(arrival): Extension<Arrival>,
    request: Request,
    next: Next,
) -> Result<Response, EdgeFailure> {
    let (mut parts, body) = request.into_parts();
    let (caller, shape) = host.caller(&parts, &arrival).await?;
    parts.extensions.insert(caller);
    parts.extensions.insert(shape);
    Ok(next.run(Request::from_parts(parts, body)).await)
}

/// Leads a visitor of a page of the API to the sign-in.
pub(super) async fn sign_in_first(
    State(host): State<Arc<Host>>,
    Extension(arrival): Extension<Arrival>,
    Extension(shape): Extension<RequestShape>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    if !caller.has_to_sign_in(shape) {
        return next.run(request).await;
    }
    let (parts, _) = request.into_parts();
    let visit = PageVisit::new(&parts, arrival.origin.peer);
    let answer = host.sign_in.ask(visit, Instant::now());
    host.sign_in.share_links().await;
    answer.map(Body::from)
}

/// Counts and logs requests that API and services refused, as the edge does on any other host.
pub(super) async fn report(
    State(host): State<Arc<Host>>,
    Extension(arrival): Extension<Arrival>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    if let Some(RefusalCode { code, detail, message, why }) = response.extensions().get() {
        let known = RequestFacts::of_user(arrival.began, arrival.user.get().cloned());
        let (status, trace) = (response.status(), caller.trace());
        let line = FailureLine { message, code, detail: *detail, status, trace: &trace, why: *why };
        host.failures.metrics().failed(&line.labels());
        host.failures.log(&line, &known, &arrival.origin);
    }
    response
}

/// Has the reader of a stream re-authorised for as long as it is open.
pub(super) async fn follow(State(host): State<Arc<Host>>, caller: Caller, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let Some(delivery) = response.extensions().get::<Delivery>().copied() else { return response };
    match (delivery, caller.proven()) {
        (Delivery::File(_), _) => {}
        (Delivery::Events | Delivery::Messages, Some(Proof::User(offered, user))) => {
            response.extensions_mut().insert(host.followers.follow(offered, user));
        }
        // The API itself re-authorises the streams of jobs: the job is known there. Reflection is public.
        (Delivery::Events, Some(Proof::Job)) | (Delivery::Messages, _) => {}
        // No caller gets events without a proof of identity.
        (Delivery::Events, None) => {
            response.extensions_mut().remove::<Delivery>();
            *response.body_mut() = Body::empty();
        }
    }
    response
}

/// Answers requests for the zone.
pub(super) async fn zone(State(host): State<Arc<Host>>, request: Request, next: Next) -> Result<Response, EdgeFailure> {
    let (parts, body) = request.into_parts();
    match zone::answer(&parts, host.api.parts().rules.zone()) {
        Some(answer) => Ok(answer?.map(Body::from)),
        None => Ok(next.run(Request::from_parts(parts, body)).await),
    }
}

/// Answers the sign-in pages, and counts their visitors.
pub(super) async fn sign_in_pages(
    State(host): State<Arc<Host>>,
    Extension(arrival): Extension<Arrival>,
    request: Request,
    next: Next,
) -> Result<Response, EdgeFailure> {
    let (parts, body) = request.into_parts();
    if !is_sign_in(&parts) {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    }
    let (origin, now) = (&arrival.origin, Instant::now());
    origin.guest.ask(now.into_std()).map_err(overloaded)?;
    let Some(response) = host.sign_in_page(&parts, body, origin).await else {
        return Ok(next.run(Request::from_parts(parts, Body::empty())).await);
    };
    let response = host.sign_in.finish(PageVisit::new(&parts, origin.peer), response).await;
    record_sign_in(&host.api.parts().audit, &response, origin);
    tried(&parts, &response, origin, now)?;
    let known = RequestFacts::new(arrival.began);
    Ok(host.failures.of_page(response, &known, origin).map(Body::from))
}

/// Identifies the visitor of a page, and counts unknown ones.
pub(super) async fn identify_visitor(
    State(host): State<Arc<Host>>,
    Extension(arrival): Extension<Arrival>,
    request: Request,
    next: Next,
) -> Result<Response, EdgeFailure> {
    let offered = OfferedCredential::read(request.headers(), host.api.parts().site.cookies(), &arrival.origin.offered);
    let principal = host.visitors.visitor(&offered, &arrival.origin, Instant::now()).await?;
    arrival.found(principal.as_ref());
    Ok(next.run(request).await)
}

impl Host {
    /// Identifies the caller of the API, and counts callers who prove nothing.
    async fn caller(&self, parts: &Parts, arrival: &Arrival) -> Result<(Caller, RequestShape), Failure> {
        let (origin, now) = (&arrival.origin, Instant::now());
        let vouched = self.api.vouched(parts, now).await;
        let (principal, offered) = match &vouched {
            Some(vouched) => {
                checked(vouched.is_good(), vouched.is_bad(), origin, now)?;
                (None, OfferedCredential::Nothing)
            }
            None => {
                let offered = OfferedCredential::read(&parts.headers, self.api.parts().site.cookies(), &origin.offered);
                (self.visitors.visitor(&offered, origin, now).await?, offered)
            }
        };
        arrival.found(principal.as_ref());
        let authority = authority_of(parts).map_err(BadHost::failure)?;
        let here = Here { site: &self.api.parts().site, authority, workspace: None, workspace_of: &|_| None };
        let shape = shape::read(&parts.method, &parts.headers, &offered, here);
        let caller =
            Caller::new(principal, offered, is_page(parts.uri.path()), shape, origin.peer, &self.failures.trace());
        Ok((caller.vouched(vouched), shape))
    }
}
