//! Schemas of fields that have one of a few values, and of numbers that are never negative.

use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use gateway_environments::request::Met;
use gateway_store::GitCredentialKind;
use gateway_types::ActivityKind;
use gateway_types::token::TokenKind;
use gateway_types::{PortHost, PortProtocol};
use gateway_workspaces::starts::{STATUSES, STEPS};

/// Makes the schema of a field that has one of these values.
fn one_of<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).enum_values(Some(values))
}

/// Makes the schema of a field that has one of these values, or none.
fn one_of_or_null<'a>(values: impl IntoIterator<Item = &'a str>) -> ObjectBuilder {
    one_of(values.into_iter().map(Value::from).chain([Value::Null]))
}

pub(crate) fn via() -> Object {
    one_of(["browser", "token"]).build()
}

pub(crate) fn access() -> Object {
    one_of(["owner", "shared"]).build()
}

pub(crate) fn executor() -> Object {
    one_of(["ci", "external", "kubernetes"]).build()
}

pub(super) fn new_executor() -> Object {
    let description = "`external` runs outside of the gateway's control: a user may have \
                       `limits.external_workspaces_per_user` of them, and they have a name and no other settings.";
    one_of(["ci", "external", "kubernetes"]).description(Some(description)).build()
}

/// Steps of a start.
pub(crate) fn start_step() -> Object {
    one_of(STEPS).build()
}

/// How far a step is.
pub(crate) fn start_status() -> Object {
    one_of(STATUSES).build()
}

/// How near an idle stop is.
pub(crate) fn idle_stage() -> Object {
    one_of(["off", "awake", "announced", "near", "due"]).build()
}

/// What counts as use of a workspace.
pub(crate) fn activity() -> Object {
    one_of(ActivityKind::ALL.map(ActivityKind::as_str)).build()
}

/// Protocols that a port can be named with.
pub(crate) fn port_protocol() -> Object {
    one_of(PortProtocol::WORDS.iter().copied()).build()
}

/// Ways in which the gateway speaks to an app.
pub(crate) fn port_mode() -> Object {
    one_of(["http1", "h2", "https", "h2s"]).build()
}

/// Hosts that an app can see.
pub(crate) fn port_host() -> Object {
    one_of(PortHost::WORDS.iter().copied()).build()
}

/// Kinds of the tokens that users make for themselves.
pub(crate) fn token_kind() -> Object {
    one_of([TokenKind::Agent, TokenKind::User].map(TokenKind::as_str)).build()
}

pub(crate) fn token_state() -> Object {
    one_of(["live", "expired", "revoked"]).build()
}

pub(crate) fn git_credential_kind() -> Object {
    one_of([GitCredentialKind::Basic, GitCredentialKind::Oauth].map(GitCredentialKind::as_str)).build()
}

pub(crate) fn token_type() -> Object {
    one_of(["Bearer"]).build()
}

/// Names of the states that can be asked for.
const DESIRED: [&str; 4] = ["Running", "Stopped", "RestartRequested", "Terminated"];

pub(super) fn new_desired() -> Object {
    one_of(DESIRED).build()
}

pub(crate) fn desired() -> Object {
    one_of(DESIRED).description(Some("Desired state. A restart becomes `Running` once it has stopped.")).build()
}

pub(crate) fn actual() -> Object {
    one_of([
        "CreationRequested",
        "Starting",
        "Running",
        "Stopping",
        "Stopped",
        "Failed",
        "Error",
        "Terminating",
        "Terminated",
        "Unknown",
    ])
    .description(Some("What it is."))
    .build()
}

pub(super) fn variable_kind() -> Object {
    one_of(["env", "file"]).description(Some("Where the workspace finds it: in its environment, or as a file.")).build()
}

pub(crate) fn met() -> Object {
    one_of_or_null(Met::ALL.map(Met::as_str)).description(Some("Why nothing is to be done.")).build()
}

pub(crate) fn environment_state() -> Object {
    one_of(["available", "stopping", "stopped"]).build()
}

pub(crate) fn outcome() -> Object {
    one_of(["completed", "failed"]).build()
}

pub(crate) fn agent_kind() -> Object {
    one_of(["cluster"]).build()
}

pub(crate) fn configuration_refusal() -> Object {
    let description = "Kind of the refusal: the file has mistakes, or it sets, unsets or \
                       changes `shared_namespace` while the cluster has workspaces. The latter is in force once they \
                       are over.";
    one_of_or_null(["bad_file", "namespace_mode_in_use"]).description(Some(description)).build()
}

/// States of users.
pub(crate) fn user_state() -> Object {
    one_of(["disabled", "enabled"]).build()
}

/// Layers of the configuration.
pub(crate) fn setting_origin() -> Object {
    one_of(["default", "environment", "file", "flag"]).build()
}

/// Health of the database.
pub(crate) fn store_word() -> Object {
    one_of(["away", "good", "unwritable"]).build()
}

/// Health of the directory of sessions.
pub(crate) fn directory_word() -> Object {
    one_of(["alone", "away", "behind", "good", "lost"]).build()
}

/// Health of the identity provider.
pub(crate) fn provider_word() -> Object {
    one_of(["failing", "good", "unknown"]).build()
}

/// Health of a certificate.
pub(crate) fn certificate_word() -> Object {
    one_of(["ends_soon", "expired", "good"]).build()
}

/// Makes the schema of a number of things.
pub(crate) fn count() -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build()
}

/// Makes the schema of a time in seconds.
pub(crate) fn seconds() -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build()
}

/// Makes the schema of a time in seconds that may be missing.
pub(crate) fn seconds_or_null() -> Object {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::Integer, Type::Null])).minimum(Some(0)).build()
}

/// Name of an environment's state, in a query.
pub(super) struct StateName;

impl PartialSchema for StateName {
    fn schema() -> RefOr<Schema> {
        environment_state().into()
    }
}

impl ToSchema for StateName {}

/// Name of a workspace's actual state, in a query.
pub(super) struct ActualName;

impl PartialSchema for ActualName {
    fn schema() -> RefOr<Schema> {
        actual().into()
    }
}

impl ToSchema for ActualName {}

/// Form of a search's answer, in a query.
pub(super) struct AuditForm;

impl PartialSchema for AuditForm {
    fn schema() -> RefOr<Schema> {
        one_of(["json", "jsonl"]).schema_type(Type::String).into()
    }
}

impl ToSchema for AuditForm {}

/// State of a user, in a query.
pub(super) struct UserState;

impl PartialSchema for UserState {
    fn schema() -> RefOr<Schema> {
        user_state().into()
    }
}

impl ToSchema for UserState {}

/// Extent of a stream of an environment's events, in a query.
pub(super) struct Extent;

impl PartialSchema for Extent {
    fn schema() -> RefOr<Schema> {
        one_of(["everything", "removal"]).schema_type(Type::String).into()
    }
}

impl ToSchema for Extent {}
