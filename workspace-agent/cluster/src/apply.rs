//! Makes one inventory be what was sent: the algorithm of kubernetes-sigs/cli-utils, whose state is in the cluster.
//!
//! 1. The inventory tracks what it tracked and what is to come, before anything is applied.
//! 2. Objects are applied in order, workloads last. If one fails, nothing is pruned in this pass; if one belongs to
//!    another owner, no workload is applied, because it would use that object under its name.
//! 3. Tracked objects that are not wanted any more are deleted in reverse order, each as it was judged.
//! 4. The inventory forgets what is gone.
//!
//! Killed after any step, the next pass finds in the inventory all that may be there.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;
use tunnel_proto::reconcile::{Blocker, FailureKind, ObjectDetail};

use crate::api::{CancelableApi, Over};
use crate::config::{Group, Scope};
use crate::delete::{self, Pruned};
use crate::inventory::BadInventory;
use crate::inventory_store;
use crate::object::{CLUSTER_LABEL, LiveObject, OWNER_ANNOTATION, ObjectKey, Resource, SentObject, is_rewritten};
use crate::order::sort_to_delete;
use crate::prune::{self, Context};
use crate::resources::Resources;
use crate::retry::ApiError;
use crate::workload;

/// Longest wait of a pass for deleted objects to be gone; the next pass looks at those that take longer.
const GONE_TIMEOUT: Duration = Duration::from_secs(2);

/// Attempts at applying an object that appears at the same time: made by an attempt of one's own, say, whose answer was
/// lost.
const JUDGEMENTS_MAX: u32 = 4;

/// Interval between two looks.
const GONE_POLL: Duration = Duration::from_millis(100);

/// Obstacle to what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApplyProblem {
    pub(crate) kind: FailureKind,
    /// Text for people, which names the object.
    pub(crate) message: String,
    /// Whether time may heal it.
    pub(crate) is_temporary: bool,
}

/// Reason why a pass ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// A newer intent has replaced this one: errors are of no interest.
    Superseded,
    /// It cannot go on.
    Problem(ApplyProblem),
}

/// Result of a pass.
#[derive(Debug, Default)]
pub(crate) struct ApplyOutcome {
    pub(crate) problems: Vec<ApplyProblem>,
    /// Objects that are being deleted and still there.
    pub(crate) left: Vec<Blocker>,
    /// The Deployments that were applied, as the API server has them.
    pub(crate) deployments: Vec<Deployment>,
    /// Objects that have to be gone before the workload is applied.
    pub(crate) waits: Vec<ObjectDetail>,
    /// An object is not the workspace's, or its owner is not known: nothing may run that uses it.
    pub(crate) is_withheld: bool,
}

/// Context of passes.
pub(crate) struct Pass<'a> {
    pub(crate) api: &'a CancelableApi,
    pub(crate) resources: &'a Resources,
    pub(crate) scope: &'a Scope,
}

impl ApplyProblem {
    /// Makes the problem of an object.
    pub(crate) fn of(object: &impl std::fmt::Display, error: &ApiError) -> Self {
        let kind = match error {
            ApiError::Invalid(_) => FailureKind::Config,
            ApiError::Absent(_)
            | ApiError::NotFound(_)
            | ApiError::NotServed(_)
            | ApiError::Conflict(_)
            | ApiError::Forbidden(_)
            | ApiError::Unavailable { .. }
            | ApiError::Superseded => FailureKind::Kubernetes,
        };
        Self { kind, message: format!("{object}: {error}"), is_temporary: error.is_temporary() }
    }

    fn config(message: String) -> Self {
        Self { kind: FailureKind::Config, message, is_temporary: false }
    }
}

impl Stopped {
    /// Turns an error about an object into the end of a pass.
    pub(crate) fn by(object: &impl std::fmt::Display, error: &ApiError) -> Self {
        match error {
            ApiError::Superseded => Self::Superseded,
            ApiError::Absent(_)
            | ApiError::NotFound(_)
            | ApiError::NotServed(_)
            | ApiError::Conflict(_)
            | ApiError::Forbidden(_)
            | ApiError::Invalid(_)
            | ApiError::Unavailable { .. } => Self::Problem(ApplyProblem::of(object, error)),
        }
    }
}

impl From<BadInventory> for Stopped {
    fn from(error: BadInventory) -> Self {
        Self::Problem(ApplyProblem::config(error.to_string()))
    }
}

