//! Identifies agents: the credentials of a connection name one workspace or one cluster, and this is the only place
//! that reads them. The agent's Hello chooses nothing.
//!
//! An agent may show a token of this gateway, a client certificate, a service-account token of a Kubernetes pod, or a
//! token of a CI job. Each answers for exactly one workspace; two that are shown together have to name the same one.
//! Cluster agents show a token of this gateway, of a kind of its own.

mod ci;
mod credentials;
mod job;
mod keys;
mod kubernetes;
mod lookups;
mod pod;
mod refusal;
mod review;
mod sealed;
mod workspace_job;

use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderMap;
use tokio::time::Instant;
use tracing::warn;
use tunnel_proto::hello::Hello;

pub use self::refusal::CredentialRefusal;
pub use self::sealed::UncheckedToken;

use self::ci::CiSystem;
use self::credentials::{Bearer, bearer, claimed_issuer, workspace_of};
use self::kubernetes::IssuerCluster;
use self::lookups::{ExpectedRun, Lookups};
use self::sealed::Seals;
use self::workspace_job::RunIssuer;
use super::registry::{Credential, Review, SessionLease, Subject};
use gateway_auth::jwt::Moment;
use gateway_config::{AgentAuth, Ci, CiSystem as CiSystemOf};
use gateway_net::certificate::{BadCertificate, Certificate};
use gateway_net::fetch::FetchSetupError;
use gateway_store::{
    AccessChange, ProvedAgent, RunOwner, Store, TokenSubject, TokenUse, TokenUseOutcome, Workspace, WorkspaceId,
    wall_clock,
};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{DesiredState, NamedPort, ProviderName, UnixSeconds, UserName, WorkspaceName};

/// Client certificate of a connection's TLS handshake; shared by all calls on the connection.
pub type ShownCertificate = Option<Arc<Result<Certificate, BadCertificate>>>;

/// An authenticated agent.
#[derive(Clone, Debug)]
pub struct AgentIdentity {
    /// Workspace or cluster of the agent.
    pub subject: Subject,
    /// Its credential, and the time for which that counts.
    pub lease: SessionLease,
    /// Use to record before it gets a session, if its credential is good for one process only.
    once: Option<Once>,
    /// Its workspace and the owner, if its seal says so and the store is away.
    sealed: Option<Box<(WorkspaceId, UserName)>>,
}

impl AgentIdentity {
    /// Takes over the identity of an agent that another replica has authenticated, and whose credential that has used.
    #[must_use]
    pub(crate) fn relayed(subject: Subject, lease: SessionLease) -> Self {
        Self { subject, lease, once: None, sealed: None }
    }
}

/// An agent that is entitled to a session now.
#[derive(Debug)]
pub struct Entitlement {
    /// Workspace or cluster of the agent.
    pub subject: Subject,
    /// Its credential, and the time for which that counts.
    pub lease: SessionLease,
    /// The workspace and its owner; `None` for a cluster's agent, and for an agent that resumes a session.
    pub owned: Option<(WorkspaceId, UserName)>,
    /// The named ports of the workspace, where `owned` comes from the store.
    pub ports: Arc<[NamedPort]>,
}

/// A credential that is good for one process.
#[derive(Clone, Debug)]
struct Once {
    workspace: WorkspaceName,
    issuer: Arc<str>,
    use_id: Box<str>,
    token_hash: [u8; 32],
    owner: UserName,
    create: bool,
    until: UnixSeconds,
    expires_at: UnixSeconds,
}

/// Identifies agents.
#[derive(Debug)]
pub struct AgentIdentities {
    lookups: Lookups,
    seals: Seals,
    uri_prefix: Box<str>,
    clusters: Vec<IssuerCluster>,
    ci: Vec<CiSystem>,
    /// Projects whose jobs the gateway itself starts.
    runs: Vec<RunIssuer>,
    /// CI systems that workspaces may be in; `None` if there are no such workspaces.
    providers: Option<HashSet<ProviderName>>,
}

