use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;

const REPLICA: &str = "spiffe://workspaces.test/replica";

/// An authority, and the folder of the files that are made with it.
struct Authority {
    folder: TempDir,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).expect("signed").pem()).expect("written");
        Self { folder, params, key }
    }

    /// Makes the TLS of an end whose certificate has these URIs, with changes, and which trusts `trusts`.
    fn tls(&self, uris: &[&str], change: impl FnOnce(&mut CertificateParams), trusts: &Path) -> PeerTls {
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("a URI"))).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        let own = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&own, &Issuer::from_params(&self.params, &self.key)).expect("signed");
        let (cert, key) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        std::fs::write(&cert, signed.pem()).expect("written");
        std::fs::write(&key, own.serialize_pem()).expect("written");
        let url = "https://127.0.0.1:1".parse().expect("a URL");
        let (listen, shutdown_delay, ca) = (([127, 0, 0, 1], 1).into(), Duration::ZERO, trusts.to_owned());
        let files = PeersConfig { listen, url, shutdown_delay, cert, key, ca };
        let chain = read_chain(&files.cert).expect("a chain");
        let current = ArcSwap::from_pointee(Settings::with_chain(&files, chain).expect("good files"));
        PeerTls { loaded: stamp(&files), files, current, uri: REPLICA.into() }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

/// Returns what each end makes of the other: `ok`, or a code.
async fn handshake(dials: &PeerTls, listens: &PeerTls) -> (&'static str, &'static str) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (near, (far, _)) = (near.expect("connected"), far.expect("accepted"));
    let dialed = async { dials.connect(near).await.err().map_or("ok", |refused| refused.code()) };
    let accepted = async { listens.accept(far).await.err().map_or("ok", |refused| refused.code()) };
    tokio::join!(dialed, accepted)
}

#[tokio::test]
async fn replicas_know_each_other_and_nothing_else_by_its_certificate() {
    let (ours, other) = (Authority::new(), Authority::new());
    let replica = ours.tls(&[REPLICA], |_| {}, &ours.ca());
    assert_eq!(handshake(&replica, &replica).await, ("ok", "ok"));
    let expired = |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let early = |params: &mut CertificateParams| params.not_before = rcgen::date_time_ymd(4000, 1, 1);
    let refused = [
        (ours.tls(&["spiffe://workspaces.test/workspace/one"], |_| {}, &ours.ca()), "role"),
        (ours.tls(&["spiffe://other.test/replica"], |_| {}, &ours.ca()), "role"),
        (ours.tls(&[REPLICA, REPLICA], |_| {}, &ours.ca()), "role"),
        (ours.tls(&[], |_| {}, &ours.ca()), "role"),
        (ours.tls(&[REPLICA], expired, &ours.ca()), "expired"),
        (ours.tls(&[REPLICA], early, &ours.ca()), "expired"),
        (other.tls(&[REPLICA], |_| {}, &ours.ca()), "authority"),
    ];
    for (stranger, code) in &refused {
        assert_eq!(handshake(stranger, &replica).await.1, *code, "as a caller");
        assert_eq!(handshake(&replica, stranger).await.0, *code, "as the one that is called");
    }
}

#[tokio::test]
async fn caller_without_a_certificate_is_refused() {
    let ours = Authority::new();
    let replica = ours.tls(&[REPLICA], |_| {}, &ours.ca());
    let roots = Arc::new(roots(&ours.ca()).expect("an authority"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut connector = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SignedByAuthority { roots, provider }))
        .with_no_client_auth();
    connector.alpn_protocols = vec![ALPN.to_vec()];
    let anonymous = PeerTls {
        files: replica.files.clone(),
        current: ArcSwap::from_pointee(Settings {
            acceptor: replica.current.load().acceptor.clone(),
            connector: Arc::new(connector),
            not_after: replica.not_after(),
        }),
        loaded: Stamp::new(),
        uri: replica.uri.clone(),
    };
    assert_eq!(handshake(&anonymous, &replica).await.1, "no_certificate");
}

