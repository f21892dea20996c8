//! Time for which a session may live on its agent's credential.
//!
//! The end of a credential need not end its session: shortly before, the agent is asked to come back, which costs it a
//! link and its users nothing, and the credential that it then shows counts. Only if that is no newer one, the session
//! ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gateway_store::TokenId;
use gateway_types::Secret;
use gateway_types::UnixSeconds;

/// Divisor of a credential's remaining time: its agent is asked for a newer one when that part is left. Renewal has
/// been done by then (a kubelet renews after 80 %).
const RENEW_PART: i64 = 10;

/// Bounds of that time, in seconds.
const RENEW_SECONDS: std::ops::RangeInclusive<i64> = 1..=60;

/// An agent's credential, as logs and audit records name it. Holds nothing that could be shown as proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A token of this gateway.
    Token(TokenId),
    /// A client certificate.
    Certificate {
        /// The beginning of its SHA-256.
        fingerprint: Box<str>,
    },
    /// A Kubernetes service-account token.
    Pod {
        /// The pod's namespace.
        namespace: Box<str>,
        /// The pod.
        name: Box<str>,
        /// Tells it from earlier pods of that name.
        uid: Box<str>,
    },
    /// A token of a CI job.
    Job {
        /// Its issuer.
        issuer: Arc<str>,
        /// Id that is unique there.
        use_id: Box<str>,
    },
    /// One that another replica has checked, and checks again: not a token of this gateway.
    Relayed {
        /// Its kind and name, for people.
        shown: Box<str>,
    },
}

impl Credential {
    /// Returns the kind as one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Certificate { .. } => "certificate",
            Self::Pod { .. } => "pod",
            Self::Job { .. } => "job",
            Self::Relayed { .. } => "relayed",
        }
    }

    /// Returns its name among those of its kind.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Self::Token(id) => id.to_string(),
            Self::Certificate { fingerprint } => fingerprint.to_string(),
            Self::Pod { namespace, name, uid } => format!("{namespace}/{name} {uid}"),
            Self::Job { issuer, use_id } => format!("{use_id} of {issuer}"),
            Self::Relayed { shown } => shown.to_string(),
        }
    }

    /// Returns the token of this gateway, if it is one.
    #[must_use]
    pub fn token(&self) -> Option<TokenId> {
        match self {
            Self::Token(id) => Some(*id),
            Self::Certificate { .. } | Self::Pod { .. } | Self::Job { .. } | Self::Relayed { .. } => None,
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind(), self.id())
    }
}

/// A check that is repeated while a session lives: does its token still count?
#[derive(Clone, Debug)]
pub struct Review {
    /// Cluster to ask, by its place in the configuration.
    pub cluster: usize,
    /// The token.
    pub token: Arc<Secret>,
    /// Interval of the checks.
    pub every: Duration,
}

/// Credential that a session lives on, with its times.
#[derive(Clone, Debug)]
pub struct SessionLease {
    /// Credential of its agent.
    pub credential: Credential,
    /// Time from which it is worth nothing; `None` if it does not end by itself.
    pub expires_at: Option<UnixSeconds>,
    /// Time at which the agent is asked to come back with a newer one, if that makes sense.
    pub renew_at: Option<UnixSeconds>,
    /// Check to repeat meanwhile.
    pub review: Option<Review>,
    /// SHA-256 of the token that its agent proved to have, if it is one of this gateway and this replica saw it.
    pub proof: Option<Arc<[u8; 32]>>,
}

/// Action that is due for a session.
#[derive(Debug)]
pub enum LeaseAction {
    /// Its agent may have a newer credential by now: it is to come back.
    Renew,
    /// Its credential has ended.
    End,
    /// Its token is to be reviewed.
    Ask(Review),
}

impl SessionLease {
    /// Makes the lease of a credential that counts until `expires_at`, of a kind that is renewed.
    #[must_use]
    pub fn renewable(credential: Credential, expires_at: Option<UnixSeconds>, now: UnixSeconds) -> Self {
        let lead = |until: UnixSeconds| {
            let part = until.get().saturating_sub(now.get()) / RENEW_PART;
            after(until, -part.clamp(*RENEW_SECONDS.start(), *RENEW_SECONDS.end()))
        };
        Self { credential, expires_at, renew_at: expires_at.map(lead), review: None, proof: None }
    }

    /// Makes the lease of a credential that ends for good.
    #[must_use]
    pub fn once(credential: Credential, expires_at: UnixSeconds) -> Self {
        Self { credential, expires_at: Some(expires_at), renew_at: None, review: None, proof: None }
    }

    /// Ends the lease no later than another credential that the agent showed.
    #[must_use]
    pub fn within(mut self, other: Option<UnixSeconds>) -> Self {
        self.expires_at = match (self.expires_at, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self
    }
}

/// A lease, and the time of its next review.
#[derive(Debug)]
pub(super) struct HeldLease {
    pub(super) lease: SessionLease,
    ask_at: Option<UnixSeconds>,
}

impl HeldLease {
    pub(super) fn new(lease: SessionLease) -> Self {
        Self { lease, ask_at: None }
    }

