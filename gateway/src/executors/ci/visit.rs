//! One look at one workspace in a CI system: what is to be done is decided and done, step by step, until something has to
//! happen first.
//!
//! What a step rests on is written down before it is taken, so it may end anywhere.

use tracing::{info, warn};
use tunnel_proto::reason::Reason;

use super::driver::Driver;
use super::plan::{self, Decision, Heard, Step, View, decide};
use super::provider::{BadKey, CacheKey, Forgotten, NewRun, ProviderError, RunKey, RunRef, RunState};
use super::settings::System;
use crate::auth::token::{Token, TokenKind};
use crate::model::{ActualState, Lifecycle, UnixSeconds, WorkspaceName};
use crate::store::{CiRun, CiState, Managed, NewCiRun, Runs, StoreError, Variable, WorkspaceId};
use crate::workspaces::changes::Change;
use crate::workspaces::ci::RunFacts;

/// Steps of one look: more would be a mistake of the plan's, and must not take a task for ever.
const STEPS_MAX: usize = 64;

/// Bytes of the end of a failed job's log that people are told.
const TRACE_BYTES: usize = 600;

/// What the agent is told when its job is to end.
const STOP_WORDS: &str = "the workspace is stopped: this job may end";

/// What came of a look.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) id: WorkspaceId,
    /// What was there; `None` for nothing that has to be looked after.
    pub(super) seen: Option<Seen>,
    pub(super) heard: Heard,
    /// When to look again, if nothing happens before.
    pub(super) again: Option<UnixSeconds>,
}

