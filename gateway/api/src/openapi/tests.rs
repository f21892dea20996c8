//! The document that is served is the one that the types give.

use super::*;

/// Sorts the lists whose order says nothing.
fn ordered(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| {
                let mut member = ordered(member);
                if let (Value::Array(items), "required" | "enum" | "type" | "anyOf" | "parameters") =
                    (&mut member, name.as_str())
                {
                    items.sort_by_key(Value::to_string);
                }
                (name.clone(), member)
            })
            .collect(),
        Value::Array(items) => items.iter().map(ordered).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Finds the places where two documents differ.
fn differences(left: &Value, right: &Value, at: &str, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            for name in left.keys().chain(right.keys().filter(|name| !left.contains_key(*name))) {
                let null = Value::Null;
                let (left, right) = (left.get(name).unwrap_or(&null), right.get(name).unwrap_or(&null));
                differences(left, right, &format!("{at}/{name}"), found);
            }
        }
        _ if left != right => found.push(format!("{at}: {left} is not {right}")),
        _ => {}
    }
}

#[test]
fn served_document_is_the_one_that_the_types_give() {
    let made = ordered(&described().unwrap());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        let text = serde_json::to_string_pretty(&described().unwrap()).unwrap();
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/openapi.json"), text + "\n").unwrap();
        return;
    }
    let served = ordered(&serde_json::from_str(include_str!("../openapi.json")).unwrap());
    let mut found = Vec::new();
    differences(&made, &served, "", &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
