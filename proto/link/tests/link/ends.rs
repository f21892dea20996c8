//! Who goes away is missed at once at the other end, by name.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tunnel_link::channel_io::{ChannelError, ChannelIo};
use tunnel_link::grpc::{DialedLink, FrameReader, IncomingBody};
use tunnel_link::session::Session;
use tunnel_link::splice::splice;
use tunnel_proto::mux::{SessionError, Settings, Side};
use tunnel_proto::reason::Reason;

use crate::apps::{App, abort};
use crate::pair::{Pair, Plan, dialed, driven_to_end, gateway, no_task_left, soon, until};
use crate::wire::{Wire, loopback};

async fn opened(session: &Session, port: u16) -> ChannelIo {
    let (channel, accepted) = session.open(port).expect("opened");
    assert_eq!(soon(accepted).await, Ok(Ok(())));
    channel
}

#[tokio::test(start_paused = true)]
async fn app_hears_within_a_second_that_the_user_is_gone() {
    let pair = Pair::planned(Plan { serves: false, ..Plan::new(Wire::Memory) }).await;
    let (mut app, socket) = tokio::io::duplex(1024);
    let (mut channel, _accepted) = pair.gateway.open(1).expect("opened");
    let incoming = soon(pair.agent.accept()).await.expect("a channel");
    let user = async {
        channel.write_all(b"hello").await.expect("written");
        drop(channel);
    };
    // An end and a reset are both fine: the user is gone.
    let mut heard = Vec::new();
    let both = async { tokio::join!(splice(incoming.accept(), socket), app.read_to_end(&mut heard), user) };
    drop(tokio::time::timeout(Duration::from_secs(1), both).await.expect("within a second"));
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

/// Both ends after the handshake, with nobody driving them yet.
struct Fresh {
    gateway_connection: JoinSet<()>,
    agent_connection: JoinSet<()>,
    gateway: Session,
    gateway_reader: FrameReader<IncomingBody>,
    agent: Session,
    dialed: DialedLink,
}

async fn fresh(wire: Wire) -> Fresh {
    let (mut gateway_connection, mut agent_connection) = (JoinSet::new(), JoinSet::new());
    let (here, there) = wire.connect().await;
    let mut attached = gateway(&mut gateway_connection, there, Settings::new(Side::Gateway));
    let dialed = dialed(&mut agent_connection, here).await.expect("welcome");
    let (gateway, gateway_reader) = soon(attached.recv()).await.expect("attached");
    let agent = Session::new(Settings::new(Side::Agent));
    dialed.attach(agent.link());
    Fresh { gateway_connection, agent_connection, gateway, gateway_reader, agent, dialed }
}

async fn over(mut tasks: JoinSet<()>) {
    soon(async { while tasks.join_next().await.is_some() {} }).await;
}

#[tokio::test]
async fn gateway_that_closes_and_drops_everything_is_understood_by_the_agent() {
    let fresh = fresh(Wire::Memory).await;
    fresh.gateway.close(Reason::Displaced, "a newer agent took over");
    drop((fresh.gateway, fresh.gateway_reader));
    let DialedLink { reader, .. } = fresh.dialed;
    let end = soon(driven_to_end(&fresh.agent, reader)).await;
    assert_eq!(end, closed(Reason::Displaced, "a newer agent took over"));
    drop(fresh.agent);
    over(fresh.agent_connection).await;
    over(fresh.gateway_connection).await;
    no_task_left().await;
}

#[tokio::test]
async fn agent_that_closes_and_drops_everything_is_understood_by_the_gateway() {
    let fresh = fresh(Wire::Memory).await;
    fresh.agent.close(Reason::Shutdown, "the agent is shutting down");
    drop((fresh.agent, fresh.dialed));
    let end = soon(driven_to_end(&fresh.gateway, fresh.gateway_reader)).await;
    assert_eq!(end, closed(Reason::Shutdown, "the agent is shutting down"));
    drop(fresh.gateway);
    over(fresh.agent_connection).await;
    over(fresh.gateway_connection).await;
    no_task_left().await;
}

#[test]
fn agent_whose_process_ends_right_after_its_connection_is_understood_by_the_gateway() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for _ in 0..20 {
        let (gateways, agents) = (runtime(), runtime());
        let (here, there) = gateways.block_on(loopback());
        let (here, there) = (here.into_std().expect("a socket"), there.into_std().expect("a socket"));
        let agent = std::thread::spawn(move || {
            let ending = async {
                let mut connection = JoinSet::new();
                let here = tokio::net::TcpStream::from_std(here).expect("a socket");
                let dialed = dialed(&mut connection, here).await.expect("welcome");
                let session = Session::new(Settings::new(Side::Agent));
                dialed.attach(session.link());
                session.close(Reason::Shutdown, "the agent is shutting down");
                session.said().await;
                drop(dialed);
                over(connection).await;
            };
            agents.block_on(ending);
            // As at the end of a process: nothing that was left runs on.
            agents.shutdown_background();
        });
        let end = gateways.block_on(async {
            let mut connection = JoinSet::new();
            let there = tokio::net::TcpStream::from_std(there).expect("a socket");
            let mut attached = gateway(&mut connection, there, Settings::new(Side::Gateway));
            let (session, reader) = soon(attached.recv()).await.expect("attached");
            let end = soon(driven_to_end(&session, reader)).await;
            over(connection).await;
            end
        });
        agent.join().expect("no panic");
        assert_eq!(end, closed(Reason::Shutdown, "the agent is shutting down"));
    }
}

#[tokio::test]
async fn reason_of_a_close_is_read_after_the_connection_is_gone() {
    let mut fresh = fresh(Wire::Memory).await;
    fresh.gateway.close(Reason::Revoked, "access was revoked");
    soon(fresh.gateway.said()).await;
    // It is said, and nobody has read it yet.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    drop((fresh.gateway, fresh.gateway_reader));
    fresh.gateway_connection.shutdown().await;
    over(fresh.agent_connection).await;
    let end = soon(driven_to_end(&fresh.agent, fresh.dialed.reader)).await;
    assert_eq!(end, closed(Reason::Revoked, "access was revoked"));
    drop(fresh.agent);
    no_task_left().await;
}

#[tokio::test]
async fn connection_that_nobody_drives_any_more_is_cut() {
    let mut fresh = fresh(Wire::Memory).await;
    fresh.agent_connection.shutdown().await;
    assert_eq!(soon(driven_to_end(&fresh.gateway, fresh.gateway_reader)).await, SessionError::Ended);
    assert_eq!(soon(driven_to_end(&fresh.agent, fresh.dialed.reader)).await, SessionError::Ended);
    drop((fresh.gateway, fresh.agent));
    over(fresh.gateway_connection).await;
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
