//! Carries out one call.
//!
//! 1. Everything that is to be applied is looked at. If an object is there and not the environment's, nothing is done.
//! 2. The inventory tracks what was tracked and what is to come, before anything is applied.
//! 3. Objects are applied in order. An error about one does not keep the others.
//! 4. If all went well, tracked objects that are not wanted are deleted: in reverse order, each as it was judged.
//! 5. The inventory forgets what is not there.

mod apply;
mod prune;

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tunnel_proto::environments::{Done, ObjectError, ObjectErrorCode, ObjectRef, ObjectStep, Scope, TRACKED_MAX};
use tunnel_proto::reconcile::FailureKind;

use super::book::ObjectBook;
use super::decide::{self, ObjectOwnership};
use super::request;
use super::say::Say;
use super::{superseded, whole};
use crate::api::CancelableApi;
use crate::apply::Stopped;
use crate::delete;
use crate::inventory_store;
use crate::object::{LiveObject, ObjectKey, SentObject};
use crate::resources::Resources;
use crate::retry::ApiError;

/// Longest wait of a call for objects to be gone that it deleted, or that stand in its way.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between two looks, at first and at most.
const GONE_POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Interval between two messages about what is waited for.
const WAITING_PERIOD: Duration = Duration::from_secs(5);

/// Reason why an object stays that is there without the environment's mark.
const NOT_OURS: &str = "it is not of this environment";

/// A call, and its results so far.
pub(super) struct CallRun<'a> {
    /// Sends requests as the agent itself: for the inventory.
    own: CancelableApi,
    /// Sends requests as the identity that the gateway named.
    acting: CancelableApi,
    resources: &'a Resources,
    scope: &'a Scope,
    inventory: SentObject,
    say: &'a Say,
    book: ObjectBook,
    done: Done,
    /// Namespaces in which an object was let go that stays: they stay with it.
    lost: BTreeSet<String>,
    /// The environment is to end with nothing left.
    is_end: bool,
}

/// Result whose error ends a call early: it is about all objects.
type CallOutcome<T> = Result<T, Box<ObjectError>>;

impl<'a> CallRun<'a> {
    pub(super) fn new(
        own: CancelableApi,
        acting: CancelableApi,
        resources: &'a Resources,
        namespace: &str,
        scope: &'a Scope,
        say: &'a Say,
    ) -> Self {
        let inventory = request::inventory(scope, namespace);
        Self {
            own,
            acting,
            resources,
            scope,
            inventory,
            say,
            book: ObjectBook::default(),
            done: Done::default(),
            lost: BTreeSet::new(),
            is_end: false,
        }
    }

    /// Opens the book with what the gateway and the inventory have recorded.
    async fn open(&mut self, recorded: &[ObjectRef]) -> CallOutcome<()> {
        self.book = ObjectBook::new(recorded);
        let (_, tracked) = inventory_store::read(&self.own, &self.inventory.key).await.map_err(stopped)?;
        tracked.iter().for_each(|key| self.book.add(key, ""));
        if self.book.keys().len() > TRACKED_MAX {
            let message = format!("more than {TRACKED_MAX} objects are recorded for the environment");
            return Err(Box::new(whole(ObjectErrorCode::Invalid, message)));
        }
        Ok(())
    }

    /// Ends the call: looks at the objects that were not looked at, and has the inventory track what is there.
    async fn close(mut self, ended: CallOutcome<()>) -> Done {
        let ended = match ended {
            Ok(()) => self.settle().await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            self.done.errors.push(*error);
        }
        self.done.objects = self.book.objects();
        self.done
    }

    async fn settle(&mut self) -> CallOutcome<()> {
        for key in self.book.unknown() {
            match delete::look(&self.acting, self.resources, &key).await {
                Ok(live) => self.note(&key, live),
                Err(error) if decide::is_of_all(decide::code(&error)) => {
                    return Err(of_all(self.error(&key, &error)));
                }
                // An object that may not be looked at may be there.
                Err(_) => {}
            }
        }
        let gone = self.book.gone();
        let forget = |tracked: &BTreeSet<ObjectKey>| tracked.difference(&gone).cloned().collect();
        inventory_store::write(&self.own, &self.inventory, forget).await.map_err(stopped)?;
        if self.book.objects().is_empty() {
            let (live, tracked) = inventory_store::read(&self.own, &self.inventory.key).await.map_err(stopped)?;
            if let Some(live) = live.filter(|_| tracked.is_empty()) {
                inventory_store::delete(&self.own, &self.inventory.key, &LiveObject::read(&live))
                    .await
                    .map_err(stopped)?;
            }
        }
        Ok(())
    }

