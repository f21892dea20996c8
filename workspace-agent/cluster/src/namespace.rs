//! Namespace of a workspace that has one to itself: made by the agent, labelled as its own, and deleted only as that.

use serde_json::{Value, json};
use tunnel_proto::reconcile::{Blocker, FailureKind};

use crate::api::CancelableApi;
use crate::apply::{ApplyProblem, Stopped};
use crate::config::Scope;
use crate::object::{CLUSTER_LABEL, LiveObject, WORKSPACE_LABEL};
use crate::retry::ApiError;
use crate::terminate::Namespace;

const NAMESPACES: &str = "/api/v1/namespaces";

/// Result of a look at the namespace.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) state: Namespace,
    pub(crate) live: LiveObject,
    value: Value,
}

/// Looks at the namespace.
pub(crate) async fn look(api: &CancelableApi, scope: &Scope) -> Result<Looked, Stopped> {
    let found = api.get(&path(scope)).await.map_err(|error| stopped(scope, &error))?;
    let value = found.unwrap_or_default();
    let live = LiveObject::read(&value);
    let state = if value.is_null() {
        Namespace::Absent
    } else if !live.is_of(&scope.workspace, &scope.cluster) {
        Namespace::Foreign
    } else if live.deleting_since.is_some() {
        Namespace::Leaving
    } else {
        Namespace::Ours
    };
    Ok(Looked { state, live, value })
}

/// Makes the namespace if there is none.
///
/// # Errors
/// Also if it is there and has another owner, or is being deleted.
pub(crate) async fn ensure(api: &CancelableApi, scope: &Scope) -> Result<(), Stopped> {
    let problem = |message: &str, kind, is_temporary| {
        let message = format!("the namespace {} {message}", scope.namespace);
        Err(Stopped::Problem(ApplyProblem { kind, message, is_temporary }))
    };
    match look(api, scope).await?.state {
        Namespace::Ours | Namespace::Shared => Ok(()),
        Namespace::Foreign => {
            problem("was not made for this workspace: nothing is made in it", FailureKind::Config, false)
        }
        Namespace::Leaving => {
            problem("is being deleted: it can be made again once it is gone", FailureKind::Kubernetes, true)
        }
        Namespace::Absent => {
            let labels = json!({WORKSPACE_LABEL: scope.workspace, CLUSTER_LABEL: scope.cluster});
            let made = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": scope.namespace, "labels": labels}});
            match api.create(NAMESPACES, &made).await {
                Ok(_) => Ok(()),
                // An earlier attempt whose answer was lost, or another client, made it: the next pass sees whose it is.
                Err(ApiError::Conflict(_)) if look(api, scope).await?.state == Namespace::Ours => Ok(()),
                Err(ApiError::Conflict(_)) => {
                    problem("was made by another client in this moment", FailureKind::Kubernetes, true)
                }
                Err(error) => Err(stopped(scope, &error)),
            }
        }
    }
}

/// Deletes the namespace if it still is what was seen.
pub(crate) async fn delete(api: &CancelableApi, scope: &Scope, looked: &Looked) -> Result<(), Stopped> {
    let LiveObject { uid, resource_version, .. } = &looked.live;
    match api.delete(&path(scope), uid, resource_version, false).await {
        // Gone, or changed: the next look tells.
        Ok(()) | Err(ApiError::Absent(_) | ApiError::Conflict(_)) => Ok(()),
        Err(error) => Err(stopped(scope, &error)),
    }
}

/// Describes what keeps a namespace from being gone: the conditions of its deletion (Kubernetes API,
/// NamespaceCondition).
pub(crate) fn blocker(scope: &Scope, looked: &Looked) -> Blocker {
    Blocker {
        object: format!("Namespace {}", scope.namespace),
        finalizers: looked.live.finalizers.clone(),
        since: looked.live.deleting_since.unwrap_or_default(),
        message: conditions(&looked.value),
    }
}

/// Joins the messages of a namespace's conditions.
pub(crate) fn conditions(namespace: &Value) -> String {
    let conditions = namespace.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.into_iter().flatten();
    let holding = conditions.filter(|condition| condition.get("status").and_then(Value::as_str) == Some("True"));
    let messages: Vec<_> = holding.filter_map(|condition| condition.get("message").and_then(Value::as_str)).collect();
    messages.join(" ")
}

fn path(scope: &Scope) -> String {
    format!("{NAMESPACES}/{}", scope.namespace)
}

fn stopped(scope: &Scope, error: &ApiError) -> Stopped {
    Stopped::by(&format!("Namespace {}", scope.namespace), error)
}
