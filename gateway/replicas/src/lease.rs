//! This process start among the replicas: a row with a lease, which only the database's clock judges.

use std::sync::Arc;
use std::time::Duration;

use gateway_config::Config;
use gateway_store::{DifferingReplica, Incarnation, NewReplica, Renewal, ReplicaState, Store, StoreError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::replica::Replica;

/// Time for which a replica counts as alive without a word of it.
pub const LEASE: Duration = Duration::from_secs(15);

/// Interval of renewals: several may fail before the lease is over.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);

/// The same after one that failed: when the store is back after an outage, all renew their leases within this.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Reason why a replica cannot join the others.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The others are configured for something else.
    #[error(
        "replica {replica}, which serves the same database, has another {what}: {theirs}; replicas have to agree",
        replica = .0.incarnation, what = .0.what, theirs = .0.theirs
    )]
    Differs(Box<DifferingReplica>),
}

/// This process start, as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRow {
    /// Its number.
    pub incarnation: Incarnation,
    /// Where others reach it.
    pub peer_url: String,
}

/// Registers this process start, which others reach at `peer_url`.
///
/// # Errors
/// [`JoinError`].
pub async fn join(store: &Store, config: &Config, peer_url: &str) -> Result<Incarnation, JoinError> {
    let (public_url, zone) = (config.public_url.to_string(), config.zone.to_string());
    let new =
        NewReplica { peer_url, version: env!("CARGO_PKG_VERSION"), zone: &zone, public_url: &public_url, lease: LEASE };
    store.add_replica(&new).await?.map_err(|differs| JoinError::Differs(Box::new(differs)))
}

/// Renews the lease and the view of the others until `stop`, says as soon as it is `draining` that it is, and gives the lease up then. A
/// lease that was over counts again: what others took over meanwhile is theirs, and all sessions are claimed anew. A process start that
/// must not go on has to end, which `lost` says: it was ended by others, or another one has its number, which the store gave out again
/// after a backup was restored that knew nothing of this one.
pub async fn keep(
    store: Store,
    replica: Arc<Replica>,
    own: OwnRow,
    draining: CancellationToken,
    stop: CancellationToken,
    lost: CancellationToken,
) {
    let OwnRow { incarnation, peer_url } = own;
    let mut pause = Duration::ZERO;
    let mut state = ReplicaState::Serving;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = draining.cancelled(), if state == ReplicaState::Serving => state = ReplicaState::Draining,
            () = tokio::time::sleep(pause) => {}
        }
        pause = RENEW_INTERVAL;
        match store.renew_replica(incarnation, state, LEASE).await {
            Ok(renewal @ (Renewal::Live | Renewal::Revived)) => {
                if let Err(error) = replica.members().refresh().await {
                    warn!(%error, "the other replicas cannot be read");
                }
                if !replica.members().may_be_at(incarnation.get(), &peer_url) {
                    error!(replica = %incarnation, "another process start has the number of this one, which has to start anew");
                    lost.cancel();
                    return;
                }
                if renewal == Renewal::Revived {
                    warn!(replica = %incarnation, "the lease of this replica was over: its sessions are claimed anew");
                    replica.claim_anew().await;
                }
            }
            Ok(Renewal::Ended) => {
                error!(replica = %incarnation, "this replica was ended by others: it has to start anew");
                lost.cancel();
                return;
            }
            Err(error) => {
                pause = RETRY_INTERVAL;
                // An outage is reported once, elsewhere.
                if !error.is_unanswered() {
                    warn!(%error, "the lease of this replica cannot be renewed");
                }
            }
        }
    }
    if let Err(error) = store.end_replica(incarnation).await {
        warn!(%error, "the lease of this replica cannot be given up: it ends by itself");
    }
}
