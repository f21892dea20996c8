//! Network shell of sign-in with a provider: sends the requests, and has the answers checked.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::answer::{RedirectOutcome, RedirectParameters, loggable};
use super::failure::{NoticeRefused, SignInError};
use super::identity::{ProviderIdentity, Rules, claimed_name, identity, is_complete};
use super::logout::Notice;
use super::metadata::Metadata;
use super::pending::{Destination, Pending};
use super::request::{TokenAuth, form_encoded, token_form};
use super::{ClientRegistration, ProviderSession};
use crate::issuer::Issuer;
use crate::jwt::{Claims, KeySetObserver, Moment, TokenRefused, TokenUse};
use crate::sign_in::path::ReturnPath;
use gateway_net::fetch::{Credentials, Fetch, FetchError};
use gateway_types::Secret;
use gateway_types::opaque::Opaque;
use gateway_types::{Endpoint, UnixSeconds};

/// Codes being exchanged at once. Any client can have made-up codes exchanged; further exchanges are refused at once.
pub const EXCHANGES_MAX: usize = 64;

/// The provider, as it is configured.
#[derive(Debug)]
pub struct Provider {
    issuer: Issuer,
    fetch: Fetch,
    client: ClientRegistration,
    settings: ArcSwap<ProviderSettings>,
    exchanges: Semaphore,
}

/// What can be changed while users sign in.
#[derive(Debug)]
pub struct ProviderSettings {
    /// Secret of the client; `None` for a public one.
    pub secret: Option<Secret>,
    /// Rules by which its users are admitted.
    pub rules: Rules,
}

/// A user authenticated by the provider.
#[derive(Debug)]
pub struct AuthenticatedUser {
    /// The user's identity.
    pub identity: ProviderIdentity,
    /// The provider's session.
    pub session: ProviderSession,
    /// Time of issue of the ID token.
    pub issued_at: UnixSeconds,
}

/// Refusal of a code by the token endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRefusal {
    /// Its status.
    pub status: u16,
    /// Its error code, cut to what can be logged.
    pub error: String,
}

/// The used fields of the token endpoint's answer.
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    access_token: Option<String>,
}

/// A failure of the token endpoint (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct TokenError {
    error: String,
}

impl Provider {
    /// Creates a provider; sends no request yet.
    #[must_use]
    pub fn new(fetch: Fetch, issuer: Endpoint, client: ClientRegistration, settings: ProviderSettings) -> Self {
        let issuer = Issuer::new(fetch.clone(), issuer);
        Self {
            issuer,
            fetch,
            client,
            settings: ArcSwap::from_pointee(settings),
            exchanges: Semaphore::new(EXCHANGES_MAX),
        }
    }

    /// Takes other settings: the next sign-in that comes back meets them.
    pub fn change(&self, settings: ProviderSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Returns the issuer's address.
    #[must_use]
    pub fn issuer(&self) -> &Endpoint {
        self.issuer.url()
    }

    /// Returns an observer of the requests for its metadata and keys.
    #[must_use]
    pub fn observer(&self) -> KeySetObserver {
        self.issuer.observer()
    }

    /// Returns the provider's metadata; fetches it if not known.
    ///
    /// # Errors
    ///
    /// [`SignInError::Unavailable`]; the cause is in the log.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn metadata(&self, now: Moment) -> Result<Arc<Metadata>, SignInError> {
        self.issuer.metadata(now).await.ok_or(SignInError::Unavailable)
    }

    /// Authenticates the user who came back with an answer to a pending sign-in.
    ///
    /// # Errors
    ///
    /// [`SignInError`].
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the code is spent and no user is signed in.
    pub async fn authenticate(
        &self,
        answer: &RedirectParameters,
        pending: &Pending,
        now: Moment,
    ) -> Result<AuthenticatedUser, SignInError> {
        let metadata = self.metadata(now).await?;
        answer.check_issuer(&metadata, self.issuer())?;
        let code = match &answer.outcome {
            RedirectOutcome::Code(code) => code,
            RedirectOutcome::Denied(error) => return Err(SignInError::Denied(error.clone())),
        };
        let Tokens { id_token, access_token } = self.exchange(&metadata, code, pending).await?;
        let claims = self.issuer.verify(&id_token, &self.client.id, TokenUse::IdToken, now).await?;
        if claims.nonce.as_deref() != Some(pending.nonce.reveal().as_str()) {
            return Err(SignInError::Nonce);
        }
        let issued_at = claims.issued_at.ok_or(TokenRefused::Missing("iat"))?;
        let session = claims.session.clone();
        let claims = self.completed(claims, &metadata, access_token.map(Secret::new)).await?;
        let rules = &self.settings.load().rules;
        let identity = identity(&claims, rules)
            .map_err(|why| SignInError::NotAdmitted { why, user: claimed_name(&claims, rules) })?;
        let session = ProviderSession::new(&identity.subject, session.as_deref(), &id_token);
        Ok(AuthenticatedUser { identity, session, issued_at })
    }

