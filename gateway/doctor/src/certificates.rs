//! Certificates of files: their end, their names, their chains.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use doctor::judge;
use doctor::{Check, Finding, FindingId, Outcome};

use crate::Installation;
use crate::way::bare;
use gateway_config::{Directory, TlsFiles};
use gateway_net::chain::{CertificateChain, ClientTrust};
use gateway_net::tls::{ALPN_AGENTS, ALPN_USERS, CertificateFacts, Tls, covered};
use gateway_store::wall_clock;
use gateway_types::UnixSeconds;

/// Name of a listener's check, its files, and the names that it needs.
struct Listener<'a> {
    name: &'static str,
    files: &'a TlsFiles,
    alpn: &'static [&'static [u8]],
    needed: Vec<String>,
}

/// Looks at the files of each listener.
pub(crate) async fn look(it: Arc<Installation>) -> Vec<Check> {
    // Files are read as they come; this is a command, and waits for nothing else.
    std::future::ready(()).await;
    let (config, now) = (&it.config, wall_clock());
    let trust = ClientTrust::new(it.args.ca_file.as_deref()).ok();
    let plain = |name| Check::skipped(name, "no certificate is configured: a front has it, or there is no TLS");
    let mut checks = Vec::new();
    let name = "certificate of listen.public";
    checks.push(match &config.tls.public {
        None => plain(name),
        Some(files) if config.tls.acme.is_some() && !files.cert.exists() => {
            Check::skipped(name, "the first one has not been got by ACME yet")
        }
        Some(files) => {
            let needed = vec![bare(config.public_url.host()).to_owned(), format!("3000-my-app.{}", config.zone)];
            let listener = Listener { name, files, alpn: ALPN_USERS, needed };
            check(&listener, trust.as_ref(), now)
        }
    });
    let name = "certificate of listen.agents";
    checks.push(match &config.tls.agents {
        None => plain(name),
        Some(files) => {
            let needed = super::agents::url(&it).map(|url| bare(url.host()).to_owned()).into_iter().collect();
            let listener = Listener { name, files, alpn: ALPN_AGENTS, needed };
            check(&listener, trust.as_ref(), now)
        }
    });
    checks.push(match &config.directory {
        Directory::Store(peers) => peers_check(&peers.cert, now),
        Directory::Memory | Directory::Host(_) => {
            Check::skipped("certificate of listen.peers", "there are no replicas")
        }
    });
    checks
}

fn peers_check(cert: &Path, now: UnixSeconds) -> Check {
    let name = "certificate of listen.peers";
    match CertificateChain::read(cert).map(|chain| chain.not_after()) {
        Ok(Some(not_after)) => {
            let found = judge::certificate_end(not_after.get(), now.get(), &cert.display().to_string());
            Check::new(name, Outcome::of(found.into_iter().collect(), until(not_after)))
        }
        Ok(None) | Err(_) => Check::skipped(name, "its file cannot be read: see the configuration"),
    }
}

fn until(not_after: UnixSeconds) -> String {
    format!("valid until {}", judge::day(not_after.get()))
}

fn check(listener: &Listener<'_>, trust: Option<&ClientTrust>, now: UnixSeconds) -> Check {
    let Listener { name, files, alpn, needed } = listener;
    // Its own certificates alone: those of clients are looked at by the configuration's check.
    let own = TlsFiles { client_ca: None, ..(*files).clone() };
    let (Ok(tls), Ok(is_covered)) = (Tls::load(own.clone(), alpn), covered(&own)) else {
        return Check::skipped(*name, "its files cannot be used: see the configuration");
    };
    let mut found = Vec::new();
    for facts in tls.certificates() {
        let end = judge::certificate_end(facts.not_after.get(), now.get(), &facts.path.display().to_string());
        // One that is over has no chain either.
        let is_over = end.as_ref().is_some_and(|found| found.id == FindingId::CertificateExpired);
        found.extend(end);
        if let Some(trust) = trust.filter(|_| !is_over) {
            found.extend(chain_fault(&facts, trust, now));
        }
    }
    let missed = needed.iter().filter(|host| host.parse::<IpAddr>().is_err() && !is_covered(host));
    found.extend(missed.map(|host| {
        Finding::new(FindingId::CertificateWrongName, format!("{} is not for {host}", files.cert.display()))
    }));
    let chained = if trust.is_some() { "" } else { "; its chain was not judged, this machine has no authorities" };
    Check::new(*name, Outcome::of(found, format!("{}{chained}", until(tls.not_after()))))
}

/// Verifies a certificate for the first of its own names: whether it has the right ones is another question.
fn chain_fault(facts: &CertificateFacts, trust: &ClientTrust, now: UnixSeconds) -> Option<Finding> {
    let chain = CertificateChain::read(&facts.path).ok()?;
    let name = facts.names.first()?.replace('*', "doctor");
    let error = trust.check(&chain, &name, now).err()?;
    Some(judge::tls(&error, &facts.path.display().to_string()))
}
