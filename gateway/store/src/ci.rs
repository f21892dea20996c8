//! Statements about workspaces in CI systems, and about their runs.
//!
//! A run is recorded before the CI system is asked for it, with the key by which it is found again. A workspace never
//! has more than one live run: the database itself refuses a second.

use super::create::{admit, insert_lifecycle, insert_workspace, make_room};
use super::database::{About, Row, Transaction, sql};
use super::lifecycles::{number, storable, swap};
use super::tokens::{Holder, insert};
use super::variables::Variable;
use super::{
    CreateError, Executor, ManagedWorkspace, Note, Runs, SecretText, Store, StoreError, Terms, TokenId, WorkspaceId,
    json, named_ports,
};
use gateway_types::quota::Quotas;
use gateway_types::token::Token;
use gateway_types::{
    DesiredState, IdleRecord, Lifecycle, NamedPort, ProviderName, UnixSeconds, UserName, WorkspaceName,
};

/// Runs of one workspace that are remembered.
const RUNS_KEPT: i64 = 50;

/// Longest failure text that is kept, in bytes.
const FAILURE_BYTES_MAX: usize = 4096;

/// State that only a workspace in a CI system has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiState {
    /// The name that the operator gave the CI system.
    pub provider: ProviderName,
    /// Key of the cache that its runs leave to each other.
    pub cache_key: Box<str>,
    /// Project to clone, if not the one that the pipeline runs in.
    pub project: Option<CiProject>,
    /// Tags of the runners for its jobs; empty for the provider's choice.
    pub tags: Vec<String>,
    /// Runs in a row that ended by themselves.
    pub failures: u32,
    /// Earliest begin of the next run.
    pub retry_at: Option<UnixSeconds>,
    /// The last run; all earlier ones have ended.
    pub run: Option<CiRun>,
}

/// A project to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiProject {
    /// Its address, without credentials.
    pub url: String,
    /// A branch or a tag.
    pub reference: Option<String>,
}

/// One pipeline of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiRun {
    /// Number of the run, from 1.
    pub number: u64,
    /// Its key, known before the CI system names it.
    pub key: Box<str>,
    /// The generation of the desired state that it was made for.
    pub intent: u64,
    /// The CI system's name for it, once it is made.
    pub pipeline: Option<Box<str>>,
    /// The same, for the pipeline that it started.
    pub child: Option<Box<str>>,
    /// Its web page.
    pub web_url: Option<Box<str>>,
    /// The token of its agent.
    pub token: Option<TokenId>,
    /// Time of the decision for it.
    pub intended_at: UnixSeconds,
    /// Time of the last request to create it.
    pub asked_at: Option<UnixSeconds>,
    /// Begin of its job.
    pub started_at: Option<UnixSeconds>,
    /// First connection of its agent.
    pub up_at: Option<UnixSeconds>,
    /// Time at which it was told to end.
    pub stop_at: Option<UnixSeconds>,
    /// Time of the last request to cancel it.
    pub cancel_at: Option<UnixSeconds>,
    /// Time at which nothing of it was left.
    pub ended_at: Option<UnixSeconds>,
    /// Reason of its end, for people.
    pub failure: Option<Box<str>>,
}

impl CiRun {
    /// Returns whether any part of it may run now or later.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.ended_at.is_none()
    }
}

impl CiState {
    /// Returns the live run, of which any part may run now or later.
    #[must_use]
    pub fn live(&self) -> Option<&CiRun> {
        self.run.as_ref().filter(|run| run.is_live())
    }
}

/// A workspace that is to be made in a CI system.
#[derive(Clone, Copy, Debug)]
pub struct NewCi<'a> {
    /// Its name.
    pub name: &'a WorkspaceName,
    /// Its owner.
    pub owner: &'a UserName,
    /// The CI system.
    pub provider: &'a ProviderName,
    /// Key of the cache that its runs leave to each other; unguessable.
    pub cache_key: &'a str,
    /// Project to clone.
    pub project: Option<&'a CiProject>,
    /// Tags of the runners for its jobs.
    pub tags: &'a [String],
    /// The devfile, as it was given.
    pub devfile: &'a str,
    /// Its owner's variables.
    pub variables: &'a [Variable],
    /// The ports that the devfile or the request for it names, each once.
    pub ports: &'a [NamedPort],
    /// Limits of the number of workspaces, this one included.
    pub quotas: Quotas,
}

