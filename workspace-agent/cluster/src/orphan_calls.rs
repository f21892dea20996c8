//! Answers calls of a gateway about workspaces that are in the cluster: all with this agent's marks are listed, and one is
//! removed. Which of them are orphans only the gateway knows. A removal goes the way of a termination, so nothing without the
//! marks is touched, and no namespace that this agent did not make.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_proto::orphans::{
    Blocker, MarkedIn, MarkedRemove, MarkedRemoved, NamespaceMode, OrphanAnswer, OrphanCall, PAGE_MAX,
};
use tunnel_proto::state::{ActualState, DesiredState};
use work_queue::RetryDelays;

use crate::Options;
use crate::api::CancelableApi;
use crate::apply::Stopped;
use crate::call::{CallEnd, CallPermit, LAST_REQUEST, read_call, until_the_end};
use crate::config::Scope;
use crate::marked::{farewell, host_template, marked};
use crate::namespace;
use crate::object::{CLUSTER_LABEL, INVENTORY_LABEL, LiveObject, Resource, WORKSPACE_LABEL};
use crate::reconcile::{PassInput, ReconcileContext};
use crate::resources::Resources;
use crate::terminate::{Namespace, check_namespace};

/// Calls at a time: a person makes them.
pub const ORPHAN_CALLS_MAX: usize = 2;

/// Most bytes that are read at once.
const READ_BYTES: usize = 4 * 1024;

/// Waits between looks at objects that are being deleted.
const LOOK: RetryDelays = RetryDelays { first: Duration::from_millis(250), max: Duration::from_secs(2) };

/// Server of the calls. Clones share everything.
#[derive(Clone)]
pub struct OrphanCalls(Arc<Shared>);

struct Shared {
    api: CancelableApi,
    manager: String,
    permits: Arc<Semaphore>,
}

impl std::fmt::Debug for OrphanCalls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OrphanCalls").finish_non_exhaustive()
    }
}

impl OrphanCalls {
    /// Makes the server of calls.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self(Arc::new(Shared {
            api: CancelableApi::new(options.client, &options.field_manager),
            manager: options.field_manager,
            permits: Arc::new(Semaphore::new(ORPHAN_CALLS_MAX)),
        }))
    }

    /// Takes the permit for one call; `None` while [`ORPHAN_CALLS_MAX`] are being answered.
    #[must_use]
    pub fn permit(&self) -> Option<CallPermit> {
        CallPermit::of(&self.0.permits)
    }

    /// Answers the call in a channel. Ends early, between two requests, with the channel or with `stop`.
    ///
    /// Cancel safety: dropping it ends the work at once; a request that was sent may still be carried out by the API server.
    pub async fn answer<C>(&self, permit: CallPermit, channel: C, stop: CancellationToken) -> CallEnd
    where
        C: AsyncRead + AsyncWrite + Send,
    {
        let _permit = permit;
        let (mut read, mut write) = tokio::io::split(channel);
        let call: OrphanCall = match read_call(&mut read, READ_BYTES, &stop).await {
            Ok(call) => call,
            Err(end) => return end,
        };
        let end = stop.child_token();
        let api = self.0.api.until(end.clone());
        let mut work = std::pin::pin!(async {
            match call {
                OrphanCall::List(within) => self.list(&api, &within, &mut write).await,
                OrphanCall::Remove(remove) => self.remove(&api, remove, &mut write).await,
            }
        });
        tokio::select! {
            done = work.as_mut() => return if done.is_ok() { CallEnd::Answered } else { CallEnd::CalledOff },
            () = until_the_end(&mut read) => {}
            () = stop.cancelled() => {}
        }
        end.cancel();
        drop(tokio::time::timeout(LAST_REQUEST, work).await);
        CallEnd::CalledOff
    }

    async fn list<C: AsyncWrite>(
        &self,
        api: &CancelableApi,
        within: &MarkedIn,
        write: &mut WriteHalf<C>,
    ) -> std::io::Result<()> {
        let ours = format!("{CLUSTER_LABEL}={},{INVENTORY_LABEL}", within.cluster);
        let namespace = match &within.namespaces {
            NamespaceMode::Unique => "",
            NamespaceMode::Shared(namespace) => namespace,
        };
        let (found, failure) = match api.list(&collection(namespace), &ours).await {
            Ok(listed) => (marked(&listed, &within.cluster, &self.0.manager), None),
            Err(error) => (Vec::new(), Some(format!("inventories cannot be listed: {error}"))),
        };
        for page in found.chunks(PAGE_MAX) {
            say(write, &OrphanAnswer::Page(page.to_vec())).await?;
        }
        say(write, &OrphanAnswer::Listed(failure)).await?;
        write.shutdown().await
    }

    async fn remove<C: AsyncWrite>(
        &self,
        api: &CancelableApi,
        remove: MarkedRemove,
        write: &mut WriteHalf<C>,
    ) -> std::io::Result<()> {
        let removed = match self.begin(api, &remove).await {
            Ok(Begun::Absent) => MarkedRemoved::default(),
            Ok(Begun::Leaving(left)) => return self.finish(api, &remove, Vec::new(), left, write).await,
            Ok(Begun::Found(inventories)) => {
                return self.finish(api, &remove, inventories, Vec::new(), write).await;
            }
            Err(failure) => MarkedRemoved { was_there: true, failure: Some(failure) },
        };
        say(write, &OrphanAnswer::Removed(removed)).await?;
        write.shutdown().await
    }

    /// Finds what is to be removed, and checks whose it is.
    async fn begin(&self, api: &CancelableApi, remove: &MarkedRemove) -> Result<Begun, String> {
        let scope = scope(remove);
        check_namespace(&remove.within.namespaces, &remove.namespace)?;
        let inventories = inventories(api, &scope).await?;
        if !inventories.is_empty() {
            return match host_template(inventories.iter()) == remove.host_template {
                true => Ok(Begun::Found(inventories)),
                false => Err("another gateway made it: its inventories have other hosts".to_owned()),
            };
        }
        if remove.within.namespaces != NamespaceMode::Unique {
            return Ok(Begun::Absent);
        }
        let looked = namespace::look(api, &scope).await.map_err(words)?;
        match looked.state {
            Namespace::Leaving => Ok(Begun::Leaving(vec![namespace::blocker(&scope, &looked)])),
            // Without an inventory, nothing says which gateway made it.
            Namespace::Absent | Namespace::Ours | Namespace::Foreign | Namespace::Shared => Ok(Begun::Absent),
        }
    }

    /// Takes the steps of a termination until nothing is left.
    async fn finish<C: AsyncWrite>(
        &self,
        api: &CancelableApi,
        remove: &MarkedRemove,
        inventories: Vec<LiveObject>,
        mut left: Vec<Blocker>,
        write: &mut WriteHalf<C>,
    ) -> std::io::Result<()> {
        let scope = scope(remove);
        let mode = remove.within.namespaces.clone();
        info!(workspace = scope.workspace, namespace = scope.namespace, "removing an orphan on the gateway's word");
        let context =
            ReconcileContext { api: api.clone(), resources: Resources::default(), sources: Arc::default(), mode };
        let mut failures = 0;
        let failure = loop {
            say(write, &OrphanAnswer::Removing(std::mem::take(&mut left))).await?;
            let step = match inventories.is_empty() {
                true => leaving(api, &scope).await,
                false => pass(&context, &scope, &inventories, api).await,
            };
            match step {
                Step::Gone => break None,
                Step::Left(blockers) => left = blockers,
                Step::Failed { message, is_temporary: true } => {
                    warn!(workspace = scope.workspace, message, "an orphan cannot be removed now: trying again");
                }
                Step::Failed { message, is_temporary: false } => break Some(message),
                Step::CalledOff => break Some("the call was called off".to_owned()),
            }
            failures += 1;
            tokio::time::sleep(LOOK.after(failures, 1.0)).await;
        };
        say(write, &OrphanAnswer::Removed(MarkedRemoved { was_there: true, failure })).await?;
        write.shutdown().await
    }
}

