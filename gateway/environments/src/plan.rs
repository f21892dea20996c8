//! Decides the next step of one environment, and what an answer means for its recorded objects: as functions of the
//! stored state, of the answer and of the time.
//!
//! Objects are recorded before anything is asked of the cluster, and removed from the record only once a cluster's
//! agent said that they are not there. So nothing is ever removed that was not recorded, and nothing that was made is
//! forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tunnel_proto::environments::{Done, ObjectError, ObjectErrorCode};

use super::call::CallError;
use super::refusal::RefusalCode;
use gateway_store::Tries;
use gateway_types::UnixSeconds;
use workspace_spec::environment::facts::ObjectRef;

/// Longest pause between two tries to prepare, in seconds: a job waits.
const PREPARE_PAUSE_MAX: u64 = 30;

/// Longest pause between two tries to remove, in seconds.
pub(super) const REMOVE_PAUSE_MAX: u64 = 10 * 60;

/// Pause of an overloaded cluster's agent, in seconds. It has not failed, so this is not counted as a failure.
const OVERLOADED_PAUSE: u64 = 2;

/// State of an environment that the plan decides by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanState<'a> {
    /// The recorded objects have to be removed.
    pub(super) is_removal_due: bool,
    /// Some objects are recorded.
    pub(super) is_tracking: bool,
    /// Deadline of the next preparation in the queue, if there is one.
    pub(super) give_up_at: Option<UnixSeconds>,
    /// Recent tries.
    pub(super) tries: &'a Tries,
    /// An agent connected that has not been asked yet.
    pub(super) is_agent_new: bool,
}

/// Next step of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EnvironmentStep {
    /// Nothing, until the desired state changes.
    Rest,
    /// Nothing until then.
    Wait(UnixSeconds),
    /// The preparation's time is over.
    GiveUp(RefusalCode),
    /// Have the cluster's agent apply the preparation's objects.
    Apply,
    /// Have the cluster's agent remove the recorded objects.
    Remove,
    /// Nothing is recorded, so nothing is left to remove.
    Forget,
}

/// Decides the next step. A removal goes first: objects prepared after it are made anew.
pub(super) fn next(state: &PlanState<'_>, now: UnixSeconds) -> EnvironmentStep {
    let is_late = state.give_up_at.is_some_and(|at| at <= now);
    let pause_max = if state.is_removal_due { REMOVE_PAUSE_MAX } else { PREPARE_PAUSE_MAX };
    // A pause longer than the longest one comes from a clock that stepped back since.
    let is_meant = |at: &UnixSeconds| *at > now && *at <= now.later(Duration::from_secs(pause_max));
    let pause = state.tries.retry_at.filter(|at| is_meant(at) && !state.is_agent_new);
    match (state.is_removal_due, state.give_up_at) {
        (true, _) if is_late => EnvironmentStep::GiveUp(RefusalCode::EnvironmentBusy),
        (true, _) if !state.is_tracking => EnvironmentStep::Forget,
        (false, None) => EnvironmentStep::Rest,
        (false, Some(_)) if is_late => EnvironmentStep::GiveUp(last_failure(state.tries)),
        (due, give_up_at) => match pause {
            Some(at) => EnvironmentStep::Wait(give_up_at.map_or(at, |give_up_at| give_up_at.min(at))),
            None if due => EnvironmentStep::Remove,
            None => EnvironmentStep::Apply,
        },
    }
}

/// Returns the code of the last failed try; a preparation without one waited for others.
fn last_failure(tries: &Tries) -> RefusalCode {
    let code = tries.failure.as_ref().map(|(code, _)| code.as_str());
    let found = RefusalCode::ALL.into_iter().find(|known| Some(known.as_str()) == code);
    found.unwrap_or(RefusalCode::EnvironmentBusy)
}

/// Outcome of a preparation's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// All objects are there: these.
    Completed(Vec<ObjectRef>),
    /// The preparation failed for good; these objects may be there.
    Failed(Vec<ObjectRef>),
    /// The preparation is tried again.
    Again(Tries),
}

/// Returns the objects that may be in the cluster once `wanted` is applied to an environment with `recorded`.
pub(super) fn union(recorded: &[ObjectRef], wanted: &[ObjectRef]) -> Vec<ObjectRef> {
    let mut all: BTreeMap<ObjectName<'_>, &ObjectRef> = BTreeMap::new();
    for object in wanted.iter().chain(recorded) {
        // The recorded reference knows more: the uid.
        all.insert(name_of(object), object);
    }
    all.into_values().cloned().collect()
}

