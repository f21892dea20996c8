//! Preparations before the programs start: ports, certificates, workspaces and tokens.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use gateway_store::{Store, wall_clock};
use gateway_types::{UserName, WorkspaceName};
use rand::Rng as _;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::CertificateDer;

/// Range of ports, below the one from which the system picks those of outgoing connections: a port found free now is
/// still free when a program binds it, also after a restart.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// Attempts to find a free port.
const PORT_TRIES: usize = 200;

/// User that owns the workspaces.
const OWNER: &str = "dev";

/// Returns a loopback address that was free a moment ago.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..PORT_TRIES {
        let port = rand::rng().random_range(PORTS);
        if let Ok(listener) = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener.local_addr()?);
        }
    }
    anyhow::bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

/// Certificate of the lab's own, and its trust settings.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    pub(super) trusting: Arc<rustls::ClientConfig>,
}

impl Certificate {
    /// Makes one for `names` and writes it into `folder`.
    pub(super) fn make(folder: &Path, names: Vec<String>) -> anyhow::Result<Self> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).context("making a certificate")?;
        let (cert_path, key_path) = (folder.join("cert.pem"), folder.join("key.pem"));
        fs::write(&cert_path, cert.pem())?;
        write_secret(&key_path, &signing_key.serialize_pem())?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from(cert.der().to_vec()))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut trusting = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        trusting.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { cert: cert_path, key: key_path, trusting: Arc::new(trusting) })
    }
}

/// The tokens of a lab.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) user: String,
    /// One per workspace, in their order.
    pub(super) agents: Vec<String>,
}

/// Makes the database with its workspaces and tokens; faster by far than one run of a program for each.
pub(super) async fn make_store(url: &str, workspaces: usize) -> anyhow::Result<Tokens> {
    let store = Store::open(url).await.context("making the lab's database")?;
    let (owner, now) = (OWNER.parse::<UserName>()?, wall_clock());
    let user = store.create_user_token(&owner, now).await?.token.reveal().to_owned();
    let mut agents = Vec::with_capacity(workspaces);
    for number in 0..workspaces {
        let name: WorkspaceName = workspace_name(number).parse()?;
        agents.push(store.create_agent_token(&name, &owner, now).await?.token.reveal().to_owned());
    }
    store.close().await;
    Ok(Tokens { user, agents })
}

/// Returns the name of a workspace by its number.
pub(super) fn workspace_name(number: usize) -> String {
    format!("lab{number}")
}

/// Writes a file that only its owner reads.
pub(super) fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}
