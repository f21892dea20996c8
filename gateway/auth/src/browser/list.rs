//! A user's own sessions: listed, and ended one by one or all at once.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;
use tokio::time::Instant;

use super::{BrowserSessions, Lifetimes, age};
use gateway_types::UserName;
use gateway_types::opaque::Digest;

/// Displayable name of a public session: `s-` and 16 characters. It is not the cookie, and the cookie cannot be derived
/// from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName(String);

/// Returns the name of a public session.
#[must_use]
pub fn session_name(id: &Digest) -> SessionName {
    SessionName(format!("s-{}", id.named("session")))
}

/// The text is not the name of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the id of a session is s- and 16 characters")]
pub struct BadSessionName;

impl FromStr for SessionName {
    type Err = BadSessionName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 12];
        let decoded = text.strip_prefix("s-").map(|name| URL_SAFE_NO_PAD.decode_slice(name, &mut bytes));
        if matches!(decoded, Some(Ok(12))) { Ok(Self(text.to_owned())) } else { Err(BadSessionName) }
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A live public session as its user sees it. Times are ages, because the clock of the sessions has no date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its name.
    pub name: SessionName,
    /// Time since it began.
    pub age: Duration,
    /// Time since its last use.
    pub idle: Duration,
    /// Time until it ends if it is not used.
    pub ends_in: Duration,
    /// The address of the sign-in.
    pub peer: IpAddr,
    /// The workspace hosts that it is signed in to, the newest first.
    pub hosts: Vec<HostSignIn>,
}

/// One sign-in to a workspace host. A sign-in unknown to the user may be another person's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSignIn {
    /// The host.
    pub host: Box<str>,
    /// Time since the sign-in.
    pub age: Duration,
    /// Time since its last use.
    pub idle: Duration,
    /// Address of the browser.
    pub peer: IpAddr,
}

impl BrowserSessions {
    /// Returns the live public sessions of a user, the newest first.
    #[must_use]
    pub fn list(&self, user: &UserName, now: Instant) -> Vec<SessionRow> {
        let state = self.state.read();
        let Lifetimes { idle_max, age_max } = self.lifetimes;
        let mut hosts: HashMap<Digest, Vec<HostSignIn>> = HashMap::new();
        for session in state.hosts.values().filter(|session| session.parent_session.who.user == *user) {
            if session.is_live(self.epoch, now) {
                hosts.entry(session.parent).or_default().push(HostSignIn {
                    host: session.host.clone(),
                    age: age(self.epoch, now, session.opened_ms),
                    idle: session.used.age(self.epoch, now),
                    peer: session.peer,
                });
            }
        }
        hosts.values_mut().for_each(|hosts| hosts.sort_by_key(|host| host.age));
        let theirs = state.public.iter().filter(|(_, session)| session.who.user == *user);
        let mut rows: Vec<SessionRow> = theirs
            .filter(|(_, session)| session.is_live(self.epoch, now))
            .map(|(id, session)| {
                let (age, idle) = (age(self.epoch, now, session.opened_ms), session.used.age(self.epoch, now));
                SessionRow {
                    name: session_name(id),
                    age,
                    idle,
                    ends_in: age_max.saturating_sub(age).min(idle_max.saturating_sub(idle)),
                    peer: session.peer,
                    hosts: hosts.remove(id).unwrap_or_default(),
                }
            })
            .collect();
        rows.sort_by_key(|row| row.age);
        rows
    }

    /// Returns the hosts at which a browser with this public session is signed in. Looks at all sessions of hosts.
    #[must_use]
    pub fn hosts_of(&self, public: &Digest, now: Instant) -> HashSet<Box<str>> {
        let state = self.state.read();
        let theirs = state.hosts.values().filter(|session| session.parent == *public);
        theirs.filter(|session| session.is_live(self.epoch, now)).map(|session| session.host.clone()).collect()
    }

    /// Returns the name of the public session behind a session of a host.
    #[must_use]
    pub fn name_of_host(&self, id: &Digest) -> Option<SessionName> {
        self.state.read().hosts.get(id).map(|session| session_name(&session.parent))
    }

