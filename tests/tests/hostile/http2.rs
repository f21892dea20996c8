//! Floods over HTTP/2: the connection ends or is bounded, and another user is served meanwhile.

use std::time::Duration;

use e2e::raw::RawApp;
use e2e::until;

use crate::support::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, H2, HEADERS, PING, RST_STREAM, SETTINGS, Stage, WINDOW_UPDATE,
    block, fields, frame, h2_get, resident_bytes,
};

const MIB: usize = 1024 * 1024;
const ENHANCE_YOUR_CALM: u32 = 11;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

struct Flooded {
    stage: Stage,
    authority: String,
    bearer: String,
    before: usize,
}

impl Flooded {
    async fn new() -> Self {
        let stage = Stage::alone(|_| {}).await;
        let (authority, bearer) = (stage.authority(), format!("Bearer {}", stage.gateway.user_token));
        stage.assert_serves().await;
        Self { stage, authority, bearer, before: resident_bytes() }
    }

    fn get(&self, path: &str) -> Vec<u8> {
        block(&h2_get(&self.authority, &self.bearer, path))
    }

    /// Writes `piece` so many times, or until the gateway has had enough. Returns whether it had.
    async fn flood(&self, h2: &mut H2, piece: &[u8], times: usize) -> bool {
        use tokio::io::AsyncWriteExt as _;
        for _ in 0..times {
            // A gateway that does not read on has bounded it too.
            let written = tokio::time::timeout(Duration::from_millis(500), h2.raw.socket().write_all(piece)).await;
            match written {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return true,
            }
        }
        false
    }

    async fn finish(self, h2: H2) {
        self.stage.assert_serves().await;
        let grown = resident_bytes().saturating_sub(self.before);
        assert!(grown < 64 * MIB, "{} MiB for a flood", grown / MIB);
        drop(h2);
        self.stage.finish().await;
    }
}

/// Reads up to the end of the connection and returns the code of its GOAWAY.
async fn goaway(h2: &mut H2) -> Option<u32> {
    let frame = h2.until(&[GOAWAY], 0).await?;
    Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_end_the_connection() {
    let flooded = Flooded::new().await;
    let mut h2 = H2::connect(&flooded.stage, &[]).await;
    let get = flooded.get("/rapid");
    let mut stream = 1;
    let mut ended = false;
    for _ in 0..100 {
        let mut piece = Vec::new();
        for _ in 0..100 {
            piece.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &get));
            piece.extend(frame(RST_STREAM, 0, stream, &CANCEL));
            stream += 2;
        }
        if h2.raw.try_send(piece).await.is_err() {
            ended = true;
            break;
        }
        tokio::task::yield_now().await;
    }
    flooded.stage.assert_serves().await;
    // The reset of the socket may overtake the frame that says why.
    let code = goaway(&mut h2).await;
    assert!(ended || code.is_some(), "10000 resets were taken");
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
    flooded.stage.gateway.assert_quiet().await;
    flooded.finish(h2).await;
}

/// CVE-2025-8671: streams that the user does not reset, but brings the other end to reset, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_that_a_user_provokes_end_the_connection() {
    let flooded = Flooded::new().await;
    let get = flooded.get("/provoked");
    // The library takes the first for a fault of the connection.
    for (told, faulty) in [("no window", [0; 4]), ("a window that overflows", [0x7f, 0xff, 0xff, 0xff])] {
        let mut h2 = H2::connect(&flooded.stage, &[]).await;
        let mut stream = 1;
        let mut ended = false;
        for _ in 0..100 {
            let mut piece = Vec::new();
            for _ in 0..100 {
                piece.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &get));
                piece.extend(frame(WINDOW_UPDATE, 0, stream, &faulty));
                stream += 2;
            }
            if h2.raw.try_send(piece).await.is_err() {
                ended = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        flooded.stage.assert_serves().await;
        let code = goaway(&mut h2).await;
        assert!(ended || code.is_some(), "{told}: 10000 provoked resets were taken");
        assert!(matches!(code, None | Some(1 | ENHANCE_YOUR_CALM)), "{told}: {code:?}");
    }
    flooded.stage.gateway.assert_quiet().await;
    let h2 = H2::connect(&flooded.stage, &[]).await;
    flooded.finish(h2).await;
}

