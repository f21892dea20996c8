//! Work on one workspace: the newest intent wins, and an attempt that is not wanted any more ends between two requests.
//! When there is another is the controller's to say.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use tunnel_proto::reconcile::Intent;
use tunnel_proto::state::DesiredState;

use crate::books::Attempted;
use crate::config::Scope;
use crate::conversation::ConversationShared;
use crate::reconcile::{Done, PassInput, ReconcileContext};

/// Intents of a workspace.
pub(crate) struct Mailbox {
    inner: Mutex<WorkerShared>,
    /// Ends all work for the workspace.
    closing: CancellationToken,
}

struct WorkerShared {
    job: PassInput,
    sent: Vec<PendingIntent>,
    next_id: u64,
    /// Ends the pass that is running.
    superseded: CancellationToken,
}

/// A configuration that is not applied yet.
struct PendingIntent {
    id: u64,
    inventories: BTreeSet<String>,
    bytes: Bytes,
}

/// Input of a pass.
struct Taken {
    job: PassInput,
    ids: Vec<u64>,
    superseded: CancellationToken,
}

impl Mailbox {
    /// Makes the mailbox of a workspace, with its first intent.
    pub(crate) fn new(scope: Scope, closing: CancellationToken) -> Self {
        let job = PassInput {
            scope,
            generation: 0,
            desired: DesiredState::Stopped,
            actual: tunnel_proto::state::ActualState::Unknown,
            configs: Vec::new(),
            pull_secrets: Vec::new(),
        };
        let superseded = closing.child_token();
        let inner = Mutex::new(WorkerShared { job, sent: Vec::new(), next_id: 0, superseded });
        Self { inner, closing }
    }

    /// Takes an intent, which counts: its generation is none that is over. `inventories` are those of its
    /// configuration.
    pub(crate) fn put(&self, intent: Intent, inventories: BTreeSet<String>) {
        let mut inner = self.inner.lock();
        let is_newer = intent.generation > inner.job.generation;
        if intent.desired == DesiredState::Terminated {
            inner.sent.clear();
        } else {
            // Drops the configurations that this one replaces. An earlier full one stays beside a partial one: its
            // secrets are still to be applied.
            inner.sent.retain(|sent| !sent.inventories.is_subset(&inventories));
        }
        if !intent.config.is_empty() {
            let id = inner.next_id;
            inner.next_id += 1;
            inner.sent.push(PendingIntent { id, inventories, bytes: intent.config });
        }
        inner.job.generation = intent.generation;
        inner.job.desired = intent.desired;
        inner.job.actual = intent.actual;
        inner.job.pull_secrets = intent.pull_secrets;
        if is_newer {
            self.supersede(&mut inner);
        }
    }

    /// Stops the current work after an intent that cannot be carried out.
    pub(crate) fn put_nothing(&self) {
        let mut inner = self.inner.lock();
        inner.sent.clear();
        self.supersede(&mut inner);
    }

    fn supersede(&self, inner: &mut WorkerShared) {
        inner.superseded.cancel();
        inner.superseded = self.closing.child_token();
    }

    /// Returns whether the workspace wants a pull secret.
    pub(crate) fn wants(&self, secret: &tunnel_proto::reconcile::SecretRef) -> bool {
        self.inner.lock().job.pull_secrets.contains(secret)
    }

    /// Ends all work for the workspace.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    fn take(&self) -> Taken {
        let inner = self.inner.lock();
        let configs = inner.sent.iter().map(|sent| sent.bytes.clone()).collect();
        Taken {
            job: PassInput { configs, ..inner.job.clone() },
            ids: inner.sent.iter().map(|sent| sent.id).collect(),
            superseded: inner.superseded.clone(),
        }
    }

    /// Notes that configurations were applied. Returns whether those are all.
    fn settle(&self, taken: &[u64]) -> bool {
        let mut inner = self.inner.lock();
        inner.sent.retain(|sent| !taken.contains(&sent.id));
        inner.sent.is_empty()
    }

    fn is_all(&self, taken: &[u64]) -> bool {
        self.inner.lock().sent.iter().all(|sent| taken.contains(&sent.id))
    }
}

/// A pass that has ended.
pub(crate) struct PassEnd {
    /// The mailbox whose intents it was for.
    pub(crate) mailbox: Arc<Mailbox>,
    /// Tells whether Deployments or pods have changed since the pass took its intents.
    pub(crate) movements: watch::Receiver<()>,
    /// `None` if a newer intent ended the pass.
    pub(crate) left: Option<Remainder>,
}

/// Work that a pass has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remainder {
    /// Objects have to be gone before the workload is applied.
    pub(crate) is_held: bool,
    pub(crate) again: Again,
}

/// Reason for another pass without a new intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It failed, and time may heal that.
    Temporary,
    /// It failed, and a person has to change something.
    Permanent,
    /// Some deleted object is still there.
    Look,
    /// There is none.
    No,
}

impl Remainder {
    fn of(done: &Done) -> Self {
        let again = match &done.failure {
            Some(problem) if problem.is_temporary => Again::Temporary,
            Some(_) => Again::Permanent,
            None if done.is_waiting => Again::Look,
            None => Again::No,
        };
        Self { is_held: !done.waits.is_empty(), again }
    }
}

