//! Live updates of the first page, as server-sent events: `rows` has what changed of rows that are there (HTML, escaped by the
//! templates), `lists` says that there are other rows or another order.
//!
//! Each stream reads its user's lists again after a change of one of them, after an agent came or went, and now and then, and
//! keeps of each row no more than a hash. A change that is missed is found by the next reading.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use http::Uri;
use serde_json::{Map, json};
use tokio::time::{Instant, timeout_at};

use super::overview::{Overview, hash_of};
use gateway_agents::registry::Registry;
use gateway_api::events::HEARTBEAT_INTERVAL;
use gateway_api::page::only;
use gateway_api::permits::ApiPermit;
use gateway_api::presence::is_here;
use gateway_api::problem::ProblemRow;
use gateway_api::{ApiShared, Caller, answer};
use gateway_store::WorkspaceId;
use gateway_types::WorkspaceName;
use gateway_types::principal::Principal;
use gateway_workspaces::changes::{ChangeNews, Subscriber};

/// Interval at which it is checked whose agents are connected here, because no change reports it.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the lists are read without any change: for shares, other replicas' agents and other processes' changes.
const READ_INTERVAL: Duration = Duration::from_secs(15);

/// Shortest time between two readings: changes come in crowds.
const CROWD_TIME: Duration = Duration::from_millis(300);

/// Event that has a reader load everything.
const LISTS: &str = "event: lists\ndata:\n\n";

