//! Shares: access to ports of a workspace beside its owner's.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::ssh::SSH_PORT;
use tunnel_proto::terminal::TERMINAL_PORT;

use super::{BadGroupName, BadUserName, GroupName, Port, UnixSeconds, UserName};

/// One port, opened to an audience, perhaps for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The port.
    pub port: Port,
    /// Its audience.
    pub audience: Audience,
    /// End of its validity; `None` means never.
    pub expires_at: Option<UnixSeconds>,
}

/// Audience of a share. Parses and displays as `user:NAME`, `group:NAME`, `signed-in` or `public`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Audience {
    /// One user.
    User(UserName),
    /// All users in this group of the identity provider.
    Group(GroupName),
    /// All signed-in users.
    SignedIn,
    /// Any client, without sign-in.
    Public,
}

/// The text names no audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadAudience {
    /// None of the four shapes.
    #[error("an audience is `user:NAME`, `group:NAME`, `signed-in` or `public`")]
    Shape,
    /// A bad name after `user:`.
    #[error(transparent)]
    User(#[from] BadUserName),
    /// A bad name after `group:`.
    #[error(transparent)]
    Group(#[from] BadGroupName),
}

/// A port of this product's own cannot be shared so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RefusedShare {
    /// The terminal, with unnamed audiences.
    #[error(
        "port {TERMINAL_PORT} is the workspace's terminal: it can be shared with a user or a group, not with everybody"
    )]
    TerminalForAll,
    /// SSH, with anyone.
    #[error(
        "port {SSH_PORT} is the workspace's SSH server, which lets its owner in without a password: it cannot be shared"
    )]
    Ssh,
    /// The request inspector, with anyone.
    #[error(
        "port {INSPECTOR_PORT} is the workspace's request inspector, which shows what all users of its apps send: it cannot be shared"
    )]
    Inspector,
}

impl Share {
    /// Checks whether such a share is allowed: a terminal is shared by name only, SSH and the request inspector not at all.
    ///
    /// # Errors
    /// [`RefusedShare`].
    pub fn check(&self) -> Result<(), RefusedShare> {
        if self.port.is_ssh() {
            return Err(RefusedShare::Ssh);
        }
        if self.port.is_inspector() {
            return Err(RefusedShare::Inspector);
        }
        if self.port.is_terminal() && !self.audience.is_personal() {
            return Err(RefusedShare::TerminalForAll);
        }
        Ok(())
    }

    /// Returns whether it is still valid.
    #[must_use]
    pub fn is_live(&self, now: UnixSeconds) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

impl Audience {
    /// Returns whether it names a user or a group.
    #[must_use]
    pub fn is_personal(&self) -> bool {
        match self {
            Self::User(_) | Self::Group(_) => true,
            Self::SignedIn | Self::Public => false,
        }
    }

    /// Returns the kind as one word, as stored.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Group(_) => "group",
            Self::SignedIn => "signed-in",
            Self::Public => "public",
        }
    }

    /// Returns the user's or group's name.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::User(user) => Some(user.as_str()),
            Self::Group(group) => Some(group.as_str()),
            Self::SignedIn | Self::Public => None,
        }
    }
}

impl FromStr for Audience {
    type Err = BadAudience;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("user", name)) => Ok(Self::User(name.parse()?)),
            Some(("group", name)) => Ok(Self::Group(name.parse()?)),
            None if text == "signed-in" => Ok(Self::SignedIn),
            None if text == "public" => Ok(Self::Public),
            Some(_) | None => Err(BadAudience::Shape),
        }
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject() {
            Some(subject) => write!(formatter, "{}:{subject}", self.kind()),
            None => formatter.write_str(self.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audiences_read_as_they_display() {
        for text in ["user:ann", "group:devs", "group:a:b", "signed-in", "public"] {
            assert_eq!(text.parse::<Audience>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_audience_is_refused_with_the_reason() {
        for text in ["", "ann", "users:ann", "public:all", "Public", "user", "signed_in"] {
            assert_eq!(text.parse::<Audience>(), Err(BadAudience::Shape), "{text:?}");
        }
        assert_eq!("user:".parse::<Audience>(), Err(BadAudience::User(BadUserName)));
        assert_eq!("group:a b".parse::<Audience>(), Err(BadAudience::Group(BadGroupName)));
    }

    #[test]
    fn terminal_is_shared_by_name_and_ssh_and_the_inspector_not_at_all() {
        let check = |port: u16, audience: &str| {
            let audience = audience.parse().unwrap();
            Share { port: Port::new(port).unwrap(), audience, expires_at: None }.check()
        };
        for audience in ["user:ann", "group:devs", "signed-in", "public"] {
            assert_eq!(check(60_001, audience), Ok(()));
            let expected = if audience.contains(':') { Ok(()) } else { Err(RefusedShare::TerminalForAll) };
            assert_eq!(check(60_002, audience), expected, "{audience}");
            assert_eq!(check(60_022, audience), Err(RefusedShare::Ssh), "{audience}");
            assert_eq!(check(60_003, audience), Err(RefusedShare::Inspector), "{audience}");
        }
    }

    #[test]
    fn share_counts_until_it_expires() {
        let share = |expires_at: Option<i64>| Share {
            port: Port::new(80).unwrap(),
            audience: Audience::Public,
            expires_at: expires_at.map(UnixSeconds::new),
        };
        let now = UnixSeconds::new(100);
        assert!(share(None).is_live(now) && share(Some(101)).is_live(now));
        assert!(!share(Some(100)).is_live(now));
    }
}
