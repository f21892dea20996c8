//! Events of the audit log, field by field. The names here are the log's schema, version
//! [`SCHEMA`](super::line::SCHEMA): fields may be added, but none changes its meaning.

use serde::Serialize;

/// Longest text in a record, in characters.
const TEXT_CHARS_MAX: usize = 256;

/// Most items of a list in a record; the rest is counted.
const ITEMS_MAX: usize = 64;

/// A text from any source, cut to a bound. It is escaped when the line is written.
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
    /// Number of the items cut.
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

/// Kind and id of the client's credential. Never the credential itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Credential {
    /// None: a public port.
    None,
    /// A browser's session, by the id that its user sees.
    Session {
        /// The id.
        id: Text,
    },
    /// A token, by its id.
    Token {
        /// The id; `None` when it could not be looked up.
        id: Option<Text>,
    },
    /// A token known by its hash only. The writer turns it into [`Credential::Token`].
    #[serde(skip)]
    TokenHash([u8; 32]),
    /// Another credential of an agent: a certificate, a token of a cluster or of a CI job.
    Other {
        /// Kind of the credential.
        what: Text,
        /// Its id there.
        id: Text,
    },
}

/// Author of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A user of the gateway.
    User(Text),
    /// An operator with write access to the database, on the gateway's machine: the system's user number.
    Operator(u32),
    /// A job of a CI system: `PROJECT#NUMBER`.
    Job(Text),
    /// The CI system itself.
    Hook,
}

/// Reason for the end of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyEnded {
    /// The client is gone.
    Closed,
    /// A renewed authorisation was refused; the code is the one that a new request would get.
    Cut {
        /// The code.
        code: &'static str,
    },
}

