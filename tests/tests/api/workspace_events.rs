//! Server-sent events: what is told when, to whom, for how long.

use std::time::Duration;

use e2e::raw::{Message, Raw};
use e2e::stopwatch::Stopwatch;
use e2e::until;
use gateway_store::wall_clock;
use gateway_types::ActualState;
use serde_json::Value;
use tokio::time::Instant;
use tunnel_proto::reconcile::Blocker;

use super::support::{As, World, code};
use super::workspaces::{make, world};

/// Somebody who listens.
pub(super) struct Listener {
    raw: Raw,
    head: Message,
    unread: String,
}

/// One event.
#[derive(Debug)]
struct Told {
    name: String,
    id: String,
    data: Value,
}

impl Listener {
    pub(super) async fn start(world: &World, name: &str, who: &As, more: &str) -> Self {
        let who = match who {
            As::Token(token) => format!("authorization: Bearer {token}\r\n"),
            As::Cookie(cookie, site) => format!("cookie: {cookie}\r\n{site}"),
            As::Nobody => String::new(),
        };
        let mut raw = Raw::connect(world.gateway.addresses.public).await;
        let (target, host) = (format!("/api/v1/workspaces/{name}/events"), world.public());
        raw.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{who}{more}\r\n")).await;
        let head = raw.head().await.expect("an answer");
        Self { raw, head, unread: String::new() }
    }

    pub(super) fn status(&self) -> u16 {
        self.head.status()
    }

    /// Reads one chunk of the body; false at its end.
    async fn read(&mut self) -> bool {
        let length = usize::from_str_radix(&self.raw.line().await, 16).expect("the size of a chunk");
        let bytes = self.raw.exactly(length).await;
        assert_eq!(self.raw.line().await, "");
        self.unread.push_str(std::str::from_utf8(&bytes).expect("text"));
        length > 0
    }

    /// Reads the next block of lines; `None` at the end.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let block = block.to_owned();
                self.unread = rest.to_owned();
                return Some(block);
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// Reads the next event; `None` at the end.
    async fn next(&mut self) -> Option<Told> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| block.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
            if let (Some(name), Some(id), Some(data)) = (field("event:"), field("id:"), field("data:")) {
                return Some(Told { name, id, data: serde_json::from_str(&data).expect("JSON") });
            }
        }
    }

    async fn expect(&mut self, name: &str) -> Told {
        let told = self.next().await.expect("an event");
        assert_eq!(told.name, name, "{told:?}");
        told
    }
}

