//! The address of a workspace without a port: the ports that there are, for those who may know of the workspace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::raw::{Message, Raw};
use e2e::scripted::{ScriptedAgent, hello};
use e2e::{TestGateway, until};
use gateway_store::wall_clock;
use gateway_types::{Audience, Port, Share};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tunnel_proto::listening::{LISTENING_MAX, LISTENING_PORT, Listening};

use super::support::{VISIT, World, app, ok};

async fn ask(gateway: &TestGateway, workspace: &str, start: &str, token: &str, fields: &str) -> Message {
    let host = format!("{workspace}.localhost:{}", gateway.addresses.public.port());
    let mut client = Raw::connect(gateway.addresses.public).await;
    let token = format!("gateway-authorization: Bearer {token}\r\n");
    client.send(format!("{start} HTTP/1.1\r\nhost: {host}\r\n{token}{fields}\r\n")).await;
    client.message().await.expect("an answer")
}

/// Attaches an agent that says which ports listen.
pub(super) async fn attach(gateway: &TestGateway, workspace: &str) -> ScriptedAgent {
    let token = gateway.agent_token(workspace).await;
    let mut hello = hello();
    hello.features.push("listening".to_owned());
    let scripted = ScriptedAgent::dial(gateway, &token, hello).await.expect("a welcome");
    gateway.until_connected(workspace).await;
    scripted
}

/// Answers the question for ports with `bytes`, for as long as it lives, and opens no port. Returns how often it was asked.
pub(super) fn answering(agent: ScriptedAgent, bytes: Vec<u8>) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let mut task = JoinSet::new();
    task.spawn(async move {
        // All of it, with the tasks that carry its session.
        let agent = agent;
        while let Some(incoming) = agent.session.accept().await {
            if incoming.port != LISTENING_PORT {
                continue;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let mut channel = incoming.accept();
            // The gateway may stop reading before all is said.
            drop(channel.write_all(&bytes).await);
            drop(channel.shutdown().await);
            // Until the gateway is through with it: a channel that is dropped before is reset.
            drop(channel.read_to_end(&mut Vec::new()).await);
        }
    });
    (task, asked)
}

#[tokio::test]
async fn owner_sees_the_ports_that_listen_and_programs_get_them_with_the_failure() {
    let gateway = TestGateway::start().await;
    let (_agent, asked) =
        answering(attach(&gateway, "one").await, Listening::of_ports([3000, 60_001]).encode().to_vec());
    let page = ask(&gateway, "one", "GET /any/path", &gateway.user_token, VISIT).await;
    let link = format!("<a href=\"http://{}/\">port 3000</a>", gateway.authority("one", 3000));
    assert_eq!((page.status(), page.header("gateway-error")), (200, None), "{page:?}");
    assert!(page.text().contains(&link) && page.text().contains("editor"), "{}", page.text());
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    for start in ["GET /", "POST /"] {
        let answer = ask(&gateway, "one", start, &gateway.user_token, "").await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (404, Some("no_such_host")), "{start}");
        let problem: serde_json::Value = serde_json::from_str(&answer.text()).expect("a problem");
        assert_eq!(problem["reason"], "no_default_port");
        assert_eq!(problem["ports"][0]["port"], 3000, "{problem}");
        assert_eq!(problem["ports"][0]["listens"], true, "{problem}");
    }
    assert!(asked.load(Ordering::SeqCst) >= 1);
    // Pages that are opened often do not make the agent say it as often.
    for _ in 0..50 {
        ask(&gateway, "one", "GET /", &gateway.user_token, VISIT).await;
    }
    assert!(asked.load(Ordering::SeqCst) < 50, "{asked:?}");
    gateway.assert_quiet().await;
}

