//! Serves the public host: sign-in, the API, and the pages.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::sign_in_pages::is_sign_in;
use super::zone;
use crate::api::{Api, ApiAnswer, Caller, ProblemBody, Proof};
use crate::ui::{self, Pages};
use gateway_agents::registry::Registry;
use gateway_auth::oidc::provider::Provider;
use gateway_auth::policy::RequestShape;
use gateway_auth::request::Offered;
use gateway_auth::shape::{self, Here, is_page_visit};
use gateway_auth::sign_in::{PageVisit, SignIn};
use gateway_auth::site::Site;
use gateway_edge::body::ResponseBody;
use gateway_edge::followers::{Followed, Followers};
use gateway_edge::service::{
    EdgeAnswer, FailureLine, Failures, Origin, PublicSite, RequestFacts, Visitors, checked, overloaded, record_sign_in,
    tried,
};
use gateway_http::host::{BadHost, HostRules, authority_of};
use gateway_http::respond::Failure;
use gateway_net::audit::Audit;
use gateway_store::Store;

/// The public host, with what its pages and its API need.
#[derive(Debug)]
pub struct PublicHost {
    /// Hosts of workspaces, for links to them.
    pub rules: HostRules,
    /// The public address, and the cookies that belong to it.
    pub site: Site,
    /// Finds the user of a request.
    pub visitors: Arc<Visitors>,
    /// Sign-in pages and one-time codes.
    pub sign_in: Arc<SignIn>,
    /// Provider that signs users in; `None` in dev mode.
    pub provider: Option<Provider>,
    /// Event streams that are open.
    pub followers: Arc<Followers>,
    /// Counts, logs and answers failures.
    pub failures: Arc<Failures>,
    /// The HTTP API and the gRPC services.
    pub api: Api,
    /// The audit log.
    pub audit: Audit,
    /// Live sessions.
    pub registry: Arc<Registry>,
    /// The database.
    pub store: Store,
}

impl PublicSite for PublicHost {
    fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
        origin: &'a Origin,
        known: &'a mut RequestFacts,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, EdgeAnswer>> {
        // On the heap, so that requests to workspaces do not carry it: ten thousand may be under way.
        Box::pin(self.public(request, origin, known))
    }
}

impl PublicHost {
    /// Answers a request to the public host.
    async fn public(
        &self,
        request: Request<Incoming>,
        origin: &Origin,
        known: &mut RequestFacts,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        if Api::has(request.uri().path()) {
            return self.call_api(request, origin, known).await;
        }
        if Api::is_grpc(request.method(), request.headers()) {
            return self.call_grpc(request, origin, known).await;
        }
        let (parts, body) = request.into_parts();
        let now = Instant::now();
        if let Some(answer) = zone::answer(&parts, self.rules.zone()) {
            return Ok(answer?.map(ResponseBody::from));
        }
        if is_sign_in(&parts) {
            origin.guest.ask(now.into_std()).map_err(overloaded)?;
        }
        if let Some(response) = self.sign_in_page(&parts, body, origin).await {
            self.sign_in.written().await;
            record_sign_in(&self.audit, &response, origin);
            tried(&parts, &response, origin, now)?;
            return Ok(response.map(ResponseBody::from));
        }
        let offered = Offered::read(&parts.headers, self.site.cookies());
        let principal = self.visitors.visitor(&offered, origin, now).await?;
        known.user = principal.as_ref().map(|principal| principal.user.clone());
        let pages = Pages { store: &self.store, registry: &self.registry, site: &self.site, rules: &self.rules };
        let page = match ui::answer(pages, &parts, principal.as_ref()).await {
            Err(Failure::SignInRequired) if is_page_visit(&parts.method, &parts.headers) => {
                self.sign_in.ask(PageVisit::new(&parts, origin.peer), now)
            }
            answer => answer?,
        };
        Ok(page.map(ResponseBody::from))
    }

