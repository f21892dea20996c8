//! Parameters of paths and queries. No value of these types is made: handlers read
//! paths with parsers of the domain, and queries strictly.
#![expect(dead_code, reason = "the types are described, and have no values")]

use utoipa::IntoParams;

use super::values::{ActualName, AuditForm, Extent, StateName, UserState};

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct WorkspacePath {
    /// Name of the workspace.
    #[param(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    name: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct AgentPath {
    /// Name of the cluster's agent.
    name: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct OrphanPath {
    /// Name of the cluster's agent.
    name: String,
    /// Id of the orphan: `NAME.NAMESPACE`.
    #[param(pattern = "^[a-z0-9-]+\\.[a-z0-9-]+$")]
    id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TemplatePath {
    /// Name of the cluster's agent.
    name: String,
    /// Name of the template.
    #[param(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    template: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct EnvironmentPath {
    /// The environment's number.
    id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ProjectPath {
    /// The project's number.
    id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TokenPath {
    /// Id of the token.
    #[param(pattern = "^t-[1-9][0-9]*$")]
    id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct GitHostPath {
    /// Host of the git server, with its port if that is not 443.
    host: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SessionPath {
    /// Id of the session; not its cookie.
    #[param(pattern = "^s-[A-Za-z0-9_-]{16}$")]
    id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Items of a page.
    #[param(required = false, minimum = 1, maximum = 200, default = 50)]
    limit: u32,
    /// `next_cursor` of the previous page.
    #[param(required = false)]
    cursor: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EnvironmentFilters {
    /// Only of this agent.
    #[param(required = false)]
    agent: String,
    /// Only of this project.
    #[param(required = false)]
    project_id: u64,
    /// Only of this name.
    #[param(required = false)]
    name: String,
    /// Only in this state.
    #[param(required = false, inline)]
    state: StateName,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ForgetQuery {
    /// Only forget the environment, without a request to its cluster: for one whose agent never comes back. The answer
    /// and the audit log list objects that may be left.
    #[param(required = false, default = false)]
    forget: bool,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfQuery {
    /// `removal` ends with the removal that is due; `everything`, the default, once no work is in progress.
    #[param(required = false, inline)]
    of: Extent,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct UserPath {
    /// Name of the user.
    name: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PartFilter {
    /// Part of the name, or of its owner's; no pattern.
    #[param(required = false, max_length = 200)]
    q: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkspaceFilters {
    /// Part of the name, or of its owner's; no pattern.
    #[param(required = false, max_length = 200)]
    q: String,
    /// Only in this state.
    #[param(required = false, inline)]
    state: ActualName,
    /// Only of this user.
    #[param(required = false)]
    owner: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UserFilters {
    /// Part of the name; no pattern.
    #[param(required = false, max_length = 200)]
    q: String,
    /// Only in this state.
    #[param(required = false, inline)]
    state: UserState,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RefusalFilters {
    /// Most of them.
    #[param(required = false, minimum = 1, maximum = 200, default = 50)]
    limit: u32,
    /// Only with this code.
    #[param(required = false)]
    code: String,
    /// Only of this user.
    #[param(required = false)]
    user: String,
    /// Only at this workspace.
    #[param(required = false)]
    workspace: String,
    /// Only with this trace id.
    #[param(required = false)]
    trace: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditFilters {
    /// Part of the line; no pattern.
    #[param(required = false, max_length = 200)]
    q: String,
    /// Only of this author.
    #[param(required = false, max_length = 200)]
    actor: String,
    /// Only about this workspace.
    #[param(required = false, max_length = 200)]
    workspace: String,
    /// Only of this name.
    #[param(required = false, max_length = 200)]
    event: String,
    /// Earliest time, as RFC 3339 has it.
    #[param(required = false, format = DateTime)]
    since: String,
    /// End of the time, which is not part of it.
    #[param(required = false, format = DateTime)]
    until: String,
    /// Form of the answer: a page, or lines of the log.
    #[param(required = false, inline)]
    format: AuditForm,
}