/// An event of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AuditEvent {
    /// The program began to serve.
    GatewayStarted {
        /// Its version.
        version: &'static str,
    },
    /// The program ended orderly.
    GatewayStopped,
    /// A user signed in with a browser.
    SignedIn {
        /// The user.
        user: Text,
        /// Way of the sign-in: `dev_link`, `oidc`.
        how: &'static str,
        /// The session's id, as its user sees it.
        session: Text,
    },
    /// A sign-in failed.
    SignInFailed {
        /// Way of the attempt.
        how: &'static str,
        /// Reason of the failure.
        reason: &'static str,
        /// The user, if the identity provider named one.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<Text>,
    },
    /// A user signed out, or ended a session elsewhere.
    SignedOut {
        /// The user.
        user: Text,
        /// Initiator: `user`, or `provider`, which does not list the sessions.
        how: &'static str,
        /// The sessions that ended.
        sessions: Items,
    },
    /// A client was granted access to a port of a workspace: once per connection, credential and port.
    AccessOpened {
        /// Names this access in the record of its end.
        access: u64,
        /// The user; `None` for an unauthenticated client of a public port.
        user: Option<Text>,
        /// The workspace.
        workspace: Text,
        /// The port.
        port: u16,
        /// Reason of the permission: `owner`, or the audience it is shared with.
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
        /// The reason.
        why: WhyEnded,
        /// Duration of the access, in seconds.
        seconds: u64,
    },
    /// The shares of a workspace were changed.
    SharesChanged {
        /// Author of the change.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// Added shares: `PORT AUDIENCE [until TIME]`.
        added: Items,
        /// Removed shares.
        removed: Items,
    },
    /// A workspace was created that an executor runs for its owner.
    WorkspaceCreated {
        /// Author of the change.
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
    /// The desired state of a workspace was changed.
    WorkspaceRequested {
        /// Author of the change.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// `start`, `stop`, `restart` or `terminate`.
        how: &'static str,
        /// Counts the changes of this workspace's desired state.
        generation: u64,
    },
    /// A workspace was stopped because it was not used.
    WorkspaceIdle {
        /// The workspace.
        workspace: Text,
        /// Time since which it was not used.
        since: Text,
        /// What counted as use last, and whose it was; `None` if nothing did since its start.
        #[serde(skip_serializing_if = "Option::is_none")]
        last: Option<Text>,
        /// Counts the changes of this workspace's desired state.
        generation: u64,
    },
    /// A workspace is kept from being stopped for idleness.
    WorkspaceKept {
        /// Author of the change.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// Until then.
        until: Text,
    },
    /// The time limit of a workspace without use was changed.
    WorkspaceIdleLimit {
        /// Author of the change.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// Seconds, `off` or `default`.
        limit: Text,
    },
    /// The owner of a workspace ended what a user had open there.
    AccessEndedByOwner {
        /// Author of the end.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// The port.
        port: u16,
        /// The user whose access it was; `None` without a sign-in.
        user: Option<Text>,
    },
    /// A workspace that runs elsewhere was given to another user, without its shares and tokens.
    WorkspaceHandedOver {
        /// Author of the change.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// Its owner from now on.
        to: Text,
    },
    /// A workspace got another display name, or none.
    WorkspaceRenamed {
        /// Author of the change.
        by: Actor,
        /// The workspace.
        workspace: Text,
        /// The name that people read.
        display_name: Option<Text>,
    },
    /// The record of a terminated workspace was deleted.
    WorkspaceForgotten {
        /// Author of the change.
        by: Actor,
        /// Its name.
        workspace: Text,
    },
    /// An operator had an orphan removed from a cluster, with its storage.
    OrphanRemoved {
        /// Author of the change.
        by: Actor,
        /// The cluster.
        cluster: Text,
        /// Name and namespace of the orphan: `NAME.NAMESPACE`.
        orphan: Text,
        /// `gone`, `leaving` while objects of it are still being deleted, `failed`, or `called_off` if the caller went away
        /// before the cluster answered.
        state: &'static str,
    },
    /// A user was disabled or enabled again.
    UserChanged {
        /// Author of the change.
        by: Actor,
        /// The user.
        user: Text,
        /// `disabled` or `enabled`.
        how: &'static str,
    },
    /// A replica was asked to drain.
    ReplicaDrained {
        /// Author of the request.
        by: Actor,
        /// Number of its process start.
        replica: Text,
        /// `drain` or `drain now`.
        how: &'static str,
    },
    /// A running gateway took over a changed configuration.
    ConfigurationReloaded {
        /// The keys with new values.
        keys: Items,
    },
    /// A backup was made.
    BackupMade {
        /// Author of the backup.
        by: Actor,
        /// Whether it has the keys of the secrets.
        keys: bool,
    },
    /// A backup was brought back.
    BackupRestored {
        /// Author of the change.
        by: Actor,
        /// Time at which the backup was made, in seconds since 1970.
        made_at: i64,
    },
    /// The keys that seal secrets were changed.
    KeysChanged {
        /// Author of the change.
        by: Actor,
        /// `add`, `promote`, `reseal` or `drop`.
        how: &'static str,
        /// Name of the key that seals.
        first: Text,
    },
    /// A token was made.
    TokenCreated {
        /// Author of the change.
        by: Actor,
        /// Its id.
        token: Text,
        /// `agent`, `cluster` or `user`.
        subject_kind: &'static str,
        /// The workspace, cluster or user that it speaks for.
        subject: Text,
        /// End of its validity.
        expires_at: Option<Text>,
        /// Note of its creator.
        note: Option<Text>,
    },
    /// A token was revoked.
    TokenRevoked {
        /// Author of the change.
        by: Actor,
        /// Its id.
        token: Text,
    },
    /// A token got a successor.
    TokenRotated {
        /// Author of the change.
        by: Actor,
        /// The old one's id.
        token: Text,
        /// The new one's id.
        successor: Text,
        /// End of the old one's validity.
        until: Text,
    },
    /// A user let a program on another machine act for them.
    DeviceApproved {
        /// The user.
        user: Text,
        /// Name that the machine gave itself.
        machine: Text,
        /// Address that it asked from.
        asked_from: Text,
    },
    /// A user refused such a request.
    DeviceDenied {
        /// The user.
        user: Text,
        /// Name that the machine gave itself.
        machine: Text,
        /// Address that it asked from.
        asked_from: Text,
    },
    /// An agent's session came up, or was resumed over another link.
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
    /// An agent was refused.
    AgentRefused {
        /// The workspace of its credential, if known.
        workspace: Option<Text>,
        /// The cluster of its credential, if it is of one.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<Text>,
        /// The reason.
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
        /// The reason.
        reason: Text,
    },
    /// A workspace asked for its owner's credential for a git server.
    GitCredentialAsked {
        /// The workspace.
        workspace: Text,
        /// Its owner, whose credential it is.
        owner: Text,
        /// The server, as the workspace named it.
        host: Text,
        /// `given`, `refused_by_host` for one that the server did not take, or the reason why there was none.
        outcome: &'static str,
    },
    /// A user stored or removed a credential for a git server.
    GitCredentialChanged {
        /// Author of the change.
        by: Actor,
        /// The server.
        host: Text,
        /// `stored` or `removed`.
        how: &'static str,
    },
    /// The state of an environment of jobs was set.
    EnvironmentChanged {
        /// Author of the change.
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
    /// The objects that a job needs in its environment were applied, or could not be.
    EnvironmentPrepared {
        /// Its number.
        environment: Text,
        /// Its project.
        project: Text,
        /// Its name.
        name: Text,
        /// The job's number; none for a request of an operator.
        job: Option<u64>,
        /// The template.
        template: Text,
        /// `completed`, or the code of the failure.
        outcome: &'static str,
    },
    /// No own object of an environment is left.
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
    /// The record of an environment was deleted without asking its cluster. An environment with many objects has
    /// several of these records.
    EnvironmentForgotten {
        /// Initiator.
        by: Actor,
        /// Its number.
        environment: Text,
        /// Its project.
        project: Text,
        /// Its name.
        name: Text,
        /// Inventory mark of its objects.
        inventory: Text,
        /// Objects of it that may be left in the cluster: `GROUP/VERSION KIND NAMESPACE/NAME`.
        objects: Items,
    },
    /// The environments of a project that is gone were stopped.
    EnvironmentsSwept {
        /// Initiator.
        by: Actor,
        /// The project.
        project_id: u64,
        /// Number of these environments.
        environments: u32,
    },
    /// Records are missing here.
    RecordsLost {
        /// Number lost because the queue was full.
        queue_full: u64,
        /// Number lost because unauthenticated clients caused too many in a second.
        strangers: u64,
        /// Number lost because the file could not be written.
        unwritten: u64,
    },
}

impl AuditEvent {
    /// Returns whether any client on the network can cause it without a credential.
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
