//! One conversation with one cluster agent: reads the stored state, sends the messages that [`ConversationPlan`] asks for, and
//! stores the reports. Decisions that need neither store nor channel are made elsewhere.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tunnel_proto::reason::Reason;
use tunnel_proto::reconcile::{Begin, FromCluster, NamespaceMode, Terms, ToCluster};

use super::intent::{IntentParts, Unsendable, cycle, farewell, intent, state_of};
use super::plan::{ConversationPlan, ConversationStep, OutOfTurn, Why};
use super::wire::{ReconcileWire, WireError, WireTurn};
use super::{KubernetesController, is_of_one_row};
use crate::changes::{ChangeNews, ChangeNotice, Subscriber};
use crate::cluster_configs::StoredConfig;
use crate::sending::Cycle;
use gateway_agents::registry::LiveSession;
use gateway_store::{Cluster, ConfigVersion, ManagedWorkspace, StoreError, Variable, WorkspaceId, wall_clock};
use gateway_types::{ActualState, DesiredState};
use workspace_spec::cluster_config::ClusterConfig;
use workspace_spec::frozen::FrozenConfig;

/// Pause before the store is asked again after a failure.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Workspaces that a round reads at a time.
const PAGE: u32 = 256;

/// Most unsettled workspaces that one look returns.
const UNSETTLED_MAX: u32 = 10_000;

/// Problems of a frozen config that its owner is shown.
const PROBLEMS_TOLD: usize = 3;

/// Versions of a cluster's configuration that are cached.
const CONFIGS_KEPT: usize = 16;

/// Reason for the end of a conversation.
#[derive(Debug, Error)]
pub(super) enum ConversationEnd {
    /// The gateway stops.
    #[error("the gateway stops")]
    Stopped,
    /// The session ended.
    #[error("the session ended")]
    Session,
    /// Another replica has a newer session.
    #[error("the cluster agent has a newer session")]
    Displaced,
    /// The channel failed, or carried an invalid message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The agent sent a message that is not allowed in this phase.
    #[error(transparent)]
    OutOfTurn(#[from] OutOfTurn),
    /// The agent did not begin.
    #[error("the cluster agent did not begin in time")]
    Late,
}

impl ConversationEnd {
    /// Returns the reason with which the session is closed.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Stopped => Reason::Shutdown,
            Self::Session | Self::Wire(WireError::Ended(_)) => Reason::SessionLost,
            Self::Displaced => Reason::Displaced,
            Self::Wire(WireError::Message(_)) | Self::OutOfTurn(_) => Reason::Protocol,
            Self::Late => Reason::TimedOut,
        }
    }
}

/// Failure of a read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The conversation is over.
    End(ConversationEnd),
    /// One row is invalid. Others can be read.
    Row(StoreError),
}

/// A conversation under way.
#[derive(Debug)]
pub(super) struct Conversation<'a> {
    pub(super) controller: &'a KubernetesController,
    pub(super) session: &'a LiveSession,
    pub(super) cluster: Cluster,
    pub(super) plan: ConversationPlan,
    wire: ReconcileWire,
    changes: Subscriber,
    configs_changed: watch::Receiver<u64>,
    /// Newest known configuration.
    version: ConfigVersion,
    namespaces: NamespaceMode,
    /// Configurations that workspaces were made with.
    configs: HashMap<ConfigVersion, Arc<ClusterConfig>>,
    stop: CancellationToken,
}

impl<'a> Conversation<'a> {
    /// Subscribes to changes, and reads the configuration that the first message needs.
    ///
    /// # Errors
    /// [`ConversationEnd`] if the session ends meanwhile.
    pub(super) async fn open(
        controller: &'a KubernetesController,
        session: &'a LiveSession,
        cluster: Cluster,
        stop: CancellationToken,
    ) -> Result<Self, ConversationEnd> {
        // Subscribed before anything is read, so that no later change is missed.
        let (changes, mut configs_changed) = (controller.changes.listen(), controller.configs.changes());
        configs_changed.mark_unchanged();
        let (version, config) = newest(controller, session, &cluster, &stop).await?;
        Ok(Self {
            controller,
            session,
            cluster,
            plan: ConversationPlan::new(now()),
            wire: ReconcileWire::open(session),
            changes,
            configs_changed,
            version,
            namespaces: namespaces(&config),
            configs: HashMap::new(),
            stop,
        })
    }

