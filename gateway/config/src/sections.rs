//! Sections whose structs are the plain lists of their keys, and the reading of all sections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use gateway_types::{Endpoint, PublicUrl, Scheme, Zone};
use tracing::Level;
use tunnel_proto::limit::{
    CHANNELS_MAX, LANES_MAX, RESUME_GRACE, SESSION_BUDGET_BYTES, WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX,
};

use super::idle::Idle;
use super::keys::{keys, section};
use super::reader::Reader;
use super::value::{
    ADDRESS, ADDRESS_OR_OFF, COUNT, COUNT_32, DURATION, ENDPOINT, FILE_PATH, HOST_NAMES, IpNetwork, NETWORKS,
    PUBLIC_URL, SIZE, ValueKind, YES_OR_NO, ZONE, words,
};
use super::{Config, acme, agents, auth, ci, directory, environments, git, store, tls};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bound of every count: below it, sums and the runtime's semaphores stay far from their own limits.
const COUNT_MAX: usize = 10_000_000;
const COUNT_32_MAX: u32 = 10_000_000;

keys! {
    SITE: SiteKeys below "" {
        /// Domain under which workspaces live: `PORT-NAME.ZONE`. In production one that is in the Public Suffix List or
        /// has nothing else under it.
        zone: Zone = ZONE, or default_zone();
        /// URL of the home page, of sign-in and of the API; better on another registrable domain than `zone`. Follows
        /// `listen.public` and `tls.public` unless it is set.
        public_url: PublicUrl = PUBLIC_URL, follows;
        /// URL below which users reach their own workspaces by path, `URL/NAME/PORT/`, where no wildcard DNS can be had
        /// for `zone`: scheme and port of `public_url`, another host. Pages of one user's workspaces share this origin.
        paths_url: PublicUrl = PUBLIC_URL, optional;
    }
}

keys! {
    FOLDERS: FolderKeys below "" {
        /// Folder with the configurations of cluster agents: `NAME/config.yaml`, `NAME/environment_templates/` and
        /// `NAME/workspace_templates/`.
        agents_dir: PathBuf = FILE_PATH, optional;
    }
}

section! {
    /// Addresses to listen on.
    pub struct Listen, LISTEN: ListenKeys below "listen." {
        /// Address for users: browsers, and programs that use the API.
        public: SocketAddr = ADDRESS, or loopback(8080);
        /// Address for agents, which `workspace-agent run --gateway` dials.
        agents: SocketAddr = ADDRESS, or loopback(8081);
        /// Address of health, readiness, metrics and live sessions, without a sign-in: keep it private.
        admin: Option<SocketAddr> = ADDRESS_OR_OFF, or Some(loopback(8082));
        /// Names by which requests may reach `listen.admin`, beside addresses and `localhost`; commas between them.
        /// Requests for other names get the status 421: they may come from a page whose name was made to lead here.
        admin_hosts: Vec<String> = HOST_NAMES, or Vec::new();
        /// Load balancers in front of users and agents that announce the client's address with the PROXY protocol,
        /// version 1 or 2. Every connection from these must carry it; from all others it is never read.
        trusted_proxies: Vec<IpNetwork> = NETWORKS, or Vec::new();
        /// Lets WebSockets be opened on streams of HTTP/2 (RFC 8441). Without it, browsers open a connection for each.
        websocket_http2: bool = YES_OR_NO, or true;
    }
}

section! {
    /// Log output.
    pub struct Log, LOG: LogKeys below "log." {
        /// Least important level that is written; a filter in `GATEWAY_LOG` is finer.
        level: Level = LOG_LEVEL, or Level::INFO;
        /// Shape of a line.
        format: LogFormat = LOG_FORMAT, or LogFormat::Text;
    }
}

