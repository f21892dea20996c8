//! One look after another at one environment, until nothing is to be done about it now: reads what is stored, does what
//! the plan says, and stores what came of it. Of one environment there is one visit at a time, so of its calls too.

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_proto::environments::{Apply, Call, Done, Identity, ObjectError, Progress, Remove, Scope, TRACKED_MAX};
use tunnel_proto::reconcile::Blocker;

use super::call::CallError;
use super::facts::ObjectRef;
use super::following::{Event, ObjectProgress, Told};
use super::identity;
use super::plan::{self, Applied, Removed, Standing, Step};
use super::record::{errors_to, from_wire, objects_from, objects_to, to_wire};
use super::refusal::RefusalCode;
use super::seats::Turn;
use super::service::Inner;
use crate::audit::{Event as AuditEvent, Record, Text};
use crate::model::{ClusterName, UnixSeconds};
use crate::store::{ClusterId, EnvironmentId, Preparation, PreparationEnd, StoreError, StoredEnvironment, Tries};
use crate::telemetry::JobEnd;
use crate::workspaces::blockers;

/// Until an environment is looked at again that could not be read or written.
const STORE_PAUSE: std::time::Duration = std::time::Duration::from_secs(5);

/// Until an environment is looked at again that waits for its turn; it is called when that comes.
const QUEUE_PAUSE: std::time::Duration = std::time::Duration::from_secs(60);

/// What follows a look.
enum Next {
    /// Another one.
    Again,
    /// Another one then.
    At(UnixSeconds),
    /// Another one when it is the environment's turn at its cluster, or then.
    Queue(UnixSeconds),
    /// None, until somebody wishes something.
    Rest,
}

/// What follows a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Another one then.
    At(UnixSeconds),
    /// Another one when it is the environment's turn at its cluster, or then; it ends a pause if this one did.
    Queue(UnixSeconds, bool),
    /// None, until somebody wishes something.
    Rest,
}

/// How a visit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    /// The environment's cluster, if there is such an environment.
    pub(super) cluster: Option<ClusterId>,
    pub(super) then: Then,
}

/// One of the seats at a cluster.
struct Seat<'a>(&'a Inner, ClusterId);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let called = self.0.seats.lock().give_back(self.1);
        self.0.wakes.call(called);
    }
}

impl Inner {
    /// Does what is to be done about an environment now. Tells when to look again. `is_urgent` ends a pause: somebody
    /// wishes something else, or an agent came. After `draining` nothing is begun, and `stop` ends what was.
    ///
    /// Cancel safety: dropped, it leaves what was begun as it is recorded, for the next visit.
    pub(super) async fn visit(
        &self,
        id: EnvironmentId,
        mut is_urgent: bool,
        (draining, stop): (&CancellationToken, &CancellationToken),
    ) -> Visit {
        let mut visit = Visit { cluster: None, then: Then::Rest };
        while !draining.is_cancelled() && !stop.is_cancelled() {
            match self.look(id, is_urgent, &mut visit.cluster, stop).await {
                Ok(Next::Again) => {
                    is_urgent = false;
                    continue;
                }
                // It keeps its place.
                Ok(Next::Queue(at)) => return Visit { then: Then::Queue(at, is_urgent), ..visit },
                Ok(Next::At(at)) => visit.then = Then::At(at),
                Ok(Next::Rest) => {}
                Err(error) => {
                    warn!(environment = %id, %error, "an environment cannot be looked after");
                    visit.then = Then::At(self.now().later(STORE_PAUSE));
                }
            }
            break;
        }
        let called = self.seats.lock().leave(id);
        self.wakes.call(called);
        visit
    }

