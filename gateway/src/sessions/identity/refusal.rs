//! Why a credential is not taken: one table of codes, and of what the agent is told to do. Nothing here repeats anything
//! that an agent sent.

use std::time::Duration;

use thiserror::Error;
use tunnel_link::grpc::{Code, Refused};

use crate::auth::jwt;
use crate::model::NoName;
use crate::net::certificate::BadCertificate;

/// After what time an agent comes back that only has to get a newer credential, or that somebody else's change can help.
const SLOWLY: Duration = Duration::from_secs(30);

/// After what time an agent comes back when the gateway could not ask.
const SOON: Duration = Duration::from_secs(2);

/// Why a credential is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is none.
    #[error("no bearer token was sent, and no client certificate was shown")]
    Missing,
    /// There are several where one is read.
    #[error("more than one authorization was sent")]
    Ambiguous,
    /// What was sent is no credential.
    #[error("the token is damaged: copy it again, or make a new one")]
    Damaged,
    /// It is a person's.
    #[error("this token is not an agent's: make one with gateway token create --workspace, or --cluster")]
    WrongKind,
    /// This gateway never made it, or has forgotten it.
    #[error("the token is not known here: was it made for this gateway?")]
    Unknown,
    /// It counted once.
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
    /// Nobody configured who made it.
    #[error("tokens of this issuer do not count here: is it in auth.agents.kubernetes or auth.agents.ci?")]
    Issuer,
    /// It is not what an issuer's token has to be.
    #[error("{0}")]
    Token(jwt::Refused),
    /// It is of no pod.
    #[error("the token is not bound to a pod: project it into one, for the audience of this gateway")]
    NotOfPod,
    /// The cluster says that it does not count.
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
    /// The workspace is not whose the rule says.
    #[error("the workspace that this credential is for belongs to another user")]
    OtherOwner,
    /// It says nothing by which one use could be told from another.
    #[error("the token has nothing that is unique to it or to its job, so it could be used twice")]
    NoUse,
    /// Another process used it before.
    #[error("the token was used by another process: each is good for one")]
    Spent,
    /// It was used, and the time of that is up.
    #[error("the time for which this token's job may be connected is over")]
    Over,
    /// It is of a job of another project than the one whose jobs are workspaces: also of a fork of that.
    #[error("the token is of a job of another project than the one whose jobs are workspaces here")]
    OtherProject,
    /// It is of a job on another branch or tag.
    #[error("the token is of a job on another branch or tag than the one whose jobs are workspaces here")]
    OtherRef,
    /// It is of a pipeline that was not made for any workspace.
    #[error("the token is of a pipeline that no workspace was given")]
    RunUnknown,
    /// It is of a pipeline that is not known yet, and may be a workspace's.
    #[error("the token is of a pipeline that the gateway does not know yet: come back soon")]
    RunAwaited,
    /// Its pipeline was a workspace's, and is over.
    #[error("the token is of a job whose workspace is done with it")]
    RunOver,
    /// The workspace is not to run.
    #[error("the workspace is not to run now")]
    WorkspaceStopped,
    /// Too many were to be checked.
    #[error("too many credentials are being checked now")]
    Busy,
    /// Whoever has to be asked does not answer.
    #[error("the gateway cannot check this credential now: {0} does not answer")]
    Unavailable(&'static str),
}

impl Refusal {
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

    /// Returns whether another provider with the same issuer may still be the one that the job is of.
    pub(super) fn is_of_one_provider(&self) -> bool {
        matches!(
            self,
            Self::OtherProject
                | Self::OtherRef
                | Self::RunUnknown
                | Self::RunAwaited
                | Self::Token(jwt::Refused::Audience)
        )
    }

    /// Returns what is told of two refusals by providers with the same issuer: that the run may be known soon before all else, and
    /// that the job is of another project, which says least, after all else.
    pub(super) fn or_more_telling(before: Option<Self>, refusal: Self) -> Self {
        match before {
            Some(before) if before == Self::RunAwaited || refusal == Self::OtherProject => before,
            Some(_) | None => refusal,
        }
    }

    /// Returns whether a rule for jobs of other kinds may still be for the job that the gateway did not ask for.
    pub(super) fn leaves_it_to_rules(&self) -> bool {
        matches!(
            self,
            Self::OtherProject
                | Self::OtherRef
                | Self::RunUnknown
                | Self::Token(jwt::Refused::Audience | jwt::Refused::Expired)
        )
    }

    /// Returns when the same agent may come back; `None` if only a person can help it. Tokens of this gateway do not become
    /// good by waiting. What others make is renewed by them, and their rules are changed here: whoever waits gets in then.
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
            Self::Token(refused) => Some(if *refused == jwt::Refused::KeysUnavailable { SOON } else { SLOWLY }),
            // The CI system says soon which pipeline a pipeline started.
            Self::RunAwaited | Self::Busy | Self::Unavailable(_) => Some(SOON),
        }
    }

    /// Returns whether it says nothing about the credential: somebody could not be asked, or does not know yet.
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Unavailable(_) | Self::RunAwaited | Self::Token(jwt::Refused::KeysUnavailable)
        )
    }

    fn status(&self) -> Code {
        // What it runs in has nothing more to do.
        if matches!(self, Self::WorkspaceStopped | Self::RunOver) {
            return Code::NotFound;
        }
        if *self == Self::Busy {
            return Code::ResourceExhausted;
        }
        if self.is_unchecked() { Code::Unavailable } else { Code::Unauthenticated }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
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
        let spent = Refused::from(Refusal::Spent);
        assert!(spent.message.starts_with("credential_spent: "), "{}", spent.message);
        assert_eq!((spent.code, spent.retry_after), (Code::Unauthenticated, None), "final");
        let expired = Refused::from(Refusal::Token(jwt::Refused::Expired));
        assert_eq!((expired.code, expired.retry_after), (Code::Unauthenticated, Some(SLOWLY)));
        let unreachable = Refused::from(Refusal::Token(jwt::Refused::KeysUnavailable));
        assert_eq!((unreachable.code, unreachable.retry_after), (Code::Unavailable, Some(SOON)));
    }

    #[test]
    fn run_that_may_be_known_soon_is_told_whatever_other_providers_say_and_no_rule_is_asked() {
        use Refusal::{OtherProject, OtherRef, RunAwaited, RunUnknown};
        for other in [OtherProject, OtherRef, RunUnknown] {
            for order in [[RunAwaited, other.clone()], [other, RunAwaited]] {
                let told = order.into_iter().fold(None, |before, next| Some(Refusal::or_more_telling(before, next)));
                assert_eq!(told, Some(RunAwaited));
            }
        }
        assert_eq!(Refusal::or_more_telling(Some(RunUnknown), OtherProject), RunUnknown);
        assert_eq!(Refusal::or_more_telling(Some(OtherProject), RunUnknown), RunUnknown);
        assert!(!RunAwaited.leaves_it_to_rules() && RunUnknown.leaves_it_to_rules());
        let awaited = Refused::from(RunAwaited);
        assert_eq!((awaited.code, awaited.retry_after), (Code::Unavailable, Some(SOON)));
    }

    #[test]
    fn message_has_only_what_a_status_may_have() {
        let refused = Refused::from(Refusal::Name(NoName::Missing("ä%`".into())));
        assert!(refused.message.bytes().all(|byte| (byte.is_ascii_graphic() && byte != b'%') || byte == b' '));
    }
}
