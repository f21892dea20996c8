//! The answer to a workspace that asks for its owner's credential.
//!
//! A workspace gets a credential for every host for which its owner has stored one, and not for the hosts of its projects alone:
//! submodules, dependencies and what is cloned in a terminal are elsewhere. Over plain `http` only where the operator allows it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::oauth::{ExchangeError, ExchangedTokens, OauthClient, TokenEndpoint};
use crate::step::{CLAIM_TIME, Step, TokenState, lifetime, step};
use gateway_config::GitServer;
use gateway_net::fetch::{FetchSetupError, Trust};
use gateway_store::{
    AccessTimes, GitCredentialKey, GitCredentialKind, SealedGitCredential, SecretText, Store, StoreError, WorkspaceId,
};
use gateway_types::{Clock, GitHost, Secret, UserName};
use tunnel_proto::git::{GitCredential, GitCredentialRequest, GitProtocol};

/// Questions of one workspace at once: a project with many submodules asks for each.
const QUESTIONS_AT_ONCE: NonZeroU32 = NonZeroU32::MIN.saturating_add(59);

/// Questions of one workspace a second, in the long run.
const QUESTIONS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN;

/// Number of workspaces whose rate is remembered, from which those that asked long ago are removed.
const RATES_KEPT: usize = 1_024;

/// Longest wait for an access token.
const PATIENCE: Duration = Duration::from_secs(12);

/// Interval at which the result of another gateway's exchange is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Tries to store what a refresh token was exchanged for, and the pause between them: it is lost otherwise.
const STORE_TRIES: u32 = 10;
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// A workspace that asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Its owner, whose credentials it gets.
    pub owner: &'a UserName,
}

/// Reason why there is no credential. Each text is for the owner's terminal, and says nothing that the workspace sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoGitCredential {
    /// The owner has stored none for this host.
    #[error("no credential is stored for this host")]
    NotStored,
    /// It would be readable on its way.
    #[error(
        "a credential is stored, and is not given for http: use https, or have the operator set plain_http for this host"
    )]
    PlainHttp,
    /// The owner may not use the gateway.
    #[error("the owner of this workspace is disabled")]
    OwnerDisabled,
    /// The refresh token does not count any more.
    #[error("the stored refresh token does not count any more: sign in again at this host, and store the new one")]
    SignInAgain,
    /// The operator's configuration has no OAuth of this host any more.
    #[error("a refresh token is stored, and the operator has not configured OAuth for this host")]
    NotConfigured,
    /// The token endpoint refuses this gateway.
    #[error("the git server does not exchange the stored refresh token: {0}")]
    Refused(String),
    /// The token endpoint does not answer.
    #[error("the git server's token endpoint does not answer as it should: try again")]
    Failed,
    /// The workspace asks too often.
    #[error("this workspace asks for credentials too often: try again in a moment")]
    TooOften,
    /// The store does not answer.
    #[error("the gateway cannot look up credentials now: try again")]
    Unavailable,
}

impl NoGitCredential {
    /// Returns the stable code for the audit log.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotStored => "not_stored",
            Self::PlainHttp => "plain_http",
            Self::OwnerDisabled => "owner_disabled",
            Self::SignInAgain => "sign_in_again",
            Self::NotConfigured => "not_configured",
            Self::Refused(_) => "exchange_refused",
            Self::Failed => "exchange_failed",
            Self::TooOften => "too_often",
            Self::Unavailable => "unavailable",
        }
    }
}

type Exchange = Shared<BoxFuture<'static, Result<GitCredential, NoGitCredential>>>;

/// Gives workspaces their owners' credentials.
#[derive(Debug)]
pub struct GitCredentials {
    store: Store,
    clock: WallClock,
    plain_http: Vec<GitHost>,
    oauth: HashMap<GitHost, Arc<dyn TokenEndpoint>>,
    rates: DefaultKeyedRateLimiter<WorkspaceId>,
    /// Access tokens that are being got here. All that ask for the same one wait for one exchange.
    exchanges: Mutex<HashMap<(UserName, GitHost), Exchange>>,
    tasks: TaskTracker,
}

/// The wall clock, which has nothing to show.
struct WallClock(Clock);

impl std::fmt::Debug for WallClock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Clock")
    }
}