/// What was there.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) name: Option<WorkspaceName>,
    pub(super) revision: i64,
    pub(super) is_up: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { name: None, revision: -1, is_up: false }
    }
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
    pub(super) fn is_up(&self, name: &Option<WorkspaceName>) -> bool {
        let session = name.as_ref().and_then(|name| self.registry.current(name));
        session.is_some_and(|session| !session.tunnel.is_ended() && !session.tunnel.is_detached())
    }

    /// Looks at a workspace.
    pub(super) async fn visit(&self, id: WorkspaceId, mut heard: Heard) -> Visit {
        let mut seen = None;
        for _ in 0..STEPS_MAX {
            match self.step(id, &mut heard, &mut seen).await {
                Ok(Some(Next::Again)) => {}
                Ok(Some(Next::Until(again))) => return Visit { id, seen, heard, again },
                Ok(None) => return Visit { id, seen: None, heard, again: None },
                Err(error) => return self.failed(id, heard, seen, &error),
            }
        }
        let again = Some((self.clock)().later(std::time::Duration::from_secs(1)));
        Visit { id, seen, heard, again }
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
        let name = Some(workspace.name.clone());
        let (is_up, now) = (self.is_up(&name), (self.clock)());
        *seen = Some(Seen { name, revision: life.revision, is_up });
        let found = Found { id, name: workspace.name, life, ci: *ci };
        if found.life.is_over() {
            return Ok(None);
        }
        let Some(system) = self.systems.get(&found.ci.provider) else {
            return self.orphan(&found, now).await.map(Some);
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
        if !matches!(decision.step, Step::Begin { .. }) && self.show(&found, &decision, now).await? {
            return Ok(Some(Next::Again));
        }
        self.take(system, &found, decision, heard, now).await.map(Some)
    }

    /// Says what a workspace is, if that is news. What is decided next rests on it then.
    async fn show(&self, found: &Found, decision: &Decision, now: UnixSeconds) -> Result<bool, StoreError> {
        let next = found.life.observe(decision.actual, decision.reason.as_deref(), now);
        if next == found.life {
            return Ok(false);
        }
        if self.store.swap_lifecycle(found.id, found.life.revision, &next).await? {
            self.changes.say(Change { workspace: found.id, cluster: None });
        }
        Ok(true)
    }

    /// A workspace whose CI system is not configured any more: nobody can be asked.
    async fn orphan(&self, found: &Found, now: UnixSeconds) -> Result<Next, StoreError> {
        let actual = match found.ci.live() {
            Some(_) => ActualState::Unknown,
            None if found.life.desired == crate::model::DesiredState::Terminated => ActualState::Terminated,
            None => ActualState::Error,
        };
        let reason = format!("the CI system {} is not configured here any more", found.ci.provider);
        let decision = Decision { actual, reason: Some(reason), step: Step::Wait(None) };
        self.show(found, &decision, now).await?;
        Ok(Next::Until(None))
    }

    async fn take(
        &self,
        system: &System,
        found: &Found,
        decision: Decision,
        heard: &mut Heard,
        now: UnixSeconds,
    ) -> Result<Next, StoreError> {
        let ci = &found.ci;
        match decision.step {
            Step::Wait(until) => return Ok(Next::Until(until)),
            Step::Begin { anew } => self.begin_run(system, found, (anew, decision.reason.as_deref()), now).await?,
            Step::Create => self.create(system, found, heard, now).await?,
            Step::Find => self.find(system, found, heard, now).await?,
            Step::Ask => self.ask(system, found, heard, now).await?,
            Step::NoteUp => self.put(found, &plan::up(ci, now), now).await?,
            Step::Stop { failure } => {
                self.put(found, &plan::stopping(ci, failure.as_deref(), now), now).await?;
                info!(workspace = %found.name, run = run_number(ci), failure, "a job is told to end");
                self.close(&found.name, STOP_WORDS);
            }
            Step::Close => {
                self.close(&found.name, STOP_WORDS);
                return Ok(Next::Until(Some(now.later(std::time::Duration::from_secs(1)))));
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
        let asked = plan::asked(&found.ci, now);
        self.put(found, &asked, now).await?;
        let variables = self.store.variables(found.id).await?;
        let yaml = match self.definition(found, run, &variables).await? {
            Ok(yaml) => yaml,
            Err(why) => return self.fail(found, &asked, &why, now).await,
        };
        let token = self.store.run_token(found.id, run.number).await?;
        let token = token.as_ref().and_then(|text| Token::parse(text.reveal()).ok());
        let (Ok(key), Ok(cache_key)) = keys(run, &found.ci) else {
            return self.fail(found, &asked, "what is stored of the job cannot be read", now).await;
        };
        let new = NewRun {
            key: &key,
            since: run.intended_at,
            workspace: &found.name,
            cache_key: &cache_key,
            yaml: &yaml,
            token: token.as_ref(),
            variables: &variables,
        };
        let made = {
            let _slot = system.slots.acquire().await;
            system.provider.create(&new).await
        };
        let now = (self.clock)();
        match made {
            Ok(RunRef { id, child }) => {
                heard.well();
                info!(workspace = %found.name, run = run.number, pipeline = id, "a job is made");
                self.put(found, &plan::named(&asked, &id, child.as_deref()), now).await
            }
            // Of a request that came before, nobody knows what became: what is there now has to be found first.
            Err(error) if !error.is_temporary() && is_first => self.fail(found, &asked, &error.to_string(), now).await,
            Err(error) => {
                self.trouble(found, heard, &error, now);
                Ok(())
            }
        }
    }

    /// Makes the pipeline of a run; the inner error is for people.
    async fn definition(
        &self,
        found: &Found,
        run: &CiRun,
        variables: &[Variable],
    ) -> Result<Result<String, String>, StoreError> {
        let devfile = self.store.devfile_of(found.id).await?.unwrap_or_default();
        let (targets, ci, number) = (self.systems.targets().clone(), found.ci.clone(), run.number);
        let (name, variables) = (found.name.clone(), variables.to_vec());
        let work = move || {
            let facts = RunFacts {
                workspace: &name,
                run: number,
                cache_key: &ci.cache_key,
                devfile: devfile.as_bytes(),
                project: ci.project.as_ref(),
                tags: &ci.tags,
                variables: &variables,
            };
            targets.definition(&ci.provider, &facts).map_err(|error| error.to_string())
        };
        // A large devfile takes long enough to keep others on this thread waiting.
        Ok(tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err("the work was interrupted".to_owned())))
    }

    /// Ends a run that was never made and will not be.
    async fn fail(&self, found: &Found, ci: &CiState, why: &str, now: UnixSeconds) -> Result<(), StoreError> {
        warn!(workspace = %found.name, provider = %ci.provider, why, "a job cannot be made");
        let failure = format!("the job cannot be made: {why}");
        self.put(found, &plan::ended(ci, Some(&failure), &self.pace, now), now).await
    }

    async fn find(
        &self,
        system: &System,
        found: &Found,
        heard: &mut Heard,
        now: UnixSeconds,
    ) -> Result<(), StoreError> {
        let Some(run) = found.ci.live() else { return Ok(()) };
        let (Ok(key), _) = keys(run, &found.ci) else {
            return self.put(found, &plan::ended(&found.ci, None, &self.pace, now), now).await;
        };
        let answer = {
            let _slot = system.slots.acquire().await;
            system.provider.find(&key, run.intended_at).await
        };
        let now = (self.clock)();
        match answer {
            Ok(Some(RunRef { id, child })) => {
                heard.well();
                self.put(found, &plan::named(&found.ci, &id, child.as_deref()), now).await
            }
            Ok(None) => {
                heard.well();
                self.put(found, &plan::ended(&found.ci, None, &self.pace, now), now).await
            }
            Err(error) => {
                self.trouble(found, heard, &error, now);
                Ok(())
            }
        }
    }

    async fn ask(&self, system: &System, found: &Found, heard: &mut Heard, now: UnixSeconds) -> Result<(), StoreError> {
        let Some(reference) = reference(&found.ci) else { return Ok(()) };
        let answer = {
            let _slot = system.slots.acquire().await;
            system.provider.status(&reference).await
        };
        match answer {
            Ok(status) => {
                heard.told(&status, now);
                let next = plan::known(&found.ci, &status);
                if next != found.ci {
                    self.put(found, &next, now).await?;
                }
            }
            Err(error) => self.trouble(found, heard, &error, now),
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
        let answer = {
            let _slot = system.slots.acquire().await;
            system.provider.cancel(&reference).await
        };
        match answer {
            Ok(()) => heard.well(),
            Err(error) => self.trouble(found, heard, &error, now),
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
        self.put(found, &plan::ended(&found.ci, failure.as_deref(), &self.pace, now), now).await
    }

    /// Adds the end of the job's log, if it can be had.
    async fn with_trace(&self, system: &System, found: &Found, failure: String) -> String {
        let Some(reference) = reference(&found.ci) else { return failure };
        let _slot = system.slots.acquire().await;
        match system.provider.trace(&reference, TRACE_BYTES).await {
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
        let answer = {
            let _slot = system.slots.acquire().await;
            system.provider.forget(&cache_key).await
        };
        let reason = match answer {
            Ok(Forgotten::Gone) => None,
            Ok(Forgotten::NotPossible) => {
                Some("The CI system keeps the last cache until its own rules delete it; nobody can name it".to_owned())
            }
            Err(error) => {
                self.trouble(found, heard, &error, (self.clock)());
                return Ok(Next::Again);
            }
        };
        heard.well();
        let decision = Decision { actual: ActualState::Terminated, reason, step: Step::Wait(None) };
        self.show(found, &decision, now).await?;
        Ok(Next::Again)
    }

    fn trouble(&self, found: &Found, heard: &mut Heard, error: &ProviderError, now: UnixSeconds) {
        if heard.trouble.is_none() {
            warn!(workspace = %found.name, provider = %found.ci.provider, %error, "a CI system does not do what it is asked for");
        }
        heard.failed(error.to_string(), error.retry_after(), now);
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