impl Pass<'_> {
    /// Reconciles the cluster with a group: all of its objects, and nothing else that its inventory tracks. With
    /// `is_withheld`, without the workload.
    ///
    /// # Errors
    /// [`Stopped`] if the API server does not answer or the inventory is not ours to write; other problems are in the outcome.
    pub(crate) async fn apply(&self, group: &Group, is_withheld: bool) -> Result<ApplyOutcome, Stopped> {
        let mut outcome = ApplyOutcome { is_withheld, ..ApplyOutcome::default() };
        let wanted = group.keys();
        let inventory = &group.inventory;
        let tracked =
            inventory_store::write(self.api, inventory, |tracked| tracked.union(&wanted).cloned().collect()).await?;
        let mut uids = BTreeSet::new();
        let mut forgotten = BTreeSet::new();
        let (workloads, others): (Vec<_>, Vec<_>) = group.objects.iter().partition(|object| workload::runs(object));
        for object in others.into_iter().chain(workloads) {
            if workload::runs(object) && self.is_held(object, &mut outcome).await? {
                continue;
            }
            let mut is_ours = false;
            match self.apply_object(object, group.name(), &mut is_ours).await {
                Ok(applied) => {
                    uids.insert(LiveObject::read(&applied).uid);
                    if object.key.kind == "Deployment" {
                        outcome.deployments.extend(serde_json::from_value(applied).ok());
                    }
                }
                Err(Stopped::Problem(problem)) if !problem.is_temporary => {
                    outcome.is_withheld |= !is_ours;
                    outcome.problems.push(problem);
                }
                // The other objects would fail in the same way, and take as long.
                Err(stopped) => return Err(stopped),
            }
        }
        if outcome.problems.is_empty() {
            let stale = prune::stale(&tracked, &wanted);
            self.prune(stale, group.name(), &uids, &mut forgotten, &mut outcome).await?;
        }
        if !forgotten.is_empty() {
            inventory_store::write(self.api, inventory, |tracked| tracked.difference(&forgotten).cloned().collect())
                .await?;
        }
        Ok(outcome)
    }

    /// Decides whether a workload has to wait.
    async fn is_held(&self, object: &SentObject, outcome: &mut ApplyOutcome) -> Result<bool, Stopped> {
        if outcome.is_withheld {
            return Ok(true);
        }
        let path = self.find(object).await?.path(&object.key.namespace, &object.key.name);
        match workload::obstacle(self.api, self.scope, object, &path).await {
            Ok(None) => return Ok(false),
            Ok(Some(obstacle)) => outcome.waits.push(obstacle),
            Err(error) => match Stopped::by(&object.key, &error) {
                Stopped::Problem(problem) if !problem.is_temporary => outcome.problems.push(problem),
                stopped @ (Stopped::Superseded | Stopped::Problem(_)) => return Err(stopped),
            },
        }
        Ok(true)
    }

    async fn find(&self, object: &SentObject) -> Result<Resource, Stopped> {
        let key = &object.key;
        let found = self.resources.find(self.api, &key.group, Some(&object.version), &key.kind).await;
        let found = found.map_err(|error| Stopped::by(key, &error))?;
        if found.is_namespaced {
            Ok(found)
        } else {
            Err(Stopped::Problem(ApplyProblem::config(format!("{key} is of the whole cluster and not of a workspace"))))
        }
    }

    /// Applies one object; returns what the API server made of it. An object that appears while it is being applied is
    /// not taken over, but looked at again. `is_ours` tells afterwards whether it is certain that no object of another
    /// owner is in its place.
    async fn apply_object(&self, object: &SentObject, inventory: &str, is_ours: &mut bool) -> Result<Value, Stopped> {
        let key = &object.key;
        let mut resource = self.find(object).await?;
        let mut judgements = 0;
        loop {
            judgements += 1;
            *is_ours = false;
            let path = resource.path(&key.namespace, &key.name);
            let (live, whole) = match self.live(key, &path).await {
                Err(unserved @ ApiError::NotServed(_)) if judgements < JUDGEMENTS_MAX => {
                    let version = Some(object.version.as_str());
                    let found = self.resources.find_again(self.api, &resource, version, &key.kind, unserved).await;
                    resource = found.map_err(|error| Stopped::by(key, &error))?;
                    continue;
                }
                looked => looked.map_err(|error| Stopped::by(key, &error))?,
            };
            *is_ours = live.as_ref().is_none_or(|live| self.is_ours(live, inventory));
            self.check(key, live.as_ref(), inventory)?;
            if let Some(whole) = whole.filter(|whole| object.is_said_by(whole)) {
                return Ok(whole);
            }
            let over = if live.is_some() { Over::Anything } else { Over::Nothing };
            match self.api.apply(&path, &object.value, over).await {
                Err(ApiError::Conflict(_)) if over == Over::Nothing && judgements < JUDGEMENTS_MAX => {}
                applied => {
                    *is_ours &= !matches!(applied, Err(ApiError::Conflict(_)));
                    return applied.map_err(|error| Stopped::by(key, &error));
                }
            }
        }
    }

    /// Checks that an object may be applied over what is there.
    fn check(&self, key: &ObjectKey, live: Option<&LiveObject>, inventory: &str) -> Result<(), Stopped> {
        let Some(live) = live else { return Ok(()) };
        if !self.is_ours(live, inventory) {
            let message = format!(
                "{key} is there already and is not of this workspace: it is left as it is, and nothing of the workspace is started \
                 beside it"
            );
            return Err(Stopped::Problem(ApplyProblem::config(message)));
        }
        if live.deleting_since.is_some() {
            let held =
                if live.finalizers.is_empty() { String::new() } else { format!(" by {}", live.finalizers.join(", ")) };
            let message = format!("{key} is still being deleted, held{held}: it can be made again once it is gone");
            let kind = FailureKind::Kubernetes;
            return Err(Stopped::Problem(ApplyProblem { kind, message, is_temporary: false }));
        }
        Ok(())
    }

    /// Reads an object's metadata; and the whole object, if it is not to be applied while it is as it was sent.
    async fn live(&self, key: &ObjectKey, path: &str) -> Result<(Option<LiveObject>, Option<Value>), ApiError> {
        if !is_rewritten(key) {
            return Ok((self.api.metadata(path).await?, None));
        }
        let whole = self.api.get(path).await?;
        Ok((whole.as_ref().map(LiveObject::read), whole))
    }

    fn is_ours(&self, live: &LiveObject, inventory: &str) -> bool {
        let owner = live.annotations.get(OWNER_ANNOTATION).map(String::as_str);
        let cluster = live.labels.get(CLUSTER_LABEL);
        owner == Some(inventory) && cluster.is_none_or(|cluster| *cluster == self.scope.cluster)
    }

    async fn prune(
        &self,
        stale: Vec<ObjectKey>,
        inventory: &str,
        applied: &BTreeSet<String>,
        forgotten: &mut BTreeSet<ObjectKey>,
        outcome: &mut ApplyOutcome,
    ) -> Result<(), Stopped> {
        // No workspace's inventory has a namespace in it; if one does, it is not touched while others are left.
        let occupied =
            stale.iter().map(|key| key.namespace.clone()).filter(|namespace| !namespace.is_empty()).collect();
        let context = Context { inventory, applied, occupied: &occupied };
        let mut leaving = Vec::new();
        for key in stale {
            match self.prune_object(&key, context).await {
                Ok(true) => leaving.push(key),
                Ok(false) => drop(forgotten.insert(key)),
                Err(Stopped::Problem(problem)) if !problem.is_temporary => outcome.problems.push(problem),
                Err(stopped) => return Err(stopped),
            }
        }
        let deadline = Instant::now() + GONE_TIMEOUT;
        loop {
            outcome.left.clear();
            let mut still = Vec::new();
            for key in leaving {
                match self.look(&key).await? {
                    None => drop(forgotten.insert(key)),
                    Some(live) => {
                        outcome.left.push(blocker(&key, &live));
                        still.push(key);
                    }
                }
            }
            leaving = still;
            if leaving.is_empty() || Instant::now() >= deadline {
                sort_to_delete(&mut leaving, |key| key);
                return Ok(());
            }
            tokio::time::sleep(GONE_POLL).await;
        }
    }

    /// Deletes an object if that is right. Returns whether it is to be waited for; otherwise the inventory forgets it.
    async fn prune_object(&self, key: &ObjectKey, context: Context<'_>) -> Result<bool, Stopped> {
        match delete::prune(self.api, self.resources, key, context).await {
            Ok(Pruned::Leaving(_) | Pruned::Held(_) | Pruned::Deleted(_)) => Ok(true),
            Ok(Pruned::Gone) => Ok(false),
            Ok(Pruned::Released(why)) => {
                warn!(workspace = self.scope.workspace, object = %key, ?why, "not deleted, and not tracked any more");
                Ok(false)
            }
            Err(ApiError::Conflict(message)) => Err(Stopped::Problem(ApplyProblem {
                kind: FailureKind::Kubernetes,
                message: format!("{key} {message}"),
                is_temporary: true,
            })),
            Err(error) => Err(Stopped::by(key, &error)),
        }
    }

    async fn look(&self, key: &ObjectKey) -> Result<Option<LiveObject>, Stopped> {
        delete::look(self.api, self.resources, key).await.map_err(|error| Stopped::by(key, &error))
    }
}

/// Names the finalizers that hold an object that is to go.
pub(crate) fn blocker(key: &ObjectKey, live: &LiveObject) -> Blocker {
    Blocker {
        object: key.to_string(),
        finalizers: live.finalizers.clone(),
        since: live.deleting_since.unwrap_or_default(),
        message: String::new(),
    }
}
