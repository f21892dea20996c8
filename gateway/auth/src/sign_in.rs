//! Sign-in in the browser: from a workspace host over the public host and back.
//!
//! ```text
//! workspace host   GET /anything            no session: set a nonce cookie, redirect            (begin)
//! public host      /.gateway/authorize      session there? issue a one-time code, redirect back
//! workspace host   /.gateway/callback       code and nonce fit: set this host's own cookie, go on to /anything
//! workspace host   /.gateway/neighbours     no session: begin here too; then on to the next port, at last to /anything
//! public host      /.gateway/sign-in        authenticate: set the public session
//! public host      /.gateway/sign-out       end the public session and its children
//! ```
//!
//! The ways to sign in differ only in the authentication: dev mode's link ([`dev`]), or an identity provider
//! ([`oidc`]), whose steps are in [`provider`]; all else starts from a public session. Nothing here does I/O: a
//! [`SignInStep`](provider::SignInStep) says if the provider has to be asked. No code or cookie is ever logged.

pub mod dev;
pub mod event;
pub mod link;
mod nonces;
mod page;
pub mod path;
pub mod provider;
pub mod shared;
pub mod transfer;

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, ORIGIN, SET_COOKIE};
use http::{Method, Response, StatusCode, Uri, request};
use tokio::time::Instant;

use crate::browser::{BrowserSessions, session_name};
use crate::cookie::{self, CookieLookup};
use crate::oidc;
use crate::oidc::pending::Destination;
use crate::shape;
use crate::sign_in::dev::DevSignIn;
use crate::sign_in::event::SignInEvent;
use crate::sign_in::link::SignInLink;
use crate::sign_in::nonces::{BEGUN_AGE_MAX, BegunSignIns};
pub use crate::sign_in::page::{OPENER_POLICY, OPENER_POLICY_OWN};
use crate::sign_in::page::{SignInPage, redirect};
use crate::sign_in::path::ReturnPath;
use crate::sign_in::provider::{AtProvider, SignInStep};
use crate::sign_in::shared::{Leavings, SharedSteps, Ticket};
use crate::sign_in::transfer::{Transfer, Transfers};
use crate::site::Site;
use gateway_types::UserName;
use gateway_types::opaque::{Digest, Opaque};
use gateway_types::principal::{Principal, Via};
use gateway_types::token::NoRandomness;

/// The public host's page for authentication: dev mode's link opens it, or it leads to the identity provider.
pub const SIGN_IN_PATH: &str = "/.gateway/sign-in";
/// The public host's page that ends the session; takes `POST` only.
pub const SIGN_OUT_PATH: &str = "/.gateway/sign-out";
/// The public host's page that vouches for a browser towards one workspace host.
pub const AUTHORIZE_PATH: &str = "/.gateway/authorize";
/// The workspace host's page that redeems a one-time code.
pub const CALLBACK_PATH: &str = "/.gateway/callback";

/// Lifetime of a sign-in's nonce cookie, in seconds: as long as a sign-in may take.
const PRE_SECONDS: u64 = BEGUN_AGE_MAX.as_secs();

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Tells whether a text is the host of a workspace, in its one spelling and without a port.
pub type IsWorkspaceHost = Box<dyn Fn(&str) -> bool + Send + Sync>;
/// Shows a fresh link to the operator: on the terminal, in the log. Codes are meant to be read only here.
pub type Announce = Box<dyn Fn(&SignInLink) + Send + Sync>;

/// Parts of a request that these pages use.
#[derive(Clone, Copy)]
pub struct PageVisit<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// Address of the browser.
    pub peer: IpAddr,
}

impl<'a> PageVisit<'a> {
    /// Takes the relevant parts of a request from `peer`.
    #[must_use]
    pub fn new(parts: &'a request::Parts, peer: IpAddr) -> Self {
        Self { method: &parts.method, uri: &parts.uri, headers: &parts.headers, peer }
    }
}

