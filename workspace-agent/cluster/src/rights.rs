//! Rights that a cluster agent needs, and which of them it lacks.

use std::fmt;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use kube::Client;
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::api::CancelableApi;

/// Longest time for one question.
const PATIENCE: Duration = Duration::from_secs(5);

/// Questions at a time.
const AT_ONCE: usize = 8;

/// Place of the questions (Kubernetes, "Checking API Access").
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A kind of object and what is done with it.
type Needed = (&'static str, &'static str, &'static [&'static str]);

/// Rights for workspaces, as `deploy/rbac/shared.yaml` and `deploy/rbac/unique.yaml` give them.
const WORKSPACES: [Needed; 9] = [
    ("", "services", &["get", "create", "patch", "delete"]),
    ("", "serviceaccounts", &["get", "create", "patch", "delete"]),
    ("", "persistentvolumeclaims", &["get", "create", "patch", "delete"]),
    ("networking.k8s.io", "networkpolicies", &["get", "create", "patch", "delete"]),
    ("", "configmaps", &["get", "list", "create", "update", "patch", "delete"]),
    ("", "secrets", &["get", "list", "watch", "create", "patch", "delete"]),
    ("apps", "deployments", &["get", "list", "watch", "create", "patch", "delete"]),
    ("", "pods", &["list", "watch"]),
    ("", "events", &["list", "watch"]),
];

/// Rights for namespaces of workspaces, of `deploy/rbac/unique.yaml`.
const NAMESPACES: [Needed; 2] =
    [("", "namespaces", &["get", "create", "delete"]), ("", "resourcequotas", &["get", "create", "patch", "delete"])];

/// Rights in the agent's own namespace.
const LEASE: [Needed; 1] = [("coordination.k8s.io", "leases", &["get", "create", "update"])];

/// Places of a cluster agent's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsPlaces {
    /// Namespace of the lease.
    pub own: String,
    /// Namespace of all workspaces; `None` where each has one of its own.
    pub shared: Option<String>,
}

/// A right. Displays as a person would say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    namespace: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, verb, namespace } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(formatter, "{verb} {resource}{dot}{group}")?;
        match namespace {
            Some(namespace) => write!(formatter, " in {namespace}"),
            None => formatter.write_str(" in all namespaces"),
        }
    }
}

/// Rights that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RightsFound {
    /// Number of those that are needed.
    pub needed: usize,
    /// Those that are missing.
    pub missing: Vec<Right>,
}

/// Asks the API server for every right that a cluster agent needs (`SelfSubjectAccessReview`); changes nothing.
///
/// # Errors
/// The server's words, or why it does not answer.
///
/// Cancel safety: safe.
pub async fn ask(client: Client, places: &RightsPlaces) -> Result<RightsFound, String> {
    let api = CancelableApi::new(client, FIELD_MANAGER);
    let needed = needed(places);
    let mut found = RightsFound { needed: needed.len(), missing: Vec::new() };
    let questions = needed.into_iter().map(|right| {
        let api = api.clone();
        async move {
            let answer = api.write_once(REVIEWS, &review(&right), true, PATIENCE).await;
            answer.map(|answer| (is_allowed(&answer), right)).map_err(|error| error.to_string())
        }
    });
    let mut answers = stream::iter(questions).buffered(AT_ONCE);
    while let Some(answer) = answers.next().await {
        let (is_allowed, right) = answer?;
        if !is_allowed {
            found.missing.push(right);
        }
    }
    Ok(found)
}

/// Lists the rights that are needed.
fn needed(places: &RightsPlaces) -> Vec<Right> {
    let own = (&LEASE[..], Some(places.own.clone()));
    let groups = match &places.shared {
        Some(shared) => vec![(&WORKSPACES[..], Some(shared.clone())), own],
        None => vec![(&NAMESPACES[..], None), (&WORKSPACES[..], None), own],
    };
    let mut rights = Vec::new();
    for (needed, namespace) in groups {
        for (group, resource, verbs) in needed {
            let of = |verb: &&'static str| Right { group, resource, verb, namespace: namespace.clone() };
            rights.extend(verbs.iter().map(of));
        }
    }
    rights
}

fn review(right: &Right) -> Value {
    let Right { group, resource, verb, namespace } = right;
    let mut attributes = json!({"group": group, "resource": resource, "verb": verb});
    if let (Some(fields), Some(namespace)) = (attributes.as_object_mut(), namespace) {
        fields.insert("namespace".to_owned(), namespace.clone().into());
    }
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    })
}

fn is_allowed(answer: &Value) -> bool {
    answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Reads the rules of a file of `deploy/rbac`: each a group, a resource and a verb.
    fn rules(file: &str) -> BTreeSet<String> {
        let path = format!("{}/../../deploy/rbac/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let list = |line: &str| {
            let inner = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
            inner.split(',').map(|one| one.trim().trim_matches('"').to_owned()).collect::<Vec<_>>()
        };
        let (mut groups, mut resources, mut found) = (Vec::new(), Vec::new(), BTreeSet::new());
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("- apiGroups:") {
                groups = list(line);
            } else if line.starts_with("resources:") {
                resources = list(line);
            } else if line.starts_with("verbs:") {
                let verbs = list(line);
                for group in &groups {
                    for resource in &resources {
                        found.extend(verbs.iter().map(|verb| format!("{verb} {resource} {group}")));
                    }
                }
            }
        }
        found
    }

    #[test]
    fn rights_are_those_of_the_manifests() {
        for (file, shared) in [("unique.yaml", None), ("shared.yaml", Some("workspaces".to_owned()))] {
            let needed = needed(&RightsPlaces { own: "workspace-gateway".to_owned(), shared });
            let needed: BTreeSet<_> =
                needed.iter().map(|right| format!("{} {} {}", right.verb, right.resource, right.group)).collect();
            assert_eq!(needed, rules(file), "{file}");
        }
    }

    #[test]
    fn right_is_said_as_a_person_would_and_asked_as_kubernetes_wants() {
        let right = Right { group: "apps", resource: "deployments", verb: "patch", namespace: Some("w".to_owned()) };
        assert_eq!(right.to_string(), "patch deployments.apps in w");
        assert_eq!(review(&right).pointer("/spec/resourceAttributes/namespace"), Some(&json!("w")));
        let right = Right { group: "", resource: "namespaces", verb: "create", namespace: None };
        assert_eq!(right.to_string(), "create namespaces in all namespaces");
        assert_eq!(review(&right).pointer("/spec/resourceAttributes/namespace"), None);
        assert!(is_allowed(&json!({"status": {"allowed": true}})) && !is_allowed(&json!({"status": {}})));
    }
}
