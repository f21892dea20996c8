//! Answers that nobody asked for never reach another principal, however late they come: the body behind an answer to HEAD, and a
//! whole answer too many.
//!
//! `RACE_REQUESTS` says how many requests of users are asked, if not as many as fit between other tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use tokio::task::JoinSet;

use super::support::{Http2, World};

const REQUESTS: usize = 2_000;

/// How late what nobody asked for comes, in milliseconds.
const LATE: [u64; 4] = [0, 1, 5, 50];

/// What a stranger's request has the app send to whoever is next on the connection.
const STRAY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray";

/// An app that says back the path that it was asked for. `/stray/MS` is followed by an answer too many, and HEAD by a body that
/// looks like one, so many milliseconds later.
async fn careless() -> RawApp {
    RawApp::start(|mut raw| async move {
        while let Some(request) = raw.message().await {
            let mut words = request.start.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let body = if method == "HEAD" { "" } else { path };
            let length = if method == "HEAD" { STRAY.len() } else { path.len() };
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            if raw.try_send(answer).await.is_err() {
                return;
            }
            if let Some(late) = path.strip_prefix("/stray/").and_then(|late| late.parse().ok()) {
                tokio::time::sleep(Duration::from_millis(late)).await;
                if raw.try_send(STRAY).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

/// A connection of a client, over either version of HTTP.
enum Client {
    Http1(Raw),
    Http2(Http2),
}

/// One principal, and how it asks.
struct Visitor {
    world: Arc<World>,
    client: Client,
    token: Option<String>,
    port: u16,
}

impl Visitor {
    async fn new(world: &Arc<World>, over_http2: bool, token: Option<&str>, port: u16) -> Self {
        let client = if over_http2 { Client::Http2(world.http2().await) } else { Client::Http1(world.client().await) };
        Self { world: world.clone(), client, token: token.map(str::to_owned), port }
    }

    /// Asks, and returns status and body.
    async fn ask(&mut self, method: &str, path: &str) -> (u16, String) {
        let token = self.token.as_deref();
        match &mut self.client {
            Client::Http1(raw) => {
                let request = self.world.get_as(token, self.port, path).replacen("GET", method, 1);
                raw.send(request).await;
                let answer = if method == "HEAD" { raw.head().await } else { raw.message().await };
                let answer = answer.expect("an answer");
                (answer.status(), answer.text())
            }
            Client::Http2(http2) => {
                let mut request = self.world.http2_get_as(token, self.port, path);
                *request.method_mut() = method.parse().unwrap();
                let answer = http2.ask(request).await;
                (answer.status.as_u16(), answer.text())
            }
        }
    }
}

#[expect(clippy::print_stderr, reason = "the figures of a long run, shown with --nocapture")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stray_answers_reach_no_other_principal() {
    let requests = std::env::var("RACE_REQUESTS").ok().map_or(REQUESTS, |count| count.parse().expect("a number"));
    let change = |config: &mut gateway_config::Config| {
        config.limits.requests_per_second_per_address = 1_000_000;
        config.limits.requests_per_second_per_user = 1_000_000;
        config.limits.connections_per_second_per_address = 1_000_000;
    };
    let world = Arc::new(World::configured(change, Vec::new()).await);
    let app = careless().await;
    let bob = world.other_user(app.port, "bob").await;
    let eve = world.other_user(app.port, "eve").await;
    world.gateway.publish("one", app.port).await;
    let dev = world.gateway.user_token.clone();

    let is_over = Arc::new(AtomicBool::new(false));
    let strays = Arc::new(AtomicUsize::new(0));
    let mut attackers = JoinSet::new();
    for (place, late) in LATE.into_iter().enumerate() {
        for token in [None, Some(eve.as_str())] {
            let mut eve = Visitor::new(&world, place % 2 == 1, token, app.port).await;
            let (is_over, strays) = (is_over.clone(), strays.clone());
            attackers.spawn(async move {
                let path = format!("/stray/{late}");
                while !is_over.load(Ordering::Relaxed) {
                    for method in ["GET", "HEAD"] {
                        eve.ask(method, &path).await;
                        strays.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let mut users = JoinSet::new();
    for (place, token) in [None, Some(&dev), None, Some(&bob)].into_iter().enumerate() {
        for over_http2 in [false, true] {
            let mut user = Visitor::new(&world, over_http2, token.map(String::as_str), app.port).await;
            let asked = asked.clone();
            users.spawn(async move {
                let (mut wrong, mut first) = (0_usize, None);
                loop {
                    let number = asked.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return (wrong, first);
                    }
                    let path = format!("/{place}/{over_http2}/{number}");
                    let answer = user.ask("GET", &path).await;
                    if answer != (200, path.clone()) {
                        wrong += 1;
                        first.get_or_insert((path, answer));
                    }
                }
            });
        }
    }
    let (mut wrong, mut firsts) = (0, Vec::new());
    while let Some(ended) = users.join_next().await {
        let (of_user, first) = ended.unwrap();
        wrong += of_user;
        firsts.extend(first);
    }
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = attackers.join_next().await {
        ended.unwrap();
    }
    let strays = strays.load(Ordering::Relaxed);
    eprintln!(
        "race: {wrong} of {requests} requests got an answer that was not theirs, beside {strays} answers beyond those asked for"
    );
    assert_eq!(wrong, 0, "of {requests}, beside {strays} strays: {firsts:?}");
    assert!(strays > 0);
}
