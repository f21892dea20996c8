use std::future::Future;

use tokio::io::{AsyncReadExt, DuplexStream, duplex, split};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::super::{CLOSE_TIMEOUT, MESSAGE_BYTES_MAX, PING_INTERVAL, RawSocket};
use super::*;

/// What the pipes in between hold.
const PIPE_BYTES: usize = 8 * 1024;

type End = Carrier<DuplexStream, RawSocket<DuplexStream>>;

/// Two carriers with a connection between them, and the streams that they lead to.
async fn pair() -> ([End; 2], [DuplexStream; 2]) {
    let (near, far) = duplex(PIPE_BYTES);
    let (user, user_local) = duplex(PIPE_BYTES);
    let (app, app_local) = duplex(PIPE_BYTES);
    let client = Carrier::new(near, Role::Client, RawSocket::new(user_local), PING_INTERVAL).await;
    let server = Carrier::new(far, Role::Server, RawSocket::new(app_local), PING_INTERVAL).await;
    ([client, server], [user, app])
}

/// Runs a carrier to its end and says goodbye as its owner would.
async fn whole(mut carrier: End) -> Result<CarriedBytes, CarrierBroken> {
    let ended = carrier.run().await;
    let (goodbye, local) = carrier.part();
    drop(local);
    let (code, reason) = match &ended {
        Ok(_) => (code::FINISHED, ""),
        Err(CarrierBroken::Rule(_)) => (code::PROTOCOL, "rule"),
        Err(_) => (code::RESET, "reset"),
    };
    goodbye.say(code, reason, CLOSE_TIMEOUT).await;
    ended
}

fn spawn(carriers: [End; 2]) -> JoinSet<Result<CarriedBytes, CarrierBroken>> {
    let mut tasks = JoinSet::new();
    for carrier in carriers {
        tasks.spawn(whole(carrier));
    }
    tasks
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), what).await.expect("it does not hang")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|position| u8::try_from(position % 251).unwrap_or_default()).collect()
}

#[tokio::test]
async fn bytes_go_both_ways_at_once_and_both_ends_end_well() {
    let (carriers, [user, app]) = pair().await;
    let tasks = spawn(carriers);
    let (up, down) = (pattern(700_001), pattern(900_003));
    let talk = |stream: DuplexStream, say: Vec<u8>| async move {
        let (mut reader, mut writer) = split(stream);
        let mut heard = Vec::new();
        let speak = async {
            writer.write_all(&say).await.expect("written");
            writer.shutdown().await.expect("shut down");
        };
        let (_, read) = tokio::join!(speak, reader.read_to_end(&mut heard));
        read.expect("an end");
        heard
    };
    let (at_user, at_app) = soon(async { tokio::join!(talk(user, up.clone()), talk(app, down.clone())) }).await;
    assert!(at_user == down && at_app == up);
    for ended in soon(tasks.join_all()).await {
        let copied = ended.expect("a good end");
        assert_eq!(copied.inward + copied.outward, (up.len() + down.len()) as u64);
    }
}

#[tokio::test]
async fn end_of_one_direction_leaves_the_other_open() {
    for speaks_last in [0, 1] {
        let (carriers, mut streams) = pair().await;
        let tasks = spawn(carriers);
        let (ends_first, other) = (1 - speaks_last, speaks_last);
        streams[ends_first].write_all(b"that was all").await.expect("written");
        streams[ends_first].shutdown().await.expect("shut down");
        let mut heard = Vec::new();
        soon(streams[other].read_to_end(&mut heard)).await.expect("an end");
        assert_eq!(heard, b"that was all");
        let mut buffer = [0; 5];
        for _ in 0..3 {
            streams[other].write_all(b"still").await.expect("written");
            soon(streams[ends_first].read_exact(&mut buffer)).await.expect("more");
            assert_eq!(&buffer, b"still");
        }
        streams[other].shutdown().await.expect("shut down");
        assert_eq!(soon(streams[ends_first].read(&mut buffer)).await.expect("an end"), 0);
        for ended in soon(tasks.join_all()).await {
            ended.expect("a good end");
        }
    }
}

