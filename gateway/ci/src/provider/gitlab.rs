//! Runs jobs in GitLab: pipelines of one project, over the REST API, version 4.
//!
//! A run is a pipeline with the variable [`RUN_VARIABLE`]. The project's own definition includes the template
//! `deploy/ci/gitlab/workspace.yml`: its first job fetches the definition of the run from the gateway, its second starts that as
//! a child pipeline, whose one job is the workspace.

mod answer;
mod request;
mod search;

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::answer::{Bridge, ChildStates, GitlabJob, Pipeline, TRIGGER_JOB, joined, shown_address};
use self::request::ProjectApi;
use self::search::KnownPipelines;
use super::text::end_of_log;
use super::{NewRun, ProviderError, RUN_VARIABLE, RunRef, RunState, RunStatus, variable_name};
use gateway_net::fetch::FetchSetupError;
use gateway_types::Endpoint;

/// Entries of a page, GitLab's most.
const PAGE: usize = 100;

/// Longest value of a variable, in bytes: a child pipeline gets it as one string of its job's environment, in base64,
/// and Linux takes 128 KiB of that at most, with its name.
pub const VALUE_BYTES_MAX: usize = (128 * 1024 - 64) / 4 * 3;

/// Address, project and token of a GitLab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitlabSettings {
    /// Its address, without `/api/v4`.
    pub url: Endpoint,
    /// The project whose pipelines are the runs: its number, or its path such as `group/project`.
    pub project: String,
    /// The branch or tag that the pipelines run on.
    pub reference: String,
    /// File with the token. Read anew for each request.
    pub token_file: PathBuf,
    /// Kind of the token.
    pub token_kind: GitlabToken,
    /// Authorities to trust beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
}

/// Kind of the token, and so the header field that carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GitlabToken {
    /// An access token of a project, a group or a user, with the scope `api`: `PRIVATE-TOKEN`.
    #[default]
    Access,
    /// The token of a CI job, if the gateway itself runs in one: `JOB-TOKEN`. GitLab takes it for some requests only.
    Job,
}

/// Client of GitLab. Clones share connections, the rate limit's pause, and the known pipelines.
#[derive(Clone, Debug)]
pub struct Gitlab {
    api: Arc<ProjectApi>,
    known: Arc<KnownPipelines>,
}

#[derive(Serialize)]
struct NewPipeline<'a> {
    #[serde(rename = "ref")]
    reference: &'a str,
    variables: Vec<NewVariable<'a>>,
}

#[derive(Serialize)]
struct NewVariable<'a> {
    key: String,
    value: std::borrow::Cow<'a, str>,
    variable_type: &'static str,
}

impl Gitlab {
    /// Sets the provider up; sends nothing yet.
    ///
    /// # Errors
    /// [`FetchSetupError`] names the file that cannot be used.
    pub fn new(settings: GitlabSettings) -> Result<Self, FetchSetupError> {
        Ok(Self { api: Arc::new(ProjectApi::new(settings)?), known: Arc::default() })
    }

    pub(super) async fn create(&self, run: &NewRun<'_>) -> Result<RunRef, ProviderError> {
        // Checked first: a variable that is too long is reported even if GitLab is away.
        let variables = variables(run)?;
        if !run.is_new
            && let Some(there) = self.find(run.key, run.since).await?
        {
            return Ok(there);
        }
        let body = NewPipeline { reference: &self.api.settings().reference, variables };
        let answer = self.api.ask("make a pipeline", Method::POST, "/pipeline", Some(&body)).await?;
        let pipeline: Pipeline = answer.json()?;
        // Searches for other runs need not read it.
        self.known.learn(pipeline.id, Some(run.key.clone()));
        Ok(reference(&pipeline))
    }

    pub(super) async fn status(&self, run: &RunRef) -> Result<RunStatus, ProviderError> {
        let parent = number(&run.id)?;
        let known = run.child.as_deref().map(number).transpose()?;
        match known {
            Some(child) => {
                let pipeline = self.pipeline(child).await?;
                self.status_with(run, RunState::Running, pipeline.as_ref(), child).await
            }
            None => {
                let Some(pipeline) = self.pipeline(parent).await? else { return Ok(gone(run)) };
                match self.child(parent).await? {
                    Some(child) => self.status_with(run, pipeline.state(), Some(&child), child.id).await,
                    None => self.status_without_child(run, &pipeline).await,
                }
            }
        }
    }

    /// Returns the status of a run whose child pipeline is known; `None` for one that was deleted.
    async fn status_with(
        &self,
        run: &RunRef,
        parent: RunState,
        child: Option<&Pipeline>,
        id: u64,
    ) -> Result<RunStatus, ProviderError> {
        let run = RunRef { id: run.id.clone(), child: Some(id.to_string()) };
        let Some(child) = child else { return Ok(gone(&run)) };
        let job = self.job(id).await?;
        let state =
            joined(parent, Some(ChildStates { pipeline: child.state(), job: job.as_ref().map(GitlabJob::state) }));
        let web_url = job.as_ref().and_then(GitlabJob::web_url).or_else(|| shown_address(child.web_url.as_deref()));
        Ok(RunStatus { state, run, job: job.as_ref().map(GitlabJob::status), web_url })
    }

