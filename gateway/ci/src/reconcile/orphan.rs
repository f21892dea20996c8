//! Steps for a workspace whose CI system is no longer configured, and so cannot be asked.

use tracing::warn;

use super::{CLOSE_AGAIN, VisitNext, VisitedWorkspace};
use crate::controller::CiController;
use crate::plan::{self, OrphanStep, orphaned};
use gateway_store::StoreError;
use gateway_types::UnixSeconds;

/// Message to the agent whose job is to end.
const STOP_WORDS: &str = "the CI system of this workspace is not configured at the gateway any more: this job may end";

impl CiController {
    /// Takes the next step for such a workspace.
    pub(super) async fn orphan(
        &self,
        found: &VisitedWorkspace,
        is_up: bool,
        now: UnixSeconds,
    ) -> Result<VisitNext, StoreError> {
        let decision = orphaned(&found.life, &found.ci, is_up);
        if self.show(found, decision.actual, Some(&decision.reason), now).await? {
            return Ok(VisitNext::Again);
        }
        match decision.step {
            OrphanStep::Wait => return Ok(VisitNext::Until(None)),
            OrphanStep::Close => {
                self.close(&found.name, STOP_WORDS);
                return Ok(VisitNext::Until(Some(now.later(CLOSE_AGAIN))));
            }
            OrphanStep::Stop => {
                self.stop(found, Some(&decision.reason), STOP_WORDS, now).await?;
            }
            OrphanStep::End => {
                self.put(found, &plan::ended(&found.ci, Some(&decision.reason), &self.pace, now), now).await?;
            }
        }
        Ok(VisitNext::Again)
    }

    /// Ends the run of a workspace that is over, and with it its agent's token, if its CI system could not be asked
    /// about it.
    pub(super) async fn leave(&self, found: &VisitedWorkspace, now: UnixSeconds) -> Result<(), StoreError> {
        let Some(run) = found.ci.live() else { return Ok(()) };
        warn!(workspace = %found.name, run = run.number, provider = %found.ci.provider, "a job is not managed any more");
        self.put(found, &plan::ended(&found.ci, run.failure.as_deref(), &self.pace, now), now).await
    }
}
