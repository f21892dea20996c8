//! The job as its terminal sees it: running, held, ended; and the one choice that is made for it.

use tokio::sync::watch;

use super::end::CommandEnd;
use crate::terminal::job::{Choice, JobState, NotHeld, Phase, TerminalJob};

/// Longest name that is repeated in the job's log, in characters.
const WHO_CHARS_MAX: usize = 64;

/// Choice, and the user who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) choice: Choice,
    /// Name of the user, fit for a log.
    pub(super) who: Option<String>,
}

/// A job that can be held.
#[derive(Debug)]
pub(super) struct HeldJob {
    state: watch::Sender<JobState>,
    chosen: watch::Sender<Option<Chosen>>,
}

impl HeldJob {
    pub(super) fn new(command: String) -> Self {
        let state = JobState { command, phase: Phase::Running };
        Self { state: watch::Sender::new(state), chosen: watch::Sender::new(None) }
    }

    /// Begins to wait for a choice.
    pub(super) fn hold(&self, end: CommandEnd, until_unix: u64) {
        self.state.send_modify(|state| state.phase = Phase::Held { exit_status: end.in_shell(), until_unix });
    }

    /// Ends the time for a choice. Returns the choice that was made before.
    pub(super) fn end(&self) -> Option<Chosen> {
        self.state.send_modify(|state| state.phase = Phase::Ended);
        self.chosen.borrow().clone()
    }

    /// Waits for a choice.
    ///
    /// Cancel safety: safe; a choice that was made stays.
    pub(super) async fn choice(&self) -> Chosen {
        let mut chosen = self.chosen.subscribe();
        let found = chosen.wait_for(Option::is_some).await.ok().and_then(|chosen| chosen.clone());
        match found {
            Some(chosen) => chosen,
            // Cannot happen: the sender is in `self`.
            None => std::future::pending().await,
        }
    }
}

impl TerminalJob for HeldJob {
    fn state(&self) -> JobState {
        self.state.borrow().clone()
    }

    fn changed(&self) -> watch::Receiver<JobState> {
        self.state.subscribe()
    }

    fn choose(&self, choice: Choice, who: Option<&str>) -> Result<(), NotHeld> {
        let mut is_first = false;
        // Under the lock of the state: of two users who choose at once, one succeeds.
        self.state.send_if_modified(|state| match state.phase {
            Phase::Held { .. } => {
                state.phase = Phase::Ended;
                let who = who.map(for_log).filter(|who| !who.is_empty());
                self.chosen.send_replace(Some(Chosen { choice, who }));
                is_first = true;
                true
            }
            Phase::Running | Phase::Ended => false,
        });
        if is_first { Ok(()) } else { Err(NotHeld) }
    }
}

/// Makes a name fit for a line of a log.
fn for_log(who: &str) -> String {
    who.chars().filter(|character| !character.is_control()).take(WHO_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> HeldJob {
        HeldJob::new("make test".to_owned())
    }

    #[test]
    fn choice_counts_only_while_the_job_is_held() {
        let job = job();
        assert_eq!(job.choose(Choice::Continue, None), Err(NotHeld), "it runs");
        job.hold(CommandEnd::Signal(9), 77);
        assert_eq!(job.state().phase, Phase::Held { exit_status: 137, until_unix: 77 });
        assert_eq!(job.choose(Choice::Fail, Some("ann")), Ok(()));
        assert_eq!(job.state().phase, Phase::Ended, "everybody sees that it is over");
        assert_eq!(job.choose(Choice::Continue, Some("bob")), Err(NotHeld), "the first one counts");
        assert_eq!(job.end(), Some(Chosen { choice: Choice::Fail, who: Some("ann".to_owned()) }));
    }

    #[test]
    fn nothing_can_be_chosen_for_a_job_whose_time_is_up() {
        let job = job();
        job.hold(CommandEnd::Status(1), 77);
        assert_eq!(job.end(), None);
        assert_eq!(job.choose(Choice::Continue, None), Err(NotHeld));
    }

    #[tokio::test]
    async fn choice_that_was_made_before_anybody_waited_is_found() {
        let job = job();
        job.hold(CommandEnd::Status(1), 77);
        job.choose(Choice::Continue, Some("a\u{1b}[31m\nb")).expect("it is held");
        let chosen = job.choice().await;
        assert_eq!(
            (chosen.choice, chosen.who.as_deref()),
            (Choice::Continue, Some("a[31mb")),
            "no name draws in a log"
        );
    }
}
