//! Deletes objects as they were judged, and looks at them until they are gone.

use crate::api::CancelableApi;
use crate::object::{LiveObject, ObjectKey, has_dependents};
use crate::prune::{Context, PruneVerdict, Why, judge};
use crate::resources::Resources;
use crate::retry::ApiError;

/// Attempts at deleting an object that changes while it is judged.
const JUDGEMENTS_MAX: u32 = 4;

/// Result of pruning an object that is not wanted any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pruned {
    /// It is not there.
    Gone,
    /// Its deletion was requested now.
    Deleted(LiveObject),
    /// Its deletion was requested earlier.
    Leaving(LiveObject),
    /// It has to wait for other objects.
    Held(LiveObject),
    /// It is not ours to delete.
    Released(Why),
}

/// Deletes an object if that is right.
///
/// # Errors
/// [`ApiError::Conflict`] if it changes all the time, with a text that goes behind the object's name.
pub(crate) async fn prune(
    api: &CancelableApi,
    resources: &Resources,
    key: &ObjectKey,
    context: Context<'_>,
) -> Result<Pruned, ApiError> {
    for _ in 0..JUDGEMENTS_MAX {
        let Some((path, live)) = resources.look(api, key).await? else { return Ok(Pruned::Gone) };
        let verdict = judge(key, &live, context);
        let (uid, resource_version) = match verdict {
            PruneVerdict::Leaving => return Ok(Pruned::Leaving(live)),
            PruneVerdict::Held => return Ok(Pruned::Held(live)),
            PruneVerdict::Released(why) => return Ok(Pruned::Released(why)),
            PruneVerdict::Delete { uid, resource_version } => (uid, resource_version),
        };
        match api.delete(&path, &uid, &resource_version, has_dependents(key)).await {
            Ok(()) => return Ok(Pruned::Deleted(live)),
            Err(ApiError::Absent(_)) => return Ok(Pruned::Gone),
            // It changed: judge it again as it is now.
            Err(ApiError::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::Conflict("changes all the time and could not be deleted".to_owned()))
}

/// Reads the metadata of an object.
///
/// # Errors
/// [`ApiError`].
pub(crate) async fn look(
    api: &CancelableApi,
    resources: &Resources,
    key: &ObjectKey,
) -> Result<Option<LiveObject>, ApiError> {
    Ok(resources.look(api, key).await?.map(|(_, live)| live))
}
