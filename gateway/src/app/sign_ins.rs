//! Keeps sign-ins in the store, so that they outlive this process: read at the start, written behind the changes in
//! memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use gateway_auth::browser::persistence::Both;
use gateway_auth::browser::{BrowserSessions, Lifetimes};
use gateway_auth::device::Devices;
use gateway_config::Config;
use gateway_store::{Store, StoreError, wall_clock};
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

/// Sign-ins of both kinds, and their store.
#[derive(Clone, Debug)]
pub(super) struct SignIns {
    pub(super) sessions: Arc<BrowserSessions>,
    pub(super) devices: Arc<Devices>,
    store: Store,
    issuer: Option<String>,
}

impl SignIns {
    /// Reads the sign-ins that an earlier process left.
    pub(super) async fn open(config: &Config, store: &Store) -> Result<Self, StoreError> {
        let lifetimes = Lifetimes { idle_max: config.auth.session_idle, age_max: config.auth.session_max };
        let issuer = config.auth.oidc.as_ref().map(|oidc| oidc.issuer.to_string());
        let at = both();
        let (sessions, devices) = (Arc::new(BrowserSessions::new(at.now, lifetimes)), Arc::new(Devices::default()));
        sessions.restore(store.browser_sessions(issuer.as_deref()).await?, at);
        devices.restore(store.device_sign_ins().await?, at);
        // Opened before anything is served: answers wait for the journal from the first one on.
        sessions.journal().open();
        devices.journal().open();
        Ok(Self { sessions, devices, store: store.clone(), issuer })
    }

    /// Writes until `stop`, and then the rest, if the store takes it. A store that is away ends no sign-in: changes
    /// meanwhile are written when it is back.
    pub(super) async fn keep(self, stop: CancellationToken) {
        let (sessions, devices) = (self.sessions.journal(), self.devices.journal());
        let mut ticks = tokio::time::interval(USES_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_away = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sessions.wait() => {}
                () = devices.wait() => {}
                _ = ticks.tick() => self.sessions.note_uses(Instant::now()),
            }
            match self.write().await {
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
