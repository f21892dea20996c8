//! Bodies have the members that the document lists: no more, and no fewer.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::environments::operator;
use super::*;

/// Places of objects in a body, and the names of their members.
type Members = BTreeMap<String, BTreeSet<String>>;

/// Finds the object that a schema describes, directly, by reference, or as one of several.
fn object<'a>(schema: &'a Value, document: &'a Value) -> Option<&'a Map<String, Value>> {
    if let Some(name) = schema["$ref"].as_str() {
        return object(document.pointer(name.trim_start_matches('#'))?, document);
    }
    let any = schema["anyOf"].as_array().into_iter().flatten();
    schema["properties"].as_object().or_else(|| any.filter_map(|schema| object(schema, document)).next())
}

/// Makes a body in which each object has a member that is not described, and notes the described ones.
fn body(schema: &Value, document: &Value, at: &str, described: &mut Members) -> Option<Value> {
    // A project is read in one piece, and named as a whole if it is wrong.
    let properties = object(schema, document).filter(|_| at != "/project")?;
    described.insert(at.to_owned(), properties.keys().cloned().collect());
    let mut members = json!({"executor": "ci", "?": 1});
    members.as_object_mut().unwrap().retain(|name, _| name == "?" || properties.contains_key(name));
    for (name, schema) in properties {
        if let Some(inner) = body(schema, document, &format!("{at}/{name}"), described) {
            members[name] = inner;
        } else if let Some(item) = body(&schema["items"], document, &format!("{at}/{name}/0"), described) {
            members[name] = json!([item]);
        }
    }
    Some(members)
}

/// Sends a body, and returns what the answer says is known at each place.
async fn known(api: &Api, (method, path): (&str, &str), body: &Value) -> Members {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = ask_as(api, operator(), request.body(Full::from(body.to_string())).unwrap()).await;
    let problem: Value = serde_json::from_slice(answer.body()).unwrap();
    let mistakes = problem["errors"].as_array().unwrap_or_else(|| panic!("{method} {path}: {problem}"));
    let known = mistakes.iter().filter_map(|mistake| {
        let names = mistake["detail"].as_str()?.strip_prefix("has an unknown member; known are ")?;
        Some((mistake["pointer"].as_str()?.to_owned(), names.split(", ").map(str::to_owned).collect()))
    });
    known.collect()
}

#[tokio::test]
async fn bodies_have_the_members_that_are_described_and_no_other() {
    let (api, document, mut checked) = (api().await, document(), 0);
    let external = json!({"name": "app", "executor": "external"});
    let request = Request::post("/api/v1/workspaces").header("content-type", "application/json");
    let made = ask_as(&api, operator(), request.body(Full::from(external.to_string())).unwrap()).await;
    assert_eq!(made.status(), StatusCode::CREATED);
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let mut described = Members::new();
            let Some(body) = body(schema, &document, "", &mut described) else { continue };
            let id = if path.starts_with("/tokens") { "t-1" } else { "1" };
            let to = format!(
                "{PREFIX}{}",
                path.replace("{name}", "app").replace("{id}", id).replace("{host}", "git.example")
            );
            assert_eq!(known(&api, (&method.to_uppercase(), &to), &body).await, described, "{method} {path}");
            checked += 1;
        }
    }
    assert_eq!(checked, 16);
}
