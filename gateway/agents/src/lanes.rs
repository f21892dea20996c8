//! More links beside a session's first one: one TCP connection has one congestion window and stands still for every lost
//! packet, several do not. A lane is a session of its own to the protocol, with its own frame numbers and resume; what
//! ties it to the first is the budget, the registry's entry and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use tunnel_link::session::Session;
use tunnel_proto::id::SessionId;
use tunnel_proto::mux::ReplicaBudget;
use tunnel_proto::reason::Reason;

use gateway_auth::keys::ResumeKeys;
use gateway_types::opaque::{Digest, Opaque};
use gateway_types::token::NoRandomness;

/// One more link of a session.
#[derive(Debug)]
pub struct Lane {
    /// Its id, from the same count as sessions.
    pub id: SessionId,
    /// Its tunnel.
    pub tunnel: Session,
    /// Keys to resume it over another link.
    pub keys: ResumeKeys,
}

/// The bounds on memory that all lanes of a session share.
#[derive(Clone, Debug)]
pub struct LaneMemory {
    /// Bound on everything.
    pub budget: Arc<ReplicaBudget>,
    /// Bound on data kept for a resume; `None` if there is one lane.
    pub replay: Option<Arc<ReplicaBudget>>,
}

/// The lanes of one session besides its first link.
#[derive(Debug, Default)]
pub struct Lanes {
    more: RwLock<Vec<Arc<Lane>>>,
    /// Number of them, for frequent readers.
    count: AtomicUsize,
    next: AtomicUsize,
    /// Most of them.
    max: usize,
    secret: Option<Digest>,
    memory: Option<LaneMemory>,
}

impl Lanes {
    /// Makes room for `max` lanes besides the first, which share `memory`. Returns the secret to join with.
    ///
    /// # Errors
    /// [`NoRandomness`] when the system's generator fails.
    pub fn new(max: usize, memory: LaneMemory) -> Result<(Self, Bytes), NoRandomness> {
        let secret = Opaque::random()?;
        let lanes = Self { max, secret: Some(secret.digest()), memory: Some(memory), ..Self::default() };
        Ok((lanes, Bytes::from(secret.reveal())))
    }

    /// Returns the bounds that the session's lanes share, for a lane that shows the secret. `None` for a wrong secret,
    /// or if no place is free.
    #[must_use]
    pub fn admit(&self, shown: &[u8]) -> Option<LaneMemory> {
        let shown = Opaque::digest_of(shown)?;
        let is_known = self.secret == Some(shown);
        self.memory.clone().filter(|_| is_known && self.count.load(Ordering::Relaxed) < self.max)
    }

    /// Adds a lane. `false` when another one was faster to the last place.
    pub fn add(&self, lane: Arc<Lane>) -> bool {
        let mut more = self.more.write();
        let fits = more.len() < self.max;
        if fits {
            more.push(lane);
            self.count.store(more.len(), Ordering::Relaxed);
        }
        fits
    }

    /// Removes a lane that is over.
    pub fn remove(&self, id: SessionId) {
        let mut more = self.more.write();
        more.retain(|lane| lane.id != id);
        self.count.store(more.len(), Ordering::Relaxed);
    }

    /// Returns a lane by its id.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<Arc<Lane>> {
        self.more.read().iter().find(|lane| lane.id == id).cloned()
    }

    /// Returns all of them.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Lane>> {
        self.more.read().clone()
    }

    /// Chooses the tunnel of the next channel: each in its turn, except those that have no link now.
    #[must_use]
    pub fn pick(&self, first: &Session) -> Session {
        // Most sessions have one link, and this is asked for every new channel.
        if self.count.load(Ordering::Relaxed) == 0 {
            return first.clone();
        }
        let more = self.more.read();
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let all = 1 + more.len();
        let tunnel = |index: usize| match index.checked_sub(1) {
            None => Some(first),
            Some(index) => more.get(index).map(|lane| &lane.tunnel),
        };
        let turns = (0..all).filter_map(|turn| tunnel((start + turn) % all));
        turns.into_iter().find(|tunnel| !tunnel.is_detached() && !tunnel.is_ended()).unwrap_or(first).clone()
    }

    /// Ends them with their session.
    pub fn close(&self, reason: Reason) {
        for lane in self.all() {
            lane.tunnel.close(reason, reason.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use tunnel_proto::mux::{Settings, Side};

    use super::*;

    fn memory() -> LaneMemory {
        LaneMemory { budget: ReplicaBudget::new(1), replay: None }
    }

    fn lane(id: u64) -> Arc<Lane> {
        let tunnel = Session::new(Settings::new(Side::Gateway));
        Arc::new(Lane { id: SessionId::new(id), tunnel, keys: ResumeKeys::default() })
    }

    #[test]
    fn channels_are_spread_over_lanes_that_have_a_link() {
        let first = Session::new(Settings::new(Side::Gateway));
        let (lanes, _secret) = Lanes::new(2, memory()).expect("random");
        let (second, third) = (lane(2), lane(3));
        assert!(lanes.add(second.clone()) && lanes.add(third.clone()));
        assert!(!lanes.add(lane(4)), "two are enough");
        let open = |lanes: &Lanes| drop(lanes.pick(&first).open(80).expect("room").0);
        let opened = |tunnel: &Session| tunnel.stats().channels_opened;
        for _ in 0..9 {
            open(&lanes);
        }
        assert_eq!([opened(&first), opened(&second.tunnel), opened(&third.tunnel)], [3, 3, 3]);
        // Without a resume agreed on, a lost link is the lane's end.
        second.tunnel.link().lost();
        for _ in 0..6 {
            open(&lanes);
        }
        assert_eq!(opened(&second.tunnel), 3, "nothing new on a lane that is over");
        lanes.remove(second.id);
        assert!(lanes.get(second.id).is_none() && lanes.get(third.id).is_some());
    }

    #[test]
    fn only_the_secret_opens_a_place_while_there_is_one() {
        let (lanes, secret) = Lanes::new(1, memory()).expect("random");
        assert!(lanes.admit(b"").is_none() && lanes.admit(&[7; 43]).is_none());
        assert!(lanes.admit(&secret).is_some());
        assert!(lanes.add(lane(2)));
        assert!(lanes.admit(&secret).is_none(), "full");
        assert!(Lanes::default().admit(&secret).is_none(), "lanes were not agreed on");
    }
}