/// Follows the lists of the caller. `seen` in the query is what the page has, so that nothing in between is missed.
///
/// Cancel safety: safe.
pub(crate) async fn follow(
    State(api): State<Arc<ApiShared>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, ProblemRow> {
    // Listens first: a change between the reading and the listening would be missed.
    let listener = api.lifecycles.listen();
    let principal = caller.user()?.clone();
    let permit = api.followers.take(&principal.user)?;
    let overview = Overview::read(&api, &principal).await?;
    let seen = only(uri.query().unwrap_or_default().as_bytes(), "seen");
    let mut shown = Shown::default();
    let all = shown.take(&overview, &api.registry);
    let first = if seen == Some(overview.tag()) { String::new() } else { all };
    let now = Instant::now();
    let follower = Follower { first, shown, listener, principal, read_at: now, sent_at: now, _permit: permit, api };
    Ok(answer::events(stream::unfold(follower, Follower::next)))
}

/// Reader of a user's lists.
struct Follower {
    api: Arc<ApiShared>,
    principal: Principal,
    /// Event that it is to be sent at once.
    first: String,
    shown: Shown,
    listener: Subscriber,
    read_at: Instant,
    sent_at: Instant,
    _permit: ApiPermit,
}

/// Reason for which a reader goes on.
enum Wake {
    /// Something changed, or the lists were not read for long.
    Change,
    /// A moment without anything.
    Silence,
    /// The gateway drains.
    Drain,
}

/// Rows that a reader has been sent, by their hashes.
#[derive(Default)]
struct Shown {
    own: HashMap<WorkspaceId, ShownRow>,
    shared: HashMap<WorkspaceName, u64>,
    /// Names in their order.
    order: u64,
}

struct ShownRow {
    name: WorkspaceName,
    hash: u64,
    /// Its agent is connected to this replica.
    is_here: bool,
}

impl Follower {
    /// Waits for something to send. A drain ends it without an event, so that the reader comes again, elsewhere.
    async fn next(mut self) -> Option<(Result<String, Infallible>, Self)> {
        loop {
            let mut text = std::mem::take(&mut self.first);
            if text.is_empty() {
                match self.wait().await {
                    Wake::Drain => return None,
                    Wake::Silence => {}
                    Wake::Change => text = self.read().await,
                }
            }
            if text.is_empty() && self.sent_at.elapsed() >= HEARTBEAT_INTERVAL {
                text.push_str(":\n\n");
            }
            if !text.is_empty() {
                self.sent_at = Instant::now();
                return Some((Ok(text), self));
            }
        }
    }

    async fn read(&mut self) -> String {
        self.read_at = Instant::now();
        match Overview::read(&self.api, &self.principal).await {
            Ok(overview) => self.shown.take(&overview, &self.api.registry),
            Err(error) => {
                // The page stays true enough until the store answers again.
                tracing::warn!(%error, "the store did not answer a reader of a list of workspaces");
                String::new()
            }
        }
    }

    /// Waits until the lists are to be read, or a moment is over.
    async fn wait(&mut self) -> Wake {
        let draining = self.api.drain.draining().clone();
        let until = Instant::now() + PRESENCE_INTERVAL;
        loop {
            let news = tokio::select! {
                biased;
                () = draining.cancelled() => return Wake::Drain,
                news = timeout_at(until, self.listener.next()) => news,
            };
            match news {
                Ok(ChangeNews::Change(change)) if !self.shown.own.contains_key(&change.workspace) => {}
                Ok(ChangeNews::Change(_) | ChangeNews::Missed) => break,
                Err(_) if self.shown.has_moved(&self.api.registry) || self.read_at.elapsed() >= READ_INTERVAL => break,
                Err(_) => return Wake::Silence,
            }
        }
        // Changes come in crowds, and one reading answers them all.
        let until = (self.read_at + CROWD_TIME).max(Instant::now() + CROWD_TIME / 6);
        while timeout_at(until, self.listener.next()).await.is_ok() {}
        Wake::Change
    }
}

impl Shown {
    /// Takes what there is now, and writes the events that tell a reader the difference.
    fn take(&mut self, now: &Overview, registry: &Registry) -> String {
        let mut own = HashMap::new();
        let mut rows = Map::new();
        for row in &now.own {
            let hash = hash_of(&row.html);
            if self.own.remove(&row.id).is_some_and(|before| before.hash != hash) {
                rows.insert(row.name.to_string(), row.html.as_str().into());
            }
            own.insert(row.id, ShownRow { name: row.name.clone(), hash, is_here: is_here(registry, &row.name) });
        }
        self.own = own;
        let mut shared = HashMap::new();
        let mut shared_rows = Map::new();
        for row in &now.shared {
            let hash = hash_of(&row.html);
            if self.shared.remove(&row.name).is_some_and(|before| before != hash) {
                shared_rows.insert(row.name.to_string(), row.html.as_str().into());
            }
            shared.insert(row.name.clone(), hash);
        }
        self.shared = shared;
        let order = now.order();
        let is_moved = std::mem::replace(&mut self.order, order) != order;
        if is_moved {
            // The reader loads all of it.
            return LISTS.to_owned();
        }
        let changed = [("own", rows), ("shared", shared_rows)].into_iter().filter(|(_, rows)| !rows.is_empty());
        changed.map(|(list, rows)| format!("event: rows\ndata: {}\n\n", json!({"list": list, "rows": rows}))).collect()
    }

    /// Returns whether an agent came or went at this replica.
    fn has_moved(&self, registry: &Registry) -> bool {
        self.own.values().any(|row| is_here(registry, &row.name) != row.is_here)
    }
}

#[cfg(test)]
mod tests {
    use super::super::overview::tests::overview;
    use super::*;

    #[test]
    fn only_what_changed_is_sent_and_another_order_has_all_loaded() {
        let registry = Registry::new(1, 1);
        let mut shown = Shown::default();
        assert_eq!(shown.take(&overview(&[("a", "one"), ("b", "one")]), &registry), LISTS, "it has seen nothing");
        assert_eq!(shown.take(&overview(&[("a", "one"), ("b", "one")]), &registry), "");
        let text = shown.take(&overview(&[("a", "one"), ("b", "two\nlines")]), &registry);
        assert_eq!(text, "event: rows\ndata: {\"list\":\"own\",\"rows\":{\"b\":\"two\\nlines\"}}\n\n");
        assert_eq!(shown.take(&overview(&[("b", "two\nlines"), ("a", "one")]), &registry), LISTS);
        assert_eq!(shown.take(&overview(&[("b", "two\nlines")]), &registry), LISTS, "one is gone");
        assert_eq!(shown.own.len(), 1);
    }
}
