//! Identifies jobs that the gateway itself asked a GitLab for by their `id_token`s, each good for the workspace whose
//! current run its pipeline is, and for nothing else (<https://docs.gitlab.com/ci/secrets/id_token_authentication/>).
//!
//! The pipelines of runs are listed in the store, and not in any rule: another job of the same project, a fork, or a
//! job of a run that was replaced gets in nowhere.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::lookups::Lookups;
use super::refusal::CredentialRefusal;
use super::{AgentIdentity, Once, after, keys, sha256};
use crate::registry::{Credential, SessionLease, Subject};
use gateway_auth::jwt::{Algorithm, Claims, Expect, KeySet, LEEWAY_SECONDS, Moment, TokenRefused, TokenUse};
use gateway_config::{CiProvider, GitlabCi};
use gateway_net::fetch::{Fetch, FetchSetupError, Trust};
use gateway_store::RunOwner;
use gateway_types::{ProviderName, UnixSeconds};

/// Time that a session may outlast its job's own limit: the job's end is what ends it.
const BEYOND_THE_JOB: Duration = Duration::from_secs(60 * 60);

/// Prefix of the use id of a run's token, so that its pipeline is known when the token has expired.
const PIPELINE: &str = "pipeline=";

/// One project of a GitLab whose pipelines are runs.
#[derive(Debug)]
pub(super) struct RunIssuer {
    provider: ProviderName,
    issuer: Arc<str>,
    audience: Box<str>,
    project: Box<str>,
    reference: Box<str>,
    session_max: Duration,
    keys: KeySet,
}

/// Source in the tokens of a pipeline that another pipeline started
/// (<https://docs.gitlab.com/ci/jobs/job_rules/#ci_pipeline_source-predefined-variable>).
const CHILD_SOURCE: &str = "parent_pipeline";

/// Claims of a token about its job.
#[derive(Debug, PartialEq, Eq)]
struct RunClaims {
    pipeline: String,
    /// Another pipeline started that one.
    is_child: bool,
    use_id: String,
}

/// Purpose for which the job's token is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To be the agent of a workspace: the job is in the pipeline that a run's pipeline started.
    Agent,
    /// To get the definition that a run's pipeline starts.
    Definition,
}

impl RunIssuer {
    pub(super) fn new(of: &CiProvider, gitlab: &GitlabCi) -> Result<Self, FetchSetupError> {
        let trust = gitlab.ca_file.clone().map_or(Trust::System, Trust::SystemAnd);
        let fetch = Fetch::new(&trust)?;
        let keys = match &gitlab.jwks_url {
            Some(url) => keys::at(fetch, url.clone(), None),
            None => keys::of_issuer(fetch, gitlab.issuer.clone()),
        };
        Ok(Self {
            provider: of.name.clone(),
            issuer: gitlab.issuer.as_str().into(),
            audience: gitlab.audience.clone(),
            project: gitlab.project.clone(),
            reference: gitlab.reference.clone(),
            session_max: of.job_timeout.saturating_add(BEYOND_THE_JOB),
            keys,
        })
    }

    pub(super) fn issues_as(&self, issuer: &str) -> bool {
        *self.issuer == *issuer
    }

    /// Finds the workspace to whose current run the job with this token belongs.
    pub(super) async fn identify(
        &self,
        token: &str,
        lookups: &Lookups,
        now: Moment,
    ) -> Result<AgentIdentity, CredentialRefusal> {
        let token_hash = sha256(token.as_bytes());
        let (job, expires_at) = match self.verify(token, now).await {
            Ok(claims) => {
                (self.job(&claims)?, claims.expires_at.ok_or(CredentialRefusal::Token(TokenRefused::Missing("exp")))?)
            }
            // A known token was good once; whether its process is the same is checked later.
            Err(
                refused @ (TokenRefused::Expired
                | TokenRefused::UnknownKey
                | TokenRefused::UnknownKeySoFar
                | TokenRefused::KeysUnavailable),
            ) => {
                let used = lookups.used(&token_hash, now.wall).await?;
                let used = used.filter(|used| *used.issuer == *self.issuer);
                let again = used.and_then(|used| Some((RunClaims::of_use(&used.use_id)?, used.until)));
                again.ok_or(CredentialRefusal::Token(refused))?
            }
            Err(refused) => return Err(CredentialRefusal::Token(refused)),
        };
        let found = self.owner(&job, Purpose::Agent, lookups).await?;
        if !found.is_child {
            // The pipeline that asks for the definition may have jobs of the project beside it, which are no workspace.
            return Err(CredentialRefusal::RunUnknown);
        }
        Ok(self.identity(job, found, token_hash, now.wall, expires_at))
    }

