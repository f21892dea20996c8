//! Certificates: that they can be read, that keys fit them, and that they are for the names that users ask for.

use std::net::IpAddr;
use std::path::Path;

use super::{ConfigCheck, files};
use gateway_config::{Directory, PeersConfig, TlsFiles};
use gateway_net::peers::PeerTls;
use gateway_net::tls::{ALPN_AGENTS, ALPN_USERS, Tls, covered};
use gateway_store::wall_clock;

/// Looks at the listeners' certificates.
pub(super) fn look(look: &mut ConfigCheck<'_>) {
    let config = look.config;
    match (&config.tls.acme, &config.tls.public) {
        (Some(acme), _) => {
            look.note("tls.acme.folder", files::makeable(&acme.folder));
            look.note("tls.acme.dns_hook", files::program(&acme.dns_hook));
            look.authorities("tls.acme.ca_file", acme.ca_file.as_deref());
        }
        (None, Some(public)) => {
            if listener(look, public, "tls.public", ALPN_USERS) {
                names(look, public);
            }
        }
        (None, None) => {}
    }
    if let Some(agents) = &config.tls.agents {
        listener(look, agents, "tls.agents", ALPN_AGENTS);
    }
    if let Directory::Store(peers) = &config.directory {
        replicas(look, peers);
    }
}

/// Looks at the files of `tls.peers`.
fn replicas(look: &mut ConfigCheck<'_>, peers: &PeersConfig) {
    let before = look.found.problems.len();
    for (key, path) in [("cert", &peers.cert), ("key", &peers.key), ("ca", &peers.ca)] {
        look.note(&format!("tls.peers.{key}"), files::readable(path));
    }
    if look.found.problems.len() == before {
        look.note("tls.peers.cert", PeerTls::load(peers, &look.config.zone).map(drop));
    }
}

/// Looks at the files of one listener; returns whether they can be used.
fn listener(look: &mut ConfigCheck<'_>, all: &TlsFiles, section: &str, alpn: &'static [&'static [u8]]) -> bool {
    let key = |name: &str| format!("{section}.{name}");
    let before = look.found.problems.len();
    look.note(&key("cert"), files::readable(&all.cert));
    look.note(&key("key"), files::readable(&all.key));
    if let Some(folder) = &all.certs_dir {
        look.note(&key("certs_dir"), files::folder(folder));
    }
    if let Some(ca) = &all.client_ca {
        look.note(&key("client_ca"), files::readable(&ca.file));
    }
    if look.found.problems.len() > before {
        return false;
    }
    // One after the other: each mistake is reported at its own key.
    let mut some = TlsFiles { certs_dir: None, client_ca: None, ..all.clone() };
    match Tls::load(some.clone(), alpn) {
        Ok(tls) if tls.not_after() < wall_clock() => {
            look.warn(&key("cert"), format!("{} was good until {}", all.cert.display(), tls.not_after()));
        }
        Ok(_) => {}
        Err(error) => look.note(&key("cert"), Err(error)),
    }
    for (name, is_there) in [("certs_dir", all.certs_dir.is_some()), ("client_ca", all.client_ca.is_some())] {
        if !is_there || look.found.problems.len() > before {
            continue;
        }
        match name {
            "certs_dir" => some.certs_dir.clone_from(&all.certs_dir),
            _ => some.client_ca.clone_from(&all.client_ca),
        }
        look.note(&key(name), Tls::load(some.clone(), alpn).map(drop));
    }
    look.found.problems.len() == before
}

/// Checks that the certificates are for the public host and the hosts of workspaces. A balancer in front may have
/// others, so a mismatch is no mistake.
fn names(look: &mut ConfigCheck<'_>, files: &TlsFiles) {
    let config = look.config;
    let host = config.public_url.host().to_owned();
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let workspaces = format!("3000-my-app.{}", config.zone);
    let Ok(is_covered) = covered(files) else { return };
    if !is_address && !is_covered(&host) {
        look.warn("tls.public.cert", format!("{} is not for {host}, the host of public_url", shown(&files.cert)));
    }
    if !is_covered(&workspaces) {
        let zone = &config.zone;
        look.warn("tls.public.cert", format!("{} is not for *.{zone}, the hosts of workspaces", shown(&files.cert)));
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