    /// Notes the live object under an object's name.
    fn note(&mut self, key: &ObjectKey, live: Option<LiveObject>) {
        match decide::ownership(live, &self.scope.inventory) {
            ObjectOwnership::Ours(live) | ObjectOwnership::Leaving(live) => self.book.ours(key, &live.uid),
            ObjectOwnership::New => self.book.not(key),
            ObjectOwnership::Foreign => self.release(key, NOT_OURS, true),
        }
    }

    /// Lets go of an object that stays. The end of an environment reports objects that are `lost` by it: nothing looks
    /// after them any more.
    fn release(&mut self, key: &ObjectKey, message: &str, is_lost: bool) {
        self.book.not(key);
        self.say(key, ObjectStep::Kept, message);
        if is_lost {
            self.lost.insert(key.namespace.clone());
        }
        if is_lost && self.is_end {
            let message = format!("{key} is left as it is: {message}");
            let object = Some(self.book.reference(key));
            self.done.errors.push(ObjectError { object, code: ObjectErrorCode::NotOwned, message });
        }
    }

    fn say(&self, key: &ObjectKey, step: ObjectStep, message: impl Into<String>) {
        self.say.step(self.book.reference(key), step, message);
    }

    fn error(&self, key: &ObjectKey, error: &ApiError) -> ObjectError {
        ObjectError { object: Some(self.book.reference(key)), code: decide::code(error), message: error.to_string() }
    }

    /// Takes the error of one object; gives it back if it is of all.
    fn fail(&mut self, key: &ObjectKey, error: ObjectError) -> CallOutcome<()> {
        if decide::is_of_all(error.code) {
            return Err(of_all(error));
        }
        self.say(key, ObjectStep::Failed, error.message.clone());
        self.done.errors.push(error);
        Ok(())
    }

    /// Waits until objects are gone, or others have their names, or it is `deadline`. Returns those that are left.
    async fn until_gone(
        &mut self,
        mut leaving: Vec<(ObjectKey, LiveObject)>,
        deadline: Instant,
    ) -> CallOutcome<Vec<(ObjectKey, LiveObject)>> {
        let (mut pause, longest) = GONE_POLL;
        let mut said = Instant::now();
        loop {
            let mut left = Vec::new();
            for (key, before) in leaving {
                match delete::look(&self.acting, self.resources, &key).await {
                    Ok(Some(live)) if live.uid == before.uid => left.push((key, live)),
                    // An object that has taken over the name is judged where it is met next.
                    Ok(_) => {
                        self.book.not(&key);
                        self.say(&key, ObjectStep::Gone, "");
                    }
                    Err(error) => {
                        let error = self.error(&key, &error);
                        self.fail(&key, error)?;
                    }
                }
            }
            if left.is_empty() || Instant::now() >= deadline {
                return Ok(left);
            }
            if said.elapsed() >= WAITING_PERIOD {
                said = Instant::now();
                for (key, live) in &left {
                    self.say(key, ObjectStep::Waiting, format!("it is still being deleted{}", decide::held_by(live)));
                }
            }
            leaving = left;
            let paused = self.own.unless_stopped(tokio::time::sleep(pause)).await;
            paused.map_err(|error| of_all(whole(decide::code(&error), error.to_string())))?;
            pause = (pause * 2).min(longest);
        }
    }
}

/// Makes an error the end of the call. That the call is not wanted any more is no fault of the object that was about to
/// be asked for.
fn of_all(error: ObjectError) -> Box<ObjectError> {
    Box::new(if error.code == ObjectErrorCode::Superseded { superseded() } else { error })
}

/// Turns an error about the inventory into the end of the call.
fn stopped(stopped: Stopped) -> Box<ObjectError> {
    Box::new(match stopped {
        Stopped::Superseded => superseded(),
        Stopped::Problem(problem) => {
            let code = match problem.kind {
                FailureKind::Config => ObjectErrorCode::Invalid,
                FailureKind::Kubernetes if problem.is_temporary => ObjectErrorCode::Unavailable,
                FailureKind::Kubernetes => ObjectErrorCode::Forbidden,
            };
            whole(code, format!("the inventory cannot be used: {}", problem.message))
        }
    })
}
