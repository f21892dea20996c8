//! Derives the events for a follower of a workspace from the state that was told and the present one. Pure.

use serde::Serialize;
use serde_json::json;

use crate::state::{BlockerRow, StateRow, is_failure};
use gateway_types::{ActualState, IdleStage};

/// A comment, which clients ignore.
pub(super) const HEARTBEAT: &str = ": still here\n\n";

/// Time that a browser waits before it comes again, in milliseconds.
const RETRY_MS: u32 = 2_000;

/// A workspace as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkspaceView {
    pub(super) state: StateRow,
    pub(super) actual: ActualState,
    pub(super) is_over: bool,
    pub(super) revision: i64,
    pub(super) connected: bool,
    /// How near a stop for idleness is.
    pub(super) idle: IdleStage,
}

/// State that was told already.
#[derive(Debug, Default)]
pub(super) struct LastState {
    last: Option<WorkspaceView>,
    has_ended: bool,
}

#[derive(Serialize)]
struct StateEvent<'a> {
    #[serde(flatten)]
    state: &'a StateRow,
    /// The agent can be reached.
    connected: bool,
}

impl LastState {
    /// Returns whether the end was told.
    pub(super) fn is_end(&self) -> bool {
        self.has_ended
    }

    /// Returns the events that are due now; none if the state was told. `None` is a workspace that was forgotten.
    pub(super) fn tell(&mut self, now: Option<WorkspaceView>) -> String {
        let Some(now) = now else {
            self.has_ended = true;
            let id = self.last.as_ref().map_or(0, |last| last.revision);
            return event(id, "end", &json!({"why": "forgotten"}));
        };
        if self.last.as_ref() == Some(&now) {
            return String::new();
        }
        let mut text = String::new();
        let stage = self.last.as_ref().map_or(IdleStage::Off, |last| last.idle);
        if let Some(last) = &self.last
            && (WorkspaceView { idle: now.idle, ..last.clone() }) == now
        {
            let text = event(now.revision, "idle", &json!({"stage": now.idle.as_str()}));
            self.last = Some(now);
            return text;
        }
        if self.last.is_none() {
            text.push_str(&format!("retry: {RETRY_MS}\n\n"));
        }
        let id = now.revision;
        text.push_str(&event(id, "state", &StateEvent { state: &now.state, connected: now.connected }));
        if now.idle != stage {
            text.push_str(&event(id, "idle", &json!({"stage": now.idle.as_str()})));
        }
        let blockers = |view: &WorkspaceView| view.state.blockers().to_vec();
        let before = self.last.as_ref().map(blockers).unwrap_or_default();
        if blockers(&now) != before {
            text.push_str(&event(id, "progress", &StateProgress { blockers: now.state.blockers() }));
        }
        let was_same = self
            .last
            .as_ref()
            .is_some_and(|last| last.actual == now.actual && last.state.reason() == now.state.reason());
        if is_failure(now.actual) && !was_same {
            text.push_str(&event(id, "failure", &json!({"actual": now.actual.as_str(), "reason": now.state.reason()})));
        }
        if now.is_over {
            self.has_ended = true;
            text.push_str(&event(id, "end", &json!({"why": "terminated"})));
        }
        self.last = Some(now);
        text
    }
}

#[derive(Serialize)]
struct StateProgress<'a> {
    blockers: &'a [BlockerRow],
}

/// Writes one event. JSON has no line ends of its own.
fn event(id: i64, name: &str, data: &impl Serialize) -> String {
    // The types that are written here have no way to fail.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(actual: ActualState, reason: Option<&str>, blockers: &[&str], revision: i64) -> WorkspaceView {
        let state = StateRow::for_tests(actual, reason, blockers, revision);
        WorkspaceView {
            state,
            actual,
            is_over: actual == ActualState::Terminated,
            revision,
            connected: false,
            idle: IdleStage::Off,
        }
    }

    /// Names the events in a text.
    fn names(text: &str) -> Vec<&str> {
        text.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
    }

    #[test]
    fn state_comes_first_and_with_every_change_and_never_twice() {
        let mut told = LastState::default();
        let first = told.tell(Some(view(ActualState::Starting, None, &[], 3)));
        assert!(first.starts_with("retry: 2000\n\nid: 3\nevent: state\ndata: {\"desired\""), "{first}");
        assert_eq!(told.tell(Some(view(ActualState::Starting, None, &[], 3))), "");
        assert_eq!(names(&told.tell(Some(view(ActualState::Running, None, &[], 4)))), ["state"]);
        let connected = WorkspaceView { connected: true, ..view(ActualState::Running, None, &[], 4) };
        let text = told.tell(Some(connected));
        assert!(text.contains("\"connected\":true") && !text.contains("retry"), "{text}");
    }

    #[test]
    fn nearing_stop_is_told_without_the_state() {
        let at = |idle| Some(WorkspaceView { idle, ..view(ActualState::Running, None, &[], 4) });
        let mut told = LastState::default();
        assert_eq!(names(&told.tell(at(IdleStage::Off))), ["state"], "without an idle stop nothing is said of one");
        assert_eq!(told.tell(at(IdleStage::Announced)), "id: 4\nevent: idle\ndata: {\"stage\":\"announced\"}\n\n");
        assert_eq!(told.tell(at(IdleStage::Announced)), "");
        assert_eq!(names(&told.tell(at(IdleStage::Awake))), ["idle"], "it was put off");
        assert_eq!(names(&LastState::default().tell(at(IdleStage::Near))), ["state", "idle"]);
    }

    #[test]
    fn failure_is_told_once_with_its_reason_and_again_with_another() {
        let mut told = LastState::default();
        let failed = |reason, revision| Some(view(ActualState::Failed, Some(reason), &[], revision));
        let text = told.tell(failed("ImagePullBackOff\nx", 1));
        assert_eq!(names(&text), ["state", "failure"]);
        assert!(text.contains(r#"{"actual":"Failed","reason":"ImagePullBackOff\nx"}"#), "on one line: {text}");
        assert_eq!(names(&told.tell(failed("ImagePullBackOff\nx", 2))), ["state"]);
        assert_eq!(names(&told.tell(failed("CrashLoopBackOff", 3))), ["state", "failure"]);
    }

    #[test]
    fn termination_tells_what_holds_it_up_and_ends() {
        let mut told = LastState::default();
        let ending = |blockers: &[&str], revision| Some(view(ActualState::Terminating, None, blockers, revision));
        assert_eq!(names(&told.tell(ending(&["Pod a", "PersistentVolumeClaim b"], 1))), ["state", "progress"]);
        assert_eq!(names(&told.tell(ending(&["PersistentVolumeClaim b"], 2))), ["state", "progress"]);
        assert_eq!(names(&told.tell(ending(&[], 3))), ["state", "progress"], "also that nothing is left");
        assert!(!told.is_end());
        assert_eq!(names(&told.tell(Some(view(ActualState::Terminated, None, &[], 4)))), ["state", "end"]);
        assert!(told.is_end());
    }

    #[test]
    fn forgotten_workspace_ends_the_stream() {
        let mut told = LastState::default();
        told.tell(Some(view(ActualState::Running, None, &[], 7)));
        assert_eq!(told.tell(None), "id: 7\nevent: end\ndata: {\"why\":\"forgotten\"}\n\n");
        assert!(told.is_end());
    }
}