    async fn look(
        &self,
        id: EnvironmentId,
        is_urgent: bool,
        cluster: &mut Option<ClusterId>,
        stop: &CancellationToken,
    ) -> Result<Next, StoreError> {
        let Some(environment) = self.store.environment(id).await? else { return Ok(Next::Rest) };
        *cluster = Some(environment.cluster);
        let preparation = self.store.next_preparation(id).await?;
        let recorded = objects_from(&environment.tracked).ok_or_else(|| corrupt("environments"))?;
        let standing = Standing {
            is_removal_due: environment.is_removal_due,
            is_tracking: !recorded.is_empty(),
            give_up_at: preparation.as_ref().map(|preparation| preparation.give_up_at),
            tries: &environment.tries,
            is_agent_new: is_urgent,
        };
        let visited = Visited { id, environment: &environment, recorded: &recorded };
        match (plan::next(&standing, self.now()), preparation) {
            (Step::Wait(at), _) => return Ok(Next::At(at)),
            (Step::Rest, _) | (Step::Apply | Step::GiveUp(_), None) => {
                self.hub.tell(id, Told::Settled);
                return Ok(Next::Rest);
            }
            (Step::Forget, _) => self.gone(&visited, &[]).await?,
            (Step::GiveUp(code), Some(preparation)) => self.give_up(&visited, &preparation, code).await?,
            (Step::Apply, Some(preparation)) => {
                let Some(_seat) = self.seat(&visited, Turn::Preparation) else {
                    return Ok(self.queued(id, Some(preparation.give_up_at)));
                };
                return self.apply(&visited, &preparation, stop).await;
            }
            (Step::Remove, preparation) => {
                let Some(_seat) = self.seat(&visited, Turn::Removal) else {
                    return Ok(self.queued(id, preparation.map(|preparation| preparation.give_up_at)));
                };
                return self.remove(&visited, stop).await;
            }
        }
        Ok(Next::Again)
    }

