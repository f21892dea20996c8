//! Chooses the proxy that leads to a gateway: from the environment's variables, as curl does. Pure.

use std::fmt;

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use thiserror::Error;

/// A proxy. Neither of its texts has its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub(super) kind: ProxyKind,
    pub(super) host: String,
    pub(super) port: u16,
    /// Variable that names it, for people who have to change it.
    pub(super) variable: &'static str,
}

/// Protocol of a proxy, and the credentials for it.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum ProxyKind {
    /// HTTP with CONNECT, over TLS or not, and the value of `Proxy-Authorization`.
    Http { tls: bool, authorization: Option<HeaderValue> },
    /// SOCKS5, with the proxy or this end looking names up, and user and password.
    Socks5 { names: NameLookup, credentials: Option<(String, String)> },
}

/// Party that looks up the gateway's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameLookup {
    /// This end (`socks5://`).
    Here,
    /// The proxy (`socks5h://`).
    AtProxy,
}

/// A variable's value names no proxy. It may hold a password, so it is not repeated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadProxy {
    /// Not a URL.
    #[error(
        "{0} is not the URL of a proxy: write http://HOST:PORT or socks5h://HOST:PORT, with USER:PASSWORD@ before the \
         host if it requires authentication (special characters as %XX)"
    )]
    Url(&'static str),
    /// A protocol that is not spoken here.
    #[error("{variable}: proxies that speak {scheme} are not supported; use http, https, socks5 or socks5h")]
    Scheme {
        /// The variable.
        variable: &'static str,
        /// The scheme.
        scheme: String,
    },
}

/// Decides which proxy leads to a gateway, if any: that of `https_proxy` or `http_proxy`, by the gateway's scheme, else
/// that of `all_proxy`, unless `no_proxy` has the gateway. The lower-case name goes first; an empty value counts as
/// none.
///
/// # Errors
/// [`BadProxy`] names the variable. A proxy that cannot be used is never left out silently.
pub fn choose(gateway: &Uri, environment: impl Fn(&'static str) -> Option<String>) -> Result<Option<Proxy>, BadProxy> {
    let find = |names: &[&'static str]| {
        names.iter().find_map(|name| {
            environment(name).map(|value| (*name, value.trim().to_owned())).filter(|(_, value)| !value.is_empty())
        })
    };
    let own: &[&str] = match gateway.scheme_str() {
        Some("https") => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        // A server of CGI scripts puts a request's `Proxy` header into `HTTP_PROXY`.
        _ if environment("REQUEST_METHOD").is_some() => &["http_proxy", "all_proxy", "ALL_PROXY"],
        _ => &["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let Some((variable, value)) = find(own) else { return Ok(None) };
    if find(&["no_proxy", "NO_PROXY"]).is_some_and(|(_, list)| is_exempt(gateway, &list)) {
        return Ok(None);
    }
    let scheme = value.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if let Some(scheme) = scheme.filter(|scheme| !matches!(scheme.as_str(), "http" | "https" | "socks5" | "socks5h")) {
        // Text before a `://` that is no scheme is part of something else.
        let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
        return Err(if is_scheme { BadProxy::Scheme { variable, scheme } } else { BadProxy::Url(variable) });
    }
    // A password with a bare `/` or `?` would be cut in two, and its first half be taken for the host.
    let authority = value.rsplit("://").next().unwrap_or_default();
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains(['/', '?', '#', '\\']) {
        return Err(BadProxy::Url(variable));
    }
    let found = Matcher::builder().all(value).build().intercept(gateway);
    found.and_then(|found| proxy(variable, &found)).map(Some).ok_or(BadProxy::Url(variable))
}

fn proxy(variable: &'static str, found: &Intercept) -> Option<Proxy> {
    let uri = found.uri();
    let host = bare(uri.host()?).to_owned();
    let (kind, port) = match uri.scheme_str()? {
        scheme @ ("http" | "https") => {
            let tls = scheme == "https";
            (ProxyKind::Http { tls, authorization: found.basic_auth().cloned() }, if tls { 443 } else { 80 })
        }
        scheme => {
            let names = if scheme == "socks5h" { NameLookup::AtProxy } else { NameLookup::Here };
            let credentials = found.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned()));
            (ProxyKind::Socks5 { names, credentials }, 1080)
        }
    };
    let port = match uri.authority()?.as_str().strip_prefix(uri.host()?)? {
        "" => port,
        _ => uri.port_u16().filter(|port| *port > 0)?,
    };
    (!host.is_empty()).then_some(Proxy { kind, host, port, variable })
}

/// Returns whether a list of hosts has the gateway. The library knows names, addresses and networks; other common forms
/// are brought into its form: spaces between entries, `*.` for subdomains, `[…]` around IPv6 addresses, a port.
fn is_exempt(gateway: &Uri, list: &str) -> bool {
    let port = gateway.port_u16().unwrap_or(if gateway.scheme_str() == Some("https") { 443 } else { 80 });
    let entries = list.split([',', ' ', '\t', '\n']).filter(|entry| !entry.is_empty());
    let mut known = Vec::new();
    for entry in entries {
        if entry == "*" {
            return true;
        }
        let entry = match entry.rsplit_once(':') {
            // More than one colon without brackets is an IPv6 address.
            Some((host, number)) if !host.contains(':') || host.ends_with(']') => {
                if number.parse() != Ok(port) {
                    continue;
                }
                host
            }
            _ => entry,
        };
        known.push(bare(entry.strip_prefix('*').unwrap_or(entry)).trim_end_matches('.').to_owned());
    }
    let matcher = Matcher::builder().all("http://any").no(known.join(",")).build();
    matcher.intercept(gateway).is_none()
}

/// Takes the brackets off an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.kind {
            ProxyKind::Http { tls: false, .. } => "http",
            ProxyKind::Http { tls: true, .. } => "https",
            ProxyKind::Socks5 { names: NameLookup::Here, .. } => "socks5",
            ProxyKind::Socks5 { names: NameLookup::AtProxy, .. } => "socks5h",
        };
        if self.host.contains(':') {
            return write!(formatter, "{scheme}://[{}]:{}", self.host, self.port);
        }
        write!(formatter, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Proxy({self} from {})", self.variable)
    }
}

#[cfg(test)]
#[path = "choose/tests.rs"]
mod tests;
