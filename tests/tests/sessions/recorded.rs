//! Version N, the release before this one, in recorded conversations: its agent against today's gateway, and its gateway
//! against today's agent. `tests/recorded/N/` has what real programs said to each other; `recorded_recorder.rs` records it.

use std::net::SocketAddr;
use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use e2e::{PATIENCE, TestAgent, TestGateway};
use tunnel_link::drain::DrainResult;
use workspace_agent::{DialEnded, Gateway, Transport};

use crate::raw_agent::RawAgent;
use crate::raw_gateway::RawGateway;
use crate::recorded_fields::{Fields, OPEN, OPEN_PORT};
use crate::recorded_lines::{Line, Speaker, read};
use crate::recorded_player::{Link, Player};

/// Name of the recorded workspace.
pub(crate) const WORKSPACE: &str = "recorded";

/// Recorded conversations.
pub(crate) const REQUEST: &str = "request";
pub(crate) const STREAM: &str = "stream";
pub(crate) const BULK: &str = "bulk";
pub(crate) const RESUMED: &str = "resumed";
pub(crate) const DRAINED: &str = "drained";
pub(crate) const REFUSED: &str = "refused";

/// A user of the workspace, in recordings and when they are played.
pub(crate) struct User {
    pub(crate) public: SocketAddr,
    pub(crate) token: String,
    /// Port of the app in the workspace.
    pub(crate) port: u16,
}

/// A stream of a user to the app `echo`.
pub(crate) struct Stream(Raw);

impl User {
    fn of(gateway: &TestGateway, port: u16) -> Self {
        Self { public: gateway.addresses.public, token: gateway.user_token.clone(), port }
    }

