//! Writes the document as this API does, where the library writes the same in another way.

use serde_json::{Map, Value, json};

/// Path whose parameter is described with its one operation.
const AGENT_PROGRAM: &str = "/ci/agents/{sha256}";

/// Settles the whole document.
pub(super) fn settle(document: &mut Value) {
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object).cloned().unwrap_or_default();
    settle_part(document, &schemas);
    for (path, item) in document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten() {
        settle_path(path, item);
    }
    // Rows of a list say this, and the whole workspace does not say it again.
    for name in ["connected", "url"] {
        let pointer = format!("/components/schemas/WorkspaceDetail/properties/{name}");
        if let Some(member) = document.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            member.remove("description");
        }
    }
}

/// Writes a part of the document as this API does: objects are closed and say what they require, what is flattened into
/// them is theirs, and integers have the bounds that are meant, not those of Rust's types.
fn settle_part(value: &mut Value, schemas: &Map<String, Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| settle_part(item, schemas)),
        Value::Object(members) => {
            merge(members, schemas);
            members.values_mut().for_each(|member| settle_part(member, schemas));
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

/// Writes a path as this API does: parameters of the path are its own, not those of each operation.
fn settle_path(path: &str, item: &mut Value) {
    let Some(operations) = item.as_object_mut() else { return };
    let mut shared = Vec::new();
    for operation in operations.values_mut().filter_map(Value::as_object_mut) {
        settle_operation(operation);
        let parameters = operation.remove("parameters").and_then(as_list).unwrap_or_default().into_iter();
        let is_shared = |parameter: &Value| parameter["in"] == "path" && path != AGENT_PROGRAM;
        let (of_path, own): (Vec<_>, Vec<_>) = parameters.map(settled_parameter).partition(is_shared);
        if !own.is_empty() {
            operation.insert("parameters".to_owned(), own.into());
        }
        shared = of_path;
    }
    if !shared.is_empty() {
        operations.insert("parameters".to_owned(), shared.into());
    }
}

/// A parameter has a value or is left out; it is never null.
fn settled_parameter(mut parameter: Value) -> Value {
    if let Some(members) = parameter.as_object_mut().filter(|members| members.get("required") == Some(&false.into())) {
        members.remove("required");
    }
    if let Some(kinds) = parameter.pointer_mut("/schema/type")
        && let Some(kind) = kinds.as_array().and_then(|kinds| kinds.iter().find(|kind| *kind != "null")).cloned()
    {
        *kinds = kind;
    }
    parameter
}

/// Every failure is a problem document, and a body that may be left out is not null either.
fn settle_operation(operation: &mut Map<String, Value>) {
    operation.remove("tags");
    if let Some(body) = operation.get_mut("requestBody")
        && let Some(schema) = body.pointer_mut("/content/application~1json/schema")
        && let Some(some) =
            schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null")).cloned()
    {
        *schema = some;
        body["required"] = false.into();
    }
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for (_, failure) in responses.into_iter().flatten().filter(|(status, _)| status.as_str() >= "400") {
        failure["content"] = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
    }
}

fn as_list(value: Value) -> Option<Vec<Value>> {
    if let Value::Array(items) = value { Some(items) } else { None }
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
