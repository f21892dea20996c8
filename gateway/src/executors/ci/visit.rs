//! One look at one workspace in a CI system: what is to be done is decided and done, step by step, until something has to
//! happen first.
//!
//! What a step rests on is written down before it is taken, so it may end anywhere.

use std::time::Duration;

use tracing::{info, warn};
use tunnel_proto::reason::Reason;

use super::driver::Driver;
use super::plan::{self, Decision, Heard, Step, View, decide};
use super::provider::{BadKey, CacheKey, Forgotten, NewRun, ProviderError, RunKey, RunRef, RunState};
use super::settings::{NoDefinition, System};
use crate::auth::token::{Token, TokenKind};
use crate::model::{ActualState, Lifecycle, UnixSeconds, WorkspaceName};
use crate::store::{CiRun, CiState, Managed, NewCiRun, Runs, StoreError, WorkspaceId};
use crate::telemetry::RunEnd;
use crate::workspaces::changes::Change;

mod orphan;

/// Steps of one look: more would be a mistake of the plan's, and must not take a task for ever.
const STEPS_MAX: usize = 64;

/// Bytes of the end of a failed job's log that people are told.
const TRACE_BYTES: usize = 600;

/// How soon a session that was closed is looked at again.
const CLOSE_AGAIN: Duration = Duration::from_secs(1);

/// What the agent is told when its job is to end.
const STOP_WORDS: &str = "the workspace is stopped: this job may end";

/// A look that has come to its end.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) id: WorkspaceId,
    pub(super) heard: Heard,
    pub(super) outcome: Outcome,
}

/// What came of a look.
#[derive(Debug)]
pub(super) enum Outcome {
    /// There is nothing that has to be looked after.
    Nothing,
    /// Everything is done for now.
    Done {
        seen: Seen,
        /// When to look again, if nothing happens before.
        again: Option<UnixSeconds>,
    },
    /// It was cut short.
    Failed {
        /// What was there, if it could be read.
        seen: Option<Seen>,
        error: StoreError,
    },
}

/// What was there.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) name: WorkspaceName,
    pub(super) revision: i64,
    pub(super) is_up: bool,
}

/// Whether a look goes on.
enum Next {
    /// With what is there now.
    Again,
    /// It ends, and another is due then.
    Until(Option<UnixSeconds>),
}

/// A workspace as it was read.
struct Found {
    id: WorkspaceId,
    name: WorkspaceName,
    life: Lifecycle,
    ci: CiState,
}

impl Driver {
    /// Returns whether an agent of a workspace has a session with a link: of a job that died, the session is kept for a while.
    pub(super) fn is_up(&self, name: &WorkspaceName) -> bool {
        let session = self.registry.current(name);
        session.is_some_and(|session| !session.tunnel.is_ended() && !session.tunnel.is_detached())
    }

    /// Looks at a workspace.
    pub(super) async fn visit(&self, id: WorkspaceId, mut heard: Heard) -> Visit {
        let (mut seen, mut steps) = (None, 0);
        let outcome = loop {
            let next = self.step(id, &mut heard, &mut seen).await;
            steps += 1;
            match (next, seen.take()) {
                (Err(error), seen) => break Outcome::Failed { seen, error },
                (Ok(None), _) | (Ok(Some(_)), None) => break Outcome::Nothing,
                (Ok(Some(Next::Until(again))), Some(seen)) => break Outcome::Done { seen, again },
                (Ok(Some(Next::Again)), Some(seen)) if steps == STEPS_MAX => {
                    break Outcome::Done { seen, again: Some((self.clock)().later(Duration::from_secs(1))) };
                }
                (Ok(Some(Next::Again)), Some(_)) => {}
            }
        };
        Visit { id, heard, outcome }
    }

