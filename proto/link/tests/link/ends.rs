//! Who goes away is missed at once at the other end, by name.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tunnel_link::channel_io::{ChannelError, ChannelIo};
use tunnel_link::grpc::drive;
use tunnel_link::session::Session;
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;

use crate::apps::{App, abort};
use crate::pair::{Pair, Plan, dialed, gateway, no_task_left, soon, until};
use crate::wire::Wire;

async fn opened(session: &Session, port: u16) -> ChannelIo {
    let (channel, accepted) = session.open(port).expect("opened");
    assert_eq!(soon(accepted).await, Ok(Ok(())));
    channel
}

#[tokio::test]
async fn app_hears_within_a_second_that_the_user_is_gone() {
    let (sender, mut noticed) = tokio::sync::mpsc::channel(1);
    let app = App::new(move |mut stream| {
        let sender = sender.clone();
        async move {
            // An end and a reset are both fine: the user is gone.
            stream.read_to_end(&mut Vec::new()).await.ok();
            sender.send(()).await.expect("somebody waits");
        }
    })
    .await;
    let pair = Pair::new(Wire::Loopback).await;
    let mut channel = opened(&pair.gateway, app.port).await;
    channel.write_all(b"hello").await.expect("written");
    drop(channel);
    tokio::time::timeout(Duration::from_secs(1), noticed.recv()).await.expect("within a second");
    drop(app);
    pair.finish().await;
}

#[tokio::test]
async fn user_who_is_gone_is_missed_even_if_the_app_neither_reads_nor_writes() {
    let app = App::stalled().await;
    let pair = Pair::new(Wire::Memory).await;
    let mut channel = opened(&pair.gateway, app.port).await;
    // Until every buffer on the way is full, the last of them the app's.
    let piece = vec![0; 64 * 1024];
    while tokio::time::timeout(Duration::from_millis(300), channel.write(&piece)).await.is_ok() {}
    let agent = pair.agent.clone();
    assert_eq!(agent.stats().channels_live, 1);
    drop(channel);
    until("the agent's channel is gone", || agent.stats().channels_live == 0).await;
    drop(app);
    pair.finish().await;
}

#[tokio::test]
async fn user_who_finished_and_then_went_away_is_missed_while_the_app_is_silent() {
    let app = App::stalled().await;
    let pair = Pair::new(Wire::Memory).await;
    let mut channel = opened(&pair.gateway, app.port).await;
    channel.write_all(b"question").await.expect("written");
    channel.shutdown().await.expect("finished");
    let agent = pair.agent.clone();
    until("the question is there", || agent.stats().bytes_received == 8).await;
    drop(channel);
    until("the agent's channel is gone", || agent.stats().channels_live == 0).await;
    drop(app);
    pair.finish().await;
}

#[tokio::test]
async fn reset_of_a_silent_app_arrives_by_name() {
    let app = App::new(|stream| async move { abort(stream) }).await;
    let pair = Pair::new(Wire::Loopback).await;
    let mut channel = opened(&pair.gateway, app.port).await;
    let error = soon(channel.read(&mut [0; 1])).await.expect_err("reset");
    assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::AppReset)));
    drop((channel, app));
    pair.finish().await;
}

#[tokio::test]
async fn every_channel_hears_that_the_agent_is_gone() {
    let app = App::echo().await;
    let pair = Pair::new(Wire::Loopback).await;
    let mut channels = Vec::new();
    for _ in 0..20 {
        channels.push(opened(&pair.gateway, app.port).await);
    }
    let (pending, unanswered) = pair.gateway.open(app.port).expect("opened");
    let mut readers = JoinSet::new();
    for mut channel in channels {
        readers.spawn(async move { channel.read(&mut [0; 1]).await.expect_err("reset") });
    }
    pair.switch.cut();
    while let Some(error) = soon(readers.join_next()).await {
        let error = error.expect("no panic");
        assert_eq!(ChannelError::find(&error), Some(ChannelError::Reset(Reason::SessionLost)));
    }
    // It may have been answered before the cut.
    assert!(matches!(soon(unanswered).await, Ok(Err(Reason::SessionLost) | Ok(()))));
    drop((pending, app));
    assert_eq!(pair.gateway.end(), Some(SessionError::Ended));
    assert!(soon(pair.gateway.accept()).await.is_none());
    assert!(soon(pair.agent.accept()).await.is_none());
    pair.finish().await;
}

fn closed(reason: Reason, detail: &str) -> SessionError {
    SessionError::Closed { reason, detail: detail.into() }
}

