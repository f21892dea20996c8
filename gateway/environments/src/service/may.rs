//! Checks whether a request is allowed, without carrying it out.

use super::{AccessVerdict, EnvironmentRefusal, Environments, JobRequest, RefusalCode};
use crate::request::JobFacts;
use gateway_types::ClusterName;

impl Environments {
    /// Checks that a job's request is allowed, before anything is reserved for it. Answered from memory.
    ///
    /// # Errors
    /// The code of the rule in `ci_access` that forbids it.
    pub fn check(&self, request: &JobRequest) -> Result<(), EnvironmentRefusal> {
        match self.inner.access.verdict(request) {
            AccessVerdict::Met(_) | AccessVerdict::Allowed(..) => Ok(()),
            AccessVerdict::Refused(code) => Err(code.into()),
        }
    }

    /// Checks that a job may set the state of its environment: that it starts or stops it, and does not just use it,
    /// and that its project may have the environment made on the cluster from the job's branch or tag. Answered from
    /// memory.
    ///
    /// # Errors
    /// [`RefusalCode::ActionNotAllowed`], or the code of the rule in `ci_access` that forbids it.
    pub fn may(&self, agent: &ClusterName, job: &JobFacts) -> Result<(), EnvironmentRefusal> {
        if !job.is_start() && !job.is_stop() {
            return Err(RefusalCode::ActionNotAllowed.into());
        }
        let job = JobFacts { action: None, ..job.clone() };
        self.check(&JobRequest { agent: agent.clone(), template: None, is_disabled: false, url: None, job })
    }
}
