//! Identifies the clients of requests: reads what the store says of a credential and of its user, and bounds what clients
//! without a valid credential may cost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Origin;
use super::anonymous::{count_visitor, overloaded};
use gateway_auth::cache::{Cache, Unavailable};
use gateway_auth::request::{Identities, LiveToken, OfferedAt, OfferedCredential};
use gateway_auth::sign_in::SignIn;
use gateway_http::respond::Failure;
use gateway_net::limits::LookupPermit;
use gateway_store::{Store, StoreError, TokenSubject, wall_clock};
use gateway_types::principal::{Principal, UserStatus};
use gateway_types::{Limit, UserName};

/// Who clients are, for the workspace hosts and the public host alike.
#[derive(Debug)]
pub struct Visitors {
    /// Principals by their credentials.
    pub identities: Arc<Identities>,
    /// State of users: whether disabled, and their groups.
    pub users: Cache<UserName, UserStatus>,
    /// Longest time that groups count after the sign-in that brought them.
    pub groups_age_max: Duration,
    /// Sign-in pages and one-time codes.
    pub sign_in: Arc<SignIn>,
    /// The database, for what no cache has.
    pub store: Store,
}

impl Visitors {
    /// Finds the principal of an offered credential; `None` if it proves no user who may come in.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] when the store does not answer.
    pub async fn principal(
        &self,
        offered: &OfferedCredential,
        at: OfferedAt<'_>,
        now: Instant,
    ) -> Result<Option<Principal>, Failure> {
        let load = async |hash: [u8; 32]| {
            let record = self.store.token_by_hash(&hash).await?.filter(|record| record.is_live(wall_clock()));
            Ok::<_, StoreError>(record.and_then(|record| match record.subject {
                TokenSubject::User { user } => Some(LiveToken { user, expires_at: record.expires_at }),
                TokenSubject::Agent { .. } | TokenSubject::Cluster { .. } => None,
            }))
        };
        let busy = |Unavailable| Failure::Overloaded { limit: "store" };
        let wall = wall_clock();
        let Some(principal) = self.identities.principal(offered, at, now, wall, load).await.map_err(busy)? else {
            return Ok(None);
        };
        let status = self.user_status(&principal.user, now).await.map_err(busy)?;
        if status.is_disabled {
            self.sign_in.end_sessions_of(&principal);
        }
        Ok(principal.with(&status, self.groups_age_max, wall))
    }

    /// Returns what the store says of a user.
    ///
    /// # Errors
    /// [`Unavailable`] when the store does not answer and nothing is remembered.
    pub async fn user_status(&self, user: &UserName, now: Instant) -> Result<UserStatus, Unavailable> {
        let load = async || self.store.user_status(user).await.map(Some);
        Ok(self.users.get(user, now, load).await?.unwrap_or_default())
    }

    /// Waits for a credential's turn to be looked up, unless too many of its address were not good. A credential that
    /// needs no look-up does not wait.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] names the limit.
    pub async fn may_try<'a>(
        &self,
        offered: &OfferedCredential,
        origin: &'a Origin,
        now: Instant,
    ) -> Result<Option<LookupPermit<'a>>, Failure> {
        if !self.identities.needs_lookup(offered, now) {
            return Ok(None);
        }
        if origin.guest.has_failed_often(now.into_std()) {
            return Err(overloaded(Limit::FailedSignIns));
        }
        // Boxed: few requests wait here.
        Box::pin(origin.guest.look_up()).await.map(Some).map_err(overloaded)
    }

    /// Identifies the visitor of the public host, and counts unknown ones.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] names the limit.
    pub async fn visitor(
        &self,
        offered: &OfferedCredential,
        origin: &Origin,
        now: Instant,
    ) -> Result<Option<Principal>, Failure> {
        let turn = self.may_try(offered, origin, now).await?;
        let principal = self.principal(offered, OfferedAt::Public, now).await?;
        drop(turn);
        count_visitor(principal.as_ref(), offered, origin, now)?;
        Ok(principal)
    }

    /// Forgets what the store said of a user.
    pub fn forget_user(&self, user: &UserName, now: Instant) {
        self.users.forget(user, now);
    }
}
