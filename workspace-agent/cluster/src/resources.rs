//! Places of kinds in the API: known, or asked for once, and again when the server does not know the place any more.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde_json::Value;

use crate::api::{CancelableApi, escape};
use crate::object::{LiveObject, ObjectKey, Resource};
use crate::retry::ApiError;

/// Group, version if one is wanted, kind.
type ResourceQuery = (String, Option<String>, String);

/// Places that were asked for. Bounded by what the API server has.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    asked: Mutex<BTreeMap<ResourceQuery, Resource>>,
}

impl Resources {
    /// Finds a kind; without a version, in the version that the server prefers of those that have it.
    ///
    /// # Errors
    /// [`ApiError::NotFound`] if the server says that it has no such kind.
    pub(crate) async fn find(
        &self,
        api: &CancelableApi,
        group: &str,
        version: Option<&str>,
        kind: &str,
    ) -> Result<Resource, ApiError> {
        if let Some(known) = Resource::known(group, version, kind) {
            return Ok(known);
        }
        let wanted = (group.to_owned(), version.map(str::to_owned), kind.to_owned());
        if let Some(known) = self.asked.lock().get(&wanted) {
            return Ok(known.clone());
        }
        let found = ask(api, group, version, kind).await?;
        self.asked.lock().insert(wanted, found.clone());
        Ok(found)
    }

    /// Finds a kind anew after the server did not know its place any more.
    ///
    /// # Errors
    /// [`ApiError::NotFound`] as of [`Resources::find`]; `unserved` if the kind still is in that place.
    pub(crate) async fn find_again(
        &self,
        api: &CancelableApi,
        before: &Resource,
        version: Option<&str>,
        kind: &str,
        unserved: ApiError,
    ) -> Result<Resource, ApiError> {
        self.asked.lock().retain(|(group, _, asked), _| *group != before.group || asked != kind);
        let found = self.find(api, &before.group, version, kind).await?;
        if found == *before { Err(unserved) } else { Ok(found) }
    }

    /// Reads the metadata of an object, and returns it with its path. `None` if it is not there: the server says so, or
    /// has not even its kind.
    ///
    /// # Errors
    /// [`ApiError::NotServed`] if the server's answer is not clear.
    pub(crate) async fn look(
        &self,
        api: &CancelableApi,
        key: &ObjectKey,
    ) -> Result<Option<(String, LiveObject)>, ApiError> {
        let resource = match self.find(api, &key.group, None, &key.kind).await {
            Ok(resource) => resource,
            Err(ApiError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let path = resource.path(&key.namespace, &key.name);
        let unserved = match api.metadata(&path).await {
            Err(error @ ApiError::NotServed(_)) => error,
            looked => return Ok(looked?.map(|live| (path, live))),
        };
        match self.find_again(api, &resource, None, &key.kind, unserved).await {
            Ok(resource) => {
                let path = resource.path(&key.namespace, &key.name);
                Ok(api.metadata(&path).await?.map(|live| (path, live)))
            }
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Asks for a kind. Only lists without a kind prove that it is not there: a 404 may have other reasons.
async fn ask(api: &CancelableApi, group: &str, version: Option<&str>, kind: &str) -> Result<Resource, ApiError> {
    let base = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    for version in versions(api, group, version).await? {
        let listed = api.discover(&format!("{base}/{version}")).await?;
        let mut resources = listed.get("resources").and_then(Value::as_array).into_iter().flatten();
        // Subresources have a slash in their name.
        let found = resources
            .find(|one| text(one, "kind") == Some(kind) && !text(one, "name").is_none_or(|name| name.contains('/')));
        if let Some(found) = found {
            return Ok(Resource {
                group: group.to_owned(),
                version,
                plural: text(found, "name").unwrap_or_default().to_owned(),
                is_namespaced: found.get("namespaced").and_then(Value::as_bool) == Some(true),
            });
        }
    }
    let within = version.map_or_else(String::new, |version| format!(", version {version}"));
    Err(ApiError::NotFound(format!("the API server has no kind {kind} in the group `{group}`{within}")))
}

/// Returns the versions of a group that are served, the preferred one first; only the wanted one, if one is wanted.
async fn versions(api: &CancelableApi, group: &str, wanted: Option<&str>) -> Result<Vec<String>, ApiError> {
    let mut versions = if group.is_empty() {
        vec!["v1".to_owned()]
    } else {
        let Some(about) = about(api, group).await? else { return Ok(Vec::new()) };
        let served = about.get("versions").and_then(Value::as_array).into_iter().flatten();
        let preferred = about.get("preferredVersion");
        let versions = preferred.into_iter().chain(served).filter_map(|one| text(one, "version"));
        versions.map(str::to_owned).collect()
    };
    let mut seen = BTreeSet::new();
    versions.retain(|version| wanted.is_none_or(|wanted| wanted == version) && seen.insert(version.clone()));
    Ok(versions)
}

/// Returns the server's description of a group; `None` if it has no such group. A group that is not in the list is
/// asked for by name: a server that has just started does not list all groups yet, and says so only there.
async fn about(api: &CancelableApi, group: &str) -> Result<Option<Value>, ApiError> {
    let listed = api.discover("/apis").await?;
    let mut groups = listed.get("groups").and_then(Value::as_array).into_iter().flatten();
    if let Some(about) = groups.find(|about| text(about, "name") == Some(group)) {
        return Ok(Some(about.clone()));
    }
    match api.discover(&format!("/apis/{}", escape(group))).await {
        Ok(about) => Ok(Some(about)),
        Err(ApiError::NotServed(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}
