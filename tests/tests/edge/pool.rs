//! Connections to apps: kept while they are good, and never at the price of a request sent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use e2e::raw::RawApp;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::support::{Reply, World, app, ok, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_requests_share_one_connection() {
    let world = World::start().await;
    let app = app(|_, _, request| ok(&request.text())).await;
    let mut client = world.client().await;
    for number in 0..50 {
        let body = number.to_string();
        client.send(world.head(app.port, "POST /", &format!("content-length: {}\r\n", body.len())) + &body).await;
        assert_eq!(client.message().await.unwrap().text(), body);
    }
    assert_eq!(app.seen.requests().len(), 50);
    assert_eq!(app.seen.connections(), 1);
    world.gateway.assert_quiet().await;
}

// The end of a body may come with its last bytes, behind them, or before anybody asked; the connection is good each time.
#[tokio::test]
async fn uploads_leave_the_connection_usable_however_they_end() {
    let world = World::start().await;
    let app = app(|_, _, request| ok(&request.text())).await;
    let mut http2 = world.http2().await;
    for (length, pieces) in [
        (None, &["hello", ""][..]),
        (Some("5"), &["hello"]),
        (Some("5"), &["hel", "lo", ""]),
        (None, &[""]),
        (Some("0"), &[""]),
    ] {
        for _ in 0..5 {
            let mut request = world.http2_request(app.port, "POST", "/");
            if let Some(length) = length {
                request.headers_mut().insert("content-length", length.parse().unwrap());
            }
            let (response, mut body) = http2.start(request);
            for (at, piece) in pieces.iter().enumerate() {
                tokio::task::yield_now().await;
                body.send_data((*piece).into(), at + 1 == pieces.len()).unwrap();
            }
            assert_eq!(super::support::whole(response).await.text(), pieces.concat());
        }
    }
    assert_eq!(app.seen.connections(), 1);
}

#[tokio::test]
async fn requests_of_several_users_connections_share_one_connection() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("x")).await;
    for _ in 0..5 {
        world.ask(app.port, "GET /", "").await;
        world.http2().await.ask(world.http2_request(app.port, "GET", "/")).await;
    }
    assert_eq!(app.seen.connections(), 1);
}

