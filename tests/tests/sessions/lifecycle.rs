//! Takeover, restart, shutdown, and what is left after each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use e2e::raw::{Raw, RawApp};
use e2e::{PATIENCE, TestGateway, until};
use gateway_config::StoreUrl;
use tunnel_link::drain::DrainResult;
use workspace_agent::DialEnded;

use crate::raw_agent::{RawAgent, Stage};

/// Connections of this process that have one of these ports at either end; those of other tests do not count.
fn connections(ports: &[u16]) -> usize {
    let mut mine = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if let Ok(target) = std::fs::read_link(entry.path())
            && let Some(inode) = target
                .to_string_lossy()
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']').map(str::to_owned))
        {
            mine.insert(inode);
        }
    }
    let mut count = 0;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for row in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let columns: Vec<&str> = row.split_whitespace().collect();
            let port = |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap(), 16).unwrap();
            let is_listening = columns[3] == "0A";
            let is_ours = [columns[1], columns[2]].iter().any(|address| ports.contains(&port(address)));
            count += usize::from(is_ours && !is_listening && mine.contains(columns[9]));
        }
    }
    count
}

/// Reads one number off the operator's listener.
pub(crate) async fn metric(gateway: &TestGateway, name: &str) -> u64 {
    let mut raw = Raw::connect(gateway.addresses.admin.expect("on")).await;
    raw.send("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
    let text = raw.message().await.expect("an answer").text();
    let line =
        text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

pub(crate) async fn until_metric(gateway: &TestGateway, name: &str, wanted: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = metric(gateway, name).await;
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{name} is {found}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn newest_session_wins_and_the_displaced_one_keeps_its_hands_off() {
    let stage = Stage::new(|_| {}).await;
    let gateway = &stage.gateway;
    let name = "one".parse().unwrap();
    let token = gateway.agent_token("one").await;
    let mut first = gateway.start_agent(&token, Vec::new());
    gateway.until_connected("one").await;
    stage.assert_serves("one").await;
    let silent = RawApp::start(|mut raw| async move {
        raw.read_rest().await;
    })
    .await;
    let mut waiting = stage.asking("one", silent.port).await;
    let old = gateway.registry.current(&name).unwrap();
    until("the request is under way", || old.in_flight() == 1).await;

    let second = gateway.start_agent(&token, Vec::new());
    let ended = first.ended().await;
    assert!(matches!(ended, Err(DialEnded::Displaced)), "{ended:?}");
    let answer = waiting.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")));
    let new = gateway.registry.current(&name).expect("the newer one stays");
    assert!(new.generation() > old.generation());
    until("the old one has left", || old.tunnel.is_ended() && old.in_flight() == 0).await;
    for _ in 0..20 {
        stage.assert_serves("one").await;
    }
    assert_eq!(gateway.registry.current(&name).map(|session| session.id), Some(new.id));
    assert!(!gateway.registry.release(&old), "it was released by the one that was displaced");
    second.stop().await;
    gateway.until_gone("one").await;
    stage.finish().await;
}

#[tokio::test]
async fn two_agents_with_one_token_do_not_fight_for_ever() {
    let stage = Stage::new(|_| {}).await;
    let token = stage.gateway.agent_token("one").await;
    let mut agents: Vec<_> = (0..5).map(|_| stage.gateway.start_agent(&token, Vec::new())).collect();
    // All but one hear that they were displaced, and stop.
    let mut displaced = 0;
    while displaced < 4 {
        let mut left = Vec::new();
        for mut agent in agents {
            match tokio::time::timeout(Duration::from_millis(50), agent.ended()).await {
                Ok(ended) => {
                    assert!(matches!(ended, Err(DialEnded::Displaced)), "{ended:?}");
                    displaced += 1;
                }
                Err(_elapsed) => left.push(agent),
            }
        }
        agents = left;
    }
    assert_eq!(agents.len(), 1);
    stage.gateway.until_connected("one").await;
    stage.assert_serves("one").await;
    for agent in agents {
        agent.stop().await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn killed_agent_is_noticed_at_once_and_its_successor_serves() {
    let stage = Stage::new(|_| {}).await;
    let name = "one".parse().unwrap();
    for _ in 0..5 {
        let agent = stage.gateway.agent("one").await;
        stage.assert_serves("one").await;
        let session = stage.gateway.registry.current(&name).expect("connected");
        agent.kill();
        until("the loss of the link is noticed", || session.tunnel.is_detached()).await;
        assert_eq!(
            stage.gateway.registry.current(&name).map(|current| current.id),
            Some(session.id),
            "it may come back"
        );
    }
    let agent = stage.gateway.agent("one").await;
    stage.assert_serves("one").await;
    agent.stop().await;
    stage.finish().await;
}

#[tokio::test]
async fn session_without_a_grace_ends_with_its_link() {
    let stage = Stage::new(|config| config.tunnel.resume_grace = Duration::ZERO).await;
    let silent = RawApp::start(|mut raw| async move {
        raw.read_rest().await;
    })
    .await;
    let name = "one".parse().unwrap();
    for _ in 0..3 {
        let agent = stage.gateway.agent("one").await;
        let mut waiting = stage.asking("one", silent.port).await;
        let session = stage.gateway.registry.current(&name).expect("connected");
        until("the request is under way", || session.in_flight() == 1).await;
        agent.kill();
        let answer = waiting.message().await.expect("an answer");
        assert_eq!((answer.status(), answer.header("gateway-error")), (502, Some("session_lost")));
        stage.gateway.until_gone("one").await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn agent_finds_the_gateway_again_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("gateway-restart-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("gateway.db");
    let first = TestGateway::start_with(|config| config.store.url = StoreUrl::SqliteFile(file.clone())).await;
    let agent = first.agent("one").await;
    let old = first.registry.current(&"one".parse().unwrap()).unwrap().generation();
    let addresses = first.addresses;
    assert_eq!(first.stop().await, DrainResult::Clean);

    let second = TestGateway::start_with(|config| {
        config.store.url = StoreUrl::SqliteFile(file.clone());
        config.listen.agents = addresses.agents;
    })
    .await;
    second.until_connected("one").await;
    let new = second.registry.current(&"one".parse().unwrap()).unwrap().generation();
    assert!(new > old, "generations went back");
    let app = RawApp::mirror().await;
    let mut raw = Raw::connect(second.addresses.public).await;
    let authority = second.authority("one", app.port);
    raw.send(format!(
        "GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {}\r\n\r\n",
        second.user_token
    ))
    .await;
    assert_eq!(raw.message().await.expect("an answer").status(), 200);
    agent.stop().await;
    second.stop().await;
    std::fs::remove_dir_all(&folder).unwrap();
}

async fn stream(stage: &Stage, workspace: &str, app: &RawApp) -> Raw {
    let mut raw = Raw::connect(stage.gateway.addresses.public).await;
    let head = stage.get(workspace, app.port);
    raw.send(head.replacen("\r\n\r\n", "\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n", 1)).await;
    assert_eq!(raw.head().await.expect("a head").status(), 101);
    raw.send("hello").await;
    assert_eq!(raw.exactly(5).await, b"hello");
    raw
}

/// An app that answers when it is told to.
async fn patient_app() -> (RawApp, tokio::sync::watch::Sender<bool>) {
    let (go, gone) = tokio::sync::watch::channel(false);
    let app = RawApp::start(move |mut raw| {
        let mut gone = gone.clone();
        async move {
            raw.head().await;
            gone.wait_for(|go| *go).await.ok();
            raw.try_send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").await.ok();
            raw.read_rest().await;
        }
    })
    .await;
    (app, go)
}

#[tokio::test]
async fn drain_lets_requests_finish_and_is_over_with_the_last_one() {
    let stage = Stage::new(|config| config.timeouts.drain = Duration::from_secs(15)).await;
    let (app, go) = patient_app().await;
    let mut waiting = stage.asking("bystander", app.port).await;
    let session = stage.gateway.registry.all().remove(0);
    until("the request is under way", || session.in_flight() == 1).await;
    let idle = Raw::connect(stage.gateway.addresses.public).await;
    let started = Instant::now();
    stage.gateway.begin_drain().await;
    go.send(true).unwrap();
    let answer = waiting.message().await.expect("an answer");
    assert_eq!((answer.status(), answer.text()), (200, "late".to_owned()));
    assert!(waiting.read_rest().await.is_empty());
    drop(idle);
    let Stage { gateway, .. } = stage;
    assert_eq!(gateway.stop().await, DrainResult::Clean);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[tokio::test]
async fn drain_cuts_streams_at_its_deadline_and_counts_them() {
    // What goes on until then has to be through by then.
    let deadline = Duration::from_secs(3);
    let stage = Stage::new(|config| config.timeouts.drain = deadline).await;
    let echo = RawApp::echo().await;
    let mut open = stream(&stage, "bystander", &echo).await;
    let (app, go) = patient_app().await;
    let mut waiting = stage.asking("bystander", app.port).await;
    let session = stage.gateway.registry.all().remove(0);
    until("both are under way", || session.in_flight() == 2).await;
    let started = Instant::now();
    stage.gateway.begin_drain().await;
    // What is under way goes on until then.
    open.send("still").await;
    assert_eq!(open.exactly(5).await, b"still");
    go.send(true).unwrap();
    assert_eq!(waiting.message().await.expect("an answer").text(), "late");
    assert!(open.read_rest().await.is_empty());
    let took = started.elapsed();
    assert!(took >= deadline / 2 && took < deadline * 4, "cut after {took:?}");
    let Stage { gateway, .. } = stage;
    assert_eq!(gateway.stop().await, DrainResult::Cut(1));
}

#[tokio::test]
async fn drain_cuts_a_head_that_never_ends() {
    let deadline = Duration::from_millis(500);
    let stage = Stage::new(|config| config.timeouts.drain = deadline).await;
    let mut halting = Raw::connect(stage.gateway.addresses.public).await;
    halting.send("GET / HTTP/1.1\r\n").await;
    // An answer on another connection: by then this head has had its turn too.
    stage.assert_serves("bystander").await;
    let started = Instant::now();
    let Stage { gateway, .. } = stage;
    assert_eq!(gateway.stop().await, DrainResult::Cut(1));
    assert!(started.elapsed() >= deadline, "{:?}", started.elapsed());
    assert!(halting.read_rest().await.is_empty());
}

#[tokio::test]
async fn nothing_is_left_after_a_life_of_everything() {
    let stage = Stage::new(|_| {}).await;
    let gateway = &stage.gateway;
    let ports = [gateway.addresses.public.port(), gateway.addresses.agents.port(), stage.app.port];
    // The bystander's link, and its session.
    until_metric(gateway, "gateway_tasks", 2).await;
    let before = connections(&ports);
    assert_eq!(before, 2, "both ends of the link");

    let agent = gateway.agent("one").await;
    let endless = RawApp::start(|mut raw| async move {
        raw.head().await;
        raw.try_send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.ok();
        while raw.try_send("1\r\nx\r\n").await.is_ok() {}
    })
    .await;
    let echo = RawApp::echo().await;
    for round in 0..10 {
        stage.assert_serves("one").await;
        // Downloads that are left, closed and reset.
        let mut download = stage.asking("one", endless.port).await;
        assert_eq!(download.head().await.expect("a head").status(), 200);
        if round % 2 == 0 {
            download.socket().set_zero_linger().unwrap();
        }
        drop(download);
        drop(stream(&stage, "one", &echo).await);
        // A request that nobody waits for, and an agent that breaks off.
        drop(stage.asking("one", endless.port).await);
        let broken = RawAgent::attach(gateway, "broken").await;
        drop(stage.asking("broken", 4000).await);
        drop(broken);
    }
    agent.stop().await;
    until("only the bystander is left", || gateway.registry.len() == 1).await;
    gateway.assert_empty().await;
    until_metric(gateway, "gateway_tasks", 2).await;
    assert_eq!(metric(gateway, "gateway_channels").await, 0);
    assert_eq!(metric(gateway, "gateway_tunnel_window_bytes").await, 0);
    until_metric(gateway, "gateway_upstream_idle_connections", 0).await;
    until("no connection is left", || connections(&ports) == before).await;
    let apps = [endless.port, echo.port];
    until("no connection to an app is left", || connections(&apps) == 0).await;
    stage.finish().await;
}

#[tokio::test]
async fn stopped_gateway_leaves_no_connection() {
    let stage = Stage::new(|_| {}).await;
    let ports = [stage.gateway.addresses.public.port(), stage.gateway.addresses.agents.port(), stage.app.port];
    stage.assert_serves("bystander").await;
    let idle = Raw::connect(stage.gateway.addresses.public).await;
    let Stage { gateway, app, .. } = stage;
    assert_eq!(gateway.stop().await, DrainResult::Clean);
    drop((idle, app));
    until("no connection is left", || connections(&ports) == 0).await;
}