    /// Finds the run of the job with this token, and its owner, without using the token up.
    pub(super) async fn run_of(
        &self,
        token: &str,
        lookups: &Lookups,
        now: Moment,
    ) -> Result<RunOwner, CredentialRefusal> {
        let claims = self.verify(token, now).await.map_err(|refused| {
            // Unlike an agent, this job does not ask again after a final answer, and the key may just be new.
            let is_new_perhaps = refused == TokenRefused::UnknownKeySoFar;
            CredentialRefusal::Token(if is_new_perhaps { TokenRefused::KeysUnavailable } else { refused })
        })?;
        self.owner(&self.job(&claims)?, Purpose::Definition, lookups).await
    }

    async fn verify(&self, token: &str, now: Moment) -> Result<Claims, TokenRefused> {
        let expect = Expect {
            issuer: &self.issuer,
            audience: &self.audience,
            algorithms: Algorithm::DEFAULT,
            token_use: TokenUse::Program,
        };
        self.keys.verify(token, &expect, now).await
    }

    fn job(&self, claims: &Claims) -> Result<RunClaims, CredentialRefusal> {
        RunClaims::of_claims(claims, &self.project, &self.reference)
    }

    async fn owner(&self, job: &RunClaims, purpose: Purpose, lookups: &Lookups) -> Result<RunOwner, CredentialRefusal> {
        let mut found = self.known(job, lookups).await?;
        if found.is_none() {
            let awaited = lookups.awaited(&self.provider).await?;
            let is_awaited = match (job.is_child, purpose) {
                (true, Purpose::Agent | Purpose::Definition) => awaited.child,
                (false, Purpose::Definition) => awaited.pipeline,
                (false, Purpose::Agent) => false,
            };
            if is_awaited {
                return Err(CredentialRefusal::RunAwaited);
            }
            // It may have become known between the two questions.
            found = self.known(job, lookups).await?;
        }
        let found = found.ok_or(CredentialRefusal::RunUnknown)?;
        if found.is_live { Ok(found) } else { Err(CredentialRefusal::RunOver) }
    }

    async fn known(&self, job: &RunClaims, lookups: &Lookups) -> Result<Option<RunOwner>, CredentialRefusal> {
        lookups.run(&self.provider, &job.pipeline).await
    }

    fn identity(
        &self,
        job: RunClaims,
        found: RunOwner,
        token_hash: [u8; 32],
        now: UnixSeconds,
        expires_at: UnixSeconds,
    ) -> AgentIdentity {
        let once = Once {
            workspace: found.workspace,
            issuer: self.issuer.clone(),
            use_id: job.use_id.into(),
            token_hash,
            owner: found.owner,
            create: false,
            until: after(now, self.session_max.as_secs()),
            expires_at: after(expires_at, LEEWAY_SECONDS.unsigned_abs()),
        };
        let credential = Credential::Job { issuer: once.issuer.clone(), use_id: once.use_id.clone() };
        let lease = SessionLease::once(credential, once.until);
        AgentIdentity { subject: Subject::Workspace(once.workspace.clone()), lease, once: Some(once), sealed: None }
    }
}

