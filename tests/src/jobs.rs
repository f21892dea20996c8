//! Jobs of a CI system that want an environment in a cluster, and what a cluster lets them have.

use std::time::Duration;

use gateway_environments::on_record::OnRecord;
use gateway_environments::request::{By, JobFacts, JobRequest, Unmet};
use gateway_net::audit::Audit;
use gateway_store::wall_clock;
use workspace_spec::cluster_config::{AccessAs, AccessEntry, CiAccess, ClusterConfig};

use crate::{PATIENCE, TestGateway};

/// The number of the project that asks.
pub const PROJECT: u64 = 42;

/// Lets the jobs of a project have environments that match a pattern, each made as the job.
#[must_use]
pub fn access(project: &str, environments: &str) -> AccessEntry {
    AccessEntry {
        id: project.to_owned(),
        default_namespace: None,
        access_as: AccessAs::CiJob,
        environments: vec![environments.to_owned()],
        protected_branches_only: false,
        resource_management: true,
    }
}

/// A job of a protected branch that wants an environment.
#[must_use]
pub fn wish(cluster: &str, project: &str, environment: &str, job_id: u64) -> JobRequest {
    JobRequest {
        agent: cluster.parse().unwrap(),
        template: None,
        is_disabled: false,
        url: None,
        job: JobFacts {
            project_id: PROJECT,
            project_path: project.to_owned(),
            environment: Some(environment.to_owned()),
            tier: None,
            action: None,
            is_ref_protected: true,
            pipeline_id: None,
            job_id,
            user_id: 3,
            username: "ann".to_owned(),
        },
    }
}

impl TestGateway {
    /// Has a cluster let these projects have environments, and waits until this job may, which is one that was never prepared.
    pub async fn let_jobs(&self, projects: Vec<AccessEntry>, wish: &JobRequest) {
        let cluster = self.store.ensure_cluster(&wish.agent, wall_clock()).await.unwrap();
        let ci_access = CiAccess { projects, groups: Vec::new() };
        let config = ClusterConfig { ci_access, ..ClusterConfig::default() };
        self.store.put_cluster_config(cluster.id, &config.to_json(), wall_clock()).await.unwrap();
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.environments.unmet(wish) != Unmet::Unmet {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.expect("the configuration is in force");
    }
}

/// Says by whose word something is done, where nobody keeps an audit log.
pub async fn on_record(by: By) -> OnRecord {
    OnRecord::new(by, Audit::default().slot().await.expect("a log that nobody keeps has room"))
}
