//! Reasons to refuse a credential: one table of codes, and of instructions to the agent. Nothing here repeats anything
//! that an agent sent.

use std::time::Duration;

use thiserror::Error;
use tunnel_link::grpc::{Code, RpcRefused};

use gateway_auth::jwt;
use gateway_net::certificate::BadCertificate;
use gateway_types::NoName;

/// Redial delay of an agent that only needs a newer credential, or that another party's change can help.
const SLOWLY: Duration = Duration::from_secs(30);

/// Redial delay of an agent whose credential the gateway could not check.
const SOON: Duration = Duration::from_secs(2);

/// Reason a credential is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialRefusal {
    /// No credential.
    #[error("no bearer token was sent, and no client certificate was shown")]
    Missing,
    /// Several credentials where one is read.
    #[error("more than one authorization was sent")]
    Ambiguous,
    /// Bytes that are no credential.
    #[error("the token is damaged: copy it again, or make a new one")]
    Damaged,
    /// A user's token.
    #[error("this token is not an agent's: make one with gateway token create --workspace, or --cluster")]
    WrongKind,
    /// A token that this gateway never made, or has forgotten.
    #[error("the token is not known here: was it made for this gateway?")]
    Unknown,
    /// A token that counted once.
    #[error("the token was revoked or has expired: make a new one")]
    Revoked,
    /// Two credentials name two workspaces.
    #[error("the token and the client certificate are of different workspaces")]
    Disagree,
    /// The certificate cannot be read.
    #[error("{0}")]
    UnreadableCertificate(#[from] BadCertificate),
    /// The certificate names no workspace, or several.
    #[error("{0}")]
    CertificateIdentity(&'static str),
    /// The certificate counted once.
    #[error("the client certificate has expired")]
    CertificateExpired,
    /// The issuer is not configured.
    #[error("tokens of this issuer are not accepted: is it in auth.agents.kubernetes or auth.agents.ci?")]
    Issuer,
    /// Not as a token of its issuer has to be.
    #[error("{0}")]
    Token(jwt::TokenRefused),
    /// Not bound to a pod.
    #[error("the token is not bound to a pod: project it into one, for the audience of this gateway")]
    NotOfPod,
    /// The cluster does not vouch for it.
    #[error("the cluster does not vouch for the token: its pod or service account is gone, or its audience is another")]
    NotVouched,
    /// No rule fits.
    #[error("no rule of auth.agents is for this credential")]
    Rule,
    /// A rule fits, and gives no name.
    #[error("{0}")]
    Name(NoName),
    /// There is no such workspace.
    #[error("the workspace that this credential is for does not exist")]
    NoWorkspace,
    /// The workspace belongs to another user than the rule says.
    #[error("the workspace that this credential is for belongs to another user")]
    OtherOwner,
    /// It has nothing to tell one use from another.
    #[error("the token has nothing that is unique to it or to its job, so it could be used twice")]
    NoUse,
    /// Another process used it before.
    #[error("the token was used by another process: each is good for one")]
    Spent,
    /// It was used, and the time for that is up.
    #[error("the time for which this token's job may be connected is over")]
    Over,
    /// It belongs to a job of another project than the one whose jobs are workspaces: also of a fork of that.
    #[error("the token is of a job of another project than the one whose jobs are workspaces here")]
    OtherProject,
    /// It belongs to a job on another branch or tag.
    #[error("the token is of a job on another branch or tag than the one whose jobs are workspaces here")]
    OtherRef,
    /// It belongs to a pipeline that was not made for any workspace.
    #[error("the token is of a pipeline that no workspace requested")]
    RunUnknown,
    /// It belongs to a pipeline that is not known yet, and may be a workspace's.
    #[error("the token is of a pipeline that the gateway does not know yet: try again soon")]
    RunAwaited,
    /// Its pipeline was a workspace's, and is over.
    #[error("the token is of a job whose run is over")]
    RunOver,
    /// The workspace is not desired to run.
    #[error("the workspace is not to run now")]
    WorkspaceStopped,
    /// Too many credentials are to be checked.
    #[error("too many credentials are being checked now")]
    Busy,
    /// A party that has to be asked does not answer.
    #[error("the gateway cannot check this credential now: {0} does not answer")]
    Unavailable(&'static str),
}

impl CredentialRefusal {
    /// Returns the stable code for logs, audit records and people.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing => "credential_missing",
            Self::Ambiguous => "credential_ambiguous",
            Self::Damaged => "credential_damaged",
            Self::WrongKind => "credential_wrong_kind",
            Self::Unknown => "credential_unknown",
            Self::Revoked => "credential_revoked",
            Self::Disagree => "credentials_disagree",
            Self::UnreadableCertificate(_) | Self::CertificateIdentity(_) => "certificate_identity",
            Self::CertificateExpired => "certificate_expired",
            Self::Issuer => "credential_issuer",
            Self::Token(refused) => refused.code(),
            Self::NotOfPod => "credential_not_of_pod",
            Self::NotVouched => "credential_not_vouched",
            Self::Rule => "credential_rule",
            Self::Name(_) => "credential_name",
            Self::NoWorkspace => "workspace_unknown",
            Self::OtherOwner => "workspace_of_another",
            Self::NoUse => "credential_not_unique",
            Self::Spent => "credential_spent",
            Self::Over => "credential_over",
            Self::OtherProject => "job_of_another_project",
            Self::OtherRef => "job_of_another_ref",
            Self::RunUnknown => "run_unknown",
            Self::RunAwaited => "run_not_known_yet",
            Self::RunOver => "run_over",
            Self::WorkspaceStopped => "workspace_stopped",
            Self::Busy => "credential_checks_busy",
            Self::Unavailable(_) => "credential_unchecked",
        }
    }

    /// Returns whether the job may still belong to another provider with the same issuer.
    pub(super) fn is_of_one_provider(&self) -> bool {
        matches!(
            self,
            Self::OtherProject
                | Self::OtherRef
                | Self::RunUnknown
                | Self::RunAwaited
                | Self::Token(jwt::TokenRefused::Audience)
        )
    }

    /// Returns the more telling of two refusals by providers with the same issuer: a run that may be known soon comes
    /// before all else, and a job of another project, which says least, after all else.
    pub(super) fn or_more_telling(before: Option<Self>, refusal: Self) -> Self {
        match before {
            Some(before) if before == Self::RunAwaited || refusal == Self::OtherProject => before,
            Some(_) | None => refusal,
        }
    }

    /// Returns whether a rule for other jobs may still fit this job, which the gateway did not ask for.
    pub(super) fn leaves_it_to_rules(&self) -> bool {
        matches!(
            self,
            Self::OtherProject
                | Self::OtherRef
                | Self::RunUnknown
                | Self::Token(jwt::TokenRefused::Audience | jwt::TokenRefused::Expired)
        )
    }

    /// Returns the time after which the same agent may come back; `None` if only a person can help it. Tokens of this
    /// gateway do not become good by waiting. Other credentials are renewed by their issuers, and the rules for them
    /// are changed here: an agent that waits gets in then.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Missing
            | Self::Ambiguous
            | Self::Damaged
            | Self::WrongKind
            | Self::Unknown
            | Self::Revoked
            | Self::Spent
            | Self::Over
            | Self::RunOver
            | Self::WorkspaceStopped => None,
            Self::Disagree
            | Self::UnreadableCertificate(_)
            | Self::CertificateIdentity(_)
            | Self::CertificateExpired
            | Self::Issuer
            | Self::NotOfPod
            | Self::NotVouched
            | Self::Rule
            | Self::Name(_)
            | Self::NoWorkspace
            | Self::OtherOwner
            | Self::NoUse
            | Self::OtherProject
            | Self::OtherRef
            | Self::RunUnknown => Some(SLOWLY),
            Self::Token(refused) => Some(if *refused == jwt::TokenRefused::KeysUnavailable { SOON } else { SLOWLY }),
            // The CI system soon reports the pipeline that the run's pipeline started.
            Self::RunAwaited | Self::Busy | Self::Unavailable(_) => Some(SOON),
        }
    }

    /// Returns whether it says nothing about the credential: another party could not be asked, or does not know yet.
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Unavailable(_) | Self::RunAwaited | Self::Token(jwt::TokenRefused::KeysUnavailable)
        )
    }

    fn status(&self) -> Code {
        // The agent's job has nothing more to do.
        if matches!(self, Self::WorkspaceStopped | Self::RunOver) {
            return Code::NotFound;
        }
        if *self == Self::Busy {
            return Code::ResourceExhausted;
        }
        if self.is_unchecked() { Code::Unavailable } else { Code::Unauthenticated }
    }
}