/// A run that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewCiRun<'a> {
    /// Its key, known before the CI system names it.
    pub key: &'a str,
    /// The token of its agent, for CI systems whose jobs have none of their own.
    pub token: Option<&'a Token>,
}

/// Workspace and run of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOwner {
    /// The workspace.
    pub workspace: WorkspaceName,
    /// Its owner.
    pub owner: UserName,
    /// Number of the run.
    pub number: u64,
    /// The pipeline was started by the run's own pipeline: it contains the workspace's job, and no job of the
    /// project's.
    pub is_child: bool,
    /// The run has not ended; so it is the workspace's current one.
    pub is_live: bool,
    /// The run was told to end.
    pub is_stopping: bool,
    /// Desired state of the workspace.
    pub desired: DesiredState,
}

/// Live runs that were requested from a CI system and whose pipeline names are not all known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedRuns {
    /// An unknown pipeline of that CI system may be a run.
    pub pipeline: bool,
    /// An unknown child pipeline there may belong to a run.
    pub child: bool,
}

impl Store {
    /// Makes a workspace in a CI system. A terminated one of the same name and owner is deleted to make room.
    ///
    /// # Errors
    /// [`CreateError`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn create_ci(&self, new: &NewCi<'_>, now: UnixSeconds) -> Result<ManagedWorkspace, CreateError> {
        let tags = serde_json::Value::from(new.tags).to_string();
        let mut transaction = self.write(About::Provider(new.provider.as_str())).await?;
        make_room(&mut transaction, new.name, new.owner, now, self.name_hold).await?;
        check_quotas(&mut transaction, new).await?;
        let mut workspace =
            insert_workspace(&mut transaction, new.name, self.name_hold, new.owner, Executor::Ci, now).await?;
        let (id, lifecycle) = (workspace.id, Lifecycle::new(now));
        insert_lifecycle(&mut transaction, id, &lifecycle, new.devfile).await?;
        sql("INSERT INTO ci_workspaces (workspace_id, provider, cache_key, project_url, project_ref, tags) \
             VALUES ($1, $2, $3, $4, $5, $6)")
        .bind(id.0)
        .bind(new.provider.as_str())
        .bind(new.cache_key)
        .bind(new.project.map(|project| project.url.as_str()))
        .bind(new.project.and_then(|project| project.reference.as_deref()))
        .bind(json::value(&tags))
        .execute(&mut transaction)
        .await?;
        for variable in new.variables {
            self.insert_variable(&mut transaction, id, variable.kind, &variable.name, variable.value.reveal()).await?;
        }
        named_ports::insert(&mut transaction, id, new.ports).await?;
        workspace.ports = new.ports.into();
        transaction.commit().await?;
        let state = CiState {
            provider: new.provider.clone(),
            cache_key: new.cache_key.into(),
            project: new.project.cloned(),
            tags: new.tags.to_vec(),
            failures: 0,
            retry_at: None,
            run: None,
        };
        Ok(ManagedWorkspace { workspace, lifecycle, idle: IdleRecord::default(), runs: Runs::Ci(Box::new(state)) })
    }

    /// Records a run that is to be made, together with the lifecycle, if the stored lifecycle still has that revision
    /// and no run is live. Returns the run's number; `None` otherwise.
    ///
    /// # Errors
    /// A failed database or random source; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn begin_run(
        &self,
        workspace: WorkspaceId,
        revision: i64,
        life: &Lifecycle,
        new: &NewCiRun<'_>,
        now: UnixSeconds,
    ) -> Result<Option<u64>, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        if !swap(&mut transaction, workspace, revision, life).await? {
            return Ok(None);
        }
        let statement = "SELECT coalesce(max(number), 0) + 1 AS next FROM ci_runs WHERE workspace_id = $1";
        let next: i64 = sql(statement).bind(workspace.0).fetch_one(&mut transaction).await?.get("next")?;
        let (mut token, mut sealed) = (None, None);
        if let Some(new) = new.token {
            let terms = Terms { note: Note::of(&format!("run {next}")), expires_at: None };
            token = Some(insert(&mut transaction, new, Holder::Agent(workspace), &terms, now).await?);
            sealed = Some(self.sealer.seal(&row_of(workspace, next), new.reveal().as_bytes())?);
        }
        let made = sql("INSERT INTO ci_runs (workspace_id, number, run_key, intent, token_id, intended_at) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING")
        .bind(workspace.0)
        .bind(next)
        .bind(new.key)
        .bind(number(life.generation))
        .bind(token.map(|id| id.0))
        .bind(now.get())
        .execute(&mut transaction)
        .await?;
        if made == 0 {
            return Ok(None);
        }
        if let Some(sealed) = sealed {
            let statement = sql("UPDATE ci_runs SET token_sealed = $1 WHERE workspace_id = $2 AND number = $3");
            statement.bind(sealed.as_slice()).bind(workspace.0).bind(next).execute(&mut transaction).await?;
        }
        let forget = sql("DELETE FROM ci_runs WHERE workspace_id = $1 AND number <= $2");
        forget.bind(workspace.0).bind(next - RUNS_KEPT).execute(&mut transaction).await?;
        transaction.commit().await?;
        Ok(u64::try_from(next).ok())
    }

    /// Updates the last run, if the stored one has not ended yet, and the count of failures. The end of the run revokes
    /// its agent's token. Returns whether it was written.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn put_run(&self, workspace: WorkspaceId, state: &CiState, now: UnixSeconds) -> Result<bool, StoreError> {
        let mut transaction = self.write(About::Nothing).await?;
        if let Some(run) = &state.run
            && !update(&mut transaction, workspace, run).await?
        {
            return Ok(false);
        }
        sql("UPDATE ci_workspaces SET failures = $1, retry_at = $2 WHERE workspace_id = $3")
            .bind(state.failures)
            .bind(state.retry_at.map(UnixSeconds::get))
            .bind(workspace.0)
            .execute(&mut transaction)
            .await?;
        if let Some(CiRun { token: Some(token), .. }) = state.run.as_ref().filter(|run| !run.is_live()) {
            let statement = sql("UPDATE tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2");
            statement.bind(now.get()).bind(token.0).execute(&mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Resets the failures of runs, so that the next run begins at once.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn clear_failures(&self, workspace: WorkspaceId) -> Result<(), StoreError> {
        let statement = sql("UPDATE ci_workspaces SET failures = 0, retry_at = NULL WHERE workspace_id = $1");
        statement.bind(workspace.0).execute(&self.writer).await?;
        Ok(())
    }

    /// Returns the token of a run's agent, while the run lives.
    ///
    /// # Errors
    /// [`StoreError::Unsealable`] when it was changed behind the gateway's back; else a failed database.
    pub async fn run_token(&self, workspace: WorkspaceId, run: u64) -> Result<Option<SecretText>, StoreError> {
        let run = number(run);
        let statement = sql("SELECT token_sealed FROM ci_runs WHERE workspace_id = $1 AND number = $2 \
             AND token_sealed IS NOT NULL");
        let Some(row) = statement.bind(workspace.0).bind(run).fetch_optional(&self.readers).await? else {
            return Ok(None);
        };
        let opened = self.sealer.open(&row_of(workspace, run), row.get("token_sealed")?);
        let text = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(Some(SecretText::new(text.ok_or(StoreError::Unsealable { table: "ci_runs" })?)))
    }

    /// Returns the newest run to which a pipeline of a CI system belongs or belonged.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::Corrupt`].
    pub async fn run_of_pipeline(
        &self,
        provider: &ProviderName,
        pipeline: &str,
    ) -> Result<Option<RunOwner>, StoreError> {
        let statement = sql(
            "SELECT workspaces.name, owner, number, desired, stop_at, ended_at, child_pipeline FROM ci_runs \
             JOIN ci_workspaces ON ci_workspaces.workspace_id = ci_runs.workspace_id \
             JOIN workspaces ON workspaces.id = ci_runs.workspace_id \
             JOIN lifecycles ON lifecycles.workspace_id = ci_runs.workspace_id \
             WHERE provider = $1 AND (pipeline = $2 OR child_pipeline = $2) ORDER BY intended_at DESC, number DESC LIMIT 1",
        );
        let row = statement.bind(provider.as_str()).bind(pipeline).fetch_optional(&self.readers).await?;
        let Some(row) = row else { return Ok(None) };
        let corrupt = |table, column| StoreError::Corrupt { table, column };
        let is_set = |column| row.get::<Option<i64>>(column).map(|time| time.is_some());
        Ok(Some(RunOwner {
            workspace: row.get::<&str>("name")?.parse().map_err(|_| corrupt("workspaces", "name"))?,
            owner: row.get::<&str>("owner")?.parse().map_err(|_| corrupt("workspaces", "owner"))?,
            number: u64::try_from(row.get::<i64>("number")?).map_err(|_| corrupt("ci_runs", "number"))?,
            is_child: row.get::<Option<&str>>("child_pipeline")? == Some(pipeline),
            is_live: !is_set("ended_at")?,
            is_stopping: is_set("stop_at")?,
            desired: row.get::<&str>("desired")?.parse().map_err(|_| corrupt("lifecycles", "desired"))?,
        }))
    }

    /// Returns whether an unknown pipeline of a CI system may belong to a run.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn awaited(&self, provider: &ProviderName) -> Result<AwaitedRuns, StoreError> {
        let statement = sql("SELECT count(*) AS children, count(CASE WHEN pipeline IS NULL THEN 1 END) AS pipelines \
             FROM ci_runs JOIN ci_workspaces ON ci_workspaces.workspace_id = ci_runs.workspace_id \
             WHERE provider = $1 AND ended_at IS NULL AND asked_at IS NOT NULL AND child_pipeline IS NULL");
        let row = statement.bind(provider.as_str()).fetch_one(&self.readers).await?;
        let (children, pipelines): (i64, i64) = (row.get("children")?, row.get("pipelines")?);
        Ok(AwaitedRuns { pipeline: pipelines > 0, child: children > 0 })
    }

    /// Returns up to `limit` workspaces in CI systems that are not terminated, after `after`, by id, each with the
    /// revision of its lifecycle.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn ci_revisions(
        &self,
        after: Option<WorkspaceId>,
        limit: u32,
    ) -> Result<Vec<(WorkspaceId, i64)>, StoreError> {
        let statement = sql("SELECT ci_workspaces.workspace_id, revision FROM ci_workspaces \
             JOIN lifecycles ON lifecycles.workspace_id = ci_workspaces.workspace_id \
             WHERE ci_workspaces.workspace_id > $1 AND NOT (desired = 'Terminated' AND actual = 'Terminated') \
             ORDER BY ci_workspaces.workspace_id LIMIT $2");
        let rows = statement.bind(after.map_or(0, |id| id.0)).bind(limit).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((WorkspaceId(row.get("workspace_id")?), row.get("revision")?))).collect()
    }
}

