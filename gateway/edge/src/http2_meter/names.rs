//! Finds pseudo fields in the trailers of a request: they make it malformed (RFC 9113, section 8.1), and the library
//! accepts and drops them.
//!
//! Header blocks are compressed with a table that every block of the connection may change (RFC 7541), so all of them
//! are followed, only to find the start of each field and whether its name begins with a colon. Of the table, that is
//! one bit for each entry: nothing is decoded, and no byte is kept.

/// Flags of a frame (RFC 9113, section 6.2).
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// Bytes of a stream's priority, in front of the block.
const PRIORITY_BYTES: u8 = 5;

/// The last pseudo field of the static table, and its last entry at all (RFC 7541, appendix A).
const STATIC_PSEUDO_LAST: u64 = 14;
const STATIC_LAST: u64 = 61;

/// A colon in the Huffman code, which has seven bits (the same, appendix B).
const COLON_HUFFMAN: u8 = 0x5c;

/// Longest number that is read, in bits. The library refuses those above 32.
const NUMBER_BITS_MAX: u32 = 35;

/// Follows the header blocks of one direction.
#[derive(Debug, Default)]
pub(super) struct HeaderNames {
    /// One bit for each entry of the table, set for a pseudo field, the newest in the lowest bit. The table has 4,096
    /// bytes, and an entry at least 32: there are never more. Evicted entries are no longer referred to, so evictions
    /// need not be tracked.
    table: u128,
    at: BlockPosition,
    /// The pad length is the next byte.
    is_padded: bool,
    /// Bytes of the priority that are to come.
    priority: u8,
    /// Bytes of this frame that belong to the block.
    left: usize,
    in_trailers: bool,
    found: bool,
}

/// The facts of a field that matter here: whether it goes into the table, and whether its name begins with a colon.
#[derive(Clone, Copy, Debug)]
struct Field {
    is_kept: bool,
    is_pseudo: bool,
}

/// Position in a header block.
#[derive(Clone, Copy, Debug, Default)]
enum BlockPosition {
    /// Before a field.
    #[default]
    Field,
    /// In a number that did not end with its first byte.
    Number { value: u64, shift: u32, of: Of },
    /// Before the length of a name.
    NameLength { is_kept: bool },
    /// Before the first byte of a name.
    Name { left: u64, is_huffman: bool, is_kept: bool },
    /// In the rest of a name.
    NameRest { left: u64, field: Field },
    /// Before the length of a value.
    ValueLength(Field),
    /// In a value.
    Value { left: u64, field: Field },
    /// This is no header block; the library ends the connection.
    Broken,
}

/// Meaning of a number.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// The place of a whole field in the table.
    Field,
    /// The place of a name; 0 for one that follows.
    Name { is_kept: bool },
    /// A size of the table.
    Size,
    /// The length of a name.
    NameLength { is_huffman: bool, is_kept: bool },
    /// The length of a value.
    ValueLength(Field),
}

impl HeaderNames {
    /// Begins a block with a HEADERS frame.
    pub(super) fn begin(&mut self, flags: u8, length: usize, in_trailers: bool) {
        self.at = BlockPosition::Field;
        self.is_padded = flags & PADDED != 0;
        self.priority = if flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
        self.left = length.saturating_sub(usize::from(self.is_padded) + usize::from(self.priority));
        self.in_trailers = in_trailers;
    }

    /// Goes on with a CONTINUATION frame.
    pub(super) fn go_on(&mut self, length: usize) {
        (self.is_padded, self.priority, self.left) = (false, 0, length);
    }

    /// Looks at bytes of the frame's payload.
    pub(super) fn look(&mut self, mut payload: &[u8]) {
        while let Some((byte, rest)) = payload.split_first() {
            if self.is_padded {
                (self.is_padded, self.left) = (false, self.left.saturating_sub(usize::from(*byte)));
            } else if self.priority > 0 {
                self.priority -= 1;
            } else if self.left == 0 {
                // Padding.
                return;
            } else if let BlockPosition::NameRest { left, .. } | BlockPosition::Value { left, .. } = self.at {
                let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(self.left).min(payload.len());
                payload = payload.get(skipped..).unwrap_or_default();
                self.left -= skipped;
                self.skip(left - skipped as u64);
                continue;
            } else {
                self.left -= 1;
                self.take(*byte);
            }
            payload = rest;
        }
    }