    /// Takes one of the seats at an environment's cluster, if it is the environment's turn.
    fn seat(&self, visited: &Visited<'_>, turn: Turn) -> Option<Seat<'_>> {
        let cluster = visited.environment.cluster;
        let is_seated = self.seats.lock().take(cluster, visited.id, turn);
        // Made only then: one that is dropped gives a seat back.
        is_seated.then(|| Seat(self, cluster))
    }

    /// Says that an environment waits for its turn, and until when at the latest.
    fn queued(&self, id: EnvironmentId, give_up_at: Option<UnixSeconds>) -> Next {
        self.hub.tell(id, Told::Event(Event::Waiting { why: "queued" }));
        let at = self.now().later(QUEUE_PAUSE);
        Next::Queue(give_up_at.map_or(at, |give_up_at| give_up_at.min(at)))
    }

    async fn apply(
        &self,
        visited: &Visited<'_>,
        preparation: &Preparation,
        stop: &CancellationToken,
    ) -> Result<Next, StoreError> {
        if preparation.job.is_some()
            && let Err(code) = self.access.still_allows(visited.environment, preparation.identity.is_some())
        {
            self.give_up(visited, preparation, code).await?;
            return Ok(Next::Again);
        }
        let wanted = objects_from(&preparation.tracked).ok_or_else(|| corrupt("environment_jobs"))?;
        let may_be = plan::union(visited.recorded, &wanted);
        if may_be.len() > TRACKED_MAX {
            self.give_up(visited, preparation, RefusalCode::EnvironmentBusy).await?;
            return Ok(Next::Again);
        }
        let acting = acting(preparation.identity.as_deref(), "environment_jobs")?;
        // Before anything is asked of the cluster: whatever happens from here on, it is known what may be there.
        if !self.store.begin_apply(preparation, &objects_to(&may_be)).await? {
            return Ok(Next::Again);
        }
        let scope = self.scope(visited, acting).await?;
        let call = Call::Apply(Apply {
            objects: Bytes::from(preparation.objects.clone()),
            tracked: visited.recorded.iter().map(to_wire).collect(),
            scope,
        });
        let Some(answer) = self.call(visited, &call, stop).await? else { return Ok(Next::Rest) };
        let now = self.now();
        match plan::applied(&wanted, &may_be, &answer, &visited.environment.tries, now) {
            Applied::Again(tries) => {
                // Where it comes to nothing in the end, this is why: also if nobody answers any more then.
                if let Ok(done) = &answer {
                    self.store.note_errors(preparation, &errors_to(&done.errors)).await?;
                }
                self.pause(visited.id, &tries).await?;
            }
            Applied::Completed(there) => {
                let end = PreparationEnd::Completed;
                if self.store.end_apply(preparation, &objects_to(&there), end, now).await? {
                    if let Some(job) = preparation.job {
                        self.access.note_prepared(visited.environment.cluster, job);
                    }
                    self.ended(visited, preparation, None);
                }
            }
            Applied::Failed(may_be) => {
                let errors = answer.map(|done| done.errors).unwrap_or_default();
                let message = errors.first().map_or(RefusalCode::ObjectsFailed.text(), |error| error.message.as_str());
                let code = RefusalCode::ObjectsFailed;
                let texts = errors_to(&errors);
                let end = PreparationEnd::Failed { code: code.as_str(), message, errors: &texts };
                if self.store.end_apply(preparation, &objects_to(&may_be), end, now).await? {
                    self.ended(visited, preparation, Some(code));
                }
            }
        }
        Ok(Next::Again)
    }

    async fn remove(&self, visited: &Visited<'_>, stop: &CancellationToken) -> Result<Next, StoreError> {
        // As the configuration says it now: nobody may be left who may act for the job that it was made as.
        let acting = match self.access.removes_as_agent(visited.environment) {
            Some(true) => None,
            Some(false) | None => acting(visited.environment.identity.as_deref(), "environments")?,
        };
        let scope = self.scope(visited, acting).await?;
        let call = Call::Remove(Remove { tracked: visited.recorded.iter().map(to_wire).collect(), scope });
        let Some(answer) = self.call(visited, &call, stop).await? else { return Ok(Next::Rest) };
        match plan::removed(visited.recorded, &answer, &visited.environment.tries, self.now()) {
            Removed::Gone(kept) => self.gone(visited, &kept).await?,
            Removed::Left(left, tries) => {
                let blocking = answer.ok().filter(|done| !done.left.is_empty());
                let blocking = blocking.map(|done| blockers::to_json(&done.left));
                self.store.note_left(visited.id, &objects_to(&left), blocking.as_deref()).await?;
                self.pause(visited.id, &tries).await?;
            }
        }
        Ok(Next::Again)
    }

    /// Has a call carried out. `None` when the gateway stops meanwhile.
    async fn call(
        &self,
        visited: &Visited<'_>,
        call: &Call,
        stop: &CancellationToken,
    ) -> Result<Option<Result<Done, CallError>>, StoreError> {
        let agent = self.agent_of(visited.environment).await?;
        let id = visited.id;
        let tell = |progress: Progress| {
            let Progress { object, step, message } = progress;
            let progress = ObjectProgress { object: from_wire(object), step, message };
            self.hub.tell(id, Told::Event(Event::Object(progress)));
        };
        tokio::select! {
            answer = self.calls.call(&agent, call, &tell) => Ok(Some(answer)),
            () = stop.cancelled() => Ok(None),
        }
    }

    async fn scope(&self, visited: &Visited<'_>, identity: Option<Identity>) -> Result<Scope, StoreError> {
        let environment = visited.environment;
        let StoredEnvironment { slug, project_id, cluster, inventory, .. } = environment;
        Ok(Scope {
            cluster: self.agent_of(environment).await?.to_string(),
            environment: format!("{slug}-{project_id}-{}", cluster.get()),
            inventory: inventory.clone(),
            identity,
            kept_namespaces: self.access.kept_namespaces(*cluster),
        })
    }

    /// Returns the agent of an environment's cluster.
    pub(super) async fn agent_of(&self, environment: &StoredEnvironment) -> Result<ClusterName, StoreError> {
        if let Some(name) = self.access.name(environment.cluster) {
            return Ok(name);
        }
        self.access.read(&self.store).await?;
        self.access.name(environment.cluster).ok_or_else(|| corrupt("environments"))
    }

    /// Writes down that a try failed, and tells it.
    async fn pause(&self, id: EnvironmentId, tries: &Tries) -> Result<(), StoreError> {
        self.store.note_tries(id, tries).await?;
        if let (Some((code, message)), Some(at)) = (&tries.failure, tries.retry_at) {
            let retrying = Event::Retrying { code: code.clone(), message: message.clone(), at };
            self.hub.tell(id, Told::Event(retrying));
        }
        Ok(())
    }

    async fn give_up(
        &self,
        visited: &Visited<'_>,
        preparation: &Preparation,
        code: RefusalCode,
    ) -> Result<(), StoreError> {
        let last = visited.environment.tries.failure.as_ref().map(|(_, message)| message.as_str());
        let message = last.map_or_else(|| code.text().to_owned(), |last| format!("{}: {last}", code.text()));
        let errors = preparation.errors.as_deref().unwrap_or("[]");
        let end = PreparationEnd::Failed { code: code.as_str(), message: &message, errors };
        if self.store.give_up(preparation, end, self.now()).await? {
            // What comes after it has not failed yet; but what is late with it has failed for the same reason.
            let next = self.store.next_preparation(visited.id).await?;
            let is_late_too = next.is_some_and(|next| next.give_up_at <= self.now());
            if !visited.environment.is_removal_due && !is_late_too {
                self.store.note_tries(visited.id, &Tries::default()).await?;
            }
            self.ended(visited, preparation, Some(code));
        }
        Ok(())
    }

    /// Tells that a preparation ended.
    fn ended(&self, visited: &Visited<'_>, preparation: &Preparation, failure: Option<RefusalCode>) {
        let StoredEnvironment { project_path, name, .. } = visited.environment;
        self.metrics.environment_job(if failure.is_none() { JobEnd::Completed } else { JobEnd::Failed });
        let code = failure.map_or("completed", RefusalCode::as_str);
        info!(environment = %visited.id, project = project_path, code, "an environment's preparation ended");
        self.audit.record(Record::new(AuditEvent::EnvironmentPrepared {
            environment: Text::of(visited.id),
            project: Text::new(project_path),
            name: Text::new(name),
            job: preparation.job,
            template: Text::new(&preparation.template),
            outcome: code,
        }));
        self.hub.tell(visited.id, Told::Settled);
    }

    /// Writes down that nothing is left of what is an environment's, and tells it; `kept` is in the cluster, and was let go.
    async fn gone(&self, visited: &Visited<'_>, kept: &[ObjectError]) -> Result<(), StoreError> {
        let blockers = (!kept.is_empty()).then(|| blockers::to_json(&kept.iter().map(left_there).collect::<Vec<_>>()));
        self.store.end_removal(visited.id, blockers.as_deref()).await?;
        let StoredEnvironment { project_path, name, .. } = visited.environment;
        let kept = kept.len();
        info!(environment = %visited.id, project = project_path, kept, "what an environment had is removed");
        self.audit.record(Record::new(AuditEvent::EnvironmentRemoved {
            environment: Text::of(visited.id),
            project: Text::new(project_path),
            name: Text::new(name),
            kept,
        }));
        self.hub.tell(visited.id, Told::Settled);
        Ok(())
    }
}

/// Says which object was let go, and why.
fn left_there(error: &ObjectError) -> Blocker {
    let named = |object: &tunnel_proto::environments::ObjectRef| {
        let (kind, name) = (&object.kind, &object.name);
        if object.namespace.is_empty() {
            format!("{kind} {name}")
        } else {
            format!("{kind} {}/{name}", object.namespace)
        }
    };
    let object = error.object.as_ref().map(named).unwrap_or_default();
    Blocker { object, message: error.message.clone(), ..Blocker::default() }
}

/// What a visit is about, as it was read.
struct Visited<'a> {
    id: EnvironmentId,
    environment: &'a StoredEnvironment,
    recorded: &'a [ObjectRef],
}

/// Reads as whom the agent is to act. One that cannot be read is never nobody: that would be the agent itself.
fn acting(stored: Option<&str>, table: &'static str) -> Result<Option<Identity>, StoreError> {
    let read = stored.map(|text| identity::from_json(text).ok_or(StoreError::Corrupt { table, column: "identity" }));
    read.transpose()
}

fn corrupt(table: &'static str) -> StoreError {
    StoreError::Corrupt { table, column: "tracked" }
}
