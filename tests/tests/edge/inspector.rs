//! The request inspector behind the gateway: its owner alone, and whose request a replay is.

use e2e::browser::Browser;
use e2e::raw::{Message, Raw, RawApp};
use e2e::{TestAgent, TestGateway};
use gateway_store::wall_clock;
use gateway_types::{Port, Share};
use tokio::net::TcpStream;
use tunnel_proto::hello::{AppProtocol, HostMode, Port as NamedPort};

use super::http2_app::GrpcApp;
use super::https_app::https_app;
use super::support::{App, Http2, Reply, app, whole};

const INSPECTOR: u16 = 60_003;

/// Address of the owner in these tests, and of other users.
const OWNER_AT: [u8; 4] = [127, 0, 0, 3];
const OTHER_AT: [u8; 4] = [127, 0, 0, 2];

struct World {
    gateway: TestGateway,
    _agent: TestAgent,
}

impl World {
    async fn start() -> Self {
        Self::exposing(Vec::new()).await
    }

    async fn exposing(ports: Vec<NamedPort>) -> Self {
        let gateway = TestGateway::start_with(|config| config.auth.admins = vec!["olga".parse().unwrap()]).await;
        let agent = gateway.agent_with_inspector("one", ports).await;
        Self { gateway, _agent: agent }
    }

    fn bearer(token: &str) -> String {
        format!("gateway-authorization: Bearer {token}\r\n")
    }

    fn dev(&self) -> String {
        Self::bearer(&self.gateway.user_token)
    }

    async fn token_of(&self, user: &str) -> String {
        let token = self.gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
        Self::bearer(token.token.reveal())
    }

    fn share_of(port: u16, audience: &str) -> Share {
        Share { port: Port::new(port).unwrap(), audience: audience.parse().unwrap(), expires_at: None }
    }

