//! The current keys of one issuer: fetched on demand, by one request at a time, and rate-limited.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{Claims, Expect, IssuerKeys, TokenRefused, verify};
use gateway_types::UnixSeconds;

/// The least time between two requests for keys while there are some. Any client can show a token with a made-up key
/// id; this bounds the cost for the issuer.
pub const COOL_DOWN: Duration = Duration::from_secs(30);

/// The least time between two requests while there are no keys at all.
pub const RETRY_AFTER: Duration = Duration::from_secs(3);

/// Keys older than this are fetched anew, so that a key withdrawn by the issuer ends. The old ones stay valid
/// meanwhile, and for as long as the issuer cannot be reached.
pub const KEYS_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// Time limit of a request for keys.
pub const LOAD_TIME_MAX: Duration = Duration::from_secs(20);

/// Asks the issuer for its key set; the error is for the log.
type Load = Box<dyn Fn() -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// The current time on both clocks: the wall clock for the times in tokens, the monotonic one for waiting.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The wall clock.
    pub wall: UnixSeconds,
    /// The monotonic clock.
    pub clock: Instant,
}

/// An issuer's keys, kept up to date.
///
/// # Invariants
///
/// At most one request for keys is under way, and requests begin at least [`COOL_DOWN`] apart ([`RETRY_AFTER`] without
/// any keys). Keys that were read are replaced by newer ones only.
pub struct KeySet {
    load: Load,
    shared: Arc<KeySetShared>,
    /// Owns the request under way: it runs to its end even if no caller waits for it any more. Otherwise a client that
    /// hangs up each time could keep new keys from ever being read.
    tasks: Mutex<JoinSet<()>>,
}

/// State of the requests for an issuer's keys, as operators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerHealth {
    /// Time of the last request that was answered as it should be.
    pub read_at: Option<UnixSeconds>,
    /// Time of the last request that failed, if none has been answered since.
    pub failed_at: Option<UnixSeconds>,
    /// The reason for that, in the words of the log.
    pub failure: Option<String>,
}

/// Sees how an issuer's keys are, without a hold on the issuer.
#[derive(Clone)]
pub struct KeySetObserver(Arc<KeySetShared>);

impl fmt::Debug for KeySetObserver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("KeySetObserver").field(&self.health()).finish()
    }
}

impl KeySetObserver {
    /// Returns how the last requests ended.
    #[must_use]
    pub fn health(&self) -> IssuerHealth {
        self.0.state.lock().health.clone()
    }
}

struct KeySetShared {
    state: Mutex<KeySetState>,
    /// Counts the requests that have ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct KeySetState {
    keys: Option<Arc<IssuerKeys>>,
    read: Option<Instant>,
    begun: Option<Instant>,
    is_under_way: bool,
    readings: u64,
    health: IssuerHealth,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_keys = self.shared.state.lock().keys.is_some();
        formatter.debug_struct("KeySet").field("has_keys", &has_keys).finish_non_exhaustive()
    }
}

