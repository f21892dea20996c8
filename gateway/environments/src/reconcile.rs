//! Reconciles one environment, step by step, until nothing is to be done now: reads the stored state, carries out the
//! step of the plan, and stores the result. There is one reconcile to an environment at a time, and so one call.

mod ends;
mod stored;

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use tunnel_proto::environments::{Apply, Call, CallIdentity, CallProgress, Done, Remove, Scope, TRACKED_MAX};

use self::stored::until_stored;
use super::call::CallError;
use super::cluster_permits::CallTurn;
use super::identity;
use super::plan::{self, Applied, EnvironmentStep, PlanState, Removed};
use super::policy::PreparedGuard;
use super::progress::{EnvironmentEvent, Notification, ObjectProgress};
use super::record::{errors_to, from_wire, objects_from, objects_to, to_wire};
use super::refusal::RefusalCode;
use super::service::EnvironmentsShared;
use gateway_store::{ClusterId, EnvironmentId, Preparation, PreparationEnd, StoreError, StoredEnvironment, Tries};
use gateway_types::blockers;
use gateway_types::{ClusterName, UnixSeconds};
use workspace_spec::environment::facts::ObjectRef;

/// Pause before an environment is reconciled again that could not be read or written, and before the result of a call is
/// stored again.
const STORE_PAUSE: std::time::Duration = std::time::Duration::from_secs(5);

/// Pause before an environment is reconciled again that waits for its turn; it is called earlier if that comes.
const QUEUE_PAUSE: std::time::Duration = std::time::Duration::from_secs(60);

/// Interval at which a call under way is checked for waiting jobs whose time is over.
const LATE_PERIOD: std::time::Duration = std::time::Duration::from_secs(2);

/// Continuation after one step.
enum AfterStep {
    /// Another step.
    Again,
    /// Another step at this time.
    At(UnixSeconds),
    /// Another step once the environment's turn at its cluster has come, or at this time.
    Queue(UnixSeconds),
    /// No step, until the desired state changes.
    Rest,
}

/// Continuation after a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Another reconcile at this time.
    At(UnixSeconds),
    /// Another reconcile once the environment's turn at its cluster has come, or at this time; it ends a pause if this one
    /// did.
    Queue(UnixSeconds, bool),
    /// No reconcile, until the desired state changes.
    Rest,
}

/// Result of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnvironmentReconciled {
    /// The environment's cluster, if there is such an environment.
    pub(super) cluster: Option<ClusterId>,
    pub(super) then: Then,
}

/// One of the permits at a cluster.
struct ClusterPermit<'a>(&'a EnvironmentsShared, ClusterId);

impl Drop for ClusterPermit<'_> {
    fn drop(&mut self) {
        let called = self.0.permits.lock().give_back(self.1);
        self.0.wakes.call(called);
    }
}

impl EnvironmentsShared {
    /// Carries out the due steps of an environment. Returns when to reconcile again. `is_urgent` ends a pause: the desired
    /// state changed, or an agent connected. Nothing is begun after `draining`, and `stop` ends what is under way.
    ///
    /// Cancel safety: dropped, it leaves what was begun as it is recorded, for the next reconcile.
    pub(super) async fn reconcile(
        &self,
        id: EnvironmentId,
        mut is_urgent: bool,
        draining: &CancellationToken,
        stop: &CancellationToken,
    ) -> EnvironmentReconciled {
        let mut visit = EnvironmentReconciled { cluster: None, then: Then::Rest };
        while !draining.is_cancelled() && !stop.is_cancelled() {
            match self.look(id, is_urgent, &mut visit.cluster, stop).await {
                Ok(AfterStep::Again) => {
                    is_urgent = false;
                    continue;
                }
                // The environment keeps its place in the queue.
                Ok(AfterStep::Queue(at)) => return EnvironmentReconciled { then: Then::Queue(at, is_urgent), ..visit },
                Ok(AfterStep::At(at)) => visit.then = Then::At(at),
                Ok(AfterStep::Rest) => {}
                Err(error) => {
                    warn!(environment = %id, %error, "an environment cannot be reconciled");
                    visit.then = Then::At(self.now().later(STORE_PAUSE));
                }
            }
            break;
        }
        let called = self.permits.lock().leave(id);
        self.wakes.call(called);
        visit
    }

