//! Rights of a request: what the gateway says about the user, and what the browser says about the page.

use ::http::header::{HOST, ORIGIN};
use ::http::{HeaderMap, StatusCode};
use tunnel_proto::terminal::{ACCESS_FIELD, ACCESS_OWNER, USER_FIELD};

use super::{TerminalRefusal, only};

/// User behind a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    user: Option<String>,
    is_owner: bool,
}

const READ_ONLY: TerminalRefusal = TerminalRefusal(StatusCode::FORBIDDEN, "read_only");
const FOREIGN_PAGE: TerminalRefusal = TerminalRefusal(StatusCode::FORBIDDEN, "foreign_page");

impl Access {
    /// Reads the gateway's fields. A field that is missing, or there twice, gives nothing.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let user = only(headers, USER_FIELD).filter(|name| !name.is_empty());
        Self { user: user.map(str::to_owned), is_owner: only(headers, ACCESS_FIELD) == Some(ACCESS_OWNER) }
    }

    /// Returns the user's name.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns whether the user owns the workspace.
    pub(crate) fn is_owner(&self) -> bool {
        self.is_owner
    }

    /// Returns whether the user may type, and decide.
    pub(super) fn may_type(&self) -> bool {
        self.is_owner
    }

    /// Decides whether the user may change something.
    ///
    /// # Errors
    /// The user may only look, or another page than the agent's own is behind the request.
    pub(super) fn may_change(&self, headers: &HeaderMap) -> Result<(), TerminalRefusal> {
        if !self.is_owner {
            return Err(READ_ONLY);
        }
        self.may_connect(headers)
    }

    /// Decides whether the user may watch a terminal from this page. The gateway has decided that before; this check
    /// stands on its own.
    ///
    /// # Errors
    /// Another page than the agent's own is behind the request.
    pub(super) fn may_connect(&self, headers: &HeaderMap) -> Result<(), TerminalRefusal> {
        if is_foreign(headers) { Err(FOREIGN_PAGE) } else { Ok(()) }
    }
}

/// Returns whether a browser tells of another page than this origin's (RFC 6454; Fetch Metadata). Programs tell of
/// none, and have no cookies that a page could misuse.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    let cross = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    let other = headers.contains_key(ORIGIN) && {
        let authority = only(headers, ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
        authority.is_none_or(|(_, authority)| only(headers, HOST.as_str()) != Some(authority))
    };
    cross || other
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        })
    }

    #[test]
    fn only_the_gateways_word_for_an_owner_lets_somebody_type() {
        let may = |fields: &[_]| Access::read(&headers(fields)).may_type();
        assert!(may(&[("gateway-access", "owner")]));
        for fields in [
            &[][..],
            &[("gateway-user", "ann")],
            &[("gateway-access", "shared")],
            &[("gateway-access", "Owner")],
            &[("gateway-access", "owner"), ("gateway-access", "owner")],
            &[("gateway-access", "owner"), ("gateway-access", "shared")],
        ] {
            assert!(!may(fields), "{fields:?}");
        }
        let named = Access::read(&headers(&[("gateway-user", "ann"), ("gateway-access", "shared")]));
        assert_eq!((named.user(), named.may_change(&HeaderMap::new())), (Some("ann"), Err(READ_ONLY)));
    }

    #[test]
    fn request_of_another_page_changes_and_shows_nothing() {
        let owner = Access { user: None, is_owner: true };
        let host = ("host", "60002-app.zone:8080");
        for fields in [
            &[host][..],
            &[host, ("origin", "https://60002-app.zone:8080")],
            &[host, ("sec-fetch-site", "same-origin"), ("origin", "http://60002-app.zone:8080")],
            &[host, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(owner.may_change(&headers(fields)), Ok(()), "{fields:?}");
        }
        for fields in [
            &[host, ("origin", "https://3000-app.zone:8080")][..],
            &[host, ("origin", "https://60002-app.zone")],
            &[host, ("origin", "null")],
            &[host, ("origin", "")],
            &[("origin", "https://60002-app.zone:8080")],
            &[host, ("origin", "https://60002-app.zone:8080"), ("origin", "https://60002-app.zone:8080")],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "cross-site"), ("origin", "https://60002-app.zone:8080")],
        ] {
            assert_eq!(owner.may_change(&headers(fields)), Err(FOREIGN_PAGE), "{fields:?}");
            assert_eq!(owner.may_connect(&headers(fields)), Err(FOREIGN_PAGE), "{fields:?}");
        }
    }
}
