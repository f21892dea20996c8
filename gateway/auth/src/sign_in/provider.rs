//! Steps of sign-in with an identity provider, each up to the next request to it.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::page::{SignInPage, go_on, redirect};
use super::shared::Leavings;
use super::{PageVisit, SIGN_IN_PATH, SignIn, SignInMethod, require_visit};
use crate::browser::{SignedIn, session_name};
use crate::cookie::{self, CookieLookup};
use crate::oidc::answer::{BadAnswer, RedirectParameters};
use crate::oidc::failure::SignInError;
use crate::oidc::identity::NotAdmitted;
use crate::oidc::logout::{BadNotice, EndedAtProvider, Notice};
use crate::oidc::metadata::Metadata;
use crate::oidc::pending::{Destination, NotPending, Pending, PendingSignIns};
use crate::oidc::request::{sign_in_address, sign_out_address};
use crate::oidc::{ClientRegistration, ProviderSession};
use crate::shape;
use crate::sign_in::event::SignInEvent;
use gateway_types::UnixSeconds;
use gateway_types::opaque::Opaque;

/// Lifetime of the nonce cookie of a sign-in with a provider, in seconds: as long as such a sign-in may take.
const PRE_SECONDS: u64 = 10 * 60;

/// Next step of a visit to a sign-in page.
#[derive(Debug)]
pub enum SignInStep {
    /// Nothing: this is the answer.
    Answer(Response<Bytes>),
    /// The provider's description, then [`SignIn::to_provider`].
    ToProvider(Destination),
    /// Authentication by the provider, then [`SignIn::admit`].
    FromProvider(Box<ReturnedBrowser>),
    /// The provider's description, then [`SignIn::sign_out_at_provider`].
    SignOutAtProvider(Arc<ProviderSession>, SignInEvent),
}

/// A browser that came back from the provider with an answer to a pending sign-in.
#[derive(Debug)]
pub struct ReturnedBrowser {
    /// The answer that it brought.
    pub answer: RedirectParameters,
    /// The sign-in that this ends.
    pub pending: Pending,
}

/// State of sign-ins with a provider.
#[derive(Debug)]
pub(super) struct AtProvider {
    client: ClientRegistration,
    pending: PendingSignIns,
    ended: EndedAtProvider,
}

impl AtProvider {
    pub(super) fn new(client: ClientRegistration) -> Self {
        Self { client, pending: PendingSignIns::default(), ended: EndedAtProvider::default() }
    }

    /// Takes up a sign-in that was begun at another replica, for the visit that ends it.
    pub(super) fn resume(&self, state: &Opaque, pending: Pending, peer: IpAddr, now: Instant) {
        self.pending.begin(state, pending, peer, now);
    }
}

impl SignIn {
    /// Sends a page visit to the public host off to sign in at the identity provider; `None` in dev mode, which needs a
    /// link.
    #[must_use]
    pub fn begin_public(&self, visit: PageVisit<'_>) -> Option<Response<Bytes>> {
        let is_visit = shape::is_page_visit(visit.method, visit.headers);
        match &self.way {
            SignInMethod::Provider(_) if is_visit => {}
            SignInMethod::Provider(_) | SignInMethod::Dev { .. } => return None,
        }
        let wanted = visit.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("return", wanted).finish();
        redirect(StatusCode::FOUND, &format!("{SIGN_IN_PATH}?{query}"), None).ok()
    }

    /// Sends a browser at `peer` to the provider, and remembers its destination.
    #[must_use]
    pub fn to_provider(
        &self,
        visit: PageVisit<'_>,
        destination: Destination,
        metadata: &Metadata,
        peer: IpAddr,
        now: Instant,
    ) -> Response<Bytes> {
        let begun = self.begin_at_provider(visit, destination, metadata, peer, now);
        begun.unwrap_or_else(|page| page.response(visit.headers))
    }