async fn check_quotas(transaction: &mut Transaction, new: &NewCi<'_>) -> Result<(), CreateError> {
    let row = sql("SELECT count(*) AS all_of, count(CASE WHEN owner = $2 THEN 1 END) AS theirs FROM ci_workspaces \
         JOIN lifecycles ON lifecycles.workspace_id = ci_workspaces.workspace_id \
         JOIN workspaces ON workspaces.id = ci_workspaces.workspace_id \
         WHERE provider = $1 AND desired <> 'Terminated'")
    .bind(new.provider.as_str())
    .bind(new.owner.as_str())
    .fetch_one(transaction)
    .await?;
    admit(&new.quotas, row.get("all_of")?, row.get("theirs")?)
}

/// Writes the mutable columns of a run. Its sealed token is removed when it ends.
async fn update(transaction: &mut Transaction, workspace: WorkspaceId, run: &CiRun) -> Result<bool, StoreError> {
    let time = |time: Option<UnixSeconds>| time.map(UnixSeconds::get);
    let text = |text: &Option<Box<str>>| text.as_deref().map(storable);
    let failure = run.failure.as_deref().map(|text| storable(cut(text)));
    let done =
        sql("UPDATE ci_runs SET pipeline = $1, child_pipeline = $2, web_url = $3, asked_at = $4, started_at = $5, \
         up_at = $6, stop_at = $7, cancel_at = $8, ended_at = $9, failure = $10, \
         token_sealed = CASE WHEN $11 = 1 THEN NULL ELSE token_sealed END \
         WHERE workspace_id = $12 AND number = $13 AND ended_at IS NULL")
        .bind(text(&run.pipeline))
        .bind(text(&run.child))
        .bind(text(&run.web_url))
        .bind(time(run.asked_at))
        .bind(time(run.started_at))
        .bind(time(run.up_at))
        .bind(time(run.stop_at))
        .bind(time(run.cancel_at))
        .bind(time(run.ended_at))
        .bind(failure)
        .bind(i64::from(!run.is_live()))
        .bind(workspace.0)
        .bind(number(run.number))
        .execute(transaction)
        .await?;
    Ok(done > 0)
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(FAILURE_BYTES_MAX)).unwrap_or(text)
}

