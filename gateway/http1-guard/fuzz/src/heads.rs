//! Raw bytes become the requests of a connection, as the watcher follows them and as `httparse` reads them.

mod library;
mod trail;

use http1_guard::HeadFault;

use self::library::{Body, Head};
use self::trail::{Message, Trail, Verdict};

/// Most bytes of a head: few, so that short inputs come to the limit.
const HEAD_BYTES_MAX: usize = 256;

/// Divisions into pieces that are tried beside the whole and single bytes.
const DIVISIONS: u64 = 4;

/// Follows `bytes` in several divisions, and compares the bytes that go through with the library's reading.
///
/// # Panics
/// When a law is broken.
pub fn run(bytes: &[u8]) {
    let trail = Trail::follow(bytes);
    check_divisions(bytes, &trail);
    let through = &bytes[..trail.verdict.passed];
    check_reading(through, &trail);
}

/// Checks that the verdict is the same however the bytes come, and that no division lets fewer bytes through than they
/// do as a whole, nor more than they do one by one.
fn check_divisions(bytes: &[u8], trail: &Trail) {
    let whole = Verdict::of(bytes, &trail.switches);
    check_fault(&whole, trail);
    for seed in 0..DIVISIONS {
        let mut ends = trail.switches.clone();
        ends.extend(division(bytes.len(), seed));
        ends.sort_unstable();
        let verdict = Verdict::of(bytes, &ends);
        for (one, other) in [(&whole, &verdict), (&verdict, &trail.verdict)] {
            assert_eq!((one.heads, one.is_within_message), (other.heads, other.is_within_message), "cut at {ends:?}");
            assert_eq!(one.fault.map(without_cookies), other.fault.map(without_cookies), "cut at {ends:?}");
            assert!(one.passed <= other.passed, "{one:?} and {other:?}, cut at {ends:?}");
        }
    }
}

/// Checks that all of the messages before a fault go through, and nothing of the head that has it.
fn check_fault(whole: &Verdict, trail: &Trail) {
    if whole.fault.is_none() {
        return;
    }
    let expected = match trail.messages.last() {
        None => 0,
        // The fault is in a body, which goes through up to the byte that shows it.
        Some(Message { end: None, .. }) => trail.verdict.passed,
        Some(Message { end: Some(end), .. }) => *end,
    };
    assert_eq!(whole.passed, expected, "{whole:?}");
}

/// Makes one fault of the two of large heads: how much of the head is cookies depends on how much of it came.
fn without_cookies(fault: HeadFault) -> HeadFault {
    if fault == HeadFault::CookiesTooLarge { HeadFault::HeadTooLarge } else { fault }
}

/// Returns the ends of pieces that depend on nothing but the length of the input and a seed.
fn division(length: usize, seed: u64) -> Vec<usize> {
    let mut state = (length as u64) << 8 | seed << 1 | 1;
    let longest = 3_usize << (3 * seed);
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        1 + usize::try_from(state).unwrap_or_default() % longest
    };
    let ends = std::iter::repeat_with(step).scan(0, |end, step| {
        *end += step;
        Some(*end)
    });
    ends.take_while(|end| *end < length).collect()
}

/// Checks that the library sees the same heads, and the same bodies behind them. It may refuse a message on its own: it
/// reads nothing behind that.
fn check_reading(bytes: &[u8], trail: &Trail) {
    let mut from = 0;
    for message in &trail.messages {
        let body = match library::head(&bytes[from..]) {
            Head::Whole { length, body } => {
                assert_eq!(from + length, message.head_end, "another end of the head at {from}");
                body
            }
            Head::Refused => return,
            Head::Unfinished => panic!("the library waits for the rest of the head at {from}"),
        };
        let rest = &bytes[message.head_end..];
        match body.end(rest) {
            Ok(end) => {
                let end = end.map(|length| message.head_end + length);
                assert_eq!(end, message.end, "another end of the body at {}", message.head_end);
            }
            Err(library::Refused) => {
                let is_chunked = matches!(body, Body::Chunked);
                assert!(is_chunked, "only a chunked body can be broken");
                return;
            }
        }
        let Some(end) = message.end else { return };
        from = end;
    }
    // Of a head that was refused, or has not ended, nothing that went through is a head.
    let is_head = matches!(library::head(&bytes[from..]), Head::Whole { .. });
    assert!(!is_head, "the library sees a head at {from} that was not let through");
}
