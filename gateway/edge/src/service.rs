//! Every request's way through the edge: its steps are listed in `service/route.rs`, its answer is made here.

mod absent;
mod access;
mod anonymous;
mod authorise;
mod failed_requests;
mod failures;
mod hosts;
mod idle_notice;
mod neighbours;
mod paths_page;
mod ports;
mod refusals;
mod reserved;
mod route;
mod server_timing;
mod visitors;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;
use tunnel_link::drain::Drain;

pub use self::access::Access;
pub use self::anonymous::{checked, overloaded, tried};
pub use self::failed_requests::{FAILED_REQUESTS_MAX, FailedRequests};
pub use self::failures::{FailureLine, FailureWords, Failures, Form, RequestFacts, Traces, expected_failures};
pub use self::hosts::Hosts;
pub use self::neighbours::Neighbours;
pub use self::refusals::{REFUSALS_MAX, Refusal, Refusals};
pub use self::reserved::record_sign_in;
use self::server_timing::SERVER_TIMING;
pub use self::visitors::Visitors;
use super::address::Address;
use super::body::ResponseBody;
use super::forward::Forwarder;
use super::guard::ShapeLimits;
use super::upstream::{AnonymousClient, Owner, Upstreams};
use super::watches::LastWatch;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::Registry;
use gateway_auth::last_offered::LastOffered;
use gateway_auth::policy::Grant;
use gateway_auth::sign_in::{OPENER_POLICY, OPENER_POLICY_OWN, path};
use gateway_http::respond::{self, Failure, Wants};
use gateway_net::audit::Audit;
use gateway_net::limits::Guest;
use gateway_net::stream::HandshakeResult;
use gateway_net::telemetry::AnsweredBy;

/// The edge: everything that answers a request of a user.
#[derive(Debug)]
pub struct Edge {
    /// Names of the public host and of workspaces.
    pub hosts: Hosts,
    /// Limits of request heads.
    pub limits: ShapeLimits,
    /// Callers and their rights.
    pub access: Access,
    /// Leads a browser that reaches two ports to separate sign-ins.
    pub neighbours: Neighbours,
    /// Counts, logs and answers failures.
    pub failures: Arc<Failures>,
    /// The audit log.
    pub audit: Audit,
    /// Answers requests to the public host.
    pub public: Arc<dyn PublicSite>,
    /// Live sessions.
    pub registry: Arc<Registry>,
    /// Other replicas, which may have the sessions that are not here.
    pub peers: MaybePeers,
    /// Sends requests to apps.
    pub forwarder: Forwarder,
    /// Drain to which requests belong.
    pub drain: Drain,
    /// Port that agents dial.
    pub agents_port: u16,
}

/// The connection that a request came on.
#[derive(Debug)]
pub struct Origin {
    /// The user's address.
    pub peer: IpAddr,
    /// Outcome of its handshake.
    pub negotiated: HandshakeResult,
    /// Meaning of the authority of its latest request.
    pub(crate) address: Mutex<Option<Arc<Address>>>,
    /// Watch that let its latest request through.
    pub(crate) watch: LastWatch,
    /// Credential of its latest request.
    pub offered: LastOffered,
    /// Handles to its limits.
    pub guest: Arc<Guest>,
    /// Its identity towards the apps that it reaches without a sign-in.
    client: OnceLock<Arc<AnonymousClient>>,
}

impl Origin {
    /// Creates the origin of a new connection.
    pub(crate) fn new(peer: IpAddr, negotiated: HandshakeResult, guest: Arc<Guest>) -> Self {
        let (address, watch, offered) = (Mutex::default(), Mutex::default(), LastOffered::default());
        Self { peer, negotiated, address, watch, offered, guest, client: OnceLock::new() }
    }

    /// Returns the owner of the connections that serve a granted request.
    fn owner(&self, grant: &Grant, upstreams: &Arc<Upstreams>) -> Owner {
        match grant.user() {
            Some(user) => Owner::User(user.clone()),
            None => Owner::Client(self.client.get_or_init(|| upstreams.client()).clone()),
        }
    }
}

