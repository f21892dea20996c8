//! Sign-ins begun by a workspace host's own redirect: the public host vouches only for these.
//!
//! The nonce of a sign-in identifies the browser, and only its hash is sent. A script on a workspace host could make up
//! a nonce and send a visitor to the public host with its hash: the resulting code would be valid for the script. So a
//! hash counts only if this gateway has issued the nonce to a browser at that host, and for as many sign-ins as were
//! begun with it.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::fair::FairMap;
use gateway_types::opaque::Digest;

/// Time limit of a sign-in, from the workspace host's redirect to the public host's, including a visit to an identity
/// provider.
pub(super) const BEGUN_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// Nonces remembered at once. Full: the block of addresses with the most gives up its oldest, whose browser begins again.
pub(super) const BEGUN_MAX: usize = 16 * 1024;

/// Nonces remembered of one address. Full: its oldest is dropped.
pub(super) const BEGUN_PER_ADDRESS_MAX: usize = 256;

/// Sign-ins that one browser has under way with one nonce: its tabs.
const TABS_MAX: u8 = 64;

/// The nonces, by their hashes.
#[derive(Debug)]
pub(super) struct BegunSignIns {
    nonces: Mutex<FairMap<Digest, PendingVisits>>,
}

#[derive(Debug)]
struct PendingVisits {
    host: Box<str>,
    /// Sign-ins that were begun and not vouched for.
    open: u8,
}

impl Default for BegunSignIns {
    fn default() -> Self {
        Self { nonces: Mutex::new(FairMap::new(BEGUN_AGE_MAX, BEGUN_MAX)) }
    }
}

impl BegunSignIns {
    /// Begins one more sign-in with the browser's existing nonce, and returns whether it may: a nonce that this gateway
    /// did not issue recently for that host is refused.
    pub(super) fn again(&self, pre: &Digest, host: &str, peer: IpAddr, now: Instant) -> bool {
        let mut nonces = self.nonces.lock();
        let Some(begun) = nonces.get(pre, now).filter(|begun| *begun.host == *host) else { return false };
        let begun = PendingVisits { host: begun.host.clone(), open: begun.open.saturating_add(1).min(TABS_MAX) };
        nonces.insert(*pre, begun, peer, now);
        true
    }

    /// Begins the first sign-in with a fresh nonce.
    pub(super) fn first(&self, pre: &Digest, host: &str, peer: IpAddr, now: Instant) {
        let mut nonces = self.nonces.lock();
        nonces.make_room(now);
        if nonces.count_of(peer) >= BEGUN_PER_ADDRESS_MAX {
            nonces.drop_oldest_of(peer);
        }
        nonces.insert(*pre, PendingVisits { host: host.into(), open: 1 }, peer, now);
    }

    /// Returns whether a sign-in with this nonce is under way at a host.
    pub(super) fn is_open(&self, pre: &Digest, host: &str, now: Instant) -> bool {
        self.nonces.lock().get(pre, now).is_some_and(|begun| begun.open > 0 && *begun.host == *host)
    }

    /// Uses up one sign-in that is under way, and returns whether there was one.
    pub(super) fn take(&self, pre: &Digest, host: &str, now: Instant) -> bool {
        let mut nonces = self.nonces.lock();
        match nonces.get_mut(pre, now) {
            Some(begun) if begun.open > 0 && *begun.host == *host => {
                begun.open -= 1;
                true
            }
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_types::opaque::Opaque;

    const HOST: &str = "8080-app.zone";
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn nonce() -> Digest {
        Opaque::random().unwrap().digest()
    }

    #[test]
    fn nonce_counts_as_often_as_sign_ins_were_begun_with_it_at_its_host_and_in_time() {
        let (begun, pre, now) = (BegunSignIns::default(), nonce(), Instant::now());
        assert!(!begun.again(&pre, HOST, PEER, now) && !begun.take(&pre, HOST, now));
        begun.first(&pre, HOST, PEER, now);
        assert!(!begun.again(&pre, "app.zone", PEER, now) && begun.again(&pre, HOST, PEER, now));
        assert!(!begun.is_open(&pre, "app.zone", now) && !begun.take(&pre, "app.zone", now));
        assert_eq!([(); 3].map(|()| begun.take(&pre, HOST, now)), [true, true, false]);
        assert!(begun.again(&pre, HOST, PEER, now), "the browser keeps its nonce");
        let last = now + BEGUN_AGE_MAX - Duration::from_nanos(1);
        assert!(begun.is_open(&pre, HOST, last) && !begun.is_open(&pre, HOST, now + BEGUN_AGE_MAX));
    }

    #[test]
    fn one_address_pushes_out_its_own() {
        let (begun, now) = (BegunSignIns::default(), Instant::now());
        let (other, theirs) = (nonce(), nonce());
        begun.first(&other, HOST, [192, 0, 2, 1].into(), now);
        begun.first(&theirs, HOST, PEER, now);
        for _ in 0..BEGUN_PER_ADDRESS_MAX {
            begun.first(&nonce(), HOST, PEER, now);
        }
        assert!(begun.is_open(&other, HOST, now) && !begun.is_open(&theirs, HOST, now));
    }
}