/// Does what there is to do for a workspace, by its newest intent. A pass that has begun a request finishes it.
pub(crate) async fn reconcile(
    mailbox: Arc<Mailbox>,
    context: Arc<ReconcileContext>,
    shared: Arc<ConversationShared>,
) -> PassEnd {
    // The newest intent, which may have come while others worked.
    let taken = mailbox.take();
    // Pods that move from here on may be those that this pass waits for.
    let movements = shared.movements();
    let api = context.api.until(taken.superseded.clone());
    let done = context.run(&taken.job, &api).await;
    let left = done.map(|done| {
        let left = Remainder::of(&done);
        record(&mailbox, &shared, &taken, done);
        left
    });
    PassEnd { mailbox, movements, left }
}

fn record(mailbox: &Mailbox, shared: &ConversationShared, taken: &Taken, done: Done) {
    let PassInput { scope, generation, desired, .. } = &taken.job;
    let is_terminated = *desired == DesiredState::Terminated;
    let is_well = done.failure.is_none();
    if let Some(problem) = &done.failure {
        warn!(workspace = scope.workspace, generation, problem.message, "a workspace is not as it should be");
    } else {
        debug!(workspace = scope.workspace, generation, is_waiting = done.is_waiting, "a pass went well");
    }
    // Objects that are still being deleted are in the inventory until a pass with the same objects has seen them gone.
    let is_all = match (is_well && done.waits.is_empty(), is_terminated || done.is_waiting) {
        (true, false) => mailbox.settle(&taken.ids),
        (true, true) => mailbox.is_all(&taken.ids),
        (false, _) => false,
    };
    if is_all && !is_terminated && !taken.ids.is_empty() {
        info!(workspace = scope.workspace, generation, %desired, "applied");
    }
    let attempted = Attempted {
        generation: *generation,
        failure: done.failure.map(|problem| (problem.kind, problem.message)),
        is_complete: is_all,
        termination: done.termination,
        secrets: done.secrets,
        waits: done.waits,
    };
    shared.change(|books| {
        for deployment in &done.deployments {
            books.view.applied(deployment);
        }
        books.attempted(&scope.workspace, attempted);
    });
}

#[cfg(test)]
mod tests {
    use tunnel_proto::state::ActualState;

    use super::*;

    fn mailbox() -> Mailbox {
        let scope = Scope { cluster: "c".into(), workspace: "w".into(), namespace: "ns".into() };
        Mailbox::new(scope, CancellationToken::new())
    }

    fn put(mailbox: &Mailbox, generation: u64, desired: DesiredState, config: &'static str, inventories: &[&str]) {
        let intent = Intent {
            workspace: "w".into(),
            namespace: "ns".into(),
            generation,
            desired,
            actual: ActualState::Running,
            round: 0,
            config: Bytes::from_static(config.as_bytes()),
            pull_secrets: Vec::new(),
        };
        mailbox.put(intent, inventories.iter().map(|name| (*name).to_owned()).collect());
    }

    fn taken(mailbox: &Mailbox) -> Vec<Bytes> {
        mailbox.take().job.configs
    }

    #[test]
    fn partial_intent_does_not_lose_the_secrets_of_a_full_one_before_it() {
        let mailbox = mailbox();
        put(&mailbox, 1, DesiredState::Running, "full", &["core", "secrets"]);
        put(&mailbox, 2, DesiredState::Stopped, "partial", &["core"]);
        assert_eq!(taken(&mailbox), ["full", "partial"]);
        put(&mailbox, 3, DesiredState::Running, "partial again", &["core"]);
        assert_eq!(taken(&mailbox), ["full", "partial again"], "the newest of each, and no more");
        put(&mailbox, 3, DesiredState::Running, "full again", &["core", "secrets"]);
        assert_eq!(taken(&mailbox), ["full again"]);
        put(&mailbox, 4, DesiredState::Terminated, "alone", &["core", "secrets"]);
        assert_eq!(taken(&mailbox), ["alone"]);
    }

    #[test]
    fn only_a_newer_intent_ends_the_attempt_that_is_running() {
        let mailbox = mailbox();
        put(&mailbox, 1, DesiredState::Running, "a", &["core"]);
        let running = mailbox.take();
        put(&mailbox, 1, DesiredState::Running, "a", &["core"]);
        assert!(!running.superseded.is_cancelled(), "the same intent again");
        put(&mailbox, 2, DesiredState::Stopped, "b", &["core"]);
        assert!(running.superseded.is_cancelled());
        let running = mailbox.take();
        mailbox.close();
        assert!(running.superseded.is_cancelled());
    }

    #[test]
    fn what_came_during_an_attempt_is_still_to_be_applied_after_it() {
        let mailbox = mailbox();
        put(&mailbox, 1, DesiredState::Running, "a", &["core"]);
        let running = mailbox.take();
        put(&mailbox, 1, DesiredState::Running, "b", &["core"]);
        assert!(!mailbox.settle(&running.ids));
        assert_eq!(taken(&mailbox), ["b"]);
        assert!(mailbox.settle(&mailbox.take().ids));
        assert_eq!(taken(&mailbox), [""; 0]);
    }
}