    /// Returns whether there was a pseudo field in trailers.
    pub(super) fn is_malformed(&self) -> bool {
        self.found
    }

    fn take(&mut self, byte: u8) {
        match self.at {
            BlockPosition::Field if byte & 0x80 != 0 => self.number(byte, 7, Of::Field),
            BlockPosition::Field if byte & 0x40 != 0 => self.number(byte, 6, Of::Name { is_kept: true }),
            BlockPosition::Field if byte & 0x20 != 0 => self.number(byte, 5, Of::Size),
            BlockPosition::Field => self.number(byte, 4, Of::Name { is_kept: false }),
            BlockPosition::NameLength { is_kept } => {
                self.number(byte, 7, Of::NameLength { is_huffman: byte & 0x80 != 0, is_kept })
            }
            BlockPosition::ValueLength(field) => self.number(byte, 7, Of::ValueLength(field)),
            BlockPosition::Number { value, shift, of } => {
                let value = value + (u64::from(byte & 0x7f) << shift);
                let shift = shift + 7;
                match byte & 0x80 {
                    0 => self.have(value, of),
                    _ if shift > NUMBER_BITS_MAX => self.at = BlockPosition::Broken,
                    _ => self.at = BlockPosition::Number { value, shift, of },
                }
            }
            BlockPosition::Name { left, is_huffman, is_kept } => {
                let is_pseudo = if is_huffman { byte >> 1 == COLON_HUFFMAN } else { byte == b':' };
                self.at = BlockPosition::NameRest { left, field: Field { is_kept, is_pseudo } };
                self.skip(left - 1);
            }
            BlockPosition::NameRest { .. } | BlockPosition::Value { .. } | BlockPosition::Broken => {}
        }
    }

    /// Reads the first byte of a number (RFC 7541, section 5.1).
    fn number(&mut self, byte: u8, prefix_bits: u32, of: Of) {
        let most = u8::MAX >> (8 - prefix_bits);
        let value = u64::from(byte & most);
        if byte & most == most {
            self.at = BlockPosition::Number { value, shift: 0, of };
        } else {
            self.have(value, of);
        }
    }

    fn have(&mut self, number: u64, of: Of) {
        self.at = match of {
            Of::Size => BlockPosition::Field,
            Of::Field => return self.end(Field { is_kept: false, is_pseudo: self.is_pseudo(number) }),
            Of::Name { is_kept } if number == 0 => BlockPosition::NameLength { is_kept },
            Of::Name { is_kept } => BlockPosition::ValueLength(Field { is_kept, is_pseudo: self.is_pseudo(number) }),
            Of::NameLength { is_kept, .. } if number == 0 => {
                BlockPosition::ValueLength(Field { is_kept, is_pseudo: false })
            }
            Of::NameLength { is_huffman, is_kept } => BlockPosition::Name { left: number, is_huffman, is_kept },
            Of::ValueLength(field) => {
                self.at = BlockPosition::Value { left: number, field };
                return self.skip(number);
            }
        };
    }

    /// Moves on in a string of which `to_come` bytes are left.
    fn skip(&mut self, to_come: u64) {
        match &mut self.at {
            BlockPosition::NameRest { field, .. } if to_come == 0 => self.at = BlockPosition::ValueLength(*field),
            BlockPosition::Value { field, .. } if to_come == 0 => {
                let field = *field;
                self.end(field);
            }
            BlockPosition::NameRest { left, .. } | BlockPosition::Value { left, .. } => *left = to_come,
            BlockPosition::Field
            | BlockPosition::Number { .. }
            | BlockPosition::NameLength { .. }
            | BlockPosition::Name { .. }
            | BlockPosition::ValueLength(_)
            | BlockPosition::Broken => {}
        }
    }

    fn end(&mut self, field: Field) {
        self.found |= self.in_trailers && field.is_pseudo;
        if field.is_kept {
            self.table = self.table << 1 | u128::from(field.is_pseudo);
        }
        self.at = BlockPosition::Field;
    }

