//! Shutdown helper: stops taking work, waits for running tasks up to a deadline, then cuts them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Tasks that should finish by themselves, and two signals for them: `draining` (take nothing new) and `cut` (end now). Before
/// these a drain may be announced: nothing is refused yet, and all that chooses among several gateways should choose another.
/// Dropping it ends no task, as others may hold it too: the owner of the tasks keeps [`Drain::cut_on_drop`].
#[derive(Clone, Debug, Default)]
pub struct Drain {
    announced: CancellationToken,
    is_announced: Arc<AtomicBool>,
    draining: CancellationToken,
    has_begun: Arc<AtomicBool>,
    cut: CancellationToken,
    /// Time of the cut, once the drain has begun.
    end: watch::Sender<Option<Instant>>,
    tasks: TaskTracker,
}

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainResult {
    /// Every task finished by itself.
    Clean,
    /// So many tasks had to be cut.
    Cut(usize),
}

impl Drain {
    /// Runs a task that the drain waits for.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let cut = self.cut.clone();
        // A connection's future is kilobytes large; boxed once, it is not copied through each layer around it.
        let task = Box::pin(task);
        drop(self.tasks.spawn(async move {
            tokio::select! {
                // The task first: its turn costs no roll of dice.
                biased;
                () = task => {}
                () = cut.cancelled() => {}
            }
        }));
    }

    /// Returns whether the drain has begun. One load of an atomic: it is asked for each request.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Returns the signal to take nothing new.
    #[must_use]
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Says that a drain will begin.
    pub fn announce(&self) {
        self.is_announced.store(true, Ordering::Release);
        self.announced.cancel();
    }

    /// Returns whether a drain will begin, or has begun. One load of an atomic: it is asked for each request.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Acquire)
    }

    /// Returns the signal that a drain will begin, or has begun.
    #[must_use]
    pub fn announced(&self) -> &CancellationToken {
        &self.announced
    }

    /// Returns the time of the cut, which is known once the drain has begun, and may come nearer then.
    #[must_use]
    pub fn end(&self) -> watch::Receiver<Option<Instant>> {
        self.end.subscribe()
    }

    /// Returns the number of running tasks.
    #[must_use]
    pub fn live(&self) -> usize {
        self.tasks.len()
    }

    /// Returns a guard that cuts all tasks when it is dropped, also those that are spawned later: for their owner,
    /// which may be dropped without a drain.
    #[must_use]
    pub fn cut_on_drop(&self) -> DropGuard {
        self.cut.clone().drop_guard()
    }

    /// Signals, waits up to `grace`, cuts the tasks that are left and waits for those too.
    ///
    /// Cancel safety: may be dropped and called again.
    pub async fn run(&self, grace: Duration) -> DrainResult {
        // In this order: a task that the signal wakes on another thread, and that asks the flag first, finds it set.
        self.has_begun.store(true, Ordering::Release);
        self.end.send_replace(Instant::now().checked_add(grace));
        self.announce();
        self.draining.cancel();
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_ok() {
            return DrainResult::Clean;
        }
        let left = self.tasks.len();
        self.cut.cancel();
        self.tasks.wait().await;
        DrainResult::Cut(left)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_tasks_and_cuts_those_past_the_grace() {
        let drain = Drain::default();
        let draining = drain.draining().clone();
        drain.spawn(async move { draining.cancelled().await });
        drain.announce();
        assert!(drain.is_announced() && drain.announced().is_cancelled() && !drain.is_draining());
        assert_eq!(drain.run(Duration::from_secs(1)).await, DrainResult::Clean);

        let drain = Drain::default();
        drain.spawn(std::future::pending());
        assert_eq!(drain.run(Duration::from_secs(1)).await, DrainResult::Cut(1));
        assert!(drain.announced().is_cancelled());
        assert_eq!(drain.live(), 0);
    }

    #[tokio::test]
    async fn drain_that_is_dropped_ends_its_tasks() {
        let drain = Drain::default();
        let owned = drain.cut_on_drop();
        let (held, given_back) = tokio::sync::oneshot::channel::<()>();
        let task = |held| async move {
            let _held: tokio::sync::oneshot::Sender<()> = held;
            std::future::pending::<()>().await;
        };
        drain.spawn(task(held));
        let other = drain.clone();
        drop((owned, drain));
        tokio::time::timeout(Duration::from_secs(60), given_back).await.expect("the task is cut").unwrap_err();
        // One of a task that was spawned before it.
        let (held, given_back) = tokio::sync::oneshot::channel();
        other.spawn(task(held));
        tokio::time::timeout(Duration::from_secs(60), given_back).await.expect("the task is cut").unwrap_err();
    }

    /// Asks whether the drain has begun, at the moment of its signal.
    struct AtSignal {
        drain: Drain,
        has_begun: AtomicBool,
    }

    impl Wake for AtSignal {
        fn wake(self: Arc<Self>) {
            self.has_begun.store(self.drain.is_draining(), Ordering::Relaxed);
        }
    }

    /// A task that is woken and asks the flag first must not go back to sleep: nothing wakes it again.
    #[tokio::test]
    async fn task_that_the_signal_wakes_sees_that_the_drain_has_begun() {
        let drain = Drain::default();
        let seen = Arc::new(AtSignal { drain: drain.clone(), has_begun: AtomicBool::new(false) });
        let mut signal = std::pin::pin!(drain.draining().cancelled());
        assert!(signal.as_mut().poll(&mut Context::from_waker(&seen.clone().into())).is_pending());
        assert_eq!(drain.run(Duration::from_secs(60)).await, DrainResult::Clean);
        assert!(seen.has_begun.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn task_that_panics_ends_alone_and_lets_go_of_what_it_held() {
        let drain = Drain::default();
        let (held, given_back) = tokio::sync::oneshot::channel::<()>();
        drain.spawn(async move {
            let _held = held;
            panic!("on purpose");
        });
        let (beside, mut alive) = tokio::sync::oneshot::channel::<()>();
        let draining = drain.draining().clone();
        drain.spawn(async move {
            let _beside = beside;
            draining.cancelled().await;
        });
        assert!(given_back.await.is_err(), "what it held is not dropped");
        assert!(alive.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty));
        assert_eq!(drain.run(Duration::from_secs(5)).await, DrainResult::Clean);
    }
}
