//! Environments and outcomes of jobs in the form shown to users and programs, built from the store.

use serde::{Deserialize, Serialize};
use tunnel_proto::environments::{ObjectError, ObjectErrorCode};
use tunnel_proto::reconcile::Blocker;

use gateway_store::{EnvironmentState, KeptOnStop, Preparation, StoredEnvironment};
use gateway_types::blockers;
use gateway_types::{ClusterName, UnixSeconds};
use workspace_spec::environment::facts::ObjectRef;
use workspace_spec::environment::template::Deletion;

/// An environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Its number.
    pub id: u64,
    /// The agent of its cluster.
    pub agent: ClusterName,
    /// The number of its project.
    pub project_id: u64,
    /// Path of the project, as last known.
    pub project_path: String,
    /// Its name.
    pub name: String,
    /// Form of its name that fits into names of objects.
    pub slug: String,
    /// Unique key among all environments of a cluster.
    pub key: String,
    /// Its deployment tier.
    pub tier: Option<String>,
    /// URL of the deployed app.
    pub url: Option<String>,
    /// URL of the environment's own page.
    pub page_url: String,
    /// Its state.
    pub state: EnvironmentState,
    /// Time since which it is in that state.
    pub since: UnixSeconds,
    /// Reason of a state that no user asked for: `project_deleted`.
    pub reason: Option<String>,
    /// The template of the last job that was prepared.
    pub template: Option<String>,
    /// Whether its objects are deleted when it is stopped.
    pub deletion: Deletion,
    /// Recorded objects: those in the cluster, and those that may be.
    pub objects: Vec<ObjectRef>,
    /// The objects have to be removed, and some are left.
    pub is_removal_due: bool,
    /// Reason of the last failed try: a code and a text.
    pub failure: Option<(String, String)>,
    /// Time of the next try.
    pub retry_at: Option<UnixSeconds>,
    /// Objects that block the removal. Once no removal is due any more: objects that the last one left in the cluster,
    /// because they are not, or no longer, the environment's own.
    pub left: Vec<Blocker>,
}

/// Failure of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFailure {
    /// The object; `None` for all of them.
    pub object: Option<ObjectRef>,
    /// Reason, as a code.
    pub code: String,
    /// Reason, for people.
    pub message: String,
}

/// Reason of a final failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalFailure {
    /// The code.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// Failures of the single objects.
    pub errors: Vec<ObjectFailure>,
}

impl Environment {
    /// Creates one from the stored record. Unreadable parts that are only shown are left out.
    pub(super) fn of(stored: StoredEnvironment, agent: ClusterName, public_url: &str) -> Self {
        let key = format!("{}-{}-{}", stored.slug, stored.project_id, stored.cluster.get());
        Self {
            id: stored.id.get(),
            agent,
            key,
            page_url: page_url(public_url, stored.id.get()),
            objects: objects_from(&stored.tracked).unwrap_or_default(),
            left: stored.blockers.as_deref().map(blockers::from_json).unwrap_or_default(),
            project_id: stored.project_id,
            project_path: stored.project_path,
            name: stored.name,
            slug: stored.slug,
            tier: stored.tier,
            url: stored.url,
            state: stored.state,
            since: stored.since,
            reason: stored.reason,
            template: stored.template,
            deletion: deletion_of(stored.kept),
            is_removal_due: stored.is_removal_due,
            failure: stored.tries.failure,
            retry_at: stored.tries.retry_at,
        }
    }
}

/// Converts the fate of objects on a stop to the form that templates use.
fn deletion_of(kept: KeptOnStop) -> Deletion {
    match kept {
        KeptOnStop::No => Deletion::OnStop,
        KeptOnStop::Yes => Deletion::Never,
    }
}

/// Converts it to the form of the store.
pub(super) fn kept_of(deletion: Deletion) -> KeptOnStop {
    match deletion {
        Deletion::OnStop => KeptOnStop::No,
        Deletion::Never => KeptOnStop::Yes,
    }
}

/// Returns the URL of an environment's page.
pub(super) fn page_url(public_url: &str, id: u64) -> String {
    format!("{}/api/v1/environments/{id}", public_url.trim_end_matches('/'))
}

/// Serialises references to objects.
pub(super) fn objects_to(objects: &[ObjectRef]) -> String {
    // Structs of strings always serialise.
    serde_json::to_string(objects).unwrap_or_else(|_| "[]".to_owned())
}

/// Parses references to objects.
pub(super) fn objects_from(text: &str) -> Option<Vec<ObjectRef>> {
    serde_json::from_str(text).ok()
}

/// Serialises failures of objects.
pub(super) fn errors_to(errors: &[ObjectError]) -> String {
    let stored: Vec<ObjectFailure> = errors
        .iter()
        .map(|error| ObjectFailure {
            object: error.object.clone().map(from_wire),
            code: code_of(error.code).to_owned(),
            message: error.message.clone(),
        })
        .collect();
    serde_json::to_string(&stored).unwrap_or_else(|_| "[]".to_owned())
}

/// Returns the failure of a preparation, if it failed.
pub(super) fn failure_of(preparation: &Preparation) -> Option<FinalFailure> {
    let (code, message) = preparation.failure.clone()?;
    let errors = preparation.errors.as_deref().and_then(|text| serde_json::from_str(text).ok());
    Some(FinalFailure { code, message, errors: errors.unwrap_or_default() })
}

/// Converts a reference to its wire type.
pub(super) fn to_wire(object: &ObjectRef) -> tunnel_proto::environments::ObjectRef {
    let ObjectRef { group, version, kind, namespace, name, uid } = object.clone();
    tunnel_proto::environments::ObjectRef { group, version, kind, namespace, name, uid }
}

/// Converts a reference from its wire type.
pub(super) fn from_wire(object: tunnel_proto::environments::ObjectRef) -> ObjectRef {
    let tunnel_proto::environments::ObjectRef { group, version, kind, namespace, name, uid } = object;
    ObjectRef { group, version, kind, namespace, name, uid }
}

/// Returns the failure of an object as one lower-case word.
fn code_of(code: ObjectErrorCode) -> &'static str {
    match code {
        ObjectErrorCode::NotOwned => "not_owned",
        ObjectErrorCode::Forbidden => "forbidden",
        ObjectErrorCode::Invalid => "invalid",
        ObjectErrorCode::UnknownKind => "unknown_kind",
        ObjectErrorCode::NamespaceMissing => "namespace_missing",
        ObjectErrorCode::Conflict => "conflict",
        ObjectErrorCode::Unavailable => "unavailable",
        ObjectErrorCode::Identity => "identity",
        ObjectErrorCode::Superseded => "superseded",
    }
}
