//! Counts the open streams and uploads of users, or of others that have a name or a number, so that none has too many
//! and all together have no more than there is room for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use super::problem::ApiProblem;
use gateway_types::UserName;

/// Permits of one kind.
#[derive(Debug)]
pub struct PermitPool<K: Eq + Hash = UserName> {
    per_user: usize,
    all: usize,
    /// Names in refusals: of the bound of one user, and of the bound of all.
    limit_per_user: &'static str,
    limit: &'static str,
    taken: Mutex<HashMap<K, usize>>,
}

/// One permit. Dropping it gives it back.
#[derive(Debug)]
pub struct ApiPermit<K: Eq + Hash = UserName> {
    permits: Arc<PermitPool<K>>,
    user: K,
}

impl<K: Eq + Hash + Clone> PermitPool<K> {
    /// Makes `per_user` permits for each user, and `all` in total.
    pub(super) fn new(per_user: usize, all: usize, limit_per_user: &'static str, limit: &'static str) -> Arc<Self> {
        Arc::new(Self { per_user, all, limit_per_user, limit, taken: Mutex::default() })
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// `overloaded`, with the limit that is reached.
    pub fn take(self: &Arc<Self>, user: &K) -> Result<ApiPermit<K>, ApiProblem> {
        let mut taken = self.taken.lock();
        if taken.get(user).is_some_and(|own| *own >= self.per_user) {
            return Err(ApiProblem::TooMany { limit: self.limit_per_user });
        }
        if taken.values().sum::<usize>() >= self.all {
            return Err(ApiProblem::Overloaded { limit: self.limit });
        }
        *taken.entry(user.clone()).or_default() += 1;
        Ok(ApiPermit { permits: self.clone(), user: user.clone() })
    }
}

impl<K: Eq + Hash> Drop for ApiPermit<K> {
    fn drop(&mut self) {
        let mut taken = self.permits.taken.lock();
        if let Some(own) = taken.get_mut(&self.user) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_by_user_and_together_and_come_back() {
        let permits = PermitPool::new(2, 3, "of_user", "of_all");
        let [ann, bob] = ["ann", "bob"].map(|name| name.parse::<UserName>().unwrap());
        let (first, _second) = (permits.take(&ann).unwrap(), permits.take(&ann).unwrap());
        assert_eq!(permits.take(&ann).unwrap_err(), ApiProblem::TooMany { limit: "of_user" });
        let bobs = permits.take(&bob).unwrap();
        assert_eq!(permits.take(&bob).unwrap_err(), ApiProblem::Overloaded { limit: "of_all" });
        drop(bobs);
        drop(first);
        let again = permits.take(&ann).unwrap();
        assert_eq!(permits.take(&ann).unwrap_err(), ApiProblem::TooMany { limit: "of_user" });
        drop((again, _second));
        assert!(permits.taken.lock().is_empty(), "a user who has nothing is forgotten");
    }
}