    /// Ends the session of a user that has this name, and all its children; returns whether there was one.
    pub fn end_named(&self, user: &UserName, name: &SessionName) -> bool {
        let mut state = self.state.write();
        let found = state.public.iter().find(|(id, session)| session.who.user == *user && session_name(id) == *name);
        let Some(id) = found.map(|(id, _)| *id) else { return false };
        let is_ended = state.end_public(&id).is_some();
        self.settle(&mut state);
        is_ended
    }

    /// Ends all sessions of a user, and returns their names.
    pub fn end_all(&self, user: &UserName) -> Vec<SessionName> {
        let mut state = self.state.write();
        let theirs = state.public.iter().filter(|(_, session)| session.who.user == *user);
        let ids: Vec<Digest> = theirs.map(|(id, _)| *id).collect();
        for id in &ids {
            state.end_public(id);
        }
        self.settle(&mut state);
        ids.iter().map(session_name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_types::opaque::Opaque;

    const HOST: &str = "8080-app.zone";
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn user(name: &str) -> UserName {
        name.parse().unwrap()
    }

    #[test]
    fn user_sees_and_ends_their_own_sessions_only() {
        let start = Instant::now();
        let sessions = BrowserSessions::new(start, Lifetimes::default());
        let ids: Vec<Opaque> = (0..3).map(|_| Opaque::random().unwrap()).collect();
        sessions.open_public(&ids[0], user("ann"), PEER, start);
        sessions.open_public(&ids[1], user("ann"), PEER, start + Duration::from_secs(60));
        sessions.open_public(&ids[2], user("bob"), PEER, start);
        let host = Opaque::random().unwrap();
        let now = start + Duration::from_secs(120);
        sessions.open_host(&host, ids[0].digest(), HOST, PEER, now).unwrap();
        let rows = sessions.list(&user("ann"), now);
        assert_eq!(
            rows.iter().map(|row| (row.age.as_secs(), row.hosts.len())).collect::<Vec<_>>(),
            [(60, 0), (120, 1)]
        );
        assert_eq!(rows[1].ends_in, Lifetimes::default().idle_max - Duration::from_secs(120));
        assert_eq!(rows[1].name, session_name(&ids[0].digest()));

        assert_eq!(sessions.name_of_host(&host.digest()), Some(rows[1].name.clone()));
        assert!(!sessions.end_named(&user("bob"), &rows[1].name), "somebody else's");
        assert!(sessions.end_named(&user("ann"), &rows[1].name) && !sessions.end_named(&user("ann"), &rows[1].name));
        assert_eq!(sessions.host(&host.digest(), HOST, now), None, "its children end too");
        assert_eq!(sessions.end_all(&user("ann")), [rows[0].name.clone()]);
        assert_eq!(sessions.list(&user("ann"), now), []);
        assert_eq!(sessions.public(&ids[2].digest(), now), Some(user("bob")));
    }

    #[test]
    fn name_of_a_session_is_no_credential_and_reads_back() {
        let id = Opaque::random().unwrap();
        let name = session_name(&id.digest());
        assert_eq!(name.to_string().parse(), Ok(name.clone()));
        let text = name.to_string();
        let shown = text.trim_start_matches("s-");
        assert!(Opaque::parse(shown).is_none() && Digest::parse(shown).is_none());
        assert!(!id.reveal().contains(shown) && !id.digest().encoded().contains(shown));
        for text in ["", "s-", "s-x", "t-1", &format!("{name}A"), &id.reveal(), &format!("s-{}", "?".repeat(16))] {
            assert!(text.parse::<SessionName>().is_err(), "{text}");
        }
    }

    #[test]
    fn session_that_ended_is_not_listed() {
        let start = Instant::now();
        let sessions = BrowserSessions::new(start, Lifetimes::default());
        sessions.open_public(&Opaque::random().unwrap(), user("ann"), PEER, start);
        assert_eq!(sessions.list(&user("ann"), start + Lifetimes::default().idle_max), []);
    }
}
