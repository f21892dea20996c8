//! The operator's listener: health, readiness, metrics, live sessions. Meant for a private address.

mod own_host;
mod profile;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry as MetricsRegistry;
use serde::Serialize;
use tunnel_link::drain::Drain;
use tunnel_proto::mux::ReplicaBudget;

use crate::upstream::Upstreams;
use gateway_agents::peers::MaybePeers;
use gateway_agents::registry::{LiveSession, Registry, SessionWay};
use gateway_net::audit::Audit;
use gateway_net::availability::Availability;
use gateway_net::limits::UsageLimits;
use gateway_net::listen::Connection;
use gateway_net::peers::PeerTls;
use gateway_net::telemetry::{Exposition, Metrics, agent_returns, bytes, gauge};
use gateway_net::tls::Tls;
use gateway_store::wall_clock;
use gateway_types::UnixSeconds;

mod readiness;

pub use self::readiness::Listeners;
use self::readiness::{DirectorySeen, Seen};

/// Returns the number of relay lanes that pass through this replica.
pub type LanesCarried = Box<dyn Fn() -> usize + Send + Sync>;

/// State that the operator's pages show.
pub struct Admin {
    /// Certificates of all listeners.
    pub certificates: Vec<Arc<Tls>>,
    /// Names under which it answers: see [`own_host`].
    pub hosts: Vec<String>,
    /// Live sessions.
    pub registry: Arc<Registry>,
    /// Connections to apps.
    pub upstreams: Arc<Upstreams>,
    /// Memory of all sessions.
    pub budget: Arc<ReplicaBudget>,
    /// Counters.
    pub metrics: Metrics,
    /// Limits by address, user and port.
    pub limits: Arc<UsageLimits>,
    /// The audit log, for records that were lost.
    pub audit: Audit,
    /// Requests under way, and whether a drain has begun.
    pub drain: Drain,
    /// Whether the store answers.
    pub availability: Availability,
    /// Listeners that have ended.
    pub listeners: Listeners,
    /// Relay lanes that pass through.
    pub lanes_carried: LanesCarried,
    /// Other replicas.
    pub peers: MaybePeers,
    /// TLS towards them, if they are on other hosts.
    pub peer_tls: Option<Arc<PeerTls>>,
}

impl Admin {
    /// Returns when the first of the certificates ends to be good, those towards other replicas among them.
    fn certificates_end(&self) -> Option<UnixSeconds> {
        let served = self.certificates.iter().map(|tls| tls.not_after());
        served.chain(self.peer_tls.as_ref().map(|tls| tls.not_after())).min()
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Admin").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// Creates the routes.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/debug/sessions", get(sessions))
        .route("/debug/profile", get(profile::show))
        .layer(from_fn_with_state(admin.clone(), only_own_hosts))
        .with_state(admin)
}

/// Serves one connection of an operator.
pub async fn serve(router: Router, connection: Connection) {
    let Connection { stream, permit, .. } = connection;
    let service = TowerToHyperService::new(router);
    let served = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection of an operator ended");
    }
    drop(permit);
}

/// Refuses requests for a name that is not this listener's. A request without a name is no browser's.
async fn only_own_hosts(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let in_field = request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let in_target = request.uri().authority().map(Authority::as_str);
    if in_field.chain(in_target).all(|host| own_host::is_own(host, &admin.hosts)) {
        return next.run(request).await;
    }
    let words = "ask by address, as localhost, or by a name of listen.admin_hosts\n";
    (StatusCode::MISDIRECTED_REQUEST, words).into_response()
}

async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    let seen = Seen {
        is_draining: admin.drain.is_announced(),
        listeners: &admin.listeners,
        availability: &admin.availability,
        directory: admin
            .peers
            .as_ref()
            .map(|peers| DirectorySeen { others: peers.others(), provisional: peers.provisional() }),
        certificates_end: admin.certificates_end(),
        now: wall_clock(),
    };
    readiness::answer(&seen).into_response()
}