/// The public host, behind the edge that serves its connections: the pages, the API and the sign-in.
pub trait PublicSite: fmt::Debug + Send + Sync {
    /// Answers a request to the public host. Notes in `known` what it finds out, for the log.
    ///
    /// # Errors
    /// [`EdgeAnswer`], which the edge turns into an answer as for any other host.
    ///
    /// Cancel safety: dropping the future ends the request.
    fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
        origin: &'a Arc<Origin>,
        known: &'a mut RequestFacts,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, EdgeAnswer>>;
}

/// An answer of the edge itself.
#[derive(Debug)]
pub enum EdgeAnswer {
    /// A row of the table of failures.
    Failure(Failure),
    /// The workspace is not running; the address where its owner can start it.
    Stopped(Option<String>),
    /// A whole response, such as a redirect to sign in.
    Response(Box<Response<Bytes>>),
}

impl From<Failure> for EdgeAnswer {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Edge {
    /// Answers one request.
    ///
    /// Cancel safety: dropping it ends the request at the app too.
    pub(crate) async fn answer(&self, request: Request<Incoming>, origin: &Arc<Origin>) -> Response<ResponseBody> {
        let wants = respond::wants(request.headers(), request.method());
        let form = Form { wants, is_head: request.method() == Method::HEAD };
        let over_http2 = request.version() == Version::HTTP_2;
        let follows = wants == Wants::Html && request.method() == Method::GET;
        let is_reserved = path::is_reserved(request.uri().path());
        let mut known = RequestFacts::new(Instant::now());
        let mut answer = match self.route(request, origin, &mut known).await {
            Ok(mut response) => {
                self.answered(&known, &mut response);
                response
            }
            Err(EdgeAnswer::Response(response)) => {
                self.failures.metrics.took(AnsweredBy::Gateway, known.began.elapsed());
                response.map(ResponseBody::from)
            }
            Err(EdgeAnswer::Stopped(start)) => {
                let mut response = self.failures.answer(Failure::WorkspaceStopped, form, &known, origin);
                if let (Some(start), Wants::Html) = (start, wants) {
                    respond::offer_start(&mut response, &start, form.is_head);
                }
                if follows {
                    respond::follow(&mut response, Failure::WorkspaceStopped);
                }
                response.map(ResponseBody::from)
            }
            Err(EdgeAnswer::Failure(failure)) => {
                let mut response = self.failures.answer(failure, form, &known, origin);
                if follows {
                    respond::follow(&mut response, failure);
                }
                if (failure.closes_connection() || origin.guest.is_beyond().is_some()) && !over_http2 {
                    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
                }
                response.map(ResponseBody::from)
            }
        };
        if is_reserved {
            // Also for reserved paths with nothing behind them.
            answer.headers_mut().insert(OPENER_POLICY, OPENER_POLICY_OWN);
        }
        answer
    }

    /// Counts an answer that is no failure, and leaves its trace. Its owner gets the parts of its time.
    fn answered(&self, known: &RequestFacts, response: &mut Response<ResponseBody>) {
        let now = Instant::now();
        let metrics = &self.failures.metrics;
        metrics.answered(response.status());
        metrics.took(known.answered_by(), now.saturating_duration_since(known.began));
        let phases = known.phases(now);
        if let Some(phases) = &phases {
            metrics.phases(phases);
            if known.is_timed {
                response.headers_mut().append(SERVER_TIMING, server_timing::of(phases));
            }
        }
        let tracer = &self.failures.tracer;
        tracer.end(known.trace.as_deref(), || known.traced(now, response.status(), phases));
    }

    /// Returns whether a request comes too late: this gateway drains, and is the only one. If others serve, what comes on a connection
    /// that was accepted before its client could know better is answered, and the connection is its last.
    pub(crate) fn refuses_requests(&self) -> bool {
        self.drain.is_draining() && self.peers.as_ref().is_none_or(|peers| peers.others() == 0)
    }

    /// Answers a request on a connection that came in a drain, whatever it asks for.
    pub(crate) fn answer_in_drain(&self, request: &Request<Incoming>, origin: &Origin) -> Response<ResponseBody> {
        let wants = respond::wants(request.headers(), request.method());
        let mut response = self.failures.answer_unread(
            Failure::Draining,
            Form { wants, is_head: request.method() == Method::HEAD },
            origin,
        );
        if wants == Wants::Html && request.method() == Method::GET {
            respond::follow(&mut response, Failure::Draining);
        }
        if request.version() != Version::HTTP_2 {
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(ResponseBody::from)
    }
}
