//! Keys of several replicas: where they know of each other's sessions, and how they reach each other.
//!
//! A gateway on one host has several for the time in which a new process takes the place of an old one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gateway_types::{PublicUrl, Scheme};

use super::keys::{Key, keys};
use super::reader::{DottedKey, Reader};
use super::store::STORE;
use super::value::{ADDRESS_OR_OFF, DURATION, FILE_PATH, PUBLIC_URL, StoreUrl, ValueKind, words};

/// Where the sessions of all replicas are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Directory {
    /// In this process, which is the only one.
    #[default]
    Memory,
    /// In the database file, which the processes of one host share while one takes another's place.
    Host(HostConfig),
    /// In the database, which several replicas share.
    Store(PeersConfig),
}

/// What the processes of one host need to take each other's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Folder of the sockets by which they reach each other.
    pub sockets: PathBuf,
    /// Longest life of a process after another took its place.
    pub drain_max: Duration,
}

/// What a replica needs to know about itself to be one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// Address for other replicas.
    pub listen: SocketAddr,
    /// URL at which they reach it.
    pub url: PublicUrl,
    /// Time from the stop signal to the beginning of a drain.
    pub shutdown_delay: Duration,
    /// Certificate of this replica towards the others.
    pub cert: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Authorities that sign the certificates of replicas.
    pub ca: PathBuf,
}

/// Value of the key `directory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectoryKind {
    Memory,
    Host,
    Store,
}

impl DirectoryKind {
    fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Host => "host",
            Self::Store => "store",
        }
    }
}

const DIRECTORY_KIND: ValueKind<DirectoryKind> = words!(
    "`memory`, `host` or `store`", "unknown directory",
    "memory" => DirectoryKind::Memory, "host" => DirectoryKind::Host, "store" => DirectoryKind::Store
);

keys! {
    DIRECTORY: DirectoryKeys below "" {
        /// Where the sessions of all replicas are known. `memory`: in this process, which is the only one. `host`: in the
        /// SQLite file of `store.url`, so that `gateway serve --replace` takes a running gateway's place on the same host, and
        /// nothing that users have open ends. `store`: in the PostgreSQL of `store.url`, which several replicas share; these
        /// need `listen.peers` and `tls.peers`.
        directory: DirectoryKind = DIRECTORY_KIND, or DirectoryKind::Memory;
    }
}

keys! {
    LISTEN_PEERS: ListenPeersKeys below "listen." {
        /// Address for other replicas. Nothing else is served there, and only to certificates of replicas.
        peers: Option<SocketAddr> = ADDRESS_OR_OFF, or None;
    }
}

/// Balancers ask each few seconds whether a replica is ready.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(5);

keys! {
    PEERS: PeersKeys below "peers." {
        /// URL at which the other replicas reach `listen.peers`, by a name or address of this machine alone. Follows
        /// `listen.peers` if that is one address and not all of the machine's.
        url: PublicUrl = PUBLIC_URL, optional;
        /// Time from the stop signal to the beginning of the drain: the replica serves on, and `/readyz` says that it is not
        /// ready, so that balancers lead elsewhere before anything is refused. Longer than these take to notice.
        shutdown_delay: Duration = DURATION, or SHUTDOWN_DELAY, in Duration::ZERO..=Duration::from_mins(10);
    }
}

keys! {
    DRAIN: DrainKeys below "drain." {
        /// With `directory = "host"`: longest time for which a gateway that was replaced stays, for what users have open there.
        /// What is left then is cut.
        max: Duration = DURATION, or Duration::from_hours(1), in Duration::ZERO..=Duration::from_hours(24);
    }
}

keys! {
    TLS_PEERS: TlsPeersKeys below "tls.peers." {
        /// Certificate by which this replica proves itself to the others, both ways: its one URI is
        /// `spiffe://HOST/replica`, where HOST is `zone`. Read again when it changes.
        cert: PathBuf = FILE_PATH, optional;
        /// Private key of the certificate.
        key: PathBuf = FILE_PATH, optional;
        /// Authorities that sign the certificates of replicas, and best nothing else.
        ca: PathBuf = FILE_PATH, optional;
    }
}

/// The keys of `tls.peers`.
static FILES: [&Key<PathBuf, Option<PathBuf>>; 3] = [&TLS_PEERS.cert, &TLS_PEERS.key, &TLS_PEERS.ca];