async fn metrics(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let mut registry = MetricsRegistry::default();
    admin.metrics.register(&mut registry);
    admin.limits.register(&mut registry);
    admin.audit.register(&mut registry);
    let (sent, received) = admin.registry.bytes();
    bytes(&mut registry, [("to_agents", sent), ("from_agents", received)]);
    let sessions = admin.registry.all();
    let stats: Vec<_> = sessions.iter().map(|session| session.stats()).collect();
    let sum = |of: fn(&tunnel_proto::mux::Stats) -> u64| stats.iter().map(of).sum::<u64>();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    agent_returns(&mut registry, admin.registry.returns.counts());
    let numbers = [
        (
            "gateway_replicas",
            "Replicas that take agents, this one too, as was known last",
            count(admin.peers.as_ref().map_or(0, |peers| peers.others()) + 1),
        ),
        ("gateway_sessions", "Live sessions of agents", count(sessions.len())),
        ("gateway_cluster_sessions", "Those of cluster agents", count(admin.registry.clusters().len())),
        ("gateway_relay_lanes", "Relay lanes to agents of other replicas", count(admin.registry.relays_len())),
        ("gateway_carried_lanes", "Relay lanes that pass through to other replicas", count((admin.lanes_carried)())),
        (
            "gateway_provisional_sessions",
            "Sessions that wait for a place among those of all replicas, since the store was away",
            count(admin.peers.as_ref().map_or(0, |peers| peers.provisional())),
        ),
        ("gateway_channels", "Live channels", sum(|stats| count_of(stats.channels_live))),
        ("gateway_tunnel_window_bytes", "Bytes promised to agents", admin.budget.reserved()),
        ("gateway_tunnel_window_bytes_limit", "Bound of the bytes promised", admin.budget.limit()),
        ("gateway_tunnel_queued_bytes", "Bytes that wait for links", sum(|stats| count_of(stats.queued_bytes))),
        ("gateway_tunnel_replay_bytes", "Bytes kept for resumes", sum(|stats| stats.replay_bytes)),
        (
            "gateway_tunnel_lent_bytes",
            "Bytes on their way to users, part of those promised",
            sum(|stats| stats.lent_bytes),
        ),
        ("gateway_addresses", "Addresses whose limits are being counted", count(admin.limits.addresses())),
        ("gateway_upstream_idle_connections", "Idle connections to apps", count(admin.upstreams.idle())),
        ("gateway_tasks", "Connections, sessions and streams under way", count(admin.drain.live())),
        (
            "gateway_store_away",
            "1 while the store does not answer, or cannot be written",
            u64::from(readiness::store_trouble(&admin.availability).is_some()),
        ),
        ("gateway_store_outages", "Times since the start that the store went away", admin.availability.outages()),
        ("gateway_panics", "Tasks that ended with a panic: each is a bug", program_log::panics()),
    ];
    for (name, help, number) in numbers {
        gauge(&mut registry, name, help).set(number);
    }
    if let Some(first) = admin.certificates_end() {
        let help = "When the first of the certificates ends to be good, in seconds since 1970";
        let number = u64::try_from(first.get()).unwrap_or_default();
        gauge(&mut registry, "gateway_certificate_not_after_seconds", help).set(number);
    }
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => {
            let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
            let exposition = Exposition::accepted(accept.unwrap_or_default());
            ([(header::CONTENT_TYPE, exposition.content_type())], exposition.of(text)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn count_of(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// One row of `/debug/sessions`.
#[derive(Debug, Serialize)]
struct SessionRow {
    /// Exactly one of the two is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    session: String,
    generation: u64,
    /// `direct`, or `relay` for a lane to an agent of another replica.
    way: &'static str,
    peer: String,
    agent_version: String,
    up_seconds: u64,
    round_trip_micros: Option<u128>,
    channels_live: usize,
    channels_opened: u64,
    bytes_sent: u64,
    bytes_received: u64,
    window_bytes: u64,
    queued_bytes: usize,
}

impl SessionRow {
    fn new(session: &LiveSession) -> Self {
        let stats = session.stats();
        Self {
            workspace: session.subject.workspace().map(ToString::to_string),
            cluster: session.subject.cluster().map(ToString::to_string),
            session: session.id.to_string(),
            generation: session.generation().get(),
            way: match session.way() {
                SessionWay::Direct => "direct",
                SessionWay::Relay => "relay",
            },
            peer: session.peer().to_string(),
            agent_version: session.agent_version.clone(),
            up_seconds: session.since.elapsed().as_secs(),
            round_trip_micros: stats.round_trip.map(|time| time.as_micros()),
            channels_live: stats.channels_live,
            channels_opened: stats.channels_opened,
            bytes_sent: stats.bytes_sent,
            bytes_received: stats.bytes_received,
            window_bytes: stats.window_bytes,
            queued_bytes: stats.queued_bytes,
        }
    }
}

async fn sessions(State(admin): State<Arc<Admin>>) -> axum::Json<Vec<SessionRow>> {
    axum::Json(admin.registry.with_relays().iter().map(|session| SessionRow::new(session)).collect())
}
