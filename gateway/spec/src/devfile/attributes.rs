//! Attributes: a free map, of which a few keys mean something here.

use crate::document::{Location, Problems, ValueAt};

/// Marks the main component.
pub(super) const MAIN: &str = "gateway/inject-editor";

/// The same key in devfiles for the system that this one replaces.
pub(super) const MAIN_ELSEWHERE: &str = "gl/inject-editor";

/// Attributes of a component.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Path and place of the attribute that marks the main component, if it is there.
    pub(super) main: Option<(String, Location)>,
    /// Whether the entry point is replaced, if that is said.
    pub(super) override_command: Option<bool>,
}

/// Refuses attributes of the whole file that would bypass the rules and change the pod.
pub(super) fn check_root(at: &ValueAt<'_>, problems: &mut Problems) {
    for (key, place, at) in at.entries(problems).unwrap_or_default() {
        refuse_overrides(key, place, &at, problems);
    }
}

/// Reads a component's attributes.
pub(super) fn read(at: &ValueAt<'_>, problems: &mut Problems) -> Attributes {
    let mut attributes = Attributes::default();
    let mut said: Option<&str> = None;
    for (key, place, at) in at.entries(problems).unwrap_or_default() {
        refuse_overrides(key, place, &at, problems);
        match key {
            MAIN | MAIN_ELSEWHERE => {
                if let Some(other) = said {
                    problems.add(at.path.clone(), Some(place), format!("says the same as {other}: keep one of them"));
                }
                said = Some(key);
                if at.boolean(problems) == Some(true) {
                    attributes.main = Some((at.path, place));
                }
            }
            "overrideCommand" => attributes.override_command = at.boolean(problems),
            _ => {}
        }
    }
    attributes
}

fn refuse_overrides(key: &str, place: Location, at: &ValueAt<'_>, problems: &mut Problems) {
    if matches!(key, "pod-overrides" | "container-overrides") {
        problems.add(at.path.clone(), Some(place), "is not supported: the pod is made by the gateway's rules alone");
    }
}
