//! Types of the tables' contents.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use gateway_types::markup::is_printable;
use gateway_types::token::{Token, TokenKind};
use gateway_types::{
    Audience, ClusterName, DisplayName, GroupName, NamedPort, Port, Share, UnixSeconds, UserName, WorkspaceName,
};

/// The text is not an id of the kind that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an id is {prefix} and a number, such as {prefix}12")]
pub struct BadId {
    prefix: &'static str,
}

fn parse_id(text: &str, prefix: &'static str) -> Result<i64, BadId> {
    let digits = text.strip_prefix(prefix).ok_or(BadId { prefix })?;
    if digits.is_empty() || digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadId { prefix });
    }
    digits.parse().map_err(|_| BadId { prefix })
}

/// Id of a stored token; never used again. Displays as `t-12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenId(pub(super) i64);

impl FromStr for TokenId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_id(text, "t-").map(Self)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "t-{}", self.0)
    }
}

/// Permanent id of a workspace, also after another has taken its name. Displays as `w-12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceId(pub(super) i64);

impl FromStr for WorkspaceId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_id(text, "w-").map(Self)
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "w-{}", self.0)
    }
}

/// Permanent id of a cluster. Displays as `c-12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(pub(super) i64);

impl ClusterId {
    /// Returns its number, as used in templates.
    #[must_use]
    pub fn get(self) -> u64 {
        u64::try_from(self.0).unwrap_or_default()
    }
}

impl FromStr for ClusterId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_id(text, "c-").map(Self)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "c-{}", self.0)
    }
}

/// Executor of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// Outside the gateway's control: an agent connects, or not.
    External,
    /// The agent of a Kubernetes cluster, under the gateway's control.
    Kubernetes,
    /// A job of a CI system, which the gateway makes and ends.
    Ci,
}

impl Executor {
    /// Returns the executor as one lower-case word, as stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Kubernetes => "kubernetes",
            Self::Ci => "ci",
        }
    }

    /// Returns whether the gateway runs such a workspace for its owner.
    #[must_use]
    pub fn is_managed(self) -> bool {
        match self {
            Self::External => false,
            Self::Kubernetes | Self::Ci => true,
        }
    }

    pub(super) fn from_stored(text: &str) -> Option<Self> {
        match text {
            "external" => Some(Self::External),
            "kubernetes" => Some(Self::Kubernetes),
            "ci" => Some(Self::Ci),
            _ => None,
        }
    }
}

/// A workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its id.
    pub id: WorkspaceId,
    /// Its name, unique at any one time.
    pub name: WorkspaceName,
    /// Its owner.
    pub owner: UserName,
    /// Its executor.
    pub executor: Executor,
    /// Time of its creation.
    pub created_at: UnixSeconds,
    /// The name that people read, if its owner gave it one.
    pub display_name: Option<DisplayName>,
    /// Its shares, including expired ones.
    pub shares: Arc<[Share]>,
    /// The ports that its devfile or the request for it named; empty in lists.
    pub ports: Arc<[NamedPort]>,
}

impl Workspace {
    /// Returns the name that people read: the display name, or else the name.
    #[must_use]
    pub fn title(&self) -> &str {
        self.display_name.as_ref().map_or(self.name.as_str(), DisplayName::as_str)
    }

    /// Returns the ports that its devfile wants to be open to an audience, and that its owner has not opened to it.
    pub fn proposals(&self, now: UnixSeconds) -> impl Iterator<Item = (&NamedPort, &Audience)> {
        let pending = move |named: &&NamedPort| {
            let is_it = |share: &Share| share.port == named.port && Some(&share.audience) == named.proposed.as_ref();
            !self.shares.iter().any(|share| is_it(share) && share.is_live(now))
        };
        self.ports.iter().filter(pending).filter_map(|named| Some((named, named.proposed.as_ref()?)))
    }

    /// Returns the named port of that number, if it has one.
    #[must_use]
    pub fn named_port(&self, port: Port) -> Option<&NamedPort> {
        self.ports.iter().find(|named| named.port == port)
    }
}

/// Subject that a stored token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSubject {
    /// The agent of a workspace.
    Agent {
        /// The workspace's id.
        workspace_id: WorkspaceId,
        /// The workspace's name.
        workspace: WorkspaceName,
    },
    /// A program of a user.
    User {
        /// The user.
        user: UserName,
    },
    /// The agent of a cluster.
    Cluster {
        /// The cluster's id.
        cluster_id: ClusterId,
        /// The cluster's name.
        cluster: ClusterName,
    },
}

impl TokenSubject {
    /// Returns the kind of token.
    #[must_use]
    pub fn kind(&self) -> TokenKind {
        match self {
            Self::Agent { .. } => TokenKind::Agent,
            Self::User { .. } => TokenKind::User,
            Self::Cluster { .. } => TokenKind::Cluster,
        }
    }
}

