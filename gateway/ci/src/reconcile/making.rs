//! Steps that make a run: it is recorded, asked for, and searched for if the outcome of the request is unknown.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::in_time::only_until;
use super::{VisitedWorkspace, keys, run_number};
use crate::controller::CiController;
use crate::plan::{self, ObservedRun};
use crate::provider::{NewRun, ProviderError, RunKey, RunRef};
use crate::settings::{NoDefinition, System};
use gateway_net::telemetry::RunEnd;
use gateway_store::{CiState, NewCiRun, StoreError};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{ActualState, UnixSeconds};
use gateway_workspaces::changes::ChangeNotice;

/// Longest time from the record that a run is asked for until the request leaves: shorter than the time after which another
/// replica believes that it never will ([`RunTimeouts::settle`](crate::plan::RunTimeouts::settle)).
const CREATE_TIME_MAX: Duration = Duration::from_secs(25);

impl CiController {
    pub(super) async fn begin_run(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        anew: bool,
        reason: Option<&str>,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        if anew && (found.ci.failures > 0 || found.ci.retry_at.is_some()) {
            self.store.clear_failures(found.id).await?;
        }
        let key = RunKey::generate()?;
        let token = if system.needs_token { Some(Token::generate(TokenKind::Agent)?) } else { None };
        let next = found.life.observe(ActualState::Starting, reason, now);
        let new = NewCiRun { key: key.as_str(), token: token.as_ref() };
        let begun = self.store.begin_run(found.id, found.life.revision, &next, &new, now).await?;
        if let Some(run) = begun {
            self.metrics.run_began();
            info!(workspace = %found.name, run, provider = %found.ci.provider, "requesting a job");
            self.changes.publish(ChangeNotice { workspace: found.id, cluster: None });
        }
        Ok(())
    }

    pub(super) async fn create(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        let Some(run) = found.ci.live() else { return Ok(()) };
        let is_first = run.asked_at.is_none();
        let variables = self.store.variables(found.id).await?;
        let devfile = self.store.devfile_of(found.id).await?.unwrap_or_default();
        let (ports, with) = (self.store.named_ports(found.id).await?, variables.clone());
        let made = self.systems.definition(&found.name, &found.ci, run.number, devfile, with, &ports).await;
        let yaml = match made {
            Ok(yaml) => yaml,
            Err(NoDefinition::Impossible(error)) => {
                return self.refused(found, &found.ci, is_first, heard, &error.to_string(), now).await;
            }
            Err(error @ NoDefinition::Interrupted) => {
                self.trouble(found, heard, &error.to_string(), None, now);
                return Ok(());
            }
        };
        let token = self.store.run_token(found.id, run.number).await?;
        let token = token.as_ref().and_then(|text| Token::parse(text.reveal()).ok());
        let (Ok(key), Ok(cache_key)) = keys(run, &found.ci) else {
            return self.fail(found, &found.ci, "what is stored of the job cannot be read", now).await;
        };
        if !is_first {
            match system.ask(system.provider.find(&key, &cache_key, run.intended_at)).await {
                Ok(None) => {}
                Ok(Some(there)) => return self.made(found, heard, &found.ci, &there).await,
                Err(error) => {
                    self.unwell(found, heard, &error, (self.clock)());
                    return Ok(());
                }
            }
        }
        let new = NewRun {
            key: &key,
            // It was searched for just now, if it was ever asked for.
            is_new: true,
            since: run.intended_at,
            workspace: &found.name,
            cache_key: &cache_key,
            yaml: &yaml,
            token: token.as_ref(),
            variables: &variables,
        };
        // The recorded time is that at which the request leaves, after the wait for a permit: it starts the bound on
        // how long the request may take to land.
        let slot = system.slot().await;
        let (now, deadline) = ((self.clock)(), Instant::now() + CREATE_TIME_MAX);
        let asked = plan::asked(&found.ci, now);
        if !self.store.put_run(found.id, &asked, now).await? {
            return Ok(());
        }
        let made = only_until(deadline, system.provider.create(&new)).await.unwrap_or(Err(ProviderError::Late));
        drop(slot);
        let now = (self.clock)();
        match made {
            Ok(there) => self.made(found, heard, &asked, &there).await,
            Err(error) if error.is_temporary() => {
                self.unwell(found, heard, &error, now);
                // The failed request may take effect for as long as one that leaves now.
                self.put(found, &plan::asked(&asked, now), now).await
            }
            Err(error) => self.refused(found, &asked, is_first, heard, &error.to_string(), now).await,
        }
    }

    /// Stores the CI system's ids of a run.
    async fn made(
        &self,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        asked: &CiState,
        RunRef { id, child }: &RunRef,
    ) -> Result<(), StoreError> {
        heard.well();
        info!(workspace = %found.name, run = run_number(asked), pipeline = id, "a job was created");
        self.put(found, &plan::named(asked, id, child.as_deref()), (self.clock)()).await
    }

    /// Handles a run that cannot be made: it is ended, unless an earlier request may have made it, which has to be
    /// checked first.
    async fn refused(
        &self,
        found: &VisitedWorkspace,
        asked: &CiState,
        is_first: bool,
        heard: &mut ObservedRun,
        why: &str,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        if is_first {
            return self.fail(found, asked, why, now).await;
        }
        warn!(workspace = %found.name, provider = %asked.provider, why, "a job that was requested earlier cannot be created now");
        heard.well();
        heard.refused = Some(why.to_owned());
        Ok(())
    }

    /// Ends a run that was never made and will not be.
    async fn fail(
        &self,
        found: &VisitedWorkspace,
        ci: &CiState,
        why: &str,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        warn!(workspace = %found.name, provider = %ci.provider, why, "a job cannot be created");
        self.metrics.run_ended(RunEnd::NotMade);
        self.put(found, &plan::ended(ci, Some(&plan::impossible(why)), &self.pace, now), now).await
    }

    pub(super) async fn find(
        &self,
        system: &System,
        found: &VisitedWorkspace,
        heard: &mut ObservedRun,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        let Some(run) = found.ci.live() else { return Ok(()) };
        let (Ok(key), Ok(cache_key)) = keys(run, &found.ci) else {
            return self.put(found, &plan::ended(&found.ci, None, &self.pace, now), now).await;
        };
        let answer = system.ask(system.provider.find(&key, &cache_key, run.intended_at)).await;
        let now = (self.clock)();
        match answer {
            Ok(Some(there)) => self.made(found, heard, &found.ci, &there).await,
            Ok(None) => {
                heard.well();
                self.metrics.run_ended(RunEnd::NotMade);
                self.put(found, &plan::unmade_for_good(&found.ci, heard, &self.pace, now), now).await
            }
            Err(error) => {
                self.unwell(found, heard, &error, now);
                Ok(())
            }
        }
    }
}
