//! Sign-in in the browser: from "who are you?" on a workspace host, over the public host, and back.
//!
//! ```text
//! workspace host   GET /anything            no session: set a nonce cookie, redirect            (begin)
//! public host      /.gateway/authorize      session there? issue a one-time code, redirect back
//! workspace host   /.gateway/callback       code and nonce fit: set this host's own cookie, go on to /anything
//! public host      /.gateway/sign-in        dev mode's link: set the public session
//! public host      /.gateway/sign-out       end the public session and all that hangs on it
//! ```
//!
//! Another way to prove who one is only replaces what `/.gateway/sign-in` does; the rest starts from a public session.
//! Nothing here does I/O, and no code or cookie is ever logged.

pub mod dev;
pub mod event;
pub mod link;
mod page;
pub mod path;
pub mod transfer;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, ORIGIN, SET_COOKIE};
use http::{Method, Request, Response, StatusCode, Uri, request};
use tokio::time::Instant;

use crate::auth::browser::{BrowserSessions, session_name};
use crate::auth::cookie::{self, Found};
use crate::auth::secret::{Digest, Opaque};
use crate::auth::shape;
use crate::auth::sign_in::dev::DevSignIn;
use crate::auth::sign_in::event::SignInEvent;
use crate::auth::sign_in::link::SignInLink;
use crate::auth::sign_in::page::{Page, redirect};
use crate::auth::sign_in::path::ReturnPath;
use crate::auth::sign_in::transfer::{Transfer, Transfers};
use crate::auth::site::Site;
use crate::auth::token::NoRandomness;
use crate::model::UserName;

/// The public host's page that dev mode's link opens.
pub const SIGN_IN_PATH: &str = "/.gateway/sign-in";
/// The public host's page that ends the session; takes `POST` only.
pub const SIGN_OUT_PATH: &str = "/.gateway/sign-out";
/// The public host's page that vouches for a browser towards one workspace host.
pub const AUTHORIZE_PATH: &str = "/.gateway/authorize";
/// The workspace host's page where a one-time code is redeemed.
pub const CALLBACK_PATH: &str = "/.gateway/callback";

/// How long the nonce of a sign-in is kept by the browser, in seconds.
const PRE_SECONDS: u64 = 5 * 60;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Tells whether a text is the host of a workspace, in its one spelling and without a port.
pub type IsWorkspaceHost = Box<dyn Fn(&str) -> bool + Send + Sync>;
/// Shows a fresh link to the operator: on the terminal, in the log. The one place where a code is meant to be read.
pub type Announce = Box<dyn Fn(&SignInLink) + Send + Sync>;

/// What these pages look at in a request.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
}

impl<'a> From<&'a request::Parts> for Visit<'a> {
    fn from(parts: &'a request::Parts) -> Self {
        Self { method: &parts.method, uri: &parts.uri, headers: &parts.headers }
    }
}

impl<'a, B> From<&'a Request<B>> for Visit<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self { method: request.method(), uri: request.uri(), headers: request.headers() }
    }
}

/// The sign-in pages of both kinds of host, and what they remember.
pub struct SignIn {
    site: Site,
    sessions: Arc<BrowserSessions>,
    transfers: Transfers,
    dev: DevSignIn,
    is_workspace_host: IsWorkspaceHost,
    announce: Announce,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SignIn").field("site", &self.site).finish_non_exhaustive()
    }
}

impl SignIn {
    /// Makes the pages for dev mode, where everybody is `user`.
    #[must_use]
    pub fn new(
        site: Site,
        sessions: Arc<BrowserSessions>,
        user: UserName,
        is_workspace_host: IsWorkspaceHost,
        announce: Announce,
    ) -> Self {
        let (transfers, dev) = (Transfers::default(), DevSignIn::new(user));
        Self { site, sessions, transfers, dev, is_workspace_host, announce }
    }

    /// Makes a fresh link on the operator's word, at start or later; an earlier one is worth nothing any more.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`].
    pub fn issue_link(&self, now: Instant) -> Result<SignInLink, NoRandomness> {
        let code = Opaque::random()?;
        self.dev.issue(&code, now);
        Ok(self.link(&code))
    }

