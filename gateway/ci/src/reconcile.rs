//! Reconciles one workspace in a CI system, step by step, until it has to wait.
//!
//! The inputs of a step are stored before it is taken, so a reconcile may end anywhere.

use std::time::Duration;

use tracing::warn;

use super::controller::CiController;
use super::plan::{self, Decision, Leaving, ObservedRun, PlanInput, RunStep, decide};
use super::provider::{BadKey, CacheKey, ProviderError, RunKey, RunRef};
use super::settings::System;
use gateway_agents::registry::Subject;
use gateway_store::{CiRun, CiState, ManagedWorkspace, Runs, StoreError, WorkspaceId};
use gateway_types::{ActualState, Lifecycle, UnixSeconds, WorkspaceName};
use gateway_workspaces::changes::ChangeNotice;

mod ending;
mod in_time;
mod making;
mod orphan;

/// Most steps of one reconcile: more would be a bug of the plan, and must not occupy a task for ever.
const STEPS_MAX: usize = 64;

/// Pause until a session that was closed is checked again.
const CLOSE_AGAIN: Duration = Duration::from_secs(1);

/// Message to the agent whose job is to end.
pub(super) const STOP_WORDS: &str = "the workspace is stopped: this job may end";

/// A reconcile that has ended.
#[derive(Debug)]
pub(super) struct EndedReconcile {
    pub(super) heard: ObservedRun,
    pub(super) outcome: CiReconcileOutcome,
}

/// Result of a reconcile.
#[derive(Debug)]
pub(super) enum CiReconcileOutcome {
    /// No workspace is left to reconcile.
    Nothing,
    /// Everything is done for now.
    Done {
        seen: VisitState,
        /// Time of the next reconcile, if nothing happens before.
        again: Option<UnixSeconds>,
    },
    /// The reconcile was cut short.
    Failed {
        /// State before the failure, if it could be read.
        seen: Option<VisitState>,
        error: StoreError,
    },
}

/// State of the workspace at the reconcile.
#[derive(Clone, Debug)]
pub(super) struct VisitState {
    pub(super) name: WorkspaceName,
    pub(super) revision: i64,
    pub(super) is_up: bool,
}

/// Continuation of a reconcile.
enum VisitNext {
    /// Another step, with the new state.
    Again,
    /// The reconcile ends, and another is due at this time.
    Until(Option<UnixSeconds>),
}

/// A workspace as it was read.
struct VisitedWorkspace {
    id: WorkspaceId,
    name: WorkspaceName,
    life: Lifecycle,
    ci: CiState,
}

