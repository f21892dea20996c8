//! The list as it changes, as a stream of events (WHATWG HTML, section 9.2): for each exchange that changed, its row.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::exchange::Exchange;
use super::filter::Filter;
use super::log::{Log, Record};
use super::page;

/// Shortest time between two looks at the list: a burst of requests is one event.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest time without a byte: a stream that broke is noticed by then.
const BEAT: Duration = Duration::from_secs(15);

/// Most rows in one event: a page that missed more loads its list again.
const ROWS_MAX: usize = 100;

/// State of one stream.
struct Following {
    log: Arc<Log>,
    filter: Filter,
    /// The one exchange that is followed; `None` for the list.
    only: Option<u64>,
    changes: watch::Receiver<u64>,
    seen: u64,
    is_begun: bool,
}

/// Follows the list, or one exchange of it, from the change on that the page has seen.
pub(super) fn follow(log: Arc<Log>, filter: Filter, from: From) -> impl Stream<Item = Bytes> + Send + 'static {
    let mut changes = log.subscribe();
    let now = *changes.borrow_and_update();
    let seen = from.seen.unwrap_or(now);
    // What happened meanwhile is the first event; a number of an agent before this one is no place to go on from.
    if seen != now {
        changes.mark_changed();
    }
    let following = Following { log, filter, only: from.only, changes, seen, is_begun: false };
    unfold(following, |mut following| async move {
        let piece = following.next().await;
        Some((piece, following))
    })
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct From {
    /// The one exchange that is followed; `None` for the list.
    pub(super) only: Option<u64>,
    /// Number of the last change that the page shows.
    pub(super) seen: Option<u64>,
}

impl Following {
    /// Waits for the next piece: rows, or a comment when nothing changed for long.
    async fn next(&mut self) -> Bytes {
        if !std::mem::replace(&mut self.is_begun, true) {
            // Tells the page that it is connected.
            return Bytes::from_static(b"retry: 2000\nevent: begun\ndata: {}\n\n");
        }
        let until = Instant::now() + BEAT;
        loop {
            match tokio::time::timeout_at(until, self.changes.changed()).await {
                Err(_elapsed) => return Bytes::from_static(b": still here\n\n"),
                // The log lives as long as this stream does.
                Ok(Err(_)) => std::future::pending::<()>().await,
                Ok(Ok(())) => {}
            }
            tokio::time::sleep(PAUSE).await;
            if let Some(event) = self.event().await {
                return event;
            }
        }
    }

    async fn event(&mut self) -> Option<Bytes> {
        let (before, now) = (self.seen, *self.changes.borrow_and_update());
        self.seen = now;
        let all = self.log.list();
        let first = all.first().map_or(u64::MAX, |record| record.id);
        let is_mine = |record: &&Arc<Record>| self.only.is_none_or(|only| only == record.id);
        let changed: Vec<_> = all.iter().filter(|record| record.changed() > before).filter(is_mine).cloned().collect();
        if changed.len() > ROWS_MAX || before > now {
            return Some(Bytes::from(format!("id: {now}\nevent: many\ndata: {{}}\n\n")));
        }
        if changed.is_empty() && self.only.is_some() {
            return None;
        }
        let filter = self.filter.clone();
        // Beside the way of the bytes: a filter may have to search all that an exchange keeps.
        let made = tokio::task::spawn_blocking(move || {
            let chosen = changed.into_iter().map(|record| record.copy()).filter(|exchange| filter.chooses(exchange));
            let row = |exchange: Exchange| json!({ "id": exchange.id, "html": page::row(&exchange, &filter) });
            chosen.map(row).collect::<Vec<_>>()
        });
        let rows = made.await.unwrap_or_default();
        let message = json!({ "first": first, "rows": rows });
        Some(Bytes::from(format!("id: {now}\nevent: rows\ndata: {message}\n\n")))
    }
}