    /// Answers the sign-in pages of the public host; `None` for any other path.
    #[must_use]
    pub fn answer_public(&self, visit: Visit<'_>, now: Instant) -> Option<Response<Bytes>> {
        let answer = match visit.uri.path() {
            SIGN_IN_PATH => self.sign_in(visit, now),
            AUTHORIZE_PATH => self.authorize(visit, now),
            SIGN_OUT_PATH => self.sign_out(visit, now),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|page| page.response(visit.headers)))
    }

    /// Answers the one sign-in page of a workspace host; `None` for any other path, which is `no_such_host` if it is
    /// [reserved](path::is_reserved). `host` has its one spelling: lower case, without the listener's port.
    #[must_use]
    pub fn answer_workspace(&self, visit: Visit<'_>, host: &str, now: Instant) -> Option<Response<Bytes>> {
        if visit.uri.path() != CALLBACK_PATH {
            return None;
        }
        Some(self.callback(visit, host, now).unwrap_or_else(|page| page.response(visit.headers)))
    }

    /// Sends a page visit to a workspace host off to sign in. Call it for [`Decision::SignIn`] only.
    ///
    /// [`Decision::SignIn`]: crate::auth::policy::Decision::SignIn
    #[must_use]
    pub fn begin(&self, visit: Visit<'_>, host: &str) -> Response<Bytes> {
        self.to_authorize(visit, host).unwrap_or_else(|page| page.response(visit.headers))
    }

    fn to_authorize(&self, visit: Visit<'_>, host: &str) -> Result<Response<Bytes>, Page> {
        let names = self.site.cookies();
        // Several tabs may begin at once: they share one nonce, or each would spoil the others'.
        let pre = match cookie::find(visit.headers, names.pre) {
            Found::One(pre) => pre,
            Found::Nothing | Found::Unusable => Opaque::random()?,
        };
        let wanted = visit.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("host", host)
            .append_pair("return", ReturnPath::parse_or_root(wanted).as_str())
            .append_pair("pre", &pre.digest().encoded())
            .finish();
        let location = self.site.public(&format!("{AUTHORIZE_PATH}?{query}"));
        redirect(StatusCode::FOUND, &location, names.set(names.pre, &pre, Some(PRE_SECONDS)))
    }

    /// Vouches for a signed-in browser towards one workspace host. Whether the user may use the workspace is not asked here:
    /// the policy decides that on every request, and asking twice would tell which workspaces exist.
    fn authorize(&self, visit: Visit<'_>, now: Instant) -> Result<Response<Bytes>, Page> {
        require_visit(visit)?;
        let host = parameter(visit.uri, "host").filter(|host| self.is_ours(host)).ok_or(Page::BadRequest)?;
        let pre = parameter(visit.uri, "pre").and_then(|text| Digest::parse(&text)).ok_or(Page::BadRequest)?;
        let return_to = ReturnPath::parse_or_root(&parameter(visit.uri, "return").unwrap_or_default());
        let Some(parent) = self.public_session(visit.headers, now) else {
            self.offer_link(now)?;
            return Err(Page::SignInNeeded);
        };
        let code = Opaque::random()?;
        let location = self.site.workspace(&host, &format!("{CALLBACK_PATH}?code={}", code.reveal()));
        self.transfers.issue(&code, Transfer { host: host.into(), pre, parent, return_to }, now);
        redirect(StatusCode::SEE_OTHER, &location, None)
    }

    fn callback(&self, visit: Visit<'_>, host: &str, now: Instant) -> Result<Response<Bytes>, Page> {
        require_visit(visit)?;
        let names = self.site.cookies();
        let code = parameter(visit.uri, "code").and_then(|text| Opaque::parse(&text)).ok_or(Page::BadRequest)?;
        // Without its nonce a browser cannot have begun this; the code stays unspent for the one that did.
        let Found::One(pre) = cookie::find(visit.headers, names.pre) else {
            return Err(Page::TransferFailed);
        };
        let transfer = self.transfers.redeem(&code, host, &pre.digest(), now).map_err(|refused| {
            tracing::debug!(%refused, "a sign-in was not finished");
            Page::TransferFailed
        })?;
        let id = Opaque::random()?;
        self.sessions.open_host(&id, transfer.parent, host, now).map_err(|_| Page::TransferFailed)?;
        // The nonce stays until it expires: another tab may be on its way here with it.
        redirect(StatusCode::SEE_OTHER, transfer.return_to.as_str(), names.set(names.session, &id, None))
    }

    /// Redeems dev mode's link. Only a visit does: a browser that fetches ahead or a link checker must not use it up.
    fn sign_in(&self, visit: Visit<'_>, now: Instant) -> Result<Response<Bytes>, Page> {
        require_visit(visit)?;
        let location = self.after_sign_in(visit.uri);
        // Opened again in the browser that it signed in, the link just goes on, and does not use up a newer one.
        if self.public_session(visit.headers, now).is_some() {
            return redirect(StatusCode::SEE_OTHER, &location, None);
        }
        let code = parameter(visit.uri, "code").and_then(|text| Opaque::parse(&text));
        let Some(user) = code.and_then(|code| self.dev.redeem(&code, now)) else {
            self.offer_link(now)?;
            return Err(Page::LinkNotGood);
        };
        let id = Opaque::random()?;
        tracing::info!(%user, "signed in");
        self.sessions.open_public(&id, user.clone(), now);
        let names = self.site.cookies();
        let mut response = redirect(StatusCode::SEE_OTHER, &location, names.set(names.session, &id, None))?;
        let session = session_name(&id.digest());
        response.extensions_mut().insert(SignInEvent::SignedIn { user, how: "dev_link", session });
        Ok(response)
    }

    fn after_sign_in(&self, uri: &Uri) -> String {
        let path = ReturnPath::parse_or_root(&parameter(uri, "return").unwrap_or_default());
        match parameter(uri, "host").filter(|host| self.is_ours(host)) {
            Some(host) => self.site.workspace(&host, path.as_str()),
            None => path.as_str().to_owned(),
        }
    }

    fn sign_out(&self, visit: Visit<'_>, now: Instant) -> Result<Response<Bytes>, Page> {
        if visit.method != Method::POST || !self.is_same_origin(visit.headers) {
            return Err(Page::BadRequest);
        }
        let names = self.site.cookies();
        let mut response = Page::SignedOut.response(visit.headers);
        if let Found::One(id) = cookie::find(visit.headers, names.session) {
            let id = id.digest();
            if let Some(user) = self.sessions.public(&id, now) {
                let event = SignInEvent::SignedOut { user, session: session_name(&id) };
                response.extensions_mut().insert(event);
            }
            self.sessions.sign_out(&id);
        }
        if let Some(cleared) = names.clear(names.session) {
            response.headers_mut().insert(SET_COOKIE, cleared);
        }
        Ok(response)
    }

    fn public_session(&self, headers: &HeaderMap, now: Instant) -> Option<Digest> {
        let Found::One(id) = cookie::find(headers, self.site.cookies().session) else {
            return None;
        };
        let id = id.digest();
        self.sessions.public(&id, now).map(|_| id)
    }

    /// Prints a link for somebody who needs one, as rarely as dev mode's rules say.
    fn offer_link(&self, now: Instant) -> Result<(), Page> {
        let fresh = Opaque::random()?;
        if self.dev.renew(&fresh, now) {
            (self.announce)(&self.link(&fresh));
        }
        Ok(())
    }

    fn link(&self, code: &Opaque) -> SignInLink {
        SignInLink::new(&self.site, code)
    }

    /// Asks the host parser, and by itself lets nothing through that could change the meaning of a URL.
    fn is_ours(&self, host: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        host.bytes().all(plain) && (self.is_workspace_host)(host)
    }

    /// Answers a visit to a page of the public host that only somebody who is signed in may see.
    #[must_use]
    pub fn ask(&self, visit: Visit<'_>, now: Instant) -> Response<Bytes> {
        let page = require_visit(visit).and_then(|()| self.offer_link(now)).err().unwrap_or(Page::SignInNeeded);
        page.response(visit.headers)
    }

    /// Browsers name the origin of every `POST`; one that names none, or another, is refused.
    #[must_use]
    pub fn is_same_origin(&self, headers: &HeaderMap) -> bool {
        match headers.get(SEC_FETCH_SITE) {
            Some(site) => site == "same-origin",
            None => headers.get(ORIGIN).is_some_and(|origin| origin == self.site.public("").as_str()),
        }
    }
}

/// Lets only a browser tab, or a program that makes no claim at all, through: no prefetch, frame, script or `HEAD`.
fn require_visit(visit: Visit<'_>) -> Result<(), Page> {
    let has_no_claim = !visit.headers.contains_key(SEC_FETCH_SITE) && !visit.headers.contains_key(ORIGIN);
    let may_pass = *visit.method == Method::GET && has_no_claim && !shape::is_prefetch(visit.headers);
    if may_pass || shape::is_page_visit(visit.method, visit.headers) { Ok(()) } else { Err(Page::NotAVisit) }
}

/// Returns a query parameter, decoded, if it is there exactly once.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let mut found = form_urlencoded::parse(uri.query()?.as_bytes()).filter(|(key, _)| key == name);
    let (_, value) = found.next()?;
    found.next().is_none().then(|| value.into_owned())
}

#[cfg(test)]
mod tests;
