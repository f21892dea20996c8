//! Users that take their time: in the head, in the body, and while reading.

use std::time::{Duration, Instant};

use e2e::raw::{Raw, RawApp};
use e2e::stopwatch::Stopwatch;
use e2e::{PATIENCE, until};
use tokio::task::JoinSet;

use crate::support::{Stage, fields, resident_bytes};

const MIB: usize = 1024 * 1024;

/// An app that sends without end, as fast as it is read.
async fn endless_app() -> RawApp {
    RawApp::start(|mut raw| async move {
        raw.head().await;
        let piece = vec![b'x'; 64 * 1024];
        if raw.try_send("HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n").await.is_err() {
            return;
        }
        // Not `try_send`: being stalled is what this app is for.
        use tokio::io::AsyncWriteExt as _;
        while raw.socket().write_all(&piece).await.is_ok() {}
    })
    .await
}

#[tokio::test]
async fn slow_heads_are_cut_in_time_and_others_are_served() {
    let limit = Duration::from_secs(3);
    let stage = Stage::new(|config| config.timeouts.request_header = limit).await;
    let head = stage.get("/slow").replace("\r\n\r\n", &format!("\r\nx: {}\r\n\r\n", "y".repeat(4096)));
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for silent_after in [0, 1, 3, 40] {
        for _ in 0..10 {
            let mut raw = stage.connect().await;
            let head = head.clone();
            clients.spawn(async move {
                // "PRI" may still become HTTP/2.
                let first = if silent_after == 3 { "PRI" } else { &head[..silent_after] };
                raw.send(first).await;
                let rest = raw.read_rest().await;
                assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
            });
        }
    }
    for _ in 0..10 {
        let mut raw = stage.connect().await;
        let head = head.clone();
        clients.spawn(async move {
            for byte in head.as_bytes() {
                if raw.try_send([*byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("a head that took minutes was taken");
        });
    }
    stage.assert_serves().await;
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let took = started.elapsed();
    // Of those that dribble, a head takes over a minute.
    assert!(took >= limit && took < PATIENCE, "cut after {took:?}");
    assert_eq!(stage.seen(), ["GET /other HTTP/1.1"]);
    stage.finish().await;
}

#[tokio::test]
async fn idle_connection_after_a_request_is_closed() {
    let stage = Stage::new(|config| config.timeouts.request_header = Duration::from_secs(3)).await;
    let mut raw = stage.connect().await;
    raw.send(stage.get("/one")).await;
    assert_eq!(raw.message().await.expect("an answer").status(), 200);
    assert!(raw.read_rest().await.is_empty());
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_slow_uploaders_are_carried_and_others_are_served() {
    let stage = Stage::new(|_| {}).await;
    let mut uploads = Vec::new();
    let head = format!("POST /slow HTTP/1.1\r\n{}content-length: 20\r\n\r\n", stage.fields());
    for _ in 0..200 {
        let mut raw = stage.connect().await;
        raw.send(&head).await;
        uploads.push(raw);
    }
    until("every head is at the app", || stage.lines.lock().unwrap().len() == 200).await;
    for _ in 0..19 {
        for raw in &mut uploads {
            raw.send("x").await;
        }
        stage.assert_serves().await;
    }
    let session = stage.gateway.registry.all().remove(0);
    assert!(session.tunnel.stats().window_bytes <= 64 * MIB as u64);
    for raw in &mut uploads {
        raw.send("x").await;
    }
    for raw in &mut uploads {
        assert_eq!(raw.message().await.expect("an answer").status(), 200);
    }
    drop(uploads);
    stage.finish().await;
}

/// Has so many requests answered, one after the other, and returns how long that took.
async fn two_hundred(stage: &Stage, client: &mut Raw) -> Duration {
    let started = Instant::now();
    for _ in 0..200 {
        client.send(stage.get("/fast")).await;
        assert_eq!(client.message().await.expect("an answer").status(), 200);
    }
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_reader_holds_little_and_its_neighbour_stays_fast() {
    let stage = Stage::alone(|_| {}).await;
    let endless = endless_app().await;
    let mut neighbour = stage.connect().await;
    let alone = two_hundred(&stage, &mut neighbour).await;
    let before = resident_bytes();
    let mut stalled = stage.connect().await;
    stalled.send(format!("GET / HTTP/1.1\r\n{}\r\n", fields(&stage.gateway, endless.port))).await;
    let session = stage.gateway.registry.all().remove(0);
    settle(|| session.tunnel.stats().bytes_received).await;
    let stats = session.tunnel.stats();
    assert!(stats.window_bytes <= 8 * MIB as u64, "{stats:?}");
    let took = two_hundred(&stage, &mut neighbour).await;
    // Of a machine that is slow anyway it is not the stalled one's fault.
    assert!(took < Duration::from_secs(4).max(4 * alone), "200 requests took {took:?}, and {alone:?} before");
    let grown = resident_bytes().saturating_sub(before);
    // A window that grew while the reader was fast, at both ends until it is acknowledged, and what the allocator keeps.
    assert!(grown < 96 * MIB, "{} MiB for one stalled download", grown / MIB);
    // Who reads again gets on.
    stalled.exactly(16 * MIB).await;
    drop(stalled);
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_stalled_downloads_stay_within_the_budget() {
    let stage = Stage::alone(|_| {}).await;
    let endless = endless_app().await;
    let get = format!("GET / HTTP/1.1\r\n{}\r\n", fields(&stage.gateway, endless.port));
    let before = resident_bytes();
    let mut stalled: Vec<Raw> = Vec::new();
    for _ in 0..300 {
        let mut raw = stage.connect().await;
        raw.send(&get).await;
        stalled.push(raw);
    }
    let session = stage.gateway.registry.all().remove(0);
    until("every download has a channel", || session.tunnel.stats().channels_live >= 300).await;
    settle(|| session.tunnel.stats().bytes_received).await;
    let stats = session.tunnel.stats();
    assert!(stats.window_bytes <= 128 * MIB as u64, "{stats:?}");
    assert_eq!(session.tunnel.broken_invariant(), None);
    stage.assert_serves().await;
    let grown = resident_bytes().saturating_sub(before);
    // 128 MiB of windows at the gateway, its HTTP buffers, what the agent queues, and this test's own apps and users.
    assert!(grown < 290 * MIB, "{} MiB for 300 stalled downloads", grown / MIB);
    // All of them still get on, in turn.
    for raw in &mut stalled {
        raw.exactly(MIB).await;
    }
    drop(stalled);
    stage.finish().await;
}

/// Waits until a number has stopped to grow.
async fn settle(mut number: impl FnMut() -> u64) {
    let mut last = number();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = number();
        if now == last && now > 0 {
            return;
        }
        last = now;
    }
    panic!("it never stalls");
}

/// Starts a request at an app that tells when it began and when its connection ended, lets `leave` do its worst to the
/// user's connection, and checks that the app hears within two seconds.
async fn check_leaving(request: &str, leave: impl AsyncFnOnce(Raw)) {
    let stage = Stage::new(|_| {}).await;
    let (told, mut heard) = tokio::sync::mpsc::channel(4);
    let app = RawApp::start(move |mut raw| {
        let told = told.clone();
        async move {
            raw.head().await;
            told.send("began").await.ok();
            raw.try_send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx").await.ok();
            raw.read_rest().await;
            told.send("ended").await.ok();
        }
    })
    .await;
    let mut raw = stage.connect().await;
    raw.send(request.replace("{fields}", &fields(&stage.gateway, app.port))).await;
    assert_eq!(heard.recv().await, Some("began"));
    leave(raw).await;
    let watch = Stopwatch::start();
    let ended = tokio::time::timeout(PATIENCE, heard.recv()).await;
    assert_eq!(ended.expect("the app hears"), Some("ended"));
    assert!(watch.elapsed() < Duration::from_secs(2), "{:?}", watch.elapsed());
    stage.finish().await;
}

const DOWNLOAD: &str = "GET / HTTP/1.1\r\n{fields}\r\n";
const UPLOAD: &str = "POST / HTTP/1.1\r\n{fields}content-length: 1000\r\n\r\nabc";

#[tokio::test]
async fn app_hears_of_a_user_who_closes_or_resets() {
    for request in [DOWNLOAD, UPLOAD] {
        check_leaving(request, async |raw| drop(raw)).await;
        check_leaving(request, async |mut raw| {
            raw.socket().set_zero_linger().unwrap();
            drop(raw);
        })
        .await;
    }
}

#[tokio::test]
async fn user_who_ends_only_the_sending_half_of_an_upload_breaks_it_off() {
    check_leaving(UPLOAD, async |mut raw| {
        raw.finish().await;
        raw.read_rest().await;
    })
    .await;
}
