//! Terminals behind the gateway: who types, who only looks, and whose page it has to be.

use e2e::browser::Browser;
use e2e::raw::{Message, Raw, RawApp};
use e2e::{TestAgent, TestGateway};
use futures_util::{SinkExt as _, StreamExt as _};
use gateway_store::wall_clock;
use gateway_types::{Port, Share};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};
use tunnel_proto::hello::{AppProtocol, HostMode, Port as NamedPort};

use super::support::soon;

const TERMINAL: u16 = 60_002;
const SIZE: &str = r#"{"columns":80,"rows":24}"#;

struct World {
    gateway: TestGateway,
    _agent: TestAgent,
}

impl World {
    async fn start() -> Self {
        Self::exposing(Vec::new()).await
    }

    async fn exposing(ports: Vec<NamedPort>) -> Self {
        let gateway = TestGateway::start().await;
        let agent = gateway.agent_with_terminals("one", ports).await;
        Self { gateway, _agent: agent }
    }

    fn authority(&self) -> String {
        self.gateway.authority("one", TERMINAL)
    }

    fn dev(&self) -> String {
        format!("gateway-authorization: Bearer {}\r\n", self.gateway.user_token)
    }

    /// Shares the terminal with somebody and returns what proves who they are.
    async fn shared_with(&self, user: &str) -> String {
        let share = self.share(&format!("user:{user}"));
        let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
        assert!(self.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
        let token = self.gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
        format!("gateway-authorization: Bearer {}\r\n", token.token.reveal())
    }

    fn share(&self, audience: &str) -> Share {
        Share { port: Port::new(TERMINAL).unwrap(), audience: audience.parse().unwrap(), expires_at: None }
    }

    async fn ask(&self, start: &str, fields: &str, body: &str) -> Message {
        let mut client = Raw::connect(self.gateway.addresses.public).await;
        let (host, length) = (self.authority(), body.len());
        client
            .send(format!("{start} HTTP/1.1\r\nhost: {host}\r\n{fields}content-length: {length}\r\n\r\n{body}"))
            .await;
        client.message().await.expect("an answer")
    }

    async fn make(&self) -> String {
        let made = self.ask("POST /terminals", &self.dev(), SIZE).await;
        assert_eq!(made.status(), 201, "{made:?}");
        let made: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
        made["id"].as_str().unwrap().to_owned()
    }

    async fn page(&self, id: &str, query: &str, fields: &str) -> Page {
        let stream = TcpStream::connect(self.gateway.addresses.public).await.unwrap();
        let uri = format!("ws://{}/terminals/{id}/stream?{query}", self.authority());
        let mut request = uri.into_client_request().unwrap();
        let ours = "sec-websocket-protocol: terminal.gateway.v1\r\n".to_owned() + fields;
        for (name, value) in ours.lines().map(|line| line.split_once(": ").unwrap()) {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let (socket, _) = soon(client_async(request, stream)).await.expect("a terminal");
        Page { socket, shown: Vec::new(), at: 0, taken: 0 }
    }
}

/// A page in as far as these tests need one.
struct Page {
    socket: WebSocketStream<TcpStream>,
    shown: Vec<u8>,
    at: u64,
    taken: u64,
}

impl Page {
    async fn type_in(&mut self, offset: u64, text: &str) {
        let message = [&[0][..], &offset.to_be_bytes(), text.as_bytes()].concat();
        self.socket.send(Frame::Binary(message.into())).await.unwrap();
    }

    /// Takes one message; returns the code of the close frame.
    async fn hear(&mut self) -> Option<u16> {
        let message = soon(self.socket.next()).await.expect("more").expect("no error");
        let bytes = match message {
            Frame::Binary(bytes) => bytes,
            Frame::Close(frame) => return frame.map(|frame| frame.code.into()),
            Frame::Text(_) | Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_) => return None,
        };
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        match bytes[0] {
            0 => (self.at, self.taken) = (number(2), number(18)),
            1 => {
                self.shown.extend_from_slice(&bytes[1..]);
                self.at += bytes.len() as u64 - 1;
            }
            5 => self.taken = number(1),
            _ => {}
        }
        None
    }

    async fn shows(&mut self, wanted: &str) {
        while !String::from_utf8_lossy(&self.shown).contains(wanted) {
            assert_eq!(self.hear().await, None, "closed before {wanted:?} was shown");
        }
    }
}

fn page(number: u8) -> String {
    format!("page={number:032x}")
}

#[tokio::test]
async fn owner_types_and_a_connection_that_is_cut_loses_and_repeats_nothing() {
    let world = World::start().await;
    let id = world.make().await;
    let mut first = world.page(&id, &page(1), &world.dev()).await;
    let command = "echo one-$((1+1)); read word; echo word:$word:\n";
    let typed = command.len() as u64;
    first.type_in(0, command).await;
    first.shows("one-2").await;
    while first.taken < typed {
        first.hear().await;
    }
    let at = first.at;
    // It types, and nobody hears whether that arrived.
    first.type_in(typed, "blind\n").await;
    drop(first);
    let mut second = world.page(&id, &format!("{}&from={at}", page(1)), &world.dev()).await;
    second.hear().await;
    assert_eq!(second.at, at, "it goes on where it was");
    second.type_in(typed, "blind\n").await;
    second.shows("word:blind:").await;
    second.type_in(typed + 6, "echo once\n").await;
    second.shows("\r\nonce").await;
    drop(second);
    let mut new = world.page(&id, &page(2), &world.dev()).await;
    new.shows("\r\nonce").await;
    assert_eq!(String::from_utf8_lossy(&new.shown).matches("word:blind:").count(), 1);
}

#[tokio::test]
async fn clients_cannot_say_who_they_are_nor_what_they_may() {
    let world = World::start().await;
    let bob = world.shared_with("bob").await;
    let id = world.make().await;
    for forged in ["", "gateway-access: owner\r\n", "x-gateway-access: owner\r\ngateway-user: dev\r\n"] {
        let state = world.ask("GET /state", &format!("{bob}{forged}"), "").await;
        assert_eq!(state.status(), 200, "{forged}: {state:?}");
        let state: serde_json::Value = serde_json::from_slice(&state.body).unwrap();
        assert_eq!((&state["user"], &state["may_type"]), (&"bob".into(), &false.into()), "{forged}");
        let refused = world.ask("POST /terminals", &format!("{bob}{forged}"), SIZE).await;
        assert_eq!((refused.status(), refused.text()), (403, r#"{"error":"read_only"}"#.into()), "{forged}");
        let mut reader = world.page(&id, &page(9), &format!("{bob}{forged}")).await;
        reader.type_in(0, "echo intruder\n").await;
        let code = loop {
            if let Some(code) = reader.hear().await {
                break code;
            }
        };
        assert_eq!(code, 4003, "{forged}");
    }
    let odd = world.ask("GET /state", &format!("{bob}gateway_access: owner\r\n"), "").await;
    assert_eq!((odd.status(), odd.header("gateway-error")), (400, Some("bad_request")));
    let owner = world.ask("GET /state", &format!("{}gateway-access: shared\r\n", world.dev()), "").await;
    let owner: serde_json::Value = serde_json::from_slice(&owner.body).unwrap();
    assert_eq!((&owner["user"], &owner["may_type"]), (&"dev".into(), &true.into()));
    // Both see the same.
    let mut typist = world.page(&id, &page(1), &world.dev()).await;
    let mut reader = world.page(&id, &page(2), &bob).await;
    typist.type_in(0, "echo both-$((1+1))\n").await;
    reader.shows("both-2").await;
    assert!(!String::from_utf8_lossy(&reader.shown).contains("intruder"));
}

#[tokio::test]
async fn fields_of_the_terminal_reach_no_other_port() {
    let world = World::start().await;
    let app = RawApp::mirror().await;
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    let host = world.gateway.authority("one", app.port);
    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n{}gateway-access: owner\r\n\r\n", world.dev())).await;
    let seen = client.message().await.unwrap().text();
    assert!(seen.starts_with("GET / ") && !seen.to_lowercase().contains("gateway-"), "{seen}");
}

#[tokio::test]
async fn page_of_another_port_of_the_workspace_types_nothing_with_the_users_cookie() {
    let world = World::start().await;
    let mut browser = Browser::default();
    browser.follow(&world.gateway.sign_in_link).await;
    let address = format!("http://{}/", world.authority());
    let (_, page) = browser.follow(&address).await;
    assert!(page.status() == 200 && page.text().contains("assets/terminal.js"), "{page:?}");
    for (field, value) in [
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(page.header(field), Some(value));
    }
    assert!(page.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
    let own = format!("origin: http://{}\r\n", world.authority());
    let neighbour = format!("origin: http://{}\r\n", world.gateway.authority("one", 3000));
    let make = format!("{address}terminals");
    for fields in [
        neighbour.clone(),
        format!("{neighbour}sec-fetch-site: same-site\r\n"),
        "sec-fetch-site: none\r\n".to_owned(),
        String::new(),
        "origin: null\r\n".to_owned(),
    ] {
        let answer = browser.ask("POST", &make, &fields, SIZE).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (401, Some("sign_in_required")), "{fields:?}");
    }
    let made = browser.ask("POST", &make, &own, SIZE).await;
    assert_eq!(made.status(), 201, "{made:?}");
    let id = serde_json::from_slice::<serde_json::Value>(&made.body).unwrap()["id"].as_str().unwrap().to_owned();
    let stream = format!("{address}terminals/{id}/stream?{}", self::page(1));
    let shake = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: terminal.gateway.v1\r\n";
    let foreign = browser.ask("GET", &stream, &format!("{neighbour}{shake}"), "").await;
    assert_eq!((foreign.status(), foreign.header("gateway-error")), (401, Some("sign_in_required")));
    let mut raw = browser.send("GET", &stream, &format!("{own}{shake}"), "").await;
    assert_eq!(raw.head().await.unwrap().status(), 101);
}

#[tokio::test]
async fn raw_tcp_to_the_terminal_is_refused_to_its_owner_too() {
    let world = World::start().await;
    let shake = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: tcp.gateway.v1\r\n";
    let answer = world.ask(&format!("GET {}", tunnel_link::raw::PATH), &format!("{}{shake}", world.dev()), "").await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (403, Some("port_not_allowed")));
}

#[tokio::test]
async fn terminal_is_shared_by_name_only() {
    let world = World::start().await;
    let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
    for audience in ["public", "signed-in"] {
        let refused = world.gateway.store.share(&name, &world.share(audience), &by, wall_clock()).await.unwrap_err();
        assert!(refused.to_string().contains("terminal"), "{refused}");
        let mut client = Raw::connect(world.gateway.addresses.public).await;
        let (host, dev) = (format!("localhost:{}", world.gateway.addresses.public.port()), world.dev());
        let body =
            format!(r#"{{"shares":[{{"port":80,"audience":"public"}},{{"port":60002,"audience":"{audience}"}}]}}"#);
        let length = body.len();
        client
            .send(format!("PUT /api/v1/workspaces/one/shares HTTP/1.1\r\nhost: {host}\r\n{dev}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
            .await;
        let answer = client.message().await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status(), &problem["code"]), (422, &"invalid".into()), "{problem}");
        assert_eq!(problem["errors"][0]["pointer"], "/shares/1/audience", "{problem}");
    }
    assert!(world.gateway.store.public_ports(wall_clock()).await.unwrap().is_empty());
}

#[tokio::test]
async fn terminal_is_there_beside_named_ports_and_is_the_default_of_an_agent_that_names_none() {
    let named = NamedPort { number: 8080, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let world = World::exposing(vec![named]).await;
    assert_eq!(world.ask("GET /state", &world.dev(), "").await.status(), 200);
    let world = World::start().await;
    let host = format!("one.localhost:{}", world.gateway.addresses.public.port());
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    client.send(format!("GET /state HTTP/1.1\r\nhost: {host}\r\n{}\r\n", world.dev())).await;
    let state = client.message().await.unwrap();
    assert!(state.status() == 200 && state.text().contains(r#""may_type":true"#), "{state:?}");
    // Without terminals it is a port like any other, on which nothing listens.
    let gateway = TestGateway::start().await;
    let agent = gateway.agent("one").await;
    let plain = World { gateway, _agent: agent };
    let answer = plain.ask("GET /state", &plain.dev(), "").await;
    assert_eq!(answer.header("gateway-error"), Some("port_closed"));
}
