//! Open connections of users, and the choice of those that are closed when there are too many.
//!
//! A connection without a request under way costs its owner nothing, so an attacker can have many. Near the limit, the
//! connections that have been idle for longest are asked to leave; those of signed-in users only if strangers have not
//! taken the room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use dashmap::DashMap;
use futures_util::task::AtomicWaker;

/// Ticks for which an idle connection is left alone, so that one that is about to be used is not closed: one of a
/// stranger, and one of a signed-in user.
const STRANGER_TICKS: u32 = 4;
const USER_TICKS: u32 = 8;

/// All open connections. Each worker adds and removes its own, so the map has a lock for each of its shards.
#[derive(Debug, Default)]
pub struct IdleConnections {
    members: DashMap<u64, Arc<Member>>,
    next: AtomicU64,
    /// Coarse clock: reading it costs a request nothing.
    ticks: AtomicU32,
    /// Tick after the last one in which all members were examined.
    shed_at: AtomicU32,
}

#[derive(Debug, Default)]
struct Member {
    /// Requests and streams under way.
    busy: AtomicU32,
    /// Tick in which the last one ended.
    idle_since: AtomicU32,
    /// Whether a user has signed in on it.
    is_proven: AtomicBool,
    leaves: AtomicBool,
    waker: AtomicWaker,
}

/// Membership of a connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    idle: Arc<IdleConnections>,
    id: u64,
    member: Arc<Member>,
}

/// A request or stream under way on a connection.
#[derive(Debug)]
pub struct BusyGuard {
    idle: Arc<IdleConnections>,
    member: Arc<Member>,
}

impl IdleConnections {
    /// Adds a new connection.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> ConnectionSlot {
        let member = Arc::new(Member { idle_since: AtomicU32::new(self.now()), ..Member::default() });
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.members.insert(id, member.clone());
        ConnectionSlot { idle: self.clone(), id, member }
    }

    /// Asks the `wanted` connections that have been idle for longest to leave, once a tick. Returns how many were
    /// asked.
    pub fn shed(&self, wanted: usize) -> usize {
        let now = self.now();
        if self.shed_at.swap(now.wrapping_add(1), Ordering::Relaxed) == now.wrapping_add(1) {
            return 0;
        }
        let idle_for = |member: &Member| now.wrapping_sub(member.idle_since.load(Ordering::Relaxed));
        let (mut strangers, mut users) = (Vec::new(), Vec::new());
        let many = {
            let (mut idle_strangers, mut all) = (0, 0);
            for member in &self.members {
                all += 1;
                if member.busy.load(Ordering::Relaxed) > 0 || member.leaves.load(Ordering::Relaxed) {
                    continue;
                }
                let is_user = member.is_proven.load(Ordering::Relaxed);
                idle_strangers += usize::from(!is_user);
                if is_user && idle_for(&member) >= USER_TICKS {
                    users.push(Arc::clone(&member));
                } else if !is_user && idle_for(&member) >= STRANGER_TICKS {
                    strangers.push(Arc::clone(&member));
                }
            }
            2 * idle_strangers >= all
        };
        // Users make room only if strangers have not taken it: idle strangers will have been idle for long enough soon.
        let mut idle = if strangers.is_empty() && !many { users } else { strangers };
        let wanted = wanted.min(idle.len());
        if wanted == 0 {
            return 0;
        }
        idle.select_nth_unstable_by_key(wanted - 1, |member| std::cmp::Reverse(idle_for(member)));
        for member in idle.iter().take(wanted) {
            member.leaves.store(true, Ordering::Release);
            member.waker.wake();
        }
        wanted
    }

    /// Advances the clock.
    pub(super) fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> u32 {
        self.ticks.load(Ordering::Relaxed)
    }
}

impl ConnectionSlot {
    /// Marks the connection as one on which a user has signed in.
    pub(super) fn prove(&self) {
        self.member.is_proven.store(true, Ordering::Relaxed);
    }

    /// Begins a request or stream.
    #[must_use]
    pub(super) fn stay(&self) -> BusyGuard {
        self.member.busy.fetch_add(1, Ordering::Relaxed);
        // The connection is in use again. Without this it would be cut as soon as the answer is made, sent or not.
        if self.member.leaves.load(Ordering::Relaxed) {
            self.member.leaves.store(false, Ordering::Relaxed);
        }
        BusyGuard { idle: self.idle.clone(), member: self.member.clone() }
    }

    /// Waits until the connection has to leave. One task at a time may wait.
    pub fn poll_leave(&self, context: &Context<'_>) -> Poll<()> {
        self.member.waker.register(context.waker());
        if self.must_leave() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns whether the connection has to leave: it was asked to, and is still idle.
    #[must_use]
    pub fn must_leave(&self) -> bool {
        self.member.leaves.load(Ordering::Acquire) && self.member.busy.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.idle.members.remove(&self.id);
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.member.idle_since.store(self.idle.now(), Ordering::Relaxed);
        self.member.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(idle: &IdleConnections, ticks: u32) {
        (0..ticks).for_each(|_| idle.tick());
    }

    #[test]
    fn strangers_that_are_idle_for_longest_go_first_and_busy_ones_stay() {
        let idle = Arc::new(IdleConnections::default());
        let busy = idle.enter();
        let stay = busy.stay();
        let users = [idle.enter(), idle.enter()];
        users.iter().for_each(ConnectionSlot::prove);
        after(&idle, USER_TICKS);
        let old = idle.enter();
        after(&idle, 1);
        let young = idle.enter();
        assert_eq!(idle.shed(4), 2, "two users, before there are strangers that are idle for long enough");
        let users = [idle.enter(), idle.enter()];
        users.iter().for_each(ConnectionSlot::prove);
        after(&idle, USER_TICKS);
        assert_eq!(idle.shed(1), 1);
        assert!(old.must_leave() && !young.must_leave() && !users[0].must_leave() && !busy.must_leave());
        assert_eq!(idle.shed(1), 0, "once a tick");
        after(&idle, 1);
        assert_eq!(idle.shed(9), 1);
        assert!(young.must_leave() && !users[0].must_leave());
        after(&idle, 1);
        assert_eq!(idle.shed(9), 2);
        assert!(users[0].must_leave() && users[1].must_leave() && !busy.must_leave());
        drop(stay);
        after(&idle, 1);
        assert_eq!(idle.shed(9), 0, "it was busy until now");
        after(&idle, STRANGER_TICKS);
        assert_eq!(idle.shed(9), 1);
    }

    #[test]
    fn users_do_not_make_room_for_a_crowd_of_strangers_that_just_came() {
        let idle = Arc::new(IdleConnections::default());
        let user = idle.enter();
        user.prove();
        after(&idle, USER_TICKS);
        let strangers: Vec<_> = (0..8).map(|_| idle.enter()).collect();
        assert_eq!(idle.shed(4), 0);
        after(&idle, STRANGER_TICKS);
        assert_eq!(idle.shed(99), 8);
        drop(strangers);
        assert!(!user.must_leave());
        drop(user);
        assert!(idle.members.is_empty());
    }

    #[test]
    fn connection_that_got_a_request_meanwhile_need_not_leave() {
        let idle = Arc::new(IdleConnections::default());
        let place = idle.enter();
        after(&idle, STRANGER_TICKS);
        assert_eq!(idle.shed(1), 1);
        let stay = place.stay();
        assert!(!place.must_leave());
        drop(stay);
        assert!(!place.must_leave(), "its answer may not have been sent");
    }
}
