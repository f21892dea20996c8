//! Image pull secrets: copied from their sources into the namespaces of workspaces, and kept like them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tunnel_proto::reconcile::{ObjectDetail, SecretRef};

use crate::api::{CancelableApi, Over};
use crate::apply::{ApplyProblem, Stopped};
use crate::config::Scope;
use crate::object::{CLUSTER_LABEL, COPY_ANNOTATION, LiveObject, Resource, WORKSPACE_LABEL};
use crate::retry::ApiError;
use crate::watch::ObjectWatch;

/// Types of Secrets with which images are pulled (Kubernetes, "Types of Secret"). Others are not copied: the gateway
/// could ask for any Secret that the agent may read.
const TYPES: [&str; 2] = ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"];

/// Attempts at writing a copy while another client makes a Secret of its name.
const JUDGEMENTS_MAX: u32 = 4;

/// State of a source.
#[derive(Clone, Debug, Default)]
enum SecretSource {
    /// It was not looked at yet.
    #[default]
    Unknown,
    Missing,
    /// Not an image pull secret.
    Wrong,
    Usable(Arc<Contents>),
}

/// Contents that are copied.
struct Contents {
    kind: String,
    data: Value,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Contents").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Sources that workspaces name.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    known: Mutex<BTreeMap<SecretRef, SecretSource>>,
}

impl Sources {
    /// Adds a source. Returns whether it is new, and has to be followed.
    pub(crate) fn add(&self, source: &SecretRef) -> bool {
        let mut known = self.known.lock();
        let is_new = !known.contains_key(source);
        if is_new {
            known.insert(source.clone(), SecretSource::Unknown);
        }
        is_new
    }

    /// Follows a source, and reports each change. Ends with `changed`.
    pub(crate) async fn follow(
        self: Arc<Self>,
        api: CancelableApi,
        source: SecretRef,
        changed: mpsc::Sender<SecretRef>,
    ) {
        let secrets: kube::Api<Secret> = kube::Api::namespaced(api.client().clone(), &source.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", source.name));
        let mut watch = ObjectWatch::new(format!("pull secret {}", origin(&source)), secrets, config);
        let mut listed = SecretSource::Missing;
        loop {
            let now = match watch.next().await {
                Event::Init => {
                    listed = SecretSource::Missing;
                    continue;
                }
                Event::InitApply(secret) => {
                    listed = read(secret);
                    continue;
                }
                Event::InitDone => std::mem::replace(&mut listed, SecretSource::Missing),
                Event::Apply(secret) => read(secret),
                Event::Delete(_) => SecretSource::Missing,
            };
            self.known.lock().insert(source.clone(), now);
            if changed.send(source.clone()).await.is_err() {
                return;
            }
        }
    }

    fn get(&self, source: &SecretRef) -> SecretSource {
        self.known.lock().get(source).cloned().unwrap_or_default()
    }

    /// Makes the copies in a workspace's namespace be like their sources. Returns details for people.
    pub(crate) async fn copy(
        &self,
        api: &CancelableApi,
        scope: &Scope,
        wanted: &[SecretRef],
    ) -> Result<Vec<ObjectDetail>, Stopped> {
        let mut details = Vec::new();
        // A secret that is in the namespace already needs no copy.
        for source in wanted.iter().filter(|source| source.namespace != scope.namespace) {
            let told = match self.get(source) {
                SecretSource::Unknown => None,
                SecretSource::Usable(contents) => write(api, scope, source, &contents).await?,
                SecretSource::Missing => {
                    remove(api, scope, source).await?;
                    Some("is missing: images that need it cannot be pulled")
                }
                SecretSource::Wrong => {
                    remove(api, scope, source).await?;
                    Some("is no image pull secret and is not copied")
                }
            };
            details.extend(told.map(|told| ObjectDetail {
                object: format!("Secret {}/{}", source.namespace, source.name),
                reason: "PullSecret".to_owned(),
                message: format!("the image pull secret {told}"),
            }));
        }
        Ok(details)
    }
}

fn read(secret: Secret) -> SecretSource {
    let kind = secret.type_.unwrap_or_default();
    if !TYPES.contains(&kind.as_str()) {
        return SecretSource::Wrong;
    }
    let data = serde_json::to_value(secret.data.unwrap_or_default()).unwrap_or_default();
    SecretSource::Usable(Arc::new(Contents { kind, data }))
}

fn path(scope: &Scope, source: &SecretRef) -> String {
    let secrets = Resource::known("", None, "Secret");
    secrets.map(|secrets| secrets.path(&scope.namespace, &source.name)).unwrap_or_default()
}

fn origin(source: &SecretRef) -> String {
    format!("{}/{}", source.namespace, source.name)
}

async fn write(
    api: &CancelableApi,
    scope: &Scope,
    source: &SecretRef,
    contents: &Contents,
) -> Result<Option<&'static str>, Stopped> {
    let stopped = |error: &ApiError| Stopped::by(&format!("Secret {}", source.name), error);
    let path = path(scope, source);
    let copy = json!({"apiVersion": "v1", "kind": "Secret", "type": contents.kind, "data": contents.data,
        "metadata": {"name": source.name, "namespace": scope.namespace,
            "labels": {WORKSPACE_LABEL: scope.workspace, CLUSTER_LABEL: scope.cluster},
            "annotations": {COPY_ANNOTATION: origin(source)}}});
    let mut live = api.metadata(&path).await.map_err(|error| stopped(&error))?;
    let mut applied = Ok(Value::Null);
    for _ in 0..JUDGEMENTS_MAX {
        if live.as_ref().is_some_and(|live| !is_copy(live, scope, source)) {
            return Ok(Some("is not copied: the workspace's namespace has another secret of its name"));
        }
        applied = api.apply(&path, &copy, if live.is_some() { Over::Anything } else { Over::Nothing }).await;
        if live.is_some() || !matches!(applied, Err(ApiError::Conflict(_))) {
            break;
        }
        // It appeared in this moment: made by an attempt whose answer was lost, or by another client.
        live = api.metadata(&path).await.map_err(|error| stopped(&error))?;
    }
    match applied {
        Ok(_) => Ok(None),
        // Its type cannot be changed (Kubernetes API, Secret): it is made anew by the next pass.
        Err(ApiError::Invalid(_)) if live.is_some() => {
            remove(api, scope, source).await?;
            let message = format!("Secret {}: its type changed, it is made anew", source.name);
            let kind = tunnel_proto::reconcile::FailureKind::Kubernetes;
            Err(Stopped::Problem(ApplyProblem { kind, message, is_temporary: true }))
        }
        Err(error) => Err(stopped(&error)),
    }
}

/// Deletes the copy of a source that is gone.
async fn remove(api: &CancelableApi, scope: &Scope, source: &SecretRef) -> Result<(), Stopped> {
    let stopped = |error: &ApiError| Stopped::by(&format!("Secret {}", source.name), error);
    let path = path(scope, source);
    let live = api.metadata(&path).await.map_err(|error| stopped(&error))?;
    let Some(live) = live.filter(|live| is_copy(live, scope, source)) else { return Ok(()) };
    match api.delete(&path, &live.uid, &live.resource_version, false).await {
        Ok(()) | Err(ApiError::Absent(_) | ApiError::Conflict(_)) => Ok(()),
        Err(error) => Err(stopped(&error)),
    }
}

fn is_copy(live: &LiveObject, scope: &Scope, source: &SecretRef) -> bool {
    live.annotations.get(COPY_ANNOTATION) == Some(&origin(source)) && live.is_of(&scope.workspace, &scope.cluster)
}
