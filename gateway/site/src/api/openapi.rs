//! The description of the API (OpenAPI 3.1), made of the types and handlers that serve it.
//!
//! `openapi.json` beside it is what is served. A test makes it anew and compares; to take over a change:
//! `UPDATE_OPENAPI=1 cargo test -p gateway-site openapi`.

mod bodies;
pub(super) mod values;

use serde_json::{Map, Value};
use utoipa::OpenApi;

use super::environments::{hook, prepare, records, templates, view};
use super::{agents, device, sessions, shares, state, tokens, whoami, workspaces};

#[derive(OpenApi)]
#[openapi(components(schemas(
    bodies::ProblemDocument,
    bodies::NewToken,
    bodies::Rotation,
    bodies::DeviceRequest,
    bodies::DeviceTokenRequest,
    bodies::NewWorkspace,
    bodies::Variable,
    bodies::WorkspaceChange,
    bodies::EnvironmentJob,
    bodies::EnvironmentRequest,
    bodies::EnvironmentInfo,
    bodies::EnvironmentWanted,
    bodies::EnvironmentChange,
    whoami::WhoAmI,
    workspaces::List,
    workspaces::Detail,
    state::StateRow,
    state::BlockerRow,
    shares::List,
    tokens::List,
    tokens::Made,
    tokens::MadeForOld,
    sessions::List,
    device::Codes,
    device::Granted,
    agents::List,
    prepare::UnmetRow,
    templates::TemplateRow,
    templates::List,
    records::List,
    view::OutcomeRow,
    hook::Swept,
)))]
struct Description;

/// Makes the document.
///
/// # Errors
/// The library cannot write what it made, which does not happen.
pub fn described() -> Result<Value, serde_json::Error> {
    let mut document = serde_json::to_value(Description::openapi())?;
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object).cloned().unwrap_or_default();
    settle(&mut document, &schemas);
    // Rows of a list say this, and the whole workspace does not say it again.
    for name in ["connected", "url"] {
        let pointer = format!("/components/schemas/WorkspaceDetail/properties/{name}");
        if let Some(member) = document.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            member.remove("description");
        }
    }
    Ok(document)
}

/// Writes a part of the document as this API does: objects are closed and say what they require, what is flattened into
/// them is theirs, and integers have the bounds that are meant, not those of Rust's types.
fn settle(value: &mut Value, schemas: &Map<String, Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| settle(item, schemas)),
        Value::Object(members) => {
            merge(members, schemas);
            members.values_mut().for_each(|member| settle(member, schemas));
            settle_schema(members);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Takes the members of flattened fields into the object that has them.
fn merge(members: &mut Map<String, Value>, schemas: &Map<String, Value>) {
    let Some(Value::Array(parts)) = members.remove("allOf") else { return };
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for part in &parts {
        let name = part.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        let part = name.and_then(|name| schemas.get(name)).unwrap_or(part);
        properties.extend(part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        required.extend(part.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
    }
    members.insert("type".to_owned(), "object".into());
    members.insert("properties".to_owned(), properties.into());
    members.insert("required".to_owned(), required.into());
}

fn settle_schema(members: &mut Map<String, Value>) {
    if members.get("properties").is_some_and(Value::is_object) {
        members.entry("required").or_insert_with(|| Value::Array(Vec::new()));
        members.insert("additionalProperties".to_owned(), false.into());
    }
    if let Some(Value::Array(mut choices)) = members.remove("oneOf") {
        // A text about a reference that may be null is about both.
        let texts = choices.iter_mut().filter_map(Value::as_object_mut).filter_map(|one| one.remove("description"));
        members.extend(texts.map(|text| ("description".to_owned(), text)).collect::<Map<_, _>>());
        members.insert("anyOf".to_owned(), choices.into());
    }
    if members.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("int")) {
        members.remove("format");
        if !members.contains_key("maximum") && members.get("minimum") == Some(&0.into()) {
            members.remove("minimum");
        }
    }
    if let Some(Value::String(text)) = members.get_mut("description") {
        // Comments are broken into lines.
        *text = text.replace('\n', " ");
    }
}

#[cfg(test)]
mod tests;
