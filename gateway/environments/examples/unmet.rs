//! Says how many calls of `unmet` one process answers in a second: `cargo run --release -p gateway-environments --example unmet`.
//!
//! A scheduler asks it of every job that is queued. The store is closed before the first call and no agent is connected, so what is
//! answered is answered from memory.

use std::error::Error;
use std::io::{self, Write as _};
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gateway_agents::registry::Registry;
use gateway_environments::files::TemplateFiles;
use gateway_environments::request::{JobFacts, JobRequest, Met, Unmet};
use gateway_environments::service::{Environments, EnvironmentsParts};
use gateway_net::audit::Audit;
use gateway_net::telemetry::Metrics;
use gateway_store::{Store, wall_clock};
use gateway_types::UnixSeconds;
use tokio::time::Instant;
use workspace_spec::cluster_config::{AccessAs, AccessEntry, CiAccess, ClusterConfig};

/// Projects and groups that the cluster's configuration names: as many as GitLab takes.
const ENTRIES: u32 = 500;

/// For how long it is asked, by each number of threads.
const ROUND: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Store::open("sqlite::memory:").await?;
    let cluster = store.ensure_cluster(&"production".parse()?, UnixSeconds::new(1)).await?;
    let config = ClusterConfig { ci_access: access(), ..ClusterConfig::default() };
    store.put_cluster_config(cluster.id, &config.to_json(), UnixSeconds::new(1)).await?;
    let templates = TemplateFiles::new(None);
    templates.begin(&store).await?;
    let parts = EnvironmentsParts {
        store: store.clone(),
        registry: Arc::new(Registry::new(1, 1)),
        peers: None,
        templates,
        audit: Audit::default(),
        metrics: Metrics::default(),
        settings: gateway_config::Environments::default(),
        public_url: "https://gateway.example.net/".to_owned(),
        clock: Arc::new(wall_clock),
    };
    let environments = Environments::open(parts).await?;
    store.close().await;
    let cases = [
        ("unmet: the last of 500 projects", request("group/project-499", Some("review/1"))?, Unmet::Unmet),
        ("unmet: below the last of 500 groups", request("group-499/sub/project", Some("review/1"))?, Unmet::Unmet),
        (
            "met: a project that is not named",
            request("elsewhere/project", Some("review/1"))?,
            Unmet::Met(Met::NotEnabled),
        ),
        ("met: a job without environment", request("group/project-499", None)?, Unmet::Met(Met::NoEnvironment)),
    ];
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    for (what, request, expected) in &cases {
        for threads in [1, processors] {
            let calls = measure(&environments, request, *expected, threads)?;
            let rate = calls as f64 / ROUND.as_secs_f64();
            writeln!(io::stdout().lock(), "{rate:>12.0} calls/s  {threads} threads  {what}")?;
        }
    }
    Ok(())
}

/// Asks for the time of a round in each of so many threads. Returns how many calls those were.
fn measure(
    environments: &Environments,
    request: &JobRequest,
    expected: Unmet,
    threads: usize,
) -> Result<u64, Box<dyn Error>> {
    let end = Instant::now() + ROUND;
    thread::scope(|scope| {
        let ask = || {
            let mut calls = 0_u64;
            while Instant::now() < end {
                for _ in 0..256 {
                    if environments.unmet(request) != expected {
                        return Err("another answer than the right one");
                    }
                    calls += 1;
                }
            }
            Ok(calls)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(ask)).collect();
        let mut sum = 0;
        for thread in threads {
            sum += thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(sum)
    })
}

fn access() -> CiAccess {
    let entry = |id: String| AccessEntry {
        id,
        default_namespace: None,
        access_as: AccessAs::CiJob,
        environments: vec!["production".to_owned(), "review/*".to_owned()],
        protected_branches_only: false,
        resource_management: true,
    };
    CiAccess {
        projects: (0..ENTRIES).map(|number| entry(format!("group/project-{number}"))).collect(),
        groups: (0..ENTRIES).map(|number| entry(format!("group-{number}"))).collect(),
    }
}

fn request(project: &str, environment: Option<&str>) -> Result<JobRequest, Box<dyn Error>> {
    let job = JobFacts {
        project_id: 42,
        project_path: project.to_owned(),
        environment: environment.map(str::to_owned),
        tier: None,
        action: None,
        is_ref_protected: false,
        pipeline_id: Some(700),
        job_id: 9000,
        user_id: 12,
        username: "ann".to_owned(),
    };
    Ok(JobRequest { agent: "production".parse()?, template: None, is_disabled: false, url: None, job })
}
