//! Listeners of the gateway: bound here, or taken from a service manager.

use std::net::TcpListener;
use std::sync::Arc;

use super::StartError;
use gateway_config::{Config, TlsFiles};
use gateway_net::inherited::InheritedSockets;
use gateway_net::limits::UsageLimits;
use gateway_net::listen::{AcceptPolicy, BindError, ClientKind, Listener, ListenerOptions};
use gateway_net::tls::{ALPN_AGENTS, ALPN_USERS, Tls, TlsError};

/// Bound listeners.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) public: Listener,
    pub(super) agents: Listener,
    pub(super) admin: Option<Listener>,
}

/// Certificates of the listeners that speak TLS.
pub(super) struct ListenerTls {
    pub(super) public: Option<Arc<Tls>>,
    pub(super) agents: Option<Arc<Tls>>,
}

impl ListenerTls {
    /// Reads the certificates that the configuration names.
    ///
    /// # Errors
    /// [`TlsError`], for the operator.
    pub(super) fn load(config: &Config) -> Result<Self, TlsError> {
        let load = |files: Option<&TlsFiles>, alpn| files.map(|files| Tls::load(files.clone(), alpn)).transpose();
        let Config { tls, .. } = config;
        Ok(Self { public: load(tls.public.as_ref(), ALPN_USERS)?, agents: load(tls.agents.as_ref(), ALPN_AGENTS)? })
    }

    /// Returns all of them, to be watched for changes.
    pub(super) fn certificates(&self) -> Vec<Arc<Tls>> {
        self.public.iter().chain(&self.agents).cloned().collect()
    }
}

impl Listeners {
    /// Puts the port that the kernel chose into a public address that left it open.
    ///
    /// # Errors
    /// [`StartError::Address`].
    pub(super) fn settle(&self, config: &mut Config) -> Result<(), StartError> {
        if config.public_url.port() == 0 {
            let bound = self.public.local_addr().map_err(StartError::Address)?;
            config.public_url = config.public_url.with_port(bound.port());
        }
        Ok(())
    }

    /// Creates the listeners of a configuration, on inherited sockets if there are some for their ports.
    ///
    /// # Errors
    /// [`StartError::Bind`], and [`StartError::Inherited`] for a socket that no listener takes.
    pub(super) fn bind(
        config: &Config,
        limits: &Arc<UsageLimits>,
        tls: ListenerTls,
        mut inherited: InheritedSockets,
    ) -> Result<Self, StartError> {
        let trusted: Arc<[_]> = config.listen.trusted_proxies.clone().into();
        let options = |what, named, tls, connections_max, kind| ListenerOptions {
            what,
            named,
            tls,
            connections_max,
            handshakes_max: config.limits.handshakes,
            handshake_timeout: config.timeouts.tls_handshake,
            stalled_timeout: config.timeouts.reader_stalled,
            // Health and metrics are asked for directly, not through a load balancer.
            policy: AcceptPolicy {
                kind,
                limits: limits.clone(),
                trusted: if kind == ClientKind::Operator { Arc::default() } else { trusted.clone() },
            },
        };
        let users =
            options("users", ("--listen", "listen.public"), tls.public, config.limits.connections, ClientKind::User);
        // Sessions have a limit of their own; the margin lets a new link displace an old one when it is reached.
        let links = config.limits.sessions.saturating_add(config.limits.handshakes);
        let agents = options("agents", ("--agents-listen", "listen.agents"), tls.agents, links, ClientKind::Link);
        let admin = options("admin", ("--admin-listen", "listen.admin"), None, 256, ClientKind::Operator);
        let mut listener = |address, options| -> Result<Listener, BindError> {
            let socket: Option<TcpListener> = inherited.take(address);
            match socket {
                Some(socket) => Listener::adopt(socket, address, options),
                None => Listener::bind(address, options),
            }
        };
        let listeners = Self {
            public: listener(config.listen.public, users)?,
            agents: listener(config.listen.agents, agents)?,
            admin: config.listen.admin.map(|address| listener(address, admin)).transpose()?,
        };
        inherited.finish()?;
        Ok(listeners)
    }
}
