//! Reads inventories in the cluster, and writes them over what was read.

use std::collections::BTreeSet;

use serde_json::Value;
use tracing::debug;
use tunnel_proto::reconcile::FailureKind;

use crate::api::CancelableApi;
use crate::apply::{ApplyProblem, Stopped};
use crate::inventory;
use crate::object::{LiveObject, ObjectKey, Resource, SentObject};
use crate::retry::ApiError;

/// Attempts at writing an inventory that another writer changes at the same time.
const WRITES_MAX: u32 = 5;

/// Writes an inventory; returns what it tracked before. A change of another writer in between is read and kept. An
/// inventory that would track nothing is not made.
///
/// # Errors
/// [`Stopped`] if the API server does not answer or the inventory is not ours to write.
pub(crate) async fn write(
    api: &CancelableApi,
    inventory: &SentObject,
    change: impl Fn(&BTreeSet<ObjectKey>) -> BTreeSet<ObjectKey>,
) -> Result<BTreeSet<ObjectKey>, Stopped> {
    let key = &inventory.key;
    for _ in 0..WRITES_MAX {
        let (live, tracked) = read(api, key).await?;
        let keys = change(&tracked);
        let written = inventory::with_tracked(&inventory.value, live.as_ref(), &keys)?;
        let result = match &live {
            Some(live) if inventory::is_same(live, &written) => return Ok(tracked),
            Some(_) => api.replace(&path(key), &written).await,
            None if keys.is_empty() => return Ok(tracked),
            None => api.create(&collection(key), &written).await,
        };
        match result {
            Ok(_) => return Ok(tracked),
            Err(ApiError::Conflict(_)) => {
                debug!(inventory = %key, "another writer changed the inventory: it is read again")
            }
            Err(ApiError::Absent(_)) if live.is_some() => {}
            Err(error) => return Err(Stopped::by(key, &error)),
        }
    }
    Err(Stopped::Problem(ApplyProblem {
        kind: FailureKind::Kubernetes,
        message: format!("{key}: another writer keeps changing this inventory"),
        is_temporary: true,
    }))
}

/// Reads an inventory and what it tracks.
///
/// # Errors
/// [`Stopped`], also if there is a ConfigMap of that name that is no inventory.
pub(crate) async fn read(
    api: &CancelableApi,
    key: &ObjectKey,
) -> Result<(Option<Value>, BTreeSet<ObjectKey>), Stopped> {
    let live = api.get(&path(key)).await.map_err(|error| Stopped::by(key, &error))?;
    if let Some(live) = &live {
        inventory::check(live, &key.name)?;
    }
    let tracked = live.as_ref().map(inventory::tracked).transpose()?.unwrap_or_default();
    Ok((live, tracked))
}

/// Deletes an inventory if it is still what was seen.
///
/// # Errors
/// [`Stopped`] if the API server does not answer.
pub(crate) async fn delete(api: &CancelableApi, key: &ObjectKey, live: &LiveObject) -> Result<(), Stopped> {
    match api.delete(&path(key), &live.uid, &live.resource_version, false).await {
        Ok(()) | Err(ApiError::Absent(_) | ApiError::Conflict(_)) => Ok(()),
        Err(error) => Err(Stopped::by(key, &error)),
    }
}

fn path(key: &ObjectKey) -> String {
    format!("{}/{}", collection(key), key.name)
}

fn collection(key: &ObjectKey) -> String {
    Resource::known("", None, "ConfigMap").map(|maps| maps.collection(&key.namespace)).unwrap_or_default()
}