#[tokio::test]
async fn end_that_breaks_is_told_to_the_other_with_its_reason() {
    let ([mut client, server], [user, mut app]) = pair().await;
    app.write_all(b"hello").await.expect("written");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { client.run().await });
    let (goodbye, local) = server.part();
    drop(local);
    goodbye.say(code::LOST, "session_lost", CLOSE_TIMEOUT).await;
    let ended = soon(tasks.join_next()).await.expect("a task").expect("no panic");
    let Err(CarrierBroken::There { code: code::LOST, reason }) = ended else { panic!("{ended:?}") };
    assert_eq!(reason, "session_lost");
    drop(user);
}

#[tokio::test]
async fn connection_that_ends_without_a_word_is_no_good_end() {
    let ([mut client, server], [_user, _app]) = pair().await;
    drop(server);
    let ended = soon(client.run()).await;
    assert!(matches!(ended, Err(CarrierBroken::Gone | CarrierBroken::Lost(_))), "{ended:?}");
}

/// Lets a peer send these messages; returns how the carrier ended.
async fn after(messages: Vec<Message>) -> Result<CarriedBytes, CarrierBroken> {
    let ([client, server], [_user, mut app]) = pair().await;
    let (Goodbye { mut socket }, _local) = client.part();
    let mut tasks = JoinSet::new();
    tasks.spawn(whole(server));
    tasks.spawn(async move {
        tokio::io::copy(&mut app, &mut tokio::io::sink()).await.ok();
        std::future::pending().await
    });
    for message in messages {
        Pin::new(&mut socket).start_send(message).expect("sent");
        // One that is too long is not read to its end.
        soon(poll_fn(|context| Pin::new(&mut socket).poll_flush(context))).await.ok();
    }
    let reading = async {
        // Pings were answered; then it is closed.
        while let Some(Ok(said)) = poll_fn(|context| Pin::new(&mut socket).poll_next(context)).await {
            assert!(matches!(said, Message::Close(_) | Message::Pong(_)), "{said:?}");
        }
        poll_fn(|context| Pin::new(&mut socket).poll_flush(context)).await.ok();
        drop(socket);
    };
    let (ended, ()) = soon(async { tokio::join!(tasks.join_next(), reading) }).await;
    ended.expect("a task").expect("no panic")
}

#[tokio::test]
async fn messages_outside_the_rules_end_the_stream() {
    let bytes = || Message::Binary(Bytes::from_static(b"x"));
    let finish = || Message::Text(Utf8Bytes::from_static(FINISH));
    for messages in [
        vec![Message::Text(Utf8Bytes::from_static("stop"))],
        vec![finish(), bytes()],
        vec![bytes(), finish(), finish()],
    ] {
        let ended = after(messages.clone()).await;
        assert!(matches!(ended, Err(CarrierBroken::Rule(_))), "{messages:?}: {ended:?}");
    }
    let too_long = Message::Binary(vec![0; MESSAGE_BYTES_MAX + 1].into());
    let ended = after(vec![too_long]).await;
    assert!(matches!(ended, Err(CarrierBroken::Lost(tungstenite::Error::Capacity(_)))), "{ended:?}");
    let close = CloseFrame { code: code::RESET.into(), reason: "reset".into() };
    let ended = after(vec![bytes(), Message::Close(Some(close))]).await;
    assert!(matches!(ended, Err(CarrierBroken::There { code: code::RESET, .. })), "{ended:?}");
    // Closing well without having finished is no good end.
    let close = CloseFrame { code: code::FINISHED.into(), reason: "".into() };
    let ended = after(vec![bytes(), Message::Close(Some(close))]).await;
    assert!(matches!(ended, Err(CarrierBroken::There { code: code::FINISHED, .. })), "{ended:?}");
    // An empty message is nothing, and so are pings.
    let nothing = vec![Message::Binary(Bytes::new()), Message::Ping(Bytes::new()), Message::Pong(Bytes::new())];
    let ended = after([nothing, vec![Message::Close(None)]].concat()).await;
    assert!(matches!(ended, Err(CarrierBroken::There { .. })), "{ended:?}");
}

