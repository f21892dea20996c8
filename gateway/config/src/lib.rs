//! Reads what the operator configured: raw text from four layers, validated once into typed values.
//!
//! Layers, the later wins: defaults, the TOML file, `GATEWAY_…` environment variables, command-line flags. Reading
//! never stops at the first mistake: [`BadConfig`] lists all of them with place, value and what would be accepted.
//! Unknown keys are mistakes too, because a misspelt limit is a missing limit.
//!
//! * `source` merges the layers into one map of keys; it knows no meaning of a key.
//! * `reader` hands values out one by one, with the parsers of `value`, and collects their problems.
//! * `sections`, `auth`, `agents`, `store`, `acme`, `ci`, `environments`: the keys, each declared where it is read, with
//!   default, kind and bounds.
//! * `check`: rules between keys. `advice`: configurations that work and could be better.
//! * `problem`: a mistake as text.
//!
//! `docs/reference/configuration.md` is generated from the keys by a test of this crate.

mod acme;
mod advice;
mod agents;
mod auth;
mod check;
mod ci;
mod environments;
mod problem;
mod reader;
mod sections;
mod source;
mod store;
mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use gateway_types::{PublicUrl, Zone};

pub use advice::advice;
pub use agents::{AgentAuth, CiIssuer, CiRule, KubernetesIssuer, KubernetesRule, NamespacePattern};
pub use auth::{Auth, ClientSecret, Oidc};
pub use ci::{Ci, CiEditor, CiProvider, CiSystem, CommandCi, GitlabCi, GitlabToken};
pub use environments::{Environments, JobIssuer};
pub use problem::{BadConfig, ConfigProblem, ValueOrigin};
pub use sections::{AuthMode, LogFormat};
pub use source::{Flag, process_environment};
pub use store::StoreConfig;
pub use value::{BadStoreUrl, IpNetwork, PostgresUrl, StoreUrl, parse_duration};

/// The file that is read when no other is named and it exists.
pub const DEFAULT_FILE: &str = "gateway.toml";

/// The database that is used when no other is named.
pub const DEFAULT_DATABASE: &str = "gateway.db";

/// Everything that can be configured, validated.
///
/// Invariants: the checks of the private `check` module hold for every value that [`Config::load`] returns.
#[derive(Clone, Debug)]
pub struct Config {
    /// The domain under which workspaces live (`zone`).
    pub zone: Zone,
    /// URL of the dashboard, the API and sign-in (`public_url`). Follows `listen.public` unless it is set.
    pub public_url: PublicUrl,
    /// Addresses to listen on (`listen.*`).
    pub listen: Listen,
    /// Certificates (`tls.*`).
    pub tls: Tls,
    /// The database (`store.*`).
    pub store: StoreConfig,
    /// Sign-in of users and agents (`auth.*`).
    pub auth: Auth,
    /// Log output (`log.*`).
    pub log: Log,
    /// The audit log (`audit.*`).
    pub audit: AuditLog,
    /// Folder with the configurations of cluster agents (`agents_dir`).
    pub agents_dir: Option<PathBuf>,
    /// Workspaces in jobs of CI systems (`ci.*`).
    pub ci: Ci,
    /// Environments of CI jobs (`environments.*`).
    pub environments: Environments,
    /// Deadlines and idle timeouts (`timeouts.*`).
    pub timeouts: Timeouts,
    /// Bounds beyond which the gateway refuses (`limits.*`).
    pub limits: Limits,
    /// The agents' tunnel (`tunnel.*`).
    pub tunnel: Tunnel,
    rows: Vec<EffectiveRow>,
    file: Option<PathBuf>,
}

/// Addresses to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Users: browsers and API programs.
    pub public: SocketAddr,
    /// gRPC from agents.
    pub agents: SocketAddr,
    /// Health and metrics; `None` when `off`.
    pub admin: Option<SocketAddr>,
    /// Names by which `admin` may be asked, beside its address and `localhost`.
    pub admin_hosts: Vec<String>,
    /// Load balancers in front of users and agents that announce the client's address (PROXY protocol, version 1 or 2).
    /// Every connection from these must carry it; from all others it is never read.
    pub trusted_proxies: Vec<IpNetwork>,
    /// Users may open WebSockets on streams of HTTP/2 (RFC 8441). Without, browsers open a connection for each.
    pub websocket_http2: bool,
}

/// Certificates per listener; `None` means plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// For `listen.public`.
    pub public: Option<TlsFiles>,
    /// For `listen.agents`.
    pub agents: Option<TlsFiles>,
    /// Certificates for `public` that the gateway gets for itself.
    pub acme: Option<Acme>,
}

