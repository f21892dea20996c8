//! Re-authorises requests and streams for as long as they stay open. So a revoked share, token, session or user ends
//! open streams too, and not only later requests.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};
use tunnel_link::drain::Drain;
use tunnel_link::raw::CUT_TIMEOUT;

use super::{Access, Judged};
use crate::event_streams::EventStream;
use crate::watches::AccessWatch;
use gateway_auth::policy::{Decision, Purpose, RequestShape, RequestSource};
use gateway_auth::request::OfferedAt;
use gateway_http::respond::Failure;
use gateway_store::wall_clock;

/// Interval of the checks. A value from the store may be [`REFRESH_AFTER`] old when it is loaded again, so both
/// together, a look-up, and a last message to the user stay below the 5 s within which a revocation has to cut.
///
/// [`REFRESH_AFTER`]: gateway_auth::cache::REFRESH_AFTER
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

const _: () = assert!(
    RECHECK_INTERVAL.as_millis() + gateway_auth::cache::REFRESH_AFTER.as_millis() + CUT_TIMEOUT.as_millis() < 5_000,
    "a revocation cuts within five seconds"
);

/// Watches checked at a time, before other tasks get their turn. One after the other, look-ups would add up: with a
/// thousand streams with credentials of their own, or a store that is far away, a round would take longer than the
/// seconds available.
const TURN: usize = 64;

/// A request that was let through once does not change its shape; only user and target are checked again.
const SHAPE: RequestShape = RequestShape { purpose: Purpose::Read, source: RequestSource::SameOrigin };

impl Access {
    /// Runs until a drain begins.
    pub async fn recheck(&self, drain: &Drain) {
        let mut ticks = tokio::time::interval(RECHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let draining = drain.draining();
        loop {
            tokio::select! {
                () = draining.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // An outdated list would admit visitors after a revocation; but an outage of the store ends nothing that is
            // open either.
            let asked = self.public_ports.ask();
            match self.store.public_ports(wall_clock()).await {
                Ok(open) => self.public_ports.replace(asked, open),
                // An outage is reported once, elsewhere.
                Err(error) if error.is_unanswered() => {}
                Err(error) => warn!(%error, "cannot ask the store which ports are public"),
            }
            if self.recheck_watches().await {
                // Of several watches on one credential or workspace, one asked the store; the others got the answer
                // from before that.
                self.recheck_watches().await;
            }
            for followed in self.followers.open() {
                self.recheck_follower(&followed).await;
            }
        }
    }

    /// Decides on every watch in use again; returns whether any was ended.
    async fn recheck_watches(&self) -> bool {
        let mut is_cut = false;
        for turn in self.watches.in_use().chunks(TURN) {
            let cut = join_all(turn.iter().map(|watch| self.recheck_one(watch))).await;
            is_cut |= cut.contains(&true);
            tokio::task::yield_now().await;
        }
        is_cut
    }

    async fn recheck_follower(&self, followed: &EventStream) {
        match self.visitors.principal(followed.offered(), OfferedAt::Public, Instant::now()).await {
            Ok(Some(principal)) if principal.user == *followed.user() => {}
            // As for watches: an outage ends nothing that is open.
            Err(_unavailable) => {}
            Ok(Some(_) | None) => {
                info!(user = %followed.user(), "a user may not follow these events any more: their stream is closed");
                followed.end();
            }
        }
    }

    /// Returns whether it was cut.
    async fn recheck_one(&self, watch: &AccessWatch) -> bool {
        if watch.is_ended() {
            return false;
        }
        let judged = self.decide(watch.offered(), watch.address(), watch.port(), SHAPE, Instant::now()).await;
        // A store that does not answer ends new requests, not bytes that are under way.
        let Ok(Judged { decision, .. }) = judged else { return false };
        let failure = match decision {
            Decision::Allow(grant) if watch.is_upheld_by(&grant) => return false,
            Decision::Allow(_) | Decision::SignIn | Decision::Unauthorized => Failure::SignInRequired,
            Decision::NotFound => Failure::NoSuchHost,
            Decision::PortNotAllowed => Failure::PortNotAllowed,
        };
        let address = watch.address();
        info!(workspace = %address.name, port = %watch.port(), code = failure.code(), "a user may not use this port any more: what they have open there is closed");
        watch.end(failure);
        true
    }
}