/// Reads the keys.
pub(super) fn read(reader: &mut Reader, store: &StoreUrl) -> Directory {
    let kind = reader.take(&DIRECTORY.directory);
    let drain_max = reader.take(&DRAIN.max);
    let listen = reader.take(&LISTEN_PEERS.peers);
    let (url, shutdown_delay) = (reader.take(&PEERS.url), reader.take(&PEERS.shutdown_delay));
    let [cert, key, ca] = FILES.map(|key| reader.take(key));
    if !reader.is_sound(&[&DIRECTORY.directory.name]) {
        return Directory::Memory;
    }
    // What is so by default is said by `config show` too.
    let bounds = (drain_max != DRAIN.max.default()).then_some(&*DRAIN.max.name).filter(|_| kind != DirectoryKind::Host);
    let listens = listen.map(|_| &*LISTEN_PEERS.peers.name);
    let delays = (shutdown_delay != SHUTDOWN_DELAY).then_some(&*PEERS.shutdown_delay.name);
    let of_peers = listens.into_iter().chain([&*PEERS.url.name]).chain(delays).chain(FILES.map(|file| &*file.name));
    let unused = of_peers.filter(|_| kind != DirectoryKind::Store).chain(bounds);
    let unused: Vec<DottedKey> = unused.map(|key| key.to_owned().into()).collect();
    let wrong = format!("has no effect while {} is `{}`", DIRECTORY.directory, kind.word());
    reader.object_to_set(&unused.iter().collect::<Vec<_>>(), &wrong);
    match kind {
        DirectoryKind::Memory => Directory::Memory,
        DirectoryKind::Host => of_host(reader, store, drain_max),
        DirectoryKind::Store => {
            let peers = PeersKeysTaken { listen, url, shutdown_delay, files: [cert, key, ca] };
            // Without one of them a problem is noted, and no configuration is made.
            of_replicas(reader, store, peers).map_or(Directory::Memory, Directory::Store)
        }
    }
}

fn of_host(reader: &mut Reader, store: &StoreUrl, drain_max: Duration) -> Directory {
    let StoreUrl::SqliteFile(database) = store else {
        if reader.is_sound(&[&STORE.url.name]) {
            let wrong = format!(
                "needs a SQLite file in {}; several gateways with one PostgreSQL have `store` here, and are replaced one by one",
                STORE.url
            );
            reader.object(&DIRECTORY.directory, wrong);
        }
        return Directory::Memory;
    };
    let mut sockets = database.as_os_str().to_owned();
    sockets.push(".replicas");
    Directory::Host(HostConfig { sockets: PathBuf::from(sockets), drain_max })
}

/// Values of the keys of replicas, as they were taken.
struct PeersKeysTaken {
    listen: Option<SocketAddr>,
    url: Option<PublicUrl>,
    shutdown_delay: Duration,
    /// In the order of [`FILES`].
    files: [Option<PathBuf>; 3],
}

fn of_replicas(reader: &mut Reader, store: &StoreUrl, peers: PeersKeysTaken) -> Option<PeersConfig> {
    let PeersKeysTaken { listen, url, shutdown_delay, files: [cert, key, ca] } = peers;
    if !matches!(store, StoreUrl::Postgres(_)) && reader.is_sound(&[&STORE.url.name]) {
        let wrong = format!("needs a PostgreSQL in {}, which all replicas share", STORE.url);
        reader.object(&DIRECTORY.directory, wrong);
    }
    let listen = need(reader, &LISTEN_PEERS.peers.name, listen);
    let [cert, key, ca] =
        [(FILES[0], cert), (FILES[1], key), (FILES[2], ca)].map(|(key, value)| need(reader, &key.name, value));
    if reader.is_sound(&[&PEERS.url.name]) {
        match (&url, listen) {
            (Some(url), _) if url.scheme() != Scheme::Https => {
                reader.object(&PEERS.url, "has to be https: replicas prove themselves by certificates");
            }
            (None, Some(listen)) if url_of(listen).is_none() => {
                let wrong = format!("has to be set: other replicas cannot dial {} = {listen}", LISTEN_PEERS.peers);
                reader.object(&PEERS.url, wrong);
            }
            (_, _) => {}
        }
    }
    let listen = listen?;
    let url = url.or_else(|| url_of(listen))?;
    Some(PeersConfig { listen, url, shutdown_delay, cert: cert?, key: key?, ca: ca? })
}

/// Notes that several replicas need a key that has no value.
fn need<T>(reader: &mut Reader, key: &DottedKey, value: Option<T>) -> Option<T> {
    if value.is_none() && reader.is_sound(&[key]) {
        reader.object(key.clone(), format!("has to be set: {} = \"store\" needs it", DIRECTORY.directory));
    }
    value
}

