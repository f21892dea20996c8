//! Drops remembered values that were changed in the store, and loads them again, so that an outage finds current ones.

use tokio::time::Instant;

use super::Access;
use gateway_auth::request::{OfferedAt, OfferedCredential};
use gateway_store::AccessChange;

impl Access {
    /// Forgets the changed values, whatever changed them. Returns whether any of them was known.
    pub fn forget(&self, change: &AccessChange) -> bool {
        let now = Instant::now();
        match change {
            AccessChange::Token(hash) => self.visitors.identities.forget_token(hash, now),
            AccessChange::User(user) => self.visitors.users.forget(user, now),
            // It is not loaded again: it has ended.
            AccessChange::Session(id) => {
                self.visitors.identities.forget_session(id, now);
                false
            }
            AccessChange::Workspace(name) => {
                self.lives.forget(name, now);
                self.workspaces.forget(name, now)
            }
            AccessChange::Everything => {
                self.visitors.identities.forget_tokens();
                self.visitors.identities.forget_sessions();
                self.visitors.users.forget_all();
                self.workspaces.forget_all();
                self.lives.forget_all();
                false
            }
        }
    }

    /// Loads the changed values again. A value that cannot be loaded stays forgotten.
    pub async fn refresh(&self, change: &AccessChange) {
        let now = Instant::now();
        match change {
            AccessChange::Token(hash) => {
                drop(self.visitors.principal(&OfferedCredential::Token(*hash), OfferedAt::Public, now).await)
            }
            AccessChange::User(user) => drop(self.visitors.user_status(user, now).await),
            AccessChange::Workspace(name) => drop(self.workspace(name, now).await),
            AccessChange::Session(_) | AccessChange::Everything => {}
        }
    }
}