    /// Answers a request to the API, or to the page that belongs to it.
    async fn call_api(
        &self,
        request: Request<Incoming>,
        origin: &Origin,
        known: &mut RequestFacts,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let (parts, body) = request.into_parts();
        let now = Instant::now();
        let (caller, shape) = self.caller(&parts, origin, known, now).await?;
        if caller.has_to_sign_in(parts.uri.path(), shape) {
            return Ok(self.sign_in.ask(PageVisit::new(&parts, origin.peer), now).map(ResponseBody::from));
        }
        let request = Request::from_parts(parts, body);
        Ok(self.call(request, caller, origin, known).await)
    }

    /// Identifies the caller of the API, and counts callers who prove nothing.
    async fn caller(
        &self,
        parts: &Parts,
        origin: &Origin,
        known: &mut RequestFacts,
        now: Instant,
    ) -> Result<(Caller, RequestShape), Failure> {
        let vouched = self.api.vouched(parts, now).await;
        let (principal, offered) = match &vouched {
            Some(vouched) => {
                checked(vouched.is_good(), vouched.is_bad(), origin, now)?;
                (None, Offered::Nothing)
            }
            None => {
                let offered = Offered::read(&parts.headers, self.site.cookies());
                (self.visitors.visitor(&offered, origin, now).await?, offered)
            }
        };
        known.user = principal.as_ref().map(|principal| principal.user.clone());
        let authority = authority_of(parts).map_err(BadHost::failure)?;
        let here = Here { site: &self.site, authority, workspace: None, workspace_of: &|_| None };
        let shape = shape::read(&parts.method, &parts.headers, &offered, here);
        let caller = Caller::new(principal, offered, parts.uri.path(), shape, origin.peer, &self.failures.trace());
        Ok((caller.vouched(vouched), shape))
    }

    /// Answers a call of the services that programs reach over gRPC on this host.
    async fn call_grpc(
        &self,
        request: Request<Incoming>,
        origin: &Origin,
        known: &mut RequestFacts,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let (parts, body) = request.into_parts();
        let (caller, _) = self.caller(&parts, origin, known, Instant::now()).await?;
        let (trace, proven) = (caller.trace(), caller.proven());
        let (response, failed) = self.api.call(Request::from_parts(parts, body), caller).await;
        if let Some(code) = failed {
            let (message, status) = ("call of a service failed", response.status());
            self.report(&FailureLine { message, code, detail: None, status, trace: &trace }, known, origin);
        }
        let followed = self.followed(proven);
        Ok(response.map(|body| ResponseBody::events(body, followed)))
    }

    /// Has the reader of a stream re-authorised for as long as it is open, if that can change.
    fn followed(&self, proven: Option<Proof>) -> Option<Arc<Followed>> {
        match proven? {
            Proof::User(offered, user) => Some(self.followers.follow(offered, user)),
            // The API itself re-authorises the streams of jobs: the job is known there.
            Proof::Job => None,
        }
    }

    /// Calls the API, and reports a failure.
    async fn call(
        &self,
        request: Request<Incoming>,
        caller: Caller,
        origin: &Origin,
        known: &RequestFacts,
    ) -> Response<ResponseBody> {
        let (trace, proven) = (caller.trace(), caller.proven());
        let response = match (self.api.answer(request, caller).await, proven) {
            (ApiAnswer::Whole(response), _) => response.map(ResponseBody::from),
            (ApiAnswer::Events(response), Some(proof)) => {
                let followed = self.followed(Some(proof));
                response.map(|body| ResponseBody::events(body, followed))
            }
            (ApiAnswer::File(response, bytes), _) => response.map(|body| ResponseBody::file(body, bytes)),
            // No caller gets events without a proof of identity.
            (ApiAnswer::Events(response), None) => response.map(|_| ResponseBody::from(Bytes::new())),
        };
        if let Some(ProblemBody { code, .. }) = response.extensions().get::<ProblemBody>() {
            let (message, status) = ("request to the API failed", response.status());
            self.report(&FailureLine { message, code, detail: None, status, trace: &trace }, known, origin);
        }
        response
    }

    /// Counts and logs a failure as for any other host.
    fn report(&self, line: &FailureLine<'_>, known: &RequestFacts, origin: &Origin) {
        self.failures.metrics().failed(line.code);
        self.failures.log(line, known, origin);
    }
}