    async fn look(
        &self,
        id: EnvironmentId,
        is_urgent: bool,
        cluster: &mut Option<ClusterId>,
        stop: &CancellationToken,
    ) -> Result<AfterStep, StoreError> {
        let Some(environment) = self.store.environment(id).await? else { return Ok(AfterStep::Rest) };
        *cluster = Some(environment.cluster);
        let preparation = self.store.next_preparation(id).await?;
        let Some(recorded) = objects_from(&environment.tracked) else {
            // Nothing can be done with unreadable records, but a job waits no longer for it than for anything else.
            if let Some(late) = preparation.filter(|one| one.give_up_at <= self.now()) {
                let visited = Visited { id, environment: &environment, recorded: &[] };
                self.give_up(&visited, &late, RefusalCode::ObjectsFailed).await?;
            }
            return Err(corrupt("environments"));
        };
        let state = PlanState {
            is_removal_due: environment.is_removal_due,
            is_tracking: !recorded.is_empty(),
            give_up_at: preparation.as_ref().map(|preparation| preparation.give_up_at),
            tries: &environment.tries,
            is_agent_new: is_urgent,
        };
        let visited = Visited { id, environment: &environment, recorded: &recorded };
        match (plan::next(&state, self.now()), preparation) {
            (EnvironmentStep::Wait(at), _) => return Ok(AfterStep::At(at)),
            (EnvironmentStep::Rest, _) | (EnvironmentStep::Apply | EnvironmentStep::GiveUp(_), None) => {
                // Nothing was stored, so other replicas have nothing to read.
                self.hub.tell(id, Notification::Settled);
                return Ok(AfterStep::Rest);
            }
            (EnvironmentStep::Forget, _) => self.gone(&visited, &[]).await?,
            (EnvironmentStep::GiveUp(code), Some(preparation)) => self.give_up(&visited, &preparation, code).await?,
            (EnvironmentStep::Apply, Some(preparation)) => {
                let Some(_permit) = self.permit(&visited, CallTurn::Preparation) else {
                    return Ok(self.queued(id, Some(preparation.give_up_at)));
                };
                return self.apply(&visited, &preparation, stop).await;
            }
            (EnvironmentStep::Remove, preparation) => {
                // A job that waits for the removal waits no longer than for its preparation.
                let turn = if preparation.is_some() { CallTurn::Preparation } else { CallTurn::Removal };
                let Some(_permit) = self.permit(&visited, turn) else {
                    return Ok(self.queued(id, preparation.map(|preparation| preparation.give_up_at)));
                };
                return self.remove(&visited, stop).await;
            }
        }
        Ok(AfterStep::Again)
    }