section! {
    /// Traces of requests, sent to a collector (OTLP). Requests that are slow, or fail for another reason than a rule or the
    /// client, have one always.
    pub struct Traces, TRACES: TraceKeys below "traces." {
        /// URL of the collector that takes OTLP over HTTP in JSON, such as `http://localhost:4318/v1/traces`. Without it, no request is
        /// traced.
        collector: Endpoint = ENDPOINT, optional;
        /// File with certificate authorities trusted for the collector, beside those of the system.
        ca_file: PathBuf = FILE_PATH, optional;
        /// One in so many requests is traced; `0` for none but those that fail, are slow, or continue a sampled trace of a signed-in
        /// user.
        one_in: u32 = COUNT_32, or 1000, in 0..=1_000_000_000;
        /// Time until an answer begins above which a request is slow.
        slow: Duration = DURATION, or Duration::from_secs(1);
    }
}

section! {
    /// The audit log.
    pub struct AuditLog, AUDIT: AuditKeys below "audit." {
        /// File of the audit log; without one its records are in the log, with the target `audit`.
        path: PathBuf = FILE_PATH, optional;
        /// Largest size of the file; it is put aside before it would grow beyond this.
        rotate_bytes: u64 = SIZE, or 64 * MIB, in KIB..=1024 * GIB;
        /// Files put aside that are kept.
        keep: u32 = COUNT_32, or 8, in 0..=1000;
        /// Days for which records are kept in the database too, where operators search those of all replicas; with `0`
        /// none is written there.
        keep_days: u32 = COUNT_32, or 90, in 0..=36_500;
        /// The same for records of accesses. These are many: two for each connection to an app. By default they are in
        /// the file alone.
        keep_access_days: u32 = COUNT_32, or 0, in 0..=36_500;
    }
}

section! {
    /// Time limits, one for each kind of wait. All are above zero.
    pub struct Timeouts, TIMEOUTS: TimeoutKeys below "timeouts." {
        /// Wait in a TLS handshake: once for the client's hello, and once for the rest.
        tls_handshake: Duration = DURATION, or Duration::from_secs(10);
        /// Time from the first wait for a request's head to its last byte.
        request_header: Duration = DURATION, or Duration::from_secs(30);
        /// Silence of a request's body, while its app has not answered.
        request_body_idle: Duration = DURATION, or Duration::from_mins(1);
        /// Silence of a user's connection that leaves sent bytes unread.
        reader_stalled: Duration = DURATION, or Duration::from_mins(2);
        /// Time from opening a channel to the agent's answer; then `open_timeout`.
        channel_open: Duration = DURATION, or Duration::from_secs(10);
        /// Time from the request to the head of the app's answer; then `response_timeout`. Raise it for apps that think
        /// for long before they answer.
        response_header: Duration = DURATION, or Duration::from_mins(1);
        /// Silence of an upgraded stream (WebSocket or TCP), both ways.
        stream_idle: Duration = DURATION, or Duration::from_hours(1);
        /// Time that a connection to an app is kept without a request.
        upstream_idle: Duration = DURATION, or Duration::from_mins(1);
        /// Time from the stop signal to closing everything that is still open.
        drain: Duration = DURATION, or Duration::from_secs(30);
        /// Time from an agent's connection to its first message, `Hello`.
        agent_hello: Duration = DURATION, or Duration::from_secs(10);
    }
}

