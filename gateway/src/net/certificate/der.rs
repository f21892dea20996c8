//! One value after the other out of DER (ITU-T X.690): tags of one byte, lengths that fit what is there, nothing else.

/// The tag of a value, with its class and whether it is constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u8);

impl Tag {
    pub(super) const BOOLEAN: Self = Self(0x01);
    pub(super) const INTEGER: Self = Self(0x02);
    pub(super) const OCTETS: Self = Self(0x04);
    pub(super) const OBJECT_ID: Self = Self(0x06);
    pub(super) const UTC_TIME: Self = Self(0x17);
    pub(super) const GENERALIZED_TIME: Self = Self(0x18);
    pub(super) const SEQUENCE: Self = Self(0x30);
    /// `[0]`, the version of a certificate.
    pub(super) const VERSION: Self = Self(0xa0);
    /// `[1]` and `[2]`, numbers for issuers and subjects.
    pub(super) const ISSUER_ID: Self = Self(0x81);
    pub(super) const SUBJECT_ID: Self = Self(0x82);
    /// `[3]`, the extensions of a certificate.
    pub(super) const EXTENSIONS: Self = Self(0xa3);
    /// `[6]` of the general names (RFC 5280, section 4.2.1.6).
    pub(super) const URI: Self = Self(0x86);
}

/// What is left to read.
#[derive(Debug)]
pub(super) struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next value if it has this tag; else leaves it.
    pub(super) fn take(&mut self, tag: Tag) -> Option<&'a [u8]> {
        if self.0.first() != Some(&tag.0) {
            return None;
        }
        self.next().map(|(_, value)| value)
    }

    /// Takes the next value. `None` at the end, and for what is not DER.
    pub(super) fn next(&mut self) -> Option<(Tag, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        // A tag in several bytes.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, rest) = length(rest)?;
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((Tag(tag), value))
    }
}

/// Reads a length: the only spelling that DER has for it, up to 16 MiB.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let count = match first {
        0..=0x7f => return Some((usize::from(first), rest)),
        0x81..=0x83 => usize::from(first & 0x7f),
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(count)?;
    let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
    let shortest = match count {
        1 => 0x80,
        2 => 0x100,
        _ => 0x1_0000,
    };
    (length >= shortest).then_some((length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_one_after_the_other() {
        let mut der = Der::new(&[0x02, 1, 7, 0x30, 0, 0x04, 0x81, 0x80]);
        assert_eq!(der.take(Tag::SEQUENCE), None, "another tag leaves it");
        assert_eq!(der.take(Tag::INTEGER), Some(&[7][..]));
        assert_eq!(der.next(), Some((Tag::SEQUENCE, &[][..])));
        assert_eq!(der.next(), None, "cut");
    }

    #[test]
    fn lengths_have_one_spelling() {
        for bytes in [&[0x80][..], &[0x81, 0x7f], &[0x82, 0, 0xff], &[0x83, 0, 0xff, 0xff], &[0x84, 1, 0, 0, 0], &[]] {
            assert_eq!(length(bytes), None, "{bytes:?}");
        }
        assert_eq!(length(&[0x7f]), Some((0x7f, &[][..])));
        assert_eq!(length(&[0x81, 0x80]), Some((0x80, &[][..])));
        assert_eq!(length(&[0x82, 1, 0, 9]), Some((0x100, &[9][..])));
        assert_eq!(length(&[0x83, 1, 0, 0]), Some((0x1_0000, &[][..])));
    }
}