impl GitCredentials {
    /// Makes it from the operator's configuration; sends nothing yet.
    ///
    /// # Errors
    /// [`FetchSetupError`] names the file of authorities that cannot be used.
    pub fn new(store: Store, servers: &[GitServer], clock: Clock) -> Result<Arc<Self>, FetchSetupError> {
        let mut oauth: HashMap<GitHost, Arc<dyn TokenEndpoint>> = HashMap::new();
        for server in servers {
            let Some(settings) = &server.oauth else { continue };
            let trust = server.ca_file.clone().map_or(Trust::System, Trust::SystemAnd);
            oauth.insert(server.host.clone(), Arc::new(OauthClient::new(settings.clone(), &trust)?));
        }
        let plain_http = servers.iter().filter(|server| server.plain_http).map(|server| server.host.clone()).collect();
        Ok(Self::of(store, plain_http, oauth, clock))
    }

    fn of(
        store: Store,
        plain_http: Vec<GitHost>,
        oauth: HashMap<GitHost, Arc<dyn TokenEndpoint>>,
        clock: Clock,
    ) -> Arc<Self> {
        let quota = Quota::per_second(QUESTIONS_PER_SECOND).allow_burst(QUESTIONS_AT_ONCE);
        Arc::new(Self {
            store,
            clock: WallClock(clock),
            plain_http,
            oauth,
            rates: RateLimiter::keyed(quota),
            exchanges: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// Returns the name of the user that goes with access tokens of a host; `None` if the operator has configured no OAuth for it.
    #[must_use]
    pub fn oauth_user(&self, host: &GitHost) -> Option<&str> {
        self.oauth.get(host).map(|endpoint| endpoint.user())
    }

    /// Answers a workspace.
    ///
    /// # Errors
    /// [`NoGitCredential`].
    ///
    /// # Cancel safety
    /// Safe: an exchange that was begun goes on by itself, since its result would be lost otherwise.
    pub async fn answer(
        self: &Arc<Self>,
        asker: Asker<'_>,
        request: &GitCredentialRequest,
    ) -> Result<GitCredential, NoGitCredential> {
        if self.rates.len() > RATES_KEPT {
            self.rates.retain_recent();
        }
        if self.rates.check_key(&asker.workspace).is_err() {
            return Err(NoGitCredential::TooOften);
        }
        let host: GitHost = request.host.parse().map_err(|_| NoGitCredential::NotStored)?;
        let owner = asker.owner;
        if self.store.user_status(owner).await.map_err(unavailable)?.is_disabled {
            return Err(NoGitCredential::OwnerDisabled);
        }
        let found = self.store.git_credential(owner, &host).await.map_err(unavailable)?;
        let found = found.ok_or(NoGitCredential::NotStored)?;
        if request.protocol == GitProtocol::Http && !self.plain_http.contains(&host) {
            return Err(NoGitCredential::PlainHttp);
        }
        match (found.row.kind, request.is_refused) {
            (GitCredentialKind::Basic, false) => {
                Ok(GitCredential { user: found.row.user, password: found.secret.reveal().to_owned(), expires_at: None })
            }
            (GitCredentialKind::Oauth, false) => self.access_token(owner, &host, &found).await,
            (kind, true) => {
                if kind == GitCredentialKind::Oauth {
                    self.store.forget_git_access(owner, &host).await.map_err(unavailable)?;
                }
                Ok(GitCredential { user: found.row.user, password: String::new(), expires_at: None })
            }
        }
    }

    async fn access_token(
        self: &Arc<Self>,
        owner: &UserName,
        host: &GitHost,
        found: &SealedGitCredential,
    ) -> Result<GitCredential, NoGitCredential> {
        let endpoint = self.oauth.get(host).ok_or(NoGitCredential::NotConfigured)?;
        match step(state(found), (self.clock.0)()) {
            Step::Give => given(found),
            Step::SignInAgain => Err(NoGitCredential::SignInAgain),
            Step::Refresh | Step::Wait => self.got(owner, host, endpoint).await,
        }
    }

    /// Waits for the exchange that is under way here, or begins it.
    fn got(self: &Arc<Self>, owner: &UserName, host: &GitHost, endpoint: &Arc<dyn TokenEndpoint>) -> Exchange {
        let mut exchanges = self.exchanges.lock();
        let key = (owner.clone(), host.clone());
        if let Some(under_way) = exchanges.get(&key) {
            return under_way.clone();
        }
        let (this, endpoint, of) = (self.clone(), endpoint.clone(), key.clone());
        // A task of its own: those that wait may go away, and the refresh token is used up then.
        let task = self.tasks.spawn(async move {
            let got = this.get(&of.0, &of.1, &*endpoint).await;
            this.exchanges.lock().remove(&of);
            got
        });
        let exchange = async move { task.await.unwrap_or(Err(NoGitCredential::Unavailable)) }.boxed().shared();
        exchanges.insert(key, exchange.clone());
        exchange
    }

    /// Gets an access token: by an exchange, or by that of another gateway.
    async fn get(
        &self,
        owner: &UserName,
        host: &GitHost,
        endpoint: &dyn TokenEndpoint,
    ) -> Result<GitCredential, NoGitCredential> {
        let until = Instant::now() + PATIENCE;
        loop {
            let found = self.store.git_credential(owner, host).await.map_err(unavailable)?;
            let found = found.ok_or(NoGitCredential::NotStored)?;
            if found.row.kind != GitCredentialKind::Oauth {
                return Err(NoGitCredential::NotStored);
            }
            let now = (self.clock.0)();
            match step(state(&found), now) {
                Step::Give => return given(&found),
                Step::SignInAgain => return Err(NoGitCredential::SignInAgain),
                Step::Refresh => {
                    let key = GitCredentialKey { owner, host, version: found.version };
                    if self.store.claim_git_refresh(key, now, now.later(CLAIM_TIME)).await.map_err(unavailable)? {
                        self.exchange(key, &found, endpoint).await?;
                        continue;
                    }
                }
                Step::Wait => {}
            }
            if Instant::now() >= until {
                return Err(NoGitCredential::Failed);
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Exchanges a refresh token whose exchange is claimed, and stores the result.
    async fn exchange(
        &self,
        key: GitCredentialKey<'_>,
        found: &SealedGitCredential,
        endpoint: &dyn TokenEndpoint,
    ) -> Result<(), NoGitCredential> {
        let refresh = Secret::new(found.secret.reveal().to_owned());
        match endpoint.exchange(&refresh).await {
            Ok(tokens) => self.keep(key, &refresh, tokens).await,
            Err(error) => {
                let is_over = error == ExchangeError::Ended;
                // That is for its owner to mend; everything else may be for the operator.
                if is_over {
                    info!(host = %key.host, owner = %key.owner, "a refresh token does not count any more");
                } else {
                    warn!(host = %key.host, owner = %key.owner, %error, "a refresh token was not exchanged");
                }
                let refused_at = is_over.then(|| (self.clock.0)());
                self.store.end_git_refresh(key, refused_at).await.map_err(unavailable)?;
                Err(match error {
                    ExchangeError::Ended => NoGitCredential::SignInAgain,
                    ExchangeError::Refused(code) => NoGitCredential::Refused(code),
                    ExchangeError::Failed(_) => NoGitCredential::Failed,
                })
            }
        }
    }

    /// Stores new tokens. If their owner has stored another credential meanwhile, they are forgotten.
    async fn keep(
        &self,
        key: GitCredentialKey<'_>,
        before: &Secret,
        tokens: ExchangedTokens,
    ) -> Result<(), NoGitCredential> {
        let (until, ends) = lifetime(tokens.expires_in, (self.clock.0)());
        let times = AccessTimes { until, ends };
        let text = |secret: &Secret| SecretText::new(secret.reveal().to_owned());
        let (refresh, access) = (text(tokens.refresh.as_ref().unwrap_or(before)), text(&tokens.access));
        let mut tries = 0;
        loop {
            match self.store.put_git_access(key, &refresh, &access, times).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    tries += 1;
                    warn!(host = %key.host, owner = %key.owner, %error, "new tokens are not stored yet");
                    if tries >= STORE_TRIES {
                        return Err(NoGitCredential::Unavailable);
                    }
                    sleep(STORE_PAUSE).await;
                }
            }
        }
    }
}

fn state(found: &SealedGitCredential) -> TokenState {
    TokenState {
        access_until: found.access.as_ref().map(|_| found.access_until),
        refreshing_until: found.refreshing_until,
        is_refused: found.row.refused_at.is_some(),
    }
}

fn given(found: &SealedGitCredential) -> Result<GitCredential, NoGitCredential> {
    let access = found.access.as_ref().ok_or(NoGitCredential::Unavailable)?;
    Ok(GitCredential {
        user: found.row.user.clone(),
        password: access.reveal().to_owned(),
        expires_at: u64::try_from(found.access_ends.get()).ok(),
    })
}

fn unavailable(error: StoreError) -> NoGitCredential {
    if !error.is_unanswered() {
        warn!(%error, "a credential for a git server cannot be read");
    }
    NoGitCredential::Unavailable
}

#[cfg(test)]
mod tests;
