//! Asks again, while requests and streams live, whether they still may. This is what makes a revoked share, token, session
//! or user end what is open, and not only what comes next.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};
use tunnel_link::raw::CUT_TIMEOUT;

use super::Edge;
use super::told::Known;
use crate::auth::policy::{Decision, Purpose, RequestShape, Source};
use crate::auth::request::At;
use crate::edge::followers::Followed;
use crate::edge::living::Watch;
use crate::edge::respond::Failure;
use crate::store::wall_clock;

/// How often. What the store said may be [`REFRESH_AFTER`] old when it is asked again, so both together, a look-up, and a
/// last word to the user stay below the 5 s within which a revocation has to cut (design, section 5).
///
/// [`REFRESH_AFTER`]: crate::auth::cache::REFRESH_AFTER
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

const _: () = assert!(
    RECHECK_INTERVAL.as_millis() + crate::auth::cache::REFRESH_AFTER.as_millis() + CUT_TIMEOUT.as_millis() < 5_000,
    "a revocation cuts within five seconds"
);

/// So many are asked at a time, before others get their turn. One after the other, look-ups would add up: a thousand streams
/// with credentials of their own, or a store that is far away, and a round takes longer than the seconds that there are.
const TURN: usize = 64;

/// A request that was let through once does not change its shape; only who and what is asked again.
const SHAPE: RequestShape = RequestShape { purpose: Purpose::Read, source: Source::SameOrigin };

impl Edge {
    /// Runs until the edge's drain begins.
    pub(crate) async fn recheck(&self) {
        let mut ticks = tokio::time::interval(RECHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let draining = self.drain.draining();
        loop {
            tokio::select! {
                () = draining.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // An old list would let in whom it should not; but losing the store ends nothing that is open either.
            let asked = self.public_ports.ask();
            match self.store.public_ports(wall_clock()).await {
                Ok(open) => self.public_ports.replace(asked, open),
                // Of an outage it is said once that there is one.
                Err(error) if error.is_unanswered() => {}
                Err(error) => warn!(%error, "cannot ask the store which ports are public"),
            }
            if self.recheck_living().await {
                // Of those who share a credential or a workspace, one asked the store; the others were answered from before that.
                self.recheck_living().await;
            }
            for followed in self.followers.due() {
                self.recheck_follower(&followed).await;
            }
        }
    }

    /// Asks again for everything open; returns whether anything was cut.
    async fn recheck_living(&self) -> bool {
        let mut is_cut = false;
        for turn in self.living.due().chunks(TURN) {
            let cut = join_all(turn.iter().map(|watch| self.recheck_one(watch))).await;
            is_cut |= cut.contains(&true);
            tokio::task::yield_now().await;
        }
        is_cut
    }

    async fn recheck_follower(&self, followed: &Followed) {
        match self.principal(followed.offered(), At::Public, Instant::now()).await {
            Ok(Some(principal)) if principal.user == *followed.user() => {}
            // As for everything that is open.
            Err(_unavailable) => {}
            Ok(Some(_) | None) => {
                info!(user = %followed.user(), "a user may not follow these events any more: their stream is closed");
                followed.end();
            }
        }
    }

    /// Returns whether it was cut.
    async fn recheck_one(&self, watch: &Watch) -> bool {
        if watch.is_ended() {
            return false;
        }
        let at = (watch.address(), watch.port());
        let failure = match self.decide(watch.offered(), at, SHAPE, &mut Known::new(Instant::now())).await {
            Ok(Decision::Allow(grant)) if watch.is_upheld_by(&grant) => return false,
            // A store that does not answer ends new requests, not bytes that are under way (design, section 7).
            Err(_unavailable) => return false,
            Ok(Decision::Allow(_) | Decision::SignIn | Decision::Unauthorized) => Failure::SignInRequired,
            Ok(Decision::NotFound) => Failure::NoSuchHost,
            Ok(Decision::PortNotAllowed) => Failure::PortNotAllowed,
        };
        let address = watch.address();
        info!(workspace = %address.name, port = %watch.port(), code = failure.code(), "a user may not use this port any more: what they have open there is closed");
        watch.end(failure);
        true
    }
}
