//! Knowledge of which replica has which session.

use std::net::SocketAddr;
use std::path::PathBuf;

use gateway_types::PublicUrl;

/// Where the sessions of all replicas are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Directory {
    /// In this process, which is the only one.
    #[default]
    Memory,
    /// In the database, which several replicas share.
    Store(PeersConfig),
}

/// What a replica needs to know about itself to be one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// Address for other replicas.
    pub listen: SocketAddr,
    /// URL at which they reach it.
    pub url: PublicUrl,
    /// Certificate of this replica towards the others.
    pub cert: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Authorities that sign the certificates of replicas.
    pub ca: PathBuf,
}
