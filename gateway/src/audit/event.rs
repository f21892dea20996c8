//! What can be recorded, field by field. The names here are the log's schema, version [`SCHEMA`](super::line::SCHEMA):
//! fields may be added, but none changes its meaning.

use serde::Serialize;

/// Longest text in a record, in characters.
const TEXT_CHARS_MAX: usize = 256;

/// Most items of a list in a record; the rest is counted.
const ITEMS_MAX: usize = 64;

/// A text that came from somewhere, cut to a bound. Escaping is the line's business.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Cuts a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.char_indices().nth(TEXT_CHARS_MAX) {
            None => Self(text.to_owned()),
            Some((end, _)) => Self(format!("{}…", text.get(..end).unwrap_or_default())),
        }
    }

    /// Writes a value as a text.
    #[must_use]
    pub fn of(value: impl std::fmt::Display) -> Self {
        Self::new(&value.to_string())
    }
}

/// A list, cut to a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Items {
    /// The first of them.
    items: Vec<Text>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl<T: std::fmt::Display> FromIterator<T> for Items {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values = values.into_iter();
        let items = values.by_ref().take(ITEMS_MAX).map(Text::of).collect();
        Self { items, more: values.count() }
    }
}

/// With what somebody proved who they are. Never the credential itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Credential {
    /// None: a public port.
    None,
    /// A browser's session, by the id under which its user sees it.
    Session {
        /// The id.
        id: Text,
    },
    /// A token, by its id.
    Token {
        /// The id; `None` when it could not be looked up.
        id: Option<Text>,
    },
    /// A token of which only the hash is at hand. The writer turns it into [`Credential::Token`].
    #[serde(skip)]
    TokenHash([u8; 32]),
    /// What else an agent can show: a certificate, a token of a cluster or of a CI job.
    Other {
        /// Which.
        what: Text,
        /// Its id there.
        id: Text,
    },
}

/// Who changed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A user of the gateway.
    User(Text),
    /// Whoever can write the database, on the gateway's machine: the system's user number.
    Operator(u32),
    /// A job of a CI system: `PROJECT#NUMBER`.
    Job(Text),
    /// The CI system itself.
    Hook,
}