    async fn status_without_child(&self, run: &RunRef, pipeline: &Pipeline) -> Result<RunStatus, ProviderError> {
        let state = joined(pipeline.state(), None);
        // Has the reason why the definition could not be fetched.
        let job = if state == RunState::Failed { self.job(pipeline.id).await? } else { None };
        let web_url = shown_address(pipeline.web_url.as_deref());
        Ok(RunStatus { state, run: run.clone(), job: job.as_ref().map(GitlabJob::status), web_url })
    }

    pub(super) async fn cancel(&self, run: &RunRef) -> Result<(), ProviderError> {
        let parent = number(&run.id)?;
        let known = run.child.as_deref().map(number).transpose()?;
        self.cancel_one(parent).await?;
        // Queried after the parent was cancelled, which starts no other any more.
        let child = match known {
            Some(child) => Some(child),
            None => self.child(parent).await?.map(|child| child.id),
        };
        match child {
            Some(child) => self.cancel_one(child).await,
            None => Ok(()),
        }
    }

    async fn cancel_one(&self, id: u64) -> Result<(), ProviderError> {
        let path = format!("/pipelines/{id}/cancel");
        match self.api.ask("cancel a pipeline", Method::POST, &path, None::<&()>).await {
            Ok(_) => Ok(()),
            // Deleted, and its jobs with it.
            Err(ProviderError::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn trace(&self, run: &RunRef, bytes_max: usize) -> Result<String, ProviderError> {
        let id = number(run.child.as_deref().unwrap_or(&run.id))?;
        let Some(job) = self.job(id).await? else { return Ok(String::new()) };
        let path = format!("/jobs/{}/trace", job.id);
        // Marks and colours are taken out: more is read than is kept.
        let wanted = bytes_max.saturating_mul(2).saturating_add(4096);
        let answer = match self.api.ask_for_end("read a job's log", &path, wanted).await {
            Ok(answer) => answer,
            Err(ProviderError::Refused { status: 404 | 416, .. }) => return Ok(String::new()),
            Err(error) => return Err(error),
        };
        let log = answer.body();
        Ok(end_of_log(log, bytes_max, log.len() >= wanted))
    }

    /// Returns a pipeline; `None` if it no longer exists.
    async fn pipeline(&self, id: u64) -> Result<Option<Pipeline>, ProviderError> {
        match self.get("read a pipeline", &format!("/pipelines/{id}")).await {
            Ok(pipeline) => Ok(Some(pipeline)),
            Err(ProviderError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the pipeline that the template's trigger job started.
    async fn child(&self, parent: u64) -> Result<Option<Pipeline>, ProviderError> {
        let path = format!("/pipelines/{parent}/bridges?per_page={PAGE}");
        let bridges: Vec<Bridge> = match self.get("read a pipeline's trigger jobs", &path).await {
            Ok(bridges) => bridges,
            Err(ProviderError::Refused { status: 404, .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(bridges.into_iter().find(|bridge| bridge.name == TRIGGER_JOB).and_then(|bridge| bridge.downstream_pipeline))
    }

    /// Returns the job that says most about a pipeline: one that runs, else one that failed, else any.
    async fn job(&self, pipeline: u64) -> Result<Option<GitlabJob>, ProviderError> {
        let path = format!("/pipelines/{pipeline}/jobs?per_page={PAGE}");
        let jobs: Vec<GitlabJob> = match self.get("read a pipeline's jobs", &path).await {
            Ok(jobs) => jobs,
            Err(ProviderError::Refused { status: 404, .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(jobs.into_iter().min_by_key(|job| match job.state() {
            RunState::Running => 0,
            RunState::Failed => 1,
            RunState::Pending => 2,
            RunState::Cancelled | RunState::Succeeded | RunState::Gone => 3,
        }))
    }

    async fn get<T: DeserializeOwned>(&self, what: &'static str, path: &str) -> Result<T, ProviderError> {
        Ok(self.api.ask(what, Method::GET, path, None::<&()>).await?.json()?)
    }
}

/// Returns the variables of a pipeline. Values are base64 and go as files: see [`variable_name`].
fn variables<'a>(run: &NewRun<'a>) -> Result<Vec<NewVariable<'a>>, ProviderError> {
    let text =
        |key: &str, value: &'a str| NewVariable { key: key.to_owned(), value: value.into(), variable_type: "env_var" };
    let mut all =
        vec![text(RUN_VARIABLE, run.key.as_str()), text("WORKSPACE_GATEWAY_WORKSPACE", run.workspace.as_str())];
    for (number, variable) in (1..).zip(run.variables) {
        let value = variable.value.reveal();
        if value.len() > VALUE_BYTES_MAX {
            return Err(ProviderError::VariableTooLong { name: variable.name.clone(), bytes_max: VALUE_BYTES_MAX });
        }
        let value = STANDARD.encode(value);
        all.push(NewVariable { key: variable_name(number), value: value.into(), variable_type: "file" });
    }
    Ok(all)
}

fn reference(pipeline: &Pipeline) -> RunRef {
    RunRef { id: pipeline.id.to_string(), child: None }
}

fn gone(run: &RunRef) -> RunStatus {
    RunStatus { state: RunState::Gone, run: run.clone(), job: None, web_url: None }
}

fn number(id: &str) -> Result<u64, ProviderError> {
    id.parse().map_err(|_| ProviderError::NotOurs)
}

#[cfg(test)]
pub(crate) mod tests;