/// Before any agent has said who it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_on_the_agents_listener_end_their_connection_only() {
    let flooded = Flooded::new().await;
    let address = flooded.stage.gateway.addresses.agents;
    let authority = address.to_string();
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", authority.as_str()), (":path", "/x")];
    let post = block(&post);
    let provoked = [frame(HEADERS, END_HEADERS, 1, &post), frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])];
    let reset = [frame(HEADERS, END_HEADERS, 1, &post), frame(RST_STREAM, 0, 1, &CANCEL)];
    for (told, pair) in [("rapid resets", reset), ("provoked resets", provoked)] {
        let mut h2 = H2::connect_to(address, &[]).await;
        let mut ended = false;
        for number in 0..10_000_u32 {
            let stream = (2 * number + 1).to_be_bytes();
            let mut piece = pair.concat();
            // The stream's number is in the head of both frames.
            piece[5..9].copy_from_slice(&stream);
            let second = pair[0].len() + 5;
            piece[second..second + 4].copy_from_slice(&stream);
            if h2.raw.try_send(piece).await.is_err() {
                ended = true;
                break;
            }
        }
        flooded.stage.assert_serves().await;
        let code = goaway(&mut h2).await;
        assert!(ended || code.is_some(), "{told}: 10000 were taken");
    }
    let mut h2 = H2::connect_to(address, &[]).await;
    h2.raw.send(frame(HEADERS, 0, 1, &post)).await;
    flooded.flood(&mut h2, &frame(CONTINUATION, 0, 1, &block(&[("x", &"y".repeat(1024))])).repeat(100), 1000).await;
    assert!(matches!(goaway(&mut h2).await, None | Some(1 | ENHANCE_YOUR_CALM)));
    let h2 = H2::connect(&flooded.stage, &[]).await;
    flooded.finish(h2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_continuations_end_the_connection() {
    let flooded = Flooded::new().await;
    for size in [0, 1, 1024] {
        let mut h2 = H2::connect(&flooded.stage, &[]).await;
        h2.raw.send(frame(HEADERS, END_STREAM, 1, &flooded.get("/continued"))).await;
        let field = block(&[("x", &"y".repeat(size))]);
        let piece = frame(CONTINUATION, 0, 1, if size == 0 { &[] } else { &field }).repeat(100);
        flooded.flood(&mut h2, &piece, 1000).await;
        flooded.stage.assert_serves().await;
        let code = goaway(&mut h2).await;
        assert!(matches!(code, None | Some(1 | ENHANCE_YOUR_CALM)), "{size}: {code:?}");
    }
    let h2 = H2::connect(&flooded.stage, &[]).await;
    assert!(flooded.stage.seen().iter().all(|line| !line.contains("continued")));
    flooded.finish(h2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_frames_whose_answers_nobody_reads_are_bounded() {
    let flooded = Flooded::new().await;
    let settings =
        [(0_u16, 3_u16, 100_u32)].map(|(_, id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).concat();
    for piece in
        [frame(SETTINGS, 0, 0, &settings), frame(PING, 0, 0, &[7; 8]), frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])]
    {
        let mut h2 = H2::connect(&flooded.stage, &[]).await;
        flooded.flood(&mut h2, &piece.repeat(500), 400).await;
        flooded.stage.assert_serves().await;
        let grown = resident_bytes().saturating_sub(flooded.before);
        assert!(grown < 64 * MIB, "{} MiB for 200000 frames", grown / MIB);
    }
    let h2 = H2::connect(&flooded.stage, &[]).await;
    flooded.finish(h2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_and_empty_data_frames_are_bounded() {
    let flooded = Flooded::new().await;
    // An app that reads nothing of the body.
    let app = RawApp::start(|mut raw| async move {
        raw.head().await;
        std::future::pending::<()>().await;
    })
    .await;
    let authority = flooded.stage.gateway.authority("one", app.port);
    for payload in [&b""[..], b"x"] {
        let mut h2 = H2::connect(&flooded.stage, &[]).await;
        let mut fields = h2_get(&authority, &flooded.bearer, "/tiny");
        fields[0].1 = "POST";
        h2.raw.send(frame(HEADERS, END_HEADERS, 1, &block(&fields))).await;
        flooded.flood(&mut h2, &frame(DATA, 0, 1, payload).repeat(500), 600).await;
        flooded.stage.assert_serves().await;
        let grown = resident_bytes().saturating_sub(flooded.before);
        assert!(grown < 64 * MIB, "{} MiB for 300000 frames", grown / MIB);
    }
    let h2 = H2::connect(&flooded.stage, &[]).await;
    flooded.finish(h2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_without_a_window_holds_no_more_than_a_channels_window() {
    let flooded = Flooded::new().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await;
        let piece = vec![b'x'; 64 * 1024];
        raw.try_send("HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n").await.ok();
        use tokio::io::AsyncWriteExt as _;
        while raw.socket().write_all(&piece).await.is_ok() {}
    })
    .await;
    let authority = flooded.stage.gateway.authority("one", app.port);
    // SETTINGS_INITIAL_WINDOW_SIZE 0.
    let mut h2 = H2::connect(&flooded.stage, &[(4, 0)]).await;
    let get = block(&h2_get(&authority, &flooded.bearer, "/zero"));
    for stream in (1..64).step_by(2) {
        h2.raw.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &get)).await;
    }
    let mut heads = 0;
    while heads < 32 {
        let frame = h2.frame().await.expect("the connection ended");
        assert!(frame.kind != DATA, "{frame:?}");
        heads += usize::from(frame.kind == HEADERS);
    }
    let session = flooded.stage.gateway.registry.all().remove(0);
    let stats = session.tunnel.stats();
    assert!(stats.window_bytes <= 64 * MIB as u64, "{stats:?}");
    flooded.finish(h2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_above_the_limit_are_refused_and_reach_no_app() {
    let flooded = Flooded::new().await;
    let app = RawApp::start(|mut raw| async move {
        raw.read_rest().await;
    })
    .await;
    let authority = flooded.stage.gateway.authority("one", app.port);
    let mut h2 = H2::connect(&flooded.stage, &[]).await;
    let get = block(&h2_get(&authority, &flooded.bearer, "/many"));
    let mut all = Vec::new();
    for stream in 0..300_u32 {
        all.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * stream + 1, &get));
    }
    h2.raw.send(all).await;
    // REFUSED_STREAM: such a request may be sent again (RFC 9113, section 8.7).
    let refused = h2.until(&[RST_STREAM], 2 * 256 + 1).await.expect("a reset");
    assert_eq!(refused.payload, [0, 0, 0, 7]);
    let session = flooded.stage.gateway.registry.all().remove(0);
    until("the others are under way", || session.in_flight() == 256).await;
    flooded.stage.assert_serves().await;
    assert!(session.in_flight() <= 256);
    assert!(fields(&flooded.stage.gateway, app.port).contains(&authority));
    flooded.finish(h2).await;
}

#[tokio::test]
async fn frames_out_of_place_end_their_connection_only() {
    let flooded = Flooded::new().await;
    let get = flooded.get("/misplaced");
    let large = frame(DATA, 0, 1, &vec![0; 70_000]);
    for (told, bytes) in [
        ("DATA without a stream", frame(DATA, 0, 1, b"x")),
        ("an even stream", frame(HEADERS, END_HEADERS | END_STREAM, 2, &get)),
        ("CONTINUATION alone", frame(CONTINUATION, END_HEADERS, 1, &get)),
        ("a block that cannot be decoded", frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 40])),
        ("a frame above the limit", large),
        ("a window that overflows", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("SETTINGS of a wrong length", frame(SETTINGS, 0, 0, &[0; 5])),
        ("PUSH_PROMISE from a client", frame(5, END_HEADERS, 1, &[0, 0, 0, 2])),
        (
            "a stream number that goes back",
            [frame(HEADERS, END_HEADERS | END_STREAM, 5, &get), frame(HEADERS, END_HEADERS | END_STREAM, 3, &get)]
                .concat(),
        ),
    ] {
        let mut h2 = H2::connect(&flooded.stage, &[]).await;
        h2.raw.try_send(bytes).await.ok();
        let code = goaway(&mut h2).await;
        assert!(code.is_none_or(|code| code != 0), "{told}");
        while h2.frame().await.is_some() {}
    }
    let h2 = H2::connect(&flooded.stage, &[]).await;
    flooded.finish(h2).await;
}