#[tokio::test]
async fn state_is_told_at_once_and_then_every_change_until_the_end() {
    let world = world().await;
    make(&world, "app").await;
    let mut listener = Listener::start(&world, "app", &world.dev(), "").await;
    assert_eq!((listener.head.status(), listener.head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(listener.head.header("cache-control"), Some("no-store, no-transform"));
    assert!(listener.head.header("gateway-trace").is_some());
    let first = listener.expect("state").await;
    assert_eq!((&first.data["actual"], &first.data["connected"]), (&"CreationRequested".into(), &false.into()));
    assert_eq!(first.id, first.data["revision"].to_string());

    world.gateway.observe("app", ActualState::Failed, Some("ImagePullBackOff: no such image"), &[]).await;
    assert_eq!(listener.expect("state").await.data["actual"], "Failed");
    let failure = listener.expect("failure").await;
    assert_eq!(failure.data["reason"], "ImagePullBackOff: no such image");
    world.json("PATCH", "/workspaces/app", &world.dev(), r#"{"desired_state":"Running"}"#, 200).await;
    let asked = listener.expect("state").await;
    assert_eq!((&asked.data["generation"], &asked.data["reason"]), (&2.into(), &Value::Null));
    listener.expect("failure").await;
    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    assert_eq!(listener.expect("state").await.data["actual"], "Running");

    world.json("DELETE", "/workspaces/app", &world.dev(), "", 202).await;
    assert_eq!(listener.expect("state").await.data["desired"], "Terminated");
    let blocker = Blocker { object: "PersistentVolumeClaim app-data".to_owned(), ..Blocker::default() };
    world.gateway.observe("app", ActualState::Terminating, None, &[blocker]).await;
    listener.expect("state").await;
    let progress = listener.expect("progress").await;
    assert_eq!(progress.data["blockers"][0]["object"], "PersistentVolumeClaim app-data");
    world.gateway.observe("app", ActualState::Terminated, None, &[]).await;
    listener.expect("state").await;
    listener.expect("progress").await;
    let end = listener.expect("end").await;
    assert_eq!(end.data["why"], "terminated");
    assert!(listener.next().await.is_none(), "the stream ends");

    let again = Listener::start(&world, "app", &world.dev(), &format!("last-event-id: {}\r\n", end.id)).await;
    assert_eq!(again.head.status(), 204, "a browser that comes again is told to stay away");
    let mut late = Listener::start(&world, "app", &world.dev(), "last-event-id: 1\r\n").await;
    late.expect("state").await;
    late.expect("end").await;
}

#[tokio::test]
async fn agent_that_comes_is_told_although_nothing_of_the_workspace_changed() {
    let world = world().await;
    make(&world, "app").await;
    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    let mut listener = Listener::start(&world, "app", &world.dev(), "").await;
    assert_eq!(listener.expect("state").await.data["connected"], false);
    let _agent = world.gateway.agent("app").await;
    assert_eq!(listener.expect("state").await.data["connected"], true);
}

#[tokio::test]
async fn change_of_another_process_is_told_too() {
    let world = world().await;
    make(&world, "app").await;
    let mut listener = Listener::start(&world, "app", &world.dev(), "").await;
    listener.expect("state").await;
    // As the command line does on the same database: nobody tells this process.
    let found = world.gateway.managed("app").await;
    let next = found.lifecycle.request(gateway_types::DesiredState::Stopped, wall_clock()).unwrap();
    let store = &world.gateway.store;
    assert!(store.swap_lifecycle(found.workspace.id, found.lifecycle.revision, &next).await.unwrap());
    assert_eq!(listener.expect("state").await.data["desired"], "Stopped");
}

#[tokio::test]
async fn workspace_that_is_forgotten_ends_the_stream() {
    let world = world().await;
    make(&world, "app").await;
    let mut listener = Listener::start(&world, "app", &world.dev(), "").await;
    listener.expect("state").await;
    world.json("DELETE", "/workspaces/app", &world.dev(), "", 202).await;
    listener.expect("state").await;
    let found = world.gateway.managed("app").await;
    let over = found.lifecycle.observe(ActualState::Terminated, None, wall_clock());
    let store = &world.gateway.store;
    assert!(store.swap_lifecycle(found.workspace.id, found.lifecycle.revision, &over).await.unwrap());
    world.json("DELETE", "/workspaces/app", &world.dev(), "", 204).await;
    assert_eq!(listener.expect("end").await.data["why"], "forgotten");
    assert!(listener.next().await.is_none());
}

#[tokio::test]
async fn stream_is_cut_within_five_seconds_of_a_revocation() {
    let world = world().await;
    make(&world, "app").await;
    let made = world.json("POST", "/tokens", &world.dev(), r#"{"kind":"user"}"#, 201).await;
    let token = As::Token(made["token"].as_str().unwrap().to_owned());
    let mut listener = Listener::start(&world, "app", &token, "").await;
    let mut other = Listener::start(&world, "app", &world.dev(), "").await;
    listener.expect("state").await;
    other.expect("state").await;
    // On the store, as another replica would: nothing is forgotten here at once.
    let id = made["id"].as_str().unwrap().parse().unwrap();
    let revoked = Stopwatch::start();
    world.gateway.store.revoke_own_token(&"dev".parse().unwrap(), id, wall_clock()).await.unwrap();
    assert!(listener.next().await.is_none());
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());
    world.gateway.observe("app", ActualState::Starting, None, &[]).await;
    other.expect("state").await;
}

#[tokio::test]
async fn one_user_can_have_so_many_streams_and_no_more() {
    let world = world().await;
    make(&world, "app").await;
    let mut open = Vec::new();
    for _ in 0..16 {
        let listener = Listener::start(&world, "app", &world.dev(), "").await;
        assert_eq!(listener.head.status(), 200);
        open.push(listener);
    }
    let refused = Listener::start(&world, "app", &world.dev(), "").await.head;
    assert_eq!((refused.status(), code(&refused)), (429, "too_many_requests"));
    open.pop();
    let again = async || Listener::start(&world, "app", &world.dev(), "").await.head.status() == 200;
    // The connection that was dropped is noticed soon.
    let waited = tokio::time::timeout(e2e::PATIENCE, async { while !again().await {} });
    waited.await.expect("a place becomes free");
}

#[tokio::test]
async fn comment_comes_every_fifteen_seconds() {
    let world = world().await;
    make(&world, "app").await;
    // The first comment is counted from the first event, which comes after this.
    let (began, watch) = (Instant::now(), Stopwatch::start());
    let mut listener = Listener::start(&world, "app", &world.dev(), "").await;
    listener.expect("state").await;
    let block = listener.block().await.expect("something comes");
    assert!(block.starts_with(':'), "{block}");
    assert!(began.elapsed() >= Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(watch.elapsed() < Duration::from_secs(18), "{:?}", watch.elapsed());
}

#[tokio::test]
async fn drain_does_not_wait_for_those_who_listen() {
    let world = world().await;
    make(&world, "app").await;
    let mut listener = Listener::start(&world, "app", &world.dev(), "").await;
    listener.expect("state").await;
    let began = Stopwatch::start();
    world.gateway.begin_stop();
    assert!(listener.next().await.is_none(), "without a word, so that whoever listens comes again");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn head_of_the_events_has_no_body_and_takes_no_place() {
    let world = world().await;
    make(&world, "app").await;
    for _ in 0..20 {
        let answer = world.call("HEAD", "/workspaces/app/events", &world.dev(), "").await;
        assert_eq!((answer.status(), answer.body.len()), (200, 0));
    }
    until("nobody listens", || true).await;
}
