//! Columns of the operators' tables: the member of a row in the API's answer, and its heading.

/// Columns of a table.
pub(super) type Columns = &'static [[&'static str; 2]];

pub(super) const WORKSPACES: Columns = &[
    ["name", "Workspace"],
    ["owner", "Owner"],
    ["executor", "Runs"],
    ["cluster", "Cluster"],
    ["provider", "CI system"],
    ["state", "State"],
    ["connected", "Connected"],
    ["reason", "Reason"],
    ["created_at", "Made"],
];

pub(super) const USERS: Columns = &[
    ["name", "User"],
    ["state", "State"],
    ["groups", "Groups"],
    ["last_sign_in", "Last sign-in"],
    ["workspaces", "Workspaces"],
];

pub(super) const REFUSALS: Columns = &[
    ["at", "When"],
    ["code", "Code"],
    ["detail", "Detail"],
    ["user", "User"],
    ["workspace", "Workspace"],
    ["address", "From"],
    ["count", "Times"],
    ["trace_id", "Trace"],
];

pub(super) const LIMITS: Columns = &[
    ["limit", "Limit"],
    ["user", "User"],
    ["address", "From"],
    ["workspace", "Workspace"],
    ["count", "Times"],
    ["last_at", "Last"],
];

pub(super) const RECORDS: Columns = &[
    ["at", "When"],
    ["event", "Event"],
    ["actor", "Actor"],
    ["workspace", "Workspace"],
    ["address", "From"],
    ["replica", "Replica"],
    ["record", "Record"],
];

pub(super) const SETTINGS: Columns = &[["key", "Key"], ["value", "Value"], ["origin", "From"]];

pub(super) const STORE: Columns =
    &[["word", "State"], ["text", "Because"], ["kind", "Kind"], ["answered_milliseconds", "Answered in ms"]];

pub(super) const DIRECTORY: Columns =
    &[["word", "State"], ["text", "Because"], ["kind", "Kind"], ["replicas", "Replicas"]];

pub(super) const PROVIDER: Columns =
    &[["word", "State"], ["text", "Because"], ["issuer", "Issuer"], ["read_at", "Read"], ["failed_at", "Failed"]];

pub(super) const CERTIFICATES: Columns =
    &[["word", "State"], ["text", "Because"], ["file", "File"], ["names", "Names"], ["expires_at", "Expires"]];

pub(super) const REPLICAS: Columns = &[
    ["id", "Replica"],
    ["state", "State"],
    ["version", "Version"],
    ["agents", "Agents"],
    ["lanes_ended", "Relay lanes that end here"],
    ["lanes_carried", "Relay lanes carried"],
    ["up_seconds", "Up, seconds"],
];

pub(super) const CLUSTERS: Columns = &[
    ["name", "Cluster"],
    ["connected", "Connected"],
    ["version", "Version"],
    ["enabled", "Takes workspaces"],
    ["replica", "Replica"],
];

pub(super) const AGENTS: Columns = &[
    ["workspace", "Workspace"],
    ["owner", "Owner"],
    ["version", "Version"],
    ["connected_seconds", "Connected, seconds"],
    ["address", "From"],
    ["replica", "Replica"],
];