/// Why an access ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyEnded {
    /// Whoever had it is gone.
    Closed,
    /// It was asked again whether they may, and the answer was no; the code is what a new request is told.
    Cut {
        /// The code.
        code: &'static str,
    },
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The program began to serve.
    GatewayStarted {
        /// Its version.
        version: &'static str,
    },
    /// The program ended in order.
    GatewayStopped,
    /// Somebody signed in with a browser.
    SignedIn {
        /// Who.
        user: Text,
        /// How: `dev_link`, `oidc`.
        how: &'static str,
        /// The session's id, as its user sees it.
        session: Text,
    },
    /// A sign-in failed.
    SignInFailed {
        /// How it was tried.
        how: &'static str,
        /// Why it failed.
        reason: &'static str,
        /// Who, where the identity provider has said so.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<Text>,
    },
    /// Somebody signed out, or ended a session elsewhere.
    SignedOut {
        /// Who.
        user: Text,
        /// By whose word: `user`, or `provider`, which does not say which sessions.
        how: &'static str,
        /// The sessions that ended.
        sessions: Items,
    },
    /// A port of a workspace was opened to somebody: once per connection, credential and port.
    AccessOpened {
        /// Names this access in the record of its end.
        access: u64,
        /// Who; `None` for whoever comes to a public port.
        user: Option<Text>,
        /// The workspace.
        workspace: Text,
        /// The port.
        port: u16,
        /// Why it was allowed: `owner`, or the audience it is shared with.
        because: Text,
    },
    /// An access ended.
    AccessEnded {
        /// The number in the record of its begin.
        access: u64,
        /// The workspace.
        workspace: Text,
        /// The port.
        port: u16,
        /// Why.
        why: WhyEnded,
        /// How long it lasted, in seconds.
        seconds: u64,
    },
    /// Somebody changed who may reach which port.
    SharesChanged {
        /// Who did.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// What was added: `PORT AUDIENCE [until TIME]`.
        added: Items,
        /// What was taken back.
        removed: Items,
    },
    /// A workspace was made that somebody runs for its owner.
    WorkspaceCreated {
        /// By whom.
        by: Actor,
        /// Its name.
        workspace: Text,
        /// The cluster that is to run it, if one is.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<Text>,
        /// The CI system that is to run it, if one is.
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<Text>,
    },
    /// Somebody changed what a workspace is to be.
    WorkspaceRequested {
        /// Who did.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// `start`, `stop`, `restart` or `terminate`.
        how: &'static str,
        /// Counts the changes of intent of this workspace.
        generation: u64,
    },
    /// A workspace of which nothing is left was taken off the lists.
    WorkspaceForgotten {
        /// By whom.
        by: Actor,
        /// Its name.
        workspace: Text,
    },
    /// A user was shut out, or let in again.
    UserChanged {
        /// By whom.
        by: Actor,
        /// Who.
        user: Text,
        /// `disabled` or `enabled`.
        how: &'static str,
    },
    /// A token was made.
    TokenCreated {
        /// By whom.
        by: Actor,
        /// Its id.
        token: Text,
        /// `agent`, `cluster` or `user`.
        subject_kind: &'static str,
        /// The workspace, cluster or user that it speaks for.
        subject: Text,
        /// Until when it is good.
        expires_at: Option<Text>,
        /// What its maker said of it.
        note: Option<Text>,
    },
    /// A token was revoked.
    TokenRevoked {
        /// By whom.
        by: Actor,
        /// Its id.
        token: Text,
    },
    /// A token got a successor.
    TokenRotated {
        /// By whom.
        by: Actor,
        /// The old one's id.
        token: Text,
        /// The new one's id.
        successor: Text,
        /// Until when the old one is good.
        until: Text,
    },
    /// Somebody let a program on another machine act for them.
    DeviceApproved {
        /// Who.
        user: Text,
        /// What the machine calls itself.
        machine: Text,
        /// From where it asked.
        asked_from: Text,
    },
    /// Somebody refused that.
    DeviceDenied {
        /// Who.
        user: Text,
        /// What the machine calls itself.
        machine: Text,
        /// From where it asked.
        asked_from: Text,
    },
    /// An agent's session came up, or went on over another link.
    AgentConnected {
        /// The workspace, if it is the agent of one.
        #[serde(skip_serializing_if = "Option::is_none")]
        workspace: Option<Text>,
        /// The cluster, if it is a cluster agent.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<Text>,
        /// The session.
        session: Text,
        /// `new`, `resumed` or `lane`.
        how: &'static str,
        /// The agent's version, as it said.
        agent_version: Text,
    },
    /// An agent was turned away.
    AgentRefused {
        /// The workspace that its credential stands for, where that is known.
        workspace: Option<Text>,
        /// The cluster that its credential stands for, where it is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<Text>,
        /// Why.
        reason: Text,
    },
    /// An agent's session ended.
    AgentEnded {
        /// The workspace, if it is the agent of one.
        #[serde(skip_serializing_if = "Option::is_none")]
        workspace: Option<Text>,
        /// The cluster, if it is a cluster agent.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<Text>,
        /// The session.
        session: Text,
        /// Why.
        reason: Text,
    },
    /// Somebody said what an environment of jobs is to be.
    EnvironmentChanged {
        /// Who did.
        by: Actor,
        /// Its number.
        environment: Text,
        /// Its project.
        project: Text,
        /// Its name.
        name: Text,
        /// `asked_for`, `available`, `stopping`, `stopped` or `removed`.
        how: &'static str,
    },
    /// What a job needs in its environment was made, or could not be.
    EnvironmentPrepared {
        /// Its number.
        environment: Text,
        /// Its project.
        project: Text,
        /// Its name.
        name: Text,
        /// The job's number; none where an operator asked.
        job: Option<u64>,
        /// The template.
        template: Text,
        /// `completed`, or why not.
        outcome: &'static str,
    },
    /// Nothing is left of what was an environment's own.
    EnvironmentRemoved {
        /// Its number.
        environment: Text,
        /// Its project.
        project: Text,
        /// Its name.
        name: Text,
        /// Objects that were recorded and left in the cluster: they are not its own, or no longer.
        kept: usize,
    },
    /// An environment was forgotten without asking its cluster. Of one with many objects there are several of these.
    EnvironmentForgotten {
        /// By whose word.
        by: Actor,
        /// Its number.
        environment: Text,
        /// Its project.
        project: Text,
        /// Its name.
        name: Text,
        /// What marks its objects.
        inventory: Text,
        /// What may be left of it in the cluster: `GROUP/VERSION KIND NAMESPACE/NAME`.
        objects: Items,
    },
    /// The environments of a project that is gone were stopped.
    EnvironmentsSwept {
        /// By whose word.
        by: Actor,
        /// The project.
        project_id: u64,
        /// How many there were.
        environments: u32,
    },
    /// Records are missing here.
    RecordsLost {
        /// Because the queue was full.
        queue_full: u64,
        /// Because strangers caused too many of them in a second.
        strangers: u64,
        /// Because the file could not be written.
        unwritten: u64,
    },
}

impl Event {
    /// Returns whether anybody on the network can cause it without a credential.
    #[must_use]
    pub fn is_by_stranger(&self) -> bool {
        matches!(self, Self::SignInFailed { .. } | Self::AgentRefused { .. })
    }

    /// Returns whether it is one of the many that come with each connection.
    #[must_use]
    pub fn is_access(&self) -> bool {
        matches!(self, Self::AccessOpened { .. } | Self::AccessEnded { .. })
    }
}
