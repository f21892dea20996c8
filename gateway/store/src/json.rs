//! Canonical JSON: equal values have equal texts, with keys sorted at every depth and no spaces. PostgreSQL keeps the
//! value and not the text, so texts are brought into this form when written and again when read.

use serde_json::Value;

use super::StoreError;
use super::database::Value as Bound;

/// Returns the canonical text of a JSON value.
///
/// # Errors
/// Says what is wrong with a text that is no JSON.
pub fn canonical_json(text: &str) -> Result<String, serde_json::Error> {
    Ok(sorted(serde_json::from_str(text)?).to_string())
}

/// Returns the canonical text to write to a column.
pub(super) fn given(text: &str, table: &'static str, column: &'static str) -> Result<String, StoreError> {
    canonical_json(text).map_err(|source| StoreError::NotJson { table, column, source })
}

/// Makes a JSON text the value of a parameter.
pub(super) fn value(text: &str) -> Bound<'_> {
    Bound::Json(text)
}

/// Returns the canonical text of a column's value.
pub(super) fn read(text: &str, table: &'static str, column: &'static str) -> Result<String, StoreError> {
    canonical_json(text).map_err(|_| StoreError::Corrupt { table, column })
}

/// Sorts the keys, even if maps keep insertion order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_json_sorts_keys_at_every_depth_and_has_no_spaces() {
        let text = r#" { "b" : [ { "z":1, "a":null } , 2.5 ], "a" : "é\u0041 " } "#;
        assert_eq!(canonical_json(text).unwrap(), r#"{"a":"éA ","b":[{"a":null,"z":1},2.5]}"#);
        assert!(canonical_json("{").is_err());
    }
}
