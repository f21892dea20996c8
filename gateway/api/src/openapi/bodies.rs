//! Bodies of requests, which `body::Fields` reads member by member, and the document of a failure, which is sealed with
//! its trace id when it is sent. No value of these types is made: they are described, and a test compares the members
//! of bodies with those that are read.
#![expect(dead_code, reason = "the types are described, and have no values")]

use std::collections::BTreeMap;

use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

use super::values;
use crate::environments::view::ObjectErrorRow;
use crate::problem::{FaultLocation, Mistake, QuotaRow};
use crate::state::BlockerRow;

/// RFC 9457. All words are fixed; nothing of the request is repeated.
#[derive(ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument {
    r#type: String,
    title: String,
    status: u16,
    detail: String,
    /// Part of the contract; also in the header `gateway-error`.
    code: String,
    /// Also in the header `gateway-trace`, and in the gateway's log.
    trace_id: String,
    /// The rule that a request breaks.
    #[schema(required = false)]
    reason: String,
    /// The limit that is reached.
    #[schema(required = false)]
    limit: String,
    /// The code again, in the device flow (RFC 6749, section 5.2).
    #[schema(required = false)]
    error: String,
    /// Seconds between polls from now on.
    #[schema(required = false)]
    interval: u16,
    /// The limits that a request would break.
    #[schema(required = false)]
    quota: QuotaRow,
    #[schema(required = false)]
    hint: String,
    /// Of an environment: every object's error.
    #[schema(required = false)]
    object_errors: Vec<ObjectErrorRow>,
    /// Of an environment: what has not gone yet.
    #[schema(required = false)]
    left: Vec<BlockerRow>,
    #[schema(required = false, inline)]
    errors: Vec<Mistake>,
    /// A problem of a devfile, a template or its objects, with its place.
    #[schema(required = false)]
    problems: Vec<FaultLocation>,
}

#[derive(ToSchema)]
pub(crate) struct UserDisabling {
    /// Also stop the workspaces that run for the user.
    #[schema(required = false, default = false)]
    stop: bool,
}

