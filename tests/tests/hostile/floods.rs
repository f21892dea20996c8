//! Floods over HTTP/2 that the library takes, one frame after the other as it likes them: the connection is told to calm down
//! and ends, and a neighbour is served meanwhile.

use std::time::Duration;

use e2e::until;
use gateway_config::Config;

use crate::support::{
    END_HEADERS, END_STREAM, Frame, GOAWAY, H2, HEADERS, PING, RST_STREAM, SETTINGS, Stage, WINDOW_UPDATE, block,
    fields, frame, h2_get, resident_bytes, silent_app,
};

const MIB: usize = 1024 * 1024;
const ENHANCE_YOUR_CALM: u32 = 11;
const PRIORITY: u8 = 2;
const ACK: u8 = 1;

/// Resets a second: five seconds' worth may come at once.
const RESETS: u32 = 10;
const RESETS_AT_ONCE: u32 = 50;

fn limited(config: &mut Config) {
    config.limits.http2_resets_per_second = RESETS;
}

struct Flooded {
    stage: Stage,
    silent: e2e::raw::RawApp,
    get: Vec<u8>,
}

impl Flooded {
    async fn new() -> Self {
        Self::of(Stage::new(limited).await).await
    }

    async fn of(stage: Stage) -> Self {
        let silent = silent_app().await;
        let (authority, bearer) =
            (stage.gateway.authority("one", silent.port), format!("Bearer {}", stage.gateway.user_token));
        let get = block(&h2_get(&authority, &bearer, "/flood"));
        assert!(fields(&stage.gateway, silent.port).contains(&authority));
        stage.assert_serves().await;
        Self { stage, silent, get }
    }

    fn open(&self, stream: u32) -> Vec<u8> {
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &self.get)
    }

    /// The connection was ended for this limit, soon nothing of it is left, and others are served.
    async fn assert_calmed(self, h2: H2, end: &Frame, limit: &str) {
        assert_eq!(code_of(end), ENHANCE_YOUR_CALM);
        drop(h2);
        assert_eq!(self.stage.gateway.reached(limit).await, 1.0);
        let session = self.stage.gateway.registry.all().remove(0);
        until("its requests are over", || session.in_flight() == 0).await;
        self.stage.assert_serves().await;
        drop(self.silent);
        self.stage.finish().await;
    }
}

fn code_of(goaway: &Frame) -> u32 {
    assert_eq!(goaway.kind, GOAWAY);
    u32::from_be_bytes(goaway.payload[4..8].try_into().unwrap())
}

