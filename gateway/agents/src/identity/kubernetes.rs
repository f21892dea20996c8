//! Identifies pods of a cluster by their projected service-account tokens (Kubernetes, "Service account token volume
//! projection").
//!
//! With the issuer's keys a signature is checked here, which costs the cluster nothing and does not notice later
//! deletions. With an API server to ask, a token ends with its pod. With both, forged tokens never reach the server.

use std::sync::Arc;

use serde_json::Value;

use super::credentials::unverified;
use super::pod::Pod;
use super::refusal::CredentialRefusal;
use super::review::{ReviewPurpose, Reviewer, TokenFile};
use super::{after, keys};
use crate::registry::{Review, SessionLease};
use gateway_auth::jwt::{self, Algorithm, Expect, KeySet, LEEWAY_SECONDS, Moment, TokenUse};
use gateway_config::KubernetesIssuer;
use gateway_net::fetch::{Fetch, FetchSetupError, Trust};
use gateway_types::Secret;
use gateway_types::{UnixSeconds, WorkspaceName};

/// One cluster.
#[derive(Debug)]
pub(super) struct IssuerCluster {
    of: KubernetesIssuer,
    keys: Option<KeySet>,
    reviewer: Option<Reviewer>,
}

/// Claims of a token, checked or not.
struct TokenClaims {
    pod: Pod,
    expires_at: Option<UnixSeconds>,
}

impl IssuerCluster {
    pub(super) fn new(of: &KubernetesIssuer) -> Result<Self, FetchSetupError> {
        let trust = of.ca_file.clone().map_or(Trust::System, Trust::Only);
        let fetch = Fetch::new(&trust)?;
        let token_file = of.token_file.clone().map(TokenFile::new);
        let keys = of.jwks_url.clone().map(|url| keys::at(fetch.clone(), url, token_file));
        let reviewer = Reviewer::new(fetch, of).map_err(|error| FetchSetupError::Client(error.to_string()))?;
        Ok(Self { of: of.clone(), keys, reviewer })
    }

    pub(super) fn issues_as(&self, issuer: &str) -> bool {
        *self.of.issuer == *issuer
    }

    /// Finds the workspace of a pod by its token. `index` is the cluster's own.
    pub(super) async fn identify(
        &self,
        token: &str,
        index: usize,
        now: Moment,
    ) -> Result<(WorkspaceName, SessionLease), CredentialRefusal> {
        let said = match &self.keys {
            Some(keys) => self.checked(keys, token, now).await?,
            // Not believed, but a token whose own claims rule it out is not worth a review.
            None => self.unchecked(token, now.wall)?,
        };
        let workspace = said.pod.workspace(&self.of.rules)?;
        let mut lease = SessionLease::renewable(said.pod.credential(), said.expires_at, now.wall);
        if let Some(reviewer) = &self.reviewer {
            // The API server tolerates no clock that is off; without one to ask, there is some tolerance.
            if reviewer.ask(token, ReviewPurpose::NewAgent, now.clock).await? != said.pod {
                return Err(CredentialRefusal::NotVouched);
            }
            let token = Arc::new(Secret::new(token.to_owned()));
            lease.review = Some(Review { cluster: index, token, every: self.of.recheck });
        } else {
            lease.expires_at = lease.expires_at.map(|end| after(end, LEEWAY_SECONDS.unsigned_abs()));
        }
        Ok((workspace, lease))
    }

    /// Reviews the token of a live session again.
    pub(super) async fn still_vouches(&self, token: &str, now: Moment) -> Result<(), CredentialRefusal> {
        let Some(reviewer) = &self.reviewer else { return Ok(()) };
        reviewer.ask(token, ReviewPurpose::Session, now.clock).await.map(drop)
    }

    async fn checked(&self, keys: &KeySet, token: &str, now: Moment) -> Result<TokenClaims, CredentialRefusal> {
        let expect = Expect {
            issuer: &self.of.issuer,
            audience: &self.of.audience,
            algorithms: Algorithm::DEFAULT,
            token_use: TokenUse::Program,
        };
        let claims = keys.verify(token, &expect, now).await.map_err(CredentialRefusal::Token)?;
        let pod = Pod::of_claims(claims.subject.as_deref(), claims.rest.get("kubernetes.io"))?;
        Ok(TokenClaims { pod, expires_at: claims.expires_at })
    }

    fn unchecked(&self, token: &str, now: UnixSeconds) -> Result<TokenClaims, CredentialRefusal> {
        let claims = unverified(token)?;
        let is_ours = |audience: &Value| audience.as_str() == Some(&*self.of.audience);
        let audience = claims.get("aud");
        if !audience.is_some_and(|aud| is_ours(aud) || aud.as_array().is_some_and(|all| all.iter().any(is_ours))) {
            return Err(CredentialRefusal::Token(jwt::TokenRefused::Audience));
        }
        let expires_at = claims.get("exp").and_then(Value::as_i64).map(UnixSeconds::new);
        if expires_at.is_some_and(|end| end.get().saturating_add(LEEWAY_SECONDS) <= now.get()) {
            return Err(CredentialRefusal::Token(jwt::TokenRefused::Expired));
        }
        let pod = Pod::of_claims(claims.get("sub").and_then(Value::as_str), claims.get("kubernetes.io"))?;
        Ok(TokenClaims { pod, expires_at })
    }
}
