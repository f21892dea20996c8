//! Known ports of one agent: which it exposes, how the gateway speaks to them, and which listen.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tracing::debug;
use tunnel_proto::handshake::Agreement;
use tunnel_proto::hello::{Hello, HostMode, Port as PortSettings};
use tunnel_proto::listening::{LISTENING_BYTES_MAX, LISTENING_PORT, Listening, StartCommand};
use tunnel_proto::version::{FEATURE_APP_TLS, FEATURE_LISTENING};

use super::{LiveSession, PortMode};
use gateway_types::Port;

/// Time that an answer counts. A page of a workspace that many users have open asks its agent no more often.
const FRESH: Duration = Duration::from_secs(1);

/// Longest wait for an agent's list of listening ports. The page that needs it is shown with or without them.
const PATIENCE: Duration = Duration::from_secs(1);

/// Most ports that are remembered as insisting on their host.
const INSISTING_MAX: usize = 256;

/// The ports of an agent: as it said, and as observed.
#[derive(Debug, Default)]
pub struct AgentPorts {
    /// The ports that it exposes; empty for every loopback port.
    pub exposed: Vec<PortSettings>,
    /// Protocol and host of ports, exposed by name or not.
    pub apps: Vec<PortSettings>,
    /// Host that apps see unless a port says otherwise.
    pub host: HostMode,
    /// The port of the address without a port.
    pub default: Option<u16>,
    /// The agent reports its listening ports on request.
    pub reports: bool,
    /// The agent speaks TLS to apps on request.
    pub speaks_tls: bool,
    pub(super) insisting: Insisting,
    pub(super) observed: Mutex<Option<(Instant, AgentReport)>>,
}

/// What an agent says of its workspace when it is asked. Clones are cheap.
#[derive(Clone, Debug)]
pub struct AgentReport {
    /// The ports, in their order, that it exposes and on which something listens.
    pub listening: Arc<[Port]>,
    /// Labels of some of them, as the agent knows them.
    pub labels: Arc<BTreeMap<u16, String>>,
    /// The commands that began with the workspace, those that failed first.
    pub commands: Arc<[StartCommand]>,
    /// Time since which a command in the workspace wants to be waited for; of several, the youngest's.
    pub busy_for: Option<Duration>,
}

/// The ports whose apps refused the host that users ask for, and whether they take `localhost`.
#[derive(Debug, Default)]
pub(super) struct Insisting {
    /// Almost always false: then a request costs no lock.
    any: AtomicBool,
    ports: Mutex<BTreeMap<Port, bool>>,
}

impl AgentPorts {
    /// Takes an agent's declaration of its ports.
    #[must_use]
    pub fn of(hello: &Hello, agreement: &Agreement) -> Self {
        Self {
            exposed: hello.ports.clone(),
            apps: hello.apps.clone(),
            host: hello.host,
            default: hello.default_port,
            reports: agreement.has(FEATURE_LISTENING),
            speaks_tls: agreement.has(FEATURE_APP_TLS),
            ..Self::default()
        }
    }

    /// Returns whether the agent exposes a port.
    pub(super) fn expose(&self, port: Port) -> bool {
        self.exposed.is_empty() || self.exposed.iter().any(|exposed| exposed.number == port.get())
    }

    /// Returns the protocol and host for a port.
    pub(super) fn mode(&self, port: Port) -> PortMode {
        let find = |ports: &[PortSettings]| ports.iter().find(|said| said.number == port.get()).copied();
        let said = find(&self.exposed).or_else(|| find(&self.apps));
        let protocol = said.map(|said| said.protocol).unwrap_or_default();
        // The agent's own pages check no host.
        let of_session = if port.is_agents_page() { HostMode::Original } else { self.host };
        let host = match said.map(|said| said.host).unwrap_or_default() {
            HostMode::Auto => of_session,
            host @ (HostMode::Original | HostMode::Localhost) => host,
        };
        let host = if host == HostMode::Auto && self.insisting.contains(port) { HostMode::Localhost } else { host };
        PortMode { protocol, host, tls: said.is_some_and(|said| said.tls) }
    }

    fn fresh(&self, now: Instant) -> Option<AgentReport> {
        let observed = self.observed.lock();
        observed.as_ref().filter(|(at, _)| now.saturating_duration_since(*at) < FRESH).map(|(_, report)| report.clone())
    }
}

impl Insisting {
    fn contains(&self, port: Port) -> bool {
        self.any.load(Ordering::Acquire) && self.ports.lock().get(&port).copied().unwrap_or_default()
    }

    /// Tries `localhost` on a port, once. Returns whether this is the first time.
    fn insert(&self, port: Port) -> bool {
        let mut ports = self.ports.lock();
        if ports.len() >= INSISTING_MAX || ports.contains_key(&port) {
            return false;
        }
        ports.insert(port, true);
        self.any.store(true, Ordering::Release);
        true
    }

