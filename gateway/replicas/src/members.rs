//! The replicas that live, as the store said last. A renewal of the lease refreshes the view, and so does the search for a
//! replica that is not in it. While the store is away the view stays as it was: no replica is taken for dead because of that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_store::{ReplicaState, Store, StoreError, StoredReplica};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Shortest time between two refreshments for replicas that are not known: agents may name any number.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// View of the replicas that live.
#[derive(Debug)]
pub struct Members {
    store: Store,
    view: RwLock<MembersView>,
    /// Time of the last refreshment for a replica that was not known. Its lock makes one task read for all that wait.
    refreshed: Mutex<Option<Instant>>,
}

/// The replicas that live, as they were read last.
#[derive(Debug)]
struct MembersView {
    /// By number of the process start.
    members: HashMap<u64, Member>,
    /// Time at which a replica was new or gone, or began to drain.
    changed: Instant,
}

#[derive(Debug)]
struct Member {
    url: Arc<str>,
    is_serving: bool,
    agents: u64,
}

impl Members {
    /// Makes an empty view.
    #[must_use]
    pub fn new(store: Store) -> Self {
        let view = MembersView { members: HashMap::new(), changed: Instant::now() };
        Self { store, view: RwLock::new(view), refreshed: Mutex::default() }
    }

    /// Returns the address of a replica that lives.
    ///
    /// # Errors
    /// [`StoreError`] for one that is not known while the store is away.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn url_of(&self, replica: u64) -> Result<Option<Arc<str>>, StoreError> {
        let known = || self.view.read().members.get(&replica).map(|member| member.url.clone());
        if let Some(url) = known() {
            return Ok(Some(url));
        }
        let mut refreshed = self.refreshed.lock().await;
        if known().is_none() && refreshed.is_none_or(|last| last.elapsed() >= REFRESH_INTERVAL) {
            self.refresh().await?;
            *refreshed = Some(Instant::now());
        }
        Ok(known())
    }

    /// Returns whether a replica lived when the view was read.
    #[must_use]
    pub fn is_known(&self, replica: u64) -> bool {
        self.view.read().members.contains_key(&replica)
    }

    /// Returns how many agents each other replica that serves had when the view was read.
    #[must_use]
    pub fn agents_of_others(&self, own: u64) -> Vec<u64> {
        let view = self.view.read();
        let others = view.members.iter().filter(|(replica, member)| **replica != own && member.is_serving);
        others.map(|(_, member)| member.agents).collect()
    }

    /// Returns for how long the same replicas have served.
    #[must_use]
    pub fn settled_for(&self) -> Duration {
        self.view.read().changed.elapsed()
    }

    /// Returns the replicas that lived when the view was read, with their addresses.
    #[must_use]
    pub fn all(&self) -> Vec<(u64, Arc<str>)> {
        self.view.read().members.iter().map(|(replica, member)| (*replica, member.url.clone())).collect()
    }

    /// Reads the replicas that live.
    ///
    /// # Errors
    /// [`StoreError`]; the view stays as it was.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let replicas = self.store.replicas().await?;
        let member = |replica: StoredReplica| {
            let is_serving = replica.state == ReplicaState::Serving && replica.drain.is_none();
            let member = Member { url: replica.peer_url.into(), is_serving, agents: replica.report.agents };
            (replica.incarnation.get(), member)
        };
        let members: HashMap<u64, Member> = replicas.into_iter().map(member).collect();
        let mut view = self.view.write();
        let is_same = |(replica, member): (&u64, &Member)| {
            view.members.get(replica).is_some_and(|before| before.is_serving == member.is_serving)
        };
        if members.len() != view.members.len() || !members.iter().all(is_same) {
            view.changed = Instant::now();
        }
        view.members = members;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_store::{Incarnation, NewReplica};

    async fn added(store: &Store, peer_url: &str) -> Incarnation {
        let lease = Duration::from_secs(60);
        let new = NewReplica { peer_url, version: "1", zone: "z", public_url: "https://z", lease };
        store.add_replica(&new).await.expect("the store").expect("the same settings")
    }

    #[tokio::test]
    async fn replica_is_known_until_a_refreshment_says_that_it_is_gone() {
        let store = Store::open("sqlite::memory:").await.expect("a store");
        let members = Members::new(store.clone());
        let first = added(&store, "https://a:1").await;
        let url = async |replica: Incarnation| {
            members.url_of(replica.get()).await.expect("the store").map(|url| url.to_string())
        };
        assert_eq!(url(first).await.as_deref(), Some("https://a:1"));
        store.end_replica(first).await.expect("the store");
        assert_eq!(url(first).await.as_deref(), Some("https://a:1"), "nothing was read for it");
        members.refresh().await.expect("the store");
        tokio::time::sleep(REFRESH_INTERVAL).await;
        assert_eq!(url(first).await, None);
        // Just read: a flood of numbers that no replica has costs the store little.
        let second = added(&store, "https://b:1").await;
        assert_eq!(url(second).await, None);
        tokio::time::sleep(REFRESH_INTERVAL).await;
        assert_eq!(url(second).await.as_deref(), Some("https://b:1"));
    }

    #[tokio::test]
    async fn view_stays_as_it_was_while_the_store_is_away() {
        let store = Store::open("sqlite::memory:").await.expect("a store");
        let members = Members::new(store.clone());
        let first = added(&store, "https://a:1").await;
        members.refresh().await.expect("the store");
        store.close().await;
        assert!(members.refresh().await.is_err());
        assert!(members.url_of(first.get()).await.expect("known").is_some());
        assert!(members.url_of(99).await.is_err());
    }
}
