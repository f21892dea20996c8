//! Client certificates: which ones name an agent, which ones name nobody, and that a session ends with its certificate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use e2e::scripted::hello;
use e2e::stopwatch::Stopwatch;
use e2e::{TestAgent, TestGateway};
use gateway_config::{ClientCa, TlsFiles};
use gateway_store::wall_clock;
use gateway_types::WorkspaceName;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tunnel_proto::frame::Body;
use tunnel_proto::hello::Hello;
use workspace_agent::dial::ClientFiles;
use workspace_agent::{Gateway, TokenSource};

use crate::raw_agent::{RawAgent, WINDOW};

const UNAUTHENTICATED: u16 = 16;

/// The URI of a workspace on a gateway whose zone is `localhost`.
fn uri(workspace: &str) -> SanType {
    SanType::URI(format!("spiffe://localhost/workspace/{workspace}").try_into().unwrap())
}

/// A key and what vouches for it.
struct Holder {
    params: CertificateParams,
    key: KeyPair,
    chain: String,
}

impl Holder {
    fn authority() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of agents");
        let key = KeyPair::generate().unwrap();
        let chain = params.self_signed(&key).unwrap().pem();
        Self { params, key, chain }
    }

    /// Signs a certificate for a client of a workspace, with changes.
    fn sign(&self, workspace: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![uri(workspace)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        begins(&mut params, -3600);
        ends(&mut params, 3600);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let chain = params.signed_by(&key, &issuer).unwrap().pem();
        Self { params, key, chain }
    }

    /// Shows another certificate behind its own.
    fn behind(mut self, other: &Self) -> Self {
        self.chain.push_str(&other.chain);
        self
    }
}

/// So many seconds from now, since 1970.
fn since_1970(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(wall_clock().get() + seconds).unwrap())
}

fn begins(params: &mut CertificateParams, seconds: i64) {
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_1970(seconds);
}

fn ends(params: &mut CertificateParams, seconds: i64) {
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970(seconds);
}

/// Where everything is.
struct Site {
    folder: tempfile::TempDir,
    authority: Holder,
    gateway: TestGateway,
}

