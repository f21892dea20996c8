//! This process start among the replicas: a row with a lease, which only the database's clock judges.

use std::sync::Arc;
use std::time::Duration;

use gateway_config::{Config, PeersConfig};
use gateway_store::{DifferingReplica, Incarnation, NewReplica, ReplicaState, Store, StoreError};
use thiserror::Error;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::members::Members;

/// Time for which a replica counts as alive without a word of it.
pub const LEASE: Duration = Duration::from_secs(15);

/// Interval of renewals: several may fail before the lease is over.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);

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

/// Registers this process start.
///
/// # Errors
/// [`JoinError`].
pub async fn join(store: &Store, config: &Config, peers: &PeersConfig) -> Result<Incarnation, JoinError> {
    let (peer_url, public_url, zone) = (peers.url.to_string(), config.public_url.to_string(), config.zone.to_string());
    let new = NewReplica {
        peer_url: &peer_url,
        version: env!("CARGO_PKG_VERSION"),
        zone: &zone,
        public_url: &public_url,
        lease: LEASE,
    };
    store.add_replica(&new).await?.map_err(|differs| JoinError::Differs(Box::new(differs)))
}

/// Renews the lease and the view of the others until `stop`, and gives the lease up then. A lease that ended although the store
/// answered cannot be renewed: this process stood still, and others have what it had, so it has to end, which `lost` says. One that
/// ended while the store was away is taken up again.
pub async fn keep(
    store: Store,
    members: Arc<Members>,
    incarnation: Incarnation,
    draining: CancellationToken,
    stop: CancellationToken,
    lost: CancellationToken,
) {
    let mut ticks = tokio::time::interval(RENEW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_away = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = ticks.tick() => {}
        }
        let state = if draining.is_cancelled() { ReplicaState::Draining } else { ReplicaState::Serving };
        let renewed = match store.renew_replica(incarnation, state, LEASE).await {
            Ok(false) if was_away => store.revive_replica(incarnation, state, LEASE).await,
            renewed => renewed,
        };
        match renewed {
            Ok(true) => {
                was_away = false;
                if let Err(error) = members.refresh().await {
                    warn!(%error, "the other replicas cannot be read");
                }
            }
            Ok(false) => {
                error!(replica = %incarnation, "the lease of this replica was over: it has to start anew");
                lost.cancel();
                return;
            }
            Err(error) => {
                was_away |= error.is_unanswered();
                warn!(%error, "the lease of this replica cannot be renewed");
            }
        }
    }
    if let Err(error) = store.end_replica(incarnation).await {
        warn!(%error, "the lease of this replica cannot be given up: it ends by itself");
    }
}
