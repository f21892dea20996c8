//! Steps that end a run, and with it a workspace.

use tracing::{info, warn};
use tunnel_proto::reason::Reason;

use super::{VisitNext, VisitedWorkspace, reference, run_number};
use crate::controller::CiController;
use crate::plan::{self, Ending, Leaving, ObservedRun};
use crate::provider::{CacheDeletion, CacheKey, RunState};
use crate::settings::System;
use gateway_agents::registry::Subject;
use gateway_net::telemetry::RunEnd;
use gateway_store::StoreError;
use gateway_types::{ActualState, UnixSeconds, WorkspaceName};
use workspace_spec::pipeline::ENDING_WORDS;

/// Bytes of the end of a failed job's log that its owner is shown.
const TRACE_BYTES: usize = 600;

/// Bytes of the end of a log in which a job says that it is ending. The rest is written by the runner, which saves
/// files.
const LOG_BYTES: usize = 8 * 1024;

impl CiController {
    /// Records that a run is to end, and tells its agent. Returns whether there was one to tell.
    pub(super) async fn stop(
        &self,
        found: &VisitedWorkspace,
        failure: Option<&str>,
        words: &str,
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        self.put(found, &plan::stopping(&found.ci, failure, now), now).await?;
        info!(workspace = %found.name, run = run_number(&found.ci), failure, "ending a job");
        Ok(self.close(&found.name, words))
    }

    /// Ends the session of a run's agent. Returns whether the agent learns of that: one that is away does not.
    pub(super) fn close(&self, name: &WorkspaceName, words: &str) -> bool {
        let Some(session) = self.registry.of(&Subject::Workspace(name.clone())) else { return false };
        let is_there = !session.tunnel.is_ended() && !session.tunnel.is_detached();
        session.tunnel.close(Reason::WorkspaceStopped, words);
        is_there
    }

    /// Checks in the log whether a job is ending. Later output is read by a later check.
    pub(super) async fn look_into_log(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        now: UnixSeconds,
    ) {
        heard.looked_at = Some(now);
        let Some(reference) = reference(&found.ci) else { return };
        match system.ask(system.provider.trace(&reference, LOG_BYTES)).await {
            Ok(log) => {
                heard.well();
                heard.leaving = if log.contains(ENDING_WORDS) { Leaving::Told } else { Leaving::Stuck };
            }
            Err(error) => self.unwell(found, heard, &error, now),
        }
    }

    pub(super) async fn cancel(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        self.put(found, &plan::cancelling(&found.ci, now), now).await?;
        if heard.leaving == Leaving::Stuck {
            heard.leaving = Leaving::Unknown;
        }
        let Some(reference) = reference(&found.ci) else { return Ok(()) };
        info!(workspace = %found.name, run = run_number(&found.ci), "cancelling a job");
        let answer = system.ask(system.provider.cancel(&reference)).await;
        match answer {
            Ok(()) => heard.well(),
            Err(error) => self.unwell(found, heard, &error, now),
        }
        Ok(())
    }

    pub(super) async fn end(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        heard: &ObservedRun,
        ending: Ending,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        // A session that is still there has no agent at its other end any more.
        self.close(&found.name, "its job is over");
        info!(workspace = %found.name, run = run_number(&found.ci), ?ending, "a job ended");
        let is_made = found.ci.live().is_some_and(|run| run.pipeline.is_some());
        let (next, end) = match ending {
            Ending::Well => {
                let end = if is_made { RunEnd::Done } else { RunEnd::NotMade };
                (plan::ended(&found.ci, None, &self.pace, now), end)
            }
            Ending::Unsaved(note) => {
                warn!(workspace = %found.name, run = run_number(&found.ci), note, "a job ended before its files were saved");
                (plan::unsaved(&found.ci, &note, now), RunEnd::Unsaved)
            }
            Ending::Failed(failure) => {
                let failure = match heard.state {
                    Some(RunState::Gone) => failure,
                    Some(_) | None => self.with_trace(system, found, failure).await,
                };
                (plan::ended(&found.ci, Some(&failure), &self.pace, now), RunEnd::Failed)
            }
        };
        self.metrics.run_ended(end);
        self.put(found, &next, now).await
    }

    /// Adds the end of the job's log, if it can be read.
    async fn with_trace(&self, system: &System, found: &VisitedWorkspace, failure: String) -> String {
        let Some(reference) = reference(&found.ci) else { return failure };
        match system.ask(system.provider.trace(&reference, TRACE_BYTES)).await {
            Ok(trace) if !trace.trim().is_empty() => format!("{failure}. Its log ends with: {}", trace.trim()),
            Ok(_) | Err(_) => failure,
        }
    }

    pub(super) async fn forget(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        now: UnixSeconds,
    ) -> Result<VisitNext, StoreError> {
        let Ok(cache_key) = found.ci.cache_key.parse::<CacheKey>() else { return Ok(VisitNext::Until(None)) };
        let answer = system.ask(system.provider.forget(&cache_key)).await;
        let reason = match answer {
            Ok(CacheDeletion::Gone) => None,
            Ok(CacheDeletion::NotPossible) => {
                Some("The CI system keeps the last cache until its own rules delete it; no job can name it".to_owned())
            }
            Err(error) => {
                self.unwell(found, heard, &error, (self.clock)());
                return Ok(VisitNext::Again);
            }
        };
        heard.well();
        self.show(found, ActualState::Terminated, reason.as_deref(), now).await?;
        Ok(VisitNext::Again)
    }
}