impl Site {
    async fn new(required: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let authority = Holder::authority();
        std::fs::write(file("ca.pem"), &authority.chain).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(file("server.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("server.key"), made.signing_key.serialize_pem()).unwrap();
        let client_ca = Some(ClientCa { file: file("ca.pem"), required });
        let tls = TlsFiles { cert: file("server.pem"), key: file("server.key"), certs_dir: None, client_ca };
        let gateway = TestGateway::start_with(|config| config.tls.agents = Some(tls)).await;
        for workspace in ["one", "two"] {
            gateway.agent_token(workspace).await;
        }
        Self { folder, authority, gateway }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Connects with a certificate, or without.
    async fn connect(&self, holder: Option<&Holder>) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file("server.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match holder {
            None => builder.with_no_client_auth(),
            Some(holder) => {
                let chain = CertificateDer::pem_slice_iter(holder.chain.as_bytes()).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(holder.key.serialize_pem().as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.gateway.addresses.agents).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Dials with a certificate, a token, both or none; `None` when TLS did not come up.
    async fn dial(&self, holder: Option<&Holder>, token: Option<&str>) -> Option<RawAgent> {
        let stream = self.connect(holder).await.ok()?;
        let authorization = token.map(|token| format!("Bearer {token}"));
        let authorizations: Vec<&str> = authorization.as_deref().into_iter().collect();
        let mut agent = RawAgent::open_over(stream, &authorizations, WINDOW).await?;
        agent.say(Body::Hello(Box::new(Hello { instance: 7, ..hello() }))).await;
        Some(agent)
    }

    /// Returns the code of a refusal; `tls` for one in the handshake.
    async fn refused(&self, holder: Option<&Holder>, token: Option<&str>) -> String {
        let Some(agent) = self.dial(holder, token).await else { return "tls".to_owned() };
        // In TLS 1.3 a client hears of its certificate's refusal after its own half of the handshake.
        let Some((status, said)) = agent.refusal_if_any().await else { return "tls".to_owned() };
        assert_eq!(status, UNAUTHENTICATED, "{said}");
        said.split(':').next().unwrap_or_default().to_owned()
    }

    /// Puts a certificate where an agent finds it.
    fn write(&self, holder: &Holder) -> ClientFiles {
        let files = ClientFiles { cert: self.file("agent.pem"), key: self.file("agent.key") };
        std::fs::write(&files.key, holder.key.serialize_pem()).unwrap();
        std::fs::write(&files.cert, &holder.chain).unwrap();
        files
    }

    fn start(&self, files: ClientFiles) -> TestAgent {
        let url = format!("https://localhost:{}", self.gateway.addresses.agents.port());
        let gateway = Gateway::parse(&url, Some(&self.file("server.pem"))).unwrap().showing(files).unwrap();
        TestAgent::start_proving(gateway, TokenSource::None)
    }

    fn session(&self, workspace: &str) -> Option<(u64, String)> {
        let name: WorkspaceName = workspace.parse().unwrap();
        let session = self.gateway.registry.current(&name)?;
        Some((session.generation().get(), session.credential().to_string()))
    }
}

#[tokio::test]
async fn certificate_of_a_workspace_lets_its_agent_in_without_a_token() {
    let site = Site::new(false).await;
    let agent = site.start(site.write(&site.authority.sign("one", |_| {})));
    site.gateway.until_connected("one").await;
    let (_, credential) = site.session("one").expect("a session");
    assert!(credential.starts_with("certificate "), "{credential}");
    assert_eq!(site.session("two"), None);
    agent.stop().await;
}

#[tokio::test]
async fn certificate_that_names_no_one_workspace_is_refused_by_name() {
    let site = Site::new(false).await;
    let by = |change: &dyn Fn(&mut CertificateParams)| site.authority.sign("one", change);
    let named = |names: Vec<SanType>| by(&move |params| params.subject_alt_names = names.clone());
    let dns = |name: &str| SanType::DnsName(name.to_owned().try_into().unwrap());
    let url = |text: &str| SanType::URI(text.to_owned().try_into().unwrap());
    let common_name = by(&|params| {
        params.subject_alt_names.clear();
        params.distinguished_name.push(DnType::CommonName, "one");
        params.distinguished_name.push(DnType::OrganizationalUnitName, "spiffe://localhost/workspace/one");
    });
    for (what, holder, code) in [
        ("two workspaces", named(vec![uri("one"), uri("two")]), "certificate_identity"),
        ("a workspace and another URI", named(vec![url("https://x.test"), uri("one")]), "certificate_identity"),
        ("a common name", common_name, "certificate_identity"),
        ("a DNS name", named(vec![dns("one"), dns("one.localhost")]), "certificate_identity"),
        ("a workspace of another zone", named(vec![url("spiffe://other/workspace/one")]), "certificate_identity"),
        ("no name of a workspace", named(vec![url("spiffe://localhost/workspace/One")]), "certificate_identity"),
        ("a path below a workspace", named(vec![url("spiffe://localhost/workspace/one/x")]), "certificate_identity"),
        ("a workspace that is not there", site.authority.sign("three", |_| {}), "workspace_unknown"),
        ("no purpose", by(&|params| params.extended_key_usages.clear()), "certificate_identity"),
    ] {
        assert_eq!(site.refused(Some(&holder), None).await, code, "{what}");
    }
    assert_eq!(site.refused(None, None).await, "credential_missing");
    assert!(site.gateway.registry.is_empty());
}

#[tokio::test]
async fn certificate_that_no_authority_of_agents_vouches_for_gets_no_connection() {
    let site = Site::new(false).await;
    let stranger = Holder::authority();
    let leaf = site.authority.sign("one", |_| {});
    let servers = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for (what, holder) in [
        ("another authority's", stranger.sign("one", |_| {})),
        ("one that a leaf signed", leaf.sign("two", |_| {}).behind(&leaf)),
        ("a server's", site.authority.sign("one", |params| params.extended_key_usages = servers)),
        ("an expired one", site.authority.sign("one", |params| ends(params, -60))),
        ("one of the future", site.authority.sign("one", |params| begins(params, 600))),
    ] {
        assert_eq!(site.refused(Some(&holder), None).await, "tls", "{what}");
        let token = site.gateway.agent_token("one").await;
        assert_eq!(site.refused(Some(&holder), Some(&token)).await, "tls", "{what}, beside a good token");
    }
    assert!(site.gateway.registry.is_empty());
}

#[tokio::test]
async fn leaf_is_no_authority_even_if_an_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let leaf = Holder::authority().sign("one", |_| {});
    let file = folder.path().join("leaf.pem");
    std::fs::write(&file, &leaf.chain).unwrap();
    std::fs::write(folder.path().join("key.pem"), leaf.key.serialize_pem()).unwrap();
    let client_ca = Some(ClientCa { file: file.clone(), required: false });
    let tls = TlsFiles { cert: file, key: folder.path().join("key.pem"), certs_dir: None, client_ca };
    let mut config = gateway_config::Config::default();
    config.listen.public = ([127, 0, 0, 1], 0).into();
    config.listen.agents = ([127, 0, 0, 1], 0).into();
    config.listen.admin = None;
    config.store.url = gateway_config::StoreUrl::SqliteMemory;
    config.tls.agents = Some(tls);
    let error = gateway::app::App::bind(config).await.expect_err("a leaf").to_string();
    assert!(error.contains("leaf.pem holds a certificate that is not an authority's"), "{error}");
}

#[tokio::test]
async fn token_beside_a_certificate_has_to_be_of_the_same_workspace() {
    let site = Site::new(false).await;
    let (one, two) = (site.gateway.agent_token("one").await, site.gateway.agent_token("two").await);
    let certificate = site.authority.sign("one", |_| {});
    assert_eq!(site.refused(Some(&certificate), Some(&two)).await, "credentials_disagree");
    let mut agent = site.dial(Some(&certificate), Some(&one)).await.expect("TLS");
    assert_eq!(agent.welcome().await.workspace, "one");
    // A certificate that names nobody may be there for other reasons.
    let nobodys = site.authority.sign("one", |params| params.subject_alt_names.clear());
    let mut agent = site.dial(Some(&nobodys), Some(&two)).await.expect("TLS");
    assert_eq!(agent.welcome().await.workspace, "two");
    // What is no credential is not mended by one that is.
    assert_eq!(site.refused(Some(&certificate), Some("gwa_x")).await, "credential_damaged");
}

#[tokio::test]
async fn required_certificate_keeps_out_who_shows_none() {
    let site = Site::new(true).await;
    let token = site.gateway.agent_token("one").await;
    assert_eq!(site.refused(None, Some(&token)).await, "tls");
    let certificate = site.authority.sign("one", |_| {});
    let mut agent = site.dial(Some(&certificate), Some(&token)).await.expect("TLS");
    assert_eq!(agent.welcome().await.workspace, "one");
}

#[tokio::test]
async fn session_ends_with_its_certificate_within_five_seconds() {
    let site = Site::new(false).await;
    let since = Stopwatch::start();
    let end = wall_clock().get() + 8;
    let agent = site.start(site.write(&site.authority.sign("one", |params| ends(params, 8))));
    site.gateway.until_connected("one").await;
    e2e::until("the session has ended", || site.session("one").is_none()).await;
    assert!(wall_clock().get() >= end, "before its certificate");
    assert!(since.elapsed() < Duration::from_secs(8 + 5), "{:?}", since.elapsed());
    // It goes on trying, and is back when somebody has renewed the certificate.
    site.write(&site.authority.sign("one", |_| {}));
    let back = tokio::time::timeout(Duration::from_secs(60), async {
        while site.session("one").is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(back.await.is_ok(), "it is not back");
    agent.stop().await;
}

#[tokio::test]
async fn renewed_certificate_lets_the_session_go_on() {
    let site = Site::new(false).await;
    let agent = site.start(site.write(&site.authority.sign("one", |_| {})));
    site.gateway.until_connected("one").await;
    let (generation, first) = site.session("one").expect("a session");
    site.write(&site.authority.sign("one", |_| {}));
    let name: WorkspaceName = "one".parse().unwrap();
    e2e::until("the new one was shown", || {
        let Some(session) = site.gateway.registry.current(&name) else { return false };
        let is_shown = session.credential().to_string() != first;
        if !is_shown {
            // As when it ends soon. Nobody hears it before the link is at work.
            session.ask_to_renew();
        }
        is_shown
    })
    .await;
    assert_eq!(site.session("one").expect("a session").0, generation, "the same session");
    agent.stop().await;
}
