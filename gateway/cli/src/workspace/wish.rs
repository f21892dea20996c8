//! Request of a command, and whether it has come true: pure.

use serde::{Deserialize, Serialize};

use gateway_store::{Executor, ManagedWorkspace};
use gateway_types::blockers;
use gateway_types::{ActualState, DesiredState};
use gateway_workspaces::starts::{StartRow, steps};

/// Request of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Start,
    Stop,
    Restart,
    Terminate,
}

/// A workspace as it was seen. States are texts: another version of the gateway may know more of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct WorkspaceLook {
    pub(super) desired: String,
    pub(super) actual: String,
    pub(super) reason: Option<String>,
    pub(super) generation: u64,
    pub(super) revision: i64,
    pub(super) blockers: Vec<Blocker>,
    /// Steps of the start, while it is about to run.
    pub(super) start: Vec<StartStep>,
}

/// A step of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StartStep {
    pub(super) step: String,
    pub(super) status: String,
    pub(super) text: String,
}

/// Answer to a request.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) look: WorkspaceLook,
    pub(super) persistence: Persistence,
}

/// An object that holds a termination up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Blocker {
    pub(super) object: String,
    pub(super) finalizers: Vec<String>,
    pub(super) message: String,
}

impl From<StartRow> for StartStep {
    fn from(StartRow { step, status, text }: StartRow) -> Self {
        Self { step: step.to_owned(), status: status.to_owned(), text: text.to_owned() }
    }
}

/// Behaviour of an executor after a failure, as far as it bears on the meaning of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// A cluster, which tries again what failed for as long as it is desired.
    Retries,
    /// A CI system, whose job has ended when it failed.
    GivesUp,
}

impl Persistence {
    /// Reads it from an executor's name. One of another version may give up: then no command waits in vain.
    pub(super) fn of(executor: &str) -> Self {
        if executor == Executor::Kubernetes.as_str() { Self::Retries } else { Self::GivesUp }
    }
}

/// State of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WishVerdict {
    /// It has come true.
    Reached,
    /// It will not, for this reason.
    Failed(String),
    /// Not known yet.
    Waiting,
}

impl Wish {
    /// Returns the requested state.
    pub(super) fn desired(self) -> DesiredState {
        match self {
            Self::Start => DesiredState::Running,
            Self::Stop => DesiredState::Stopped,
            Self::Restart => DesiredState::RestartRequested,
            Self::Terminate => DesiredState::Terminated,
        }
    }

    /// Returns the state in which it has come true.
    fn wanted(self) -> ActualState {
        match self {
            Self::Start | Self::Restart => ActualState::Running,
            Self::Stop => ActualState::Stopped,
            Self::Terminate => ActualState::Terminated,
        }
    }

    /// Judges the present state, `None` for a workspace that is gone, by the answer to the request.
    pub(super) fn judge(
        self,
        asked: &WorkspaceLook,
        now: Option<&WorkspaceLook>,
        persistence: Persistence,
    ) -> WishVerdict {
        let Some(now) = now else {
            return match self {
                Self::Terminate => WishVerdict::Reached,
                Self::Start | Self::Stop | Self::Restart => WishVerdict::Failed("the workspace is gone".to_owned()),
            };
        };
        if !self.is_still_wanted(asked, now) {
            return WishVerdict::Failed(format!("{} was requested meanwhile", now.desired));
        }
        let has_arrived =
            now.actual == self.wanted().as_str() && now.desired != DesiredState::RestartRequested.as_str();
        if has_arrived && (self != Self::Restart || self.has_restarted(asked, now)) {
            return WishVerdict::Reached;
        }
        // An earlier failure is not one of this request; and a termination is tried again until it has ended.
        let is_news = now.revision > asked.revision;
        match now.actual.as_str() {
            // It may run in the next moment; the caller knows the deadline.
            "Failed" if persistence == Persistence::Retries => WishVerdict::Waiting,
            "Failed" | "Error" if is_news && self != Self::Terminate => {
                WishVerdict::Failed(now.reason.clone().unwrap_or_else(|| "no reason was told".to_owned()))
            }
            _ => WishVerdict::Waiting,
        }
    }

    /// Returns whether a restart has come true. It asks once to stop and then, by itself, to run: the second is a
    /// generation of its own. For a stopped workspace, it is a start from the beginning on.
    fn has_restarted(self, asked: &WorkspaceLook, now: &WorkspaceLook) -> bool {
        asked.desired == DesiredState::Running.as_str() || now.generation > asked.generation
    }

