//! Objects that hold a termination up, as the store keeps them: a JSON list, for people.

use serde::Deserialize;
use serde_json::json;
use tunnel_proto::reconcile::Blocker;

/// A missing member is empty: older and newer programs write the same column.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    object: String,
    finalizers: Vec<String>,
    since: i64,
    message: String,
}

/// Writes a list.
#[must_use]
pub fn to_json(blockers: &[Blocker]) -> String {
    let rows = blockers.iter().map(|blocker| {
        let Blocker { object, finalizers, since, message } = blocker;
        json!({"object": object, "finalizers": finalizers, "since": since, "message": message})
    });
    serde_json::Value::from_iter(rows).to_string()
}

/// Reads a list. It is only shown, so an unreadable one is empty.
#[must_use]
pub fn from_json(text: &str) -> Vec<Blocker> {
    let stored: Vec<Stored> = serde_json::from_str(text).unwrap_or_default();
    let blocker =
        |Stored { object, finalizers, since, message }: Stored| Blocker { object, finalizers, since, message };
    stored.into_iter().map(blocker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_read_as_it_was_written_and_nonsense_is_nothing() {
        let blockers = [
            Blocker {
                object: "PersistentVolumeClaim app-data".to_owned(),
                finalizers: vec!["kubernetes.io/pvc-protection".to_owned()],
                since: 1_800_000_000,
                message: "in use".to_owned(),
            },
            Blocker::default(),
        ];
        assert_eq!(from_json(&to_json(&blockers)), blockers);
        for text in ["", "null", "{}", "[1]", "[{\"since\": \"x\"}]"] {
            assert_eq!(from_json(text), [], "{text}");
        }
        assert_eq!(from_json("[{\"object\": \"Pod a\", \"more\": 1}]").len(), 1);
    }
}