/// Names the row that a sealed token belongs to.
fn row_of(workspace: WorkspaceId, run: i64) -> String {
    format!("ci_runs {} {run}", workspace.0)
}

/// Reads the CI columns of a row of [`ManagedWorkspace`].
pub(super) fn read_state(row: &Row) -> Result<CiState, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "ci_workspaces", column };
    let provider: Option<&str> = row.get("provider")?;
    let tags = json::read(row.json("tags")?, "ci_workspaces", "tags")?;
    let url: Option<String> = row.get("project_url")?;
    let reference: Option<String> = row.get("project_ref")?;
    Ok(CiState {
        provider: provider.and_then(|name| name.parse().ok()).ok_or_else(|| corrupt("provider"))?,
        cache_key: row.get::<String>("cache_key")?.into(),
        project: url.map(|url| CiProject { url, reference }),
        tags: serde_json::from_str(&tags).map_err(|_| corrupt("tags"))?,
        failures: u32::try_from(row.get::<i64>("failures")?).map_err(|_| corrupt("failures"))?,
        retry_at: row.get::<Option<i64>>("retry_at")?.map(UnixSeconds::new),
        run: read_run(row)?,
    })
}

fn read_run(row: &Row) -> Result<Option<CiRun>, StoreError> {
    let corrupt = |column| StoreError::Corrupt { table: "ci_runs", column };
    let Some(number) = row.get::<Option<i64>>("number")? else { return Ok(None) };
    let time = |column| row.get::<Option<i64>>(column).map(|time| time.map(UnixSeconds::new));
    let text = |column| row.get::<Option<&str>>(column).map(|text| text.map(Box::<str>::from));
    Ok(Some(CiRun {
        number: u64::try_from(number).map_err(|_| corrupt("number"))?,
        key: row.get::<&str>("run_key")?.into(),
        intent: u64::try_from(row.get::<i64>("intent")?).map_err(|_| corrupt("intent"))?,
        pipeline: text("pipeline")?,
        child: text("child_pipeline")?,
        web_url: text("web_url")?,
        token: row.get::<Option<i64>>("token_id")?.map(TokenId),
        intended_at: UnixSeconds::new(row.get("intended_at")?),
        asked_at: time("asked_at")?,
        started_at: time("started_at")?,
        up_at: time("up_at")?,
        stop_at: time("stop_at")?,
        cancel_at: time("cancel_at")?,
        ended_at: time("ended_at")?,
        failure: text("failure")?,
    }))
}

#[cfg(test)]
mod tests;
