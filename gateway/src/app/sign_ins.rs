//! Keeps sign-ins in the store, so that they outlive this process and other replicas find them: written behind the changes in
//! memory. The only gateway reads them at its start; a replica reads each when its browser first comes there.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::shared_sign_ins::StoredSignIns;
use gateway_auth::attempts::WINDOW;
use gateway_auth::browser::persistence::Both;
use gateway_auth::browser::{BrowserSessions, Lifetimes};
use gateway_auth::device::DEVICE_AGE_MAX;
use gateway_auth::device::Devices;
use gateway_auth::shared::Shared;
use gateway_config::{Config, Directory};
use gateway_store::{Obsolete, Store, StoreError, wall_clock};
use gateway_types::UnixSeconds;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::DeviceChange;
use gateway_types::sign_in_rows::SessionChange;

/// Rows of one batch.
const BATCH_MAX: usize = 256;

/// Time limit of one batch.
const WRITE_TIME_MAX: Duration = Duration::from_secs(2);

/// Pause after a batch that the store did not take.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which uses are recorded, and expired sign-ins are forgotten.
const USES_INTERVAL: Duration = Duration::from_secs(60);

/// Part of the idle time in which a replica records uses, if that is shorter: the others judge by what is recorded.
const USES_PART: u32 = 16;

/// Shortest interval at which uses are recorded.
const USES_INTERVAL_MIN: Duration = Duration::from_millis(250);

/// Time that rows of sessions stay after their end. The last uses are recorded by then.
const CLEAR_AFTER: Duration = Duration::from_secs(10 * 60);

/// Sign-ins of both kinds, and their store.
#[derive(Clone, Debug)]
pub(super) struct SignIns {
    pub(super) sessions: Arc<BrowserSessions>,
    pub(super) devices: Arc<Devices>,
    /// Access to the sign-ins of other replicas, if there are any.
    pub(super) shared: Option<Shared>,
    store: Store,
    issuer: Option<String>,
    lifetimes: Lifetimes,
}

impl SignIns {
    /// Reads the sign-ins that an earlier process left, or shares those of all replicas.
    pub(super) async fn open(config: &Config, store: &Store) -> Result<Self, StoreError> {
        let lifetimes = Lifetimes { idle_max: config.auth.session_idle, age_max: config.auth.session_max };
        let issuer = config.auth.oidc.as_ref().map(|oidc| oidc.issuer.to_string());
        let at = both();
        let shared: Option<Shared> = match &config.directory {
            Directory::Memory => None,
            Directory::Host(_) | Directory::Store(_) => {
                Some(Arc::new(StoredSignIns::new(store.clone(), issuer.clone())))
            }
        };
        let (sessions, devices) = match &shared {
            None => {
                let (sessions, devices) = (BrowserSessions::new(at.now, lifetimes), Devices::default());
                sessions.restore(store.browser_sessions(issuer.as_deref()).await?, at);
                devices.restore(store.device_sign_ins().await?, at);
                (sessions, devices)
            }
            Some(shared) => {
                let availability = store.availability().clone();
                let sessions = BrowserSessions::shared(at.now, lifetimes, shared.clone(), availability);
                (sessions, Devices::shared(shared.clone()))
            }
        };
        let (sessions, devices) = (Arc::new(sessions), Arc::new(devices));
        // Opened before anything is served: answers wait for the journal from the first one on.
        sessions.journal().open();
        devices.journal().open();
        Ok(Self { sessions, devices, shared, store: store.clone(), issuer, lifetimes })
    }

    /// Writes until `stop`, and then the rest, if the store takes it. A store that is away ends no sign-in: changes
    /// meanwhile are written when it is back.
    pub(super) async fn keep(self, stop: CancellationToken) {
        let (sessions, devices) = (self.sessions.journal(), self.devices.journal());
        let mut ticks = tokio::time::interval(self.uses_interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut clear_at = Instant::now();
        let mut is_away = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sessions.wait() => {}
                () = devices.wait() => {}
                _ = ticks.tick() => self.sessions.note_uses(Instant::now()),
            }
            let written = self.write().await;
            if self.shared.is_some() && written.is_ok() && Instant::now() >= clear_at {
                clear_at = Instant::now() + USES_INTERVAL;
                if let Err(why) = in_time(self.store.clear_sign_ins(self.obsolete())).await {
                    debug!(why, "sign-ins that are over are not cleared away");
                }
            }
            match written {
                Ok(()) if is_away => {
                    is_away = false;
                    info!("sign-ins are written to the store again");
                }
                Ok(()) => {}
                Err(why) => {
                    if !is_away {
                        warn!(
                            why,
                            "sign-ins cannot be written to the store: they stay valid, but would be lost with this process"
                        );
                    }
                    is_away = true;
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(RETRY_INTERVAL) => {}
                    }
                }
            }
        }
        self.sessions.note_uses(Instant::now());
        if let Err(why) = self.write().await {
            warn!(why, "the last sign-ins were not written to the store");
        }
    }

    /// Returns the interval at which uses are recorded. Other replicas judge a session that is idle there by what is recorded.
    fn uses_interval(&self) -> Duration {
        match &self.shared {
            None => USES_INTERVAL,
            Some(_) => (self.lifetimes.idle_max / USES_PART).clamp(USES_INTERVAL_MIN, USES_INTERVAL),
        }
    }

    /// Returns the times before which rows are of no use to any replica.
    fn obsolete(&self) -> Obsolete {
        let before = |age: Duration| {
            let seconds = i64::try_from(age.saturating_add(CLEAR_AFTER).as_secs()).unwrap_or(i64::MAX);
            UnixSeconds::new(wall_clock().get().saturating_sub(seconds))
        };
        let Lifetimes { idle_max, age_max } = self.lifetimes;
        Obsolete {
            used_before: before(idle_max.saturating_add(idle_max / USES_PART)),
            opened_before: before(age_max),
            asked_before: before(DEVICE_AGE_MAX),
            guess_window: WINDOW,
        }
    }

    /// Writes all pending changes.
    async fn write(&self) -> Result<(), String> {
        let (sessions, devices) = (self.sessions.journal(), self.devices.journal());
        while sessions.has_more() {
            let changes = self.sessions.changes(&sessions.begin(BATCH_MAX), both());
            let written = in_time(self.store.keep_browser_sessions(self.issuer.as_deref(), &changes)).await;
            let gone: Vec<Digest> = changes
                .iter()
                .filter_map(|change| match change {
                    SessionChange::Ended(id) => Some(*id),
                    SessionChange::Begun(_) | SessionChange::Used(..) => None,
                })
                .collect();
            sessions.end(written.is_ok().then_some(&gone));
            written?;
        }
        while devices.has_more() {
            let changes = self.devices.changes(&devices.begin(BATCH_MAX), both());
            let written = in_time(self.store.keep_device_sign_ins(&changes)).await;
            let gone: Vec<Digest> = changes
                .iter()
                .filter_map(|change| match change {
                    DeviceChange::Ended(device) => Some(*device),
                    DeviceChange::Is(_) => None,
                })
                .collect();
            devices.end(written.is_ok().then_some(&gone));
            written?;
        }
        Ok(())
    }
}

async fn in_time(write: impl Future<Output = Result<(), StoreError>>) -> Result<(), String> {
    match timeout(WRITE_TIME_MAX, write).await {
        Ok(written) => written.map_err(|error| error.to_string()),
        Err(_) => Err("the store took too long".to_owned()),
    }
}

fn both() -> Both {
    Both { now: Instant::now(), wall: wall_clock() }
}