#[tokio::test]
async fn others_see_what_is_shared_with_them_and_strangers_see_no_workspace() {
    let gateway = TestGateway::start().await;
    let (_agent, _) =
        answering(attach(&gateway, "one").await, Listening::of_ports([3000, 4000, 5000]).encode().to_vec());
    let token = async |user: &str| {
        let made = gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
        made.token.reveal().to_owned()
    };
    let (bob, eve) = (token("bob").await, token("eve").await);
    let share = |port, audience| Share { port: Port::new(port).unwrap(), audience, expires_at: None };
    let (name, dev) = ("one".parse().unwrap(), "dev".parse().unwrap());
    for share in [share(3000, Audience::User("bob".parse().unwrap())), share(4000, Audience::Public)] {
        assert!(gateway.store.share(&name, &share, &dev, wall_clock()).await.unwrap());
    }
    let page = ask(&gateway, "one", "GET /", &bob, VISIT).await.text();
    assert!(page.contains("port 3000</a>"), "{page}");
    assert!(!page.contains("port 5000"), "it listens, and is not shared: {page}");
    assert!(!page.contains("PORT-one"), "the pattern is for those who may open any port");
    // A public port tells no stranger that there is the workspace.
    let without = |message: Message| (message.status(), message.text().split("trace_id").next().map(str::to_owned));
    for fields in [VISIT, ""] {
        let there = ask(&gateway, "one", "GET /", &eve, fields).await;
        let nowhere = ask(&gateway, "none-such", "GET /", &eve, fields).await;
        assert_eq!((there.status(), nowhere.status()), (404, 404));
        if fields.is_empty() {
            assert_eq!(without(there), without(nowhere));
        }
    }
    for fields in [VISIT, ""] {
        let there = ask(&gateway, "one", "GET /", "none", fields).await;
        let nowhere = ask(&gateway, "none-such", "GET /", "none", fields).await;
        assert_eq!(there.status(), nowhere.status(), "{fields}");
        assert_ne!(there.status(), 200);
    }
}

#[tokio::test]
async fn whatever_an_agent_says_of_its_ports_the_page_is_there_and_bounded() {
    let gateway = TestGateway::start().await;
    for (name, bytes) in [("much", vec![0x0a; 1 << 20]), ("junk", b"HTTP/1.1 200 OK".to_vec()), ("nothing", Vec::new())]
    {
        let (_agent, asked) = answering(attach(&gateway, name).await, bytes);
        let page = ask(&gateway, name, "GET /", &gateway.user_token, VISIT).await;
        assert_eq!(page.status(), 200, "{name}");
        assert!(!page.text().contains("<li>"), "{name}: {}", page.text());
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{name}");
    }
    let (_agent, _) = answering(attach(&gateway, "all").await, Listening::of_ports(1..=u16::MAX).encode().to_vec());
    let page = ask(&gateway, "all", "GET /", &gateway.user_token, VISIT).await;
    assert_eq!(page.text().matches("<li>").count(), LISTENING_MAX);
    // One that never answers delays the page by a bounded time.
    let silent = attach(&gateway, "silent").await;
    let page = ask(&gateway, "silent", "GET /", &gateway.user_token, VISIT).await;
    assert_eq!(page.status(), 200);
    drop(silent);
}

#[tokio::test]
async fn agent_of_an_earlier_version_is_not_asked() {
    let gateway = TestGateway::start().await;
    let token = gateway.agent_token("old").await;
    let mut old = hello();
    old.features.retain(|feature| feature != "listening");
    let agent = ScriptedAgent::dial(&gateway, &token, old).await.expect("a welcome");
    gateway.until_connected("old").await;
    let page = ask(&gateway, "old", "GET /", &gateway.user_token, VISIT).await;
    assert_eq!(page.status(), 200);
    assert!(
        page.text().contains(&format!("PORT-old.localhost:{}", gateway.addresses.public.port())),
        "{}",
        page.text()
    );
    let session = gateway.registry.current(&"old".parse().unwrap()).expect("a session");
    assert_eq!(session.tunnel.stats().channels_opened, 0);
    drop(agent);
}

#[tokio::test]
async fn real_agent_says_what_listens_now() {
    let world = World::start().await;
    let session = world.gateway.registry.current(&"one".parse().unwrap()).expect("a session");
    let app = app(|_, _, _| ok("")).await;
    let port = Port::new(app.port).unwrap();
    let ports = session.listening().await.expect("it says");
    // On a machine with very many listeners only the lowest are said.
    assert!(ports.contains(&port) || ports.len() == LISTENING_MAX, "{ports:?}");
    until("nothing of the question is left", || world.channels() == 0).await;
}
