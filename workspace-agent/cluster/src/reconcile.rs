//! One pass over one workspace: does what is to be done now, as far as it goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::apps::v1::Deployment;
use tracing::{info, warn};
use tunnel_proto::reconcile::{Blocker, FailureKind, NamespaceMode, ObjectDetail, SecretRef, Termination};
use tunnel_proto::state::{ActualState, DesiredState};

use crate::api::CancelableApi;
use crate::apply::{ApplyProblem, Pass, Stopped};
use crate::config::{self, Group, Scope};
use crate::inventory_store;
use crate::namespace;
use crate::object::LiveObject;
use crate::resources::Resources;
use crate::secrets::Sources;
use crate::terminate::{Inventory, Namespace, Remaining, TerminateStep, decide};
use crate::workload;

/// Steps of a termination in one pass. Each but the last deletes something, and there are few things to delete.
const STEPS_MAX: usize = 8;

/// Desired state of one workspace.
#[derive(Clone)]
pub(crate) struct PassInput {
    pub(crate) scope: Scope,
    pub(crate) generation: u64,
    pub(crate) desired: DesiredState,
    pub(crate) actual: ActualState,
    /// Configurations that were sent and are not applied yet, the oldest first: a later one replaces the inventories
    /// that it has too.
    pub(crate) configs: Vec<Bytes>,
    pub(crate) pull_secrets: Vec<SecretRef>,
}

/// Result of a pass.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) failure: Option<ApplyProblem>,
    pub(crate) termination: Option<Termination>,
    pub(crate) secrets: Vec<ObjectDetail>,
    pub(crate) deployments: Vec<Deployment>,
    /// Objects that have to be gone before the workload is applied.
    pub(crate) waits: Vec<ObjectDetail>,
    /// Some deleted object is still there: look again.
    pub(crate) is_waiting: bool,
}

/// State that all passes of a conversation share.
pub(crate) struct ReconcileContext {
    pub(crate) api: CancelableApi,
    pub(crate) resources: Resources,
    pub(crate) sources: Arc<Sources>,
    pub(crate) mode: NamespaceMode,
}

impl PassInput {
    /// Reads the configurations; the newest of each inventory, and those with a workload last: the others tell whether
    /// it may run.
    fn groups(&self) -> Result<Vec<Group>, config::ConfigError> {
        let is_terminated = self.desired == DesiredState::Terminated;
        let mut groups = BTreeMap::new();
        for bytes in &self.configs {
            for group in config::parse(bytes, &self.scope, is_terminated)? {
                groups.insert(group.name().to_owned(), group);
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by_key(|group| group.objects.iter().any(workload::runs));
        Ok(groups)
    }
}

impl ReconcileContext {
    /// Does what there is to do for a workspace. `None` if a newer intent has come by now.
    pub(crate) async fn run(&self, job: &PassInput, api: &CancelableApi) -> Option<Done> {
        let mut done = Done::default();
        let groups = match job.groups() {
            Ok(groups) => groups,
            Err(error) => {
                done.failure =
                    Some(ApplyProblem { kind: FailureKind::Config, message: error.to_string(), is_temporary: false });
                return Some(done);
            }
        };
        let work = async {
            if job.desired == DesiredState::Terminated {
                self.terminate(job, &groups, api, &mut done).await
            } else {
                self.make(job, &groups, api, &mut done).await
            }
        };
        match work.await {
            Ok(()) => Some(done),
            Err(Stopped::Superseded) => None,
            Err(Stopped::Problem(problem)) => {
                // The reason of the first problem stays.
                done.failure.get_or_insert(problem);
                Some(done)
            }
        }
    }

    fn pass<'a>(&'a self, job: &'a PassInput, api: &'a CancelableApi) -> Pass<'a> {
        Pass { api, resources: &self.resources, scope: &job.scope }
    }

    async fn make(
        &self,
        job: &PassInput,
        groups: &[Group],
        api: &CancelableApi,
        done: &mut Done,
    ) -> Result<(), Stopped> {
        if self.mode == NamespaceMode::Unique && !(groups.is_empty() && job.pull_secrets.is_empty()) {
            namespace::ensure(api, &job.scope).await?;
        }
        done.secrets = self.sources.copy(api, &job.scope, &job.pull_secrets).await?;
        let pass = self.pass(job, api);
        let mut is_withheld = false;
        for group in groups {
            let outcome = pass.apply(group, is_withheld).await?;
            is_withheld = outcome.is_withheld;
            done.deployments.extend(outcome.deployments);
            done.is_waiting |= !(outcome.left.is_empty() && outcome.waits.is_empty());
            done.waits.extend(outcome.waits);
            join(&mut done.failure, outcome.problems);
        }
        Ok(())
    }