/// Decides what an answer to an apply means. `may_be` are the objects recorded before the call, and `wanted` those of
/// them that have to be there at the end.
pub(super) fn applied(
    wanted: &[ObjectRef],
    may_be: &[ObjectRef],
    answer: &Result<Done, CallError>,
    tries: &Tries,
    now: UnixSeconds,
) -> Applied {
    let done = match answer {
        Ok(done) => done,
        Err(error) => return Applied::Again(after(*error, tries, PREPARE_PAUSE_MAX, now)),
    };
    let all_wanted: BTreeSet<ObjectName<'_>> = wanted.iter().map(name_of).collect();
    // Objects of earlier templates that now have another owner are not wanted by this template.
    let is_let_go = |error: &ObjectError| {
        error.code == ObjectErrorCode::NotOwned
            && error.object.as_ref().is_some_and(|object| !all_wanted.contains(&name_said(object)))
    };
    if done.errors.iter().all(is_let_go) {
        let said = said_of(done);
        if let Some(missing) = all_wanted.iter().find(|name| !said.contains_key(*name)) {
            // A wanted object is missing without an error: such an answer is not believed.
            let message = format!("{}: {} {} is not there", CallError::NoAnswer, missing.1, missing.3);
            let failure = FailedCall { code: CallError::NoAnswer.code(), message };
            return Applied::Again(again(tries, failure, PREPARE_PAUSE_MAX, now));
        }
        // Objects that are still being deleted are there, and so still recorded.
        return Applied::Completed(there(&without_strangers(may_be, done), done));
    }
    let is_of_the_moment =
        |code| matches!(code, ObjectErrorCode::Unavailable | ObjectErrorCode::Superseded | ObjectErrorCode::Conflict);
    let mut errors = done.errors.iter().filter(|error| !is_let_go(error));
    if errors.clone().all(|error| is_of_the_moment(error.code)) {
        let message = errors.next().map_or_else(String::new, |error| error.message.clone());
        let failure = FailedCall { code: RefusalCode::ObjectsFailed, message };
        return Applied::Again(again(tries, failure, PREPARE_PAUSE_MAX, now));
    }
    let may_be = without_strangers(may_be, done);
    Applied::Failed(if has_looked(done) { there(&may_be, done) } else { known_better(&may_be, done) })
}

/// Returns whether an agent with errors still looked at every object, and so reports what is there and what may be: an
/// error of one object keeps it from none of the others, and an error of all ends the call.
fn has_looked(done: &Done) -> bool {
    let ends =
        |code| matches!(code, ObjectErrorCode::Unavailable | ObjectErrorCode::Identity | ObjectErrorCode::Superseded);
    done.errors.iter().all(|error| error.object.is_some() && !ends(error.code))
}

/// Outcome of a removal's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    /// Nothing of the environment's is left. These objects are in the cluster, and are not its own, or are to be kept.
    Gone(Vec<ObjectError>),
    /// These objects are left, and the removal is tried again.
    Left(Vec<ObjectRef>, Tries),
}

/// Decides what an answer to a removal means.
pub(super) fn removed(
    recorded: &[ObjectRef],
    answer: &Result<Done, CallError>,
    tries: &Tries,
    now: UnixSeconds,
) -> Removed {
    let done = match answer {
        Ok(done) => done,
        Err(error) => return Removed::Left(recorded.to_vec(), after(*error, tries, REMOVE_PAUSE_MAX, now)),
    };
    let ours = there(&without_strangers(recorded, done), done);
    let error = done.errors.iter().find(|error| !is_stranger(error));
    let is_all_said = error.is_none() && done.left.is_empty();
    if is_all_said && ours.is_empty() {
        let is_kept = |error: &&ObjectError| error.code == ObjectErrorCode::NotOwned;
        return Removed::Gone(done.errors.iter().filter(is_kept).cloned().collect());
    }
    // Objects not known to be gone stay recorded. So do released ones, so that the last answer reports all of them.
    let said = said_of(done);
    let strangers = strangers_of(done);
    let is_left = |object: &&ObjectRef| {
        !is_all_said || said.contains_key(&name_of(object)) || strangers.contains(&name_of(object))
    };
    let left: Vec<ObjectRef> = recorded.iter().filter(is_left).cloned().collect();
    let left = known_better(&left, done);
    let (code, message) = match (error, done.left.first()) {
        (Some(error), _) => (RefusalCode::ObjectsFailed, error.message.clone()),
        (None, Some(blocker)) => (RefusalCode::EnvironmentBusy, format!("{} is still there", blocker.object)),
        (None, None) => (RefusalCode::EnvironmentBusy, "an object is still there".to_owned()),
    };
    Removed::Left(left, again(tries, FailedCall { code, message }, REMOVE_PAUSE_MAX, now))
}