/// Certificates that the gateway obtains for itself (RFC 8555), with the challenge `dns-01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// The authority's directory.
    pub directory: String,
    /// Contact address for the authority.
    pub email: Option<String>,
    /// The names of the certificate; by default the public host and all of the zone.
    pub names: Vec<String>,
    /// A program that sets and removes DNS records.
    pub dns_hook: PathBuf,
    /// Folder of the account and the certificate.
    pub folder: PathBuf,
    /// Trust anchors for the authority's server, if not the system's.
    pub ca_file: Option<PathBuf>,
}

/// PEM files of one TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, leaf first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// A folder with more: each `NAME.crt` or `NAME.pem` with its `NAME.key`, used for the names in it.
    pub certs_dir: Option<PathBuf>,
    /// Authorities whose client certificates count; only for agents.
    pub client_ca: Option<ClientCa>,
}

/// The authorities of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCa {
    /// Their certificates.
    pub file: PathBuf,
    /// Refuses connections without a client certificate.
    pub required: bool,
}

/// Log output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The least important level that is written (`log.level`).
    pub level: tracing::Level,
    /// The shape of a line (`log.format`).
    pub format: LogFormat,
}

/// The audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    /// Its file; `None` writes to the program's log, with the target `audit`.
    pub path: Option<PathBuf>,
    /// A file that would grow beyond this is put aside first, in bytes.
    pub rotate_bytes: u64,
    /// Files put aside that are kept.
    pub keep: u32,
}

/// Time limits, one for each kind of wait. All are above zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From accept to the end of the TLS handshake.
    pub tls_handshake: Duration,
    /// From the first wait for a request head to its last byte.
    pub request_header: Duration,
    /// A request's body without a byte, while its app has not answered.
    pub request_body_idle: Duration,
    /// Sent bytes that a user's connection leaves unread.
    pub reader_stalled: Duration,
    /// From opening a channel to the agent's answer.
    pub channel_open: Duration,
    /// From the request to the app's response head.
    pub response_header: Duration,
    /// An upgraded stream without a byte either way.
    pub stream_idle: Duration,
    /// A pooled channel without a request.
    pub upstream_idle: Duration,
    /// From the stop signal to closing what is still open.
    pub drain: Duration,
    /// From an agent's connection to its `Hello`.
    pub agent_hello: Duration,
}

/// Bounds beyond which the gateway refuses. All are above zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Users' connections at a time. Near it, those that have been idle for longest are closed for new ones.
    pub connections: usize,
    /// Users' connections of one address at a time on which no user has signed in.
    pub connections_per_address: u32,
    /// New connections of users of one address in a second, and four times as many at once; those that come faster wait, and are
    /// then refused.
    pub connections_per_second_per_address: u32,
    /// Agents' connections of one address at a time on which no session has come up. Above it, the oldest of them is cut.
    pub agent_connections_per_address: u32,
    /// New connections of agents of one address in a second, and four times as many at once; those that come faster wait, and are
    /// then cut.
    pub agent_connections_per_second_per_address: u32,
    /// TLS handshakes at a time.
    pub handshakes: usize,
    /// Users' TLS handshakes of one address at a time.
    pub handshakes_per_address: u32,
    /// Tokens, cookies and codes of one address in a minute that are not good. What is good passes above it too, unless the
    /// store would have to be asked.
    pub failed_sign_ins_per_minute: u32,
    /// A request head, in bytes; at least 8 KiB.
    pub header_bytes: u64,
    /// Header fields of a request.
    pub headers: usize,
    /// Requests and streams in flight to one workspace.
    pub requests_per_workspace: usize,
    /// Requests and streams in flight to one port of a workspace, so that a public one leaves room for the others.
    pub requests_per_port: u32,
    /// Requests and streams in flight of one user.
    pub requests_per_user: u32,
    /// Requests of one user in a second, and four times as many at once.
    pub requests_per_second_per_user: u32,
    /// Requests and streams in flight of one address without a user: at public ports.
    pub requests_per_address: u32,
    /// Requests of one address in a second without a user, and as many at once. Connections that go on above it are closed.
    pub requests_per_second_per_address: u32,
    /// HTTP/2 streams of one user connection.
    pub http2_streams: u32,
    /// HTTP/2 streams of one user connection in a second that end with a reset, and some seconds' worth at once.
    pub http2_resets_per_second: u32,
    /// Agent sessions at a time.
    pub sessions: usize,
    /// New agent sessions in a second; those that come faster wait, and beyond some seconds are sent a time to come
    /// back.
    pub sessions_per_second: u32,
    /// External workspaces that one user may have by making them; 0 leaves that to the operator.
    pub external_workspaces_per_user: u32,
}