impl AgentIdentities {
    /// Makes it from the configuration. No issuer is asked yet: one that cannot be reached must not prevent the start.
    ///
    /// # Errors
    /// [`FetchSetupError`] names a file of authorities that cannot be used.
    pub fn new(store: Store, auth: &AgentAuth) -> Result<Self, FetchSetupError> {
        Ok(Self {
            seals: Seals::new(store.clone()),
            lookups: Lookups::new(store),
            uri_prefix: auth.uri_prefix.clone(),
            clusters: auth.kubernetes.iter().map(IssuerCluster::new).collect::<Result<_, _>>()?,
            ci: auth.ci.iter().map(CiSystem::new).collect::<Result<_, _>>()?,
            runs: Vec::new(),
            providers: None,
        })
    }

    /// Admits the agents of jobs that the gateway itself asks CI systems for, while that is turned on. Jobs from before
    /// it was turned off are known as well, so that they end.
    ///
    /// # Errors
    /// [`FetchSetupError`] names a file of authorities that cannot be used.
    pub fn with_runs(mut self, ci: &Ci) -> Result<Self, FetchSetupError> {
        let names = ci.providers.iter().filter(|_| ci.enabled).map(|provider| provider.name.clone());
        self.providers = Some(names.collect());
        for provider in &ci.providers {
            let issuer = match &provider.system {
                CiSystemOf::Gitlab(gitlab) => RunIssuer::new(provider, gitlab),
                // Its jobs show tokens of the gateway.
                CiSystemOf::Command(_) => continue,
            };
            match issuer {
                Ok(issuer) => self.runs.push(issuer),
                Err(error) if ci.enabled => return Err(error),
                Err(error) => {
                    warn!(provider = %provider.name, %error, "jobs of a disabled CI provider are not recognised")
                }
            }
        }
        Ok(self)
    }