    async fn share(&self, port: u16, audience: &str) {
        let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
        let share = Self::share_of(port, audience);
        assert!(self.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
    }

    async fn ask_from(&self, source: [u8; 4], port: u16, start: &str, fields: &str, body: &str) -> Message {
        let mut client = Raw::connect_from(source, self.gateway.addresses.public).await;
        let (host, length) = (self.gateway.authority("one", port), body.len());
        client
            .send(format!("{start} HTTP/1.1\r\nhost: {host}\r\n{fields}content-length: {length}\r\n\r\n{body}"))
            .await;
        client.message().await.expect("an answer")
    }

    /// Asks the inspector as its owner, and returns the page.
    async fn page(&self, path: &str) -> String {
        let page = self.ask_from(OWNER_AT, INSPECTOR, &format!("GET {path}"), &self.dev(), "").await;
        assert_eq!(page.status(), 200, "{page:?}");
        page.text()
    }
}

/// An app that refuses one item of two.
async fn shop() -> App {
    app(|_, _, request| {
        let (status, body) = if request.text().contains("\"item\":7") { ("500 Oh", "out of stock") } else { ("200 OK", "sold") };
        Reply::Keep(format!(
            "HTTP/1.1 {status}\r\nset-cookie: cart=s3cr3t\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    })
    .await
}

fn form(pairs: &[(&str, &str)]) -> String {
    pairs
        .iter()
        .fold(url::form_urlencoded::Serializer::new(String::new()), |mut form, (name, value)| {
            form.append_pair(name, value);
            form
        })
        .finish()
}

#[tokio::test]
async fn owner_alone_sees_requests_whatever_is_shared_and_operators_do_not() {
    let world = World::start().await;
    let shop = shop().await;
    let (bob, olga) = (world.token_of("bob").await, world.token_of("olga").await);
    world.share(shop.port, "user:bob").await;
    world.share(shop.port, "public").await;
    let bought = world.ask_from(OTHER_AT, shop.port, "POST /buy?item=1", &bob, "{}").await;
    assert_eq!((bought.status(), bought.text()), (200, "sold".to_owned()));
    let list = world.page("/").await;
    assert!(list.contains("/buy?item=1") && list.contains("from 127.0.0.2"), "{list}");
    for audience in ["user:bob", "public", "signed-in", "group:devs"] {
        let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
        let share = World::share_of(INSPECTOR, audience);
        let refused = world.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap_err();
        assert!(refused.to_string().contains("request inspector"), "{refused}");
    }
    let forged = "gateway-access: owner\r\ngateway-user: dev\r\n";
    for path in ["/", "/har", "/exchanges/1", "/live", "/assets/inspector.js"] {
        for (who, status) in [(&bob, 403), (&olga, 404), (&String::new(), 401)] {
            let refused =
                world.ask_from(OTHER_AT, INSPECTOR, &format!("GET {path}"), &format!("{who}{forged}"), "").await;
            assert_eq!(refused.status(), status, "{path} {who}: {refused:?}");
            assert!(!refused.text().contains("/buy"), "{refused:?}");
        }
    }
    let replay = form(&[("method", "POST"), ("target", "/buy?item=2")]);
    let refused =
        world.ask_from(OTHER_AT, INSPECTOR, "POST /exchanges/1/replay", &format!("{bob}{forged}"), &replay).await;
    assert_eq!(refused.status(), 403, "{refused:?}");
    assert_eq!(shop.seen.requests().len(), 1, "nothing was sent again");
}

#[tokio::test]
async fn share_of_the_inspector_is_refused_with_its_reason() {
    let world = World::start().await;
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    let (host, dev) = (format!("localhost:{}", world.gateway.addresses.public.port()), world.dev());
    let body = r#"{"shares":[{"port":60003,"audience":"user:bob","unknown_user":true}]}"#;
    let length = body.len();
    client
        .send(format!("PUT /api/v1/workspaces/one/shares HTTP/1.1\r\nhost: {host}\r\n{dev}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
        .await;
    let answer = client.message().await.unwrap();
    assert_eq!(answer.status(), 422, "{answer:?}");
    assert!(answer.text().contains("request inspector") && answer.text().contains("cannot be shared"), "{answer:?}");
}

#[tokio::test]
async fn replay_is_its_owners_request_and_has_no_recorded_credentials() {
    let world = World::start().await;
    let shop = shop().await;
    let bob = world.token_of("bob").await;
    world.share(shop.port, "user:bob").await;
    let fields = format!(
        "{bob}cookie: cart=s3cr3t\r\nauthorization: Basic s3cr3t\r\nx-order: 1\r\ncontent-type: application/json\r\n"
    );
    let failed = world.ask_from(OTHER_AT, shop.port, "POST /buy?api_key=s3cr3t", &fields, r#"{"item":7}"#).await;
    assert_eq!(failed.status(), 500);
    let edit = world.page("/exchanges/1/edit").await;
    assert!(edit.contains("x-order: 1") && edit.contains("/buy?api_key=redacted"), "{edit}");
    let edited = form(&[
        ("method", "POST"),
        ("target", "/buy?again=1"),
        ("headers", "content-type: application/json\r\nx-order: 2\r\nx-forwarded-for: 10.0.0.1\r\ncookie: cart=mine"),
        ("body", r#"{"item":8}"#),
    ]);
    let own = format!("{}origin: http://{}\r\n", world.dev(), world.gateway.authority("one", INSPECTOR));
    let sent = world.ask_from(OWNER_AT, INSPECTOR, "POST /exchanges/1/replay", &own, &edited).await;
    assert_eq!((sent.status(), sent.header("location")), (303, Some("/exchanges/2")), "{sent:?}");
    let requests = shop.seen.requests();
    let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((first.header("x-forwarded-for"), first.header("cookie")), (Some("127.0.0.2"), Some("cart=s3cr3t")));
    assert_eq!(second.start, "POST /buy?again=1 HTTP/1.1");
    assert_eq!((second.header("x-forwarded-for"), second.header("cookie")), (Some("127.0.0.3"), Some("cart=mine")));
    assert!(second.header("forwarded").is_some_and(|field| field.contains("for=127.0.0.3")), "{second:?}");
    assert_eq!(second.header("x-forwarded-host"), first.header("x-forwarded-host"), "the app's own address");
    assert_eq!((second.header("x-order"), second.text()), (Some("2"), r#"{"item":8}"#.to_owned()));
    assert!(second.header("authorization").is_none());
    let list = world.page("/").await;
    assert!(list.contains("replay of 1") && list.contains("from 127.0.0.3"), "{list}");
    let failing = world.page("/?failing=1").await;
    assert!(failing.contains("id=\"x1\"") && !failing.contains("id=\"x2\""), "{failing}");
    for path in ["/", "/exchanges/1", "/exchanges/1/edit", "/exchanges/2", "/har", "/exchanges/1/har"] {
        assert!(!world.page(path).await.contains("s3cr3t"), "{path}");
    }
    // What is no request is told with the form, and sent nowhere.
    let bad = form(&[("method", "POST"), ("target", "no path"), ("headers", "x-order: 3")]);
    let refused = world.ask_from(OWNER_AT, INSPECTOR, "POST /exchanges/1/replay", &own, &bad).await;
    assert!(refused.status() == 422 && refused.text().contains("x-order: 3"), "{refused:?}");
    assert_eq!(shop.seen.requests().len(), 2);
}

#[tokio::test]
async fn page_of_another_port_of_the_workspace_reads_and_replays_nothing_with_the_users_cookie() {
    let world = World::start().await;
    let shop = shop().await;
    let mut browser = Browser::default();
    browser.follow(&world.gateway.sign_in_link).await;
    let bought = world.ask_from(OWNER_AT, shop.port, "GET /buy", &world.dev(), "").await;
    assert_eq!(bought.status(), 200);
    let address = format!("http://{}/", world.gateway.authority("one", INSPECTOR));
    let (_, page) = browser.follow(&address).await;
    assert!(page.status() == 200 && page.text().contains("/buy"), "{page:?}");
    assert_eq!(page.header("x-frame-options"), Some("DENY"));
    let neighbour = format!("origin: http://{}\r\n", world.gateway.authority("one", 3000));
    let refused = (401, Some("sign_in_required"));
    for path in ["", "har", "live", "exchanges/1"] {
        for fields in [neighbour.clone(), "sec-fetch-site: same-site\r\nsec-fetch-mode: cors\r\n".to_owned()] {
            let answer = browser.ask("GET", &format!("{address}{path}"), &fields, "").await;
            assert_eq!((answer.status(), answer.header("gateway-error")), refused, "{path} {fields}");
        }
    }
    let replay = form(&[("method", "GET"), ("target", "/buy")]);
    let sends = format!("{address}exchanges/1/replay");
    for fields in [neighbour.as_str(), "", "origin: null\r\n", "sec-fetch-site: none\r\n"] {
        let answer = browser.ask("POST", &sends, fields, &replay).await;
        assert_eq!((answer.status(), answer.header("gateway-error")), refused, "{fields}");
        let answer = browser.ask("POST", &format!("{address}clear"), fields, "x").await;
        assert_eq!(answer.status(), 401, "{fields}");
    }
    assert_eq!(shop.seen.requests().len(), 1);
    let own = format!("origin: http://{}\r\n", world.gateway.authority("one", INSPECTOR));
    assert_eq!(browser.ask("POST", &sends, &own, &replay).await.status(), 303);
    assert_eq!(shop.seen.requests().len(), 2);
}

#[tokio::test]
async fn raw_tcp_to_the_inspector_is_refused_and_its_fields_reach_no_other_port() {
    let world = World::start().await;
    let shake = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: tcp.gateway.v1\r\n";
    let start = format!("GET {}", tunnel_link::raw::PATH);
    let answer = world.ask_from(OWNER_AT, INSPECTOR, &start, &format!("{}{shake}", world.dev()), "").await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (403, Some("port_not_allowed")));
    let mirror = RawApp::mirror().await;
    let seen =
        world.ask_from(OWNER_AT, mirror.port, "GET /", &format!("{}gateway-access: owner\r\n", world.dev()), "").await;
    assert!(!seen.text().to_lowercase().contains("gateway-"), "{}", seen.text());
    // Neither the inspector's own pages nor anything but the app's request is in the list.
    world.page("/").await;
    assert_eq!(world.page("/").await.matches("<li class=\"exchange").count(), 1);
}

#[tokio::test]
async fn app_with_its_own_certificate_is_recorded_and_asked_again_over_tls() {
    let secure = https_app(&["http/1.1"]).await;
    let port = NamedPort { number: secure.port, protocol: AppProtocol::Http1, host: HostMode::Original, tls: true };
    let world = World::exposing(vec![port]).await;
    let answer = world.ask_from(OTHER_AT, secure.port, "POST /first", &world.dev(), "body of it").await;
    assert_eq!(answer.status(), 200, "{answer:?}");
    let page = world.page("/exchanges/1").await;
    assert!(page.contains("body of it") && page.contains("https://127.0.0.1:"), "{page}");
    let edited = form(&[("method", "PUT"), ("target", "/second"), ("body", "another")]);
    let sent = world.ask_from(OWNER_AT, INSPECTOR, "POST /exchanges/1/replay", &world.dev(), &edited).await;
    assert_eq!((sent.status(), sent.header("location")), (303, Some("/exchanges/2")), "{sent:?}");
    let page = world.page("/exchanges/2").await;
    assert!(page.contains("PUT /second") && page.contains("another"), "{page}");
}

#[tokio::test]
async fn calls_over_http2_pass_and_are_one_entry_without_their_contents() {
    let grpc = GrpcApp::start(usize::MAX).await;
    let port = NamedPort { number: grpc.app.port, protocol: AppProtocol::Http2, host: HostMode::Original, tls: false };
    let world = World::exposing(vec![port]).await;
    let mut client = Http2::over(TcpStream::connect(world.gateway.addresses.public).await.unwrap()).await;
    let uri = format!("http://{}/some.Service/Call", world.gateway.authority("one", grpc.app.port));
    let bearer = format!("Bearer {}", world.gateway.user_token);
    let request = http::Request::builder()
        .method("POST")
        .uri(uri)
        .header("gateway-authorization", bearer)
        .header("te", "trailers");
    let (answer, mut body) = client.start(request.body(()).unwrap());
    body.send_data("payload-of-a-call".into(), true).unwrap();
    let answer = whole(answer).await;
    assert_eq!(answer.body, b"payload-of-a-call", "{answer:?}");
    let list = world.page("/").await;
    assert!(
        list.matches("<li class=\"exchange").count() == 1 && list.contains("HTTP/2 connection, not decoded"),
        "{list}"
    );
    assert!(!world.page("/exchanges/1").await.contains("payload-of-a-call"));
}

#[tokio::test]
async fn dashboard_leads_to_the_inspector_where_there_is_one() {
    let world = World::start().await;
    let _plain = world.gateway.agent("two").await;
    let mut browser = Browser::default();
    browser.follow(&world.gateway.sign_in_link).await;
    let site = format!("http://localhost:{}", world.gateway.addresses.public.port());
    let link = format!("href=\"http://{}/\"", world.gateway.authority("one", INSPECTOR));
    let (_, page) = browser.follow(&format!("{site}/workspaces/one")).await;
    assert!(page.status() == 200 && page.text().contains(&link) && page.text().contains(">Requests</a>"), "{page:?}");
    let (_, page) = browser.follow(&format!("{site}/workspaces/two")).await;
    assert!(
        page.status() == 200 && !page.text().contains(">Requests</a>") && !page.text().contains("60003"),
        "{page:?}"
    );
}

#[tokio::test]
async fn inspector_is_off_unless_it_is_asked_for() {
    let gateway = TestGateway::start().await;
    let agent = gateway.agent("one").await;
    let plain = World { gateway, _agent: agent };
    let answer = plain.ask_from(OWNER_AT, INSPECTOR, "GET /", &plain.dev(), "").await;
    assert_eq!(answer.header("gateway-error"), Some("port_closed"));
}
