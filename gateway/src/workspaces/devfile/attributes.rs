//! Attributes: a free map, of which a few keys mean something here.

use crate::workspaces::document::{At, Place, Problems};

/// Says which component is the main one.
const MAIN: &str = "gateway/inject-editor";

/// The same in devfiles that were written for the system that this one takes the place of.
const MAIN_ELSEWHERE: &str = "gl/inject-editor";

/// What a component's attributes say.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Where it says that it is the main component, if it does.
    pub(super) main: Option<(String, Place)>,
    /// Whether the entry point is replaced, if that is said.
    pub(super) override_command: Option<bool>,
}

/// Refuses attributes of the whole file that would change the pod behind the rules' back.
pub(super) fn check_root(at: &At<'_>, problems: &mut Problems) {
    for (key, place, at) in at.entries(problems).unwrap_or_default() {
        refuse_overrides(key, place, &at, problems);
    }
}

/// Reads a component's attributes.
pub(super) fn read(at: &At<'_>, problems: &mut Problems) -> Attributes {
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

fn refuse_overrides(key: &str, place: Place, at: &At<'_>, problems: &mut Problems) {
    if matches!(key, "pod-overrides" | "container-overrides") {
        problems.add(at.path.clone(), Some(place), "is not supported: the pod is made by the gateway's rules alone");
    }
}
