//! What counts as use of a workspace, where users' bytes pass: at the replica that has the user's connection. What comes over a hop
//! from there is not counted again.
//!
//! Counts: pages that a person opens, changing requests and their bodies, data of WebSockets from the user, and bytes of raw
//! streams, but for those that programs send by themselves. Does not: reads, and so polls and event streams; everything that an
//! app sends; pings; and a connection by itself. Anonymous visitors of a public port do not count either: nothing shows that
//! they are people.
//!
//! The way of a byte costs one look at the clock and one comparison of an atomic number; a time is stored at most once a second. A
//! task writes what is new into the store, per workspace at most once in `idle.record_interval`.

pub(crate) mod beats;
mod input;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(crate) use self::input::InputRule;
use gateway_auth::shape::is_page_visit;
use gateway_store::{Store, WorkspaceActivity, wall_clock};
use gateway_types::{Activity, ActivityKind, UnixSeconds, UserName, WorkspaceName};

/// Longest time between two looks for what is to be written.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_USER: HeaderName = HeaderName::from_static("sec-fetch-user");

/// Returns what a request of a user counts as, if it does.
///
/// A page that loads itself again (`refresh`, `location.reload()`) is no visit: such a navigation comes from the page's own origin
/// and without the user's act, which browsers tell in `Sec-Fetch-User` (Fetch Metadata, section 2.4).
pub(crate) fn of_request(parts: &Parts) -> Option<ActivityKind> {
    let says = |headers: &HeaderMap, name: &HeaderName, expected: &str| {
        headers.get(name).is_some_and(|value| value.as_bytes() == expected.as_bytes())
    };
    let headers = &parts.headers;
    match parts.method {
        // A report of the browser's own (Reporting API) is sent by no person.
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
            (!says(headers, &SEC_FETCH_DEST, "report")).then_some(ActivityKind::Change)
        }
        Method::GET if is_page_visit(&parts.method, headers) => {
            let reloads_itself = says(headers, &SEC_FETCH_SITE, "same-origin") && !says(headers, &SEC_FETCH_USER, "?1");
            (!reloads_itself).then_some(ActivityKind::Visit)
        }
        _ => None,
    }
}

/// Last use of one workspace, as this replica saw it.
#[derive(Debug)]
struct WorkspaceUse {
    /// Its time in seconds since 1970; 0 for none.
    at: AtomicI64,
    last: Mutex<Option<(ActivityKind, Option<UserName>)>>,
}

impl WorkspaceUse {
    fn note(&self, kind: ActivityKind, user: Option<&UserName>, now: UnixSeconds) {
        if self.at.load(Ordering::Relaxed) >= now.get() {
            return;
        }
        // Once a second at most. Two at once both write, and either is right.
        *self.last.lock() = Some((kind, user.cloned()));
        self.at.store(now.get(), Ordering::Relaxed);
    }
}

/// One user's use of one workspace.
#[derive(Clone, Debug)]
pub(crate) struct UserActivity {
    of: Arc<WorkspaceUse>,
    user: UserName,
}

impl UserActivity {
    /// Notes that the user did something now.
    pub(crate) fn note(&self, kind: ActivityKind) {
        self.of.note(kind, Some(&self.user), wall_clock());
    }
}

/// What has been written of one workspace.
#[derive(Debug)]
struct Entry {
    of: Arc<WorkspaceUse>,
    /// Time of the use that the store has.
    stored: i64,
    /// Time of the last write.
    written: i64,
}

/// Last use of all workspaces, as this replica saw it.
#[derive(Debug, Default)]
pub struct Activities(Mutex<HashMap<WorkspaceName, Entry>>);

impl Activities {
    /// Returns the place in which a user's use of a workspace is noted. For those that open something, and not for each request.
    pub(crate) fn of(&self, workspace: &WorkspaceName, user: &UserName) -> UserActivity {
        UserActivity { of: self.entry(workspace), user: user.clone() }
    }

    /// Notes that a command in a workspace wants to be waited for.
    pub fn busy(&self, workspace: &WorkspaceName) {
        self.entry(workspace).note(ActivityKind::Busy, None, wall_clock());
    }

    fn entry(&self, workspace: &WorkspaceName) -> Arc<WorkspaceUse> {
        let mut all = self.0.lock();
        let entry = all.entry(workspace.clone()).or_insert_with(|| Entry {
            of: Arc::new(WorkspaceUse { at: AtomicI64::new(0), last: Mutex::default() }),
            stored: 0,
            written: 0,
        });
        entry.of.clone()
    }

    /// Takes what is to be written now, and forgets workspaces that no user has open.
    fn due(&self, now: UnixSeconds, interval: Duration) -> Vec<WorkspaceActivity> {
        let (now, interval) = (now.get(), i64::try_from(interval.as_secs()).unwrap_or(i64::MAX));
        let mut due = Vec::new();
        self.0.lock().retain(|workspace, entry| {
            let at = entry.of.at.load(Ordering::Relaxed);
            if at > entry.stored && now.saturating_sub(entry.written) >= interval {
                let last = entry.of.last.lock().clone();
                if let Some((kind, user)) = last {
                    let activity = Activity { at: UnixSeconds::new(at), kind, user };
                    due.push(WorkspaceActivity { workspace: workspace.clone(), activity });
                    (entry.stored, entry.written) = (at, now);
                }
            }
            // Kept for as long as the next write would come too early.
            at > entry.stored || Arc::strong_count(&entry.of) > 1 || now.saturating_sub(entry.written) < interval
        });
        due
    }

    /// Marks as new again what could not be written.
    fn put_back(&self, unwritten: &[WorkspaceActivity]) {
        let mut all = self.0.lock();
        for seen in unwritten {
            if let Some(entry) = all.get_mut(&seen.workspace) {
                (entry.stored, entry.written) = (seen.activity.at.get() - 1, 0);
            }
        }
    }

    /// Writes use into the store until `stop`, each workspace's at most once in `interval`, and all that is left at the end.
    pub async fn record(self: Arc<Self>, store: Store, interval: Duration, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK_INTERVAL.min(interval));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fails = false;
        loop {
            let is_last = tokio::select! {
                () = stop.cancelled() => true,
                _ = ticks.tick() => false,
            };
            let due = self.due(wall_clock(), if is_last { Duration::ZERO } else { interval });
            if !due.is_empty() {
                let written = store.note_activity(due.clone()).await;
                if let Err(error) = &written {
                    self.put_back(&due);
                    if !fails {
                        warn!(%error, "the use of workspaces cannot be recorded now");
                    }
                }
                fails = written.is_err();
            }
            if is_last {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
