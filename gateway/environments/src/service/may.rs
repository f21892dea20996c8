//! Checks whether a request is allowed, without carrying it out.

use super::{AccessVerdict, AllowedCluster, EnvironmentRefusal, Environments, JobRequest, Met, RefusalCode};
use crate::request::JobFacts;
use gateway_types::ClusterName;

/// A job's request that is not refused, with the verdict on it.
#[derive(Debug)]
pub struct JudgedRequest {
    pub(super) request: JobRequest,
    pub(super) verdict: JobVerdict,
}

impl JudgedRequest {
    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &JobRequest {
        &self.request
    }
}

/// Verdict on a request that is not refused.
#[derive(Debug)]
pub(super) enum JobVerdict {
    /// Nothing is to be made.
    Met(Met),
    /// The environment may be made.
    AllowedCluster(AllowedCluster),
}

impl Environments {
    /// Judges a job's request, once: [`Environments::complete_by`] carries it out by this verdict. Answered from memory.
    ///
    /// # Errors
    /// The code of the rule in `ci_access` that forbids it.
    pub fn judge(&self, request: JobRequest) -> Result<JudgedRequest, EnvironmentRefusal> {
        let verdict = match self.inner.access.verdict(&request) {
            AccessVerdict::Met(met) => JobVerdict::Met(met),
            AccessVerdict::AllowedCluster(allowed) => JobVerdict::AllowedCluster(allowed),
            AccessVerdict::Refused(code) => return Err(code.into()),
        };
        Ok(JudgedRequest { request, verdict })
    }

    /// Checks that a job's request is allowed, now. Answered from memory.
    ///
    /// # Errors
    /// The code of the rule in `ci_access` that forbids it.
    pub fn check(&self, request: &JobRequest) -> Result<(), EnvironmentRefusal> {
        match self.inner.access.verdict(request) {
            AccessVerdict::Met(_) | AccessVerdict::AllowedCluster(..) => Ok(()),
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
