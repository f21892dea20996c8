use proptest::prelude::*;

use super::*;

const LIMIT: usize = 8 * 1024;

/// What a connection's bytes come to: heads that came whole, whether the next byte belongs to a message, and the fault
/// with how many bytes were good before it.
type Outcome = (u64, bool, Option<(HeadFault, usize)>);

/// Feeds `bytes` in pieces that end at `cuts`.
fn outcome(bytes: &[u8], cuts: &[usize]) -> Outcome {
    let mut watcher = Watcher::new(LIMIT);
    let mut from = 0;
    for to in cuts.iter().copied().chain([bytes.len()]) {
        let to = to.clamp(from, bytes.len());
        match watcher.look(&bytes[from..to]) {
            Ok(()) => {}
            Err(Ambiguity::Head { request, keep }) => {
                return (watcher.heads(), false, Some((request.fault, from + keep)));
            }
            // Its own name would be that of the body's end.
            Err(Ambiguity::Body { keep }) => {
                return (watcher.heads(), true, Some((HeadFault::BareLineFeed, from + keep)));
            }
        }
        from = to;
    }
    (watcher.heads(), watcher.is_within_message(), None)
}

#[track_caller]
fn check_fault(fields: &str, expected: HeadFault) {
    let before = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let bytes = format!("{before}POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    assert_eq!(outcome(bytes.as_bytes(), &[]), (1, false, Some((expected, before.len()))), "{fields:?}");
    // Byte by byte the same head is refused, at whatever byte that shows.
    let cuts: Vec<usize> = (0..bytes.len()).collect();
    let (heads, _, fault) = outcome(bytes.as_bytes(), &cuts);
    assert_eq!((heads, fault.map(|(fault, _)| fault)), (1, Some(expected)), "{fields:?}");
}

#[track_caller]
fn check_clean(bytes: &str, heads: u64) {
    assert_eq!(outcome(bytes.as_bytes(), &[]), (heads, false, None), "{bytes:?}");
    let cuts: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(outcome(bytes.as_bytes(), &cuts), (heads, false, None), "{bytes:?}");
}

#[test]
fn ambiguous_fields_are_named() {
    for (fields, fault) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", HeadFault::LengthAndEncoding),
        ("transfer-encoding:chunked\r\nCONTENT-LENGTH:1", HeadFault::LengthAndEncoding),
        ("Content-Length: 1\r\nContent-Length: 1", HeadFault::Length),
        ("Content-Length: 1\r\ncontent-length: 2", HeadFault::Length),
        ("Content-Length: +1", HeadFault::Length),
        ("Content-Length: 1, 1", HeadFault::Length),
        ("Content-Length: ", HeadFault::Length),
        ("Content-Length: 99999999999999999999", HeadFault::Length),
        ("Transfer-Encoding: xchunked", HeadFault::Encoding),
        ("Transfer-Encoding: gzip, chunked", HeadFault::Encoding),
        ("Transfer-Encoding: chunked, identity", HeadFault::Encoding),
        ("Transfer-Encoding: \x0bchunked", HeadFault::Encoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", HeadFault::Encoding),
        ("Transfer-Encoding:", HeadFault::Encoding),
        ("host: b", HeadFault::HostDuplicate),
        ("A: 1\r\n folded", HeadFault::FoldedLine),
        ("A: 1\r\n\tfolded", HeadFault::FoldedLine),
        ("Transfer-Encoding : chunked", HeadFault::BlankBeforeColon),
        ("Content-Length\t: 1", HeadFault::BlankBeforeColon),
        ("A: 1\nB: 2", HeadFault::BareLineFeed),
        ("A: 1\r\n\nGET / HTTP/1.1", HeadFault::BareLineFeed),
    ] {
        check_fault(fields, fault);
    }
}

#[test]
fn transfer_encoding_over_http10_is_named() {
    let bytes = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(outcome(bytes, &[]), (0, false, Some((HeadFault::Encoding, 0))));
}

#[test]
fn heads_above_the_limit_are_refused_by_the_part_that_is_too_large() {
    let line = format!("GET /{} HTTP/1.1\r\n", "a".repeat(LIMIT));
    assert_eq!(outcome(line.as_bytes(), &[]).2, Some((HeadFault::TargetTooLong, 0)));
    assert_eq!(
        outcome(&line.as_bytes()[..LIMIT + 1], &[100, 4000]).2.map(|(fault, _)| fault),
        Some(HeadFault::TargetTooLong)
    );
    let fields = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(LIMIT));
    assert_eq!(outcome(fields.as_bytes(), &[20]).2.map(|(fault, _)| fault), Some(HeadFault::HeadTooLarge));
}

#[test]
fn requests_are_followed_to_their_last_byte() {
    let get = "GET /x HTTP/1.1\r\nHost: a\r\nHosts: b\r\nA:\r\n\r\n";
    check_clean(get, 1);
    check_clean(&format!("\r\n\r\n{get}\r\n{get}"), 2);
    check_clean(&format!("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\nA \n{get}"), 2);
    check_clean(&format!("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n{get}"), 2);
    let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n";
    for body in [
        "0\r\n\r\n",
        "3\r\n\n\n\n\r\n0\r\n\r\n",
        "00A ;x=\"y\r\n0\r\n\r\n56789\r\n0;z\r\nA: b\r\nC: d\r\n\r\n",
        "0\r\n\rx\r\n\r\n",
    ] {
        check_clean(&format!("{chunked}{body}{get}"), 2);
    }
}

