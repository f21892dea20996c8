//! Re-authorises agents while they are connected: their tokens must still count, and their workspaces must still be the
//! same. A token that was revoked or has expired ends the session that came with it, and not only the next dial. A
//! certificate, a pod or a job names a workspace by its name alone, so a session ends when that name is no more or
//! became another workspace's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_proto::reason::Reason;

use super::registry::{LiveSession, Registry};
use gateway_store::{Store, StoreError, TokenId, WorkspaceId, wall_clock};
use gateway_types::WorkspaceName;

/// Interval of the checks. With a look-up it stays far below the 5 s within which a revocation has to cut.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Tokens looked up at once.
const AT_ONCE: usize = 500;

/// Runs until `stop`. A store that does not answer ends nothing: new sessions wait for it, live ones go on.
pub async fn recheck(registry: Arc<Registry>, store: Store, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(RECHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = recheck_all(&registry, &store).await
            && !error.is_unanswered()
        {
            warn!(%error, "cannot check in the store whether agents' tokens are still valid");
        }
    }
}

async fn recheck_all(registry: &Registry, store: &Store) -> Result<(), StoreError> {
    let sessions = registry.with_relays();
    for some in sessions.chunks(AT_ONCE) {
        let tokens: Vec<TokenId> = some.iter().filter_map(|session| session.token()).collect();
        for (token, is_revoked) in store.ended_tokens(&tokens, wall_clock()).await? {
            for session in some.iter().filter(|session| session.token() == Some(token)) {
                end(session, token, is_revoked);
            }
        }
        let names: Vec<&WorkspaceName> = some.iter().filter_map(|session| session.subject.workspace()).collect();
        let present: HashMap<WorkspaceName, WorkspaceId> = store.workspace_ids(&names).await?.into_iter().collect();
        for session in some {
            let (Some(name), Some(id)) = (session.subject.workspace(), session.workspace) else { continue };
            if present.get(name) != Some(&id) {
                info!(agent = %session.subject, session = %session.id, "session ended: its workspace was deleted");
                session.tunnel.close(Reason::Revoked, "the workspace was deleted");
            }
        }
    }
    Ok(())
}

/// Ends a session. Revoking a token is a person's decision, after which its agent does not come back by itself. An
/// expired token, as after a rotation, may have a successor in the agent's file: the agent dials again and reads it
/// there.
fn end(session: &LiveSession, token: TokenId, is_revoked: bool) {
    let (reason, why) = if is_revoked {
        (Reason::Revoked, "the token was revoked: make a new one")
    } else {
        (Reason::SessionLost, "the token has expired: dial again with a new one")
    };
    info!(agent = %session.subject, session = %session.id, %token, %reason, "session ended: its token is no longer valid");
    session.tunnel.close(reason, why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Credential, NewSession, SessionLease};
    use crate::testing::new;
    use gateway_types::UnixSeconds;

    #[tokio::test]
    async fn session_ends_when_its_workspace_is_another_one_of_the_same_name() {
        let (store, registry) = (Store::open("sqlite::memory:").await.unwrap(), Registry::new(10, 1));
        let (now, owner) = (wall_clock(), "ann".parse().unwrap());
        let mut ids = Vec::new();
        for name in ["kept", "anew", "gone"] {
            let name: WorkspaceName = name.parse().unwrap();
            store.create_agent_token(&name, &owner, now).await.unwrap();
            ids.push(store.workspace(&name).await.unwrap().unwrap().id);
        }
        let other = ids[1];
        (ids[1], ids[2]) = ("w-9000".parse().unwrap(), "w-9001".parse().unwrap());
        assert_ne!(other, ids[1]);
        let claim = |name: &str, workspace| {
            let credential = Credential::Certificate { fingerprint: "f".into() };
            let lease = SessionLease::renewable(credential, Some(UnixSeconds::new(i64::MAX)), now);
            registry.claim(NewSession { workspace: Some(workspace), lease, ..new(name) }).expect("room").0
        };
        let kept = claim("kept", ids[0]);
        let (anew, gone) = (claim("anew", ids[1]), claim("nowhere", ids[2]));
        recheck_all(&registry, &store).await.unwrap();
        let is_over = |session: &LiveSession| session.tunnel.is_ended();
        assert_eq!((is_over(&kept), is_over(&anew), is_over(&gone)), (false, true, true));
    }
}