    /// Notes that the app does not take `localhost` either.
    fn give_up(&self, port: Port) {
        self.ports.lock().insert(port, false);
    }
}

impl LiveSession {
    /// Makes the app on a port see `localhost` as its host from now on, for as long as the session lives; only if its
    /// host was not configured, and only once for a port. Returns whether that is so.
    pub fn insists_on_localhost(&self, port: Port) -> bool {
        self.mode(port).host == HostMode::Auto && self.ports.insisting.insert(port)
    }

    /// Takes [`LiveSession::insists_on_localhost`] back: the app does not take `localhost` either.
    pub fn insists_on_neither(&self, port: Port) {
        self.ports.insisting.give_up(port);
    }

    /// Returns the ports, in their order, that the agent exposes and reports as listening when it is asked now; `None`
    /// if it does not report them, or not in time.
    ///
    /// Cancel safety: safe.
    pub async fn listening(&self) -> Option<Arc<[Port]>> {
        self.report().await.map(|report| report.listening)
    }

    /// Returns what the agent says of its workspace when it is asked now; `None` if it does not say it, or not in time.
    ///
    /// Cancel safety: safe.
    pub async fn report(&self) -> Option<AgentReport> {
        if !self.ports.reports || self.tunnel.is_detached() {
            return None;
        }
        if let Some(report) = self.ports.fresh(Instant::now()) {
            return Some(report);
        }
        let Ok(Some(Listening { ports, labels, commands, busy_seconds })) =
            timeout(PATIENCE, self.ask_listening()).await
        else {
            debug!(agent = %self.subject, "the agent did not say which ports listen");
            return None;
        };
        let listening = ports.into_iter().filter_map(Port::new).filter(|port| self.ports.expose(*port)).collect();
        let busy_for = busy_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let report = AgentReport { listening, labels: labels.into(), commands: commands.into(), busy_for };
        *self.ports.observed.lock() = Some((Instant::now(), report.clone()));
        Some(report)
    }

    /// Asks the agent. However much it sends, no more than a message is kept.
    async fn ask_listening(&self) -> Option<Listening> {
        // The channel's bytes show whether it was accepted.
        let (mut channel, _accepted) = self.tunnel.open(LISTENING_PORT).ok()?;
        let mut message = Vec::new();
        while let Some(bytes) = poll_fn(|context| channel.poll_bytes(context)).await.ok()? {
            if message.len() + bytes.len() > LISTENING_BYTES_MAX {
                return None;
            }
            message.extend_from_slice(&bytes);
        }
        Listening::decode(&message).ok()
    }
}

#[cfg(test)]
mod tests {
    use tunnel_proto::hello::AppProtocol;

    use super::*;

    fn said(number: u16, host: HostMode) -> PortSettings {
        PortSettings { number, protocol: AppProtocol::Http1, host, tls: false }
    }

    fn port(number: u16) -> Port {
        Port::new(number).unwrap()
    }

    #[test]
    fn what_is_said_of_one_app_closes_no_port_and_counts_before_what_is_said_of_all() {
        let ports = AgentPorts {
            apps: vec![said(8888, HostMode::Original), said(3000, HostMode::Auto)],
            host: HostMode::Localhost,
            ..AgentPorts::default()
        };
        assert!(ports.expose(port(8888)) && ports.expose(port(9999)));
        let hosts = [8888, 3000, 9999, 60_002].map(|number| ports.mode(port(number)).host);
        assert_eq!(hosts, [HostMode::Original, HostMode::Localhost, HostMode::Localhost, HostMode::Original]);
    }

    #[test]
    fn exposed_port_has_what_it_was_named_with_and_closes_the_others() {
        let ports = AgentPorts { exposed: vec![said(80, HostMode::Localhost)], ..AgentPorts::default() };
        assert_eq!(ports.mode(port(80)).host, HostMode::Localhost);
        assert!(!ports.expose(port(81)));
    }

    #[test]
    fn app_that_insists_is_remembered_unless_a_person_said_its_host() {
        let ports = AgentPorts { apps: vec![said(80, HostMode::Original)], ..AgentPorts::default() };
        for number in [80, 81] {
            ports.insisting.insert(port(number));
        }
        assert_eq!(
            [80, 81, 82].map(|number| ports.mode(port(number)).host),
            [HostMode::Original, HostMode::Localhost, HostMode::Auto]
        );
        ports.insisting.give_up(port(81));
        assert_eq!(ports.mode(port(81)).host, HostMode::Auto);
        assert!(!ports.insisting.insert(port(81)), "it is tried once");
    }

    #[test]
    fn no_number_of_ports_makes_the_memory_grow_beyond_its_bound() {
        let insisting = Insisting::default();
        let inserted = (1..1000).filter(|number| insisting.insert(port(*number))).count();
        assert_eq!(inserted, INSISTING_MAX);
    }
}
