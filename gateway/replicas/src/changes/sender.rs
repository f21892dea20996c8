//! Sends to each replica that lives what began here. Changes are gathered for a moment, and one message at a time is on its
//! way to each replica: meanwhile the newest changes wait in one bounded set. So a slow replica costs bounded memory, and
//! delays no other. What a replica does not take is not sent again: it finds it in the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_net::telemetry::{ChangeWay, Metrics};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Change;
use super::set::ChangeSet;
use crate::replica::Replica;

/// Longest wait of a change for others.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// Changes that began here and wait to be sent.
#[derive(Debug, Default)]
pub struct OwnChanges {
    gathered: Mutex<ChangeSet>,
    some: Notify,
}

impl OwnChanges {
    /// Adds a change. Does not wait.
    pub fn add(&self, change: Change) {
        self.gathered.lock().add(change);
        self.some.notify_one();
    }

    fn take(&self) -> ChangeSet {
        std::mem::take(&mut *self.gathered.lock())
    }
}

/// A replica to send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addressee {
    /// Number of its process start.
    pub(crate) replica: u64,
    /// Its address.
    pub(crate) url: Arc<str>,
}

/// What waits for one replica, and the message that is on its way.
#[derive(Debug, Default)]
struct Outbox {
    waiting: ChangeSet,
    sending: Option<AbortHandle>,
}

/// Sends what is added to `own` until `stop`.
pub async fn send(replica: Arc<Replica>, own: Arc<OwnChanges>, metrics: Metrics, stop: CancellationToken) {
    let addressees = || replica.others();
    let to_one = |addressee: Addressee, set: ChangeSet| {
        let (replica, metrics) = (replica.clone(), metrics.clone());
        async move {
            let count = set.len();
            match replica.announce(&addressee, &set).await {
                Ok(()) => metrics.changes(ChangeWay::Sent, count),
                Err(error) => {
                    metrics.changes(ChangeWay::Unsent, count);
                    debug!(replica = addressee.replica, %error, "changes were not sent: they are found in the store");
                }
            }
            if set.is_everything() {
                metrics.changes(ChangeWay::Everything, 1);
            }
        }
    };
    deliver(&own, addressees, to_one, &stop).await;
}

/// Gathers changes and hands them to `send`, for each addressee one set at a time.
async fn deliver<F>(
    own: &OwnChanges,
    addressees: impl Fn() -> Vec<Addressee>,
    send: impl Fn(Addressee, ChangeSet) -> F,
    stop: &CancellationToken,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut outboxes: HashMap<u64, (Addressee, Outbox)> = HashMap::new();
    let (mut sends, mut gathered_at): (JoinSet<()>, Option<Instant>) = (JoinSet::new(), None);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = own.some.notified(), if gathered_at.is_none() => gathered_at = Some(Instant::now() + GATHER_TIME),
            () = sleep_until(gathered_at.unwrap_or_else(Instant::now)), if gathered_at.is_some() => {
                gathered_at = None;
                let (set, living) = (own.take(), addressees());
                outboxes.retain(|replica, _| living.iter().any(|addressee| addressee.replica == *replica));
                for addressee in living {
                    let made = || (addressee.clone(), Outbox::default());
                    outboxes.entry(addressee.replica).or_insert_with(made).1.waiting.merge(&set);
                }
            }
            Some(_sent) = sends.join_next() => {}
        }
        for (addressee, outbox) in outboxes.values_mut() {
            let is_busy = outbox.sending.as_ref().is_some_and(|sending| !sending.is_finished());
            if !is_busy && !outbox.waiting.is_empty() {
                let set = std::mem::take(&mut outbox.waiting);
                outbox.sending = Some(sends.spawn(send(addressee.clone(), set)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;
    use tokio::time::{sleep, timeout};

    fn change(number: usize) -> Change {
        Change::Workspace { workspace: format!("w-{number}").parse().expect("an id"), cluster: None }
    }

    fn addressee(replica: u64) -> Addressee {
        Addressee { replica, url: "https://a:1".into() }
    }

    /// Two replicas; the second takes a while for each message.
    struct Stage {
        own: Arc<OwnChanges>,
        sent: mpsc::Receiver<(u64, ChangeSet)>,
        _tasks: JoinSet<()>,
    }

    const SLOW: Duration = Duration::from_secs(3);

    impl Stage {
        fn new() -> Self {
            let (own, (note, sent)) = (Arc::new(OwnChanges::default()), mpsc::channel(64));
            let (gathered, mut tasks) = (own.clone(), JoinSet::new());
            tasks.spawn(async move {
                let send = |addressee: Addressee, set: ChangeSet| {
                    let note = note.clone();
                    async move {
                        note.send((addressee.replica, set)).await.expect("the test goes on");
                        if addressee.replica == 2 {
                            sleep(SLOW).await;
                        }
                    }
                };
                deliver(&gathered, || vec![addressee(1), addressee(2)], send, &CancellationToken::new()).await;
            });
            Self { own, sent, _tasks: tasks }
        }

        /// Returns what is sent within a time.
        async fn within(&mut self, time: Duration) -> Vec<(u64, Vec<Change>)> {
            let (until, mut all) = (Instant::now() + time, Vec::new());
            while let Ok(Some((replica, set))) = timeout(until.duration_since(Instant::now()), self.sent.recv()).await {
                all.push((replica, set.changes().collect()));
            }
            all.sort_by_key(|(replica, _)| *replica);
            all
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_a_moment_go_to_each_replica_in_one_message() {
        let mut stage = Stage::new();
        for number in [2, 1, 2] {
            stage.own.add(change(number));
            sleep(Duration::from_millis(5)).await;
        }
        let both = vec![change(1), change(2)];
        assert_eq!(stage.within(GATHER_TIME).await, [(1, both.clone()), (2, both)]);
        assert_eq!(stage.within(Duration::from_secs(60)).await, [], "nothing is repeated");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_replica_delays_no_other_and_what_waits_for_it_has_a_bound() {
        let mut stage = Stage::new();
        stage.own.add(change(1));
        assert_eq!(stage.within(GATHER_TIME * 2).await.len(), 2);
        for number in 2..5 {
            stage.own.add(change(number));
            assert_eq!(stage.within(GATHER_TIME * 2).await, [(1, vec![change(number)])], "the other takes its time");
        }
        let waited: Vec<Change> = (2..5).map(change).collect();
        assert_eq!(stage.within(SLOW).await, [(2, waited)], "and gets the rest in one message");
        (1..super::super::set::CHANGES_MAX + 50).for_each(|number| stage.own.add(change(number)));
        stage.within(GATHER_TIME * 2).await;
        assert_eq!(stage.within(SLOW).await, [(2, vec![Change::Everything])]);
    }
}