/// Sends, and waits until all of it was taken: until a ping behind it came back. Returns a GOAWAY instead, if one comes.
async fn taken(h2: &mut H2, bytes: &[u8], number: u32) -> Option<Frame> {
    let token = u64::from(number).to_be_bytes();
    h2.raw.try_send([bytes, &frame(PING, 0, 0, &token)].concat()).await.ok();
    loop {
        let got = h2.frame().await.expect("the connection ends with a GOAWAY");
        match got.kind {
            GOAWAY => return Some(got),
            PING if got.payload == token => return None,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_reset_once_they_were_taken_end_the_connection_by_name() {
    let flooded = Flooded::new().await;
    let mut h2 = H2::connect(&flooded.stage, &[]).await;
    for number in 0..4 * RESETS_AT_ONCE {
        let stream = 2 * number + 1;
        // Taken by the gateway, so that the library has no objection.
        if let Some(end) = taken(&mut h2, &flooded.open(stream), 2 * number).await {
            panic!("{end:?}");
        }
        if let Some(end) = taken(&mut h2, &frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]), 2 * number + 1).await {
            assert!(number >= RESETS_AT_ONCE, "after {number}");
            return flooded.assert_calmed(h2, &end, "limits.http2_resets_per_second").await;
        }
    }
    panic!("all of them were taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_that_a_client_provokes_end_the_connection_by_name() {
    let flooded = Flooded::new().await;
    let mut h2 = H2::connect(&flooded.stage, &[]).await;
    for number in 0..4 * RESETS_AT_ONCE {
        let stream = 2 * number + 1;
        // A window that overflows is an error of its stream (RFC 9113, section 6.9.1): the gateway resets it.
        let provoked = [flooded.open(stream), frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])].concat();
        if let Some(end) = taken(&mut h2, &provoked, number).await {
            assert!(number >= RESETS_AT_ONCE, "after {number}");
            return flooded.assert_calmed(h2, &end, "limits.http2_resets_per_second").await;
        }
    }
    panic!("all of them were taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_above_the_limit_again_and_again_end_the_connection_by_name() {
    let flooded = Flooded::new().await;
    let mut h2 = H2::connect(&flooded.stage, &[]).await;
    let mut number = 0;
    let mut next = |count: u32| {
        let streams = (number..number + count).flat_map(|number| flooded.open(2 * number + 1)).collect::<Vec<_>>();
        number += count;
        streams
    };
    let full = next(256);
    assert!(taken(&mut h2, &full, 0).await.is_none());
    for round in 1..100 {
        let more = next(10);
        if let Some(end) = taken(&mut h2, &more, round).await {
            assert!(round >= RESETS_AT_ONCE / 10, "after {round}");
            return flooded.assert_calmed(h2, &end, "limits.http2_resets_per_second").await;
        }
    }
    panic!("all of them were refused one by one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_carry_nothing_end_the_connection_by_name() {
    for (told, piece) in [
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("acknowledged pings", frame(PING, ACK, 0, &[7; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("priorities", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("windows", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("unknown frames", frame(0xbe, 0, 0, b"what is this")),
    ] {
        let flooded = Flooded::new().await;
        let mut h2 = H2::connect(&flooded.stage, &[]).await;
        let mut end = None;
        for round in 0..200 {
            // Answers are read, so nothing but their number is wrong with them.
            end = taken(&mut h2, &piece.repeat(500), round).await;
            if end.is_some() {
                assert!(round >= 6, "{told}: after {round}");
                break;
            }
        }
        let end = end.unwrap_or_else(|| panic!("100000 {told} were taken"));
        flooded.assert_calmed(h2, &end, "http2_frames").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_block_that_unpacks_to_a_huge_head_is_refused_and_takes_no_memory() {
    let flooded = Flooded::of(Stage::alone(limited).await).await;
    let before = resident_bytes();
    for round in 0..20 {
        let mut h2 = H2::connect(&flooded.stage, &[]).await;
        // A field of 4000 bytes into the table, and then one byte for each time that it is meant (RFC 7541, section 6.1).
        let mut bomb = flooded.get.clone();
        bomb.extend([0x40, 1, b'x', 127]);
        let mut length = 3900 - 127;
        while length >= 128 {
            bomb.push((length % 128) as u8 | 128);
            length /= 128;
        }
        bomb.push(length as u8);
        bomb.extend([b'y'; 3900]);
        bomb.extend([0x80 | 62; 10_000]);
        h2.raw.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb)).await;
        let end = tokio::time::timeout(Duration::from_secs(5), h2.until(&[HEADERS, RST_STREAM], 1)).await;
        assert!(end.is_ok(), "round {round}: neither answered nor closed");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 160 * MIB, "{} MiB for twenty heads of 40 MB", grown / MIB);
    assert!(flooded.stage.seen().iter().all(|line| !line.contains("flood")));
    flooded.stage.assert_serves().await;
    flooded.stage.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_downloads_much_may_say_often_that_there_is_room() {
    let stage = Stage::new(|_| {}).await;
    let app = e2e::raw::RawApp::start(|mut raw| async move {
        use tokio::io::AsyncWriteExt as _;
        raw.head().await;
        let body = vec![b'x'; 16 * MIB];
        raw.try_send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len())).await.ok();
        raw.socket().write_all(&body).await.ok();
        raw.read_rest().await;
    })
    .await;
    let authority = stage.gateway.authority("one", app.port);
    let bearer = format!("Bearer {}", stage.gateway.user_token);
    let mut h2 = H2::connect(&stage, &[]).await;
    h2.raw.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&h2_get(&authority, &bearer, "/")))).await;
    let mut received = 0;
    while received < 16 * MIB {
        let got = h2.frame().await.expect("it goes on");
        assert_ne!(got.kind, GOAWAY, "{got:?}");
        if got.kind == 0 {
            received += got.payload.len();
            // As a client does that gives back each 2 KiB, for the stream and for the connection.
            for part in got.payload.chunks(2048) {
                let room = (part.len() as u32).to_be_bytes();
                let both = [frame(WINDOW_UPDATE, 0, 1, &room), frame(WINDOW_UPDATE, 0, 0, &room)].concat();
                h2.raw.send(both).await;
            }
        }
    }
    drop(h2);
    stage.finish().await;
}