    /// Runs until the session ends, the gateway stops or the agent breaks the protocol. Never returns otherwise.
    ///
    /// # Errors
    /// [`ConversationEnd`], always.
    pub(super) async fn run(&mut self) -> Result<(), ConversationEnd> {
        loop {
            while self.wire.is_free() {
                let step = self.plan.next(now());
                if step == ConversationStep::Wait {
                    break;
                }
                self.take(step).await?;
            }
            let deadline = self.plan.deadline();
            tokio::select! {
                turn = self.wire.turn() => match turn? {
                    WireTurn::Written => {}
                    WireTurn::Message(message) => self.hear(message).await?,
                },
                heard = self.changes.next() => self.note(heard),
                changed = self.configs_changed.changed() => match changed {
                    Ok(()) => self.look_at_config().await?,
                    Err(_closed) => return Err(ConversationEnd::Stopped),
                },
                () = until(deadline) => {}
                () = self.session.tunnel.ended() => return Err(ConversationEnd::Session),
                () = self.stop.cancelled() => return Err(ConversationEnd::Stopped),
            }
        }
    }

    fn note(&mut self, heard: ChangeNews) {
        match heard {
            ChangeNews::Change(ChangeNotice { workspace, cluster }) if cluster == Some(self.cluster.id) => {
                self.plan.changed(workspace, now());
            }
            ChangeNews::Change(_) => {}
            ChangeNews::Missed => self.plan.missed(now()),
        }
    }

    async fn take(&mut self, step: ConversationStep) -> Result<(), ConversationEnd> {
        match step {
            ConversationStep::Terms => {
                let cluster = self.cluster.name.to_string();
                self.wire.say(&ToCluster::Terms(Terms { cluster, namespaces: self.namespaces.clone() }));
            }
            ConversationStep::Noted(number) => self.wire.say(&ToCluster::Noted { number }),
            ConversationStep::Tell(workspace, why) => self.tell(workspace, why).await?,
            ConversationStep::Page(after) => {
                let (store, cluster) = (&self.controller.store, self.cluster.id);
                let page = self.ask(|| store.managed_ids(Some(cluster), after, PAGE)).await?;
                self.plan.page(&page);
            }
            ConversationStep::RoundEnd { round, workspaces } => {
                info!(cluster = %self.cluster.name, round, workspaces, "full round sent");
                self.wire.say(&ToCluster::RoundEnd { round, workspaces });
            }
            ConversationStep::Look => {
                // Other replicas change the configuration too.
                self.look_at_config().await?;
                let (store, cluster) = (&self.controller.store, self.cluster.id);
                let unsettled = self.ask(|| store.unsettled(cluster, UNSETTLED_MAX)).await?;
                self.plan.unsettled(&unsettled, now());
            }
            ConversationStep::Late => return Err(ConversationEnd::Late),
            ConversationStep::Wait => {}
        }
        Ok(())
    }

    async fn hear(&mut self, message: FromCluster) -> Result<(), ConversationEnd> {
        // Messages of a displaced agent are dropped: the newer agent repeats the state.
        if self.session.tunnel.is_ended() {
            return Err(ConversationEnd::Session);
        }
        match message {
            FromCluster::Begin(Begin { agent_version, kubernetes_version }) => {
                self.plan.begun()?;
                info!(
                    cluster = %self.cluster.name, session = %self.session.id, agent_version, kubernetes_version,
                    "cluster agent began to reconcile"
                );
            }
            FromCluster::FullRequest => self.plan.full_requested(now())?,
            FromCluster::Report(report) => {
                if self.plan.reported(report.number, now())? {
                    self.store(&report).await?;
                    self.plan.stored(report.number);
                }
            }
        }
        Ok(())
    }

