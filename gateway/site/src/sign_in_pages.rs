//! Serves the sign-in pages of the public host that need the identity provider, the store or a body.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout};
use tracing::{Instrument, info, info_span, warn};

use super::public_host::{Host, PublicHost};
use gateway_auth::browser::SignedIn;
use gateway_auth::jwt::Moment;
use gateway_auth::oidc::BACKCHANNEL_LOGOUT_PATH;
use gateway_auth::oidc::failure::{NoticeRefused, SignInError};
use gateway_auth::oidc::identity::NotAdmitted;
use gateway_auth::oidc::logout::NOTICE_BYTES_MAX;
use gateway_auth::oidc::provider::{AuthenticatedUser, Provider};
use gateway_auth::sign_in::PageVisit;
use gateway_auth::sign_in::provider::{ReturnedBrowser, SignInStep};
use gateway_edge::service::Origin;
use gateway_net::audit::{AuditEvent, AuditRecord, Items, Text};
use gateway_store::{Admission, wall_clock};

/// Common path prefix of all sign-in pages.
const OWN_PATHS: &str = "/.gateway/";

/// Longest time for the body of a provider's message.
const NOTICE_TIME_MAX: Duration = Duration::from_secs(10);

/// Returns whether a path is one of the sign-in pages'.
pub(super) fn is_sign_in(parts: &Parts) -> bool {
    parts.uri.path().starts_with(OWN_PATHS)
}

impl PublicHost {
    /// Fetches the provider's metadata, so that an unreachable provider is in the log from the start on.
    pub async fn greet_provider(&self) {
        let Some(provider) = &self.host.provider else { return };
        if provider.metadata(moment()).await.is_err() {
            warn!(issuer = %provider.issuer(), "no user can sign in until the identity provider can be reached");
        }
    }
}

impl Host {
    /// Answers a sign-in page; `None` for a path that has none.
    pub(super) async fn sign_in_page(&self, parts: &Parts, body: Body, origin: &Origin) -> Option<Response<Bytes>> {
        // Every log line on the way names the browser's address.
        let span = info_span!("sign_in", peer = %origin.peer);
        if parts.uri.path() == BACKCHANNEL_LOGOUT_PATH {
            let provider = self.provider.as_ref()?;
            return Some(self.hear_of_ended_sessions(provider, parts, body).instrument(span).await);
        }
        let visit = PageVisit::new(parts, origin.peer);
        if let Some(answer) = self.sign_in.prepare_public(visit, Instant::now()).instrument(span.clone()).await {
            return Some(answer);
        }
        let step = span.in_scope(|| self.sign_in.answer_public(visit, Instant::now()))?;
        Some(self.go_on(visit, step, origin).instrument(span).await)
    }

    async fn go_on(&self, visit: PageVisit<'_>, step: SignInStep, origin: &Origin) -> Response<Bytes> {
        let now = moment();
        match (step, &self.provider) {
            (SignInStep::Answer(answer), _) => answer,
            (SignInStep::ToProvider(_) | SignInStep::FromProvider(_) | SignInStep::SignOutAtProvider(..), None) => {
                self.sign_in.unable(visit)
            }
            (SignInStep::ToProvider(destination), Some(provider)) => match provider.metadata(now).await {
                Ok(metadata) => self.sign_in.to_provider(visit, destination, &metadata, origin.peer, Instant::now()),
                Err(error) => self.sign_in_failed(visit, &error),
            },
            (SignInStep::FromProvider(returned), Some(provider)) => {
                self.come_back(provider, visit, *returned, now).await
            }
            (SignInStep::SignOutAtProvider(session, event), Some(provider)) => {
                let metadata = provider.metadata(now).await.ok();
                let mut response = self.sign_in.sign_out_at_provider(visit, &session, metadata.as_deref());
                response.extensions_mut().insert(event);
                response
            }
        }
    }

