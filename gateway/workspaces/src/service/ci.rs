//! Makes workspaces in CI systems: every possible problem of their jobs is found before anything is stored.

use std::sync::Arc;

use super::{NewWorkspace, WorkspaceError, Workspaces, ports, variables};
use crate::ci::{CiTargets, NoPipeline, RunFacts};
use gateway_store::{CiProject, ManagedWorkspace, NewCi};
use gateway_types::token::random_key;
use gateway_types::{Port, ProviderName, UnixSeconds, UserName};
use workspace_spec::devfile;

/// Random bytes in the key of the cache that a workspace's runs leave to each other.
const CACHE_KEY_BYTES: usize = 16;

/// A workspace that is to be in a CI system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewOnCi {
    /// The CI system; `None` for the only one that there is.
    pub provider: Option<ProviderName>,
    /// Project to clone; `None` for the project that the pipeline runs in.
    pub project: Option<CiProject>,
    /// Tags of the runners that take its jobs.
    pub tags: Vec<String>,
}

impl Workspaces {
    pub(super) async fn create_on_ci(
        &self,
        owner: &UserName,
        new: NewWorkspace,
        on: NewOnCi,
        now: UnixSeconds,
    ) -> Result<ManagedWorkspace, WorkspaceError> {
        let NewWorkspace { name, devfile, variables, idle, ports, .. } = new;
        let wrong = variables::check(&variables);
        if !wrong.is_empty() {
            return Err(WorkspaceError::Variables(wrong));
        }
        let targets = self.ci.clone().ok_or(WorkspaceError::CiDisabled)?;
        let (provider, target) = targets.find(on.provider.as_ref())?;
        target.allow(&on.tags)?;
        let (provider, quotas) = (provider.clone(), target.quotas);
        let cache_key = random_key::<CACHE_KEY_BYTES>()?;
        let checked = {
            let (targets, provider, name, cache_key) =
                (targets.clone(), provider.clone(), name.clone(), cache_key.clone());
            let (project, tags) = (on.project.clone(), on.tags.clone());
            // A large devfile takes long enough to keep others on this thread waiting.
            let work = move || {
                let given = devfile.as_deref().unwrap_or(devfile::DEFAULT_DEVFILE.as_bytes());
                let named = ports::name(&devfile::parse(given)?, &ports)?;
                let numbers: Vec<Port> = named.iter().map(|named| named.port).collect();
                let facts = RunFacts {
                    workspace: &name,
                    run: 1,
                    cache_key: &cache_key,
                    devfile: given,
                    project: project.as_ref(),
                    tags: &tags,
                    variables: &variables,
                    ports: &numbers,
                };
                check(&targets, &provider, &facts)?;
                Ok::<_, WorkspaceError>((String::from_utf8_lossy(given).into_owned(), variables, named))
            };
            tokio::task::spawn_blocking(work).await.map_err(|_| WorkspaceError::Interrupted)??
        };
        let (devfile, variables, ports) = checked;
        let new = NewCi {
            name: &name,
            owner,
            provider: &provider,
            cache_key: &cache_key,
            project: on.project.as_ref(),
            tags: &on.tags,
            devfile: &devfile,
            variables: &variables,
            ports: &ports,
            quotas,
        };
        let managed = self.store.create_ci(&new, now).await?;
        self.made(managed, idle).await
    }
}

/// Makes the pipeline of the first run and forgets it, to find all problems.
fn check(targets: &Arc<CiTargets>, provider: &ProviderName, facts: &RunFacts<'_>) -> Result<(), WorkspaceError> {
    match targets.definition(provider, facts) {
        Ok(_) => Ok(()),
        Err(NoPipeline::Target(error)) => Err(error.into()),
        Err(NoPipeline::Devfile(problems)) => Err(problems.into()),
        Err(NoPipeline::Problems(problems)) => Err(WorkspaceError::Pipeline(problems)),
    }
}