    /// Decides what is next and does it. `None` for a workspace that is not to be looked after.
    async fn step(
        &self,
        id: WorkspaceId,
        heard: &mut Heard,
        seen: &mut Option<Seen>,
    ) -> Result<Option<Next>, StoreError> {
        let Some(Managed { workspace, lifecycle: life, runs: Runs::Ci(ci) }) = self.store.managed_by_id(id).await?
        else {
            return Ok(None);
        };
        let (is_up, now) = (self.is_up(&workspace.name), (self.clock)());
        *seen = Some(Seen { name: workspace.name.clone(), revision: life.revision, is_up });
        let found = Found { id, name: workspace.name, life, ci: *ci };
        if found.life.is_over() {
            return self.leave(&found, now).await.map(|()| None);
        }
        let Some(system) = self.systems.get(&found.ci.provider) else {
            return self.orphan(&found, is_up, now).await.map(Some);
        };
        heard.look(&found.ci, is_up, now);
        let view = View {
            life: &found.life,
            ci: &found.ci,
            heard,
            is_up,
            job_timeout: system.job_timeout,
            now,
            pace: &self.pace,
        };
        let decision = decide(&view);
        if !matches!(decision.step, Step::Begin { .. })
            && self.show(&found, (decision.actual, decision.reason.as_deref()), now).await?
        {
            return Ok(Some(Next::Again));
        }
        self.take(system, &found, decision, heard, now).await.map(Some)
    }

    /// Says what a workspace is, if that is news. What is decided next rests on it then.
    async fn show(
        &self,
        found: &Found,
        (actual, reason): (ActualState, Option<&str>),
        now: UnixSeconds,
    ) -> Result<bool, StoreError> {
        let next = found.life.observe(actual, reason, now);
        if next == found.life {
            return Ok(false);
        }
        if self.store.swap_lifecycle(found.id, found.life.revision, &next).await? {
            self.changes.say(Change { workspace: found.id, cluster: None });
        }
        Ok(true)
    }

    async fn take(
        &self,
        system: &System,
        found: &Found,
        decision: Decision,
        heard: &mut Heard,
        now: UnixSeconds,
    ) -> Result<Next, StoreError> {
        match decision.step {
            Step::Wait(until) => return Ok(Next::Until(until)),
            Step::Begin { anew } => self.begin_run(system, found, (anew, decision.reason.as_deref()), now).await?,
            Step::Create => self.create(system, found, heard, now).await?,
            Step::Find => self.find(system, found, heard, now).await?,
            Step::Ask => self.ask(system, found, heard, now).await?,
            Step::NoteUp => self.note_up(found, now).await?,
            Step::Stop { failure } => self.stop(found, failure.as_deref(), STOP_WORDS, now).await?,
            Step::Close => {
                self.close(&found.name, STOP_WORDS);
                return Ok(Next::Until(Some(now.later(CLOSE_AGAIN))));
            }
            Step::Cancel => self.cancel(system, found, heard, now).await?,
            Step::End { failure } => self.end(system, found, (heard, failure), now).await?,
            Step::Forget => return self.forget(system, found, heard, now).await,
        }
        Ok(Next::Again)
    }

    async fn put(&self, found: &Found, next: &CiState, now: UnixSeconds) -> Result<(), StoreError> {
        // Nobody else writes of a run. If it is not written, it has ended, which is read next.
        self.store.put_run(found.id, next, now).await.map(drop)
    }

