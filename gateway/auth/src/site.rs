//! The gateway's public address, from which its links, redirects and cookies are made.

use http::Uri;
use thiserror::Error;

use crate::cookie::CookieNames;

/// Path prefix on the public host of the pages of single workspaces, followed by the name.
pub const WORKSPACE_PAGES: &str = "/workspaces/";

/// The public address, split once at start.
#[derive(Clone, Debug)]
pub struct Site {
    https: bool,
    authority: Box<str>,
    port_suffix: Box<str>,
    /// Host of workspaces by path.
    paths_host: Option<Box<str>>,
}

/// The text cannot be used as `public_url`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the public URL is `http://HOST[:PORT]` or `https://HOST[:PORT]`, without a path")]
pub struct BadPublicUrl;

impl Site {
    /// Reads `public_url`. Workspace hosts share its scheme and port: the same listener serves both.
    ///
    /// # Errors
    ///
    /// [`BadPublicUrl`] for another scheme, user information, a path or a query.
    pub fn new(public_url: &Uri) -> Result<Self, BadPublicUrl> {
        let https = match public_url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(BadPublicUrl),
        };
        let authority = public_url.authority().ok_or(BadPublicUrl)?;
        let plain = matches!(public_url.path(), "" | "/") && public_url.query().is_none();
        if !plain || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(BadPublicUrl);
        }
        // A browser leaves the scheme's own port out of `Host` and `Origin`, and so do we.
        let own_port = if https { 443 } else { 80 };
        let port_suffix = match authority.port_u16() {
            Some(port) if port != own_port => format!(":{port}"),
            Some(_) | None => String::new(),
        };
        let host = authority.host().to_ascii_lowercase();
        Ok(Self {
            https,
            authority: format!("{host}{port_suffix}").into(),
            port_suffix: port_suffix.into(),
            paths_host: None,
        })
    }

    /// Adds the host of `paths_url`, which has the scheme and the port of the public address.
    #[must_use]
    pub fn with_paths(self, host: &str) -> Self {
        Self { paths_host: Some(host.to_ascii_lowercase().into()), ..self }
    }

    /// Returns the address of a path on the origin of `paths_url`; `None` without that key.
    #[must_use]
    pub fn by_path(&self, path: &str) -> Option<String> {
        self.paths_host.as_deref().map(|host| self.workspace(host, path))
    }

    /// Returns whether browsers reach the gateway over TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Returns `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// Returns the public host and, unless it is the scheme's own, its port: the value of `Host` on the public host.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the names of the gateway's cookies.
    #[must_use]
    pub fn cookies(&self) -> CookieNames {
        CookieNames::new(self.https)
    }

    /// Returns the public address followed by `path`, which begins with a slash.
    #[must_use]
    pub fn public(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme(), self.authority)
    }

    /// Returns the address of a workspace host (without a port of its own) followed by `path`.
    #[must_use]
    pub fn workspace(&self, host: &str, path: &str) -> String {
        format!("{}://{host}{}{path}", self.scheme(), self.port_suffix)
    }

    /// Returns the authority inside `origin` (RFC 6454, section 6.2) if the scheme is this site's.
    #[must_use]
    pub fn authority_of_origin<'a>(&self, origin: &'a str) -> Option<&'a str> {
        let rest = origin.strip_prefix(self.scheme())?.strip_prefix("://")?;
        let clean = !rest.is_empty() && !rest.contains(['/', '@', '?', '#', '\\']);
        clean.then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, public: Option<(&str, &str)>) {
        let site = Site::new(&url.parse().unwrap()).ok();
        let seen = site.map(|site| (site.public("/x"), site.workspace("8080-a.zone", "/y")));
        assert_eq!(seen, public.map(|(a, b)| (a.to_owned(), b.to_owned())), "{url}");
    }

    #[test]
    fn site_is_made_from_an_origin_and_nothing_else() {
        check("http://localhost:8080", Some(("http://localhost:8080/x", "http://8080-a.zone:8080/y")));
        check("https://GW.example:443/", Some(("https://gw.example/x", "https://8080-a.zone/y")));
        check("http://localhost:443", Some(("http://localhost:443/x", "http://8080-a.zone:443/y")));
        check("ftp://localhost", None);
        check("/path", None);
        check("https://user@gw.example", None);
        check("https://gw.example/base", None);
        check("https://gw.example/?a", None);
    }

    #[test]
    fn origin_counts_only_with_the_same_scheme_and_no_extras() {
        let site = Site::new(&"https://gw.example".parse().unwrap()).unwrap();
        assert_eq!(site.authority_of_origin("https://a.zone"), Some("a.zone"));
        for origin in ["null", "http://a.zone", "https://", "https://x@a.zone", "https://a.zone/", "HTTPS:/a.zone"] {
            assert_eq!(site.authority_of_origin(origin), None, "{origin}");
        }
    }
}