#[test]
fn bare_line_feed_in_trailers_breaks_the_body_and_hides_nothing() {
    let get = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    for (good, rest) in
        [("0\r\nX: 1", "\n\n"), ("0\r\n", "\n\n"), ("0\r\nX: 1\r\n", "\n\n"), ("0\r\nA: b", "\nC: d\r\n\r\n")]
    {
        let before = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{good}");
        let bytes = format!("{before}{rest}{get}");
        let expected = (1, true, Some((HeadFault::BareLineFeed, before.len())));
        assert_eq!(outcome(bytes.as_bytes(), &[]), expected, "{bytes:?}");
        let cuts: Vec<usize> = (0..bytes.len()).collect();
        assert_eq!(outcome(bytes.as_bytes(), &cuts), expected, "{bytes:?}");
    }
}

#[test]
fn broken_chunks_and_http2_are_not_followed() {
    let bad = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nA: 1\n B: 2\r\n\r\n";
    assert_eq!(outcome(bad.as_bytes(), &[]), (1, false, None));
    let huge = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nA: 1\n\r\n\r\n";
    assert_eq!(outcome(huge.as_bytes(), &[]), (1, false, None));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\n\n\n\0\0";
    let cuts: Vec<usize> = (0..preface.len()).collect();
    assert_eq!(outcome(preface, &cuts), (0, false, None));
    let mut settled = Watcher::new(LIMIT);
    settled.keep_to_http1();
    assert!(settled.look(preface).is_err(), "the handshake chose HTTP/1.1");
    let late = b"GET / HTTP/1.1\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(outcome(late, &[]).2.map(|(fault, _)| fault), Some(HeadFault::Malformed));
}

#[test]
fn asking_for_another_protocol_suspends_the_watch_until_it_is_answered() {
    let upgrade = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    let bad = b"GET / HTTP/1.1\nA: 1\r\n\r\n";
    let mut declined = Watcher::new(LIMIT);
    assert_eq!(declined.look(upgrade), Ok(()));
    assert!(declined.is_switching() && !declined.is_within_message());
    declined.settle(true);
    assert!(declined.look(bad).is_err());

    let mut switched = Watcher::new(LIMIT);
    assert_eq!(switched.look(upgrade), Ok(()));
    switched.settle(false);
    assert_eq!(switched.look(bad), Ok(()));

    let mut early = Watcher::new(LIMIT);
    assert_eq!(early.look(&[upgrade.as_slice(), bad].concat()), Ok(()));
    assert!(!early.is_switching());

    // Over HTTP/1.0 the field means nothing.
    let mut old = Watcher::new(LIMIT);
    assert_eq!(old.look(b"GET / HTTP/1.0\r\nUpgrade: websocket\r\n\r\n"), Ok(()));
    assert!(!old.is_switching());
}

#[test]
fn refusal_knows_who_asked() {
    let mut watcher = Watcher::new(LIMIT);
    let head = b"HEAD / HTTP/1.1\r\nSec-Fetch-Mode: navigate\r\n x\r\n\r\n";
    let found = watcher.look(head).expect_err("a fold");
    let request = RefusedRequest { fault: HeadFault::FoldedLine, is_navigation: true, is_head: true };
    assert_eq!(found, Ambiguity::Head { request, keep: 0 });
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "POST /x HTTP/1.1\r\n", "Host: a\r\n", "Content-Length: 3\r\n", "Content-Length: 0\r\n",
            "Transfer-Encoding: chunked\r\n", "Upgrade: x\r\n", "\r\n", "\n", "\r", "abc", "3\r\nabc\r\n", "0\r\n\r\n", "A: b\r\n",
            " ", ":", "PRI * HTTP/2.0\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}

proptest! {
    #[test]
    fn outcome_does_not_depend_on_how_bytes_are_cut(
        pieces in prop::collection::vec(piece(), 0..12),
        mut cuts in prop::collection::vec(0_usize..200, 0..6),
    ) {
        let bytes = pieces.concat();
        cuts.sort_unstable();
        // Whatever comes behind a request for another protocol at once is not looked at; cut later, it is the shell that
        // decides. That alone may differ.
        prop_assume!(!bytes.windows(7).any(|window| window.eq_ignore_ascii_case(b"upgrade")));
        let (heads, within, fault) = outcome(&bytes, &[]);
        let (cut_heads, cut_within, cut_fault) = outcome(&bytes, &cuts);
        prop_assert_eq!((heads, within, fault.map(|(fault, _)| fault)), (cut_heads, cut_within, cut_fault.map(|(fault, _)| fault)));
        // Of a refused head, nothing but what came in earlier pieces goes through.
        if let (Some((_, whole)), Some((_, cut))) = (fault, cut_fault) {
            prop_assert!(cut >= whole);
        }
    }
}