    fn is_pseudo(&self, place: u64) -> bool {
        let Some(place) = place.checked_sub(STATIC_LAST + 1) else { return (1..=STATIC_PSEUDO_LAST).contains(&place) };
        let entry = u32::try_from(place).ok().and_then(|place| self.table.checked_shr(place));
        entry.is_some_and(|entry| entry & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request's head and then its trailers, in pieces that end at `cuts`. Returns what was found after each.
    fn found(head: &[u8], trailers: &[u8], cuts: &[usize]) -> (bool, bool) {
        let mut names = HeaderNames::default();
        let mut look = |block: &[u8], in_trailers| {
            names.begin(0, block.len(), in_trailers);
            let mut from = 0;
            for to in cuts.iter().copied().chain([block.len()]) {
                let to = to.clamp(from, block.len());
                names.look(&block[from..to]);
                from = to;
            }
            names.is_malformed()
        };
        (look(head, false), look(trailers, true))
    }

    /// `:method: GET`, `:scheme: http`, `:path: /`, `:authority: www.example.com` (RFC 7541, appendix C.3.1): the last one goes into
    /// the table.
    const HEAD: &[u8] = b"\x82\x86\x84\x41\x0fwww.example.com";
    /// The same, Huffman coded (C.4.1).
    const HEAD_HUFFMAN: &[u8] =
        &[0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];

    #[track_caller]
    fn check(trailers: &[u8], is_malformed: bool) {
        for head in [HEAD, HEAD_HUFFMAN] {
            let every: Vec<usize> = (0..head.len() + trailers.len()).collect();
            for cuts in [&[][..], &every] {
                assert_eq!(found(head, trailers, cuts), (false, is_malformed), "{trailers:?}");
            }
        }
    }

    #[test]
    fn pseudo_field_in_trailers_is_found_however_it_is_written() {
        // From the static table, whole and by its name.
        check(b"\x84", true);
        check(b"\x04\x02/b", true);
        check(b"\x44\x02/b", true);
        // From the connection's table, whole and by its name.
        check(b"\xbe", true);
        check(b"\x0f\x2f\x01x", true);
        check(b"\x7e\x01x", true);
        // Letter by letter, and Huffman coded.
        check(b"\x00\x05:path\x01/", true);
        check(b"\x40\x05:path\x01/", true);
        check(b"\x00\x84\xb9\x58\xd3\x3f\x01/", true);
        // Behind others.
        check(b"\x00\x05x-sum\x017\x84", true);
    }

    #[test]
    fn other_trailers_and_what_is_no_header_block_are_let_through() {
        check(b"", false);
        check(b"\x00\x05x-sum\x01:", false);
        check(b"\x40\x05x-sum\x017\xbe", false);
        check(b"\x8f", false);
        check(b"\x20\x3f\xe1\x1f\x00\x05x-sum\x00", false);
        check(b"\x00\x00\x01:", false);
        check(&[0xff; 12], false);
        check(b"\x80", false);
    }

    #[test]
    fn table_keeps_the_order_of_its_entries() {
        let mut names = HeaderNames::default();
        // `x: 1` above `:authority` of the request.
        let block = [HEAD, b"\x40\x01x\x011"].concat();
        names.begin(0, block.len(), false);
        names.look(&block);
        names.begin(0, 1, true);
        names.look(b"\xbe");
        assert!(!names.is_malformed());
        names.begin(0, 1, true);
        names.look(b"\xbf");
        assert!(names.is_malformed());
    }

    #[test]
    fn padding_priority_and_continuations_are_no_fields() {
        let mut names = HeaderNames::default();
        let payload = b"\x03\x80\x00\x00\x01\x10\x00\x05x-s\x84\x84\x84";
        names.begin(PADDED | PRIORITY, payload.len(), true);
        names.look(payload);
        names.go_on(5);
        names.look(b"um\x017\x84");
        assert!(names.is_malformed());
        let mut names = HeaderNames::default();
        names.begin(PADDED, 4, true);
        names.look(b"\x03\x84\x84\x84");
        names.begin(PADDED, 4, true);
        names.look(b"\xff\x84\x84\x84");
        assert!(!names.is_malformed());
    }

    proptest! {
        #[test]
        fn outcome_does_not_depend_on_how_blocks_are_cut(
            head in prop::collection::vec(any::<u8>(), 0..60), trailers in prop::collection::vec(any::<u8>(), 0..60),
            mut cuts in prop::collection::vec(0_usize..60, 0..6),
        ) {
            cuts.sort_unstable();
            prop_assert_eq!(found(&head, &trailers, &cuts), found(&head, &trailers, &[]));
        }
    }
}
