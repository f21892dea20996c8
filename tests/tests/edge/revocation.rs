//! Access that ends while something is open, and ports that are open to others than the owner.

use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use e2e::stopwatch::Stopwatch;
use gateway_store::{TokenSubject, wall_clock};
use gateway_types::{Share, UnixSeconds};

use super::support::World;

/// Within this a revocation has cut what was open.
const CUT_WITHIN: Duration = Duration::from_secs(5);

const UPGRADE: &str = "connection: upgrade\r\nupgrade: lines\r\n";

/// An app that streams for ever: as an upgrade, as an endless body, or by never answering an upload.
async fn endless() -> RawApp {
    RawApp::start(|mut raw| async move {
        let head = raw.head().await.unwrap();
        if head.header("upgrade").is_some() {
            raw.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: lines\r\n\r\n").await;
        } else if head.start.starts_with("GET") {
            raw.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n").await;
        }
        raw.read_rest().await;
    })
    .await
}

impl World {
    async fn share(&self, port: u16, audience: &str, expires_at: Option<UnixSeconds>) {
        let port = gateway_types::Port::new(port).unwrap();
        let share = Share { port, audience: audience.parse().unwrap(), expires_at };
        let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
        assert!(self.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
    }

    async fn unshare(&self, port: u16, audience: &str) {
        let port = gateway_types::Port::new(port).unwrap();
        let name = "one".parse().unwrap();
        assert!(self.gateway.store.unshare(&name, port, &audience.parse().unwrap()).await.unwrap());
    }

    async fn token_of(&self, user: &str) -> String {
        let made = self.gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
        made.token.reveal().to_owned()
    }

    async fn revoke_tokens_of(&self, user: &str) {
        for token in self.gateway.store.list_tokens().await.unwrap() {
            if matches!(&token.subject, TokenSubject::User { user: of } if of.as_str() == user) {
                assert!(self.gateway.store.revoke_token(token.id, wall_clock()).await.unwrap());
            }
        }
    }

    async fn ask_as(&self, token: &str, port: u16, start: &str, fields: &str) -> Raw {
        let mut client = self.client().await;
        let host = self.authority(port);
        let token = if token.is_empty() { String::new() } else { format!("gateway-authorization: Bearer {token}\r\n") };
        client.send(format!("{start} HTTP/1.1\r\nhost: {host}\r\n{token}{fields}\r\n")).await;
        client
    }

    /// Opens a stream, an endless body and an upload that is not answered yet.
    async fn open_all(&self, token: &str, port: u16) -> Vec<Raw> {
        let mut stream = self.ask_as(token, port, "GET /", UPGRADE).await;
        assert_eq!(stream.head().await.unwrap().status(), 101);
        let mut body = self.ask_as(token, port, "GET /", "").await;
        assert_eq!(body.head().await.unwrap().status(), 200);
        let mut upload = self.ask_as(token, port, "POST /", "content-length: 100\r\n").await;
        upload.send("half").await;
        vec![stream, body, upload]
    }
}

/// Waits until each connection has ended.
async fn all_end(clients: Vec<Raw>, since: Stopwatch) {
    for (number, mut client) in clients.into_iter().enumerate() {
        client.read_rest().await;
        assert!(since.elapsed() < CUT_WITHIN, "number {number} lived {:?} after access ended", since.elapsed());
    }
}

#[tokio::test]
async fn revoked_token_cuts_stream_body_and_upload() {
    let world = World::start().await;
    let app = endless().await;
    let token = world.gateway.user_token.clone();
    let open = world.open_all(&token, app.port).await;
    let since = Stopwatch::start();
    world.revoke_tokens_of("dev").await;
    all_end(open, since).await;
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn share_lets_its_audience_in_and_cuts_them_when_it_is_taken_back() {
    let world = World::start().await;
    let app = endless().await;
    let (bob, eve) = (world.token_of("bob").await, world.token_of("eve").await);
    let refused = world.ask_as(&bob, app.port, "GET /", "").await.message().await.unwrap();
    assert_eq!(refused.header("gateway-error"), Some("no_such_host"), "{refused:?}");
    world.share(app.port, "user:bob", None).await;
    // What is remembered of the workspace ages first.
    let since = Stopwatch::start();
    let open = loop {
        let mut client = world.ask_as(&bob, app.port, "GET /", "").await;
        if client.head().await.unwrap().status() == 200 {
            break world.open_all(&bob, app.port).await;
        }
        assert!(since.elapsed() < CUT_WITHIN, "a share counts within the time that a revocation takes");
    };
    let stranger = world.ask_as(&eve, app.port, "GET /", "").await.message().await.unwrap();
    assert_eq!(stranger.header("gateway-error"), Some("no_such_host"));
    let other_port = world.ask_as(&bob, app.port - 1, "GET /", "").await.message().await.unwrap();
    assert_eq!(other_port.header("gateway-error"), Some("port_not_allowed"));
    let since = Stopwatch::start();
    world.unshare(app.port, "user:bob").await;
    all_end(open, since).await;
}

#[tokio::test]
async fn public_port_needs_no_sign_in_until_its_time_is_over() {
    let world = World::start().await;
    let app = endless().await;
    let refused = world.ask_as("", app.port, "GET /", "").await.message().await.unwrap();
    assert_eq!(refused.status(), 401);
    let ends = wall_clock().later(Duration::from_secs(10));
    world.share(app.port, "public", Some(ends)).await;
    let since = Stopwatch::start();
    let open = loop {
        let mut client = world.ask_as("", app.port, "GET /", UPGRADE).await;
        if client.head().await.unwrap().status() == 101 {
            break vec![client];
        }
        assert!(since.elapsed() < CUT_WITHIN, "a public port opens within seconds");
        tokio::task::yield_now().await;
    };
    let elsewhere = world.ask_as("", app.port - 1, "GET /", "").await.message().await.unwrap();
    assert_eq!(elsewhere.status(), 401, "{elsewhere:?}");
    e2e::until_second(ends).await;
    all_end(open, Stopwatch::start()).await;
}

#[tokio::test]
async fn access_that_lasts_is_not_cut() {
    let world = World::start().await;
    let app = endless().await;
    let token = world.token_of("dev").await;
    let open = world.open_all(&token, app.port).await;
    // Another token of the same user ends; long enough for several looks.
    let other = world.token_of("dev").await;
    let mut cut = world.ask_as(&other, app.port, "GET /", UPGRADE).await;
    assert_eq!(cut.head().await.unwrap().status(), 101);
    let newest = world.gateway.store.list_tokens().await.unwrap().pop().unwrap();
    assert!(world.gateway.store.revoke_token(newest.id, wall_clock()).await.unwrap());
    all_end(vec![cut], Stopwatch::start()).await;
    for mut client in open {
        let quiet = tokio::time::timeout(Duration::from_millis(10), client.read_rest()).await;
        assert!(quiet.is_err(), "it ended too");
    }
}