    /// Takes the credential with which the agent came back, another one or the same. The one in use is the one that
    /// counts, also if it ends sooner: revoking it has to end the session, and revoking one that no process shows any
    /// more must not.
    pub(super) fn renew(&mut self, lease: SessionLease) {
        // An agent without a newer credential is not asked for one twice.
        let is_same = lease.expires_at == self.lease.expires_at && lease.credential == self.lease.credential;
        let renew_at = if is_same { self.lease.renew_at } else { lease.renew_at };
        // Another replica that carries a link does not say it.
        let is_proved = lease.credential == self.lease.credential;
        let proof = lease.proof.clone().or_else(|| self.lease.proof.take().filter(|_| is_proved));
        self.lease = SessionLease { renew_at, proof, ..lease };
    }

    /// Returns the action that is due, once.
    pub(super) fn due(&mut self, now: UnixSeconds) -> Option<LeaseAction> {
        if self.lease.expires_at.is_some_and(|end| end <= now) {
            return Some(LeaseAction::End);
        }
        if self.lease.renew_at.is_some_and(|at| at <= now) {
            self.lease.renew_at = None;
            return Some(LeaseAction::Renew);
        }
        let review = self.lease.review.as_ref()?;
        let pause = i64::try_from(review.every.as_secs()).unwrap_or(i64::MAX).max(1);
        // The agent's dial counts as the first review.
        let at = *self.ask_at.get_or_insert(after(now, pause));
        if at > now {
            return None;
        }
        self.ask_at = Some(after(now, pause));
        Some(LeaseAction::Ask(review.clone()))
    }
}

fn after(time: UnixSeconds, seconds: i64) -> UnixSeconds {
    UnixSeconds::new(time.get().saturating_add(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> UnixSeconds {
        UnixSeconds::new(seconds)
    }

    fn certificate(name: &str, end: i64, now: i64) -> SessionLease {
        SessionLease::renewable(Credential::Certificate { fingerprint: name.into() }, Some(at(end)), at(now))
    }

    fn kind(due: Option<LeaseAction>) -> &'static str {
        match due {
            None => "nothing",
            Some(LeaseAction::Renew) => "renew",
            Some(LeaseAction::End) => "end",
            Some(LeaseAction::Ask(_)) => "ask",
        }
    }

    #[test]
    fn agent_is_asked_once_for_a_newer_credential_before_its_own_ends() {
        let mut held = HeldLease::new(certificate("a", 1000, 0));
        assert_eq!(kind(held.due(at(939))), "nothing");
        assert_eq!(kind(held.due(at(940))), "renew", "a minute before");
        assert_eq!(kind(held.due(at(941))), "nothing");
        held.renew(certificate("a", 1000, 941));
        assert_eq!(kind(held.due(at(999))), "nothing", "it has no newer one");
        assert_eq!(kind(held.due(at(1000))), "end");
        assert_eq!(kind(held.due(at(1001))), "end");
    }

    #[test]
    fn credential_in_use_is_the_one_that_counts() {
        let mut held = HeldLease::new(certificate("a", 1000, 0));
        held.renew(certificate("b", 2000, 950));
        assert_eq!(kind(held.due(at(1500))), "nothing", "the end of the one before says nothing");
        assert_eq!(kind(held.due(at(1940))), "renew");
        held.renew(certificate("a", 1950, 1941));
        assert_eq!(held.lease.credential.to_string(), "certificate a");
        assert_eq!(kind(held.due(at(1949))), "renew");
        assert_eq!(kind(held.due(at(1950))), "end");
    }

    #[test]
    fn proof_of_a_token_outlives_a_link_that_another_replica_carries() {
        let token = |id: &str| SessionLease::renewable(Credential::Token(id.parse().unwrap()), None, at(0));
        let proved = SessionLease { proof: Some(Arc::new([1; 32])), ..token("t-1") };
        let mut held = HeldLease::new(proved);
        held.renew(token("t-1"));
        assert_eq!(held.lease.proof.as_deref(), Some(&[1; 32]));
        held.renew(token("t-2"));
        assert_eq!(held.lease.proof, None, "it is another token's");
    }

    #[test]
    fn token_without_an_end_gives_way_to_the_one_that_replaces_it() {
        let token = |id: &str, end| SessionLease::renewable(Credential::Token(id.parse().unwrap()), end, at(0));
        let mut held = HeldLease::new(token("t-1", None));
        held.renew(token("t-2", Some(at(30 * 24 * 60 * 60))));
        assert_eq!(held.lease.credential.token(), Some("t-2".parse().unwrap()));
    }

    #[test]
    fn short_lived_credential_is_renewed_a_second_before_its_end() {
        assert_eq!(certificate("a", 5, 0).renew_at, Some(at(4)));
        assert_eq!(certificate("a", 100, 0).renew_at, Some(at(90)));
        assert_eq!(certificate("a", 10_000, 0).renew_at, Some(at(9940)));
    }

    #[test]
    fn somebody_is_asked_at_the_agreed_pace() {
        let mut lease = certificate("a", 1000, 0);
        let token = Arc::new(Secret::new("t".to_owned()));
        lease.review = Some(Review { cluster: 0, token, every: Duration::from_secs(10) });
        let mut held = HeldLease::new(lease);
        let asked: Vec<i64> = (100..135).filter(|now| kind(held.due(at(*now))) == "ask").collect();
        assert_eq!(asked, [110, 120, 130]);
    }

    #[test]
    fn lease_ends_with_the_first_of_two_credentials() {
        let lease = certificate("a", 1000, 0);
        assert_eq!(lease.clone().within(Some(at(500))).expires_at, Some(at(500)));
        assert_eq!(lease.clone().within(Some(at(5000))).expires_at, Some(at(1000)));
        assert_eq!(lease.within(None).expires_at, Some(at(1000)));
    }
}
