//! Bytes on their way: streamed both ways at once, never gathered, memory bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use e2e::raw::{Raw, RawApp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{World, app, ok, some, soon, whole};

const MIB: u64 = 1 << 20;
const LARGE: u64 = 100 * MIB;

/// Answers at once and sends each chunk back as it comes.
async fn chunk_echo(mut raw: Raw) {
    raw.head().await.unwrap();
    raw.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    loop {
        let size = raw.line().await;
        let length = usize::from_str_radix(&size, 16).unwrap();
        let data = raw.exactly(length + 2).await;
        raw.send([format!("{size}\r\n").as_bytes(), &data].concat()).await;
        if length == 0 {
            return;
        }
    }
}

#[tokio::test]
async fn chunks_go_back_and_forth_within_one_exchange_over_http1() {
    let world = World::start().await;
    let app = RawApp::start(chunk_echo).await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /", "transfer-encoding: chunked\r\n")).await;
    assert_eq!(client.head().await.unwrap().status(), 200, "the answer begins before the request ends");
    for number in 0..20 {
        let text = format!("ping {number:3}");
        client.send(format!("8\r\n{text}\r\n")).await;
        assert_eq!(soon(client.line()).await, "8");
        assert_eq!(client.line().await, text);
    }
    client.send("0\r\n\r\n").await;
    assert_eq!((client.line().await, client.line().await), ("0".into(), String::new()));
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn chunks_go_back_and_forth_within_one_exchange_over_http2() {
    let world = World::start().await;
    let app = RawApp::start(chunk_echo).await;
    let mut http2 = world.http2().await;
    let (response, mut upload) = http2.start(world.http2_request(app.port, "POST", "/"));
    let response = soon(response).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    for number in 0..20 {
        let text = format!("ping {number}");
        upload.send_data(text.clone().into(), false).unwrap();
        assert_eq!(soon(some(&mut body)).await.unwrap(), text);
    }
    upload.send_data(Bytes::new(), true).unwrap();
    assert_eq!(some(&mut body).await.unwrap_or_default(), "");
    world.gateway.assert_quiet().await;
}

// Trap 16: no buffering.
#[tokio::test]
async fn server_sent_event_arrives_at_once() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        raw.send("data: 1\n\n").await;
        // The next one comes only when the first was seen, so neither waits for the other.
        raw.read_rest().await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", "accept: text/event-stream\r\n")).await;
    let head = soon(client.head()).await.unwrap();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(soon(client.line()).await, "9");
    assert_eq!(client.exactly(9).await, b"data: 1\n\n");
    let mut http2 = world.http2().await;
    let response = http2.start(world.http2_request(app.port, "GET", "/")).0;
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(soon(some(&mut body)).await.unwrap(), "data: 1\n\n");
}

// Trap 16: no bound on a stream's life by the time an answer may take, nor by the idle time of connections.
#[tokio::test]
async fn quiet_stream_outlives_the_time_for_an_answer() {
    let change = |config: &mut gateway_config::Config| {
        config.timeouts.response_header = Duration::from_secs(3);
        config.timeouts.upstream_idle = Duration::from_millis(200);
        config.timeouts.request_header = Duration::from_secs(3);
    };
    let world = World::configured(change, Vec::new()).await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na").await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        raw.send("b").await;
    })
    .await;
    assert_eq!(world.ask(app.port, "GET /", "").await.text(), "ab");
}

/// Fails when a session holds more than its budget while `work` runs; returns the most that waited to be sent.
async fn watched<T>(world: &World, work: impl Future<Output = T>) -> (T, usize) {
    let budget = gateway_config::Config::default().tunnel.session_budget;
    let mut most = 0;
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (done, most),
            () = tokio::time::sleep(Duration::from_millis(2)) => for session in world.gateway.registry.all() {
                let stats = session.tunnel.stats();
                assert!(stats.window_bytes <= budget, "{stats:?}");
                most = most.max(stats.queued_bytes);
            }
        }
    }
}

