//! Claims of sessions, gathered into batches: after the loss of a replica thousands of agents come at once, and the database
//! writes a hundred rows as fast as one.

use std::time::Duration;

use gateway_store::{CLAIMS_MAX, ClaimResult, Incarnation, SessionClaim, SessionKey, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

/// Longest wait of a claim for others.
const BATCH_TIME: Duration = Duration::from_millis(20);

/// Most claims that wait for a batch. More wait at their senders.
const WAITING_MAX: usize = 4_096;

/// Outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The store's answer.
    Answered(ClaimResult),
    /// The lease of this replica is over.
    NoLease,
    /// The store did not answer.
    Away,
}

/// A claim, and the task that waits for its outcome.
#[derive(Debug)]
struct WaitingClaim {
    claim: SessionClaim,
    answer: oneshot::Sender<Claimed>,
}

/// Writes claims in batches, and frees places.
#[derive(Clone, Debug)]
pub struct Claims {
    claims: mpsc::Sender<WaitingClaim>,
    releases: mpsc::Sender<(SessionKey, u64)>,
}

impl Claims {
    /// Makes it, and the task that writes.
    pub fn new(store: Store, owner: Incarnation) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (claims, waiting) = mpsc::channel(WAITING_MAX);
        let (releases, released) = mpsc::channel(WAITING_MAX);
        (Self { claims, releases }, write(store, owner, waiting, released))
    }

    /// Claims a place.
    ///
    /// Cancel safety: safe; the claim may be written.
    pub async fn claim(&self, claim: SessionClaim) -> Claimed {
        let (answer, answered) = oneshot::channel();
        if self.claims.send(WaitingClaim { claim, answer }).await.is_err() {
            return Claimed::Away;
        }
        answered.await.unwrap_or(Claimed::Away)
    }

    /// Claims places, in this order.
    ///
    /// Cancel safety: safe; some claims may be written.
    pub async fn claim_all(&self, claims: impl IntoIterator<Item = SessionClaim>) -> Vec<Claimed> {
        let (mut answers, mut outcomes) = (Vec::new(), Vec::new());
        for claim in claims {
            let (answer, answered) = oneshot::channel();
            let sent = self.claims.send(WaitingClaim { claim, answer }).await;
            answers.push(sent.ok().map(|()| answered));
        }
        for answered in answers {
            outcomes.push(match answered {
                Some(answered) => answered.await.unwrap_or(Claimed::Away),
                None => Claimed::Away,
            });
        }
        outcomes
    }

    /// Frees a place. Does not wait: a place that is not freed is found empty by the replica that asks for it.
    pub fn release(&self, key: SessionKey, generation: u64) {
        if self.releases.try_send((key, generation)).is_err() {
            warn!("a session's place was not freed: too many are waiting");
        }
    }
}

/// Writes until all senders are gone.
async fn write(
    store: Store,
    owner: Incarnation,
    mut waiting: mpsc::Receiver<WaitingClaim>,
    mut released: mpsc::Receiver<(SessionKey, u64)>,
) {
    loop {
        tokio::select! {
            first = waiting.recv() => {
                let Some(first) = first else { break };
                claim_all(&store, owner, gathered(first, &mut waiting).await).await;
            }
            Some(first) = released.recv() => {
                let batch = gathered(first, &mut released).await;
                if let Err(error) = store.release_sessions(owner, &batch).await
                    && !error.is_unanswered()
                {
                    warn!(%error, sessions = batch.len(), "places of sessions cannot be freed");
                }
            }
        }
    }
}

/// Gathers what comes shortly after the first one.
async fn gathered<T>(first: T, waiting: &mut mpsc::Receiver<T>) -> Vec<T> {
    let (until, mut batch) = (Instant::now() + BATCH_TIME, vec![first]);
    while batch.len() < CLAIMS_MAX {
        match timeout_at(until, waiting.recv()).await {
            Ok(Some(next)) => batch.push(next),
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

async fn claim_all(store: &Store, owner: Incarnation, batch: Vec<WaitingClaim>) {
    let claims: Vec<SessionClaim> = batch.iter().map(|waiting| waiting.claim).collect();
    let all = |outcome: Claimed| vec![outcome; batch.len()];
    let outcomes = match store.claim_sessions(owner, &claims).await {
        Ok(Some(results)) => results.into_iter().map(Claimed::Answered).collect(),
        Ok(None) => all(Claimed::NoLease),
        Err(error) => {
            // An outage is reported once, elsewhere.
            if !error.is_unanswered() {
                warn!(%error, sessions = claims.len(), "sessions cannot be claimed");
            }
            all(Claimed::Away)
        }
    };
    for (waiting, outcome) in batch.into_iter().zip(outcomes) {
        // A claim whose task is gone is displaced by the next one.
        waiting.answer.send(outcome).ok();
    }
}