/// The reason to call again.
struct FailedCall {
    code: RefusalCode,
    message: String,
}

/// Returns the tries after a call without an answer.
fn after(error: CallError, tries: &Tries, pause_max: u64, now: UnixSeconds) -> Tries {
    let failure = FailedCall { code: error.code(), message: error.to_string() };
    match error {
        CallError::Overloaded => Tries {
            failures: tries.failures,
            failure: Some((failure.code.as_str().to_owned(), failure.message)),
            retry_at: Some(now.later(Duration::from_secs(OVERLOADED_PAUSE))),
        },
        CallError::Absent
        | CallError::TooOld
        | CallError::Displaced
        | CallError::Lost
        | CallError::Late(_)
        | CallError::NoAnswer => again(tries, failure, pause_max, now),
    }
}

/// Counts one more failure and sets the time of the next try: each pause is twice the one before.
fn again(tries: &Tries, failure: FailedCall, pause_max: u64, now: UnixSeconds) -> Tries {
    let pause = 1_u64.checked_shl(tries.failures.min(32)).unwrap_or(u64::MAX).min(pause_max);
    Tries {
        failures: tries.failures.saturating_add(1),
        failure: Some((failure.code.as_str().to_owned(), failure.message)),
        retry_at: Some(now.later(Duration::from_secs(pause))),
    }
}

/// Identity of an object in a cluster, whatever its version and however often it was made anew.
type ObjectName<'a> = (&'a str, &'a str, &'a str, &'a str);

fn name_of(object: &ObjectRef) -> ObjectName<'_> {
    (&object.group, &object.kind, &object.namespace, &object.name)
}

fn said_of(done: &Done) -> BTreeMap<ObjectName<'_>, &tunnel_proto::environments::ObjectRef> {
    done.objects.iter().map(|object| (name_said(object), object)).collect()
}

fn name_said(object: &tunnel_proto::environments::ObjectRef) -> ObjectName<'_> {
    (&object.group, &object.kind, &object.namespace, &object.name)
}

/// Returns the recorded objects that the agent reported as there. Unrecorded ones were not asked about.
fn there(recorded: &[ObjectRef], done: &Done) -> Vec<ObjectRef> {
    let said = said_of(done);
    recorded.iter().filter_map(|object| said.get(&name_of(object)).map(|known| better(object, known))).collect()
}

/// Returns all recorded objects, with the uids that the agent reported.
fn known_better(recorded: &[ObjectRef], done: &Done) -> Vec<ObjectRef> {
    let said = said_of(done);
    let known =
        |object: &ObjectRef| said.get(&name_of(object)).map_or_else(|| object.clone(), |one| better(object, one));
    recorded.iter().map(known).collect()
}

fn better(object: &ObjectRef, said: &tunnel_proto::environments::ObjectRef) -> ObjectRef {
    ObjectRef { uid: said.uid.clone(), ..object.clone() }
}

/// Returns the objects that do not belong to another owner, nor lie in a namespace that does not exist.
fn without_strangers(recorded: &[ObjectRef], done: &Done) -> Vec<ObjectRef> {
    let strangers = strangers_of(done);
    recorded.iter().filter(|object| !strangers.contains(&name_of(object))).cloned().collect()
}

fn strangers_of(done: &Done) -> BTreeSet<ObjectName<'_>> {
    let strangers = done.errors.iter().filter(|error| is_stranger(error));
    strangers.filter_map(|error| error.object.as_ref().map(name_said)).collect()
}

fn is_stranger(error: &ObjectError) -> bool {
    error.object.is_some() && matches!(error.code, ObjectErrorCode::NotOwned | ObjectErrorCode::NamespaceMissing)
}

#[cfg(test)]
mod tests;