    fn begin_at_provider(
        &self,
        visit: PageVisit<'_>,
        destination: Destination,
        metadata: &Metadata,
        peer: IpAddr,
        now: Instant,
    ) -> Result<Response<Bytes>, SignInPage> {
        let at = self.at_provider()?;
        let authorization = metadata.authorization.as_ref().ok_or(SignInPage::ProviderUnavailable)?;
        let pre = self.pre(visit)?;
        let (state, nonce, verifier) = (Opaque::random()?, Opaque::random()?, Opaque::random()?);
        let pending = Pending { pre: pre.digest(), nonce, verifier, destination };
        let location = sign_in_address(authorization, &at.client, &state, &pending);
        let names = self.site.cookies();
        let mut answer = redirect(StatusCode::FOUND, &location, names.set(names.pre, &pre, Some(PRE_SECONDS)))?;
        if self.shared.is_some() {
            answer.extensions_mut().insert(Leavings::pending(&state, &pending));
        } else {
            at.pending.begin(&state, pending, peer, now);
        }
        Ok(answer)
    }

    /// Takes the browser back from the provider. `None` in dev mode, which has no such page.
    pub(super) fn take_back(&self, visit: PageVisit<'_>, now: Instant) -> Option<Result<SignInStep, SignInPage>> {
        match &self.way {
            SignInMethod::Provider(at) => Some(self.returned(at, visit, now)),
            SignInMethod::Dev { .. } => None,
        }
    }

    fn returned(&self, at: &AtProvider, visit: PageVisit<'_>, now: Instant) -> Result<SignInStep, SignInPage> {
        require_visit(visit)?;
        let answer = RedirectParameters::parse(visit.uri.query().unwrap_or_default())
            .map_err(|BadAnswer| SignInPage::BadRequest)?;
        // Without its nonce a browser cannot have begun this; the sign-in stays open for the one that did.
        let CookieLookup::One(pre) = cookie::find(visit.headers, self.site.cookies().pre) else {
            tracing::info!("sign-in failed: the browser that came back did not begin it");
            return Err(SignInPage::NotPending);
        };
        let pending = at.pending.take(&answer.state, &pre.digest(), now).map_err(|refused| {
            match refused {
                NotPending::Unknown => tracing::info!("sign-in failed: it is unknown, was finished, or took too long"),
                NotPending::OtherBrowser => tracing::info!("sign-in failed: it was begun in another browser"),
            }
            SignInPage::NotPending
        })?;
        Ok(SignInStep::FromProvider(Box::new(ReturnedBrowser { answer, pending })))
    }

    /// Opens a session for a user authenticated by the provider, and sends the browser to its destination. `issued_at`
    /// is the time of issue of the ID token.
    #[must_use]
    pub fn admit(
        &self,
        visit: PageVisit<'_>,
        who: SignedIn,
        issued_at: UnixSeconds,
        destination: &Destination,
        now: Instant,
    ) -> Response<Bytes> {
        let admitted = self.open_session(visit, who, issued_at, destination, now);
        admitted.unwrap_or_else(|page| page.response(visit.headers))
    }

    fn open_session(
        &self,
        visit: PageVisit<'_>,
        who: SignedIn,
        issued_at: UnixSeconds,
        destination: &Destination,
        now: Instant,
    ) -> Result<Response<Bytes>, SignInPage> {
        let at = self.at_provider()?;
        let (names, id) = (self.site.cookies(), Opaque::random()?);
        // The browser's previous session ends: its cookie is about to be replaced, and the user could not sign out of
        // it any more.
        if let CookieLookup::One(old) = cookie::find(visit.headers, names.session) {
            self.sessions.sign_out(&old.digest());
        }
        let (user, provider) = (who.user.clone(), who.provider.clone());
        self.sessions.open_public(&id, who, visit.peer, now);
        // Checked after the session is open: a notice that comes later finds the session, an earlier notice is found
        // here.
        if provider.is_some_and(|session| at.ended.includes(&session, issued_at, now)) {
            self.sessions.sign_out(&id.digest());
            tracing::info!(%user, "sign-in failed: the provider ended the session meanwhile");
            return Err(SignInPage::NotPending);
        }
        tracing::info!(%user, "signed in");
        let cookie = names.set(names.session, &id, None);
        let mut response = redirect(StatusCode::SEE_OTHER, &self.location(destination), cookie)?;
        let event = SignInEvent::SignedIn { user, how: "oidc", session: session_name(&id.digest()) };
        response.extensions_mut().insert(event);
        Ok(response)
    }