    fn is_still_wanted(self, asked: &WorkspaceLook, now: &WorkspaceLook) -> bool {
        let wants = |state: DesiredState| now.desired == state.as_str();
        now.generation <= asked.generation
            || match self {
                Self::Start | Self::Restart => wants(DesiredState::Running) || wants(DesiredState::RestartRequested),
                Self::Stop => wants(DesiredState::Stopped),
                Self::Terminate => wants(DesiredState::Terminated),
            }
    }
}

impl Accepted {
    /// Takes the fields from the store.
    pub(super) fn of(managed: &ManagedWorkspace) -> Self {
        Self { look: WorkspaceLook::of(managed), persistence: Persistence::of(managed.workspace.executor.as_str()) }
    }
}

impl WorkspaceLook {
    /// Takes the fields from the store.
    pub(super) fn of(managed: &ManagedWorkspace) -> Self {
        let life = &managed.lifecycle;
        let blockers = managed.termination().map(blockers::from_json).unwrap_or_default();
        Self {
            desired: life.desired.to_string(),
            actual: life.actual.to_string(),
            reason: life.reason.as_deref().map(str::to_owned).or_else(|| managed.idle.stop_reason(life)),
            generation: life.generation,
            revision: life.revision,
            blockers: blockers
                .into_iter()
                .map(|one| Blocker { object: one.object, finalizers: one.finalizers, message: one.message })
                .collect(),
            start: steps(managed).into_iter().map(StartStep::from).collect(),
        }
    }

    /// Writes the state and its reason, on one line.
    pub(super) fn told(&self) -> String {
        let mut text = self.actual.clone();
        let now = self.start.iter().position(|step| step.status == "now");
        match (&self.reason, now.and_then(|now| Some((now, self.start.get(now)?)))) {
            (Some(reason), _) => text.push_str(&format!(": {reason}")),
            (None, Some((now, step))) => {
                text.push_str(&format!("; waits until {} (step {} of {})", step.text, now + 1, self.start.len()));
            }
            (None, None) => {}
        }
        let left: Vec<String> = self.blockers.iter().map(Blocker::told).collect();
        if !left.is_empty() {
            text.push_str("; left: ");
            text.push_str(&left.join(", "));
        }
        text
    }
}