/// Returns the URL of an address that others can dial.
fn url_of(address: SocketAddr) -> Option<PublicUrl> {
    let url = (!address.ip().is_unspecified()).then(|| format!("https://{address}"))?;
    url.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Config;

    const STORE: [(&str, &str); 6] = [
        ("DIRECTORY", "store"),
        ("STORE__URL", "postgres://h/db"),
        ("LISTEN__PEERS", "192.0.2.7:8083"),
        ("TLS__PEERS__CERT", "c"),
        ("TLS__PEERS__KEY", "k"),
        ("TLS__PEERS__CA", "a"),
    ];

    fn load(changed: &[(&str, Option<&str>)]) -> Result<Config, String> {
        let mut all: BTreeMap<&str, &str> = STORE.into();
        for (key, value) in changed {
            match value {
                Some(value) => all.insert(key, value),
                None => all.remove(key),
            };
        }
        let all = all.into_iter().map(|(key, value)| (format!("GATEWAY_{key}"), value.to_owned())).collect();
        Config::load(None, &all).map_err(|bad| bad.to_string())
    }

    #[test]
    fn replica_is_reached_at_its_address_or_where_it_says() {
        let url = |changed: &[(&str, Option<&str>)]| match load(changed).unwrap().directory {
            super::Directory::Store(peers) => peers.url.to_string(),
            super::Directory::Memory | super::Directory::Host(_) => panic!("several replicas"),
        };
        assert_eq!(url(&[]), "https://192.0.2.7:8083");
        assert_eq!(url(&[("LISTEN__PEERS", Some("[2001:db8::1]:8083"))]), "https://[2001:db8::1]:8083");
        assert_eq!(url(&[("PEERS__URL", Some("https://one.gateways:8083"))]), "https://one.gateways:8083");
    }

    #[test]
    fn what_several_replicas_need_is_asked_for_all_at_once() {
        let bad = load(&[
            ("STORE__URL", None),
            ("LISTEN__PEERS", None),
            ("TLS__PEERS__CERT", None),
            ("TLS__PEERS__CA", None),
            ("PEERS__URL", Some("http://one:1")),
        ]);
        insta::assert_snapshot!(bad.unwrap_err(), @r#"
        environment GATEWAY_DIRECTORY: directory = "store": needs a PostgreSQL in store.url, which all replicas share
        default: listen.peers = "off": has to be set: directory = "store" needs it
        default: tls.peers.cert: has to be set: directory = "store" needs it
        default: tls.peers.ca: has to be set: directory = "store" needs it
        environment GATEWAY_PEERS__URL: peers.url = "http://one:1": has to be https: replicas prove themselves by certificates
        "#);
        insta::assert_snapshot!(load(&[("LISTEN__PEERS", Some("0.0.0.0:8083"))]).unwrap_err(), @"default: peers.url: has to be set: other replicas cannot dial listen.peers = 0.0.0.0:8083");
    }

    #[test]
    fn keys_of_several_replicas_have_no_effect_for_one() {
        let changed =
            [("DIRECTORY", None), ("PEERS__URL", Some("https://one:1")), ("PEERS__SHUTDOWN_DELAY", Some("7s"))];
        insta::assert_snapshot!(load(&changed).unwrap_err(), @r#"
        environment GATEWAY_LISTEN__PEERS: listen.peers = "192.0.2.7:8083": has no effect while directory is `memory`
        environment GATEWAY_PEERS__URL: peers.url = "https://one:1": has no effect while directory is `memory`
        environment GATEWAY_PEERS__SHUTDOWN_DELAY: peers.shutdown_delay = "7s": has no effect while directory is `memory`
        environment GATEWAY_TLS__PEERS__CERT: tls.peers.cert = "c": has no effect while directory is `memory`
        environment GATEWAY_TLS__PEERS__KEY: tls.peers.key = "k": has no effect while directory is `memory`
        environment GATEWAY_TLS__PEERS__CA: tls.peers.ca = "a": has no effect while directory is `memory`
        "#);
    }

    #[test]
    fn processes_of_one_host_share_a_file_and_need_no_address() {
        let none =
            [("LISTEN__PEERS", None), ("TLS__PEERS__CERT", None), ("TLS__PEERS__KEY", None), ("TLS__PEERS__CA", None)];
        let host = |more: &[(&str, Option<&str>)]| load(&[&none[..], &[("DIRECTORY", Some("host"))], more].concat());
        let config = host(&[("STORE__URL", Some("sqlite:///var/lib/gateway/gateway.db")), ("DRAIN__MAX", Some("2h"))]);
        let expected = super::HostConfig {
            sockets: "/var/lib/gateway/gateway.db.replicas".into(),
            drain_max: std::time::Duration::from_secs(7_200),
        };
        assert_eq!(config.unwrap().directory, super::Directory::Host(expected));
        insta::assert_snapshot!(host(&[]).unwrap_err(), @r#"environment GATEWAY_DIRECTORY: directory = "host": needs a SQLite file in store.url; several gateways with one PostgreSQL have `store` here, and are replaced one by one"#);
        let of_others = [("STORE__URL", Some("sqlite:///g.db")), ("PEERS__URL", Some("https://one:1"))];
        insta::assert_snapshot!(host(&of_others).unwrap_err(), @r#"environment GATEWAY_PEERS__URL: peers.url = "https://one:1": has no effect while directory is `host`"#);
        insta::assert_snapshot!(load(&[("DRAIN__MAX", Some("2h"))]).unwrap_err(), @r#"environment GATEWAY_DRAIN__MAX: drain.max = "2h": has no effect while directory is `store`"#);
    }
}