#[cfg(test)]
impl<'a, B> From<&'a http::Request<B>> for PageVisit<'a> {
    fn from(request: &'a http::Request<B>) -> Self {
        let peer = std::net::Ipv4Addr::LOCALHOST.into();
        Self { method: request.method(), uri: request.uri(), headers: request.headers(), peer }
    }
}

/// A browser that has just signed in at a workspace host; the callback's answer carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedInBrowser {
    /// The public session that vouched.
    pub public: Digest,
}

/// The sign-in pages of both kinds of host, and their state.
pub struct SignIn {
    site: Site,
    sessions: Arc<BrowserSessions>,
    begun: BegunSignIns,
    transfers: Transfers,
    way: SignInMethod,
    is_workspace_host: IsWorkspaceHost,
    shared: Option<SharedSteps>,
}

/// Way in which users authenticate.
enum SignInMethod {
    /// With the link that the gateway prints.
    Dev { dev: DevSignIn, announce: Announce },
    /// At an identity provider.
    Provider(Box<AtProvider>),
}

impl fmt::Debug for SignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SignIn").field("site", &self.site).finish_non_exhaustive()
    }
}

impl SignIn {
    /// Creates the pages for dev mode, in which every visitor is `user`.
    #[must_use]
    pub fn new(
        site: Site,
        sessions: Arc<BrowserSessions>,
        user: UserName,
        is_workspace_host: IsWorkspaceHost,
        announce: Announce,
    ) -> Self {
        let way = SignInMethod::Dev { dev: DevSignIn::new(user), announce };
        Self::with(site, sessions, way, is_workspace_host)
    }

    /// Creates the pages for sign-in with an identity provider, which knows this gateway as `client`.
    #[must_use]
    pub fn with_provider(
        site: Site,
        sessions: Arc<BrowserSessions>,
        client: oidc::ClientRegistration,
        is_workspace_host: IsWorkspaceHost,
    ) -> Self {
        let way = SignInMethod::Provider(Box::new(AtProvider::new(client)));
        Self::with(site, sessions, way, is_workspace_host)
    }

    fn with(site: Site, sessions: Arc<BrowserSessions>, way: SignInMethod, is_workspace_host: IsWorkspaceHost) -> Self {
        let (begun, transfers) = (BegunSignIns::default(), Transfers::default());
        Self { site, sessions, begun, transfers, way, is_workspace_host, shared: None }
    }

    /// Makes a fresh link for the operator, at start or later, and invalidates an earlier one. `None` if an identity
    /// provider signs users in.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`].
    pub fn issue_link(&self, now: Instant) -> Result<Option<SignInLink>, NoRandomness> {
        let dev = match &self.way {
            SignInMethod::Dev { dev, .. } => dev,
            SignInMethod::Provider(_) => return Ok(None),
        };
        let code = Opaque::random()?;
        match &self.shared {
            None => dev.issue(&code, now),
            Some(shared) => shared.link(&code),
        }
        Ok(Some(self.link(&code)))
    }