/// A stored token, live or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its id.
    pub id: TokenId,
    /// Its subject.
    pub subject: TokenSubject,
    /// The last characters of its text.
    pub hint: String,
    /// Time of its creation.
    pub created_at: UnixSeconds,
    /// End of its validity; `None` means never.
    pub expires_at: Option<UnixSeconds>,
    /// Time of its revocation.
    pub revoked_at: Option<UnixSeconds>,
    /// Note of its creator.
    pub note: Option<Note>,
    /// The token that took its place.
    pub replaced_by: Option<TokenId>,
}

impl TokenRecord {
    /// Returns whether the token is valid now. A revoked one never does, even if the clock says that it will be revoked
    /// later: clocks of replicas differ, and a revocation takes effect at once.
    #[must_use]
    pub fn is_live(&self, now: UnixSeconds) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

/// Note of a token's creator about it: 1 to [`NOTE_CHARS_MAX`] printable characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note(String);

/// Longest note, in characters.
pub const NOTE_CHARS_MAX: usize = 200;

/// The text is not a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a note has 1 to {NOTE_CHARS_MAX} printable characters")]
pub struct BadNote;

impl Note {
    /// Returns the note as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes a note of any text: removes unprintable characters and cuts it to its bound.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let kept: String = text.chars().filter(|character| is_printable(*character)).take(NOTE_CHARS_MAX).collect();
        kept.trim().parse().ok()
    }
}

impl FromStr for Note {
    type Err = BadNote;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_long = text.chars().nth(NOTE_CHARS_MAX).is_some();
        if text.is_empty() || is_long || !text.chars().all(is_printable) {
            Err(BadNote)
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

/// Properties of a new token, beside its subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Note of its creator.
    pub note: Option<Note>,
    /// End of its validity; `None` means never.
    pub expires_at: Option<UnixSeconds>,
}

/// Outcome of a user's request for a token.
#[derive(Clone, Debug)]
pub enum TokenCreation {
    /// It was made.
    Made(NewToken),
    /// There is no such workspace, or it belongs to another user.
    NoSuchWorkspace,
    /// The limit of live tokens is reached.
    TooMany,
}

/// Outcome of rotating a token.
#[derive(Clone, Debug)]
pub enum TokenRotation {
    /// It has a successor.
    Done {
        /// The successor.
        successor: NewToken,
        /// End of the successor's validity.
        expires_at: Option<UnixSeconds>,
        /// End of the old token's validity.
        until: UnixSeconds,
        /// Hash of the old token, for removing it from caches.
        old_hash: [u8; 32],
    },
    /// There is none of that id, or it belongs to another user.
    NoSuchToken,
    /// It was revoked, has expired, or has a successor already.
    NotLive,
}

/// A user, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: UserName,
    /// The issuer and its own name for the user; `None` before the first sign-in with a provider.
    pub subject: Option<(String, String)>,
    /// Groups at the last sign-in.
    pub groups: Arc<[GroupName]>,
    /// Time of the row's creation.
    pub created_at: UnixSeconds,
    /// Time of the last sign-in.
    pub last_seen: Option<UnixSeconds>,
    /// Time since which the user is disabled.
    pub disabled_at: Option<UnixSeconds>,
}

/// Decision about a user authenticated by an identity provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Admitted under this name.
    As(UserName),
    /// The user is new, and the desired name belongs to another person.
    NameTaken,
    /// The operator has disabled the user.
    Disabled,
}

/// A token that was just made. Its text exists only now.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The id under which it is listed and revoked.
    pub id: TokenId,
    /// The token.
    pub token: Token,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(expires_at: Option<i64>, revoked_at: Option<i64>) -> TokenRecord {
        TokenRecord {
            id: TokenId(1),
            subject: TokenSubject::User { user: "dev".parse().unwrap() },
            hint: "abcd".to_owned(),
            created_at: UnixSeconds::new(0),
            expires_at: expires_at.map(UnixSeconds::new),
            revoked_at: revoked_at.map(UnixSeconds::new),
            note: None,
            replaced_by: None,
        }
    }

    #[test]
    fn token_is_live_until_it_expires_or_is_revoked() {
        let now = UnixSeconds::new(100);
        assert!(record(None, None).is_live(now));
        assert!(record(Some(101), None).is_live(now));
        assert!(!record(Some(100), None).is_live(now));
        assert!(!record(None, Some(50)).is_live(now));
        assert!(!record(None, Some(150)).is_live(now));
        assert!(!record(Some(101), Some(50)).is_live(now));
    }

    #[test]
    fn ids_read_back_and_do_not_mix() {
        assert_eq!("t-12".parse(), Ok(TokenId(12)));
        assert_eq!(TokenId(12).to_string(), "t-12");
        assert_eq!(WorkspaceId(3).to_string().parse(), Ok(WorkspaceId(3)));
        assert_eq!(ClusterId(4).to_string().parse(), Ok(ClusterId(4)));
        for text in ["", "12", "w-12", "t-", "t-0", "t-012", "t--1", "t-+1", "t-9223372036854775808"] {
            assert!(text.parse::<TokenId>().is_err(), "{text:?}");
        }
    }
}