    /// Takes one of the permits at an environment's cluster, if it is the environment's turn.
    fn permit(&self, visited: &Visited<'_>, turn: CallTurn) -> Option<ClusterPermit<'_>> {
        let cluster = visited.environment.cluster;
        let taken = self.permits.lock().take(cluster, visited.id, turn);
        match taken {
            Ok(()) => Some(ClusterPermit(self, cluster)),
            Err(called) => {
                self.wakes.call(called);
                None
            }
        }
    }

    /// Reports that an environment waits for its turn, and sets the latest time of the next look.
    fn queued(&self, id: EnvironmentId, give_up_at: Option<UnixSeconds>) -> AfterStep {
        self.tell(id, Notification::Event(EnvironmentEvent::Waiting { why: "queued" }));
        let at = self.now().later(QUEUE_PAUSE);
        AfterStep::Queue(give_up_at.map_or(at, |give_up_at| give_up_at.min(at)))
    }

    async fn apply(
        &self,
        visited: &Visited<'_>,
        preparation: &Preparation,
        stop: &CancellationToken,
    ) -> Result<AfterStep, StoreError> {
        let objects: Vec<Value> = serde_json::from_str(&preparation.objects)
            .map_err(|_| StoreError::Corrupt { table: "environment_jobs", column: "objects" })?;
        if let Err(why) = self.access.still_allows(visited.environment, preparation, &objects) {
            // A later configuration may allow it: a new request is judged anew.
            self.refuse(visited, preparation, RefusalCode::ConfigChanged, Some(why)).await?;
            return Ok(AfterStep::Again);
        }
        let wanted = objects_from(&preparation.tracked).ok_or_else(|| corrupt("environment_jobs"))?;
        let may_be = plan::union(visited.recorded, &wanted);
        if may_be.len() > TRACKED_MAX {
            self.refuse(visited, preparation, RefusalCode::TooManyObjects, None).await?;
            return Ok(AfterStep::Again);
        }
        let acting = acting(preparation.identity.as_deref(), "environment_jobs")?;
        // Stored before anything is asked of the cluster: whatever happens from here on, it is known what may be there.
        if !self.store.begin_apply(preparation, &objects_to(&may_be)).await? {
            return Ok(AfterStep::Again);
        }
        let scope = self.scope(visited, acting).await?;
        let call = Call::Apply(Apply {
            objects: Bytes::from(preparation.objects.clone()),
            tracked: visited.recorded.iter().map(to_wire).collect(),
            scope,
        });
        let until = Some(preparation.give_up_at);
        let Some(answer) = self.call(visited, &call, until, stop).await? else { return Ok(AfterStep::Rest) };
        let now = self.now();
        match plan::applied(&wanted, &may_be, &answer, &visited.environment.tries, now) {
            Applied::Again(tries) => {
                // If the preparation fails in the end, these errors are the reason, also if no agent answers any more
                // then.
                if let Ok(done) = &answer {
                    self.store.note_errors(preparation, &errors_to(&done.errors)).await?;
                }
                self.pause(visited.id, &tries).await?;
            }
            Applied::Completed(there) => {
                // Noted before it is stored, because a client that finds it stored must not be told that it is still to
                // be made. The objects are there already.
                let noted = preparation.job.map(|job| self.access.noted(visited.environment.cluster, job));
                if self.end_apply(preparation, &there, PreparationEnd::Completed, stop).await? {
                    noted.into_iter().for_each(PreparedGuard::keep);
                    self.ended(visited, preparation, None);
                }
            }
            Applied::Failed(may_be) => {
                let errors = answer.map(|done| done.errors).unwrap_or_default();
                let message = errors.first().map_or(RefusalCode::ObjectsFailed.text(), |error| error.message.as_str());
                let code = RefusalCode::ObjectsFailed;
                let texts = errors_to(&errors);
                let end = PreparationEnd::Failed { code: code.as_str(), message, errors: &texts };
                if self.end_apply(preparation, &may_be, end, stop).await? {
                    self.ended(visited, preparation, Some(code));
                }
            }
        }
        Ok(AfterStep::Again)
    }

    /// Stores the end of a preparation whose call was answered, with the objects in the cluster. Returns whether this ended
    /// it.
    async fn end_apply(
        &self,
        preparation: &Preparation,
        tracked: &[ObjectRef],
        end: PreparationEnd<'_>,
        stop: &CancellationToken,
    ) -> Result<bool, StoreError> {
        let (tracked, now) = (objects_to(tracked), self.now());
        until_stored(preparation.environment, stop, || self.store.end_apply(preparation, &tracked, end, now)).await
    }

    async fn remove(&self, visited: &Visited<'_>, stop: &CancellationToken) -> Result<AfterStep, StoreError> {
        // The current configuration decides: the identity of the job that made the objects may have no rights any more.
        // Objects that the agent made as itself it removes as itself.
        let acting = match self.access.removes_as_agent(visited.environment) {
            Some(true) => None,
            Some(false) | None => acting(visited.environment.identity.as_deref(), "environments")?,
        };
        let scope = self.scope(visited, acting).await?;
        let call = Call::Remove(Remove { tracked: visited.recorded.iter().map(to_wire).collect(), scope });
        let Some(answer) = self.call(visited, &call, None, stop).await? else { return Ok(AfterStep::Rest) };
        match plan::removed(visited.recorded, &answer, &visited.environment.tries, self.now()) {
            Removed::Gone(kept) => until_stored(visited.id, stop, || self.gone(visited, &kept)).await?,
            Removed::Left(left, tries) => {
                let blocking = answer.ok().filter(|done| !done.left.is_empty());
                let blocking = blocking.map(|done| blockers::to_json(&done.left));
                self.store.note_left(visited.id, &objects_to(&left), blocking.as_deref()).await?;
                self.pause(visited.id, &tries).await?;
            }
        }
        Ok(AfterStep::Again)
    }

    /// Has a call carried out, and cancels it at `until`, because no job waits for it any more. Meanwhile, preparations
    /// that wait behind it are ended once their time is over. `None` if the gateway stops meanwhile.
    async fn call(
        &self,
        visited: &Visited<'_>,
        call: &Call,
        until: Option<UnixSeconds>,
        stop: &CancellationToken,
    ) -> Result<Option<Result<Done, CallError>>, StoreError> {
        let agent = self.agent_of(visited.environment).await?;
        let id = visited.id;
        let tell = |progress: CallProgress| {
            let CallProgress { object, step, message } = progress;
            let progress = ObjectProgress { object: from_wire(object), step, message };
            self.tell(id, Notification::Event(EnvironmentEvent::Object(progress)));
        };
        let mut under_way = self.calls.call(&agent, call, &tell);
        loop {
            tokio::select! {
                answer = &mut under_way => return Ok(Some(answer)),
                () = stop.cancelled() => return Ok(None),
                () = tokio::time::sleep(LATE_PERIOD) => {}
            }
            match until {
                Some(until) if until <= self.now() => return Ok(Some(Err(CallError::Late("end")))),
                // Preparations behind this one have more time.
                Some(_) => {}
                None => self.give_up_late(visited).await,
            }
        }
    }

    async fn scope(&self, visited: &Visited<'_>, identity: Option<CallIdentity>) -> Result<Scope, StoreError> {
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
        self.access.read(&self.store, self.now()).await?;
        self.access.name(environment.cluster).ok_or_else(|| corrupt("environments"))
    }

    /// Stores a failed try, and tells the followers.
    async fn pause(&self, id: EnvironmentId, tries: &Tries) -> Result<(), StoreError> {
        self.store.note_tries(id, tries).await?;
        if let (Some((code, message)), Some(at)) = (&tries.failure, tries.retry_at) {
            let retrying = EnvironmentEvent::Retrying { code: code.clone(), message: message.clone(), at };
            self.tell(id, Notification::Event(retrying));
        }
        Ok(())
    }
}

/// The environment of a reconcile, as it was read.
struct Visited<'a> {
    id: EnvironmentId,
    environment: &'a StoredEnvironment,
    recorded: &'a [ObjectRef],
}

/// Parses the identity that the agent is to act as. An unreadable one is an error and not `None`, which would be the
/// agent itself.
fn acting(stored: Option<&str>, table: &'static str) -> Result<Option<CallIdentity>, StoreError> {
    let read = stored.map(|text| identity::from_json(text).ok_or(StoreError::Corrupt { table, column: "identity" }));
    read.transpose()
}

fn corrupt(table: &'static str) -> StoreError {
    StoreError::Corrupt { table, column: "tracked" }
}