#[tokio::test]
async fn concurrent_requests_do_not_wait_for_each_other() {
    let world = World::start().await;
    let together = Arc::new(Barrier::new(8));
    let app = {
        let together = together.clone();
        RawApp::start(move |mut raw| {
            let together = together.clone();
            async move {
                while raw.message().await.is_some() {
                    together.wait().await;
                    raw.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        })
        .await
    };
    let mut http2 = world.http2().await;
    let answers: Vec<_> = (0..8)
        .map(|_| {
            let (response, mut body) = http2.start(world.http2_request(app.port, "GET", "/"));
            body.send_data(bytes::Bytes::new(), true).unwrap();
            response
        })
        .collect();
    for answer in answers {
        assert_eq!(soon(answer).await.unwrap().status(), 200);
    }
    assert_eq!(world.channels(), 8, "all eight are kept for later");
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn connection_that_says_close_is_not_kept() {
    let world = World::start().await;
    for reply in [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nconnection: Close\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ] {
        let app = app(move |_, _, _| Reply::Keep(reply.into())).await;
        for _ in 0..3 {
            assert_eq!(world.ask(app.port, "GET /", "").await.text(), "ok");
        }
        assert_eq!(app.seen.connections(), 3, "{reply}");
        app.seen.until_gone(3).await;
    }
    world.until_no_channel().await;
}

#[tokio::test]
async fn idle_connections_are_closed_after_their_time() {
    let change = |config: &mut gateway_config::Config| config.timeouts.upstream_idle = Duration::from_secs(1);
    let world = World::configured(change, Vec::new()).await;
    let app = app(|_, _, _| ok("x")).await;
    world.ask(app.port, "GET /", "").await;
    assert_eq!(world.channels(), 1);
    world.gateway.assert_empty().await;
    app.seen.until_gone(1).await;
}

#[tokio::test]
async fn connection_that_the_app_closed_is_not_used_again() {
    let world = World::start().await;
    let app = app(|_, _, _| Reply::Close("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".into())).await;
    for _ in 0..5 {
        let mut client = world.client().await;
        client.send(world.head(app.port, "POST /", "content-length: 1\r\n") + "x").await;
        assert_eq!(client.message().await.unwrap().text(), "ok");
        world.until_no_channel().await;
    }
    assert_eq!((app.seen.requests().len(), app.seen.connections()), (5, 5));
}

/// Starts an app that keeps its first connection for one answer and closes it on the second request without a word, as a
/// server does whose idle time ended at that moment.
async fn app_that_closes_at_the_moment_of_reuse() -> super::support::App {
    app(|connection, number, _| match (connection, number) {
        (0, 0) => ok("first"),
        (0, _) => Reply::Close(String::new()),
        _ => ok("second"),
    })
    .await
}

// Row 28, trap 21: RFC 9110, section 9.2.2.
#[tokio::test]
async fn get_on_a_connection_that_closes_at_reuse_is_repeated_once() {
    let world = World::start().await;
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"] {
        let app = app_that_closes_at_the_moment_of_reuse().await;
        assert_eq!(world.ask(app.port, "GET /", "").await.text(), "first");
        let mut client = world.client().await;
        client.send(world.head(app.port, &format!("{method} /again"), "x-own: 1\r\n")).await;
        assert_eq!(client.head().await.unwrap().status(), 200, "{method}");
        let seen = app.seen.requests();
        assert_eq!((seen.len(), app.seen.connections()), (3, 2), "{method}");
        assert_eq!((&seen[1].start, &seen[1].headers), (&seen[2].start, &seen[2].headers), "the same request again");
    }
    world.gateway.assert_quiet().await;
}

// Row 28.
#[tokio::test]
async fn post_on_a_connection_that_closes_at_reuse_is_never_sent_twice() {
    let world = World::start().await;
    for (method, fields, body) in [
        ("POST", "content-length: 2\r\n", "hi"),
        ("POST", "content-length: 0\r\n", ""),
        ("PATCH", "", ""),
        ("PUT", "content-length: 2\r\n", "hi"),
        ("DELETE", "transfer-encoding: chunked\r\n", "2\r\nhi\r\n0\r\n\r\n"),
    ] {
        let app = app_that_closes_at_the_moment_of_reuse().await;
        assert_eq!(world.ask(app.port, "GET /", "").await.text(), "first");
        let mut client = world.client().await;
        client.send(world.head(app.port, &format!("{method} /"), fields) + body).await;
        let answer = client.message().await.unwrap();
        assert_eq!(
            (answer.status(), answer.header("gateway-error")),
            (502, Some("port_closed")),
            "{method}: {answer:?}"
        );
        assert_eq!((app.seen.requests().len(), app.seen.connections()), (2, 1), "{method}");
    }
    world.gateway.assert_quiet().await;
}

// The same with a reset in place of an end: it comes back as another error, and means the same.
#[tokio::test]
async fn reset_at_reuse_repeats_a_get_and_never_a_post() {
    let world = World::start().await;
    for (method, status, sent) in [("GET", 200, 3), ("POST", 502, 2)] {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let app = RawApp::start(move |mut raw| {
            let requests = counted.clone();
            async move {
                while raw.message().await.is_some() {
                    if requests.fetch_add(1, Ordering::SeqCst) == 1 {
                        raw.socket().set_zero_linger().unwrap();
                        return;
                    }
                    raw.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        })
        .await;
        assert_eq!(world.ask(app.port, "GET /", "").await.status(), 200);
        assert_eq!(world.ask(app.port, &format!("{method} /"), "").await.status(), status);
        assert_eq!(requests.load(Ordering::SeqCst), sent, "{method}");
    }
    world.gateway.assert_quiet().await;
}

#[tokio::test]
async fn request_on_a_fresh_connection_is_sent_once() {
    let world = World::start().await;
    let app = app(|_, _, _| Reply::Close(String::new())).await;
    assert_eq!(world.ask(app.port, "GET /", "").await.status(), 502);
    assert_eq!(app.seen.requests().len(), 1);
}

// The app closes each connection after one answer without saying so. However the two race, no request is sent twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_closes_never_double_a_post() {
    let world = World::start().await;
    let app = app(|_, _, _| Reply::Close("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".into())).await;
    let mut client = world.client().await;
    for number in 0..40 {
        client.send(world.head(app.port, &format!("POST /{number}"), "content-length: 1\r\n") + "x").await;
        let status = client.message().await.unwrap().status();
        let sent =
            app.seen.requests().iter().filter(|request| request.start == format!("POST /{number} HTTP/1.1")).count();
        assert!(matches!((status, sent), (200, 1) | (502, 0 | 1)), "{number}: {status} after {sent}");
    }
}

// A session that is gone takes its connections with it.
#[tokio::test]
async fn connections_of_a_former_session_are_not_used() {
    let gateway = e2e::TestGateway::start().await;
    let token = gateway.agent_token("one").await;
    let first = gateway.start_agent(&token, Vec::new());
    gateway.until_connected("one").await;
    let app = app(|_, _, _| ok("x")).await;
    let name = "one".parse().unwrap();
    let before = gateway.registry.current(&name).unwrap().id;
    let head = format!(
        "GET / HTTP/1.1\r\nhost: {}\r\ngateway-authorization: Bearer {}\r\n\r\n",
        gateway.authority("one", app.port),
        gateway.user_token
    );
    let mut client = e2e::raw::Raw::connect(gateway.addresses.public).await;
    client.send(&head).await;
    assert_eq!(client.message().await.unwrap().status(), 200);
    let _second = gateway.start_agent(&token, Vec::new());
    e2e::until("the second agent is there", || gateway.registry.current(&name).is_some_and(|now| now.id != before))
        .await;
    drop(first);
    client.send(&head).await;
    assert_eq!(client.message().await.unwrap().status(), 200);
    assert_eq!(app.seen.connections(), 2);
}

// An answer that comes before the upload's end leaves bytes on the connection that belong to no other request.
#[tokio::test]
async fn connection_with_an_unfinished_upload_is_not_used_again() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        raw.head().await.unwrap();
        raw.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno").await;
        raw.read_rest().await;
    })
    .await;
    let mut client = world.client().await;
    client.send(world.head(app.port, "POST /", "content-length: 100000\r\n") + "x").await;
    let answer = client.message().await.unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "no"));
    let answer = world.ask(app.port, "GET /", "").await;
    assert_eq!(answer.status(), 413);
    drop(client);
    world.gateway.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_are_never_mixed_up() {
    let world = Arc::new(World::start().await);
    let app = Arc::new(app(|_, _, request| ok(&format!("{} {}", request.start, request.text()))).await);
    let mut users = JoinSet::new();
    for user in 0..8 {
        let (world, app) = (world.clone(), app.clone());
        users.spawn(async move {
            let mut client = world.client().await;
            for number in 0..25 {
                let body = format!("{user}-{number}").repeat(number * 40 + 1);
                let head = format!("content-length: {}\r\n", body.len());
                client.send(world.head(app.port, &format!("POST /{user}/{number}"), &head) + &body).await;
                let answer = client.message().await.unwrap();
                assert_eq!(answer.text(), format!("POST /{user}/{number} HTTP/1.1 {body}"));
            }
        });
    }
    while let Some(user) = users.join_next().await {
        user.unwrap();
    }
    assert_eq!(app.seen.requests().len(), 200);
    assert!(app.seen.connections() <= 16, "{} connections for 8 users", app.seen.connections());
    world.gateway.assert_quiet().await;
}