impl CiController {
    /// Returns whether an agent of a workspace has a session with a link: the session of a job that died is kept for a
    /// while. Of a session at another replica it is not known whether it has a link.
    pub(super) fn is_up(&self, name: &WorkspaceName) -> bool {
        // A relay lane is none: it says nothing of the session, which another replica has.
        match self.registry.of(&Subject::Workspace(name.clone())) {
            Some(session) => !session.tunnel.is_ended() && !session.tunnel.is_detached(),
            None => self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.is_connected(name)),
        }
    }

    /// Visits a workspace.
    pub(super) async fn reconcile(&self, id: WorkspaceId, mut heard: ObservedRun) -> EndedReconcile {
        let (mut seen, mut steps) = (None, 0);
        let outcome = loop {
            let next = self.step(id, &mut heard, &mut seen).await;
            steps += 1;
            match (next, seen.take()) {
                (Err(error), seen) => break CiReconcileOutcome::Failed { seen, error },
                (Ok(None), _) | (Ok(Some(_)), None) => break CiReconcileOutcome::Nothing,
                (Ok(Some(VisitNext::Until(again))), Some(seen)) => break CiReconcileOutcome::Done { seen, again },
                (Ok(Some(VisitNext::Again)), Some(seen)) if steps == STEPS_MAX => {
                    break CiReconcileOutcome::Done { seen, again: Some((self.clock)().later(Duration::from_secs(1))) };
                }
                (Ok(Some(VisitNext::Again)), Some(_)) => {}
            }
        };
        EndedReconcile { heard, outcome }
    }

    /// Decides the next step and takes it. `None` for a workspace that is not to be reconciled again.
    async fn step(
        &self,
        id: WorkspaceId,
        heard: &mut ObservedRun,
        seen: &mut Option<VisitState>,
    ) -> Result<Option<VisitNext>, StoreError> {
        let Some(ManagedWorkspace { workspace, lifecycle: life, runs: Runs::Ci(ci), .. }) =
            self.store.managed_by_id(id).await?
        else {
            return Ok(None);
        };
        let (is_up, now) = (self.is_up(&workspace.name), (self.clock)());
        *seen = Some(VisitState { name: workspace.name.clone(), revision: life.revision, is_up });
        let found = VisitedWorkspace { id, name: workspace.name, life, ci: *ci };
        if found.life.is_over() {
            return self.leave(&found, now).await.map(|()| None);
        }
        let Some(system) = self.systems.get(&found.ci.provider) else {
            return self.orphan(&found, is_up, now).await.map(Some);
        };
        heard.look(&found.ci, is_up, now);
        let view = PlanInput {
            life: &found.life,
            ci: &found.ci,
            heard,
            is_up,
            time: system.time,
            now,
            pace: &self.pace,
            begun_at: self.begun_at,
        };
        let decision = decide(&view);
        if !matches!(decision.step, RunStep::Begin { .. })
            && self.show(&found, decision.actual, decision.reason.as_deref(), now).await?
        {
            return Ok(Some(VisitNext::Again));
        }
        self.take(system, &found, decision, heard, now).await.map(Some)
    }

    /// Stores the state of a workspace, if it has changed. The next decision is based on it.
    async fn show(
        &self,
        found: &VisitedWorkspace,
        actual: ActualState,
        reason: Option<&str>,
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        let next = found.life.observe(actual, reason, now);
        if next == found.life {
            return Ok(false);
        }
        if self.store.swap_lifecycle(found.id, found.life.revision, &next).await? {
            self.changes.publish(ChangeNotice { workspace: found.id, cluster: None });
        }
        Ok(true)
    }

    async fn take(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        decision: Decision,
        heard: &mut ObservedRun,
        now: UnixSeconds,
    ) -> Result<VisitNext, StoreError> {
        match decision.step {
            RunStep::Wait(until) => return Ok(VisitNext::Until(until)),
            RunStep::Begin { anew } => self.begin_run(system, found, anew, decision.reason.as_deref(), now).await?,
            RunStep::Create => self.create(system, found, heard, now).await?,
            RunStep::Find => self.find(system, found, heard, now).await?,
            RunStep::Ask => self.ask(system, found, heard, now).await?,
            RunStep::NoteUp => self.note_up(found, now).await?,
            RunStep::Stop { failure } => {
                if self.stop(found, failure.as_deref(), STOP_WORDS, now).await? {
                    heard.leaving = Leaving::Told;
                }
            }
            RunStep::Close => {
                if self.close(&found.name, STOP_WORDS) {
                    heard.leaving = Leaving::Told;
                }
                return Ok(VisitNext::Until(Some(now.later(CLOSE_AGAIN))));
            }
            RunStep::Look => self.look_into_log(system, found, heard, now).await,
            RunStep::Cancel => self.cancel(system, found, heard, now).await?,
            RunStep::End(ending) => self.end(system, found, heard, ending, now).await?,
            RunStep::Forget => return self.forget(system, found, heard, now).await,
        }
        Ok(VisitNext::Again)
    }

    async fn put(&self, found: &VisitedWorkspace, next: &CiState, now: UnixSeconds) -> Result<(), StoreError> {
        // Only the reconcile writes runs. If the write does not apply, the run has ended, which is read next.
        self.store.put_run(found.id, next, now).await.map(drop)
    }

    async fn note_up(&self, found: &VisitedWorkspace, now: UnixSeconds) -> Result<(), StoreError> {
        if let Some(run) = found.ci.live() {
            let seconds = now.get().saturating_sub(run.intended_at.get());
            self.metrics.run_up(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        }
        self.put(found, &plan::up(&found.ci, now), now).await
    }

    async fn ask(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        let Some(reference) = reference(&found.ci) else { return Ok(()) };
        let answer = system.ask(system.provider.status(&reference)).await;
        match answer {
            Ok(status) => {
                heard.told(&status, now);
                let next = plan::known(&found.ci, &status);
                if next != found.ci {
                    self.put(found, &next, now).await?;
                }
            }
            Err(error) => self.unwell(found, heard, &error, now),
        }
        Ok(())
    }

    fn unwell(&self, found: &VisitedWorkspace, heard: &mut ObservedRun, error: &ProviderError, now: UnixSeconds) {
        self.trouble(found, heard, &error.to_string(), error.retry_after(), now);
    }

    fn trouble(
        &self,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        why: &str,
        wanted: Option<Duration>,
        now: UnixSeconds,
    ) {
        if heard.trouble.is_none() {
            warn!(workspace = %found.name, provider = %found.ci.provider, why, "a request to a CI system failed");
        }
        heard.failed(why.to_owned(), wanted, now);
    }
}

fn run_number(ci: &CiState) -> u64 {
    ci.run.as_ref().map_or(0, |run| run.number)
}

fn reference(ci: &CiState) -> Option<RunRef> {
    let run = ci.live()?;
    Some(RunRef { id: run.pipeline.as_deref()?.to_owned(), child: run.child.as_deref().map(str::to_owned) })
}

fn keys(run: &CiRun, ci: &CiState) -> (Result<RunKey, BadKey>, Result<CacheKey, BadKey>) {
    (run.key.parse(), ci.cache_key.parse())
}
