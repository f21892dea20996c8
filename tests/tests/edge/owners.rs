//! Connections to apps serve one principal each: a user, or without a sign-in one connection of a client.

use std::collections::HashSet;

use e2e::raw::Raw;
use e2e::until;
use gateway_store::wall_clock;
use gateway_types::{Port, Share};

use super::http2_app::GrpcApp;
use super::support::{App, Http2, Reply, World, app, ok};

impl World {
    /// Opens a port to every signed-in user, and returns the token of one who is not the owner.
    pub(crate) async fn other_user(&self, port: u16, user: &str) -> String {
        let share = Share { port: Port::new(port).unwrap(), audience: "signed-in".parse().unwrap(), expires_at: None };
        let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
        assert!(self.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
        let made = self.gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
        made.token.reveal().to_owned()
    }

    /// Writes a GET with this token, or without any.
    pub(crate) fn get_as(&self, token: Option<&str>, port: u16, target: &str) -> String {
        let token = token.map(|token| format!("gateway-authorization: Bearer {token}\r\n")).unwrap_or_default();
        format!("GET {target} HTTP/1.1\r\nhost: {}\r\n{token}\r\n", self.authority(port))
    }

    /// The same for HTTP/2.
    pub(crate) fn http2_get_as(&self, token: Option<&str>, port: u16, target: &str) -> http::Request<()> {
        let mut request = self.http2_request(port, "GET", target);
        request.headers_mut().remove("gateway-authorization");
        if let Some(token) = token {
            request.headers_mut().insert("gateway-authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    }
}

/// An app that says on which of its connections it was asked.
async fn numbered() -> App {
    app(|connection, _, _| ok(&connection.to_string())).await
}

async fn ask(raw: &mut Raw, request: String) -> String {
    raw.send(request).await;
    let answer = raw.message().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{answer:?}");
    answer.text()
}

#[tokio::test]
async fn users_share_no_connection_to_an_app_and_each_keeps_their_own() {
    let world = World::start().await;
    let app = numbered().await;
    let bob = world.other_user(app.port, "bob").await;
    let dev = world.gateway.user_token.clone();
    let mut seen = Vec::new();
    for token in [&dev, &bob, &dev, &bob] {
        // Whatever connections they come on, and over whichever version.
        let over_http1 = ask(&mut world.client().await, world.get_as(Some(token), app.port, "/")).await;
        let mut http2 = world.http2().await;
        let over_http2 = http2.ask(world.http2_get_as(Some(token), app.port, "/")).await.text();
        assert_eq!(over_http1, over_http2);
        seen.push(over_http1);
    }
    assert_eq!((&seen[0], &seen[1]), (&seen[2], &seen[3]));
    assert_ne!(seen[0], seen[1]);
    assert_eq!(app.seen.connections(), 2);
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn client_without_a_sign_in_keeps_a_connection_for_as_long_as_its_own_lasts() {
    let world = World::start().await;
    let app = numbered().await;
    world.gateway.publish("one", app.port).await;
    let (mut first, mut second) = (world.client().await, world.http2().await);
    let get = || world.get_as(None, app.port, "/");
    let mut numbers = Vec::new();
    for _ in 0..3 {
        numbers.push(ask(&mut first, get()).await);
        numbers.push(second.ask(world.http2_get_as(None, app.port, "/")).await.text());
    }
    assert_eq!((&numbers[0], &numbers[1]), (&numbers[2], &numbers[3]));
    assert_eq!((&numbers[0], &numbers[1]), (&numbers[4], &numbers[5]));
    assert_ne!(numbers[0], numbers[1]);
    // A sign-in on the same connection makes it another principal.
    let signed_in = ask(&mut first, world.get_as(Some(&world.gateway.user_token), app.port, "/")).await;
    assert!(!numbers.contains(&signed_in), "{signed_in} of {numbers:?}");
    assert_eq!(world.channels(), 3);
    drop(first);
    until("what was kept for it is gone", || world.channels() == 2).await;
    drop(second);
    until("and for the other one", || world.channels() == 1).await;
    let mut third = world.client().await;
    let third = ask(&mut third, get()).await;
    assert!(!numbers.contains(&third), "{third} of {numbers:?}");
}

// RFC 9112, section 6.3: no body follows an answer to HEAD, and many small servers send one all the same.
#[tokio::test]
async fn connection_that_carried_head_is_not_used_again() {
    let world = World::start().await;
    // One that sends no body, so that nothing else tells against the connection.
    let app = app(|_, _, _| Reply::Keep("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".to_owned())).await;
    let mut client = world.client().await;
    for number in 0..3 {
        client.send(world.head(app.port, "HEAD /", "")).await;
        assert_eq!(client.head().await.expect("an answer").status(), 200);
        app.seen.until_gone(number + 1).await;
    }
    assert_eq!(app.seen.connections(), 3);
    world.until_no_channel().await;
}

#[tokio::test]
async fn calls_of_two_users_go_over_two_http2_connections() {
    let app = GrpcApp::start(usize::MAX).await;
    let world = app.world().await;
    let bob = world.other_user(app.app.port, "bob").await;
    world.gateway.publish("one", app.app.port).await;
    let mut clients: Vec<(Http2, Option<&str>)> = Vec::new();
    for token in [Some(world.gateway.user_token.as_str()), Some(&bob), None, None] {
        clients.push((world.http2().await, token));
    }
    // The app's connections as the four clients saw them. Publishing a port asks it too, on a connection of its own.
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let mut round = Vec::new();
        for (http2, token) in &mut clients {
            let answer = http2.ask(world.http2_get_as(*token, app.app.port, "/")).await;
            assert_eq!(answer.status, 200);
            round.push(answer.headers["x-app-connection"].to_str().unwrap().to_owned());
        }
        rounds.push(round);
    }
    assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
    assert_eq!(rounds[0].iter().collect::<HashSet<_>>().len(), clients.len(), "{rounds:?}");
}