    async fn terminate(
        &self,
        job: &PassInput,
        groups: &[Group],
        api: &CancelableApi,
        done: &mut Done,
    ) -> Result<(), Stopped> {
        if groups.is_empty() {
            // In a shared namespace, it could not be told whether something is left.
            let message = "the workspace is to be terminated, but its inventories were not sent".to_owned();
            return Err(Stopped::Problem(ApplyProblem { kind: FailureKind::Config, message, is_temporary: false }));
        }
        done.termination = Some(Termination::default());
        let mut blockers = Vec::new();
        for _ in 0..STEPS_MAX {
            let looked = match self.mode {
                NamespaceMode::Unique => Some(namespace::look(api, &job.scope).await?),
                NamespaceMode::Shared(_) => None,
            };
            let state = looked.as_ref().map_or(Namespace::Shared, |looked| looked.state);
            let (inventories, lives) = match state {
                Namespace::Absent | Namespace::Leaving => (Vec::new(), BTreeMap::new()),
                Namespace::Ours | Namespace::Foreign | Namespace::Shared => inventories(groups, api).await?,
            };
            match (decide(job.actual, &Remaining { namespace: state, inventories }), &looked) {
                (TerminateStep::Forget, _) => return Ok(()),
                (TerminateStep::Done, _) => {
                    info!(
                        workspace = job.scope.workspace,
                        namespace = job.scope.namespace,
                        "nothing is left of a workspace"
                    );
                    done.termination = Some(Termination { is_done: true, blockers: Vec::new() });
                    return Ok(());
                }
                (TerminateStep::Prune(names), _) => {
                    blockers = self.prune(job, groups, &names, api, &mut done.failure).await?;
                    if !blockers.is_empty() || done.failure.is_some() {
                        break;
                    }
                }
                (TerminateStep::DeleteInventories(names), _) => {
                    for group in groups.iter().filter(|group| names.iter().any(|name| name == group.name())) {
                        if let Some(live) = lives.get(group.name()) {
                            inventory_store::delete(api, &group.inventory.key, live).await?;
                        }
                    }
                }
                (TerminateStep::DeleteNamespace, Some(looked)) => namespace::delete(api, &job.scope, looked).await?,
                (TerminateStep::Wait, Some(looked)) => {
                    blockers = vec![namespace::blocker(&job.scope, looked)];
                    break;
                }
                (TerminateStep::Refuse, _) | (TerminateStep::DeleteNamespace | TerminateStep::Wait, None) => {
                    let message = format!(
                        "objects of this workspace are in the namespace {}, which was not made for it: they have to be \
                         deleted by hand",
                        job.scope.namespace
                    );
                    warn!(workspace = job.scope.workspace, message);
                    return Err(Stopped::Problem(ApplyProblem {
                        kind: FailureKind::Config,
                        message,
                        is_temporary: false,
                    }));
                }
            }
        }
        done.is_waiting = true;
        done.termination = Some(Termination { is_done: false, blockers });
        Ok(())
    }

    async fn prune(
        &self,
        job: &PassInput,
        groups: &[Group],
        names: &[String],
        api: &CancelableApi,
        failure: &mut Option<ApplyProblem>,
    ) -> Result<Vec<Blocker>, Stopped> {
        let pass = self.pass(job, api);
        let mut blockers = Vec::new();
        for group in groups.iter().filter(|group| names.iter().any(|name| name == group.name())) {
            let outcome = pass.apply(group, false).await?;
            blockers.extend(outcome.left);
            join(failure, outcome.problems);
        }
        Ok(blockers)
    }
}

/// Finds the inventories that are there.
async fn inventories(
    groups: &[Group],
    api: &CancelableApi,
) -> Result<(Vec<Inventory>, BTreeMap<String, LiveObject>), Stopped> {
    let (mut found, mut lives) = (Vec::new(), BTreeMap::new());
    for group in groups {
        let name = group.name();
        let (Some(value), tracked) = inventory_store::read(api, &group.inventory.key).await? else { continue };
        found.push(Inventory { name: name.to_owned(), tracked: tracked.len() });
        lives.insert(name.to_owned(), LiveObject::read(&value));
    }
    Ok((found, lives))
}

/// Joins the problems of a pass into one: a person reads them together.
fn join(failure: &mut Option<ApplyProblem>, problems: Vec<ApplyProblem>) {
    for problem in problems {
        match failure {
            Some(failure) => {
                failure.message = format!("{}; {}", failure.message, problem.message);
                failure.is_temporary &= problem.is_temporary;
            }
            None => *failure = Some(problem),
        }
    }
}