    /// Signs the browser out here, and sends it to do so at the provider if that can be done.
    #[must_use]
    pub fn sign_out_at_provider(
        &self,
        visit: PageVisit<'_>,
        session: &ProviderSession,
        metadata: Option<&Metadata>,
    ) -> Response<Bytes> {
        let end_session = metadata.and_then(|metadata| metadata.end_session.as_ref());
        match (&self.way, end_session) {
            (SignInMethod::Provider(at), Some(end_session)) => {
                self.without_session(go_on(&sign_out_address(end_session, &at.client, session)))
            }
            (SignInMethod::Provider(_) | SignInMethod::Dev { .. }, _) => self.signed_out_page(visit),
        }
    }

    /// Remembers a message of the provider about ended sessions. [`BrowserSessions::end_noticed`] has to follow.
    ///
    /// [`BrowserSessions::end_noticed`]: crate::browser::BrowserSessions::end_noticed
    ///
    /// # Errors
    ///
    /// [`BadNotice::Replayed`] for a message that was used before.
    pub fn remember_notice(&self, notice: &Notice, now: Instant) -> Result<(), BadNotice> {
        match &self.way {
            SignInMethod::Provider(at) => at.ended.remember(notice, now),
            SignInMethod::Dev { .. } => Ok(()),
        }
    }

    /// Takes a message back that could not be followed, so that the provider may send it again.
    pub fn retract_notice(&self, notice: &Notice, now: Instant) {
        if let SignInMethod::Provider(at) = &self.way {
            at.ended.retract(notice, now);
        }
    }

    /// Returns the page that explains a failed sign-in to the user.
    #[must_use]
    pub fn failed(&self, visit: PageVisit<'_>, error: &SignInError) -> Response<Bytes> {
        let page = match error {
            SignInError::Unavailable | SignInError::Lacks(_) | SignInError::Exchange(_) | SignInError::UserInfo(_) => {
                SignInPage::ProviderUnavailable
            }
            SignInError::Busy => SignInPage::Unable,
            SignInError::Denied(_) => SignInPage::ProviderDenied,
            SignInError::OtherProvider(_) | SignInError::Code { .. } | SignInError::Token(_) | SignInError::Nonce => {
                SignInPage::ProviderFailed
            }
            SignInError::NotAdmitted { why, .. } => SignInPage::NotAdmitted(*why),
        };
        let mut response = page.response(visit.headers);
        if let Some(SignInEvent::Failed { user, .. }) = response.extensions_mut().get_mut() {
            *user = error.user().map(ToOwned::to_owned);
        }
        response
    }

    /// Returns the page for an authenticated user who is not admitted.
    #[must_use]
    pub fn not_admitted(&self, visit: PageVisit<'_>, why: NotAdmitted) -> Response<Bytes> {
        SignInPage::NotAdmitted(why).response(visit.headers)
    }

    /// Returns the page that says that sign-in is impossible at the moment.
    #[must_use]
    pub fn unable(&self, visit: PageVisit<'_>) -> Response<Bytes> {
        SignInPage::Unable.response(visit.headers)
    }

    fn at_provider(&self) -> Result<&AtProvider, SignInPage> {
        match &self.way {
            SignInMethod::Provider(at) => Ok(at),
            SignInMethod::Dev { .. } => Err(SignInPage::BadRequest),
        }
    }
}