impl Blocker {
    fn told(&self) -> String {
        if self.finalizers.is_empty() {
            return self.object.clone();
        }
        format!("{} (finalizers {})", self.object, self.finalizers.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(desired: &str, actual: &str, generation: u64, revision: i64) -> WorkspaceLook {
        WorkspaceLook {
            desired: desired.to_owned(),
            actual: actual.to_owned(),
            generation,
            revision,
            ..WorkspaceLook::default()
        }
    }

    #[track_caller]
    fn check(wish: Wish, asked: &WorkspaceLook, now: &WorkspaceLook, expected: &WishVerdict) {
        let found = wish.judge(asked, Some(now), Persistence::GivesUp);
        assert_eq!(found, *expected, "{wish:?} {asked:?} {now:?}");
    }

    #[test]
    fn wish_comes_true_in_the_state_that_it_asks_for() {
        use WishVerdict::{Reached, Waiting};
        let asked = look("Running", "Stopped", 2, 5);
        check(Wish::Start, &asked, &look("Running", "Starting", 2, 6), &Waiting);
        check(Wish::Start, &asked, &look("Running", "Unheard", 2, 6), &Waiting);
        check(Wish::Start, &asked, &look("Running", "Running", 2, 7), &Reached);
        let asked = look("Stopped", "Running", 2, 5);
        check(Wish::Stop, &asked, &look("Stopped", "Running", 2, 5), &Waiting);
        check(Wish::Stop, &asked, &look("Stopped", "Stopped", 2, 6), &Reached);
        let asked = look("Terminated", "Running", 2, 5);
        check(Wish::Terminate, &asked, &look("Terminated", "Terminating", 2, 6), &Waiting);
        check(Wish::Terminate, &asked, &look("Terminated", "Terminated", 2, 7), &Reached);
        let gone = |wish: Wish| wish.judge(&asked, None, Persistence::Retries);
        assert_eq!(gone(Wish::Terminate), Reached);
        assert!(matches!(gone(Wish::Start), WishVerdict::Failed(_)));
    }

    #[test]
    fn restart_is_over_when_it_runs_again_and_not_before() {
        use WishVerdict::{Reached, Waiting};
        let asked = look("RestartRequested", "Running", 3, 5);
        check(Wish::Restart, &asked, &asked, &Waiting);
        check(Wish::Restart, &asked, &look("RestartRequested", "Stopping", 3, 6), &Waiting);
        check(Wish::Restart, &asked, &look("Running", "Stopped", 4, 7), &Waiting);
        check(Wish::Restart, &asked, &look("Running", "Running", 4, 8), &Reached);
        let of_stopped = look("Running", "Stopped", 3, 5);
        check(Wish::Restart, &of_stopped, &look("Running", "Running", 3, 6), &Reached);
    }

    #[test]
    fn failure_counts_when_it_is_news_and_tells_its_reason() {
        let before = WorkspaceLook { reason: Some("old".to_owned()), ..look("Running", "Failed", 2, 5) };
        check(Wish::Start, &before, &before, &WishVerdict::Waiting);
        let after = WorkspaceLook { reason: Some("ImagePullBackOff".to_owned()), ..look("Running", "Failed", 2, 6) };
        check(Wish::Start, &before, &after, &WishVerdict::Failed("ImagePullBackOff".to_owned()));
        let ending = WorkspaceLook { reason: Some("403".to_owned()), ..look("Terminated", "Error", 3, 9) };
        check(Wish::Terminate, &look("Terminated", "Running", 3, 7), &ending, &WishVerdict::Waiting);
    }

    #[test]
    fn failure_ends_no_waiting_where_it_is_tried_again() {
        let asked = look("RestartRequested", "Running", 3, 5);
        let quota = WorkspaceLook { reason: Some("QuotaExceeded".to_owned()), ..look("Running", "Failed", 4, 8) };
        for wish in [Wish::Start, Wish::Restart] {
            assert_eq!(wish.judge(&asked, Some(&quota), Persistence::Retries), WishVerdict::Waiting);
            assert!(matches!(wish.judge(&asked, Some(&quota), Persistence::GivesUp), WishVerdict::Failed(_)));
            let running = look("Running", "Running", 4, 9);
            assert_eq!(wish.judge(&asked, Some(&running), Persistence::Retries), WishVerdict::Reached);
            // A refusal by the cluster needs a change by the user.
            let refused = WorkspaceLook { reason: Some("forbidden".to_owned()), ..look("Running", "Error", 4, 9) };
            assert_eq!(
                wish.judge(&asked, Some(&refused), Persistence::Retries),
                WishVerdict::Failed("forbidden".to_owned())
            );
        }
        assert_eq!(Persistence::of("kubernetes"), Persistence::Retries);
        assert_eq!((Persistence::of("ci"), Persistence::of("")), (Persistence::GivesUp, Persistence::GivesUp));
    }

    #[test]
    fn other_wishes_of_others_end_the_waiting() {
        let asked = look("Running", "Starting", 2, 5);
        for (wish, desired) in [(Wish::Start, "Stopped"), (Wish::Restart, "Terminated")] {
            let verdict = wish.judge(&asked, Some(&look(desired, "Starting", 3, 6)), Persistence::Retries);
            assert_eq!(verdict, WishVerdict::Failed(format!("{desired} was requested meanwhile")));
        }
        check(Wish::Start, &asked, &look("RestartRequested", "Running", 3, 6), &WishVerdict::Waiting);
    }

    #[test]
    fn line_tells_state_reason_and_what_is_left() {
        let blocker = Blocker {
            object: "PersistentVolumeClaim app-data".to_owned(),
            finalizers: vec!["kubernetes.io/pvc-protection".to_owned()],
            message: String::new(),
        };
        let look = WorkspaceLook {
            blockers: vec![blocker],
            reason: Some("waiting".to_owned()),
            ..look("T", "Terminating", 1, 1)
        };
        let told =
            "Terminating: waiting; left: PersistentVolumeClaim app-data (finalizers kubernetes.io/pvc-protection)";
        assert_eq!(look.told(), told);
    }

    #[test]
    fn line_of_a_start_tells_what_it_waits_for() {
        let step = |step: &str, status: &str, text: &str| StartStep {
            step: step.to_owned(),
            status: status.to_owned(),
            text: text.to_owned(),
        };
        let start = vec![step("node", "done", "its pod has a node"), step("agent", "now", "its agent is connected")];
        let look = WorkspaceLook { start, ..look("Running", "Starting", 1, 1) };
        assert_eq!(look.told(), "Starting; waits until its agent is connected (step 2 of 2)");
    }
}
