//! Every byte that an app gets, for every kind of request, searched for what is the gateway's own.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use e2e::raw::{Raw, RawApp};
use e2e::until;
use http::HeaderMap;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::sign_in::Browser;
use super::support::{World, soon, whole};
use super::upgrade::HANDSHAKE;

/// An app that keeps every byte, agrees to every upgrade, and answers every request when its body is over.
struct Spy {
    port: u16,
    bytes: Arc<Mutex<Vec<u8>>>,
    _app: RawApp,
}

impl Spy {
    async fn start() -> Self {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = bytes.clone();
        let app = RawApp::start(move |raw| spy(raw, kept.clone())).await;
        Self { port: app.port, bytes, _app: app }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).to_ascii_lowercase()
    }
}

async fn spy(mut raw: Raw, kept: Arc<Mutex<Vec<u8>>>) {
    loop {
        let head = raw.head_bytes().await;
        if head.is_empty() {
            return;
        }
        kept.lock().unwrap().extend(&head);
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let upgrade = head.lines().find_map(|line| line.strip_prefix("upgrade: ")).map(str::to_owned);
        if let Some(protocol) = upgrade {
            let text = String::from_utf8_lossy(&kept.lock().unwrap()).into_owned();
            let key = text.lines().rev().find_map(|line| line.strip_prefix("sec-websocket-key: ").map(str::to_owned));
            let accept = derive_accept_key(key.unwrap_or_default().as_bytes());
            raw.send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\
                 sec-websocket-accept: {accept}\r\n\r\n"
            ))
            .await;
            let rest = raw.read_rest().await;
            return kept.lock().unwrap().extend(rest);
        }
        let mut body = Vec::new();
        while head.contains("transfer-encoding: chunked") && !body.ends_with(b"\r\n\r\n") {
            body.extend(raw.some().await);
        }
        kept.lock().unwrap().extend(body);
        if raw.try_send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
            return;
        }
    }
}

/// Fields that a hostile or careless client may add: all of them are the gateway's, in trailers too.
const CLAIMS: &str = "x-gateway-user: mallory\r\ngateway-trace: mallory\r\ncookie: gateway_pre=mallory; own=1\r\n";

/// Sends one request of each kind over HTTP/1.1 with this credential.
async fn over_http1(world: &World, port: u16, credential: &str) {
    let host = world.authority(port);
    let send = async |start: &str, fields: &str, body: &str, expected: u16| {
        let mut client = world.client().await;
        let site = "sec-fetch-site: same-origin\r\n";
        let head = format!("{start} HTTP/1.1\r\nhost: {host}\r\n{credential}\r\n{site}{CLAIMS}{fields}\r\n{body}");
        client.send(head).await;
        assert_eq!(client.head().await.unwrap().status(), expected, "{start} {fields}");
        client
    };
    drop(send("GET /get", "", "", 200).await);
    let trailers = format!("3\r\nabc\r\n0\r\n{credential}\r\n{CLAIMS}x-sum: 7\r\n\r\n");
    let fields = "transfer-encoding: chunked\r\ntrailer: x-sum, cookie, authorization, gateway-authorization, x-gateway-user\r\n";
    drop(send("POST /chunked", fields, &trailers, 200).await);
    for (path, fields) in [("GET /websocket", HANDSHAKE), ("GET /other", "connection: upgrade\r\nupgrade: other\r\n")] {
        let mut stream = send(path, fields, "", 101).await;
        stream.send("raw bytes").await;
        stream.finish().await;
        stream.read_rest().await;
    }
}

/// The same over HTTP/2, with a token. Dropping what it returns would cut its last stream.
async fn over_http2(world: &World, port: u16) -> impl Sized + use<> {
    let mut http2 = world.http2().await;
    http2.until_extended_connect().await;
    let with_claims = |method: &str, path: &str| {
        let mut request = world.http2_request(port, method, path);
        for (name, value) in [("x-gateway-user", "mallory"), ("cookie", "gateway_pre=mallory"), ("cookie", "own=1")] {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        request
    };
    assert_eq!(http2.ask(with_claims("GET", "/get-2")).await.status, 200);
    let (response, mut send) = http2.start(with_claims("POST", "/trailers-2"));
    send.send_data(Bytes::from_static(b"abc"), false).unwrap();
    let bearer = format!("Bearer {}", world.gateway.user_token);
    let trailers = [("gateway-authorization", bearer.as_str()), ("cookie", "gateway_pre=mallory"), ("x-sum", "7")];
    let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    send.send_trailers(HeaderMap::from_iter(trailers)).unwrap();
    assert_eq!(whole(response).await.status, 200);
    let mut connect = with_claims("CONNECT", "/websocket-2");
    connect.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
    connect.extensions_mut().insert(h2::ext::Protocol::from("websocket"));
    let (response, mut send) = http2.start(connect);
    let response = soon(response).await.unwrap();
    assert_eq!(response.status(), 200);
    send.send_data(Bytes::from_static(b"raw bytes"), true).unwrap();
    (http2, response, send)
}

/// Row 2: no token, cookie, code or field of the gateway's reaches an app, by no kind of request and no credential.
#[tokio::test]
async fn nothing_of_the_gateways_reaches_an_app_by_any_kind_of_request() {
    let world = World::start().await;
    let spy = Spy::start().await;
    let browser = Browser { world: &world };
    let (session, _) = browser.sign_in(&format!("http://{}/", world.authority(spy.port))).await;
    let token = &world.gateway.user_token;
    over_http1(&world, spy.port, &format!("gateway-authorization: Bearer {token}")).await;
    over_http1(&world, spy.port, &format!("Authorization: bearer {token}")).await;
    over_http1(&world, spy.port, &format!("cookie: {session}")).await;
    let _open = over_http2(&world, spy.port).await;
    until("every stream has ended at the app", || spy.text().matches("raw bytes").count() == 7).await;
    let text = spy.text();
    for line in ["get /get ", "post /chunked ", "get /websocket ", "get /other ", "get /websocket-2 ", "cookie: own=1"]
    {
        assert!(text.contains(line), "{line} is not there: {text}");
    }
    let (_, session) = session.split_once('=').unwrap();
    let secret = token.strip_prefix("gwu_").unwrap();
    for own in [session, secret, "gwu_", "gateway_", "gateway-authorization:", "mallory", "code="] {
        assert!(!text.contains(&own.to_ascii_lowercase()), "{own} reached the app: {text}");
    }
}
