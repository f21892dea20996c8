//! Bodies that stop coming, or hardly come, and answers that nobody reads: they hold a place only for so long.

use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use e2e::until;

use crate::support::{Stage, fields, problem};

const IDLE: Duration = Duration::from_secs(5);

async fn upload(stage: &Stage, fields: &str, length: usize) -> Raw {
    let mut raw = stage.connect().await;
    raw.send(format!("POST /slow HTTP/1.1\r\n{fields}content-length: {length}\r\n\r\nx")).await;
    raw
}

#[tokio::test]
async fn body_that_stops_coming_is_given_up_by_name_and_the_app_hears_of_it() {
    let stage = Stage::new(|config| config.timeouts.request_body_idle = IDLE).await;
    let mut raw = upload(&stage, &stage.fields(), 20).await;
    let answer = raw.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (408, Some("bad_request")), "{answer:?}");
    assert_eq!(problem(&answer)["reason"], "timeouts.request_body_idle");
    assert!(raw.read_rest().await.is_empty(), "the connection is of no use any more");
    let session = stage.gateway.registry.all().remove(0);
    until("its place is free", || session.in_flight() == 0).await;
    stage.finish().await;
}

#[tokio::test]
async fn body_that_comes_slowly_is_carried_for_a_user_and_not_for_a_stranger() {
    let stage = Stage::new(|config| config.timeouts.request_body_idle = IDLE).await;
    stage.gateway.publish("one", stage.app.port).await;
    let mut user = upload(&stage, &stage.fields(), 12).await;
    let mut stranger = upload(&stage, &format!("host: {}\r\n", stage.authority()), 10_000).await;
    // For longer than all of it may pause.
    for _ in 0..11 {
        tokio::time::sleep(IDLE / 10).await;
        user.send("x").await;
        stranger.try_send("x").await.ok();
    }
    assert_eq!(user.message().await.expect("an answer").status(), 200);
    let answer = stranger.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (408, Some("bad_request")), "{answer:?}");
    drop((user, stranger));
    stage.finish().await;
}

#[tokio::test]
async fn app_that_does_not_read_a_body_is_not_the_users_fault() {
    let stage = Stage::new(|config| {
        // The user is never so slow, even where the machine is.
        config.timeouts.request_body_idle = IDLE;
        config.timeouts.response_header = 2 * IDLE;
    })
    .await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await;
        std::future::pending::<()>().await;
    })
    .await;
    let mut raw = stage.connect().await;
    let length = 256 << 20;
    raw.send(format!("POST / HTTP/1.1\r\n{}content-length: {length}\r\n\r\n", fields(&stage.gateway, app.port))).await;
    let piece = vec![0; 64 * 1024];
    // Until nobody takes any more.
    while let Ok(sent) = tokio::time::timeout(IDLE / 2, tokio::io::AsyncWriteExt::write_all(raw.socket(), &piece)).await
    {
        if sent.is_err() {
            break;
        }
    }
    let answer = raw.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (504, Some("response_timeout")), "{answer:?}");
    drop(raw);
    stage.finish().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_who_has_stopped_for_too_long_is_given_up() {
    let stage = Stage::new(|config| config.timeouts.reader_stalled = Duration::from_secs(2)).await;
    let endless = RawApp::start(|mut raw| async move {
        use tokio::io::AsyncWriteExt as _;
        raw.head().await;
        let piece = vec![b'x'; 64 * 1024];
        raw.try_send("HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n").await.ok();
        while raw.socket().write_all(&piece).await.is_ok() {}
    })
    .await;
    let mut stalled = stage.connect().await;
    stalled.send(format!("GET / HTTP/1.1\r\n{}\r\n", fields(&stage.gateway, endless.port))).await;
    assert_eq!(stalled.head().await.expect("an answer").status(), 200);
    let session = stage.gateway.registry.all().remove(0);
    assert_eq!(session.in_flight(), 1);
    until("its place is free", || session.in_flight() == 0).await;
    stage.assert_serves().await;
    drop(stalled);
    stage.finish().await;
}
