//! Bytes that arrive as they were sent, both ways, over both versions of HTTP.

use e2e::raw::{Raw, RawApp};

use super::support::{User, World};

/// Sends back what it gets.
pub(crate) async fn echo() -> RawApp {
    RawApp::start(|mut raw| async move {
        loop {
            let said = raw.some().await;
            if said.is_empty() || raw.try_send(said).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn every_byte_goes_both_ways_as_it_is() {
    let world = World::start().await;
    let app = echo().await;
    let mut user = world.open(app.port).await;
    let all: Vec<u8> = (0..=255).cycle().take(1024).collect();
    // Nothing in them is looked at, HTTP least of all.
    for said in [&b"x"[..], &all, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\0", b"finish", b"SSH-2.0-x\r\n"] {
        user.say(said).await;
        assert_eq!(user.hear(said.len()).await, said);
    }
    user.finish().await;
    assert_eq!(user.hear_rest().await, b"");
    let copied = user.ended().await.expect("a good end");
    assert_eq!(copied.inward, copied.outward);
    world.gateway.assert_empty().await;
    let mut operator = Raw::connect(world.gateway.addresses.admin.expect("an address")).await;
    operator.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let metrics = operator.message().await.expect("an answer").text();
    for line in ["gateway_tcp_opened_total 1", "gateway_tcp_ended_total{end=\"finished\"} 1"] {
        assert!(metrics.lines().any(|there| there == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn app_may_speak_first_and_need_not_be_spoken_to() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.send("SSH-2.0-server\r\n").await;
        raw.read_rest().await;
    })
    .await;
    let mut user = world.open(app.port).await;
    assert_eq!(user.hear(16).await, b"SSH-2.0-server\r\n");
    user.finish().await;
    user.ended().await.expect("a good end");
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn streams_over_http2_share_a_connection_with_nothing_else_changed() {
    let world = World::start().await;
    let app = echo().await;
    let token = world.gateway.user_token.clone();
    let (stream, _connection) = world.switched_over_http2(&token, app.port).await;
    let mut user = User::on(stream).await;
    let said = vec![7; 300_000];
    let (mut reader, mut writer) = tokio::io::split(&mut user.stream);
    let saying = async {
        tokio::io::AsyncWriteExt::write_all(&mut writer, &said).await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut writer).await.unwrap();
    };
    let mut heard = Vec::new();
    let (read, ()) = tokio::join!(tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut heard), saying);
    read.expect("an end");
    assert!(heard == said);
    user.ended().await.expect("a good end");
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn many_streams_do_not_mix() {
    let world = World::start().await;
    let app = echo().await;
    let mut users = Vec::new();
    for _ in 0..50 {
        users.push(world.open(app.port).await);
    }
    for round in 0..3 {
        for (number, user) in users.iter_mut().enumerate() {
            user.say(format!("{round} {number:04}")).await;
        }
        for (number, user) in users.iter_mut().enumerate() {
            assert_eq!(user.hear(6).await, format!("{round} {number:04}").into_bytes());
        }
    }
    assert_eq!(world.session().in_flight(), 50, "each has its slot");
    for mut user in users {
        user.finish().await;
        user.ended().await.expect("a good end");
    }
    world.gateway.assert_empty().await;
}
