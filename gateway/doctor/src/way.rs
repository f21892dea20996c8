//! The way to a listener, through whatever is in front of it.

use std::collections::BTreeMap;
use std::time::Duration;

use doctor::ask::Origin;
use doctor::judge;
use doctor::{Check, Finding, FindingId, Outcome};
use http::uri::{Authority, Scheme};
use tokio::time::timeout;
use tunnel_link::causes;

use crate::Installation;
use gateway_net::dial::{DialError, DialedConnection, Dialer};
use gateway_store::wall_clock;
use gateway_types::PublicUrl;

/// Longest time for one connection, with its handshake.
const CONNECT_TIME: Duration = Duration::from_secs(4);

/// Way to a URL of the gateway.
pub(crate) struct Way {
    url: PublicUrl,
    dialer: Dialer,
    /// Finding that nothing answers there.
    absence: FindingId,
}

impl Way {
    /// Finds the way, through a proxy if the environment has one.
    pub(crate) fn new(url: &PublicUrl, absence: FindingId, it: &Installation) -> Result<Self, Finding> {
        let dialer = Dialer::new(url, it.args.ca_file.as_deref(), |name| variable(&it.env, name));
        let dialer = dialer.map_err(|error| Finding::new(FindingId::ProxyFailed, causes::one_line(&error)))?;
        Ok(Self { url: url.clone(), dialer, absence })
    }

    /// Connects for requests to `name`.
    pub(crate) async fn connect(&self, name: &str, alpn: &[&[u8]]) -> Result<DialedConnection, Finding> {
        let connected = timeout(CONNECT_TIME, self.dialer.connect_offering(name, alpn)).await;
        let late = |_elapsed| {
            let what = format!("{}: no connection within {} s", self.url, CONNECT_TIME.as_secs());
            Finding::new(self.absence, what)
        };
        connected.map_err(late)?.map_err(|error| found(&error, &self.url, self.absence))
    }

    /// Returns whether a server at this address speaks TLS, whatever its certificate.
    pub(crate) async fn speaks_tls(&self, it: &Installation) -> bool {
        let host = self.url.host();
        let Ok(url) = format!("https://{host}:{}", self.url.port()).parse::<PublicUrl>() else { return false };
        let Ok(way) = Self::new(&url, self.absence, it) else { return false };
        match way.connect(bare(host), &[]).await {
            Ok(_) => true,
            Err(found) => is_of_certificate(&found),
        }
    }

    /// Names the way, for people.
    pub(crate) fn shown(&self) -> String {
        match self.dialer.proxy() {
            Some(proxy) => format!("{} through the proxy {proxy}", self.url),
            None => self.url.to_string(),
        }
    }

    /// Returns the origin of requests to a host of this gateway.
    pub(crate) fn origin(&self, host: &str) -> Origin {
        let default = self.url.scheme().default_port();
        let port = self.url.port();
        let text = if port == default { host.to_owned() } else { format!("{host}:{port}") };
        let scheme = if self.url.scheme().as_str() == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        // Hosts of a configuration are names or addresses.
        Origin { scheme, authority: text.parse().unwrap_or_else(|_| Authority::from_static("invalid")) }
    }

    /// Returns the origin of requests to the URL itself.
    pub(crate) fn own_origin(&self) -> Origin {
        self.origin(self.url.host())
    }

    /// Returns whether the URL is one of TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme().as_str() == "https"
    }
}

/// Checks along a way, in their order: one that fails leaves those behind it out.
pub(crate) struct Steps(pub(crate) &'static [&'static str]);

impl Steps {
    /// Leaves the checks from `first` on out.
    pub(crate) fn left_out(&self, first: &str, why: &str) -> Vec<Check> {
        self.0.iter().skip_while(|name| **name != first).map(|name| Check::skipped(*name, why)).collect()
    }

    /// Makes the check `name` of a finding, and leaves those behind it out.
    pub(crate) fn broken(&self, name: &'static str, found: Finding) -> Vec<Check> {
        let rest = self.left_out(name, "there is no connection to ask on");
        std::iter::once(Check::new(name, found)).chain(rest.into_iter().skip(1)).collect()
    }
}

/// Checks the end of the certificate of a connection.
pub(crate) fn certificate(name: &'static str, connected: &DialedConnection, of: &str) -> Check {
    let Some(not_after) = connected.not_after else { return Check::skipped(name, "there is no TLS") };
    let found = judge::certificate_end(not_after.get(), wall_clock().get(), of).into_iter().collect();
    Check::new(name, Outcome::of(found, format!("valid until {}", judge::day(not_after.get()))))
}

/// Returns whether a finding is of a certificate, which a server with TLS showed.
pub(crate) fn is_of_certificate(found: &Finding) -> bool {
    matches!(
        found.id,
        FindingId::CertificateExpired | FindingId::CertificateWrongName | FindingId::CertificateUntrusted
    )
}

/// Returns a host without the brackets of an IPv6 address.
pub(crate) fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Reads a variable of the environment.
pub(crate) fn variable(env: &BTreeMap<String, String>, name: &str) -> Option<String> {
    // The gateway's own variables are in `env` alone, those of proxies in the process's environment.
    env.get(name).cloned().or_else(|| std::env::var(name).ok())
}

/// Judges a connection that did not come up.
pub(crate) fn found(error: &DialError, url: &PublicUrl, absence: FindingId) -> Finding {
    match error {
        DialError::Tls { name, source } => judge::tls(source, &format!("{url}, asked for {name}")),
        DialError::Proxy { source, .. } => {
            Finding::new(judge::proxy(source), format!("on the way to {url}, {}", causes::one_line(error)))
        }
        DialError::BadProxy(_) => Finding::new(FindingId::ProxyFailed, causes::one_line(error)),
        DialError::Connect { .. } | DialError::Name(_) | DialError::Roots { .. } | DialError::Setup(_) => {
            Finding::new(absence, format!("{url}: {}", causes::one_line(error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tunnel_link::proxy::ProxyError;

    use super::*;

    #[test]
    fn failure_of_a_dial_is_a_finding_of_its_step() {
        let url: PublicUrl = "https://gw.example".parse().unwrap();
        let judged = |error: DialError| found(&error, &url, FindingId::PublicUnreachable);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let connect = DialError::Connect { host: "gw.example".to_owned(), port: 443, source: refused };
        assert_eq!(judged(connect).id, FindingId::PublicUnreachable);
        let proxy = |source| DialError::Proxy { proxy: "http://proxy:3128".to_owned(), source };
        let asks = ProxyError::Unauthenticated { status: " (407)", variable: "HTTPS_PROXY" };
        let asked = judged(proxy(asks));
        assert_eq!(asked.id, FindingId::ProxyWantsPassword);
        assert!(asked.what.contains("407") && asked.what.contains("HTTPS_PROXY"), "{}", asked.what);
        assert_eq!(judged(proxy(ProxyError::TimedOut)).id, FindingId::ProxyFailed);
    }
}
