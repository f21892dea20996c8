//! JSON of environments and of their events.

use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::values;
use crate::state::BlockerRow;
use gateway_environments::progress::{EnvironmentEvent, ObjectProgress, PreparationOutcome};
use gateway_environments::record::{Environment, FinalFailure, ObjectFailure};
use workspace_spec::environment::facts::ObjectRef;

// An object in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = EnvironmentObject)]
pub(crate) struct ObjectRow {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Empty where it is not known.
    pub(crate) uid: String,
}

impl From<ObjectRef> for ObjectRow {
    fn from(object: ObjectRef) -> Self {
        let ObjectRef { group, version, kind, namespace, name, uid } = object;
        Self { group, version, kind, namespace, name, uid }
    }
}

// Fault of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = EnvironmentObjectError)]
pub(crate) struct ObjectErrorRow {
    /// Null: it is about all of them.
    #[schema(required)]
    pub(crate) object: Option<ObjectRow>,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl From<ObjectFailure> for ObjectErrorRow {
    fn from(failure: ObjectFailure) -> Self {
        let ObjectFailure { object, code, message } = failure;
        Self { object: object.map(ObjectRow::from), code, message }
    }
}

// Reason the last try failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FailureRow {
    pub(crate) code: String,
    pub(crate) message: String,
}

// An environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Environment)]
pub(crate) struct EnvironmentRow {
    pub(crate) id: u64,
    pub(crate) agent: String,
    pub(crate) project_id: u64,
    pub(crate) project_path: String,
    pub(crate) name: String,
    pub(crate) slug: String,
    /// Names it in its objects' labels.
    pub(crate) key: String,
    #[schema(required)]
    pub(crate) tier: Option<String>,
    #[schema(required)]
    pub(crate) url: Option<String>,
    pub(crate) page_url: String,
    #[schema(schema_with = values::environment_state)]
    pub(crate) state: &'static str,
    #[schema(format = DateTime)]
    pub(crate) since: String,
    /// Reason of a state that no user or job requested: `project_deleted`.
    #[schema(required)]
    pub(crate) reason: Option<String>,
    #[schema(required)]
    pub(crate) template: Option<String>,
    /// Fate of its objects when it is stopped: `on_stop` or `never`.
    #[schema(required)]
    pub(crate) deletion: Option<String>,
    /// Recorded objects: those that are there, and those that may be.
    pub(crate) objects: Vec<ObjectRow>,
    /// Recorded objects are to be deleted, and not all of them are gone.
    pub(crate) removal_due: bool,
    /// Reason of the last failure.
    #[schema(required, inline)]
    pub(crate) failure: Option<FailureRow>,
    /// Time of the next attempt.
    #[schema(required, format = DateTime)]
    pub(crate) retry_at: Option<String>,
    /// Objects that are not gone yet; once no removal is due, those that the last one left in the cluster because they
    /// are not, or no longer, the environment's own.
    pub(crate) left: Vec<BlockerRow>,
}

impl From<Environment> for EnvironmentRow {
    fn from(environment: Environment) -> Self {
        Self {
            id: environment.id,
            agent: environment.agent.to_string(),
            project_id: environment.project_id,
            project_path: environment.project_path,
            name: environment.name,
            slug: environment.slug,
            key: environment.key,
            tier: environment.tier,
            url: environment.url,
            page_url: environment.page_url,
            state: environment.state.as_str(),
            since: environment.since.to_string(),
            reason: environment.reason,
            // Before the first job has a template, there is nothing to delete either.
            deletion: environment.template.is_some().then(|| environment.deletion.as_str().to_owned()),
            template: environment.template,
            objects: environment.objects.into_iter().map(ObjectRow::from).collect(),
            removal_due: environment.is_removal_due,
            failure: environment.failure.map(|(code, message)| FailureRow { code, message }),
            retry_at: environment.retry_at.map(|time| time.to_string()),
            left: environment.left.into_iter().map(BlockerRow::from).collect(),
        }
    }
}

// Outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = EnvironmentOutcome)]
pub(crate) struct OutcomeRow {
    #[schema(schema_with = values::outcome)]
    pub(crate) outcome: &'static str,
    /// Reason why there was nothing to do, as in `Unmet`.
    #[schema(required)]
    pub(crate) met: Option<&'static str>,
    /// Reason of its failure.
    #[schema(required)]
    pub(crate) code: Option<String>,
    #[schema(required)]
    pub(crate) message: Option<String>,
    /// Present state.
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) errors: Vec<ObjectErrorRow>,
    pub(crate) left: Vec<BlockerRow>,
    #[schema(required)]
    pub(crate) environment: Option<EnvironmentRow>,
}

impl From<PreparationOutcome> for OutcomeRow {
    fn from(outcome: PreparationOutcome) -> Self {
        let environment = outcome.environment.map(|environment| EnvironmentRow::from(*environment));
        let (objects, left) =
            environment.as_ref().map(|row| (row.objects.clone(), row.left.clone())).unwrap_or_default();
        let (code, message, errors) = match outcome.failure {
            Some(FinalFailure { code, message, errors }) => (Some(code), Some(message), errors),
            // An end without a failure must not suggest that everything is gone.
            None if environment.as_ref().is_some_and(|row| !row.removal_due) && !left.is_empty() => {
                let count = left.len();
                (
                    None,
                    Some(format!("left in the cluster, as not or no longer the environment's own: {count}")),
                    Vec::new(),
                )
            }
            None => (None, None, Vec::new()),
        };
        Self {
            outcome: if code.is_none() { "completed" } else { "failed" },
            met: outcome.met.map(gateway_environments::request::Met::as_str),
            code,
            message,
            objects,
            errors: errors.into_iter().map(ObjectErrorRow::from).collect(),
            left,
            environment,
        }
    }
}

/// Data of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum EventRow {
    Waiting { why: &'static str },
    Object { object: ObjectRow, step: &'static str, message: String },
    Retrying { code: String, message: String, at: String },
    Done(Box<OutcomeRow>),
}

impl EventRow {
    /// Returns the name of the event.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Object { .. } => "object",
            Self::Retrying { .. } => "retrying",
            Self::Done(_) => "done",
        }
    }
}

impl From<EnvironmentEvent> for EventRow {
    fn from(event: EnvironmentEvent) -> Self {
        match event {
            EnvironmentEvent::Waiting { why } => Self::Waiting { why },
            EnvironmentEvent::Object(ObjectProgress { object, step, message }) => {
                Self::Object { object: object.into(), step: step.as_str(), message }
            }
            EnvironmentEvent::Retrying { code, message, at } => Self::Retrying { code, message, at: at.to_string() },
            EnvironmentEvent::Done(outcome) => Self::Done(Box::new(outcome.into())),
        }
    }
}
