//! Asks a cluster whether a token counts (`TokenReview` of `authentication.k8s.io/v1`), within bounds: strangers show
//! tokens too, and each costs the cluster's API server a request.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::pod::Pod;
use super::refusal::CredentialRefusal;
use gateway_auth::expiring::Expiring;
use gateway_config::KubernetesIssuer;
use gateway_net::fetch::{Credentials, Fetch};
use gateway_types::Secret;
use gateway_types::{BadEndpoint, Endpoint};

/// Path of reviews at the API server.
const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Time that a yes counts. Live sessions are reviewed at least as often.
const YES_COUNTS: Duration = Duration::from_secs(60);

/// Time that a no counts: the same token does not become good, but its pod may not have been known yet.
const NO_COUNTS: Duration = Duration::from_secs(10);

/// Most answers that are kept.
const ANSWERS_MAX: usize = 4096;

/// Most reviews of one cluster at a time.
const QUESTIONS_MAX: usize = 16;

/// Reviews for new agents: rate per second, and burst.
const QUESTIONS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);
const QUESTIONS_AT_ONCE: NonZeroU32 = NonZeroU32::MIN.saturating_add(199);

/// Longest wait of an agent for its review.
const TURN_PATIENCE: Duration = Duration::from_secs(3);

/// Longest token of the gateway's own, in bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Name of a cluster in refusals when it does not answer.
pub(super) const CLUSTER: &str = "the cluster's API server";

/// A file with a token of the gateway's own, which another program renews: read again each time.
#[derive(Clone, Debug)]
pub(super) struct TokenFile(PathBuf);

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// # Errors
    /// A text for the log.
    pub(super) async fn read(&self) -> Result<Secret, String> {
        let shown = self.0.display();
        let text =
            tokio::fs::read_to_string(&self.0).await.map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let token = text.trim();
        // Else it could not stand in a header, whose error would repeat it.
        let is_token =
            !token.is_empty() && token.len() <= TOKEN_BYTES_MAX && token.bytes().all(|b| b.is_ascii_graphic());
        if is_token { Ok(Secret::new(token.to_owned())) } else { Err(format!("{shown} holds no token")) }
    }
}

/// Reviews tokens at one cluster.
#[derive(Debug)]
pub(super) struct Reviewer {
    fetch: Fetch,
    at: Endpoint,
    token_file: TokenFile,
    audience: Box<str>,
    turns: Semaphore,
    pace: DefaultDirectRateLimiter,
    /// By the token's hash.
    yes: Mutex<Expiring<[u8; 32], Pod>>,
    no: Mutex<Expiring<[u8; 32], CredentialRefusal>>,
}

/// Purpose of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewPurpose {
    /// A new agent is to be admitted: a recent answer will do, and all strangers share one rate.
    NewAgent,
    /// A live session is checked: it has a rate of its own, and needs a current answer.
    Session,
}

impl Reviewer {
    /// Makes one for a cluster with an API server to ask.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address is too long.
    pub(super) fn new(fetch: Fetch, of: &KubernetesIssuer) -> Result<Option<Self>, BadEndpoint> {
        let (Some(api_server), Some(token_file)) = (&of.api_server, &of.token_file) else { return Ok(None) };
        Ok(Some(Self {
            fetch,
            at: api_server.join(PATH)?,
            token_file: TokenFile::new(token_file.clone()),
            audience: of.audience.clone(),
            turns: Semaphore::new(QUESTIONS_MAX),
            pace: RateLimiter::direct(Quota::per_second(QUESTIONS_PER_SECOND).allow_burst(QUESTIONS_AT_ONCE)),
            yes: Mutex::new(Expiring::new(YES_COUNTS, ANSWERS_MAX)),
            no: Mutex::new(Expiring::new(NO_COUNTS, ANSWERS_MAX)),
        }))
    }

    /// Returns the pod that a token belongs to.
    ///
    /// # Errors
    /// [`CredentialRefusal::Busy`] and [`CredentialRefusal::Unavailable`] say nothing about the token; all others that it is worth nothing.
    pub(super) async fn ask(&self, token: &str, asking: ReviewPurpose, now: Instant) -> Result<Pod, CredentialRefusal> {
        let hash = super::sha256(token.as_bytes());
        if asking == ReviewPurpose::NewAgent {
            if let Some((pod, _age)) = self.yes.lock().get(&hash, now) {
                return Ok(pod.clone());
            }
            if let Some((refusal, _age)) = self.no.lock().get(&hash, now) {
                return Err(refusal.clone());
            }
            if self.pace.check().is_err() {
                return Err(CredentialRefusal::Busy);
            }
        }
        let turn = timeout(TURN_PATIENCE, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(CredentialRefusal::Busy) };
        let answer = self.question(token).await.map_err(|why| {
            warn!(%why, "a cluster cannot review an agent's token");
            CredentialRefusal::Unavailable(CLUSTER)
        })?;
        let found = Pod::of_review(&answer, &self.audience);
        match &found {
            Ok(pod) => self.yes.lock().insert(hash, pod.clone(), now),
            Err(refusal) => {
                drop(self.yes.lock().remove(&hash, now));
                self.no.lock().insert(hash, refusal.clone(), now);
            }
        }
        found
    }

    async fn question(&self, token: &str) -> Result<Value, String> {
        let own = self.token_file.read().await?;
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token, "audiences": [&*self.audience] },
        });
        let answer = self.fetch.post_json(&self.at, &question, Credentials::Bearer(&own)).await;
        let answer = answer.map_err(|error| error.to_string())?;
        match answer.status().as_u16() {
            401 => Err(format!("{} does not know the token in token_file", self.at.origin())),
            403 => Err(format!(
                "{} does not let the gateway ask: its account needs the cluster role system:auth-delegator",
                self.at.origin()
            )),
            _ => answer.json().map_err(|error| error.to_string()),
        }
    }
}
