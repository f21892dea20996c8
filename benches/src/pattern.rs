//! Byte pattern that depends on the position: any byte lost, repeated or moved is seen.

/// Returns the eight bytes at word `index` of the pattern of `seed`.
const fn word(seed: u64, index: u64) -> u64 {
    let mut bits = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Returns the byte at a position.
const fn byte(seed: u64, position: u64) -> u8 {
    let [first, ..] = (word(seed, position / 8) >> (8 * (position % 8))).to_le_bytes();
    first
}

/// Fills `out` with the pattern of `seed` from `position` on.
pub fn fill(seed: u64, position: u64, out: &mut [u8]) {
    let mut position = position;
    let head = out.len().min(usize::try_from((8 - position % 8) % 8).unwrap_or(0));
    let (start, rest) = out.split_at_mut(head);
    for out in start {
        *out = byte(seed, position);
        position += 1;
    }
    let mut words = rest.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(seed, position / 8).to_le_bytes());
        position += 8;
    }
    for out in words.into_remainder() {
        *out = byte(seed, position);
        position += 1;
    }
}

/// Compares received bytes with the pattern.
#[derive(Clone, Debug)]
pub struct Checker {
    seed: u64,
    position: u64,
    wrong_at: Option<u64>,
}

impl Checker {
    /// Makes a checker that expects the pattern of `seed` from `position` on.
    #[must_use]
    pub const fn new(seed: u64, position: u64) -> Self {
        Self { seed, position, wrong_at: None }
    }

    /// Takes the next bytes; returns whether all bytes so far were right.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let mut expected = [0_u8; 1024];
        for piece in bytes.chunks(expected.len()) {
            let (expected, _) = expected.split_at_mut(piece.len());
            fill(self.seed, self.position, expected);
            if self.wrong_at.is_none() && expected != piece {
                let same = expected.iter().zip(piece).take_while(|(left, right)| left == right).count();
                self.wrong_at = Some(self.position + same as u64);
            }
            self.position += piece.len() as u64;
        }
        self.wrong_at.is_none()
    }

    /// Returns how many bytes were taken, counted from position 0 of the pattern.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position of the first wrong byte.
    #[must_use]
    pub const fn wrong_at(&self) -> Option<u64> {
        self.wrong_at
    }
}

/// A 64-bit FNV-1a hash, to compare bodies at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Digest {
    /// Takes the next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pattern_is_the_same_however_it_is_cut(seed: u64, from in 0_u64..100, cuts in prop::collection::vec(0_usize..50, 1..20)) {
            let total: usize = cuts.iter().sum();
            let mut whole = vec![0; total];
            fill(seed, from, &mut whole);
            let (mut pieces, mut position) = (Vec::new(), from);
            let mut checker = Checker::new(seed, from);
            for cut in cuts {
                let mut piece = vec![0; cut];
                fill(seed, position, &mut piece);
                position += cut as u64;
                prop_assert!(checker.take(&piece));
                pieces.extend(piece);
            }
            prop_assert_eq!(whole, pieces);
            prop_assert_eq!(checker.position(), position);
        }

        #[test]
        fn lost_repeated_and_changed_bytes_are_found_where_they_are(seed: u64, at in 0_usize..4000, kind in 0..3) {
            let mut bytes = vec![0; 5000];
            fill(seed, 0, &mut bytes);
            match kind {
                0 => { bytes.remove(at); }
                1 => bytes.insert(at, bytes[at] ^ 1),
                _ => bytes[at] ^= 0x80,
            }
            let mut checker = Checker::new(seed, 0);
            prop_assert!(!checker.take(&bytes));
            // Neighbours may be equal, so a loss can show a little later.
            let found = checker.wrong_at().unwrap();
            prop_assert!(found >= at as u64 && found < at as u64 + 8, "{found} {at}");
        }
    }

    #[test]
    fn digest_is_fnv_1a() {
        let mut digest = Digest::default();
        digest.take(b"foo");
        digest.take(b"bar");
        assert_eq!(digest.to_string(), "85944171f73967e8");
    }
}
