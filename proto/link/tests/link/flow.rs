//! Bytes there and back.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tunnel_link::channel_io::ChannelError;
use tunnel_link::session::Session;
use tunnel_proto::limit::INTERACTIVE_BYTES_MAX;
use tunnel_proto::mux::OpenError;
use tunnel_proto::reason::Reason;

use crate::apps::{App, Pattern, closed_port};
use crate::pair::{Pair, Plan, no_task_left, soon, while_it_moves};
use crate::wire::Wire;

pub(crate) async fn through_the_echo(session: Session, port: u16, seed: usize, total: usize) {
    let (channel, accepted) = session.channel(port);
    let (mut reader, mut writer) = tokio::io::split(channel);
    let pattern = Pattern::new(seed);
    let writing = async {
        pattern.write(&mut writer, total).await;
        writer.shutdown().await.expect("finished");
    };
    let (read, ()) = tokio::join!(pattern.check(&mut reader), writing);
    assert_eq!(read, total);
    assert_eq!(accepted.await, Ok(Ok(())));
}

async fn check_fifty_mebibytes(wire: Wire) {
    let app = App::echo().await;
    let pair = Pair::new(wire).await;
    let total = 50 * 1024 * 1024;
    while_it_moves(&pair.gateway, through_the_echo(pair.gateway.clone(), app.port, 1, total)).await;
    assert_eq!(pair.agent.stats().bytes_sent, total as u64);
    assert_eq!(pair.agent.stats().bytes_received, total as u64);
    drop(app);
    pair.finish().await;
}