    /// Checks a message about sessions that the provider has ended.
    ///
    /// # Errors
    ///
    /// [`NoticeRefused`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn notice(&self, token: &str, now: Moment) -> Result<Notice, NoticeRefused> {
        let claims = self.issuer.verify(token, &self.client.id, TokenUse::LogoutToken, now).await?;
        Ok(Notice::read(claims, now.wall)?)
    }

    /// Has the provider refuse a made-up code, and returns its refusal: a provider looks at the client and its secret first, so that
    /// its error says whether it accepts these.
    ///
    /// # Errors
    ///
    /// [`SignInError`], for everything but a refusal.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn refusal_of_made_up_code(&self, now: Moment) -> Result<CodeRefusal, SignInError> {
        let metadata = self.metadata(now).await?;
        let random = || Opaque::random().map_err(|_| SignInError::Unavailable);
        let (code, verifier, nonce) = (random()?, random()?, random()?);
        let destination = Destination::Public(ReturnPath::parse_or_root("/"));
        let pending = Pending { pre: nonce.digest(), nonce, verifier, destination };
        match self.exchange(&metadata, &code.reveal(), &pending).await {
            Err(SignInError::Code { status, error }) => Ok(CodeRefusal { status, error }),
            Err(other) => Err(other),
            // Tokens for a code that it never gave out: they are no one's.
            Ok(_) => Ok(CodeRefusal { status: 200, error: String::new() }),
        }
    }

    /// Adds claims from the userinfo endpoint if the ID token leaves out claims that the rules use.
    async fn completed(
        &self,
        claims: Claims,
        metadata: &Metadata,
        access_token: Option<Secret>,
    ) -> Result<Claims, SignInError> {
        let (Some(user_info), Some(access_token)) = (&metadata.user_info, access_token) else { return Ok(claims) };
        if is_complete(&claims, &self.settings.load().rules) {
            return Ok(claims);
        }
        let failed = |error: FetchError| SignInError::UserInfo(error.to_string());
        let answer = self.fetch.get(user_info, Credentials::Bearer(&access_token)).await.map_err(failed)?;
        Ok(claims.complete(answer.json().map_err(failed)?)?)
    }

    /// Exchanges a code for tokens, which are not checked here.
    async fn exchange(&self, metadata: &Metadata, code: &str, pending: &Pending) -> Result<Tokens, SignInError> {
        let _slot = self.exchanges.try_acquire().map_err(|_| SignInError::Busy)?;
        let endpoint = metadata.token.as_ref().ok_or(SignInError::Lacks("token_endpoint"))?;
        let settings = self.settings.load_full();
        let secret = settings.secret.as_ref();
        let auth = TokenAuth::choose(metadata, secret.is_some());
        let verifier = pending.verifier.reveal();
        let form = token_form(&self.client, code, &verifier, auth, secret.map(Secret::reveal));
        let (user, password) = (form_encoded(&self.client.id), secret.map(encoded));
        let credentials = match (auth, &password) {
            (TokenAuth::Basic, Some(password)) => Credentials::Basic(&user, password),
            (TokenAuth::Basic | TokenAuth::Nothing | TokenAuth::Post, _) => Credentials::Nothing,
        };
        let failed = |error: FetchError| SignInError::Exchange(error.to_string());
        let answer = self.fetch.post_form(endpoint, &form, credentials).await.map_err(failed)?;
        if !answer.status().is_success() {
            let told = answer.json_of_any_status::<TokenError>();
            let error = told.map(|told| loggable(&told.error)).unwrap_or_default();
            return Err(SignInError::Code { status: answer.status().as_u16(), error });
        }
        answer.json::<Tokens>().map_err(failed)
    }
}

fn encoded(secret: &Secret) -> Secret {
    Secret::new(form_encoded(secret.reveal()))
}