#[tokio::test]
async fn reader_that_does_not_read_bounds_what_is_held() {
    let (carriers, [mut user, app]) = pair().await;
    let tasks = spawn(carriers);
    let mut written = 0;
    let piece = pattern(64 * 1024);
    while let Ok(more) = timeout(Duration::from_millis(200), user.write(&piece)).await {
        written += more.expect("the stream lives");
        assert!(written < 1_000_000, "nothing holds it back");
    }
    drop((app, user));
    drop(tasks);
}

#[tokio::test(start_paused = true)]
async fn quiet_stream_lives_as_long_as_both_ends_do() {
    let (carriers, [mut user, mut app]) = pair().await;
    let tasks = spawn(carriers);
    tokio::time::sleep(100 * PING_INTERVAL).await;
    user.write_all(b"x").await.expect("written");
    assert_eq!(app.read_u8().await.expect("it lives"), b'x');
    drop(tasks);
}

#[tokio::test(start_paused = true)]
async fn stream_whose_reader_sleeps_is_not_taken_for_dead_by_either_end() {
    for user_sleeps in [true, false] {
        let (carriers, [user, app]) = pair().await;
        let tasks = spawn(carriers);
        let (mut sleeper, writer) = if user_sleeps { (user, app) } else { (app, user) };
        let (mut reader, mut writer) = split(writer);
        let mut writing = JoinSet::new();
        writing.spawn(async move {
            writer.write_all(&pattern(300_000)).await.expect("written");
            // Not closed: the stream goes on.
            std::future::pending::<()>().await;
        });
        tokio::time::sleep(100 * PING_INTERVAL).await;
        let mut read = vec![0; 300_000];
        sleeper.read_exact(&mut read).await.expect("it lives");
        assert!(read == pattern(300_000));
        sleeper.write_all(b"x").await.expect("written");
        assert_eq!(reader.read_u8().await.expect("it lives"), b'x');
        drop((tasks, writing));
    }
}

#[tokio::test(start_paused = true)]
async fn end_behind_a_dead_connection_is_given_up() {
    let ([mut client, server], [_user, _app]) = pair().await;
    // It holds the connection and says nothing.
    let silent = server.part();
    let start = Instant::now();
    let ended = client.run().await;
    assert!(matches!(ended, Err(CarrierBroken::Silent)), "{ended:?}");
    assert_eq!(start.elapsed(), 3 * PING_INTERVAL);
    drop(silent);
}

// Nobody reads, so no ping gets through and no answer comes back.
#[tokio::test(start_paused = true)]
async fn dead_end_is_given_up_also_while_it_is_written_to() {
    let ([mut client, mut server], [_user, mut app]) = pair().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { server.run().await });
    let alive = timeout(2 * PING_INTERVAL, client.run()).await;
    assert!(alive.is_err(), "{alive:?}");
    // From here on it holds the connection and does nothing.
    let mut writing = JoinSet::new();
    writing.spawn(async move { app.write_all(&pattern(300_000)).await });
    let start = Instant::now();
    let ended = tasks.join_next().await.expect("a task").expect("no panic");
    assert!(matches!(ended, Err(CarrierBroken::Silent)), "{ended:?}");
    assert!(start.elapsed() <= 4 * PING_INTERVAL, "{:?}", start.elapsed());
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn goodbye_waits_no_longer_than_it_may() {
    let ([client, server], _streams) = pair().await;
    let (goodbye, _local) = server.part();
    let start = Instant::now();
    goodbye.say(code::ACCESS_ENDED, "sign_in_required", CLOSE_TIMEOUT).await;
    assert_eq!(start.elapsed(), CLOSE_TIMEOUT);
    drop(client);
}
