//! Stops workspaces without use. What counts as use, and when that is long ago, is decided elsewhere
//! ([`IdleRecord`](gateway_types::IdleRecord)); here the decision is carried out, by the one that has the duty of the time limits.
//!
//! The limit in force comes from the newest configuration of the cluster, and not from the one that a workspace was made with: it
//! is no part of its objects, and an operator who sets one means the workspaces that there are. It is stored beside the owner's
//! wish, so that pages tell it without the configuration.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tracing::{info, warn};

use crate::cluster_configs::StoredConfig;
use gateway_net::audit::{Audit, AuditEvent, AuditRecord, Text};
use gateway_store::{ManagedWorkspace, Runs, Store, StoreError};
use gateway_types::{DesiredState, IdleRules, IdleStage, ProviderName, UnixSeconds};

/// Time that the record of a use may be late, beside the interval of its writes.
const RECORD_DELAY: Duration = Duration::from_secs(3);

/// How workspaces are stopped without use.
#[derive(Default)]
pub struct IdleStops {
    /// Shortest limit that is carried out: use is not known sooner.
    least: Duration,
    providers: HashMap<ProviderName, IdleRules>,
    audit: Audit,
}

/// What was done about one workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleStep {
    /// Something was written, or has changed: it has to be read again.
    Again,
    /// It is stopped.
    Stopped,
    /// Nothing before this time; `None`: nothing before the next change.
    Wait(Option<UnixSeconds>),
}

impl fmt::Debug for IdleStops {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IdleStops").field("least", &self.least).finish_non_exhaustive()
    }
}

impl IdleStops {
    /// Makes them for gateways that record use at this interval (`idle.record_interval`). Stops are recorded in `audit`.
    #[must_use]
    pub fn new(record_interval: Duration, audit: Audit) -> Self {
        Self { least: record_interval + RECORD_DELAY, providers: HashMap::new(), audit }
    }

    /// Adds the rules for workspaces in CI systems.
    #[must_use]
    pub fn with_providers(mut self, rules: HashMap<ProviderName, IdleRules>) -> Self {
        self.providers = rules;
        self
    }

    /// Carries out what is due.
    pub(crate) async fn step(
        &self,
        store: &Store,
        managed: &ManagedWorkspace,
        now: UnixSeconds,
    ) -> Result<IdleStep, StoreError> {
        let (id, life, idle) = (managed.workspace.id, &managed.lifecycle, &managed.idle);
        match life.desired {
            DesiredState::Running | DesiredState::RestartRequested => {}
            DesiredState::Stopped | DesiredState::Terminated => return Ok(IdleStep::Wait(None)),
        }
        let limit = self.rules_of(store, managed).await?.limit(idle.wanted).map(|limit| limit.max(self.least));
        if limit != idle.limit {
            store.put_idle_limit(id, limit).await?;
            return Ok(IdleStep::Again);
        }
        let next = match idle.stage(life, now) {
            IdleStage::Due => life.request(DesiredState::Stopped, now),
            IdleStage::Off | IdleStage::Awake | IdleStage::Announced | IdleStage::Near => {
                return Ok(IdleStep::Wait(idle.stops_at(life)));
            }
        };
        // A refusal is one of a workspace that is being terminated.
        let Ok(next) = next else { return Ok(IdleStep::Wait(None)) };
        if !store.stop_idle(id, idle, life.revision, &next).await? {
            // It was used meanwhile, or its owner wants something else.
            return Ok(IdleStep::Again);
        }
        let since = idle.idle_since(life);
        info!(workspace = %managed.workspace.name, %since, "the workspace is stopped: it was not used");
        self.audit.record(AuditRecord::new(AuditEvent::WorkspaceIdle {
            workspace: Text::of(&managed.workspace.name),
            since: Text::of(since),
            last: idle.last.as_ref().map(Text::of),
            generation: next.generation,
        }));
        Ok(IdleStep::Stopped)
    }

    async fn rules_of(&self, store: &Store, managed: &ManagedWorkspace) -> Result<IdleRules, StoreError> {
        let state = match &managed.runs {
            Runs::Kubernetes(state) => state,
            Runs::Ci(state) => return Ok(self.providers.get(&state.provider).copied().unwrap_or_default()),
        };
        let stored = StoredConfig::read(store, state.cluster, None).await?;
        Ok(match stored.map(|stored| stored.config) {
            Some(Ok(config)) => config.idle_rules(),
            Some(Err(error)) => {
                warn!(workspace = %managed.workspace.name, %error, "the cluster's configuration cannot be read: no idle stop by it");
                IdleRules::default()
            }
            None => IdleRules::default(),
        })
    }
}

#[cfg(test)]
mod tests;
