//! Identifies jobs of a CI system by their `id_token`s. Each is good for one process, which may come back with it.
//!
//! Such a token lives for minutes, and a job for hours: after the first use it counts if the same process comes back
//! with the same token, up to `session_max`.

use std::sync::Arc;

use super::job::MatchedJob;
use super::lookups::Lookups;
use super::refusal::CredentialRefusal;
use super::{AgentIdentity, Once, after, keys, sha256};
use crate::registry::{Credential, SessionLease, Subject};
use gateway_auth::jwt::{Algorithm, Claims, Expect, KeySet, LEEWAY_SECONDS, Moment, TokenRefused, TokenUse};
use gateway_config::CiIssuer;
use gateway_net::fetch::{Fetch, FetchSetupError, Trust};
use gateway_types::UnixSeconds;

/// One CI system.
#[derive(Debug)]
pub(super) struct CiSystem {
    of: CiIssuer,
    issuer: Arc<str>,
    keys: KeySet,
}

impl CiSystem {
    pub(super) fn new(of: &CiIssuer) -> Result<Self, FetchSetupError> {
        let trust = of.ca_file.clone().map_or(Trust::System, Trust::SystemAnd);
        let fetch = Fetch::new(&trust)?;
        let keys = match &of.jwks_url {
            Some(url) => keys::at(fetch, url.clone(), None),
            None => keys::of_issuer(fetch, of.issuer.clone()),
        };
        Ok(Self { of: of.clone(), issuer: of.issuer.as_str().into(), keys })
    }

    pub(super) fn issues_as(&self, issuer: &str) -> bool {
        *self.issuer == *issuer
    }

    /// Finds the workspace of a job by its token.
    pub(super) async fn identify(
        &self,
        token: &str,
        lookups: &Lookups,
        now: Moment,
    ) -> Result<AgentIdentity, CredentialRefusal> {
        let expect = Expect {
            issuer: &self.issuer,
            audience: &self.of.audience,
            algorithms: Algorithm::DEFAULT,
            token_use: TokenUse::Program,
        };
        let token_hash = sha256(token.as_bytes());
        match self.keys.verify(token, &expect, now).await {
            Ok(claims) => self.first(&claims, token_hash, now.wall),
            // A known token was good once; whether its process is the same is checked later.
            Err(
                refused @ (TokenRefused::Expired
                | TokenRefused::UnknownKey
                | TokenRefused::UnknownKeySoFar
                | TokenRefused::KeysUnavailable),
            ) => {
                let again = self.again(token_hash, lookups, now.wall).await?;
                again.ok_or(CredentialRefusal::Token(refused))
            }
            Err(refused) => Err(CredentialRefusal::Token(refused)),
        }
    }

    fn first(
        &self,
        claims: &Claims,
        token_hash: [u8; 32],
        now: UnixSeconds,
    ) -> Result<AgentIdentity, CredentialRefusal> {
        let job = MatchedJob::of_claims(claims, &self.of.rules, &self.of.once_per)?;
        let expires_at = claims.expires_at.ok_or(CredentialRefusal::Token(TokenRefused::Missing("exp")))?;
        let once = Once {
            workspace: job.workspace,
            issuer: self.issuer.clone(),
            use_id: job.use_id.into(),
            token_hash,
            owner: job.owner,
            create: job.create,
            until: after(now, self.of.session_max.as_secs()),
            // Until then it would be taken for a good one.
            expires_at: after(expires_at, LEEWAY_SECONDS.unsigned_abs()),
        };
        Ok(identity_of(once))
    }

    async fn again(
        &self,
        token_hash: [u8; 32],
        lookups: &Lookups,
        now: UnixSeconds,
    ) -> Result<Option<AgentIdentity>, CredentialRefusal> {
        let used = lookups.used(&token_hash, now).await?;
        let Some(used) = used.filter(|used| *used.issuer == *self.issuer) else { return Ok(None) };
        let once = Once {
            workspace: used.workspace,
            issuer: self.issuer.clone(),
            use_id: used.use_id.into(),
            token_hash,
            owner: used.owner,
            create: false,
            until: used.until,
            expires_at: used.until,
        };
        Ok(Some(identity_of(once)))
    }
}

fn identity_of(once: Once) -> AgentIdentity {
    let credential = Credential::Job { issuer: once.issuer.clone(), use_id: once.use_id.clone() };
    let lease = SessionLease::once(credential, once.until);
    AgentIdentity { subject: Subject::Workspace(once.workspace.clone()), lease, once: Some(once), sealed: None }
}
