//! Asks again, while agents are connected, whether their tokens still count: a token that was revoked or has expired ends the
//! session that came with it, and not only the next dial.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_proto::reason::Reason;

use super::registry::{LiveSession, Registry};
use crate::store::{Store, StoreError, TokenId, wall_clock};

/// How often. With a look-up it stays far below the 5 s within which a revocation has to cut (design, section 5).
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Tokens that are asked for at once.
const AT_ONCE: usize = 500;

/// Runs until `stop`. A store that does not answer ends nothing: new sessions wait for it, those that live go on.
pub async fn recheck(registry: Arc<Registry>, store: Store, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(RECHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = recheck_all(&registry, &store).await {
            warn!(%error, "cannot ask the store whether agents' tokens still count");
        }
    }
}

async fn recheck_all(registry: &Registry, store: &Store) -> Result<(), StoreError> {
    let sessions = registry.all();
    for some in sessions.chunks(AT_ONCE) {
        let tokens: Vec<TokenId> = some.iter().filter_map(|session| session.token()).collect();
        for (token, is_revoked) in store.ended_tokens(&tokens, wall_clock()).await? {
            for session in some.iter().filter(|session| session.token() == Some(token)) {
                end(session, token, is_revoked);
            }
        }
    }
    Ok(())
}

/// Ends a session. A revoked token is a person's word, after which its agent does not come back by itself. One that has
/// expired, as after a rotation, may have a successor in the agent's file: the agent dials again and reads it there.
fn end(session: &LiveSession, token: TokenId, is_revoked: bool) {
    let (reason, why) = if is_revoked {
        (Reason::Revoked, "the token was revoked: make a new one")
    } else {
        (Reason::SessionLost, "the token has expired: dial again with a new one")
    };
    info!(agent = %session.subject, session = %session.id, %token, %reason, "session ended: its token counts no more");
    session.tunnel.close(reason, why);
}
