//! Duties: background work that one replica does for all of them. The owner keeps a duty for as long as its lease lives, and
//! writes behind a [fence](super::Fence).

use std::collections::BTreeMap;
use std::time::Duration;

use super::database::{Row, sql, sql_of};
use super::replicas::{clock, clocked};
use super::{Incarnation, Store, StoreError};

/// Background work with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Duty {
    /// Time limits of workspaces.
    Timers,
    /// Workspaces in CI systems.
    Ci,
    /// Environments of CI jobs.
    Environments,
    /// Removal of rows that are of no use any more.
    Sweeps,
    /// Removal of old audit records.
    Audit,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Timers, Self::Ci, Self::Environments, Self::Sweeps, Self::Audit];

    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timers => "timers",
            Self::Ci => "ci",
            Self::Environments => "environments",
            Self::Sweeps => "sweeps",
            Self::Audit => "audit",
        }
    }
}

/// The duties, as the store says at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DutyOwners {
    /// Owners that live. Duties without one are free.
    pub owners: BTreeMap<Duty, Incarnation>,
    /// Number of the replicas that take duties.
    pub serving: usize,
    /// Rest of the lease of the replica that asked; zero if it is over.
    pub lease: Duration,
}

impl Store {
    /// Returns the owners of all duties, for a replica that has some or may take some.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn duties(&self, replica: Incarnation) -> Result<DutyOwners, StoreError> {
        let statement = clocked!(
            "SELECT name, (SELECT id FROM replicas WHERE id = duties.owner AND expires_at > ",
            ") AS owner, (SELECT count(*) FROM replicas WHERE state = 'serving' AND expires_at > ",
            ") AS serving, (SELECT expires_at FROM replicas WHERE id = $1) - ",
            " AS lease FROM duties"
        );
        let rows = statement.bind(replica.0).fetch_all(&self.readers).await?;
        let mut found = DutyOwners { owners: BTreeMap::new(), serving: 0, lease: Duration::ZERO };
        for row in &rows {
            found.serving = usize::try_from(row.get::<i64>("serving")?).unwrap_or_default();
            let lease: Option<i64> = row.get("lease")?;
            found.lease = Duration::from_millis(u64::try_from(lease.unwrap_or_default()).unwrap_or_default());
            if let Some((duty, owner)) = read(row)? {
                found.owners.insert(duty, owner);
            }
        }
        Ok(found)
    }

    /// Takes a duty that has no live owner, or that the replica has already. `false` if another one has it, or is taking it or
    /// writing as its owner right now; also for a replica that drains, or whose lease is over.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    ///
    /// # Cancel safety
    /// Dropped before it returns, it has taken the duty or not.
    pub async fn take_duty(&self, duty: Duty, replica: Incarnation) -> Result<bool, StoreError> {
        // A row that is locked is not waited for: a replica may be paused while it has the lock.
        macro_rules! taking {
            ($database:ident, $lock:literal) => {
                concat!(
                    "UPDATE duties SET owner = $1 WHERE name IN (SELECT name FROM duties WHERE name = $2 AND (owner IS NULL \
                     OR owner = $1 OR owner NOT IN (SELECT id FROM replicas WHERE expires_at > ",
                    clock!($database),
                    "))",
                    $lock,
                    ") AND EXISTS (SELECT 1 FROM replicas WHERE id = $1 AND state = 'serving' AND expires_at > ",
                    clock!($database),
                    ")"
                )
            };
        }
        let statement = sql_of(taking!(sqlite, ""), taking!(postgres, " FOR NO KEY UPDATE SKIP LOCKED"));
        let taken = statement.bind(replica.0).bind(duty.as_str()).execute(&self.writer).await?;
        Ok(taken > 0)
    }

    /// Gives a duty up, if the replica has it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn give_duty_up(&self, duty: Duty, replica: Incarnation) -> Result<(), StoreError> {
        let statement = sql("UPDATE duties SET owner = NULL WHERE name = $1 AND owner = $2");
        statement.bind(duty.as_str()).bind(replica.0).execute(&self.writer).await?;
        Ok(())
    }
}

/// Reads a duty and its owner. A later version may have duties that this one does not know.
fn read(row: &Row) -> Result<Option<(Duty, Incarnation)>, StoreError> {
    let (name, owner): (String, Option<i64>) = (row.get("name")?, row.get("owner")?);
    let duty = Duty::ALL.into_iter().find(|duty| duty.as_str() == name);
    Ok(duty.zip(owner.map(Incarnation)))
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::each::{each, warm};
    use crate::{NewReplica, ReplicaState};

    const LEASE: Duration = Duration::from_secs(60);

    async fn replica(store: &Store) -> Incarnation {
        let new =
            NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease: LEASE };
        store.add_replica(&new).await.unwrap().unwrap()
    }

    async fn owner(store: &Store, duty: Duty) -> Option<Incarnation> {
        store.duties(Incarnation(1)).await.unwrap().owners.get(&duty).copied()
    }

    #[tokio::test]
    async fn duty_has_one_owner_until_its_lease_is_over_or_it_gives_it_up() {
        each(async |store| {
            let (first, second) = (replica(store).await, replica(store).await);
            let found = store.duties(first).await.unwrap();
            assert_eq!((found.owners.len(), found.serving), (0, 2));
            assert!(found.lease <= LEASE && found.lease > LEASE / 2, "{found:?}");
            for _ in 0..2 {
                assert!(store.take_duty(Duty::Ci, first).await.unwrap(), "also one that it has");
            }
            assert!(!store.take_duty(Duty::Ci, second).await.unwrap());
            assert!(store.take_duty(Duty::Timers, second).await.unwrap());
            assert_eq!((owner(store, Duty::Ci).await, owner(store, Duty::Sweeps).await), (Some(first), None));
            // Its lease is over.
            store.renew_replica(first, ReplicaState::Serving, Duration::ZERO).await.unwrap();
            assert_eq!(owner(store, Duty::Ci).await, None);
            assert_eq!(store.duties(first).await.unwrap().lease, Duration::ZERO);
            assert!(!store.take_duty(Duty::Ci, first).await.unwrap());
            assert!(store.take_duty(Duty::Ci, second).await.unwrap());
            // What another one has is not given up.
            store.give_duty_up(Duty::Ci, first).await.unwrap();
            assert_eq!(owner(store, Duty::Ci).await, Some(second));
            store.give_duty_up(Duty::Ci, second).await.unwrap();
            assert_eq!(owner(store, Duty::Ci).await, None);
            // One that drains takes nothing, and counts for nothing.
            store.renew_replica(second, ReplicaState::Draining, LEASE).await.unwrap();
            assert!(!store.take_duty(Duty::Ci, second).await.unwrap());
            assert_eq!(store.duties(second).await.unwrap().serving, 0);
        })
        .await;
    }

    #[tokio::test]
    async fn one_of_many_that_ask_at_once_gets_a_duty() {
        each(async |store| {
            warm(store).await;
            let mut replicas = Vec::new();
            for _ in 0..8 {
                replicas.push(replica(store).await);
            }
            for duty in Duty::ALL {
                let mut takes = JoinSet::new();
                for one in replicas.clone() {
                    let store = store.clone();
                    takes.spawn(async move { store.take_duty(duty, one).await.unwrap().then_some(one) });
                }
                let taken: Vec<_> = takes.join_all().await.into_iter().flatten().collect();
                assert_eq!(taken.len(), 1, "{duty:?}");
                assert_eq!(owner(store, duty).await, Some(taken[0]));
            }
        })
        .await;
    }
}