#[tokio::test]
async fn bytes_of_a_stranger_are_a_failed_handshake() {
    let ours = Authority::new();
    let replica = ours.tls(&[REPLICA], |_| {}, &ours.ca());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let mut near = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
    tokio::io::AsyncWriteExt::write_all(&mut near, b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    let (far, _) = listener.accept().await.expect("accepted");
    assert_eq!(replica.accept(far).await.err().map(|refused| refused.code()), Some("handshake"));
}

#[tokio::test(start_paused = true)]
async fn new_certificate_is_taken_over_and_one_of_another_role_is_not() {
    let authority = Authority::new();
    let tls = Arc::new(authority.tls(&[REPLICA], |_| (), &authority.ca()));
    let read = || Settings::read(&tls.files, &tls.uri);
    read().expect("a replica's");
    let first = tls.current.load_full();
    let stop = CancellationToken::new();
    let mut watch = tokio::task::JoinSet::new();
    watch.spawn(tls.clone().watch(stop.clone()));
    let touched = async |seconds| {
        let file = std::fs::File::options().write(true).open(&tls.files.cert).expect("open");
        let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("a time");
        file.set_modified(modified + Duration::from_secs(seconds)).expect("set");
        tokio::time::sleep(Duration::from_secs(12)).await;
    };
    authority.tls(&["spiffe://workspaces.test/agent"], |_| (), &authority.ca());
    touched(30).await;
    assert!(Arc::ptr_eq(&first, &tls.current.load_full()), "a certificate of another role was taken over");
    assert!(matches!(read(), Err(TlsError::Role { .. })));
    authority.tls(&[REPLICA], |_| (), &authority.ca());
    touched(90).await;
    assert!(!Arc::ptr_eq(&first, &tls.current.load_full()), "the new certificate was not taken over");
    stop.cancel();
    while watch.join_next().await.is_some() {}
}

/// Makes the TLS of a replica whose certificate was issued for this zone.
fn issued(authority: &Authority, zone: &str) -> PeerTls {
    let ca = std::fs::read_to_string(authority.ca()).expect("a file");
    let made = issue(&ca, &authority.key.serialize_pem(), &zone.parse().expect("a zone")).expect("issued");
    let path = |name: &str| authority.folder.path().join(name);
    let (cert, key) = (path("issued.pem"), path("issued.key"));
    std::fs::write(&cert, made.certificate).expect("written");
    std::fs::write(&key, made.key).expect("written");
    let url = "https://127.0.0.1:1".parse().expect("a URL");
    let (listen, shutdown_delay, ca) = (([127, 0, 0, 1], 1).into(), Duration::ZERO, authority.ca());
    let files = PeersConfig { listen, url, shutdown_delay, cert, key, ca };
    PeerTls::load(&files, &zone.parse().expect("a zone")).expect("good files")
}

#[tokio::test]
async fn certificate_that_is_issued_is_a_replicas_of_its_zone_and_as_long_as_the_authority() {
    let mut authority = Authority::new();
    authority.params.not_after = rcgen::date_time_ymd(2050, 1, 2);
    let ca = authority.params.self_signed(&authority.key).expect("signed");
    std::fs::write(authority.ca(), ca.pem()).expect("written");
    let (replica, other) = (issued(&authority, "workspaces.test"), issued(&authority, "other.test"));
    assert_eq!(handshake(&replica, &replica).await, ("ok", "ok"));
    assert_eq!(handshake(&replica, &other).await.0, "role");
    assert_eq!(replica.not_after().to_string(), "2050-01-02T00:00:00Z");
}

#[test]
fn certificate_is_issued_of_an_authority_and_its_own_key_alone() {
    let (authority, other) = (Authority::new(), Authority::new());
    let ca = std::fs::read_to_string(authority.ca()).expect("a file");
    let key = authority.key.serialize_pem();
    let zone = "workspaces.test".parse().expect("a zone");
    let leaf = issue(&ca, &key, &zone).expect("issued");
    assert!(matches!(issue(&ca, &other.key.serialize_pem(), &zone), Err(IssueError::OtherKey)));
    assert!(matches!(issue(&leaf.certificate, &leaf.key, &zone), Err(IssueError::NotAuthority)));
    assert!(matches!(issue(&key, &key, &zone), Err(IssueError::NoCertificate)));
    assert!(matches!(issue(&ca, &ca, &zone), Err(IssueError::Key(_))));
}
