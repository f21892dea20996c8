//! Where objects of a kind are in the API: known, or asked for once.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;

use crate::api::Api;
use crate::object::Resource;
use crate::retry::ApiError;

/// Group, version if one is wanted, kind.
type Wanted = (String, Option<String>, String);

/// What was asked for. Bounded by what the API server has.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    asked: Mutex<BTreeMap<Wanted, Resource>>,
}

impl Resources {
    /// Finds a kind; without a version, in the one that the server prefers.
    ///
    /// # Errors
    /// [`ApiError::NotFound`] if the server has no such kind.
    pub(crate) async fn find(
        &self,
        api: &Api,
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
}

async fn ask(api: &Api, group: &str, version: Option<&str>, kind: &str) -> Result<Resource, ApiError> {
    let absent = || ApiError::NotFound(format!("the API server has no kind {kind} in the group `{group}`"));
    let version = match version {
        Some(version) => version.to_owned(),
        None if group.is_empty() => "v1".to_owned(),
        None => {
            let about = api.get(&format!("/apis/{group}")).await?.ok_or_else(absent)?;
            let preferred = about.pointer("/preferredVersion/version").and_then(Value::as_str);
            preferred.ok_or_else(absent)?.to_owned()
        }
    };
    let base = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    let listed = api.get(&format!("{base}/{version}")).await?.ok_or_else(absent)?;
    let resources = listed.get("resources").and_then(Value::as_array);
    let mut resources = resources.into_iter().flatten();
    let text = |resource: &Value, name: &str| resource.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    // Subresources have a slash in their name.
    let found = resources.find(|resource| text(resource, "kind") == kind && !text(resource, "name").contains('/'));
    let found = found.ok_or_else(absent)?;
    Ok(Resource {
        group: group.to_owned(),
        version,
        plural: text(found, "name"),
        is_namespaced: found.get("namespaced").and_then(Value::as_bool) == Some(true),
    })
}
