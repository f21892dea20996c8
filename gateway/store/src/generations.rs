//! Seals of generations: an agent proves with one which generation its last session had. What it says without a seal counts
//! for nothing, because a high number would push away the sessions of others.
//!
//! A seal is a version, the generation, the time at which it was made, and a code over them and the agent's identity
//! (HMAC, RFC 2104) with a key derived from that of `store.key_file` (HKDF, RFC 5869), which all replicas have.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use gateway_types::UnixSeconds;

use super::Store;
use super::seal::derived;
use super::sessions::SessionKey;

/// First byte of a seal: version of its format.
const VERSION: u8 = 1;

/// Distinguishes the derived key from others of the same file.
const PURPOSE: &[u8] = b"generations of sessions";

/// Length of what a seal says, in front of its code.
const HEAD_BYTES: usize = 1 + 2 * size_of::<u64>();

/// Agent's process that a seal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedAgent<'a> {
    /// The place of its sessions.
    pub key: SessionKey,
    /// Name of the credential that it shows.
    pub credential: &'a str,
    /// Number of its process.
    pub instance: u64,
}

/// Generation that an agent has proved to have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedGeneration {
    /// The generation.
    pub generation: u64,
    /// Time at which a replica said so, by that replica's clock.
    pub at: UnixSeconds,
}

/// Makes and checks seals with one key.
#[derive(Debug)]
pub(super) struct GenerationSealer(hmac::Key);

impl GenerationSealer {
    /// Derives its key from that of the store.
    pub(super) fn new(key: &[u8]) -> Result<Self, Unspecified> {
        derived(key, PURPOSE).map(Self)
    }

    fn seal(&self, of: &SealedAgent<'_>, sealed: SealedGeneration) -> Vec<u8> {
        let head = head(sealed);
        let code = hmac::sign(&self.0, &message(&head, of));
        [&head, code.as_ref()].concat()
    }

    fn open(&self, of: &SealedAgent<'_>, seal: &[u8]) -> Option<SealedGeneration> {
        let (head, code) = seal.split_first_chunk::<HEAD_BYTES>()?;
        hmac::verify(&self.0, &message(head, of), code).ok()?;
        let (version, numbers) = head.split_first()?;
        let (generation, at) = numbers.split_first_chunk()?;
        let at = at.try_into().ok().map(i64::from_be_bytes)?;
        let sealed = SealedGeneration { generation: u64::from_be_bytes(*generation), at: UnixSeconds::new(at) };
        (*version == VERSION).then_some(sealed)
    }
}

fn head(sealed: SealedGeneration) -> Vec<u8> {
    [&[VERSION][..], &sealed.generation.to_be_bytes(), &sealed.at.get().to_be_bytes()].concat()
}

/// Returns the bytes that the code is over. Only the last part has no fixed length.
fn message(head: &[u8], of: &SealedAgent<'_>) -> Vec<u8> {
    let (kind, subject) = of.key.columns();
    let numbers = [kind.to_be_bytes(), subject.to_be_bytes(), of.instance.to_be_bytes()].concat();
    [head, &numbers, of.credential.as_bytes()].concat()
}

impl Store {
    /// Seals the generation of an agent's session.
    #[must_use]
    pub fn seal_generation(&self, of: &SealedAgent<'_>, sealed: SealedGeneration) -> Vec<u8> {
        self.sealer.generations.seal(of, sealed)
    }

    /// Returns the generation that a seal proves; `None` if it is not this agent's, or was changed.
    #[must_use]
    pub fn sealed_generation(&self, of: &SealedAgent<'_>, seal: &[u8]) -> Option<SealedGeneration> {
        self.sealer.generations.open(of, seal)
    }
}

#[cfg(test)]
mod tests {
    use super::super::WorkspaceId;
    use super::*;

    const OF: SealedAgent<'_> =
        SealedAgent { key: SessionKey::Workspace(WorkspaceId(7)), credential: "t-3", instance: u64::MAX };
    const SEALED: SealedGeneration = SealedGeneration { generation: u64::MAX - 1, at: UnixSeconds::new(1_800_000_000) };

    #[test]
    fn seal_is_good_for_its_agent_and_for_no_other_and_not_with_one_bit_changed() {
        let sealer = GenerationSealer::new(&[1; 32]).expect("a key");
        let seal = sealer.seal(&OF, SEALED);
        assert_eq!((seal.len(), sealer.open(&OF, &seal)), (HEAD_BYTES + 32, Some(SEALED)));
        let others = [
            SealedAgent { key: SessionKey::Workspace(WorkspaceId(8)), ..OF },
            SealedAgent { key: SessionKey::Cluster(super::super::ClusterId(7)), ..OF },
            SealedAgent { credential: "t-4", ..OF },
            SealedAgent { credential: "t-33", ..OF },
            SealedAgent { instance: 1, ..OF },
        ];
        for other in others {
            assert_eq!(sealer.open(&other, &seal), None, "{other:?}");
        }
        for bit in 0..seal.len() * 8 {
            let mut changed = seal.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(&OF, &changed), None, "bit {bit}");
        }
        for length in 0..seal.len() {
            assert_eq!(sealer.open(&OF, &seal[..length]), None);
        }
        assert_eq!(sealer.open(&OF, &[&seal[..], &[0]].concat()), None);
        let other_key = GenerationSealer::new(&[2; 32]).expect("a key");
        assert_eq!(other_key.open(&OF, &seal), None);
    }
}
