//! Memory share of each owner: many workspaces do not give an owner more of the replica.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tunnel_proto::mux::ReplicaBudget;

use gateway_types::UserName;

/// The budgets of the owners whose workspaces have sessions.
#[derive(Debug, Default)]
pub struct Owners {
    budgets: Mutex<HashMap<UserName, Weak<ReplicaBudget>>>,
}

impl Owners {
    /// Returns the budget of an owner's sessions, of `limit_bytes` inside that of the replica. It lives as long as one of
    /// them.
    pub(super) fn budget(
        &self,
        owner: &UserName,
        limit_bytes: u64,
        replica: &Arc<ReplicaBudget>,
    ) -> Arc<ReplicaBudget> {
        let mut budgets = self.budgets.lock();
        if let Some(budget) = budgets.get(owner).and_then(Weak::upgrade) {
            return budget;
        }
        // At most as many entries stay as there are owners with sessions, and as many again.
        if budgets.len() == budgets.capacity() {
            budgets.retain(|_, budget| budget.strong_count() > 0);
        }
        let budget = ReplicaBudget::within(limit_bytes, Some(replica.clone()));
        budgets.insert(owner.clone(), Arc::downgrade(&budget));
        budget
    }
}

#[cfg(test)]
mod tests {
    use tunnel_proto::mux::Budget;

    use super::*;

    #[test]
    fn owner_of_many_workspaces_leaves_room_for_others() {
        let (owners, replica) = (Owners::default(), ReplicaBudget::new(100));
        let name = |text: &str| text.parse::<UserName>().expect("a name");
        let session = |owner: &str| Budget::new(50, Some(owners.budget(&name(owner), 50, &replica)));
        let (mut one, mut two, mut other) = (session("greedy"), session("greedy"), session("modest"));
        assert!(one.reserve(30) && two.reserve(20));
        assert!(!two.reserve(1), "the owner's bound, although session and replica have room");
        assert!(other.reserve(50));
        drop((one, two));
        assert_eq!(replica.reserved(), 50);
        for number in 0..1_000 {
            drop(session(&format!("guest-{number}")));
        }
        assert!(owners.budgets.lock().capacity() < 100, "who has no session is forgotten");
    }
}