    /// Asks again and again until there is an agent; the raw connection has everything behind the head.
    async fn ask(&self, fields: &str) -> (u16, Raw) {
        let authority = format!("{}-{WORKSPACE}.localhost:{}", self.port, self.public.port());
        let head = format!(
            "GET /asked HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {}\r\n{fields}\r\n",
            self.token
        );
        let asked = async {
            loop {
                let mut raw = Raw::connect(self.public).await;
                raw.send(&head).await;
                let answer = raw.head().await.expect("an answer");
                if answer.header("gateway-error") != Some("agent_absent") {
                    return (answer.status(), raw);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the agent comes")
    }

    /// Makes one request, which the app answers by its head.
    pub(crate) async fn request(&self) {
        let (status, mut raw) = self.ask("connection: close\r\n").await;
        assert_eq!(status, 200);
        let answer = String::from_utf8(raw.read_rest().await).unwrap();
        assert!(answer.starts_with("GET /asked HTTP/1.1\n"), "{answer}");
    }

    /// Switches to the protocol of the app `echo`.
    pub(crate) async fn stream(&self) -> Stream {
        let (status, raw) = self.ask("connection: upgrade\r\nupgrade: echo\r\n").await;
        assert_eq!(status, 101);
        Stream(raw)
    }
}

impl Stream {
    /// Says a word and hears it.
    pub(crate) async fn say(&mut self, word: &str) {
        self.0.send(word).await;
        assert_eq!(self.0.exactly(word.len()).await, word.as_bytes());
    }
}

/// Answers one request with its own head, and closes.
pub(crate) async fn answering_app() -> RawApp {
    RawApp::start(|mut raw| async move {
        let Some(request) = raw.head().await else { return };
        let text = format!("{}\n", request.start);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
        raw.try_send(head + &text).await.ok();
    })
    .await
}

/// Words of the conversation `stream`, and of `resumed`, whose links break with two of them.
pub(crate) async fn words(user: &User) {
    let mut stream = user.stream().await;
    for word in ["first", "second", "third", "fourth"] {
        stream.say(word).await;
    }
}

/// More bytes than a channel's first window, both ways: the conversation `bulk`.
pub(crate) async fn bulk(user: &User) {
    user.stream().await.say(&"x".repeat(400 * 1024)).await;
}

/// Returns the port of the recorded app.
fn port(lines: &[Line]) -> u16 {
    let said = lines.iter().filter_map(|line| match line {
        Line::Said(Speaker::Gateway, message) => Some(Fields::read(message.clone()).message(OPEN).number(OPEN_PORT)),
        _ => None,
    });
    said.filter(|port| *port > 0).map(|port| u16::try_from(port).unwrap()).next().expect("a channel was opened")
}

async fn link_to(gateway: &TestGateway, token: &str) -> Link {
    Link::OfAgent(Box::new(RawAgent::open(gateway, Some(&format!("Bearer {token}"))).await))
}

/// Plays the recorded agent against today's gateway, while a user does what the recorded one did.
async fn play_agent(name: &str, user: impl AsyncFnOnce(&User)) {
    let gateway = TestGateway::start_tidy(|_| {}).await;
    let token = gateway.agent_token(WORKSPACE).await;
    let lines = read(name);
    let asking = User::of(&gateway, port(&lines));
    let mut player = Player::new(lines, Speaker::Agent);
    let links = async {
        while player.goes_on() {
            player.play(link_to(&gateway, &token).await).await;
        }
    };
    tokio::join!(links, user(&asking));
    gateway.until_gone(WORKSPACE).await;
    gateway.assert_empty().await;
    gateway.stop().await;
}

/// Plays the recorded gateway against today's agent. Returns the end of an agent that the recording did not stop.
async fn play_gateway(name: &str, app: RawApp) -> Option<TestAgent> {
    let door = RawGateway::start().await;
    let dialed = Gateway::parse(&format!("http://{}", door.address), None).expect("an address");
    let mut player = Player::new(read(name), Speaker::Gateway);
    player.port = u64::from(app.port);
    player.agent = Some(TestAgent::start(dialed, Transport::default(), "a token", Vec::new()));
    while player.goes_on() {
        player.play(Link::OfGateway(Box::new(door.accept().await))).await;
    }
    player.agent
}

#[tokio::test]
async fn agent_of_n_has_a_request_answered() {
    play_agent(REQUEST, async |user| user.request().await).await;
}

#[tokio::test]
async fn agent_of_n_carries_a_stream() {
    play_agent(STREAM, words).await;
}

#[tokio::test]
async fn agent_of_n_gives_and_uses_credit() {
    play_agent(BULK, bulk).await;
}

#[tokio::test]
async fn agent_of_n_resumes_with_what_was_lost_each_way() {
    play_agent(RESUMED, words).await;
}

#[tokio::test]
async fn agent_of_n_is_drained_and_returns() {
    let config = |config: &mut gateway_config::Config| config.timeouts.drain = PATIENCE;
    let (first, second) = (TestGateway::start_with(config).await, TestGateway::start_with(config).await);
    let tokens = (first.agent_token(WORKSPACE).await, second.agent_token(WORKSPACE).await);
    let lines = read(DRAINED);
    let users = (User::of(&first, port(&lines)), User::of(&second, port(&lines)));
    let mut player = Player::new(lines, Speaker::Agent);
    let before = async {
        let mut stream = users.0.stream().await;
        stream.say("first").await;
        first.begin_drain().await;
        stream.say("second").await;
    };
    tokio::join!(player.play(link_to(&first, &tokens.0).await), before);
    assert_eq!(first.stop().await, DrainResult::Clean);
    let after = async { users.1.stream().await.say("third").await };
    tokio::join!(player.play(link_to(&second, &tokens.1).await), after);
    assert!(!player.goes_on());
    second.until_gone(WORKSPACE).await;
    second.stop().await;
}

#[tokio::test]
async fn agent_of_n_is_refused_by_the_same_status() {
    let gateway = TestGateway::start().await;
    let mut player = Player::new(read(REFUSED), Speaker::Agent);
    player.play(link_to(&gateway, "wrong").await).await;
    gateway.stop().await;
}

#[tokio::test]
async fn gateway_of_n_has_a_request_answered() {
    assert!(play_gateway(REQUEST, answering_app().await).await.is_none());
}

#[tokio::test]
async fn gateway_of_n_carries_a_stream() {
    assert!(play_gateway(STREAM, RawApp::echo().await).await.is_none());
}

#[tokio::test]
async fn gateway_of_n_gives_and_uses_credit() {
    assert!(play_gateway(BULK, RawApp::echo().await).await.is_none());
}

#[tokio::test]
async fn gateway_of_n_resumes_with_what_was_lost_each_way() {
    assert!(play_gateway(RESUMED, RawApp::echo().await).await.is_none());
}

#[tokio::test]
async fn gateway_of_n_drains_and_the_agent_returns() {
    assert!(play_gateway(DRAINED, RawApp::echo().await).await.is_none());
}

#[tokio::test]
async fn gateway_of_n_refuses_and_the_agent_ends_with_its_words() {
    let mut agent = play_gateway(REFUSED, RawApp::echo().await).await.expect("not stopped");
    let Some(Line::Refused(_, words)) = read(REFUSED).pop() else { panic!("no refusal") };
    match agent.ended().await {
        Err(DialEnded::Refused { message } | DialEnded::Revoked { message }) => assert_eq!(message, words),
        other => panic!("{other:?}"),
    }
}