#[tokio::test]
async fn fifty_mebibytes_survive_the_way_there_and_back_over_memory() {
    check_fifty_mebibytes(Wire::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_mebibytes_survive_the_way_there_and_back_over_loopback() {
    check_fifty_mebibytes(Wire::Loopback).await;
}

async fn check_many_channels(wire: Wire) {
    let app = App::echo().await;
    let pair = Pair::new(wire).await;
    let mut channels = JoinSet::new();
    for seed in 0..100 {
        channels.spawn(through_the_echo(pair.gateway.clone(), app.port, seed, 100_000 + 1_000 * seed));
    }
    while_it_moves(&pair.gateway, channels.join_all()).await;
    assert_eq!(pair.gateway.stats().channels_opened, 100);
    drop(app);
    pair.finish().await;
}

#[tokio::test]
async fn many_channels_at_once_each_get_their_own_bytes_over_memory() {
    check_many_channels(Wire::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_channels_at_once_each_get_their_own_bytes_over_loopback() {
    check_many_channels(Wire::Loopback).await;
}

async fn bare_pair() -> Pair {
    Pair::planned(Plan { serves: false, ..Plan::new(Wire::Memory) }).await
}

#[tokio::test]
async fn first_bytes_travel_with_the_open_frame() {
    let pair = bare_pair().await;
    let (mut channel, _accepted) = pair.gateway.channel(3000);
    assert_eq!(pair.gateway.stats().channels_opened, 0, "opened by its first bytes");
    channel.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    let incoming = soon(pair.agent.accept()).await.expect("a channel");
    assert_eq!(incoming.port, 3000);
    assert_eq!(pair.agent.stats().frames.2, 1, "one frame opened it and brought its bytes");
    let mut there = incoming.accept();
    let mut request = [0; 18];
    soon(there.read_exact(&mut request)).await.expect("read");
    assert_eq!(&request, b"GET / HTTP/1.1\r\n\r\n");
    drop((channel, there));
    pair.finish().await;
}

#[tokio::test]
async fn first_write_larger_than_an_open_frame_arrives_whole() {
    let pair = bare_pair().await;
    let (mut channel, _accepted) = pair.gateway.channel(3000);
    let pattern = Pattern::new(3);
    let total = 20 * INTERACTIVE_BYTES_MAX + 1;
    let writing = async {
        pattern.write(&mut channel, total).await;
        channel.shutdown().await.expect("finished");
    };
    let reading = async {
        let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
        assert_eq!(soon(pattern.check(&mut there)).await, total);
    };
    tokio::join!(writing, reading);
    drop(channel);
    pair.finish().await;
}

#[tokio::test]
async fn channel_that_nobody_wrote_to_is_never_opened() {
    let pair = bare_pair().await;
    let (channel, accepted) = pair.gateway.channel(3000);
    drop(channel);
    assert!(accepted.await.is_err());
    assert_eq!(pair.gateway.stats().channels_opened, 0);
    pair.finish().await;
}

#[tokio::test]
async fn app_that_speaks_first_is_heard_through_open() {
    let app = App::new(|mut stream| async move {
        stream.write_all(b"SSH-2.0-sample\r\n").await.expect("greeted");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        assert_eq!(answer, "SSH-2.0-client\r\n");
    })
    .await;
    let pair = Pair::new(Wire::Memory).await;
    let (mut channel, accepted) = pair.gateway.open(app.port).expect("opened");
    assert_eq!(soon(accepted).await, Ok(Ok(())));
    let mut greeting = [0; 16];
    soon(channel.read_exact(&mut greeting)).await.expect("greeted");
    assert_eq!(&greeting, b"SSH-2.0-sample\r\n");
    channel.write_all(b"SSH-2.0-client\r\n").await.expect("written");
    channel.shutdown().await.expect("finished");
    assert_eq!(soon(channel.read(&mut [0; 1])).await.expect("the end"), 0);
    drop((channel, app));
    pair.finish().await;
}

#[tokio::test]
async fn gathered_writes_arrive_in_order() {
    let pair = bare_pair().await;
    let (mut channel, _accepted) = pair.gateway.channel(3000);
    let pieces = [std::io::IoSlice::new(b"one "), std::io::IoSlice::new(b""), std::io::IoSlice::new(b"two")];
    assert!(tokio::io::AsyncWrite::is_write_vectored(&channel));
    assert_eq!(channel.write_vectored(&pieces).await.expect("written"), 7);
    channel.shutdown().await.expect("finished");
    let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
    let mut text = String::new();
    soon(there.read_to_string(&mut text)).await.expect("read");
    assert_eq!(text, "one two");
    drop((channel, there));
    pair.finish().await;
}

#[tokio::test]
async fn refused_channel_tells_why_to_whom_opened_it_and_to_its_reader() {
    let pair = bare_pair().await;
    let (mut channel, accepted) = pair.gateway.channel(3000);
    channel.write_all(b"hello").await.expect("written");
    soon(pair.agent.accept()).await.expect("a channel").refuse(Reason::PortNotAllowed);
    assert_eq!(soon(accepted).await, Ok(Err(Reason::PortNotAllowed)));
    let error = soon(channel.read(&mut [0; 1])).await.expect_err("reset");
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::PortNotAllowed)));
    drop(channel);
    pair.finish().await;
}

#[tokio::test]
async fn port_on_which_nothing_listens_is_named_so() {
    let (closed, _kept) = closed_port();
    let pair = Pair::new(Wire::Memory).await;
    let (_channel, accepted) = pair.gateway.open(closed).expect("opened");
    assert_eq!(soon(accepted).await, Ok(Err(Reason::PortClosed)));
    drop(_channel);
    pair.finish().await;
}

#[tokio::test]
async fn write_to_a_session_that_is_over_says_so() {
    let pair = bare_pair().await;
    let (mut channel, accepted) = pair.gateway.channel(3000);
    let gateway = pair.gateway.clone();
    pair.finish().await;
    let error = channel.write_all(b"late").await.expect_err("over");
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Open(OpenError::Ended)));
    let error = channel.read(&mut [0; 1]).await.expect_err("over");
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Open(OpenError::Ended)));
    assert!(accepted.await.is_err());
    assert_eq!(gateway.open(3000).err(), Some(OpenError::Ended));
    no_task_left().await;
}

#[tokio::test]
async fn bytes_are_handed_on_without_a_copy() {
    let pair = bare_pair().await;
    let (mut channel, _accepted) = pair.gateway.open(3000).expect("opened");
    let mut bytes = Bytes::from(vec![7; 10_000]);
    let written = std::future::poll_fn(|context| channel.poll_write_bytes(context, &mut bytes)).await;
    assert_eq!(written.expect("written"), 10_000);
    assert!(bytes.is_empty());
    let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
    let mut arrived = 0;
    while arrived < 10_000 {
        let piece = soon(std::future::poll_fn(|context| there.poll_bytes(context))).await.expect("read");
        arrived += piece.expect("not the end").len();
    }
    drop((channel, there));
    pair.finish().await;
}