impl KeySet {
    /// Creates a set without keys. `load` asks the issuer for its key set, as JSON.
    pub fn new<L, F>(load: L) -> Self
    where
        L: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let shared = KeySetShared { state: Mutex::default(), ended: watch::Sender::new(0) };
        Self { load: Box::new(move || Box::pin(load())), shared: Arc::new(shared), tasks: Mutex::default() }
    }

    /// Returns an observer of its requests.
    #[must_use]
    pub fn observer(&self) -> KeySetObserver {
        KeySetObserver(self.shared.clone())
    }

    /// Checks a token, and asks the issuer for its keys if the token's key is not known and a request is due.
    ///
    /// # Errors
    ///
    /// [`TokenRefused`]; the cause of [`TokenRefused::KeysUnavailable`] is in the log. [`TokenRefused::UnknownKey`] means that the
    /// issuer answered during this call and lacks the key; if it was not asked, or did not answer, the error is
    /// [`TokenRefused::UnknownKeySoFar`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn verify(&self, token: &str, expect: &Expect<'_>, now: Moment) -> Result<Claims, TokenRefused> {
        let (held, before) = (self.current(now), self.readings());
        let first = held.as_ref().map(|keys| verify(token, expect, keys, now.wall));
        match first {
            Some(Err(TokenRefused::UnknownKey)) | None => {}
            Some(answer) => return answer,
        }
        // A token that no key could make good is not worth a request.
        super::TokenParts::of(token, expect.algorithms)?;
        self.refresh(now).await;
        let keys = self.current(now).ok_or(TokenRefused::KeysUnavailable)?;
        match verify(token, expect, &keys, now.wall) {
            Err(TokenRefused::UnknownKey) if self.readings() == before => Err(TokenRefused::UnknownKeySoFar),
            answer => answer,
        }
    }

    /// Returns the number of times that keys were read.
    fn readings(&self) -> u64 {
        self.shared.state.lock().readings
    }

    /// Returns once a request for keys has ended, or at once if it is too soon for one.
    ///
    /// # Cancel safety
    ///
    /// Safe: the request goes on.
    pub async fn refresh(&self, now: Moment) {
        let mut ended = self.shared.ended.subscribe();
        if self.begin(now) {
            // Fails only if the sender is gone, and we hold it.
            drop(ended.changed().await);
        }
    }

    /// Returns the keys, and begins to fetch them anew if they are old.
    fn current(&self, now: Moment) -> Option<Arc<IssuerKeys>> {
        let (keys, is_old) = {
            let state = self.shared.state.lock();
            let is_old = state.read.is_some_and(|read| now.clock.saturating_duration_since(read) >= KEYS_AGE_MAX);
            (state.keys.clone(), is_old)
        };
        if is_old {
            self.begin(now);
        }
        keys
    }

    /// Begins a request if none is under way and it is not too soon; returns whether one is under way.
    fn begin(&self, now: Moment) -> bool {
        {
            let mut state = self.shared.state.lock();
            if state.is_under_way {
                return true;
            }
            let pause = if state.keys.is_some() { COOL_DOWN } else { RETRY_AFTER };
            if state.begun.is_some_and(|begun| now.clock.saturating_duration_since(begun) < pause) {
                return false;
            }
            state.begun = Some(now.clock);
            state.is_under_way = true;
        }
        let pending = PendingLoad { shared: self.shared.clone(), read: now.clock, wall: now.wall };
        let loading = (self.load)();
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let found = timeout(LOAD_TIME_MAX, loading).await;
            pending.end(found.unwrap_or_else(|_| Err(format!("no answer within {LOAD_TIME_MAX:?}"))));
        });
        true
    }
}

/// A request under way. Dropping it marks the request as ended, also if its task panics.
struct PendingLoad {
    shared: Arc<KeySetShared>,
    read: Instant,
    wall: UnixSeconds,
}

impl PendingLoad {
    fn end(self, found: Result<Value, String>) {
        let parsed = found.and_then(|document| IssuerKeys::parse(&document).map_err(|bad| bad.to_string()));
        match parsed {
            Ok(keys) => {
                let mut state = self.shared.state.lock();
                state.keys = Some(Arc::new(keys));
                state.read = Some(self.read);
                state.readings = state.readings.wrapping_add(1);
                state.health = IssuerHealth { read_at: Some(self.wall), ..IssuerHealth::default() };
            }
            Err(why) => {
                tracing::warn!(%why, "an issuer's keys cannot be read");
                let mut state = self.shared.state.lock();
                state.health.failed_at = Some(self.wall);
                state.health.failure = Some(why);
            }
        }
    }
}

impl Drop for PendingLoad {
    fn drop(&mut self) {
        self.shared.state.lock().is_under_way = false;
        self.shared.ended.send_modify(|count| *count = count.wrapping_add(1));
    }
}
