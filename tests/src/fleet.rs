//! Several replicas in this process, which share a database.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use gateway_config::{Config, Directory, PeersConfig, StoreUrl};
use gateway_store::{Incarnation, NewReplica, Store};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;

use crate::TestGateway;

/// What replicas share: a database, and the authority of their certificates.
#[derive(Debug)]
pub struct Fleet {
    folder: TempDir,
    /// Zone and public URL, in which all replicas agree.
    agreed: OnceLock<(String, String)>,
}

impl Default for Fleet {
    /// Makes the database's folder and the certificates.
    fn default() -> Self {
        // In memory if possible: a busy disk would make replicas wait for each other's writes.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let put = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        put("ca.pem", params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::from_params(&params, &key);
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![SanType::URI("spiffe://localhost/replica".try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let own = KeyPair::generate().unwrap();
        put("cert.pem", params.signed_by(&own, &issuer).unwrap().pem());
        put("key.pem", own.serialize_pem());
        Self { folder, agreed: OnceLock::new() }
    }
}

impl Fleet {
    /// Returns the port for replicas, the address at which they reach it, and what they show and trust.
    #[must_use]
    pub fn peers(&self, listen: SocketAddr, reached_at: SocketAddr) -> PeersConfig {
        PeersConfig {
            listen,
            url: format!("https://{reached_at}").parse().expect("a URL"),
            shutdown_delay: Duration::ZERO,
            cert: self.path("cert.pem"),
            key: self.path("key.pem"),
            ca: self.path("ca.pem"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a replica of a configuration.
    pub fn join(&self, config: &mut Config) {
        let listen = free_address();
        self.join_behind(config, listen, listen);
    }

    /// Makes a replica of a configuration, which others reach at another address than its own.
    pub fn join_behind(&self, config: &mut Config, listen: SocketAddr, reached_at: SocketAddr) {
        config.store.url = StoreUrl::SqliteFile(self.path("gateway.db"));
        // The same for all, although each listens on a port of its own.
        config.public_url = config.public_url.with_port(1);
        config.directory = Directory::Store(self.peers(listen, reached_at));
        self.agreed.get_or_init(|| (config.zone.to_string(), config.public_url.to_string()));
    }

    /// Registers a replica that is no process, beside those that joined.
    pub async fn add_replica(&self, store: &Store, listen: SocketAddr) -> Incarnation {
        let (zone, public_url) = self.agreed.get().expect("one has joined");
        let (peer_url, lease) = (format!("https://{listen}"), Duration::from_secs(60));
        let new = NewReplica { peer_url: &peer_url, version: "1", zone, public_url, lease };
        store.add_replica(&new).await.expect("the store").expect("the same settings")
    }

    /// Starts one more replica.
    pub async fn replica(&self) -> TestGateway {
        TestGateway::start_with(|config| self.join(config)).await
    }
}

/// Returns an address that nothing else listens on or dials from: a loopback address of this process alone, and a port
/// below those that the system gives out. A free port that is looked up could be another's by the time it is used.
pub fn free_address() -> SocketAddr {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let port = 20_000 + COUNT.fetch_add(1, Ordering::Relaxed);
    (Ipv4Addr::new(127, 64 | high, middle, low), port).into()
}