section! {
    /// Bounds beyond which the gateway refuses. All are above zero, except `external_workspaces_per_user`.
    pub struct Limits, LIMITS: LimitKeys below "limits." {
        /// Connections of users from one address at a time on which no user has signed in.
        connections_per_address: u32 = COUNT_32, or 512, in 1..=COUNT_32_MAX;
        /// New connections of users from one address in a second, and four times as many at once; faster ones wait, and
        /// are then refused.
        connections_per_second_per_address: u32 = COUNT_32, or 500, in 1..=COUNT_32_MAX;
        // A few thousand agents behind one address that all redial are connected after some seconds; silent connections
        // take a fifth of the room for all agents.
        /// Connections of agents from one address at a time that have no session yet. Above it, the oldest of them is
        /// cut.
        agent_connections_per_address: u32 = COUNT_32, or 4_096, in 1..=COUNT_32_MAX;
        /// New connections of agents from one address in a second, and four times as many at once; faster ones wait,
        /// and are then cut.
        agent_connections_per_second_per_address: u32 = COUNT_32, or 1_000, in 1..=COUNT_32_MAX;
        /// TLS handshakes of users from one address at a time.
        handshakes_per_address: u32 = COUNT_32, or 64, in 1..=COUNT_32_MAX;
        /// Tokens, cookies and codes from one address in a minute that are not good. Good ones pass above it too,
        /// unless the store would have to be read for them.
        failed_sign_ins_per_minute: u32 = COUNT_32, or 300, in 1..=COUNT_32_MAX;
        /// Requests and streams in flight to one port of a workspace, so that a public one leaves room for the others.
        requests_per_port: u32 = COUNT_32, or 1024, in 1..=COUNT_32_MAX;
        /// Requests and streams in flight of one user.
        requests_per_user: u32 = COUNT_32, or 4096, in 1..=COUNT_32_MAX;
        /// Requests of one user in a second, and four times as many at once.
        requests_per_second_per_user: u32 = COUNT_32, or 5_000, in 1..=COUNT_32_MAX;
        /// Requests and streams in flight of one address without a user: at public ports.
        requests_per_address: u32 = COUNT_32, or 256, in 1..=COUNT_32_MAX;
        /// Requests of one address in a second without a user, and as many at once. Connections that go on above it are
        /// closed.
        requests_per_second_per_address: u32 = COUNT_32, or 1_000, in 1..=COUNT_32_MAX;
        /// HTTP/2 streams of one user connection in a second that end with a reset, and some seconds' worth at once.
        http2_resets_per_second: u32 = COUNT_32, or 100, in 1..=COUNT_32_MAX;
        /// Connections of users at a time. Near it, those that have been idle for longest are closed for new ones.
        connections: usize = COUNT, or 10_000, in 1..=COUNT_MAX;
        /// TLS handshakes at a time.
        handshakes: usize = COUNT, or 256, in 1..=COUNT_MAX;
        // hyper refuses a read buffer below 8 KiB.
        /// Size of a request's head.
        header_bytes: u64 = SIZE, or 64 * KIB, in 8 * KIB..=16 * MIB;
        /// Header fields of a request.
        headers: usize = COUNT, or 100, in 1..=10_000;
        /// Requests and streams in flight to one workspace.
        requests_per_workspace: usize = COUNT, or 2048, in 1..=COUNT_MAX;
        /// HTTP/2 streams of one user connection.
        http2_streams: u32 = COUNT_32, or 256, in 1..=100_000;
        /// Agent sessions at a time.
        sessions: usize = COUNT, or 20_000, in 1..=COUNT_MAX;
        /// New agent sessions in a second; faster ones wait, and beyond some seconds get a time to come back.
        sessions_per_second: u32 = COUNT_32, or 1_000, in 1..=1_000_000;
        /// External workspaces that one user may have made without the operator; 0 leaves them to the operator.
        external_workspaces_per_user: u32 = COUNT_32, or 10, in 0..=1_000_000;
    }
}