    /// Answers the sign-in pages of the public host, or returns the step needed first; `None` for any other path.
    #[must_use]
    pub fn answer_public(&self, visit: PageVisit<'_>, now: Instant) -> Option<SignInStep> {
        let answer = match visit.uri.path() {
            SIGN_IN_PATH => self.sign_in(visit, now),
            AUTHORIZE_PATH => self.authorize(visit, now),
            SIGN_OUT_PATH => self.sign_out(visit, now),
            oidc::CALLBACK_PATH => self.take_back(visit, now)?,
            oidc::SIGNED_OUT_PATH => Err(match self.public_session(visit.headers, now) {
                Some(_) => SignInPage::StillSignedIn,
                None => SignInPage::SignedOut,
            }),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|page| SignInStep::Answer(page.response(visit.headers))))
    }

    /// Answers the one sign-in page of a workspace host; `None` for any other path, which is `no_such_host` if it is
    /// [reserved](path::is_reserved). `host` has its one spelling: lower case, without the listener's port.
    #[must_use]
    pub fn answer_workspace(&self, visit: PageVisit<'_>, host: &str, now: Instant) -> Option<Response<Bytes>> {
        if visit.uri.path() != CALLBACK_PATH {
            return None;
        }
        Some(self.callback(visit, host, now).unwrap_or_else(|page| page.response(visit.headers)))
    }

    /// Sends a page visit to a workspace host off to sign in. Call it for [`Decision::SignIn`] only.
    ///
    /// [`Decision::SignIn`]: crate::policy::Decision::SignIn
    #[must_use]
    pub fn begin(&self, visit: PageVisit<'_>, host: &str, now: Instant) -> Response<Bytes> {
        self.to_authorize(visit, host, now).unwrap_or_else(|page| page.response(visit.headers))
    }

    fn to_authorize(&self, visit: PageVisit<'_>, host: &str, now: Instant) -> Result<Response<Bytes>, SignInPage> {
        let names = self.site.cookies();
        // Several tabs may begin at once: they share a nonce, or each would spoil the others'. A nonce that this
        // gateway did not issue is replaced.
        let shown = match cookie::find(visit.headers, names.pre) {
            CookieLookup::One(pre) => Some(pre),
            CookieLookup::Nothing | CookieLookup::Unusable => None,
        };
        let (pre, ticket) = match &self.shared {
            None => {
                let again = shown.filter(|pre| self.begun.again(&pre.digest(), host, visit.peer, now));
                let pre = match again {
                    Some(pre) => pre,
                    None => {
                        let pre = Opaque::random()?;
                        self.begun.first(&pre.digest(), host, visit.peer, now);
                        pre
                    }
                };
                (pre, None)
            }
            Some(shared) => {
                let pre = match shown.filter(|pre| shared::is_own_nonce(shared.store(), host, pre)) {
                    Some(pre) => pre,
                    None => shared::nonce(shared.store(), host)?,
                };
                let ticket = Ticket::new(shared.store(), host, &pre.digest())?;
                (pre, Some(ticket))
            }
        };
        let wanted = visit.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let location = self.authorize_address(host, &ReturnPath::parse_or_root(wanted), &pre.digest(), ticket);
        redirect(StatusCode::FOUND, &location, names.set(names.pre, &pre, Some(PRE_SECONDS)))
    }

    /// Vouches for a signed-in browser towards one workspace host. Access to the workspace is not checked here: the
    /// policy decides that on every request, and a check here would reveal which workspaces exist.
    fn authorize(&self, visit: PageVisit<'_>, now: Instant) -> Result<SignInStep, SignInPage> {
        require_visit(visit)?;
        let host = parameter(visit.uri, "host").filter(|host| self.is_ours(host)).ok_or(SignInPage::BadRequest)?;
        let pre = parameter(visit.uri, "pre").and_then(|text| Digest::parse(&text)).ok_or(SignInPage::BadRequest)?;
        let return_to = ReturnPath::parse_or_root(&parameter(visit.uri, "return").unwrap_or_default());
        // Begun too long ago, or not by a redirect of this gateway: the workspace host begins anew, with a nonce for
        // the browser that comes there.
        let anew = || redirect(StatusCode::SEE_OTHER, &self.site.workspace(&host, return_to.as_str()), None);
        let ticket = parameter(visit.uri, "begun").and_then(|text| Ticket::parse(&text));
        let is_begun = match &self.shared {
            None => self.begun.is_open(&pre, &host, now),
            Some(shared) => ticket.is_some_and(|ticket| ticket.is_good(shared.store(), &host, &pre)),
        };
        if !is_begun {
            return anew().map(SignInStep::Answer);
        }
        let Some(parent) = self.public_session(visit.headers, now) else {
            return match &self.way {
                SignInMethod::Dev { .. } => self.offer_link(now).and(Err(SignInPage::SignInNeeded)),
                SignInMethod::Provider(_) => {
                    Ok(SignInStep::ToProvider(Destination::Authorize { host: host.into(), pre, return_to, ticket }))
                }
            };
        };
        if self.shared.is_none() && !self.begun.take(&pre, &host, now) {
            return anew().map(SignInStep::Answer);
        }
        let code = Opaque::random()?;
        let location = self.site.workspace(&host, &format!("{CALLBACK_PATH}?code={}", code.reveal()));
        let anew = self.site.workspace(&host, return_to.as_str());
        let transfer = Transfer { host: host.into(), pre, parent, return_to };
        let mut answer = redirect(StatusCode::SEE_OTHER, &location, None)?;
        if self.shared.is_some() {
            answer.extensions_mut().insert(Leavings::transfer(&code, &transfer, ticket, anew));
        } else {
            self.transfers.issue(&code, transfer, now);
        }
        Ok(SignInStep::Answer(answer))
    }

    fn callback(&self, visit: PageVisit<'_>, host: &str, now: Instant) -> Result<Response<Bytes>, SignInPage> {
        require_visit(visit)?;
        let names = self.site.cookies();
        let code = parameter(visit.uri, "code").and_then(|text| Opaque::parse(&text)).ok_or(SignInPage::BadRequest)?;
        // Without its nonce a browser cannot have begun this. The code is spent all the same: a code that was shown
        // once may have been seen by others.
        let pre = match cookie::find(visit.headers, names.pre) {
            CookieLookup::One(pre) => Some(pre.digest()),
            CookieLookup::Nothing | CookieLookup::Unusable => None,
        };
        let transfer = self.transfers.redeem(&code, host, pre.as_ref(), now).map_err(|refused| {
            tracing::debug!(%refused, "a sign-in was not finished");
            SignInPage::TransferFailed
        })?;
        let id = Opaque::random()?;
        self.sessions.open_host(&id, transfer.parent, host, visit.peer, now).map_err(|_| SignInPage::TransferFailed)?;
        // The nonce stays until it expires: another tab may be on its way here with it.
        let cookie = names.set(names.session, &id, None);
        let mut response = redirect(StatusCode::SEE_OTHER, transfer.return_to.as_str(), cookie)?;
        response.extensions_mut().insert(SignedInBrowser { public: transfer.parent });
        Ok(response)
    }

    /// Answers a visit to a workspace host on its way to `onward`: signs the browser in first if necessary.
    #[must_use]
    pub fn pass(&self, visit: PageVisit<'_>, host: &str, onward: &str, now: Instant) -> Response<Bytes> {
        let is_signed_in = match cookie::find(visit.headers, self.site.cookies().session) {
            CookieLookup::One(id) => self.sessions.host(&id.digest(), host, now).is_some(),
            CookieLookup::Nothing | CookieLookup::Unusable => false,
        };
        let passed = require_visit(visit).and_then(|()| {
            if is_signed_in {
                redirect(StatusCode::SEE_OTHER, onward, None)
            } else {
                self.to_authorize(visit, host, now)
            }
        });
        passed.unwrap_or_else(|page| page.response(visit.headers))
    }

    /// Returns the user of a browser that has just signed in at a workspace host, unless they have signed out since.
    #[must_use]
    pub fn user_of(&self, entered: &SignedInBrowser, now: Instant) -> Option<UserName> {
        self.sessions.public(&entered.public, now)
    }

    /// Returns the hosts at which that browser is signed in, including the one that it has just entered.
    #[must_use]
    pub fn hosts_of(&self, entered: &SignedInBrowser, now: Instant) -> HashSet<Box<str>> {
        self.sessions.hosts_of(&entered.public, now)
    }

    /// Redeems dev mode's link, or leads to the provider. Only on a visit: a prefetch or a link checker must not use a
    /// link up.
    fn sign_in(&self, visit: PageVisit<'_>, now: Instant) -> Result<SignInStep, SignInPage> {
        require_visit(visit)?;
        let destination = self.after_sign_in(visit.uri);
        // A link opened again in the browser that it signed in just goes on, and does not use up a newer one.
        if self.public_session(visit.headers, now).is_some() {
            return redirect(StatusCode::SEE_OTHER, &self.location(&destination), None).map(SignInStep::Answer);
        }
        let dev = match &self.way {
            SignInMethod::Dev { dev, .. } => dev,
            SignInMethod::Provider(_) => return Ok(SignInStep::ToProvider(destination)),
        };
        let code = parameter(visit.uri, "code").and_then(|text| Opaque::parse(&text));
        let redeem = |code: Opaque| match &self.shared {
            None => dev.redeem(&code, now),
            Some(_) => dev.redeem_taken(&code, now),
        };
        let Some(user) = code.and_then(redeem) else {
            self.offer_link(now)?;
            return Err(SignInPage::LinkNotGood);
        };
        let id = Opaque::random()?;
        tracing::info!(%user, "signed in");
        self.sessions.open_public(&id, user.clone(), visit.peer, now);
        let names = self.site.cookies();
        let cookie = names.set(names.session, &id, None);
        let mut response = redirect(StatusCode::SEE_OTHER, &self.location(&destination), cookie)?;
        let session = session_name(&id.digest());
        response.extensions_mut().insert(SignInEvent::SignedIn { user, how: "dev_link", session });
        Ok(SignInStep::Answer(response))
    }

    fn after_sign_in(&self, uri: &Uri) -> Destination {
        let path = ReturnPath::parse_or_root(&parameter(uri, "return").unwrap_or_default());
        match parameter(uri, "host").filter(|host| self.is_ours(host)) {
            Some(host) => Destination::Workspace { host: host.into(), path },
            None => Destination::Public(path),
        }
    }

    /// Returns the address for a browser after sign-in.
    fn location(&self, destination: &Destination) -> String {
        match destination {
            Destination::Public(path) => path.as_str().to_owned(),
            Destination::Workspace { host, path } => self.site.workspace(host, path.as_str()),
            Destination::Authorize { host, pre, return_to, ticket } => {
                self.authorize_address(host, return_to, pre, *ticket)
            }
        }
    }

    fn authorize_address(&self, host: &str, return_to: &ReturnPath, pre: &Digest, ticket: Option<Ticket>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("host", host).append_pair("return", return_to.as_str()).append_pair("pre", &pre.encoded());
        if let Some(ticket) = ticket {
            query.append_pair("begun", &ticket.encoded());
        }
        let query = query.finish();
        self.site.public(&format!("{AUTHORIZE_PATH}?{query}"))
    }

    /// Ends this browser's session, or with `?everywhere` all of the user's.
    fn sign_out(&self, visit: PageVisit<'_>, now: Instant) -> Result<SignInStep, SignInPage> {
        if visit.method != Method::POST || !self.is_same_origin(visit.headers) {
            return Err(SignInPage::BadRequest);
        }
        let names = self.site.cookies();
        let found = match cookie::find(visit.headers, names.session) {
            // An expired session speaks for no user, and so must not sign out the user's other browsers.
            CookieLookup::One(id) => {
                let id = id.digest();
                self.sessions.public(&id, now).and_then(|_| Some((self.sessions.sign_out(&id)?, id)))
            }
            CookieLookup::Nothing | CookieLookup::Unusable => None,
        };
        let Some(found) = found else { return Ok(SignInStep::Answer(self.signed_out_page(visit))) };
        let (ended, own) = found;
        let others = if is_everywhere(visit) { self.sessions.end_all(&ended.user) } else { Vec::new() };
        tracing::info!(user = %ended.user, others = others.len(), "signed out");
        let sessions = std::iter::once(session_name(&own)).chain(others).collect();
        let event = SignInEvent::SignedOut { user: ended.user, sessions };
        Ok(match ended.provider {
            Some(session) => SignInStep::SignOutAtProvider(session, event),
            None => {
                let mut page = self.signed_out_page(visit);
                page.extensions_mut().insert(event);
                SignInStep::Answer(page)
            }
        })
    }

    /// Ends all browser sessions of a disabled user who showed one, so that they stay ended once the user is enabled
    /// again.
    pub fn end_sessions_of(&self, principal: &Principal) {
        match principal.via {
            Via::Browser => {
                let sessions = self.sessions.sign_out_everywhere(&principal.user);
                tracing::info!(user = %principal.user, sessions, "signed out: the user is disabled");
            }
            Via::ApiToken => {}
        }
    }

    /// Returns the page for a signed-out browser, and clears its session cookie.
    #[must_use]
    pub fn signed_out_page(&self, visit: PageVisit<'_>) -> Response<Bytes> {
        self.without_session(SignInPage::SignedOut.response(visit.headers))
    }

    fn without_session(&self, mut response: Response<Bytes>) -> Response<Bytes> {
        let names = self.site.cookies();
        if let Some(cleared) = names.clear(names.session) {
            response.headers_mut().insert(SET_COOKIE, cleared);
        }
        response
    }

    fn public_session(&self, headers: &HeaderMap, now: Instant) -> Option<Digest> {
        let CookieLookup::One(id) = cookie::find(headers, self.site.cookies().session) else {
            return None;
        };
        let id = id.digest();
        self.sessions.public(&id, now).map(|_| id)
    }

    /// Returns the browser's nonce at the public host, for a sign-in with a provider. Several tabs may begin at once: they
    /// share one, or each would spoil the others'.
    fn pre(&self, visit: PageVisit<'_>) -> Result<Opaque, NoRandomness> {
        match cookie::find(visit.headers, self.site.cookies().pre) {
            CookieLookup::One(pre) => Ok(pre),
            CookieLookup::Nothing | CookieLookup::Unusable => Opaque::random(),
        }
    }

    /// Prints a link for a visitor who needs one, as rarely as dev mode's rules say.
    fn offer_link(&self, now: Instant) -> Result<(), SignInPage> {
        let (dev, announce) = match &self.way {
            SignInMethod::Dev { dev, announce } => (dev, announce),
            SignInMethod::Provider(_) => return Ok(()),
        };
        let fresh = Opaque::random()?;
        let is_due = match &self.shared {
            None => dev.renew(&fresh, now),
            Some(shared) => {
                let is_due = dev.is_renewal_due(now);
                if is_due {
                    shared.link(&fresh);
                }
                is_due
            }
        };
        if is_due {
            announce(&self.link(&fresh));
        }
        Ok(())
    }

    fn link(&self, code: &Opaque) -> SignInLink {
        SignInLink::new(&self.site, code)
    }

    /// Asks the host parser, after refusing all characters that could change the meaning of a URL.
    fn is_ours(&self, host: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        host.bytes().all(plain) && (self.is_workspace_host)(host)
    }

    /// Answers a visit without a session to a page of the public host that needs one.
    #[must_use]
    pub fn ask(&self, visit: PageVisit<'_>, now: Instant) -> Response<Bytes> {
        if let Some(response) = self.begin_public(visit) {
            return response;
        }
        let page = require_visit(visit).and_then(|()| self.offer_link(now)).err().unwrap_or(SignInPage::SignInNeeded);
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

/// Returns whether a sign-out is of all of the user's browsers.
fn is_everywhere(visit: PageVisit<'_>) -> bool {
    visit.uri.query() == Some("everywhere")
}

/// Lets only a browser tab, or a program that makes no claim at all, through: no prefetch, frame, script or `HEAD`.
fn require_visit(visit: PageVisit<'_>) -> Result<(), SignInPage> {
    let has_no_claim = !visit.headers.contains_key(SEC_FETCH_SITE) && !visit.headers.contains_key(ORIGIN);
    let may_pass = *visit.method == Method::GET && has_no_claim && !shape::is_prefetch(visit.headers);
    if may_pass || shape::is_page_visit(visit.method, visit.headers) { Ok(()) } else { Err(SignInPage::NotAVisit) }
}

/// Returns a query parameter, decoded, if it is there exactly once.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let mut found = form_urlencoded::parse(uri.query()?.as_bytes()).filter(|(key, _)| key == name);
    let (_, value) = found.next()?;
    found.next().is_none().then(|| value.into_owned())
}

#[cfg(test)]
mod tests;
