//! Deletes objects of an environment, in waves, and follows them until they are gone.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::time::Instant;
use tunnel_proto::environments::{Done, ObjectStep, Remove};
use tunnel_proto::reconcile::Blocker;

use super::{CallOutcome, CallRun, GONE_TIMEOUT, NOT_OURS};
use crate::delete::{self, Pruned};
use crate::environments::{decide, request};
use crate::namespace;
use crate::object::{LiveObject, ObjectKey, Resource};
use crate::prune::{Context, Why};

/// Reason why an object of the environment stays.
const KEPT: &str = "it says that it is to be kept";

/// Reason why a namespace stays.
const IN_IT: &str = "objects are in it that are to be kept, or are not of this environment any more";

impl CallRun<'_> {
    /// Carries out a call to remove.
    pub(in crate::environments) async fn remove(mut self, remove: &Remove) -> Done {
        let ended = match self.open(&remove.tracked).await {
            Ok(()) => {
                self.is_end = true;
                self.prune(self.book.keys(), &BTreeSet::new(), Instant::now() + GONE_TIMEOUT).await
            }
            Err(error) => Err(error),
        };
        self.close(ended).await
    }

    /// Deletes objects, as far as they are the environment's, and waits for them to be gone. Those that are left then
    /// are in the answer.
    pub(super) async fn prune(
        &mut self,
        keys: BTreeSet<ObjectKey>,
        applied: &BTreeSet<String>,
        deadline: Instant,
    ) -> CallOutcome<()> {
        for wave in decide::waves(keys) {
            let mut leaving = Vec::new();
            for key in &wave {
                let mut occupied = self.book.namespaces();
                occupied.extend(self.lost.iter().cloned());
                let context = Context { inventory: &self.scope.inventory, applied, occupied: &occupied };
                if let Some(live) = self.prune_one(key, context).await? {
                    leaving.push((key.clone(), live));
                }
            }
            for (key, live) in self.until_gone(leaving, deadline).await? {
                let blocker = self.blocker(&key, &live).await;
                self.done.left.push(blocker);
            }
            // Objects of the next wave may be needed for these to end, also for one whose deletion was refused.
            if wave.iter().any(|key| self.book.is_to_go(key)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Deletes an object if that is right; returns it if it is to be waited for.
    async fn prune_one(&mut self, key: &ObjectKey, context: Context<'_>) -> CallOutcome<Option<LiveObject>> {
        if let Some(why) = request::reserved(key, self.scope) {
            self.release(key, why, true);
            return Ok(None);
        }
        match delete::prune(&self.acting, self.resources, key, context).await {
            Ok(Pruned::Deleted(live)) => {
                self.book.ours(key, &live.uid);
                self.say(key, ObjectStep::Deleting, "");
                return Ok(Some(live));
            }
            Ok(Pruned::Leaving(live)) => {
                self.book.ours(key, &live.uid);
                self.say(key, ObjectStep::Waiting, format!("it is being deleted{}", decide::held_by(&live)));
                return Ok(Some(live));
            }
            Ok(Pruned::Held(_)) if self.lost.contains(&key.name) => self.release(key, IN_IT, true),
            Ok(Pruned::Held(_)) if self.book.keeps_in(&key.name) => self.keep(key, IN_IT),
            Ok(Pruned::Held(live)) => {
                self.book.ours(key, &live.uid);
                let message = "objects of the environment are left in it";
                self.say(key, ObjectStep::Waiting, message);
                self.done.left.push(decide::blocker(key, &live, message.to_owned()));
            }
            Ok(Pruned::Gone) => {
                self.book.not(key);
                self.say(key, ObjectStep::Gone, "");
            }
            // It goes once it does not say so any more; the end reports it if it still does.
            Ok(Pruned::Released(Why::Kept)) if !self.is_end => self.keep(key, KEPT),
            Ok(Pruned::Released(why)) => {
                let (message, is_lost) = match why {
                    // It is the environment's, and named as that.
                    Why::JustApplied => ("it was applied under another name of its kind", false),
                    Why::Foreign => (NOT_OURS, true),
                    Why::Kept => (KEPT, true),
                };
                self.release(key, message, is_lost);
            }
            Err(error) => {
                let error = self.error(key, &error);
                self.fail(key, error)?;
            }
        }
        Ok(None)
    }

    /// Leaves an object where it is, and the environment's.
    fn keep(&mut self, key: &ObjectKey, message: &str) {
        self.book.kept(key);
        self.say(key, ObjectStep::Kept, message);
    }

    /// Names what holds an object up; for a namespace, with the conditions of its deletion.
    async fn blocker(&self, key: &ObjectKey, live: &LiveObject) -> Blocker {
        let mut message = String::new();
        if decide::is_namespace(key)
            && let Some(resource) = Resource::known(&key.group, None, &key.kind)
        {
            // The message is for people: without it they know at least what is left.
            let value: Option<Value> = self.acting.get(&resource.path("", &key.name)).await.ok().flatten();
            message = value.as_ref().map(namespace::conditions).unwrap_or_default();
        }
        decide::blocker(key, live, message)
    }
}