/// The agents' tunnel. `window_initial <= window_max <= session_budget <= owner_budget <= replica_budget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// A new channel's window, in bytes.
    pub window_initial: u64,
    /// The widest window a channel can grow to, in bytes.
    pub window_max: u64,
    /// Sum of the windows of one session, in bytes.
    pub session_budget: u64,
    /// Sum of the windows of all workspaces of one owner, in bytes.
    pub owner_budget: u64,
    /// Sum of the windows of one replica, in bytes.
    pub replica_budget: u64,
    /// Channels of one session at a time.
    pub channels_per_session: u32,
    /// Silence after which the other side is asked for a sign of life.
    pub keepalive_interval: Duration,
    /// Longest wait for that sign of life.
    pub keepalive_timeout: Duration,
    /// Time for which a session without a link is kept; zero ends it with its link.
    pub resume_grace: Duration,
    /// Links that one session may have at once.
    pub lanes_max: u32,
}

/// Layer that a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default: no layer set it.
    Default,
    /// The TOML file.
    File,
    /// A `GATEWAY_…` variable.
    Environment,
    /// A command-line flag.
    Flag,
}

impl Origin {
    /// Returns the origin as one lower-case word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One line of `gateway config show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveRow {
    /// The dotted key.
    pub key: Cow<'static, str>,
    /// The value as the file would spell it; a mask for secrets; `None` when the key has no value.
    pub value: Option<String>,
    /// Layer that the value came from.
    pub origin: Origin,
    /// Place of the value.
    pub place: ValueOrigin,
    /// Accepted values, for people.
    pub accepted: &'static str,
}

impl Config {
    /// Reads and validates the layers without flags.
    ///
    /// # Errors
    /// All mistakes of the file and the environment together.
    pub fn load(file: Option<&Path>, env: &BTreeMap<String, String>) -> Result<Self, BadConfig> {
        Self::load_with_flags(file, env, &[])
    }

    /// Reads and validates all layers.
    ///
    /// # Errors
    /// All mistakes of all layers together.
    pub fn load_with_flags(
        file: Option<&Path>,
        env: &BTreeMap<String, String>,
        flags: &[Flag],
    ) -> Result<Self, BadConfig> {
        let mut reader = reader::Reader::new(source::collect(file, env, flags));
        let mut config = sections::read(&mut reader);
        config.file = file.map(Path::to_owned);
        check::across_keys(&config, &mut reader);
        config.rows = reader.finish()?;
        Ok(config)
    }

    /// Returns every key with its value and origin, single keys before sections; secrets are masked.
    #[must_use]
    pub fn effective(&self) -> &[EffectiveRow] {
        &self.rows
    }

    /// Returns the file that was read.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Makes a problem of a key, at the place of its value.
    #[must_use]
    pub fn problem(&self, key: &str, wrong: impl Into<String>) -> ConfigProblem {
        let row = self.rows.iter().find(|row| row.key == key);
        let place = row.map_or(ValueOrigin::Default, |row| row.place.clone());
        ConfigProblem::of_key(place, key.to_owned(), wrong)
    }

    /// Finds a database in the working directory that an earlier version would have used. Relative paths of a file
    /// started there, and a new database beside the file would hide it.
    #[must_use]
    pub fn stray_database(&self) -> Option<ConfigProblem> {
        let StoreUrl::SqliteFile(path) = &self.store.url else { return None };
        let folder = self.file.as_deref()?.parent().filter(|folder| !folder.as_os_str().is_empty())?;
        let stray = path.strip_prefix(folder).ok()?;
        let is_stray = self.origin("store.url") != Some(Origin::Environment) && !path.exists() && stray.exists();
        is_stray.then(|| {
            let wrong = format!(
                "is {}, which is not there, while {} is in the working directory: relative paths start at the file's folder; \
                 name the database by its whole path",
                path.display(),
                stray.display()
            );
            self.problem("store.url", wrong)
        })
    }

    /// Returns the layer that the value of `key` came from; `None` for a key that does not exist.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<Origin> {
        self.rows.iter().find(|row| row.key == key).map(|row| row.origin)
    }
}

impl Default for Config {
    /// A working single node on loopback.
    fn default() -> Self {
        let mut reader = reader::Reader::new(source::Layers::default());
        let mut config = sections::read(&mut reader);
        // The defaults have no problems (a test holds that), so the empty list is never used.
        config.rows = reader.finish().unwrap_or_default();
        config
    }
}

#[cfg(test)]
mod tests;
