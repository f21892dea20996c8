//! Bytes of connections, in any pieces, and what is recorded of them.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::time::Instant;

use super::super::exchange::{BODY_BYTES_MAX, Exchange, Kind, MESSAGES_MAX, Progress, Way};
use super::super::log::{Bounds, Log};
use super::super::recorder::{Origin, Recorder};
use super::super::tee::Tee;
use super::super::websocket::MESSAGE_BYTES_MAX;

/// A piece of a connection: bytes of one direction, or its end.
#[derive(Clone, Debug)]
struct Piece {
    way: Way,
    /// `None` for the end.
    bytes: Option<Vec<u8>>,
}

fn inward(bytes: impl AsRef<[u8]>) -> Piece {
    Piece { way: Way::Inward, bytes: Some(bytes.as_ref().to_vec()) }
}

fn outward(bytes: impl AsRef<[u8]>) -> Piece {
    Piece { way: Way::Outward, bytes: Some(bytes.as_ref().to_vec()) }
}

fn end(way: Way) -> Piece {
    Piece { way, bytes: None }
}

/// Bounds that a test can reach.
const SMALL: Bounds = Bounds { exchanges: 20, bytes: 64 * 1024 };

fn origin(now: Instant) -> Origin {
    Origin { port: 3000, is_tls: false, replay_of: None, began: now }
}

/// Records a connection, whose pieces are cut at these lengths, again and again; no time passes.
fn recorded_within(bounds: Bounds, pieces: &[Piece], cuts: &[usize]) -> Vec<Exchange> {
    let (log, now) = (Arc::new(Log::new(bounds)), Instant::now());
    let mut recorder = Recorder::new(log.clone(), origin(now), now);
    let mut cuts = cuts.iter().copied().cycle();
    for piece in pieces {
        let Some(bytes) = &piece.bytes else {
            recorder.end(piece.way, now);
            continue;
        };
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (cut, behind) = rest.split_at(cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
            recorder.read(piece.way, cut, now);
            assert!(log.bytes() <= bounds.bytes, "{} bytes are held", log.bytes());
            rest = behind;
        }
    }
    recorder.give_up("it was given up", now);
    let mut exchanges: Vec<_> = log.list().iter().map(|record| record.copy()).collect();
    for exchange in &mut exchanges {
        // The clock of the machine goes on between two recordings.
        exchange.began = jiff::Timestamp::UNIX_EPOCH;
    }
    exchanges
}

fn recorded(pieces: &[Piece], cuts: &[usize]) -> Vec<Exchange> {
    recorded_within(Bounds::default(), pieces, cuts)
}

const GET: &str = "GET /a?token=s3cr3t HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: https\r\nCookie: s3cr3t\r\n\r\n";

fn request(start: &str, more: &str) -> Piece {
    inward(format!("{start} HTTP/1.1\r\nhost: x\r\nx-forwarded-proto: http\r\n{more}\r\n"))
}