/// What a removal begins with.
enum Begun {
    /// Nothing is there.
    Absent,
    /// Its namespace is being deleted, with all that was in it.
    Leaving(Vec<Blocker>),
    /// Its inventories.
    Found(Vec<LiveObject>),
}

/// Result of one step.
enum Step {
    Gone,
    Left(Vec<Blocker>),
    Failed { message: String, is_temporary: bool },
    CalledOff,
}

/// Makes one pass of a termination.
async fn pass(context: &ReconcileContext, scope: &Scope, inventories: &[LiveObject], api: &CancelableApi) -> Step {
    let config = serde_json::to_vec(&farewell(scope, inventories)).unwrap_or_default();
    let job = PassInput {
        scope: scope.clone(),
        generation: 1,
        desired: DesiredState::Terminated,
        actual: ActualState::Terminating,
        configs: vec![Bytes::from(config)],
        pull_secrets: Vec::new(),
    };
    let Some(done) = context.run(&job, api).await else { return Step::CalledOff };
    match (done.failure, done.termination) {
        (Some(problem), _) => Step::Failed { message: problem.message, is_temporary: problem.is_temporary },
        (None, Some(termination)) if termination.is_done => Step::Gone,
        (None, Some(termination)) => Step::Left(termination.blockers),
        (None, None) => Step::Left(Vec::new()),
    }
}

/// Looks at a namespace that is on its way out.
async fn leaving(api: &CancelableApi, scope: &Scope) -> Step {
    match namespace::look(api, scope).await {
        Ok(looked) if looked.state == Namespace::Leaving => Step::Left(vec![namespace::blocker(scope, &looked)]),
        Ok(_) => Step::Gone,
        Err(Stopped::Superseded) => Step::CalledOff,
        Err(Stopped::Problem(problem)) => Step::Failed { message: problem.message, is_temporary: problem.is_temporary },
    }
}

fn scope(remove: &MarkedRemove) -> Scope {
    Scope {
        cluster: remove.within.cluster.clone(),
        workspace: remove.workspace.clone(),
        namespace: remove.namespace.clone(),
    }
}

fn words(stopped: Stopped) -> String {
    match stopped {
        Stopped::Superseded => "the call was called off".to_owned(),
        Stopped::Problem(problem) => problem.message,
    }
}

/// Reads the inventories of one workspace.
async fn inventories(api: &CancelableApi, scope: &Scope) -> Result<Vec<LiveObject>, String> {
    let labels = format!("{CLUSTER_LABEL}={},{WORKSPACE_LABEL}={},{INVENTORY_LABEL}", scope.cluster, scope.workspace);
    let listed = api.list_metadata(&collection(&scope.namespace), &labels).await;
    let listed = listed.map_err(|error| format!("inventories cannot be listed: {error}"))?;
    let is_own = |live: &LiveObject| {
        live.is_of(&scope.workspace, &scope.cluster) && live.labels.get(INVENTORY_LABEL) == Some(&live.name)
    };
    Ok(listed.into_iter().filter(is_own).collect())
}

fn collection(namespace: &str) -> String {
    Resource::known("", None, "ConfigMap").map(|maps| maps.collection(namespace)).unwrap_or_default()
}

async fn say<C: AsyncWrite>(write: &mut WriteHalf<C>, answer: &OrphanAnswer) -> std::io::Result<()> {
    write.write_all(&answer.encode()).await?;
    write.flush().await
}