    /// Reads a workspace and sends its desired state.
    async fn tell(&mut self, workspace: WorkspaceId, why: Why) -> Result<(), ConversationEnd> {
        let store = &self.controller.store;
        let managed = match self.read(|| store.managed_by_id(workspace)).await {
            Ok(Some(managed)) if managed.cluster() == Some(self.cluster.id) => managed,
            Ok(Some(_) | None) => {
                self.plan.gone(workspace);
                return Ok(());
            }
            Err(Unread::End(end)) => return Err(end),
            Err(Unread::Row(error)) => {
                // Its generation is not known either.
                self.plan.left_out(workspace, 0, now());
                warn!(cluster = %self.cluster.name, %workspace, %error, "a workspace cannot be read and is left out");
                return Ok(());
            }
        };
        let state = state_of(&managed);
        if !self.plan.wants(workspace, state, why) {
            return Ok(());
        }
        let message = match state.is_over {
            true => Ok(farewell(&managed)),
            false => self.intent_of(&managed, why).await?,
        };
        match message {
            Ok(message) => {
                self.controller.metrics.intent_sent(cycle(&managed, why) == Cycle::Full);
                self.wire.say(&message);
                self.plan.told(workspace, state, why, now());
            }
            Err(fault) => {
                self.plan.left_out(workspace, state.generation, now());
                self.leave_out(&managed, &fault).await?;
            }
        }
        Ok(())
    }

    async fn intent_of(
        &mut self,
        managed: &ManagedWorkspace,
        why: Why,
    ) -> Result<Result<ToCluster, Unsendable>, ConversationEnd> {
        let (store, id) = (&self.controller.store, managed.workspace.id);
        let stored = |error: &StoreError| Unsendable::Stored(error.to_string());
        let frozen = match self.read(|| store.frozen(id)).await {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(Err(Unsendable::Frozen("there is none".to_owned()))),
            Err(Unread::Row(error)) => return Ok(Err(stored(&error))),
            Err(Unread::End(end)) => return Err(end),
        };
        let frozen = match FrozenConfig::from_json(&frozen) {
            Ok(frozen) => frozen,
            Err(problems) => {
                let told: Vec<String> = problems.iter().take(PROBLEMS_TOLD).map(ToString::to_string).collect();
                return Ok(Err(Unsendable::Frozen(told.join("; "))));
            }
        };
        let needs_variables =
            cycle(managed, why) == Cycle::Full && managed.lifecycle.desired != DesiredState::Terminated;
        let variables: Vec<Variable> = match needs_variables {
            false => Vec::new(),
            true => match self.read(|| store.variables(id)).await {
                Ok(variables) => variables,
                Err(Unread::Row(error)) => return Ok(Err(stored(&error))),
                Err(Unread::End(end)) => return Err(end),
            },
        };
        let Some(state) = managed.kubernetes() else {
            return Ok(Err(Unsendable::Config("it is in no cluster".to_owned())));
        };
        let config = match self.config_of(state.config_version).await? {
            Ok(config) => config,
            Err(fault) => return Ok(Err(fault)),
        };
        let parts = IntentParts { managed, frozen: &frozen, variables: &variables, config: &config };
        Ok(intent(parts, why))
    }

