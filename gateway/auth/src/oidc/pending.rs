//! Sign-ins pending at the provider, begun by a browser that has not come back yet.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::expiring::Expiring;
use crate::sign_in::path::ReturnPath;
use crate::sign_in::shared::Ticket;
use gateway_types::opaque::{Digest, Opaque};

/// Time limit for the user at the provider.
pub const PENDING_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// Sign-ins outstanding at once from addresses of one part. Full: the oldest of the part is dropped.
pub const PENDING_PER_PART_MAX: usize = 128;

/// Parts of the table. Any client can begin sign-ins without end, but from one address only in one part.
const PARTS: usize = 64;

/// Destination of a browser after sign-in. Never sent: the provider sees the `state` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A path of the public host.
    Public(ReturnPath),
    /// A path of a workspace host, which the browser has to open by itself (it has no session there).
    Workspace {
        /// The workspace host.
        host: Box<str>,
        /// The path.
        path: ReturnPath,
    },
    /// A workspace host that waits for the public host to vouch for the browser.
    Authorize {
        /// The workspace host.
        host: Box<str>,
        /// The hash of that host's nonce.
        pre: Digest,
        /// The path.
        return_to: ReturnPath,
        /// Proof that the host began this, for a gateway with other replicas.
        ticket: Option<Ticket>,
    },
}

/// A sign-in that was begun.
#[derive(Debug)]
pub struct Pending {
    /// The hash of the nonce that only the browser which began it holds, in a cookie of the public host.
    pub pre: Digest,
    /// `nonce`: what the ID token has to repeat.
    pub nonce: Opaque,
    /// `code_verifier`: proof to the provider that the party with the code also began this sign-in (RFC 7636).
    pub verifier: Opaque,
    /// Destination of the browser after the sign-in.
    pub destination: Destination,
}

/// Reason why an answer belongs to no sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPending {
    /// Never begun, already used, dropped, or older than [`PENDING_AGE_MAX`].
    Unknown,
    /// Begun in another browser.
    OtherBrowser,
}

/// The sign-ins that were begun, by the hash of their `state`.
#[derive(Debug)]
pub struct PendingSignIns {
    parts: Vec<Mutex<Expiring<Digest, Pending>>>,
}

impl Default for PendingSignIns {
    fn default() -> Self {
        let part = || Mutex::new(Expiring::new(PENDING_AGE_MAX, PENDING_PER_PART_MAX));
        Self { parts: std::iter::repeat_with(part).take(PARTS).collect() }
    }
}

impl PendingSignIns {
    /// Remembers a sign-in under its `state`, for a browser at `peer`.
    pub fn begin(&self, state: &Opaque, pending: Pending, peer: IpAddr, now: Instant) {
        if let Some(part) = self.parts.get(part_of(peer)) {
            part.lock().insert(state.digest(), pending, now);
        }
    }

    /// Removes and returns the sign-in of a `state`, which is good once, whatever the answer. A browser may come back
    /// from another address than it left from, so all parts are searched.
    ///
    /// # Errors
    ///
    /// [`NotPending`].
    pub fn take(&self, state: &Opaque, pre: &Digest, now: Instant) -> Result<Pending, NotPending> {
        let state = state.digest();
        let found = self.parts.iter().find_map(|part| part.lock().remove(&state, now));
        let pending = found.ok_or(NotPending::Unknown)?;
        if pending.pre == *pre { Ok(pending) } else { Err(NotPending::OtherBrowser) }
    }
}

/// Returns the part of an address. An IPv6 /64 belongs to one user, who can use any address of it.
fn part_of(peer: IpAddr) -> usize {
    let network = match peer {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => u64::from(address.to_bits()),
            None => u64::try_from(address.to_bits() >> 64).unwrap_or_default(),
        },
    };
    // An odd factor spreads neighbours; the upper bits of the product depend on all of the address.
    let spread = network.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(spread).unwrap_or_default() % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn random() -> Opaque {
        Opaque::random().unwrap()
    }

    fn pending(pre: &Opaque) -> Pending {
        let destination = Destination::Public(ReturnPath::parse_or_root("/a"));
        Pending { pre: pre.digest(), nonce: random(), verifier: random(), destination }
    }

    #[test]
    fn state_is_good_once_in_its_own_browser_and_in_time() {
        let (all, now, pre) = (PendingSignIns::default(), Instant::now(), random());
        let state = random();
        all.begin(&state, pending(&pre), PEER, now);
        assert_eq!(all.take(&random(), &pre.digest(), now).map(|_| ()), Err(NotPending::Unknown));
        assert!(all.take(&state, &pre.digest(), now).is_ok());
        assert_eq!(all.take(&state, &pre.digest(), now).map(|_| ()), Err(NotPending::Unknown));

        all.begin(&state, pending(&pre), PEER, now);
        assert_eq!(all.take(&state, &random().digest(), now).map(|_| ()), Err(NotPending::OtherBrowser));
        assert_eq!(all.take(&state, &pre.digest(), now).map(|_| ()), Err(NotPending::Unknown), "it is used up");

        all.begin(&state, pending(&pre), PEER, now);
        let late = now + PENDING_AGE_MAX;
        assert_eq!(all.take(&state, &pre.digest(), late).map(|_| ()), Err(NotPending::Unknown));
    }

    #[test]
    fn flood_from_one_address_leaves_the_sign_ins_of_others_alone() {
        let (all, now, pre) = (PendingSignIns::default(), Instant::now(), random());
        let flood: IpAddr = "2001:db8::1".parse().unwrap();
        let honest: Vec<(IpAddr, Opaque)> = (0..200_u8)
            .map(|last| IpAddr::from([198, 51, 100, last]))
            .filter(|peer| part_of(*peer) != part_of(flood))
            .map(|peer| (peer, random()))
            .collect();
        for (peer, state) in &honest {
            all.begin(state, pending(&pre), *peer, now);
        }
        for host in 0..20_000_u16 {
            let same_network = IpAddr::from([0x2001, 0xdb8, 0, 0, 1, 2, 3, host]);
            all.begin(&random(), pending(&pre), same_network, now);
        }
        assert!(honest.len() > 150, "the flood's own part is a small one: {}", honest.len());
        for (_, state) in &honest {
            assert!(all.take(state, &pre.digest(), now).is_ok());
        }
    }
}