/// A frame of a WebSocket.
fn frame(first: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut frame = match payload.len() {
        length @ 0..=125 => vec![first, masked | u8::try_from(length).expect("short")],
        length @ 126..=65_535 => {
            [&[first, masked | 126][..], &u16::try_from(length).expect("short").to_be_bytes()].concat()
        }
        length => [&[first, masked | 127][..], &(length as u64).to_be_bytes()].concat(),
    };
    let mask = mask.inspect(|mask| frame.extend_from_slice(mask)).unwrap_or_default();
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A connection with one of everything.
fn everything() -> Vec<Piece> {
    let mask = Some([1, 2, 3, 4]);
    vec![
        inward(GET),
        outward(
            "HTTP/1.1 103 Early Hints\r\nlink: </s?token=s3cr3t>\r\n\r\nHTTP/1.1 200 OK\r\nset-cookie: s3cr3t\r\ncontent-length: 5\r\n\r\nhello",
        ),
        request("POST /b", "transfer-encoding: chunked\r\n"),
        inward("3;x=y\r\nabc\r\n00a\r\n0123456789\r\n0\r\ntrailer: 1\r\n\r\n"),
        outward("HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n4\r\noops\r\n0\r\n\r\n"),
        request("HEAD /c", ""),
        outward("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"),
        request("GET /d", ""),
        outward("HTTP/1.1 304 Not Modified\r\ncontent-length: 100\r\n\r\n"),
        request("GET /ws", "upgrade: websocket\r\nconnection: upgrade\r\n"),
        outward("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n"),
        inward([frame(0x01, mask, b"hel"), frame(0x89, mask, b"ping"), frame(0x80, mask, b"lo")].concat()),
        outward([frame(0x82, None, &[0; 300]), frame(0xc1, None, b"packed"), frame(0x88, None, &[3, 232])].concat()),
        end(Way::Outward),
    ]
}

#[test]
fn exchanges_of_a_connection_are_told_apart() {
    let exchanges = recorded(&everything(), &[usize::MAX]);
    let said: Vec<_> = exchanges
        .iter()
        .map(|exchange| {
            let status = exchange.response.as_ref().map_or(0, |head| head.status);
            (&*exchange.request.method, &*exchange.request.target, status, exchange.progress)
        })
        .collect();
    let expected = [
        ("GET", "/a?token=redacted", 200, Progress::Done),
        ("POST", "/b", 500, Progress::Done),
        ("HEAD", "/c", 200, Progress::Done),
        ("GET", "/d", 304, Progress::Done),
        ("GET", "/ws", 101, Progress::Done),
    ];
    assert_eq!(said, expected);
    assert_eq!(exchanges[0].response_body.bytes, b"hello");
    assert_eq!(
        (&*exchanges[1].request_body.bytes, &*exchanges[1].response_body.bytes),
        (&b"abc0123456789"[..], &b"oops"[..])
    );
    assert!(exchanges[1].has_failed() && !exchanges[0].has_failed());
    assert_eq!(
        exchanges.iter().map(|exchange| exchange.connect.is_some()).collect::<Vec<_>>(),
        [true, false, false, false, false]
    );
    let messages: Vec<_> = exchanges[4]
        .messages
        .iter()
        .map(|message| (message.way, message.frame.opcode, message.frame.is_compressed, message.frame.kept.len()))
        .collect();
    let expected = [
        (Way::Inward, 9, false, 4),
        (Way::Inward, 1, false, 5),
        (Way::Outward, 2, false, 300),
        (Way::Outward, 1, true, 6),
        (Way::Outward, 8, false, 2),
    ];
    assert_eq!((exchanges[4].kind, messages.as_slice()), (Kind::WebSocket, &expected[..]));
    assert_eq!(exchanges[4].messages[1].frame.kept, b"hello");
}

#[test]
fn credentials_are_nowhere_in_what_is_recorded() {
    let text = format!("{:?}", recorded(&everything(), &[7]));
    assert!(text.contains("[redacted]") && !text.contains("s3cr3t"), "{text}");
}

#[test]
fn raw_bytes_and_http_that_the_gateway_did_not_send_are_not_recorded() {
    for pieces in [
        vec![inward("GET / HTTP/1.1\r\nhost: x\r\n\r\n"), outward("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")],
        vec![outward("SSH-2.0-OpenSSH_9.9\r\n"), inward("SSH-2.0-OpenSSH_9.9\r\n"), outward([0, 1, 2])],
        vec![inward([22, 3, 1, 2, 0, 1]), outward([22, 3, 3])],
        vec![inward("*1\r\n$4\r\nPING\r\n"), outward("+PONG\r\n")],
    ] {
        assert_eq!(recorded(&pieces, &[usize::MAX]), [], "{pieces:?}");
    }
}

#[test]
fn http2_is_one_entry_of_counted_bytes() {
    let pieces = [inward("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"), outward([0; 9]), end(Way::Outward)];
    let exchanges = recorded(&pieces, &[5]);
    let [exchange] = exchanges.as_slice() else { panic!("{exchanges:?}") };
    assert_eq!((exchange.kind, exchange.progress), (Kind::Http2, Progress::Done));
    assert_eq!((exchange.request_body.length, exchange.response_body.length), (33, 9));
    assert!(exchange.request_body.bytes.is_empty() && !exchange.has_failed());
}

#[test]
fn what_cannot_be_read_is_incomplete_and_the_rest_is_left_alone() {
    for (pieces, wrong) in [
        (vec![request("GET /", ""), outward("HTTP/1.1 200\0OK\r\n\r\n"), outward("more")], "no HTTP/1.1"),
        (vec![request("GET /", ""), outward("HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n")], "two lengths"),
        (vec![request("POST /", "transfer-encoding: chunked\r\n"), inward("x\r\n")], "framed"),
        (vec![request("GET /", ""), outward("HTTP/1.1 101 X\r\n\r\n")], "another protocol"),
        (vec![request("GET /", ""), end(Way::Outward)], "ended in the middle"),
        (vec![request("GET /", "")], "given up"),
    ] {
        let exchanges = recorded(&pieces, &[usize::MAX]);
        let Some(Progress::Incomplete(why)) = exchanges.first().map(|exchange| exchange.progress) else {
            panic!("{exchanges:?}")
        };
        assert!(why.contains(wrong), "{why}");
        assert!(exchanges[0].has_failed() || exchanges[0].response.is_some());
    }
    // An answer that the end of the connection ends is whole.
    let pieces = [request("GET /", ""), outward("HTTP/1.0 200 OK\r\n\r\nall of it"), end(Way::Outward)];
    let exchanges = recorded(&pieces, &[usize::MAX]);
    assert_eq!((exchanges[0].progress, &*exchanges[0].response_body.bytes), (Progress::Done, &b"all of it"[..]));
}

#[test]
fn bodies_messages_and_exchanges_are_kept_up_to_their_bounds() {
    let long = vec![b'a'; 3 * BODY_BYTES_MAX];
    let head = format!("content-length: {}\r\n", long.len());
    let pieces =
        [request("PUT /", &head), inward(&long), outward(format!("HTTP/1.1 200 OK\r\n{head}\r\n")), outward(&long)];
    let exchange = recorded(&pieces, &[5000]).remove(0);
    for body in [&exchange.request_body, &exchange.response_body] {
        assert_eq!((body.length, body.bytes.len(), body.is_cut()), (long.len() as u64, BODY_BYTES_MAX, true));
        assert!(body.bytes.capacity() <= BODY_BYTES_MAX);
    }
    let mut pieces = everything();
    pieces.truncate(11);
    pieces.push(outward(frame(0x81, None, &long)));
    pieces.extend((0..2 * MESSAGES_MAX).map(|_| outward(frame(0x81, None, b"x"))));
    let exchange = recorded(&pieces, &[5000]).pop().expect("a WebSocket");
    assert_eq!((exchange.messages.len(), exchange.messages_all), (MESSAGES_MAX, 2 * MESSAGES_MAX as u64 + 1));
    let many: Vec<_> = (0..50).flat_map(|_| [request("GET /", ""), outward("HTTP/1.1 204 X\r\n\r\n")]).collect();
    let exchanges = recorded_within(SMALL, &many, &[usize::MAX]);
    assert_eq!((exchanges.len(), exchanges[0].id), (20, 31), "the last ones");
    assert!(MESSAGE_BYTES_MAX < long.len());
}

#[test]
fn log_counts_nothing_once_all_is_forgotten() {
    let (log, now) = (Arc::new(Log::new(Bounds::default())), Instant::now());
    let mut recorder = Recorder::new(log.clone(), origin(now), now);
    recorder.read(Way::Inward, GET.as_bytes(), now);
    assert!(log.bytes() > 0);
    log.clear();
    assert_eq!(log.bytes(), 0);
    // It goes on, and is not kept.
    recorder.read(Way::Outward, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", now);
    assert_eq!((log.bytes(), log.list().len()), (0, 0));
    recorder.read(Way::Inward, GET.as_bytes(), now);
    assert_eq!(log.list().len(), 1);
}

#[tokio::test]
async fn bytes_pass_as_they_are_whatever_is_recorded_of_them() {
    let (app, mut far) = duplex(1000);
    let log = Arc::new(Log::new(SMALL));
    let now = Instant::now();
    let mut tee = Tee::new(app, Recorder::new(log.clone(), origin(now), now));
    let sent: Vec<u8> =
        GET.bytes().chain((0..5000_u32).map(|number| u8::try_from(number % 251).expect("small"))).collect();
    let answer = [b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n".as_slice(), &[0; 5000], b"\xff\0"].concat();
    let (mut got, mut read) = (vec![0; sent.len()], Vec::new());
    let far = async {
        far.read_exact(&mut got).await.expect("all of it");
        far.write_all(&answer).await.expect("written");
        drop(far);
    };
    let near = async {
        tee.write_all(&sent).await.expect("written");
        tee.read_to_end(&mut read).await.expect("all of it");
    };
    tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(far, near) }).await.expect("no waiting");
    assert_eq!((got, read), (sent, answer));
    assert!(matches!(log.list()[0].copy().progress, Progress::Incomplete(_)));
}

fn hostile() -> impl Strategy<Value = Vec<Piece>> {
    let parts = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 101 X\r\n",
        "HTTP/1.1 100 X\r\n",
        "x-forwarded-proto: http\r\n",
        "content-length: 3\r\n",
        "content-length: 99999999999999999999\r\n",
        "transfer-encoding: chunked\r\n",
        "\r\n",
        "\n",
        "abc",
        "ffffffffffffffff\r\n",
        "3\r\n",
        "0\r\n\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-accept: x\r\n",
        "PRI * HTTP/2.0\r\n\r\n",
        "\u{81}\u{5}hello",
        "\0",
        ":",
        "CONNECT a:1 HTTP/1.1\r\n",
    ]);
    let text = prop::collection::vec(parts, 1..8).prop_map(|parts| parts.concat().into_bytes());
    let frames = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..200))
        .prop_map(|(first, payload)| frame(first, Some([9, 8, 7, 6]), &payload));
    let noise = prop::collection::vec(any::<u8>(), 1..40);
    let bytes = prop_oneof![4 => text, 2 => frames, 1 => noise];
    let piece = (any::<bool>(), prop::option::weighted(0.95, bytes))
        .prop_map(|(is_inward, bytes)| Piece { way: if is_inward { Way::Inward } else { Way::Outward }, bytes });
    (any::<bool>(), prop::collection::vec(piece, 0..30)).prop_map(|(begins, pieces)| {
        let first = if begins { everything().into_iter().take(11).collect() } else { Vec::new() };
        first.into_iter().chain(pieces).collect()
    })
}

proptest! {
    #[test]
    fn any_cutting_of_the_bytes_gives_the_same_record(cuts in prop::collection::vec(1..40_usize, 1..20)) {
        prop_assert_eq!(recorded(&everything(), &cuts), recorded(&everything(), &[usize::MAX]));
    }

    #[test]
    fn hostile_bytes_are_recorded_alike_in_any_cutting_and_within_the_bounds(pieces in hostile(), cuts in prop::collection::vec(1..20_usize, 1..10)) {
        let whole = recorded_within(SMALL, &pieces, &[usize::MAX]);
        prop_assert_eq!(recorded_within(SMALL, &pieces, &cuts), whole);
    }

    #[test]
    fn reader_holds_no_more_than_heads_and_messages(pieces in prop::collection::vec((any::<bool>(), "[A-Z /\r\n:a-z]{1,200}", 1..4000_usize), 1..20)) {
        let mut connection = super::super::connection::Connection::new();
        for (is_inward, text, times) in pieces {
            let way = if is_inward { Way::Inward } else { Way::Outward };
            connection.read(way, text.repeat(times).as_bytes(), &mut |_| {});
            prop_assert!(connection.held() <= 4 * 128 * 1024, "{}", connection.held());
        }
    }
}