#[derive(ToSchema)]
pub(crate) struct NewToken {
    #[schema(schema_with = values::token_kind)]
    kind: String,
    /// For an agent: a workspace of yours.
    workspace: Option<String>,
    /// Seconds; without it, until it is revoked.
    #[schema(minimum = 60, maximum = 31536000)]
    expires_in: Option<u64>,
    #[schema(max_length = 200)]
    note: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct Rotation {
    /// Seconds for which the old one stays valid; by default 600.
    #[schema(minimum = 0, maximum = 604800)]
    overlap: Option<u64>,
    /// Seconds; by default the lifetime of the old one.
    #[schema(minimum = 60, maximum = 31536000)]
    expires_in: Option<u64>,
}

#[derive(ToSchema)]
pub(crate) struct NewGitCredential {
    /// Your name at that server; by default `git`, or what the operator has configured for OAuth.
    #[schema(max_length = 255)]
    user: Option<String>,
    /// A password, or a token that the server takes for one.
    #[schema(max_length = 16384)]
    password: Option<String>,
    /// A refresh token of OAuth, instead of a password.
    #[schema(max_length = 16384)]
    refresh_token: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct DeviceRequest {
    /// What the machine calls itself; shown to the user.
    machine: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct DeviceTokenRequest {
    device_code: String,
    grant_type: Option<String>,
    client_id: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct NewWorkspace {
    #[schema(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    name: String,
    #[schema(schema_with = values::new_executor)]
    executor: String,
    /// The cluster that is to run it, by the name of its agent; for `ci` the CI system, which may be left out if there
    /// is one only.
    agent: Option<String>,
    #[schema(schema_with = project, required = false)]
    project: (),
    /// For `kubernetes`: what is cloned before the editor starts.
    #[schema(max_items = 16)]
    projects: Option<Vec<NewProject>>,
    /// For `kubernetes`: one of the editors that the cluster's configuration names, or none; null for the first of them.
    editor: Option<String>,
    /// For `kubernetes`: the template of the cluster that it is made from, instead of a devfile. What the template says of projects, editor and
    /// idle time counts where this request says nothing.
    template: Option<String>,
    /// Values of the template's parameters by their names: texts of at most 4 KiB, 16 KiB together. A parameter that is left out has its
    /// default.
    template_parameters: Option<BTreeMap<String, String>>,
    /// The name that people read.
    #[schema(max_length = 60)]
    display_name: Option<String>,
    /// For `ci`: which runners take its jobs, of those that the operator allows.
    tags: Option<Vec<String>>,
    /// A devfile 2.2.0 as YAML; null for a built-in one.
    devfile: Option<String>,
    /// At most 256, and 512 KiB together. No answer contains them.
    variables: Option<Vec<Variable>>,
    /// Minutes without use after which it is stopped; 0 for never, null for what the operator says.
    #[schema(minimum = 0)]
    idle_minutes: Option<f64>,
    /// Ports to name beside the devfile's endpoints, or to say more of: for any executor. None of them is open to others by it.
    #[schema(max_items = 128)]
    ports: Option<Vec<NewPort>>,
}

#[derive(ToSchema)]
pub(crate) struct NewPort {
    #[schema(minimum = 1, maximum = 65535)]
    port: u16,
    /// Its label in lists: a DNS label.
    name: Option<String>,
    /// How the gateway speaks to the app: `http1` (the default), `h2` for gRPC, `https` or `h2s` for an app with a certificate of its
    /// own, `tcp` for something else.
    protocol: Option<String>,
    /// The host that the app sees: `auto` (the default), `original`, or `localhost` for dev servers that insist on it.
    host: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct NewProject {
    /// `https` or `http`, without credentials.
    url: String,
    /// A branch or a tag.
    #[schema(rename = "ref")]
    reference: Option<String>,
}

/// Describes what a workspace in a CI system clones.
fn project() -> Object {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let reference = text().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some("For `ci`: what is cloned; null for the project that the pipeline runs in."))
        .property("url", text().description(Some("`https` or `http`, without credentials.")))
        .required("url")
        .property("ref", reference.description(Some("A branch or a tag.")))
        .build()
}

#[derive(ToSchema)]
pub(crate) struct Variable {
    /// Not beginning with gw- or gw_, which are the gateway's own.
    name: String,
    value: String,
    #[schema(schema_with = values::variable_kind)]
    kind: String,
}

#[derive(ToSchema)]
pub(crate) struct WorkspaceChange {
    #[schema(schema_with = values::new_desired, required = false)]
    desired_state: String,
    /// The name that people read, also of an external workspace; null for none of its own.
    #[schema(max_length = 60)]
    display_name: Option<String>,
    /// Minutes without use after which it is stopped; 0 for never, null for what the operator says.
    #[schema(minimum = 0)]
    idle_minutes: Option<f64>,
}

#[derive(ToSchema)]
pub(crate) struct HandOver {
    /// The user who gets it.
    to: String,
}

#[derive(ToSchema)]
pub(crate) struct Keep {
    /// Time from now on; by default 3600.
    #[schema(minimum = 1, maximum = 86400)]
    seconds: Option<u64>,
}

/// A job as its CI system knows it.
#[derive(ToSchema)]
pub(crate) struct EnvironmentJob {
    project_id: u64,
    project_path: String,
    environment: Option<String>,
    tier: Option<String>,
    /// What the job does with it: `start` unless it says something else.
    action: Option<String>,
    #[schema(required = false)]
    is_ref_protected: bool,
    pipeline_id: Option<u64>,
    job_id: u64,
    user_id: u64,
    username: String,
}

#[derive(ToSchema)]
pub(crate) struct EnvironmentRequest {
    agent: String,
    /// The agent's template; by default its `default`, or the built-in one.
    template: Option<String>,
    /// The job opts out of the preparation.
    #[schema(required = false)]
    disabled: bool,
    /// Where the environment can be visited.
    url: Option<String>,
    /// Which environment the caller means. A job has to mean its own.
    environment: Option<String>,
    /// Of which job; for operators, who have to say. A job's is read in its token.
    job: Option<EnvironmentJob>,
}

/// What templates can say, named as there. What is left out of agent, environment and project is what the gateway knows
/// or makes of the rest.
#[derive(ToSchema)]
pub(crate) struct EnvironmentInfo {
    #[schema(inline)]
    agent: Option<InfoAgent>,
    #[schema(inline)]
    environment: InfoEnvironment,
    #[schema(inline)]
    project: InfoProject,
    #[schema(inline)]
    ci_pipeline: Option<InfoNumber>,
    #[schema(inline)]
    ci_job: Option<InfoNumber>,
    #[schema(inline)]
    user: Option<InfoUser>,
}

#[derive(ToSchema)]
struct InfoAgent {
    #[schema(required = false)]
    id: u64,
    name: String,
    #[schema(required = false)]
    url: String,
}

#[derive(ToSchema)]
struct InfoEnvironment {
    #[schema(required = false)]
    id: u64,
    name: String,
    #[schema(required = false)]
    slug: String,
    #[schema(required = false)]
    page_url: String,
    url: Option<String>,
    tier: Option<String>,
}

#[derive(ToSchema)]
struct InfoProject {
    id: u64,
    #[schema(required = false)]
    slug: String,
    path: String,
    #[schema(required = false)]
    url: String,
}

#[derive(ToSchema)]
struct InfoNumber {
    id: u64,
}

#[derive(ToSchema)]
struct InfoUser {
    id: u64,
    username: String,
}

#[derive(ToSchema)]
pub(crate) struct EnvironmentWanted {
    agent: String,
    #[schema(inline)]
    template: WantedTemplate,
    info: EnvironmentInfo,
}

#[derive(ToSchema)]
struct WantedTemplate {
    name: String,
    /// YAML; by default that of the agent's template of this name. For `ensure` it is rendered; without it, the agent's
    /// template is.
    data: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct EnvironmentChange {
    #[schema(schema_with = values::environment_state)]
    state: String,
}