section! {
    /// The agents' tunnel. `window_initial <= window_max <= session_budget <= owner_budget <= replica_budget`.
    pub struct Tunnel, TUNNEL: TunnelKeys below "tunnel." {
        /// Sum of the windows of one session.
        session_budget: u64 = SIZE, or SESSION_BUDGET_BYTES, in KIB..=1024 * GIB;
        /// Sum of the windows of one replica, which bounds its memory for traffic.
        replica_budget: u64 = SIZE, or 512 * MIB, in KIB..=1024 * GIB;
        /// Window of a new channel.
        window_initial: u64 = SIZE, or u64::from(WINDOW_BYTES_INITIAL), in KIB..=GIB;
        /// Widest window that a channel can grow to.
        window_max: u64 = SIZE, or u64::from(WINDOW_BYTES_MAX), in KIB..=GIB;
        /// Sum of the windows of all workspaces of one owner. By default half of `replica_budget`, so that no owner
        /// with many workspaces takes it all, but no less than `session_budget`.
        owner_budget: u64 = SIZE, follows session_budget.max(replica_budget / 2), in KIB..=1024 * GIB;
        /// Channels of one session at a time.
        channels_per_session: u32 = COUNT_32, or CHANNELS_MAX, in 1..=1_000_000;
        /// Silence after which the other side has to give a sign of life. With `keepalive_timeout`, the time after which an
        /// agent of a gateway whose host is lost dials another. HTTP/2 connections of users are asked half as often.
        keepalive_interval: Duration = DURATION, or Duration::from_secs(7);
        /// Longest wait for that sign of life; of users twice as long.
        keepalive_timeout: Duration = DURATION, or Duration::from_secs(5);
        /// Time for which a session whose link broke is kept, with all its streams.
        resume_grace: Duration = DURATION, or RESUME_GRACE;
        /// Links that one session may have at once (`workspace-agent run --lanes`).
        lanes_max: u32 = COUNT_32, or 8, in 1..=LANES_MAX;
        /// Lanes of one agent at a time that this replica carries to others. Those beyond are not opened.
        relay_lanes_max: u32 = COUNT_32, or 8, in 1..=LANES_MAX;
    }
}

/// The shape of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// Returns the format as the file spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

const LOG_FORMAT: ValueKind<LogFormat> =
    words!("`text` or `json`", "unknown format", "text" => LogFormat::Text, "json" => LogFormat::Json);

const LOG_LEVEL: ValueKind<Level> = ValueKind::new(
    "`error`, `warn`, `info`, `debug` or `trace`",
    |text| match text {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        _ => Err("unknown level".to_owned()),
    },
    |level| level.as_str().to_ascii_lowercase(),
);

/// Reads every key; the rows of the result are still empty.
pub(super) fn read(reader: &mut Reader) -> Config {
    let zone = reader.take(&SITE.zone);
    let listen = Listen::read(reader);
    let mut tls = tls::read(reader);
    let scheme = if tls.public.is_some() { Scheme::Https } else { Scheme::Http };
    let public_url = PublicUrl::on_localhost(scheme, listen.public.port());
    let public_url = reader.take_or(&SITE.public_url, public_url);
    let paths_url = reader.take(&SITE.paths_url);
    tls.acme = acme::read(reader, &public_url, paths_url.as_ref(), &zone);
    if let (Some(acme), None) = (&tls.acme, &tls.public) {
        tls.public = Some(acme::files(acme));
    }
    let agents = agents::read(reader, &zone, &public_url);
    let ci = ci::read(reader, &public_url);
    let environments = environments::read(reader, &public_url);
    let store = store::read(reader);
    Config {
        zone,
        public_url,
        paths_url,
        listen,
        tls,
        directory: directory::read(reader, &store.url),
        store,
        auth: auth::read(reader, agents),
        log: Log::read(reader),
        audit: AuditLog::read(reader),
        traces: Traces::read(reader),
        agents_dir: reader.take(&FOLDERS.agents_dir),
        ci,
        environments,
        git: git::read(reader),
        idle: Idle::read(reader),
        timeouts: Timeouts::read(reader),
        limits: Limits::read(reader),
        tunnel: Tunnel::read(reader),
        rows: Vec::new(),
        file: None,
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn default_zone() -> Zone {
    #[expect(clippy::expect_used, reason = "the text is a constant, and a test reads the default configuration")]
    "localhost".parse().expect("`localhost` is a zone")
}
