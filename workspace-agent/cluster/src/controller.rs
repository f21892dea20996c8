//! Controller of a conversation's workspaces: a pass for each workspace with a new intent, one at a time, and further ones
//! after failures and while objects are being deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;
use tunnel_proto::reconcile::SecretRef;
use work_queue::{Completion, Requeue, RetryDelays, Runner, WorkQueue};

use crate::conversation::ConversationShared;
use crate::reconcile::ReconcileContext;
use crate::worker::{self, Again, Mailbox, PassEnd};

/// Passes at once: as many as an API server serves without making its other clients wait.
const PASSES_MAX: usize = 16;

/// Waits after an attempt that time may heal, and after one for which a person has to change something.
const TEMPORARY: RetryDelays = RetryDelays { first: Duration::from_secs(1), max: Duration::from_secs(30) };
const PERMANENT: RetryDelays = RetryDelays { first: Duration::from_secs(10), max: Duration::from_secs(300) };

/// Waits between looks at objects that are being deleted.
const LOOK: RetryDelays = RetryDelays { first: Duration::from_millis(250), max: Duration::from_secs(5) };

/// Workspaces that the gateway has named, and the passes over them.
pub(crate) struct Controller {
    context: Arc<ReconcileContext>,
    shared: Arc<ConversationShared>,
    workspaces: BTreeMap<String, Entry>,
    pub(crate) runner: Runner<String, Instant, Option<PassEnd>>,
    /// Workspaces of which objects have to be gone before the workload is applied.
    held: BTreeSet<String>,
    /// Tells that Deployments or pods have changed.
    pub(crate) movements: watch::Receiver<()>,
}

/// A workspace, as the controller knows it.
struct Entry {
    mailbox: Arc<Mailbox>,
    /// Looks in a row at objects that are being deleted.
    looks: u32,
}

impl Controller {
    /// Makes the controller of a conversation. No workspace is known yet.
    pub(crate) fn new(context: Arc<ReconcileContext>, shared: Arc<ConversationShared>) -> Self {
        let movements = shared.movements();
        let (runner, held) = (Runner::default(), BTreeSet::new());
        Self { context, shared, workspaces: BTreeMap::new(), runner, held, movements }
    }

    /// Returns the mailbox of a workspace.
    pub(crate) fn get(&self, name: &str) -> Option<&Mailbox> {
        self.workspaces.get(name).map(|workspace| &*workspace.mailbox)
    }

    /// Returns the mailbox of a workspace, creating it with `make`, and queues a pass.
    pub(crate) fn add(&mut self, name: &str, make: impl FnOnce() -> Mailbox) -> &Mailbox {
        self.runner.queue.add(name.to_owned(), Instant::now());
        let workspace = self.workspaces.entry(name.to_owned());
        &workspace.or_insert_with(|| Entry { mailbox: Arc::new(make()), looks: 0 }).mailbox
    }

    /// Has all workspaces looked at that want a pull secret.
    pub(crate) fn secret_changed(&mut self, secret: &SecretRef) {
        for (name, _) in self.workspaces.iter().filter(|(_, workspace)| workspace.mailbox.wants(secret)) {
            self.runner.queue.add(name.clone(), Instant::now());
        }
    }

    /// Has workspaces looked at of which nothing runs any more, as far as is observed, and which waited for that.
    pub(crate) fn moved(&mut self) {
        // For those with a pass in flight, its end says whether they wait, and whether something has changed since.
        let waiting = self.held.iter().filter(|name| !self.runner.queue.is_in_flight(name));
        let at_rest: Vec<String> =
            self.shared.read(|books| waiting.filter(|name| books.view.is_at_rest(name)).cloned().collect());
        at_rest.into_iter().for_each(|name| self.runner.queue.add(name, Instant::now()));
    }

    /// Removes a workspace and ends all work for it. Returns whether there was one.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.runner.queue.remove(&name.to_owned());
        self.held.remove(name);
        let removed = self.workspaces.remove(name);
        removed.is_some_and(|workspace| {
            workspace.mailbox.close();
            true
        })
    }

    /// Removes all workspaces and ends all work for them.
    pub(crate) fn clear(&mut self) {
        let names: Vec<String> = self.workspaces.keys().cloned().collect();
        for name in names {
            self.remove(&name);
        }
    }

    /// Returns the instant from which [`start`](Self::start) starts a pass.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.runner.queue.next_due(PASSES_MAX)
    }

    /// Starts passes over workspaces that are due.
    pub(crate) fn start(&mut self) {
        self.runner.start(Instant::now(), PASSES_MAX, |name| {
            let mailbox = self.workspaces.get(&name).map(|workspace| workspace.mailbox.clone());
            let (context, shared) = (self.context.clone(), self.shared.clone());
            async move { Some(worker::reconcile(mailbox?, context, shared).await) }
        });
    }

    /// Settles a pass that has ended.
    ///
    /// # Errors
    /// The pass panicked. Its workspace is not looked at until it is added.
    pub(crate) fn settle(&mut self, completion: Completion<String, Option<PassEnd>>) -> Result<(), JoinError> {
        let Completion { key: name, result } = completion;
        let queue = &mut self.runner.queue;
        let end = match result {
            Ok(end) => end,
            Err(error) => {
                queue.finish(name, Requeue::AwaitAdd);
                return Err(error);
            }
        };
        let ended = self.workspaces.get_mut(&name).zip(end);
        let ended = ended.filter(|(workspace, end)| Arc::ptr_eq(&workspace.mailbox, &end.mailbox));
        let Some((workspace, PassEnd { movements, left, .. })) = ended else {
            // The workspace is over, and may have been named anew since.
            queue.finish(name, Requeue::AwaitAdd);
            return Ok(());
        };
        let now = Instant::now();
        match left {
            // It was added with the newer intent, if that can be carried out.
            None => queue.finish(name.clone(), Requeue::AwaitAdd),
            Some(left) => {
                if left.is_held {
                    self.held.insert(name.clone());
                } else {
                    self.held.remove(&name);
                }
                let pause = Pause { later: |wait| now + wait, roll: rand::random() };
                settle(queue, &name, left.again, &mut workspace.looks, pause);
            }
        }
        let has_moved = movements.has_changed().unwrap_or_default();
        if has_moved && self.held.contains(&name) && self.shared.read(|books| books.view.is_at_rest(&name)) {
            queue.add(name, now);
        }
        Ok(())
    }
}

/// Clock and chance of a wait.
struct Pause<F> {
    /// Makes the instant after a wait.
    later: F,
    /// Uniform in `0.0..1.0`.
    roll: f64,
}

/// Settles a pass over a workspace, with `looks` in a row.
fn settle<T: Copy + Ord>(
    queue: &mut WorkQueue<String, T>,
    name: &str,
    again: Again,
    looks: &mut u32,
    pause: Pause<impl Fn(Duration) -> T>,
) {
    let (name, Pause { later, roll }) = (name.to_owned(), pause);
    // At least half of it: a failure that occurs again at once would be met by all workspaces at once.
    let part = 0.5 + roll / 2.0;
    match again {
        Again::Temporary => queue.retry(name, |failures| later(TEMPORARY.after(failures, part))),
        Again::Permanent => queue.retry(name, |failures| later(PERMANENT.after(failures, part))),
        Again::Look => {
            queue.forget(&name);
            *looks = looks.saturating_add(1);
            queue.finish(name, Requeue::At(later(LOOK.after(*looks, part))));
        }
        Again::No => {
            queue.forget(&name);
            *looks = 0;
            queue.finish(name, Requeue::AwaitAdd);
        }
    }
}

#[cfg(test)]
mod tests;