    async fn come_back(
        &self,
        provider: &Provider,
        visit: PageVisit<'_>,
        returned: ReturnedBrowser,
        now: Moment,
    ) -> Response<Bytes> {
        let ReturnedBrowser { answer, pending } = returned;
        let AuthenticatedUser { identity, session, issued_at } =
            match provider.authenticate(&answer, &pending, now).await {
                Ok(authenticated) => authenticated,
                Err(error) => return self.sign_in_failed(visit, &error),
            };
        let (issuer, subject) = (provider.issuer().as_str(), identity.subject.as_str());
        let user =
            match self.api.parts().store.admit(issuer, subject, &identity.wanted, &identity.groups, wall_clock()).await
            {
                Ok(Admission::As(user)) => user,
                Ok(refused @ (Admission::NameTaken | Admission::Disabled)) => {
                    let is_taken = matches!(refused, Admission::NameTaken);
                    let why = if is_taken { NotAdmitted::NameTaken } else { NotAdmitted::Disabled };
                    let user = Some(identity.wanted.to_string());
                    return self.sign_in_failed(visit, &SignInError::NotAdmitted { why, user });
                }
                Err(error) => {
                    warn!(%error, "the store did not answer");
                    return self.sign_in.unable(visit);
                }
            };
        let now = Instant::now();
        // The groups may differ from those that are remembered.
        self.visitors.forget_user(&user, now);
        let who = SignedIn { user, provider: Some(session.into()) };
        self.sign_in.admit(visit, who, issued_at, &pending.destination, now)
    }

    fn sign_in_failed(&self, visit: PageVisit<'_>, error: &SignInError) -> Response<Bytes> {
        info!(why = %error, user = error.user(), "sign-in failed");
        self.sign_in.failed(visit, error)
    }

    /// Handles the provider's notice that sessions have ended (`OpenID` Connect Back-Channel Logout 1.0, section 2.5).
    async fn hear_of_ended_sessions(&self, provider: &Provider, parts: &Parts, body: Body) -> Response<Bytes> {
        match self.follow_notice(provider, parts, body).await {
            Ok(sessions) => {
                info!(sessions, "the identity provider ended sessions");
                answer(StatusCode::OK, Bytes::new())
            }
            Err(why) => {
                info!(%why, "a back-channel logout was refused");
                answer(StatusCode::BAD_REQUEST, Bytes::from_static(b"{\"error\":\"invalid_request\"}\n"))
            }
        }
    }

    async fn follow_notice(&self, provider: &Provider, parts: &Parts, body: Body) -> Result<usize, NotFollowed> {
        let is_form = parts.headers.get(CONTENT_TYPE).is_some_and(|media| {
            media.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
                == b"application/x-www-form-urlencoded"
        });
        if parts.method != Method::POST || !is_form {
            return Err(NotFollowed::Request);
        }
        let read = timeout(NOTICE_TIME_MAX, Limited::new(body, NOTICE_BYTES_MAX).collect()).await;
        let body = read.map_err(|_| NotFollowed::Request)?.map_err(|_| NotFollowed::Request)?.to_bytes();
        let token = only_token(&body).ok_or(NotFollowed::Request)?;
        let notice = provider.notice(&token, moment()).await?;
        let now = Instant::now();
        self.sign_in.remember_notice(&notice, now).map_err(NoticeRefused::from)?;
        let Ok(ended) = self.api.parts().sessions.end_noticed(&notice, now).await else {
            self.sign_in.retract_notice(&notice, now);
            return Err(NotFollowed::Store);
        };
        // Signed out everywhere: the user's tokens go on, but not with groups from a sign-in that is over.
        if let (Some(subject), None) = (&notice.subject, &notice.session)
            && let Err(error) = self.api.parts().store.forget_groups(provider.issuer().as_str(), subject).await
        {
            warn!(%error, "the store did not answer: a user keeps their groups until they are too old");
        }
        for who in &ended {
            self.visitors.forget_user(&who.user, now);
            info!(user = %who.user, "signed out by the identity provider");
            let event =
                AuditEvent::SignedOut { user: Text::of(&who.user), how: "provider", sessions: Items::default() };
            self.api.parts().audit.record(AuditRecord::new(event));
        }
        Ok(ended.len())
    }
}

/// Reason a message is not followed.
#[derive(Debug, thiserror::Error)]
enum NotFollowed {
    /// No form with one token, or one that takes too long.
    #[error("it is no form with one logout token")]
    Request,
    /// The store did not answer, and other replicas may have the sessions.
    #[error("the store did not answer")]
    Store,
    /// The token does not count.
    #[error(transparent)]
    Token(#[from] NoticeRefused),
}

fn only_token(body: &[u8]) -> Option<String> {
    let mut found = form_urlencoded::parse(body).filter(|(name, _)| name == "logout_token");
    let (_, token) = found.next()?;
    found.next().is_none().then(|| token.into_owned())
}

fn answer(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::BAD_REQUEST {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert("gateway-error", HeaderValue::from_static("bad_request"));
    }
    response
}

fn moment() -> Moment {
    Moment { wall: wall_clock(), clock: Instant::now() }
}