#[tokio::test]
async fn gateway_that_closes_and_drops_everything_is_understood_by_the_agent() {
    let mut connections = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    let mut attached = gateway(&mut connections, there, Settings::new(Side::Gateway));
    let dialed = dialed(&mut connections, here).await.expect("welcome");
    let (session, reader) = soon(attached.recv()).await.expect("attached");
    let agent = Session::new(Settings::new(Side::Agent));
    dialed.attach(agent.clone());
    session.close(Reason::Displaced, "a newer agent took over");
    drop((session, reader));
    let end = soon(drive(&agent, dialed.reader)).await;
    assert_eq!(end, closed(Reason::Displaced, "a newer agent took over"));
    drop(agent);
    soon(async { while connections.join_next().await.is_some() {} }).await;
    no_task_left().await;
}

#[tokio::test]
async fn agent_that_closes_and_keeps_only_its_connection_is_understood_by_the_gateway() {
    let mut connections = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    let mut attached = gateway(&mut connections, there, Settings::new(Side::Gateway));
    let dialed = dialed(&mut connections, here).await.expect("welcome");
    let (session, reader) = soon(attached.recv()).await.expect("attached");
    let agent = Session::new(Settings::new(Side::Agent));
    dialed.attach(agent.clone());
    agent.close(Reason::Shutdown, "the agent is shutting down");
    drop((agent, dialed));
    let end = soon(drive(&session, reader)).await;
    assert_eq!(end, closed(Reason::Shutdown, "the agent is shutting down"));
    drop(session);
    // Nothing holds the connection any more on either side.
    soon(async { while connections.join_next().await.is_some() {} }).await;
    no_task_left().await;
}

#[tokio::test]
async fn reason_of_a_close_is_read_after_the_connection_is_gone() {
    let mut connections = JoinSet::new();
    let (here, there) = Wire::Memory.connect().await;
    let mut gateway_connection = JoinSet::new();
    let mut attached = gateway(&mut gateway_connection, there, Settings::new(Side::Gateway));
    let dialed = dialed(&mut connections, here).await.expect("welcome");
    let (session, reader) = soon(attached.recv()).await.expect("attached");
    let agent = Session::new(Settings::new(Side::Agent));
    dialed.attach(agent.clone());
    session.close(Reason::Revoked, "access was revoked");
    soon(session.said()).await;
    // What was said has to leave the process; then it ends without a word more.
    until("the agent's end has it", || {
        tokio::runtime::Handle::current().metrics().num_alive_tasks() <= 4
    })
    .await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop((session, reader));
    gateway_connection.shutdown().await;
    soon(async { while connections.join_next().await.is_some() {} }).await;
    assert_eq!(soon(drive(&agent, dialed.reader)).await, closed(Reason::Revoked, "access was revoked"));
    drop(agent);
    no_task_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reason_of_a_close_is_not_lost_in_a_flood_of_arriving_frames() {
    for _ in 0..30 {
        let pair = Pair::planned(Plan { serves: false, ..Plan::new(Wire::Loopback) }).await;
        let mut flood = JoinSet::new();
        for _ in 0..8 {
            let (mut here, _accepted) = pair.gateway.open(3000).expect("opened");
            let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
            flood.spawn(async move { while there.write_all(&[0; 700]).await.is_ok() {} });
            flood.spawn(async move {
                let mut buffer = vec![0; 4096];
                while here.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
            });
        }
        let gateway = pair.gateway.clone();
        until("the flood flows", || gateway.stats().bytes_received > 100_000).await;
        pair.gateway.close(Reason::Revoked, "enough");
        let Pair { agent_end, gateway_end, agent, .. } = pair;
        assert_eq!(soon(agent_end).await, Ok(closed(Reason::Revoked, "enough")));
        assert_eq!(soon(gateway_end).await, Ok(closed(Reason::Revoked, "enough")));
        soon(async { while flood.join_next().await.is_some() {} }).await;
        assert_eq!(agent.stats().channels_live, 0);
    }
}

#[tokio::test]
async fn drain_request_arrives() {
    let pair = Pair::new(Wire::Memory).await;
    pair.gateway.drain(Duration::from_secs(30), Duration::from_secs(2));
    let agent = pair.agent.clone();
    until("the request is there", || agent.drain_request().is_some()).await;
    let request = agent.drain_request().expect("just seen");
    assert_eq!((request.deadline, request.redial_after), (Duration::from_secs(30), Duration::from_secs(2)));
    assert!(!agent.is_ended(), "channels live on until the link ends");
    pair.finish().await;
}