    async fn note_up(&self, found: &Found, now: UnixSeconds) -> Result<(), StoreError> {
        if let Some(run) = found.ci.live() {
            let seconds = now.get().saturating_sub(run.intended_at.get());
            self.metrics.run_up(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        }
        self.put(found, &plan::up(&found.ci, now), now).await
    }

    async fn stop(
        &self,
        found: &Found,
        failure: Option<&str>,
        words: &str,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        self.put(found, &plan::stopping(&found.ci, failure, now), now).await?;
        info!(workspace = %found.name, run = run_number(&found.ci), failure, "a job is told to end");
        self.close(&found.name, words);
        Ok(())
    }

    fn close(&self, name: &WorkspaceName, words: &str) {
        if let Some(session) = self.registry.current(name) {
            session.tunnel.close(Reason::WorkspaceStopped, words);
        }
    }

    async fn begin_run(
        &self,
        system: &System,
        found: &Found,
        (anew, reason): (bool, Option<&str>),
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        if anew && (found.ci.failures > 0 || found.ci.retry_at.is_some()) {
            self.store.clear_failures(found.id).await?;
        }
        let key = RunKey::generate()?;
        let token = if system.needs_token { Some(Token::generate(TokenKind::Agent)?) } else { None };
        let next = found.life.observe(ActualState::Starting, reason, now);
        let new = NewCiRun { key: key.as_str(), token: token.as_ref() };
        let begun = self.store.begin_run(found.id, (found.life.revision, &next), &new, now).await?;
        if let Some(run) = begun {
            self.metrics.run_began();
            info!(workspace = %found.name, run, provider = %found.ci.provider, "a job is asked for");
            self.changes.say(Change { workspace: found.id, cluster: None });
        }
        Ok(())
    }

    async fn create(
        &self,
        system: &System,
        found: &Found,
        heard: &mut Heard,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        let Some(run) = found.ci.live() else { return Ok(()) };
        let is_first = run.asked_at.is_none();
        let variables = self.store.variables(found.id).await?;
        let devfile = self.store.devfile_of(found.id).await?.unwrap_or_default();
        let made = self.systems.definition(&found.name, &found.ci, run.number, devfile, variables.clone()).await;
        let yaml = match made {
            Ok(yaml) => yaml,
            Err(NoDefinition::Impossible(error)) => {
                return self.refused(found, (&found.ci, is_first), heard, &error.to_string(), now).await;
            }
            Err(error @ NoDefinition::Interrupted) => {
                self.trouble(found, heard, (&error.to_string(), None), now);
                return Ok(());
            }
        };
        let token = self.store.run_token(found.id, run.number).await?;
        let token = token.as_ref().and_then(|text| Token::parse(text.reveal()).ok());
        let (Ok(key), Ok(cache_key)) = keys(run, &found.ci) else {
            return self.fail(found, &found.ci, "what is stored of the job cannot be read", now).await;
        };
        let new = NewRun {
            key: &key,
            is_new: is_first,
            since: run.intended_at,
            workspace: &found.name,
            cache_key: &cache_key,
            yaml: &yaml,
            token: token.as_ref(),
            variables: &variables,
        };
        let asked = plan::asked(&found.ci, now);
        self.put(found, &asked, now).await?;
        let made = system.ask(system.provider.create(&new)).await;
        let now = (self.clock)();
        match made {
            Ok(RunRef { id, child }) => {
                heard.well();
                info!(workspace = %found.name, run = run.number, pipeline = id, "a job is made");
                self.put(found, &plan::named(&asked, &id, child.as_deref()), now).await
            }
            Err(error) if error.is_temporary() => {
                self.unwell(found, heard, &error, now);
                Ok(())
            }
            Err(error) => self.refused(found, (&asked, is_first), heard, &error.to_string(), now).await,
        }
    }

    /// Takes in that a run cannot be made: nothing becomes of it, unless an earlier request made it, which has to be seen then.
    async fn refused(
        &self,
        found: &Found,
        (asked, is_first): (&CiState, bool),
        heard: &mut Heard,
        why: &str,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        if is_first {
            return self.fail(found, asked, why, now).await;
        }
        warn!(workspace = %found.name, provider = %asked.provider, why, "a job that was asked for before cannot be made now");
        heard.well();
        heard.refused = Some(why.to_owned());
        Ok(())
    }

    /// Ends a run that was never made and will not be.
    async fn fail(&self, found: &Found, ci: &CiState, why: &str, now: UnixSeconds) -> Result<(), StoreError> {
        warn!(workspace = %found.name, provider = %ci.provider, why, "a job cannot be made");
        self.metrics.run_ended(RunEnd::NotMade);
        self.put(found, &plan::ended(ci, Some(&plan::impossible(why)), &self.pace, now), now).await
    }

    async fn find(
        &self,
        system: &System,
        found: &Found,
        heard: &mut Heard,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        let Some(run) = found.ci.live() else { return Ok(()) };
        let (Ok(key), Ok(cache_key)) = keys(run, &found.ci) else {
            return self.put(found, &plan::ended(&found.ci, None, &self.pace, now), now).await;
        };
        let answer = system.ask(system.provider.find(&key, &cache_key, run.intended_at)).await;
        let now = (self.clock)();
        match answer {
            Ok(Some(RunRef { id, child })) => {
                heard.well();
                self.put(found, &plan::named(&found.ci, &id, child.as_deref()), now).await
            }
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

    async fn ask(&self, system: &System, found: &Found, heard: &mut Heard, now: UnixSeconds) -> Result<(), StoreError> {
        let Some(reference) = reference(&found.ci) else { return Ok(()) };
        let answer = system.ask(system.provider.status(&reference)).await;
        match answer {
            Ok(status) => {
                heard.told(&status, now);
                let next = plan::known(&found.ci, &status);
                if next != found.ci {
                    self.put(found, &next, now).await?;
                }
            }
            Err(error) => self.unwell(found, heard, &error, now),
        }
        Ok(())
    }

    async fn cancel(
        &self,
        system: &System,
        found: &Found,
        heard: &mut Heard,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        self.put(found, &plan::cancelling(&found.ci, now), now).await?;
        let Some(reference) = reference(&found.ci) else { return Ok(()) };
        info!(workspace = %found.name, run = run_number(&found.ci), "a job is cancelled");
        let answer = system.ask(system.provider.cancel(&reference)).await;
        match answer {
            Ok(()) => heard.well(),
            Err(error) => self.unwell(found, heard, &error, now),
        }
        Ok(())
    }

    async fn end(
        &self,
        system: &System,
        found: &Found,
        (heard, failure): (&Heard, Option<String>),
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        // Whatever session there is, nobody is at its other end any more.
        self.close(&found.name, "its job is over");
        let failure = match failure {
            Some(failure) if heard.state != Some(RunState::Gone) => Some(self.with_trace(system, found, failure).await),
            failure => failure,
        };
        info!(workspace = %found.name, run = run_number(&found.ci), failure, "a job is over");
        let is_made = found.ci.live().is_some_and(|run| run.pipeline.is_some());
        self.metrics.run_ended(match failure {
            Some(_) => RunEnd::Failed,
            None if is_made => RunEnd::Done,
            None => RunEnd::NotMade,
        });
        self.put(found, &plan::ended(&found.ci, failure.as_deref(), &self.pace, now), now).await
    }

    /// Adds the end of the job's log, if it can be had.
    async fn with_trace(&self, system: &System, found: &Found, failure: String) -> String {
        let Some(reference) = reference(&found.ci) else { return failure };
        match system.ask(system.provider.trace(&reference, TRACE_BYTES)).await {
            Ok(trace) if !trace.trim().is_empty() => format!("{failure}. Its log ends with: {}", trace.trim()),
            Ok(_) | Err(_) => failure,
        }
    }

    async fn forget(
        &self,
        system: &System,
        found: &Found,
        heard: &mut Heard,
        now: UnixSeconds,
    ) -> Result<Next, StoreError> {
        let Ok(cache_key) = found.ci.cache_key.parse::<CacheKey>() else { return Ok(Next::Until(None)) };
        let answer = system.ask(system.provider.forget(&cache_key)).await;
        let reason = match answer {
            Ok(Forgotten::Gone) => None,
            Ok(Forgotten::NotPossible) => {
                Some("The CI system keeps the last cache until its own rules delete it; nobody can name it".to_owned())
            }
            Err(error) => {
                self.unwell(found, heard, &error, (self.clock)());
                return Ok(Next::Again);
            }
        };
        heard.well();
        self.show(found, (ActualState::Terminated, reason.as_deref()), now).await?;
        Ok(Next::Again)
    }

    fn unwell(&self, found: &Found, heard: &mut Heard, error: &ProviderError, now: UnixSeconds) {
        self.trouble(found, heard, (&error.to_string(), error.retry_after()), now);
    }

    fn trouble(&self, found: &Found, heard: &mut Heard, (why, wanted): (&str, Option<Duration>), now: UnixSeconds) {
        if heard.trouble.is_none() {
            warn!(workspace = %found.name, provider = %found.ci.provider, why, "a CI system does not do what it is asked for");
        }
        heard.failed(why.to_owned(), wanted, now);
    }
}

fn run_number(ci: &CiState) -> u64 {
    ci.run.as_ref().map_or(0, |run| run.number)
}

fn reference(ci: &CiState) -> Option<RunRef> {
    let run = ci.live()?;
    Some(RunRef { id: run.pipeline.as_deref()?.to_owned(), child: run.child.as_deref().map(str::to_owned) })
}

fn keys(run: &CiRun, ci: &CiState) -> (Result<RunKey, BadKey>, Result<CacheKey, BadKey>) {
    (run.key.parse(), ci.cache_key.parse())
}
