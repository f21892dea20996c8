//! Each direction ends on its own.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel_link::channel_io::ChannelError;
use tunnel_link::splice::splice;
use tunnel_proto::reason::Reason;

use crate::apps::{App, Pattern, abort};
use crate::pair::{Pair, Plan, soon, until};
use crate::wire::{Wire, loopback};

#[tokio::test]
async fn client_finishes_and_the_app_answers_after_that() {
    let app = App::new(|mut stream| async move {
        let mut request = Vec::new();
        stream.read_to_end(&mut request).await.expect("the whole request");
        let answer = format!("{} bytes", request.len());
        stream.write_all(answer.as_bytes()).await.expect("answered");
    })
    .await;
    let pair = Pair::new(Wire::Memory).await;
    let (mut channel, _accepted) = pair.gateway.channel(app.port);
    Pattern::new(1).write(&mut channel, 300_000).await;
    channel.shutdown().await.expect("finished");
    let mut answer = String::new();
    soon(channel.read_to_string(&mut answer)).await.expect("answered");
    assert_eq!(answer, "300000 bytes");
    let error = channel.write_all(b"more").await.expect_err("finished");
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Finished));
    drop((channel, app));
    pair.finish().await;
}

#[tokio::test]
async fn app_finishes_first_and_still_gets_everything() {
    let (sender, mut received) = tokio::sync::mpsc::channel(1);
    let app = App::new(move |mut stream| {
        let sender = sender.clone();
        async move {
            stream.write_all(b"that is all").await.expect("said");
            stream.shutdown().await.expect("finished");
            let read = Pattern::new(2).check(&mut stream).await;
            sender.send(read).await.expect("somebody waits");
        }
    })
    .await;
    let pair = Pair::new(Wire::Memory).await;
    let (mut channel, _accepted) = pair.gateway.open(app.port).expect("opened");
    let mut said = String::new();
    soon(channel.read_to_string(&mut said)).await.expect("said");
    assert_eq!(said, "that is all");
    soon(Pattern::new(2).write(&mut channel, 3_000_000)).await;
    channel.shutdown().await.expect("finished");
    assert_eq!(soon(received.recv()).await, Some(3_000_000));
    drop((channel, app));
    pair.finish().await;
}

#[tokio::test]
async fn shutdown_before_the_first_byte_ends_both_halves_instead_of_waiting_for_ever() {
    let pair = Pair::planned(Plan { serves: false, ..Plan::new(Wire::Memory) }).await;
    let (channel, _accepted) = pair.gateway.channel(3000);
    let (mut reader, mut writer) = tokio::io::split(channel);
    let mut byte = [0; 1];
    let (read, finished) = tokio::join!(soon(reader.read(&mut byte)), writer.shutdown());
    finished.expect("finished");
    assert_eq!(read.expect("the end"), 0);
    let error = writer.write_all(b"late").await.expect_err("finished");
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Finished));
    assert_eq!(pair.gateway.stats().channels_opened, 0);
    drop((reader, writer));
    pair.finish().await;
}

/// Answers after one byte of the upload and closes with the rest unread, so that the kernel sends a reset behind it.
async fn early_answerer(answer_bytes: usize) -> App {
    App::new(move |mut stream| async move {
        stream.read_exact(&mut [0; 1]).await.expect("a byte");
        Pattern::new(4).write(&mut stream, answer_bytes).await;
    })
    .await
}

async fn upload_until_it_breaks(writer: &mut (impl AsyncWriteExt + Unpin), total: usize) {
    let piece = vec![0; 16 * 1024];
    let mut written = 0;
    while written < total && writer.write_all(&piece).await.is_ok() {
        written += piece.len();
    }
}

/// Reads to the end or to the error that follows, and returns how many bytes came before it.
async fn read_what_comes(reader: &mut (impl AsyncReadExt + Unpin)) -> (usize, Option<ChannelError>) {
    let mut answer = Vec::new();
    let end = reader.read_to_end(&mut answer).await;
    assert!(Pattern::new(4).at(0, answer.len()).starts_with(&answer));
    (answer.len(), end.err().and_then(|error| ChannelError::find(&error)))
}

async fn check_early_answer(wire: Wire, upload_bytes: usize, answer_bytes: usize) {
    let app = early_answerer(answer_bytes).await;
    let pair = Pair::new(wire).await;
    for round in 0..10 {
        let (channel, _accepted) = pair.gateway.channel(app.port);
        let (mut reader, mut writer) = tokio::io::split(channel);
        let uploading = upload_until_it_breaks(&mut writer, upload_bytes);
        let (answer, ()) = soon(async { tokio::join!(read_what_comes(&mut reader), uploading) }).await;
        assert_eq!(answer.0, answer_bytes, "round {round}, then {:?}", answer.1);
    }
    drop(app);
    pair.finish().await;
}

#[tokio::test]
async fn early_answer_to_a_large_upload_is_not_lost() {
    check_early_answer(Wire::Memory, 20 * 1024 * 1024, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_answer_to_an_upload_that_fits_the_socket_buffers_is_not_lost() {
    check_early_answer(Wire::Loopback, 48 * 1024, 20_000).await;
}

#[tokio::test]
async fn reset_right_behind_the_apps_words_does_not_take_them_back() {
    let pair = Pair::planned(Plan { serves: false, ..Plan::new(Wire::Memory) }).await;
    let (mut channel, _accepted) = pair.gateway.open(3000).expect("opened");
    let incoming = soon(pair.agent.accept()).await.expect("a channel");
    let (socket, mut app) = loopback().await;
    // Words and reset are both there before the agent looks.
    app.write_all(b"last words").await.expect("said");
    abort(app);
    let joining = splice(incoming.accept(), socket);
    let mut words = [0; 10];
    let reading = async {
        channel.read_exact(&mut words).await.expect("the last words");
        channel.read(&mut [0; 1]).await.expect_err("then the reset")
    };
    let (ended, error) = soon(async { tokio::join!(joining, reading) }).await;
    assert_eq!(&words, b"last words");
    assert_eq!(ended.expect_err("reset").kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::AppReset)));
    drop(channel);
    pair.finish().await;
}

#[tokio::test]
async fn app_that_stopped_reading_does_not_hold_the_upload_up() {
    let app = App::new(|mut stream| async move {
        stream.write_all(b"no, thanks").await.expect("said");
        // Dropped: the upload meets a closed socket.
    })
    .await;
    let pair = Pair::new(Wire::Memory).await;
    let (channel, _accepted) = pair.gateway.open(app.port).expect("opened");
    let (mut reader, mut writer) = tokio::io::split(channel);
    let uploading = upload_until_it_breaks(&mut writer, 3_000_000);
    let mut words = [0; 10];
    let reading = async { reader.read_exact(&mut words).await.expect("the answer") };
    soon(async { tokio::join!(reading, uploading) }).await;
    assert_eq!(&words, b"no, thanks");
    drop((reader, writer, app));
    let agent = pair.agent.clone();
    until("the agent's channel is gone", || agent.stats().channels_live == 0).await;
    pair.finish().await;
}
