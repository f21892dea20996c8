//! Reasons that a gateway does not start.

use std::path::PathBuf;

use thiserror::Error;

use super::environment_api::EnvironmentSetupError;
use super::sign_in::SignInSetupError;
use gateway_auth::site::BadPublicUrl;
use gateway_ci::downloads::DownloadError;
use gateway_ci::settings::CiSetupError;
use gateway_net::acme::AcmeError;
use gateway_net::fetch::FetchSetupError;
use gateway_net::host_sockets::SocketError;
use gateway_net::inherited::BadInherited;
use gateway_net::listen::BindError;
use gateway_net::tls::TlsError;
use gateway_replicas::lease::JoinError;
use gateway_store::{SingleError, StoreError};
use gateway_types::token::NoRandomness;

/// Failure to start a gateway. Each text says what to change.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address is taken or not ours.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A service manager's socket is of no use.
    #[error(transparent)]
    Inherited(#[from] BadInherited),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no certificate.
    #[error("there is no certificate to serve users with: {0}")]
    Acme(#[from] AcmeError),
    /// The port for other replicas is taken or not ours.
    #[error("listen.peers: {address} cannot be used: {source}")]
    PeerPort {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no socket for other processes of this host.
    #[error("directory = \"host\": {0}")]
    Socket(#[from] SocketError),
    /// The other replicas do not take this one.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another gateway serves the store, or its absence cannot be checked.
    #[error(transparent)]
    Single(#[from] SingleError),
    /// Issuers of agents' credentials cannot be asked.
    #[error("auth.agents: {0}")]
    Issuers(#[from] FetchSetupError),
    /// Token endpoints of git servers cannot be asked.
    #[error("git: {0}")]
    Git(#[source] FetchSetupError),
    /// The collector of traces cannot be asked.
    #[error("traces")]
    Traces(#[source] FetchSetupError),
    /// The public address cannot be used.
    #[error(transparent)]
    PublicUrl(#[from] BadPublicUrl),
    /// The audit log cannot be written.
    #[error("audit.path: {} cannot be opened: {source}", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Sign-in with the identity provider cannot be set up.
    #[error(transparent)]
    SignIn(#[from] SignInSetupError),
    /// Programs that jobs download cannot be used.
    #[error(transparent)]
    Downloads(#[from] DownloadError),
    /// CI systems cannot be used.
    #[error(transparent)]
    Ci(#[from] CiSetupError),
    /// Jobs cannot ask for environments.
    #[error(transparent)]
    Environments(#[from] EnvironmentSetupError),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Randomness,
    /// The kernel does not say where a listener is.
    #[error("a listener has no address: {0}")]
    Address(#[source] std::io::Error),
}

impl From<NoRandomness> for StartError {
    fn from(_: NoRandomness) -> Self {
        Self::Randomness
    }
}