impl From<CredentialRefusal> for RpcRefused {
    fn from(refusal: CredentialRefusal) -> Self {
        // A gRPC message is ASCII without the percent sign; a character of an operator's own template could be another.
        let is_plain = |letter: char| (letter.is_ascii_graphic() && letter != '%') || letter == ' ';
        let told = format!("{}: {refusal}", refusal.code());
        let message = told.chars().map(|letter| if is_plain(letter) { letter } else { '?' }).collect();
        Self { code: refusal.status(), message, retry_after: refusal.retry_after() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_tells_its_code_and_whether_waiting_helps() {
        let spent = RpcRefused::from(CredentialRefusal::Spent);
        assert!(spent.message.starts_with("credential_spent: "), "{}", spent.message);
        assert_eq!((spent.code, spent.retry_after), (Code::Unauthenticated, None), "final");
        let expired = RpcRefused::from(CredentialRefusal::Token(jwt::TokenRefused::Expired));
        assert_eq!((expired.code, expired.retry_after), (Code::Unauthenticated, Some(SLOWLY)));
        let unreachable = RpcRefused::from(CredentialRefusal::Token(jwt::TokenRefused::KeysUnavailable));
        assert_eq!((unreachable.code, unreachable.retry_after), (Code::Unavailable, Some(SOON)));
    }

    #[test]
    fn run_that_may_be_known_soon_is_told_whatever_other_providers_say_and_no_rule_is_asked() {
        use CredentialRefusal::{OtherProject, OtherRef, RunAwaited, RunUnknown};
        for other in [OtherProject, OtherRef, RunUnknown] {
            for order in [[RunAwaited, other.clone()], [other, RunAwaited]] {
                let told =
                    order.into_iter().fold(None, |before, next| Some(CredentialRefusal::or_more_telling(before, next)));
                assert_eq!(told, Some(RunAwaited));
            }
        }
        assert_eq!(CredentialRefusal::or_more_telling(Some(RunUnknown), OtherProject), RunUnknown);
        assert_eq!(CredentialRefusal::or_more_telling(Some(OtherProject), RunUnknown), RunUnknown);
        assert!(!RunAwaited.leaves_it_to_rules() && RunUnknown.leaves_it_to_rules());
        let awaited = RpcRefused::from(RunAwaited);
        assert_eq!((awaited.code, awaited.retry_after), (Code::Unavailable, Some(SOON)));
    }

    #[test]
    fn message_has_only_what_a_status_may_have() {
        let refused = RpcRefused::from(CredentialRefusal::Name(NoName::Missing("ä%`".into())));
        assert!(refused.message.bytes().all(|byte| (byte.is_ascii_graphic() && byte != b'%') || byte == b' '));
    }
}
