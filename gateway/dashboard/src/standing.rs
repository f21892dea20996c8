//! The four plain states of a workspace, each with a glyph and a word, and one sentence for a person: which part failed, why, and
//! what to do.

use gateway_store::{ManagedWorkspace, Runs};
use gateway_types::{ActualState, DesiredState, UnixSeconds};
use gateway_workspaces::starts::steps;

/// Time that an agent has to connect after its workspace is up, in seconds, before its absence counts as trouble.
const AGENT_SECONDS: i64 = 30;

/// State of a workspace as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlainState {
    /// It needs its owner.
    Trouble,
    /// It is about to be ready.
    Starting,
    /// It can be opened.
    Ready,
    /// It does not run, as it is wanted.
    Stopped,
}

impl PlainState {
    /// All of them, in the order of filters.
    pub(crate) const ALL: [Self; 4] = [Self::Trouble, Self::Starting, Self::Ready, Self::Stopped];

    /// Returns the state as one lower-case word, also in addresses and class names.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Trouble => "trouble",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopped => "stopped",
        }
    }

    /// Returns the glyph, so that colour is never all that tells states apart.
    pub(crate) fn glyph(self) -> &'static str {
        match self {
            Self::Trouble => "▲",
            Self::Starting => "◐",
            Self::Ready => "●",
            Self::Stopped => "○",
        }
    }
}

/// State of a workspace, and the sentence beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: PlainState,
    /// Part, reason and remedy, as far as there is something to say.
    pub(crate) sentence: String,
}

impl Standing {
    /// Returns that of a workspace that runs elsewhere.
    pub(crate) fn of_external(is_connected: bool) -> Self {
        match is_connected {
            true => Self { state: PlainState::Ready, sentence: String::new() },
            false => Self {
                state: PlainState::Stopped,
                sentence: "Its agent is not connected. Start workspace-agent run on its machine.".to_owned(),
            },
        }
    }

    /// Returns that of a workspace that the gateway runs.
    pub(crate) fn of_managed(managed: &ManagedWorkspace, is_connected: bool, now: UnixSeconds) -> Self {
        let life = &managed.lifecycle;
        let reason = life.reason.as_deref().map(str::to_owned).or_else(|| managed.idle.stop_reason(life));
        let sentence = |part: &str, remedy: &str| match &reason {
            Some(reason) => format!("{part}: {} {remedy}", ended(reason)),
            None => remedy.to_owned(),
        };
        let place = place(managed);
        let (state, sentence) = match (life.desired, life.actual) {
            (DesiredState::Terminated, ActualState::Terminated) => {
                (PlainState::Stopped, "It is gone, with its storage.".to_owned())
            }
            (DesiredState::Terminated, ActualState::Error | ActualState::Failed | ActualState::Unknown) => {
                (PlainState::Trouble, sentence(&place, "It is being deleted; this is tried again."))
            }
            (DesiredState::Terminated, _) if managed.termination().is_some_and(|left| left != "[]") => {
                (PlainState::Trouble, sentence(&place, "It is being deleted, and something still holds it."))
            }
            (DesiredState::Terminated, _) => {
                (PlainState::Stopped, "It is being deleted with its storage, which cannot be taken back.".to_owned())
            }
            (_, ActualState::Failed) if managed.ci().is_some() => (
                PlainState::Trouble,
                sentence(&place, "Another job is tried by itself; start it again to try at once."),
            ),
            (_, ActualState::Failed) => {
                (PlainState::Trouble, sentence(&place, "Change what is wrong, then start it again."))
            }
            (_, ActualState::Error) => {
                (PlainState::Trouble, sentence(&place, "It is tried again when you start or stop it."))
            }
            (_, ActualState::Unknown) => {
                (PlainState::Trouble, sentence(&place, "Nothing is known of it until the cluster's agent is back."))
            }
            (DesiredState::Stopped, ActualState::Stopped) => (
                PlainState::Stopped,
                reason.clone().map_or_else(
                    || "Its storage is kept.".to_owned(),
                    |reason| format!("{} Its storage is kept.", ended(&reason)),
                ),
            ),
            (DesiredState::Stopped, _) => (PlainState::Stopped, "It is stopping. Its storage is kept.".to_owned()),
            (DesiredState::Running, ActualState::Running) if is_connected => (PlainState::Ready, String::new()),
            (DesiredState::Running, ActualState::Running)
                if now.get().saturating_sub(life.actual_at.get()) > AGENT_SECONDS =>
            {
                (
                    PlainState::Trouble,
                    sentence("its agent", "It runs, and its agent is not connected. Restart it if it stays so."),
                )
            }
            (DesiredState::Running, ActualState::Running) => {
                (PlainState::Starting, "It runs. Its agent is about to connect.".to_owned())
            }
            (DesiredState::Running | DesiredState::RestartRequested, _) => {
                (PlainState::Starting, starting(managed, reason.as_deref()))
            }
        };
        Self { state, sentence }
    }
}

/// Says how far a start is, and what the cluster said last.
fn starting(managed: &ManagedWorkspace, reason: Option<&str>) -> String {
    let rows = steps(managed);
    let done = rows.iter().filter(|row| row.status == "done").count();
    let next = rows.iter().find(|row| row.status == "now");
    let progress = next.map(|row| format!("Step {} of {}, until {}.", done + 1, rows.len(), row.text));
    let reason = reason.map(ended);
    let parts: Vec<String> = progress.into_iter().chain(reason).collect();
    if parts.is_empty() { "It is starting.".to_owned() } else { parts.join(" ") }
}

/// Names the part that runs a workspace.
pub(crate) fn place(managed: &ManagedWorkspace) -> String {
    match &managed.runs {
        Runs::Kubernetes(state) => format!("cluster {}", state.cluster_name),
        Runs::Ci(state) => format!("CI system {}", state.provider),
    }
}

/// Ends a text as a sentence.
fn ended(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_once() {
        assert_eq!(ended("no room"), "no room.");
        assert_eq!(ended("no room. "), "no room.");
    }

    #[test]
    fn trouble_comes_first_and_every_state_has_a_glyph_of_its_own() {
        assert!(PlainState::Trouble < PlainState::Starting && PlainState::Ready < PlainState::Stopped);
        let glyphs: std::collections::HashSet<_> = PlainState::ALL.map(PlainState::glyph).into_iter().collect();
        assert_eq!(glyphs.len(), 4);
        assert_eq!(Standing::of_external(false).state, PlainState::Stopped);
    }
}
