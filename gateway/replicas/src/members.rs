//! The replicas that live, as the store said last. A renewal of the lease refreshes the view, and so does the search for a
//! replica that is not in it. While the store is away the view stays as it was: no replica is taken for dead because of that.
//! Nor is one whose lease has ended: it may have lost the store alone, so it can be asked for an hour.

use std::collections::{BTreeSet, HashMap};
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

/// The replicas that may be there, as they were read last.
#[derive(Debug)]
struct MembersView {
    /// By number of the process start.
    members: HashMap<u64, Member>,
    /// Time at which a replica that serves was new, or gone.
    changed: Instant,
}

/// A replica that may be there.
#[derive(Debug)]
struct Member {
    url: Arc<str>,
    is_live: bool,
    /// Whether it lives, and takes users and agents.
    is_serving: bool,
    agents: u64,
}

impl MembersView {
    /// Returns the replicas that serve.
    fn serving(&self) -> BTreeSet<u64> {
        self.members.iter().filter(|(_, member)| member.is_serving).map(|(replica, _)| *replica).collect()
    }
}

impl Members {
    /// Makes an empty view.
    #[must_use]
    pub fn new(store: Store) -> Self {
        let view = MembersView { members: HashMap::new(), changed: Instant::now() };
        Self { store, view: RwLock::new(view), refreshed: Mutex::default() }
    }

    /// Returns the address of a replica that lives, or may.
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

    /// Returns whether a replica may have been there when the view was read.
    #[must_use]
    pub fn is_known(&self, replica: u64) -> bool {
        self.view.read().members.contains_key(&replica)
    }

    /// Returns whether a replica had this address when the view was read, or was not in it.
    #[must_use]
    pub fn may_be_at(&self, replica: u64, url: &str) -> bool {
        self.view.read().members.get(&replica).is_none_or(|member| &*member.url == url)
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

    /// Returns the replicas that lived when the view was read, with their addresses, in no order.
    #[must_use]
    pub fn living(&self) -> Vec<(u64, Arc<str>)> {
        let view = self.view.read();
        let living = view.members.iter().filter(|(_, member)| member.is_live);
        living.map(|(replica, member)| (*replica, member.url.clone())).collect()
    }

    /// Reads the replicas that may be there.
    ///
    /// # Errors
    /// [`StoreError`]; the view stays as it was.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let replicas = self.store.known_replicas().await?;
        let member = |replica: StoredReplica| {
            let is_live = replica.is_live();
            let is_serving = is_live && replica.state == ReplicaState::Serving && replica.drain.is_none();
            let member = Member { url: replica.peer_url.into(), is_live, is_serving, agents: replica.report.agents };
            (replica.incarnation.get(), member)
        };
        let members: HashMap<u64, Member> = replicas.into_iter().map(member).collect();
        let mut view = self.view.write();
        let before = view.serving();
        view.members = members;
        if view.serving() != before {
            view.changed = Instant::now();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_store::{Incarnation, NewReplica, ReplicaState};

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
    async fn replica_whose_lease_is_over_can_be_asked_and_does_not_count_as_living() {
        let store = Store::open("sqlite::memory:").await.expect("a store");
        let members = Members::new(store.clone());
        let first = added(&store, "https://a:1").await;
        members.refresh().await.expect("the store");
        assert_eq!(members.living(), [(first.get(), "https://a:1".into())]);
        store.renew_replica(first, ReplicaState::Serving, Duration::ZERO).await.expect("the store");
        members.refresh().await.expect("the store");
        assert_eq!(members.living(), []);
        assert!(members.is_known(first.get()));
        assert!(members.url_of(first.get()).await.expect("the store").is_some());
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
