//! JSON in one spelling: keys sorted at every depth, no spaces. The same value is the same bytes, whatever stored it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::Value;

/// Returns a list of values in the one spelling.
pub(super) fn list<'v>(values: impl Iterator<Item = &'v Value>) -> String {
    let sorted: Vec<_> = values.map(Sorted).collect();
    serde_json::to_string(&sorted).unwrap_or_default()
}

/// A value whose keys are written in order, however the map keeps them.
struct Sorted<'v>(&'v Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let members: BTreeMap<_, _> = members.iter().map(|(key, value)| (key, Sorted(value))).collect();
                members.serialize(serializer)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.0.serialize(serializer),
        }
    }
}

/// Removes members that are null or an empty list: a program that applies them would own a field without a value.
pub(super) fn without_nothing(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| {
                without_nothing(member);
                !member.is_null() && member.as_array().is_none_or(|items| !items.is_empty())
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_nothing),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth_and_lists_are_not() {
        let value: Value =
            serde_json::from_str(r#" {"b": [ {"z":1,"a":{"d":null,"c":"é\u0007\n"}}, "x" ], "a": true} "#)
                .expect("JSON");
        assert_eq!(
            list([&value].into_iter()),
            "[{\"a\":true,\"b\":[{\"a\":{\"c\":\"é\\u0007\\n\",\"d\":null},\"z\":1},\"x\"]}]"
        );
    }

    #[test]
    fn nothing_is_left_out_at_every_depth() {
        let mut value = json!({"a": null, "b": [], "c": {}, "d": [{"e": null, "f": [[]]}]});
        without_nothing(&mut value);
        assert_eq!(value, json!({"c": {}, "d": [{"f": [[]]}]}));
    }
}
