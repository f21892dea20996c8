//! Seals of generations: an agent proves with one which generation its last session had. What it says without a seal counts
//! for nothing, because a high number would push away the sessions of others.
//!
//! A seal is a version, the generation, the time at which it was made, and a code over them and the agent's identity
//! (HMAC, RFC 2104) with a key derived from that of `store.key_file` (HKDF, RFC 5869), which all replicas have.
//!
//! The seal of an agent with a token of this gateway also says what an admission has to know, so that a replica which never
//! saw the token admits it while the store is away. Its code is over the token's hash too: a seal without its token proves
//! nothing. No part of a seal is secret.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use gateway_types::UnixSeconds;

use super::seal::derived;
use super::sessions::SessionKey;
use super::{Store, TokenId, WorkspaceId};
use gateway_types::{UserName, WorkspaceName};

/// First byte of a seal: version of its format.
const VERSION: u8 = 1;

/// First byte of a seal that says what an admission has to know.
const VERSION_OF_ADMISSIONS: u8 = 2;

/// Length of the code.
const CODE_BYTES: usize = 32;

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

/// Facts that an admission needs about an agent with a token of this gateway, as the store had them when they were sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedAdmission {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Its name.
    pub name: WorkspaceName,
    /// Its owner.
    pub owner: UserName,
    /// The token.
    pub token: TokenId,
    /// Time from which the token is worth nothing; `None` if it does not end by itself.
    pub expires_at: Option<UnixSeconds>,
}

/// What an agent proves beside a seal: its token, and which process it is.
#[derive(Clone, Copy, Debug)]
pub struct ProvedAgent<'a> {
    /// SHA-256 of the token.
    pub token_hash: &'a [u8; 32],
    /// Number of its process.
    pub instance: u64,
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

    fn seal_admission(&self, of: &SealedAdmission, proved: ProvedAgent<'_>, sealed: SealedGeneration) -> Vec<u8> {
        let mut seal = vec![VERSION_OF_ADMISSIONS];
        seal.extend_from_slice(&sealed.generation.to_be_bytes());
        for number in [sealed.at.get(), of.workspace.0, of.token.0, of.expires_at.map_or(NEVER, UnixSeconds::get)] {
            seal.extend_from_slice(&number.to_be_bytes());
        }
        for name in [of.name.as_str(), of.owner.as_str()] {
            // Both are short. A longer one would be cut, and the seal be worth nothing.
            seal.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            seal.extend_from_slice(name.as_bytes());
        }
        let code = hmac::sign(&self.0, &proved_message(&seal, proved));
        seal.extend_from_slice(code.as_ref());
        seal
    }

    fn open_admission(&self, proved: ProvedAgent<'_>, seal: &[u8]) -> Option<(SealedAdmission, SealedGeneration)> {
        let (mut rest, code) = seal.split_last_chunk::<CODE_BYTES>()?;
        hmac::verify(&self.0, &proved_message(rest, proved), code).ok()?;
        if take::<1>(&mut rest)? != [VERSION_OF_ADMISSIONS] {
            return None;
        }
        let generation = u64::from_be_bytes(take(&mut rest)?);
        let [at, workspace, token, expires_at] = [(); 4].map(|()| take(&mut rest).map(i64::from_be_bytes));
        let (name, owner) = (take_name(&mut rest)?, take_name(&mut rest)?);
        let admission = SealedAdmission {
            workspace: WorkspaceId(workspace?),
            name: name.parse().ok()?,
            owner: owner.parse().ok()?,
            token: TokenId(token?),
            expires_at: expires_at.filter(|time| *time != NEVER).map(UnixSeconds::new),
        };
        Some((admission, SealedGeneration { generation, at: UnixSeconds::new(at?) }))
    }
}

/// Time of a token's end for one that has none.
const NEVER: i64 = i64::MAX;

/// Takes so many bytes from the front.
fn take<const LENGTH: usize>(rest: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (first, behind) = rest.split_first_chunk::<LENGTH>()?;
    *rest = behind;
    Some(*first)
}

/// Takes a name with its length in front.
fn take_name<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let [length] = take::<1>(rest)?;
    let (name, behind) = rest.split_at_checked(usize::from(length))?;
    *rest = behind;
    str::from_utf8(name).ok()
}

/// Returns the bytes that the code of an admission's seal is over. The last parts have a fixed length.
fn proved_message(said: &[u8], proved: ProvedAgent<'_>) -> Vec<u8> {
    [said, &proved.instance.to_be_bytes(), proved.token_hash].concat()
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
        self.sealer.code_of_generation(|key| key.seal(of, sealed))
    }

    /// Returns the generation that a seal proves; `None` if it is not this agent's, or was changed.
    #[must_use]
    pub fn sealed_generation(&self, of: &SealedAgent<'_>, seal: &[u8]) -> Option<SealedGeneration> {
        self.sealer.find_generation(|key| key.open(of, seal))
    }

    /// Seals the generation of a session whose agent came with a token of this gateway, and what an admission has to know.
    #[must_use]
    pub fn seal_admission(&self, of: &SealedAdmission, proved: ProvedAgent<'_>, sealed: SealedGeneration) -> Vec<u8> {
        self.sealer.code_of_generation(|key| key.seal_admission(of, proved, sealed))
    }

    /// Returns what the seal of an agent says that shows this token; `None` if it is not this agent's, or was changed.
    #[must_use]
    pub fn sealed_admission(
        &self,
        proved: ProvedAgent<'_>,
        seal: &[u8],
    ) -> Option<(SealedAdmission, SealedGeneration)> {
        self.sealer.find_generation(|key| key.open_admission(proved, seal))
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
    #[test]
    fn admission_is_good_for_its_token_and_process_and_not_with_one_bit_changed() {
        let sealer = GenerationSealer::new(&[1; 32]).expect("a key");
        let admission = SealedAdmission {
            workspace: WorkspaceId(7),
            name: "one".parse().expect("a name"),
            owner: "ann@example.com".parse().expect("a name"),
            token: TokenId(3),
            expires_at: Some(UnixSeconds::new(1_900_000_000)),
        };
        let proved = ProvedAgent { token_hash: &[9; 32], instance: u64::MAX };
        let seal = sealer.seal_admission(&admission, proved, SEALED);
        assert_eq!(sealer.open_admission(proved, &seal), Some((admission.clone(), SEALED)));
        let endless = SealedAdmission { expires_at: None, ..admission };
        let of_endless = sealer.seal_admission(&endless, proved, SEALED);
        assert_eq!(sealer.open_admission(proved, &of_endless), Some((endless, SEALED)));
        for other in [ProvedAgent { instance: 1, ..proved }, ProvedAgent { token_hash: &[8; 32], ..proved }] {
            assert_eq!(sealer.open_admission(other, &seal), None, "{other:?}");
        }
        for bit in 0..seal.len() * 8 {
            let mut changed = seal.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open_admission(proved, &changed), None, "bit {bit}");
        }
        for length in 0..seal.len() {
            assert_eq!(sealer.open_admission(proved, &seal[..length]), None);
        }
        // One kind of seal is not taken for the other.
        assert_eq!(sealer.open(&OF, &seal), None);
        assert_eq!(sealer.open_admission(proved, &sealer.seal(&OF, SEALED)), None);
    }
}