#[tokio::test]
async fn large_download_passes_with_bounded_memory() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n")).await;
        let block = vec![7; 1 << 20];
        for _ in 0..LARGE / MIB {
            raw.socket().write_all(&block).await.unwrap();
        }
        raw.read_rest().await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", "")).await;
    assert_eq!(client.head().await.unwrap().header("content-length"), Some(LARGE.to_string().as_str()));
    let (read, _) = watched(&world, async {
        let mut read = 0;
        while read < LARGE {
            let some = client.some().await;
            assert!(!some.is_empty() && some.iter().all(|byte| *byte == 7));
            read += some.len() as u64;
        }
        read
    })
    .await;
    assert_eq!(read, LARGE);
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn large_upload_passes_with_bounded_memory() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        let mut read = 0;
        while read < LARGE {
            read += raw.some().await.len() as u64;
        }
        raw.send(format!("HTTP/1.1 200 OK\r\nx-read: {read}\r\ncontent-length: 0\r\n\r\n")).await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /", &format!("content-length: {LARGE}\r\n"))).await;
    let block = vec![7; 1 << 20];
    let (answer, queued) = watched(&world, async {
        for _ in 0..LARGE / MIB {
            client.send(&block).await;
        }
        client.message().await.unwrap()
    })
    .await;
    assert_eq!(answer.header("x-read"), Some(LARGE.to_string().as_str()));
    let widest = gateway_config::Config::default().tunnel.window_max;
    assert!(queued as u64 <= widest, "{queued} bytes waited");
    world.gateway.assert_quiet().await;
}

// Row 24: a user who does not read stops the app, and nobody's memory grows.
#[tokio::test]
async fn reader_that_stops_stops_the_app() {
    let world = World::start().await;
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let app = RawApp::start(move |mut raw| {
        let sent = counted.clone();
        async move {
            raw.head().await.unwrap();
            raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n")).await;
            let block = vec![7; 64 * 1024];
            for _ in 0..LARGE / block.len() as u64 {
                if raw.socket().write_all(&block).await.is_err() {
                    return;
                }
                sent.fetch_add(block.len() as u64, Ordering::SeqCst);
            }
        }
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "GET /", "")).await;
    client.head().await.unwrap();
    let mut last = u64::MAX;
    soon(async {
        while sent.load(Ordering::SeqCst) != last {
            last = sent.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
    assert!(last < LARGE / 2, "the app could send {last} bytes to nobody");
    // A neighbour does not notice.
    let other = super::support::app(|_, _, _| ok("quick")).await;
    assert_eq!(soon(world.ask(other.port, "GET /", "")).await.text(), "quick");
    drop(client);
    world.gateway.assert_quiet().await;
}

// Row 24, over HTTP/2: one stream that is not read does not hold up its neighbours on the same connection.
#[tokio::test]
async fn stream_that_is_not_read_does_not_hold_up_its_neighbours() {
    let world = World::start().await;
    let big = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n")).await;
        let block = vec![7; 64 * 1024];
        while raw.socket().write_all(&block).await.is_ok() {}
    })
    .await;
    let small = app(|_, _, _| ok("quick")).await;
    let mut http2 = world.http2().await;
    let response = http2.start(world.http2_request(big.port, "GET", "/")).0;
    let unread = soon(response).await.unwrap();
    for _ in 0..10 {
        let answer = soon(http2.ask(world.http2_request(small.port, "GET", "/"))).await;
        assert_eq!(answer.text(), "quick");
    }
    drop(unread);
    world.gateway.assert_quiet().await;
}

// Trap 28: the app may answer and close while the upload still runs; its words must arrive.
#[tokio::test]
async fn early_refusal_of_a_large_upload_reaches_the_user() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send("HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 7\r\n\r\ntoo big").await;
    })
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut http2 = world.http2().await;
    let (response, mut upload) = http2.start(world.http2_request(app.port, "POST", "/"));
    upload.send_data(vec![0; 512 * 1024].into(), false).unwrap();
    let answer = whole(response).await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (413, "too big"));
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /", &format!("content-length: {LARGE}\r\n"))).await;
    let (mut read, mut write) = client.socket().split();
    let writing = async {
        let block = vec![0; 64 * 1024];
        while !stop.load(Ordering::SeqCst) && write.write_all(&block).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let reading = async {
        let mut answer = vec![0; 4096];
        let mut length = 0;
        while !answer[..length].windows(7).any(|window| window == b"too big") {
            let more = read.read(&mut answer[length..]).await.expect("the answer comes before a reset");
            assert!(more > 0, "{:?}", String::from_utf8_lossy(&answer[..length]));
            length += more;
        }
        assert!(answer.starts_with(b"HTTP/1.1 413 "));
    };
    soon(async {
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
    })
    .await;
}

#[tokio::test]
async fn small_exchanges_of_many_frames_pass_whole() {
    let world = World::start().await;
    let app = app(|_, _, request| ok(&request.text())).await;
    let mut http2 = world.http2().await;
    let (response, mut upload) = http2.start(world.http2_request(app.port, "POST", "/"));
    let mut expected = String::new();
    for number in 0..2000 {
        let piece = format!("{number},");
        expected.push_str(&piece);
        upload.send_data(piece.into(), false).unwrap();
    }
    upload.send_data(Bytes::new(), true).unwrap();
    assert_eq!(whole(response).await.text(), expected);
}