    /// Authenticates an agent.
    ///
    /// # Errors
    /// [`CredentialRefusal`], which repeats nothing that was shown.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        shown: &ShownCertificate,
    ) -> Result<AgentIdentity, CredentialRefusal> {
        let now = moment();
        let bearer = bearer(headers)?;
        let certificate = match shown.as_deref() {
            None => None,
            Some(Ok(certificate)) => Some(certificate),
            Some(Err(bad)) => return Err(CredentialRefusal::UnreadableCertificate(*bad)),
        };
        let named = certificate.map(|shown| workspace_of(shown, &self.uri_prefix)).transpose()?.flatten();
        // A resumed TLS session shows the certificate that was verified when it began.
        if certificate.is_some_and(|shown| shown.not_after < now.wall) {
            return Err(CredentialRefusal::CertificateExpired);
        }
        let Some(bearer) = bearer else {
            return match (certificate, named) {
                (Some(certificate), Some(name)) => self.of_certificate(certificate, name, now.wall).await,
                (Some(_), None) => {
                    Err(CredentialRefusal::CertificateIdentity("the client certificate names no workspace"))
                }
                (None, _) => Err(CredentialRefusal::Missing),
            };
        };
        let mut identity = match bearer {
            Bearer::Own(text) => self.of_own_token(text, now.wall).await?,
            Bearer::Signed(text) => self.of_signed_token(text, now).await?,
        };
        // A certificate names a workspace, so beside a cluster's token it disagrees.
        let is_named = |name: &str| identity.subject.workspace().is_some_and(|workspace| workspace.as_str() == name);
        if named.is_some_and(|name| !is_named(name)) {
            return Err(CredentialRefusal::Disagree);
        }
        if named.is_some() {
            identity.lease = identity.lease.within(certificate.map(end_of));
        }
        Ok(identity)
    }

    /// Entitles an authenticated agent to a session: its workspace may run, and no other process has used up its
    /// credential. The number of the Hello's `instance` tells processes apart: each draws one for itself and shares it with no
    /// other. The owner is read for new sessions; a resumed one counts in the budget that it has. What the store does not answer
    /// in time is taken from the Hello's seal.
    ///
    /// # Errors
    /// [`CredentialRefusal`] with the reason.
    pub async fn entitle(
        &self,
        identity: AgentIdentity,
        hello: &Hello,
        is_new: bool,
    ) -> Result<Entitlement, CredentialRefusal> {
        let AgentIdentity { subject, mut lease, once, mut sealed } = identity;
        match self.may_run(&subject).await {
            // It ran when the seal was made.
            Err(refusal @ CredentialRefusal::Unavailable(_)) => {
                let facts = sealed.or_else(|| self.sealed_facts(&subject, &lease, hello));
                sealed = Some(facts.ok_or(refusal)?);
            }
            may => may?,
        }
        if let Some(once) = once {
            lease.expires_at = Some(self.spend(&once, hello.instance).await?);
        }
        let mut ports = Arc::default();
        let owned = match sealed {
            _ if !is_new => None,
            Some(sealed) => Some(*sealed),
            None => match self.owned(&subject).await {
                Err(refusal @ CredentialRefusal::Unavailable(_)) => {
                    Some(*self.sealed_facts(&subject, &lease, hello).ok_or(refusal)?)
                }
                found => found?.map(|found| {
                    ports = found.ports;
                    (found.id, found.owner)
                }),
            },
        };
        Ok(Entitlement { subject, lease, owned, ports })
    }

    /// Returns what the seal of a known agent says about its workspace, if it counts.
    fn sealed_facts(
        &self,
        subject: &Subject,
        lease: &SessionLease,
        hello: &Hello,
    ) -> Option<Box<(WorkspaceId, UserName)>> {
        let proved = ProvedAgent { token_hash: lease.proof.as_deref()?, instance: hello.instance };
        self.seals.identify(proved, &hello.seal).filter(|sealed| sealed.subject == *subject)?.sealed
    }

    /// Uses up a credential that is good for one process. Returns the end of the time for which it counts.
    async fn spend(&self, once: &Once, instance: u64) -> Result<UnixSeconds, CredentialRefusal> {
        let now = wall_clock();
        let process_hash = sha256(&instance.to_be_bytes());
        let token = TokenUse {
            issuer: &once.issuer,
            use_id: &once.use_id,
            token_hash: &once.token_hash,
            process_hash: &process_hash,
            workspace: &once.workspace,
            owner: &once.owner,
            create: once.create,
            until: once.until,
            expires_at: once.expires_at,
        };
        match self.lookups.spend(&token, now).await? {
            // Processes that draw no number cannot be told apart.
            TokenUseOutcome::Again(_) if instance == 0 => Err(CredentialRefusal::Spent),
            TokenUseOutcome::First => Ok(once.until),
            TokenUseOutcome::Again(until) if until > now => Ok(until),
            TokenUseOutcome::Again(_) => Err(CredentialRefusal::Over),
            TokenUseOutcome::ByAnother => Err(CredentialRefusal::Spent),
            TokenUseOutcome::NoWorkspace => Err(CredentialRefusal::NoWorkspace),
        }
    }

    /// Checks again whether the token of a live session still counts.
    ///
    /// # Errors
    /// [`CredentialRefusal::Unavailable`] and [`CredentialRefusal::Busy`] say nothing about the token; all others that it is worth nothing.
    pub async fn review(&self, review: &Review) -> Result<(), CredentialRefusal> {
        let cluster = self.clusters.get(review.cluster).ok_or(CredentialRefusal::Issuer)?;
        cluster.still_vouches(review.token.reveal(), moment()).await
    }

    async fn of_certificate(
        &self,
        certificate: &Certificate,
        name: &str,
        now: UnixSeconds,
    ) -> Result<AgentIdentity, CredentialRefusal> {
        let bad = CredentialRefusal::CertificateIdentity(
            "the client certificate names something that is no workspace's name",
        );
        let workspace: WorkspaceName = name.parse().map_err(|_| bad)?;
        self.exists(&workspace).await?;
        let credential = Credential::Certificate { fingerprint: certificate.fingerprint.clone() };
        let lease = SessionLease::renewable(credential, Some(end_of(certificate)), now);
        Ok(AgentIdentity { subject: Subject::Workspace(workspace), lease, once: None, sealed: None })
    }

    async fn of_own_token(&self, text: &str, now: UnixSeconds) -> Result<AgentIdentity, CredentialRefusal> {
        let token = Token::parse(text).map_err(|_| CredentialRefusal::Damaged)?;
        match token.kind() {
            TokenKind::Agent | TokenKind::Cluster => {}
            TokenKind::User => return Err(CredentialRefusal::WrongKind),
        }
        let hash = token.hash();
        let record = self.lookups.token(&hash).await?;
        let record = record.ok_or(CredentialRefusal::Unknown)?;
        if !record.is_live(now) {
            return Err(CredentialRefusal::Revoked);
        }
        let subject = match record.subject {
            TokenSubject::Agent { workspace, .. } => Subject::Workspace(workspace),
            TokenSubject::Cluster { cluster, .. } => Subject::Cluster(cluster),
            TokenSubject::User { .. } => return Err(CredentialRefusal::WrongKind),
        };
        let lease = SessionLease::renewable(Credential::Token(record.id), record.expires_at, now);
        let lease = SessionLease { proof: Some(hash.into()), ..lease };
        Ok(AgentIdentity { subject, lease, once: None, sealed: None })
    }

    async fn of_signed_token(&self, text: &str, now: Moment) -> Result<AgentIdentity, CredentialRefusal> {
        let issuer = claimed_issuer(text)?;
        if let Some((index, cluster)) = self.clusters.iter().enumerate().find(|(_, one)| one.issues_as(&issuer)) {
            let (workspace, lease) = cluster.identify(text, index, now).await?;
            self.exists(&workspace).await?;
            return Ok(AgentIdentity { subject: Subject::Workspace(workspace), lease, once: None, sealed: None });
        }
        let refused = match self.of_run(text, &issuer, now).await {
            Some(Ok(identity)) => return Ok(identity),
            Some(Err(refused)) if !refused.leaves_it_to_rules() => return Err(refused),
            refused => refused.and_then(Result::err),
        };
        let Some(system) = self.ci.iter().find(|one| one.issues_as(&issuer)) else {
            return Err(refused.unwrap_or(CredentialRefusal::Issuer));
        };
        match (system.identify(text, &self.lookups, now).await, refused) {
            (Err(CredentialRefusal::Rule), Some(refused)) => Err(refused),
            (found, _) => found,
        }
    }

    /// Looks among the jobs that the gateway itself asked for; `None` if it asks no issuer of that name.
    async fn of_run(&self, text: &str, issuer: &str, now: Moment) -> Option<Result<AgentIdentity, CredentialRefusal>> {
        let mut refused = None;
        for one in self.runs.iter().filter(|one| one.issues_as(issuer)) {
            match one.identify(text, &self.lookups, now).await {
                Err(refusal) if refusal.is_of_one_provider() => {
                    refused = Some(CredentialRefusal::or_more_telling(refused, refusal))
                }
                found => return Some(found),
            }
        }
        refused.map(Err)
    }

    /// Finds the run of the job with a signed token, and its owner. The token is not used up.
    ///
    /// # Errors
    /// [`CredentialRefusal`]; [`CredentialRefusal::WorkspaceStopped`] also for a run that was told to end.
    pub async fn run_of(&self, headers: &HeaderMap) -> Result<RunOwner, CredentialRefusal> {
        let now = moment();
        let Some(Bearer::Signed(text)) = bearer(headers)? else { return Err(CredentialRefusal::Missing) };
        let issuer = claimed_issuer(text)?;
        let mut refused = None;
        for one in self.runs.iter().filter(|one| one.issues_as(&issuer)) {
            match one.run_of(text, &self.lookups, now).await {
                Ok(run) if run.is_stopping || run.desired != DesiredState::Running => {
                    return Err(CredentialRefusal::WorkspaceStopped);
                }
                Err(refusal) if refusal.is_of_one_provider() => {
                    refused = Some(CredentialRefusal::or_more_telling(refused, refusal))
                }
                found => return found,
            }
        }
        Err(refused.unwrap_or(CredentialRefusal::Issuer))
    }

    /// Agrees to a new session of an agent, unless its workspace is in a CI system and is not desired to run, or the
    /// gateway can no longer manage it there: then its job is to end.
    async fn may_run(&self, subject: &Subject) -> Result<(), CredentialRefusal> {
        let (Some(workspace), Some(providers)) = (subject.workspace(), &self.providers) else { return Ok(()) };
        let is_known = |of: &ProviderName| providers.contains(of);
        match self.lookups.running(workspace).await? {
            ExpectedRun::Unmanaged => Ok(()),
            ExpectedRun::In(of) | ExpectedRun::NotIn(of) if !is_known(&of) => Err(CredentialRefusal::RunOver),
            ExpectedRun::In(_) => Ok(()),
            ExpectedRun::NotIn(_) => Err(CredentialRefusal::WorkspaceStopped),
        }
    }

    /// Forgets changed values, so that no agent gets in by the old ones. Returns whether any of them was known, and is
    /// to be loaded again by [`AgentIdentities::refresh`].
    pub fn forget(&self, change: &AccessChange) -> bool {
        self.seals.note(change);
        self.lookups.forget(change)
    }

    /// Loads the forgotten values again.
    ///
    /// # Cancel safety
    /// Values that are not loaded yet when it is dropped stay forgotten.
    pub async fn refresh(&self) {
        self.lookups.refresh().await;
    }

    /// Returns the workspace of an authenticated agent whose credential is good for more than one process, and its owner; `None`
    /// for a cluster's agent.
    ///
    /// # Errors
    /// [`CredentialRefusal`]; a credential that is good for one process is used up by its session.
    pub async fn owned_by_agent(
        &self,
        identity: &AgentIdentity,
    ) -> Result<Option<(WorkspaceName, WorkspaceId, UserName)>, CredentialRefusal> {
        if identity.once.is_some() {
            return Err(CredentialRefusal::Spent);
        }
        self.may_run(&identity.subject).await?;
        let Some(name) = identity.subject.workspace() else { return Ok(None) };
        let found = self.owned(&identity.subject).await?;
        let found = found.ok_or(CredentialRefusal::NoWorkspace)?;
        Ok(Some((name.clone(), found.id, found.owner)))
    }

    /// Returns the workspace of an agent; `None` for a cluster's agent.
    async fn owned(&self, subject: &Subject) -> Result<Option<Workspace>, CredentialRefusal> {
        let Some(workspace) = subject.workspace() else { return Ok(None) };
        self.lookups.workspace(workspace).await
    }

    /// Requires that a workspace exists: a credential of another issuer creates none, unless a rule says so.
    async fn exists(&self, workspace: &WorkspaceName) -> Result<(), CredentialRefusal> {
        match self.lookups.workspace(workspace).await? {
            Some(_) => Ok(()),
            None => Err(CredentialRefusal::NoWorkspace),
        }
    }
}

/// The first second in which a certificate does not count.
fn end_of(certificate: &Certificate) -> UnixSeconds {
    UnixSeconds::new(certificate.not_after.get().saturating_add(1))
}

/// Adds seconds to a time.
fn after(time: UnixSeconds, seconds: u64) -> UnixSeconds {
    UnixSeconds::new(time.get().saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX)))
}

fn moment() -> Moment {
    Moment { wall: wall_clock(), clock: Instant::now() }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.iter_mut().zip(digest(&SHA256, bytes).as_ref()).for_each(|(slot, byte)| *slot = *byte);
    hash
}

#[cfg(test)]
mod tests;
