//! What may be asked, without doing it.

use super::{Environments, JobRequest, Refusal, RefusalCode, Verdict};
use crate::environments::request::JobFacts;
use crate::model::ClusterName;

impl Environments {
    /// Checks that what is asked for a job may be done, before anything is taken for it. Answered from memory.
    ///
    /// # Errors
    /// The code of what `ci_access` does not allow.
    pub fn check(&self, request: &JobRequest) -> Result<(), Refusal> {
        match self.inner.access.verdict(request) {
            Verdict::Met(_) | Verdict::Allowed(..) => Ok(()),
            Verdict::Refused(code) => Err(code.into()),
        }
    }

    /// Checks that a job may say what becomes of its environment: that it starts or stops it, and does not just use it, and
    /// that its project may have the environment made on the cluster from the job's branch or tag. Answered from memory.
    ///
    /// # Errors
    /// [`RefusalCode::ActionNotAllowed`], or the code of what `ci_access` does not allow.
    pub fn may(&self, agent: &ClusterName, job: &JobFacts) -> Result<(), Refusal> {
        if !job.is_start() && !job.is_stop() {
            return Err(RefusalCode::ActionNotAllowed.into());
        }
        let job = JobFacts { action: None, ..job.clone() };
        self.check(&JobRequest { agent: agent.clone(), template: None, is_disabled: false, url: None, job })
    }
}
