//! The keys: name, default, kind and bounds of each, in one place.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tracing::Level;
use tunnel_proto::limit::{
    CHANNELS_MAX, LANES_MAX, RESUME_GRACE, SESSION_BUDGET_BYTES, WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX,
};

use super::acme;
use super::agents::{self, YES_OR_NO};
use super::reader::Reader;
use super::value::{
    ADDRESS, ADDRESS_OR_OFF, COUNT, COUNT_32, DURATION, HOST_NAMES, NETWORKS, PUBLIC_URL, SIZE, ValueKind, ZONE,
};
use super::{
    AuditLog, ClientCa, Config, Limits, Listen, Log, Timeouts, Tls, TlsFiles, Tunnel, auth, ci, environments, store,
};
use gateway_types::PublicUrl;
use gateway_types::{Scheme, Zone};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bound of every count: below it, sums and the runtime's semaphores stay far from their own limits.
const COUNT_MAX: usize = 10_000_000;
const COUNT_32_MAX: u32 = 10_000_000;

/// Kind of sign-in for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// A one-time link in the log; for one developer's machine.
    Dev,
    /// With an `OpenID` Connect provider.
    Oidc,
}

impl AuthMode {
    /// Returns the mode as the file spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Oidc => "oidc",
        }
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

pub(super) const AUTH_MODE: ValueKind<AuthMode> = ValueKind {
    accepted: "`dev` or `oidc`",
    parse: |text| match text {
        "dev" => Ok(AuthMode::Dev),
        "oidc" => Ok(AuthMode::Oidc),
        _ => Err("unknown way to sign in".to_owned()),
    },
    show: |mode| mode.as_str().to_owned(),
    secret: false,
};

const LOG_FORMAT: ValueKind<LogFormat> = ValueKind {
    accepted: "`text` or `json`",
    parse: |text| match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("unknown format".to_owned()),
    },
    show: |format| format.as_str().to_owned(),
    secret: false,
};

const LOG_LEVEL: ValueKind<Level> = ValueKind {
    accepted: "`error`, `warn`, `info`, `debug` or `trace`",
    parse: |text| match text {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        _ => Err("unknown level".to_owned()),
    },
    show: |level| level.as_str().to_ascii_lowercase(),
    secret: false,
};

/// Reads every key; the rows of the result are still empty.
pub(super) fn read(reader: &mut Reader) -> Config {
    let zone = reader.take("zone", default_zone(), &ZONE);
    let listen = read_listen(reader);
    let mut tls = read_tls(reader);
    let scheme = if tls.public.is_some() { Scheme::Https } else { Scheme::Http };
    let public_url = PublicUrl::on_localhost(scheme, listen.public.port());
    let public_url = reader.take("public_url", public_url, &PUBLIC_URL);
    tls.acme = acme::read(reader, &public_url, &zone);
    if let (Some(acme), None) = (&tls.acme, &tls.public) {
        tls.public = Some(acme::files(acme));
    }
    let agents = agents::read(reader, &zone, &public_url);
    let ci = ci::read(reader, &public_url);
    let environments = environments::read(reader, &public_url);
    Config {
        zone,
        public_url,
        listen,
        tls,
        store: store::read(reader),
        auth: auth::read(reader, agents),
        log: Log {
            level: reader.take("log.level", Level::INFO, &LOG_LEVEL),
            format: reader.take("log.format", LogFormat::Text, &LOG_FORMAT),
        },
        audit: AuditLog {
            path: reader.take_path("audit.path"),
            rotate_bytes: reader.take_within("audit.rotate_bytes", 64 * MIB, KIB..=1024 * GIB, &SIZE),
            keep: reader.take_within("audit.keep", 8, 0..=1000, &COUNT_32),
        },
        agents_dir: reader.take_path("agents_dir"),
        ci,
        environments,
        timeouts: read_timeouts(reader),
        limits: read_limits(reader),
        tunnel: read_tunnel(reader),
        rows: Vec::new(),
        file: None,
    }
}

