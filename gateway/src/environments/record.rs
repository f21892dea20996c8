//! An environment and what came of its jobs, as people and programs see them, made of what is stored.

use serde::{Deserialize, Serialize};
use tunnel_proto::environments::{ObjectError, ObjectErrorCode};
use tunnel_proto::reconcile::Blocker;

use super::facts::ObjectRef;
use super::template::Deletion;
use crate::model::{ClusterName, UnixSeconds};
use crate::store::{EnvironmentState, KeptOnStop, Preparation, StoredEnvironment};
use crate::workspaces::blockers;

/// An environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Its number.
    pub id: u64,
    /// The agent of its cluster.
    pub agent: ClusterName,
    /// The number of its project.
    pub project_id: u64,
    /// Where that was last.
    pub project_path: String,
    /// Its name.
    pub name: String,
    /// Its name as parts of other names have it.
    pub slug: String,
    /// What names it among all environments of a cluster.
    pub key: String,
    /// Its deployment tier.
    pub tier: Option<String>,
    /// Where what is deployed there is seen.
    pub url: Option<String>,
    /// Where it is itself seen.
    pub page_url: String,
    /// What it is.
    pub state: EnvironmentState,
    /// Since when.
    pub since: UnixSeconds,
    /// Why, where it was nobody's wish: `project_deleted`.
    pub reason: Option<String>,
    /// The template of the last job that was prepared.
    pub template: Option<String>,
    /// What becomes of its objects when it is stopped.
    pub deletion: Deletion,
    /// What is recorded: what is in the cluster, and what may be.
    pub objects: Vec<ObjectRef>,
    /// That has to go, and is not all gone.
    pub is_removal_due: bool,
    /// Why the last try failed: a code and a text.
    pub failure: Option<(String, String)>,
    /// When the next one is.
    pub retry_at: Option<UnixSeconds>,
    /// What keeps its objects from going. Once no removal is due any more: objects that the last one left in the cluster,
    /// because they are not, or no longer, the environment's own.
    pub left: Vec<Blocker>,
}

/// What went wrong with one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFailure {
    /// Which; `None` for all of them.
    pub object: Option<ObjectRef>,
    /// What, as a code.
    pub code: String,
    /// What, for people.
    pub message: String,
}

/// Why something failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The same of each object.
    pub errors: Vec<ObjectFailure>,
}

impl Environment {
    /// Makes one of what is stored. What cannot be read of the parts that are only shown is left out.
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

/// Returns what becomes of objects as templates say it.
fn deletion_of(kept: KeptOnStop) -> Deletion {
    match kept {
        KeptOnStop::No => Deletion::OnStop,
        KeptOnStop::Yes => Deletion::Never,
    }
}

/// Returns it as the store has it.
pub(super) fn kept_of(deletion: Deletion) -> KeptOnStop {
    match deletion {
        Deletion::OnStop => KeptOnStop::No,
        Deletion::Never => KeptOnStop::Yes,
    }
}

/// Returns where an environment is seen.
pub(super) fn page_url(public_url: &str, id: u64) -> String {
    format!("{}/api/v1/environments/{id}", public_url.trim_end_matches('/'))
}

/// Writes references to objects.
pub(super) fn objects_to(objects: &[ObjectRef]) -> String {
    // Structs of texts are always JSON.
    serde_json::to_string(objects).unwrap_or_else(|_| "[]".to_owned())
}

/// Reads them.
pub(super) fn objects_from(text: &str) -> Option<Vec<ObjectRef>> {
    serde_json::from_str(text).ok()
}

/// Writes what went wrong.
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

/// Returns why a preparation failed, if it has.
pub(super) fn failure_of(preparation: &Preparation) -> Option<Failure> {
    let (code, message) = preparation.failure.clone()?;
    let errors = preparation.errors.as_deref().and_then(|text| serde_json::from_str(text).ok());
    Some(Failure { code, message, errors: errors.unwrap_or_default() })
}

/// Returns a reference as the tunnel has it.
pub(super) fn to_wire(object: &ObjectRef) -> tunnel_proto::environments::ObjectRef {
    let ObjectRef { group, version, kind, namespace, name, uid } = object.clone();
    tunnel_proto::environments::ObjectRef { group, version, kind, namespace, name, uid }
}

/// Returns a reference as it is kept.
pub(super) fn from_wire(object: tunnel_proto::environments::ObjectRef) -> ObjectRef {
    let tunnel_proto::environments::ObjectRef { group, version, kind, namespace, name, uid } = object;
    ObjectRef { group, version, kind, namespace, name, uid }
}

/// Returns what went wrong with an object as one lower-case word.
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
