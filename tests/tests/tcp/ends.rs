//! How streams end: one half or both, well or badly, and who hears of it.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use e2e::raw::{Raw, RawApp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{Receiver, channel};
use tunnel_link::drain::DrainResult;
use tunnel_link::raw::{CarrierBroken, code};

use super::support::{World, soon, within_a_second};

/// An app whose connections are handed to the test.
async fn handed() -> (RawApp, Receiver<Raw>) {
    let (sender, receiver) = channel(8);
    let app = RawApp::start(move |raw| {
        let sender = sender.clone();
        async move {
            sender.send(raw).await.ok();
        }
    })
    .await;
    (app, receiver)
}

/// Reads until the connection is over: whether it ended well, or was reset.
async fn end_of(raw: &mut Raw) -> Result<(), ErrorKind> {
    let mut rest = Vec::new();
    raw.socket().read_to_end(&mut rest).await.map(drop).map_err(|error| error.kind())
}

// Trap 28: the end of one direction is not the end of both.
#[tokio::test]
async fn user_who_has_finished_still_hears_the_app() {
    let world = World::start().await;
    let (app, mut connections) = handed().await;
    let mut user = world.open(app.port).await;
    user.say("question").await;
    user.finish().await;
    let mut at_app = soon(connections.recv()).await.expect("a connection");
    assert_eq!(at_app.read_rest().await, b"question");
    for _ in 0..3 {
        at_app.send("answer").await;
        assert_eq!(user.hear(6).await, b"answer");
    }
    drop(at_app);
    assert_eq!(user.hear_rest().await, b"");
    user.ended().await.expect("a good end");
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_that_has_finished_still_hears_the_user() {
    let world = World::start().await;
    let (app, mut connections) = handed().await;
    let mut user = world.open(app.port).await;
    let mut at_app = soon(connections.recv()).await.expect("a connection");
    at_app.send("that was all").await;
    at_app.finish().await;
    assert_eq!(user.hear_rest().await, b"that was all");
    for _ in 0..3 {
        user.say("more").await;
        assert_eq!(at_app.exactly(4).await, b"more");
    }
    user.finish().await;
    assert_eq!(end_of(&mut at_app).await, Ok(()));
    user.ended().await.expect("a good end");
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn reset_by_the_app_reaches_the_user_as_one() {
    let world = World::start().await;
    let (app, mut connections) = handed().await;
    let mut user = world.open(app.port).await;
    let mut at_app = soon(connections.recv()).await.expect("a connection");
    user.say("x").await;
    at_app.exactly(1).await;
    at_app.socket().set_zero_linger().unwrap();
    drop(at_app);
    assert_eq!(user.closed().await, (code::RESET, "app_reset".to_owned()));
    world.gateway.assert_empty().await;
}

// Rows 25 and 26: a user who is gone, however, is gone for the app within a second, and that is no good end.
#[tokio::test]
async fn user_whose_connection_breaks_resets_the_apps_connection() {
    let world = World::start().await;
    let (app, mut connections) = handed().await;
    let mut user = world.open(app.port).await;
    user.say("half a ").await;
    let mut at_app = soon(connections.recv()).await.expect("a connection");
    at_app.exactly(7).await;
    user.kill();
    assert_eq!(within_a_second(end_of(&mut at_app)).await, Err(ErrorKind::ConnectionReset));
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn local_program_that_closes_without_hearing_the_answer_resets_the_apps_connection() {
    let world = World::start().await;
    let (app, mut connections) = handed().await;
    let mut user = world.open(app.port).await;
    user.say("question").await;
    let mut at_app = soon(connections.recv()).await.expect("a connection");
    at_app.exactly(8).await;
    let ended = user.abandon();
    // Its end of the sending direction is heard first, and is a good one.
    assert_eq!(within_a_second(at_app.some()).await, b"");
    let much = vec![0; 65_536];
    let answering = async { while at_app.try_send(&much).await.is_ok() {} };
    within_a_second(answering).await;
    let ended = soon(ended).await;
    assert!(matches!(ended, Err(CarrierBroken::Here(_))), "{ended:?}");
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn drain_lets_a_stream_run_and_closes_it_with_its_reason_at_the_end() {
    let drain = Duration::from_secs(10);
    let world = World::configured(|config| config.timeouts.drain = drain, Vec::new()).await;
    let (app, mut connections) = handed().await;
    let mut user = world.open(app.port).await;
    let mut at_app = soon(connections.recv()).await.expect("a connection");
    let began = Instant::now();
    world.gateway.begin_stop();
    // It goes on meanwhile.
    user.say("x").await;
    assert_eq!(at_app.exactly(1).await, b"x");
    assert_eq!(user.closed().await, (code::DRAINING, "draining".to_owned()));
    let took = began.elapsed();
    assert!(took >= drain / 2 && took <= drain, "{took:?}");
    assert_eq!(end_of(&mut at_app).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(world.gateway.stop().await, DrainResult::Clean);
}

#[tokio::test]
async fn finished_streams_hold_no_drain_up() {
    let world = World::start().await;
    let app = super::streams::echo().await;
    let mut user = world.open(app.port).await;
    user.finish().await;
    user.ended().await.expect("a good end");
    let began = Instant::now();
    assert_eq!(world.gateway.stop().await, DrainResult::Clean);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

// Row 29: a stream of a session that is gone ends, by its name.
#[tokio::test]
async fn stream_of_a_lost_session_ends_by_its_name() {
    let world = World::configured(|config| config.tunnel.resume_grace = Duration::from_millis(500), Vec::new()).await;
    let app = super::streams::echo().await;
    let mut user = world.open(app.port).await;
    user.say("x").await;
    user.hear(1).await;
    world.relay.down();
    world.relay.cut(e2e::relay::Cut::Reset);
    assert_eq!(user.closed().await, (code::LOST, "session_lost".to_owned()));
    world.relay.up();
}

// Row 14: what is not of the protocol ends that stream, and nothing else.
#[tokio::test]
async fn user_outside_the_rules_loses_the_stream_alone() {
    let world = World::start().await;
    let app = super::streams::echo().await;
    let mut bystander = world.open(app.port).await;
    let token = world.gateway.user_token.clone();
    for bytes in [
        // Text that is not `finish`; an unmasked message; one that claims to be longer than allowed; a reserved opcode.
        &[0x81, 0x82, 0, 0, 0, 0, b'n', b'o'][..],
        &[0x82, 1, b'x'],
        &[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        &[0x83, 0x80, 0, 0, 0, 0],
    ] {
        let mut stream = world.switched(&token, app.port).await;
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        // It is closed; what the close says is the library's business.
        soon(stream.read_to_end(&mut rest)).await.ok();
    }
    bystander.say("unharmed").await;
    assert_eq!(bystander.hear(8).await, b"unharmed");
    bystander.finish().await;
    let ended = bystander.ended().await;
    assert!(!matches!(ended, Err(CarrierBroken::There { .. })), "{ended:?}");
    world.gateway.assert_empty().await;
}