impl RunClaims {
    /// Reads the pipeline of a token's job, if the job belongs to the project on the ref.
    fn of_claims(claims: &Claims, project: &str, reference: &str) -> Result<Self, CredentialRefusal> {
        let is_project = [text(claims, "project_path"), text(claims, "project_id")].contains(&Some(project.to_owned()));
        if !is_project {
            return Err(CredentialRefusal::OtherProject);
        }
        // For merge requests, the ref is a branch's name and the path is another (GitLab, predefined CI/CD variables).
        let path = text(claims, "ref_path");
        let is_path =
            |path: &String| ["refs/heads/", "refs/tags/"].iter().any(|kind| path.strip_prefix(kind) == Some(reference));
        if text(claims, "ref").as_deref() != Some(reference) || !path.as_ref().is_none_or(is_path) {
            return Err(CredentialRefusal::OtherRef);
        }
        let pipeline = text(claims, "pipeline_id").filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()));
        let pipeline = pipeline.ok_or(CredentialRefusal::RunUnknown)?;
        let unique = claims.id.clone().filter(|id| !id.is_empty()).or_else(|| text(claims, "job_id"));
        let unique =
            unique.filter(|id| id.len() <= 512 && !id.chars().any(char::is_control)).ok_or(CredentialRefusal::NoUse)?;
        let use_id = format!("{PIPELINE}{pipeline} {unique}");
        let is_child = text(claims, "pipeline_source").as_deref() == Some(CHILD_SOURCE);
        Ok(Self { pipeline, is_child, use_id })
    }

    /// Reads a job back from a use id: its token was used by an agent, so the pipeline is known.
    fn of_use(use_id: &str) -> Option<Self> {
        let (pipeline, _) = use_id.strip_prefix(PIPELINE)?.split_once(' ')?;
        Some(Self { pipeline: pipeline.to_owned(), is_child: false, use_id: use_id.to_owned() })
    }
}

/// Returns a claim that is a text or a whole number.
fn text(claims: &Claims, name: &str) -> Option<String> {
    match claims.rest.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(change: &Value) -> Result<RunClaims, CredentialRefusal> {
        let mut rest = json!({
            "project_id": "22", "project_path": "group/project", "pipeline_id": "77", "job_id": "301", "ref": "main",
            "ref_path": "refs/heads/main",
        });
        for (name, value) in change.as_object().unwrap() {
            rest[name] = value.clone();
        }
        let Value::Object(rest) = rest else { panic!("an object") };
        let claims = Claims { id: Some("a".to_owned()), rest, ..Claims::default() };
        RunClaims::of_claims(&claims, "group/project", "main")
    }

    #[test]
    fn job_of_the_project_and_ref_tells_its_pipeline_and_is_used_once() {
        let good = job(&json!({})).unwrap();
        assert_eq!((good.pipeline.as_str(), good.use_id.as_str()), ("77", "pipeline=77 a"));
        assert_eq!(RunClaims::of_use(&good.use_id), Some(good));
        assert_eq!(job(&json!({"pipeline_id": 77})).map(|job| job.pipeline), Ok("77".to_owned()));
        assert!(job(&json!({"ref_path": null})).is_ok() && job(&json!({"ref_path": "refs/tags/main"})).is_ok());
        assert_eq!(RunClaims::of_use("jti=1:a"), None);
        for (source, is_child) in [("parent_pipeline", true), ("api", false), ("", false)] {
            assert_eq!(job(&json!({"pipeline_source": source})).map(|job| job.is_child), Ok(is_child), "{source}");
        }
    }

    #[test]
    fn job_of_another_project_or_ref_is_refused_by_name() {
        for (change, expected) in [
            (json!({"project_path": "fork/project", "project_id": "23"}), CredentialRefusal::OtherProject),
            (json!({"project_path": ["group/project"], "project_id": null}), CredentialRefusal::OtherProject),
            (json!({"ref": "feature", "ref_path": "refs/heads/feature"}), CredentialRefusal::OtherRef),
            (json!({"ref_path": "refs/merge-requests/1/head"}), CredentialRefusal::OtherRef),
            (json!({"ref": null}), CredentialRefusal::OtherRef),
            (json!({"pipeline_id": null}), CredentialRefusal::RunUnknown),
            (json!({"pipeline_id": "77 or 1"}), CredentialRefusal::RunUnknown),
        ] {
            assert_eq!(job(&change), Err(expected), "{change}");
        }
    }
}