fn read_listen(reader: &mut Reader) -> Listen {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    Listen {
        public: reader.take("listen.public", loopback(8080), &ADDRESS),
        agents: reader.take("listen.agents", loopback(8081), &ADDRESS),
        admin: reader.take("listen.admin", Some(loopback(8082)), &ADDRESS_OR_OFF),
        admin_hosts: reader.take("listen.admin_hosts", Vec::new(), &HOST_NAMES),
        trusted_proxies: reader.take("listen.trusted_proxies", Vec::new(), &NETWORKS),
        websocket_http2: reader.take("listen.websocket_http2", true, &YES_OR_NO),
    }
}

fn read_tls(reader: &mut Reader) -> Tls {
    const PUBLIC: [&str; 3] = ["tls.public.cert", "tls.public.key", "tls.public.certs_dir"];
    const AGENTS: [&str; 3] = ["tls.agents.cert", "tls.agents.key", "tls.agents.certs_dir"];
    Tls {
        public: read_tls_files(reader, PUBLIC, None),
        agents: read_tls_files(reader, AGENTS, Some("tls.agents.client_ca")),
        acme: None,
    }
}

fn read_tls_files(
    reader: &mut Reader,
    [cert_key, key_key, dir_key]: [&'static str; 3],
    client_ca_key: Option<&'static str>,
) -> Option<TlsFiles> {
    let cert = reader.take_path(cert_key);
    let key = reader.take_path(key_key);
    let certs_dir = reader.take_path(dir_key);
    let client_ca = client_ca_key.and_then(|name| read_client_ca(reader, name));
    if !reader.is_sound(&[cert_key, key_key]) {
        return None;
    }
    match (cert, key) {
        (Some(cert), Some(key)) => {
            return Some(TlsFiles { cert, key, certs_dir, client_ca: client_ca.map(|(_, ca)| ca) });
        }
        (Some(_), None) => reader.object(cert_key, format!("needs {key_key} beside it")),
        (None, Some(_)) => reader.object(key_key, format!("needs {cert_key} beside it")),
        (None, None) => {
            let alone = client_ca.map(|(name, _)| name).or(certs_dir.map(|_| dir_key));
            if let Some(name) = alone {
                reader.object(name, format!("needs {cert_key} and {key_key} beside it"));
            }
        }
    }
    None
}

fn read_client_ca(reader: &mut Reader, name: &'static str) -> Option<(&'static str, ClientCa)> {
    const REQUIRED: &str = "auth.agents.mtls.required";
    let file = reader.take_path(name);
    let required = reader.take(REQUIRED, false, &YES_OR_NO);
    if required && file.is_none() {
        reader.object(REQUIRED, format!("needs {name}: no authority says which certificates count"));
    }
    Some((name, ClientCa { file: file?, required }))
}

fn read_timeouts(reader: &mut Reader) -> Timeouts {
    let mut take = |key, seconds| reader.take(key, Duration::from_secs(seconds), &DURATION);
    Timeouts {
        tls_handshake: take("timeouts.tls_handshake", 10),
        request_header: take("timeouts.request_header", 30),
        request_body_idle: take("timeouts.request_body_idle", 60),
        reader_stalled: take("timeouts.reader_stalled", 2 * 60),
        channel_open: take("timeouts.channel_open", 10),
        response_header: take("timeouts.response_header", 60),
        stream_idle: take("timeouts.stream_idle", 60 * 60),
        upstream_idle: take("timeouts.upstream_idle", 60),
        drain: take("timeouts.drain", 30),
        agent_hello: take("timeouts.agent_hello", 10),
    }
}

fn read_limits(reader: &mut Reader) -> Limits {
    // A bound of the configuration's own: more is as good as none.
    let mut count = |key, default| reader.take_within(key, default, 1..=COUNT_32_MAX, &COUNT_32);
    let connections_per_address = count("limits.connections_per_address", 512);
    let connections_per_second_per_address = count("limits.connections_per_second_per_address", 500);
    // A few thousand agents behind one address that all redial are connected after some seconds; silent connections
    // take a fifth of what there is for all agents.
    let agent_connections_per_address = count("limits.agent_connections_per_address", 4_096);
    let agent_connections_per_second_per_address = count("limits.agent_connections_per_second_per_address", 1_000);
    let handshakes_per_address = count("limits.handshakes_per_address", 64);
    let failed_sign_ins_per_minute = count("limits.failed_sign_ins_per_minute", 300);
    let requests_per_port = count("limits.requests_per_port", 1024);
    let requests_per_user = count("limits.requests_per_user", 4096);
    let requests_per_second_per_user = count("limits.requests_per_second_per_user", 5_000);
    let requests_per_address = count("limits.requests_per_address", 256);
    let requests_per_second_per_address = count("limits.requests_per_second_per_address", 1_000);
    let http2_resets_per_second = count("limits.http2_resets_per_second", 100);
    Limits {
        connections: reader.take_within("limits.connections", 10_000, 1..=COUNT_MAX, &COUNT),
        connections_per_address,
        connections_per_second_per_address,
        agent_connections_per_address,
        agent_connections_per_second_per_address,
        handshakes: reader.take_within("limits.handshakes", 256, 1..=COUNT_MAX, &COUNT),
        handshakes_per_address,
        failed_sign_ins_per_minute,
        // hyper refuses a read buffer below 8 KiB.
        header_bytes: reader.take_within("limits.header_bytes", 64 * KIB, 8 * KIB..=16 * MIB, &SIZE),
        headers: reader.take_within("limits.headers", 100, 1..=10_000, &COUNT),
        requests_per_workspace: reader.take_within("limits.requests_per_workspace", 2048, 1..=COUNT_MAX, &COUNT),
        requests_per_port,
        requests_per_user,
        requests_per_second_per_user,
        requests_per_address,
        requests_per_second_per_address,
        http2_streams: reader.take_within("limits.http2_streams", 256, 1..=100_000, &COUNT_32),
        http2_resets_per_second,
        sessions: reader.take_within("limits.sessions", 20_000, 1..=COUNT_MAX, &COUNT),
        sessions_per_second: reader.take_within("limits.sessions_per_second", 1_000, 1..=1_000_000, &COUNT_32),
        external_workspaces_per_user: reader.take_within(
            "limits.external_workspaces_per_user",
            10,
            0..=1_000_000,
            &COUNT_32,
        ),
    }
}

fn read_tunnel(reader: &mut Reader) -> Tunnel {
    let session_budget = reader.take_within("tunnel.session_budget", SESSION_BUDGET_BYTES, KIB..=1024 * GIB, &SIZE);
    let replica_budget = reader.take_within("tunnel.replica_budget", 512 * MIB, KIB..=1024 * GIB, &SIZE);
    // Half of the replica's budget, so that no owner with many workspaces takes it all.
    let owner_budget = session_budget.max(replica_budget / 2);
    Tunnel {
        window_initial: reader.take_within("tunnel.window_initial", u64::from(WINDOW_BYTES_INITIAL), KIB..=GIB, &SIZE),
        window_max: reader.take_within("tunnel.window_max", u64::from(WINDOW_BYTES_MAX), KIB..=GIB, &SIZE),
        session_budget,
        owner_budget: reader.take_within("tunnel.owner_budget", owner_budget, KIB..=1024 * GIB, &SIZE),
        replica_budget,
        channels_per_session: reader.take_within("tunnel.channels_per_session", CHANNELS_MAX, 1..=1_000_000, &COUNT_32),
        keepalive_interval: reader.take("tunnel.keepalive_interval", Duration::from_secs(20), &DURATION),
        keepalive_timeout: reader.take("tunnel.keepalive_timeout", Duration::from_secs(10), &DURATION),
        resume_grace: reader.take("tunnel.resume_grace", RESUME_GRACE, &DURATION),
        lanes_max: reader.take_within("tunnel.lanes_max", 8, 1..=LANES_MAX, &COUNT_32),
    }
}

fn default_zone() -> Zone {
    #[expect(clippy::expect_used, reason = "the text is a constant, and a test reads the default configuration")]
    "localhost".parse().expect("`localhost` is a zone")
}