    /// Reads the configuration that a workspace was made with.
    async fn config_of(
        &mut self,
        version: ConfigVersion,
    ) -> Result<Result<Arc<ClusterConfig>, Unsendable>, ConversationEnd> {
        if let Some(config) = self.configs.get(&version) {
            return Ok(Ok(config.clone()));
        }
        let (store, cluster) = (&self.controller.store, self.cluster.id);
        let stored = match self.read(|| StoredConfig::read(store, cluster, Some(version))).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(Err(Unsendable::Config("there is none".to_owned()))),
            Err(Unread::Row(error)) => return Ok(Err(Unsendable::Config(error.to_string()))),
            Err(Unread::End(end)) => return Err(end),
        };
        let config = match stored.config {
            Ok(config) => Arc::new(config),
            Err(problem) => return Ok(Err(Unsendable::Config(problem.to_string()))),
        };
        if self.configs.len() >= CONFIGS_KEPT {
            self.configs.clear();
        }
        self.configs.insert(version, config.clone());
        Ok(Ok(config))
    }

    /// Stores the reason for sending nothing about a workspace. The others are not held up.
    async fn leave_out(&mut self, managed: &ManagedWorkspace, fault: &Unsendable) -> Result<(), ConversationEnd> {
        let (name, cluster) = (&managed.workspace.name, &self.cluster.name);
        if matches!(fault, Unsendable::Law(_)) {
            self.controller.metrics.config_held_back();
            error!(%cluster, workspace = %name, %fault, "a config was held back: this is a bug");
        }
        let (store, id) = (&self.controller.store, managed.workspace.id);
        let mut managed = managed.clone();
        loop {
            let reason = fault.to_string();
            let next = managed.lifecycle.observe(ActualState::Error, Some(&reason), wall_clock());
            if next == managed.lifecycle {
                return Ok(());
            }
            let revision = managed.lifecycle.revision;
            if self.ask(|| store.swap_lifecycle(id, revision, &next)).await? {
                warn!(%cluster, workspace = %name, %fault, "a workspace is left out");
                self.controller.changes.publish(ChangeNotice { workspace: id, cluster: Some(self.cluster.id) });
                return Ok(());
            }
            match self.read(|| store.managed_by_id(id)).await {
                Ok(Some(newer)) => managed = newer,
                Ok(None) | Err(Unread::Row(_)) => return Ok(()),
                Err(Unread::End(end)) => return Err(end),
            }
        }
    }

    /// Checks whether the cluster's configuration has changed.
    async fn look_at_config(&mut self) -> Result<(), ConversationEnd> {
        let (version, config) = newest(self.controller, self.session, &self.cluster, &self.stop).await?;
        if version == self.version {
            return Ok(());
        }
        self.version = version;
        let namespaces = namespaces(&config);
        if namespaces == self.namespaces {
            self.plan.full_wanted(now());
        } else {
            self.namespaces = namespaces;
            self.plan.terms_changed(now());
        }
        Ok(())
    }

    /// Asks the store until it answers or the conversation is over. An invalid row is returned as an error.
    pub(super) async fn read<T, F>(&self, ask: impl FnMut() -> F) -> Result<T, Unread>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        patiently(self.session, &self.stop, ask).await
    }

    /// Like [`Conversation::read`], for requests that are about no single row.
    pub(super) async fn ask<T, F>(&self, ask: impl FnMut() -> F) -> Result<T, ConversationEnd>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        patiently_all(self.session, &self.stop, ask).await
    }
}

/// Reads the newest configuration of a cluster.
async fn newest(
    controller: &KubernetesController,
    session: &LiveSession,
    cluster: &Cluster,
    stop: &CancellationToken,
) -> Result<(ConfigVersion, ClusterConfig), ConversationEnd> {
    patiently_all(session, stop, || controller.configs.newest(&controller.store, cluster)).await
}

fn namespaces(config: &ClusterConfig) -> NamespaceMode {
    config.shared_namespace.as_ref().map_or(NamespaceMode::Unique, |name| NamespaceMode::Shared(name.clone()))
}

async fn patiently<T, F>(
    session: &LiveSession,
    stop: &CancellationToken,
    mut ask: impl FnMut() -> F,
) -> Result<T, Unread>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut is_told = false;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if is_of_one_row(&error) => return Err(Unread::Row(error)),
            Err(error) => wait_for_store(session, stop, &error, &mut is_told).await.map_err(Unread::End)?,
        }
    }
}

pub(super) async fn patiently_all<T, F>(
    session: &LiveSession,
    stop: &CancellationToken,
    mut ask: impl FnMut() -> F,
) -> Result<T, ConversationEnd>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut is_told = false;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => wait_for_store(session, stop, &error, &mut is_told).await?,
        }
    }
}

/// Waits a little after the store failed. Nothing is read from the agent meanwhile, so that it waits too.
async fn wait_for_store(
    session: &LiveSession,
    stop: &CancellationToken,
    error: &StoreError,
    is_told: &mut bool,
) -> Result<(), ConversationEnd> {
    if !std::mem::replace(is_told, true) {
        warn!(agent = %session.subject, session = %session.id, %error, "reconciling waits for the store");
    }
    tokio::select! {
        () = tokio::time::sleep(STORE_PAUSE) => Ok(()),
        () = session.tunnel.ended() => Err(ConversationEnd::Session),
        () = stop.cancelled() => Err(ConversationEnd::Stopped),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
