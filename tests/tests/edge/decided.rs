//! One decision for each request, before anything else: no shape of a request, no path, no program and no earlier request
//! on the same connection gets around it.

use e2e::raw::{Message, Raw};
use gateway_store::wall_clock;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::support::{World, app, ok};

impl World {
    /// An API token of a user to whom nothing belongs.
    async fn strangers_token(&self) -> String {
        let made = self.gateway.store.create_user_token(&"eve".parse().unwrap(), wall_clock()).await.unwrap();
        made.token.reveal().to_owned()
    }

    /// How many channels were ever opened to the agent.
    fn channels_opened(&self) -> u64 {
        self.gateway.registry.all().iter().map(|session| session.tunnel.stats().channels_opened).sum()
    }
}

/// Rows 11 and 18: neither the connection nor its last request is what is authorised.
#[tokio::test]
async fn each_request_of_a_connection_is_decided_anew() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("in")).await;
    let (host, stranger) = (world.authority(app.port), world.strangers_token().await);
    let other = world.authority(app.port - 1);
    let get = |host: &str, fields: &str| format!("GET / HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n");
    let good = world.head(app.port, "GET /", "");
    let bare = get(&host, "");
    let foreign = get(&host, &format!("gateway-authorization: Bearer {stranger}\r\n"));
    let both = get(&host, &format!("authorization: Bearer {stranger}\r\nauthorization: Bearer {stranger}\r\n"));
    let elsewhere = get(&other, "");
    let mut client = world.client().await;
    for (request, expected) in
        [(&good, 200), (&bare, 401), (&good, 200), (&foreign, 404), (&both, 401), (&elsewhere, 401), (&good, 200)]
    {
        client.send(request).await;
        let answer = client.message().await.unwrap();
        assert_eq!(answer.status(), expected, "{request}: {answer:?}");
    }
    assert_eq!(app.seen.requests().len(), 3);
    let mut http2 = world.http2().await;
    for (token, expected) in [(true, 200), (false, 401), (true, 200), (false, 401)] {
        let mut request = world.http2_request(app.port, "GET", "/");
        if !token {
            request.headers_mut().remove("gateway-authorization");
        }
        assert_eq!(http2.ask(request).await.status, expected);
    }
    assert_eq!(app.seen.requests().len(), 5);
}

/// Row 9: what is public is a port, by a share, and never a path or a program.
#[tokio::test]
async fn no_path_and_no_program_is_exempt_from_sign_in() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("in")).await;
    let host = world.authority(app.port);
    let ask = async |target: &str, fields: &str| {
        let mut client = world.client().await;
        client.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n")).await;
        client.message().await.unwrap().status()
    };
    for target in [
        "/",
        "//",
        "/healthz",
        "/readyz",
        "/metrics",
        "/ping",
        "/favicon.ico",
        "/robots.txt",
        "/assets/look.css",
        "/.well-known/acme-challenge/x",
        "/.well-known/openid-configuration",
        "/api/v1/openapi.json",
        "/oauth2/callback",
        "/public/..%2fprivate",
        "/public/../private",
        "/public;/private",
        "/%70ublic",
        "/private?/public",
        "/private?x=/healthz",
        "/private/%23/healthz",
        "/private%0a/healthz",
        "/private%00/healthz",
    ] {
        assert_eq!(ask(target, "").await, 401, "{target}");
    }
    for fields in [
        "user-agent: kube-probe/1.33\r\n",
        "user-agent: GoogleHC/1.0\r\n",
        "user-agent: ELB-HealthChecker/2.0\r\n",
        "user-agent: Prometheus/3.0\r\n",
        "x-forwarded-uri: /healthz\r\n",
        "x-original-url: /healthz\r\n",
        "x-original-uri: /healthz\r\nx-original-method: OPTIONS\r\n",
        "x-http-method-override: OPTIONS\r\n",
        "x-forwarded-for: 127.0.0.1\r\nx-real-ip: 127.0.0.1\r\n",
        "x-forwarded-user: dev\r\nx-remote-user: dev\r\nremote-user: dev\r\n",
    ] {
        assert_eq!(ask("/", fields).await, 401, "{fields}");
    }
    assert_eq!((app.seen.connections(), world.channels_opened()), (0, 0));
}

/// What a request without permission may be made of.
#[derive(Clone, Debug)]
struct Parts {
    method: &'static str,
    target: &'static str,
    version: &'static str,
    fields: Vec<&'static str>,
}

const METHODS: [&str; 12] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PRI", "BREW", "get"];

const TARGETS: [&str; 8] =
    ["/", "/a/b?c=d", "*", "http://{host}/x", "{host}", "http://localhost/", "/.gateway/callback?code=x", "//{host}/"];

/// Whole lines; `{…}` is filled in.
const FIELDS: [&str; 34] = [
    "connection: upgrade",
    "connection: close",
    "upgrade: websocket",
    "upgrade: h2c",
    "upgrade: other",
    "http2-settings: AAMAAABkAAQAAP__",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    "expect: 100-continue",
    "content-length: 0",
    "content-length: 5",
    "transfer-encoding: chunked",
    "te: trailers",
    "content-type: application/grpc",
    "accept: text/html",
    "origin: http://{host}",
    "origin: http://evil.example",
    "origin: null",
    "access-control-request-method: PUT",
    "sec-fetch-site: same-origin",
    "sec-fetch-site: cross-site",
    "sec-fetch-mode: navigate",
    "sec-fetch-dest: document",
    "cookie: gateway_session={secret}",
    "cookie: __Host-gateway_session={secret}; gateway_pre={secret}",
    "cookie: gateway_session={secret}; gateway_session={secret}",
    "authorization: Basic ZGV2OmRldg==",
    "authorization: Bearer {stranger}",
    "authorization: Bearer {agent}",
    "gateway-authorization: Bearer {stranger}",
    "gateway-authorization: Bearer {agent}",
    "gateway-authorization: {damaged}",
    "x-gateway-user: dev",
    "x-forwarded-for: 127.0.0.1",
];

fn parts() -> impl Strategy<Value = Parts> {
    let pick = |from: &'static [&'static str]| proptest::sample::select(from);
    let version = prop_oneof![9 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0")];
    let fields = proptest::sample::subsequence(FIELDS.to_vec(), 0..8).prop_shuffle();
    (pick(&METHODS), pick(&TARGETS), version, fields).prop_map(|(method, target, version, fields)| Parts {
        method,
        target,
        version,
        fields,
    })
}

/// Row 4: whatever a request is, without a grant not even a channel is opened.
#[test]
fn no_channel_is_opened_without_a_grant_whatever_the_request_is() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (world, app, stranger, agent) = runtime.block_on(async {
        let world = World::start().await;
        let (stranger, agent) = (world.strangers_token().await, world.gateway.agent_token("one").await);
        (world, app(|_, _, _| ok("in")).await, stranger, agent)
    });
    let host = world.authority(app.port);
    let damaged = format!("Bearer {}x", world.gateway.user_token);
    let secret = "A".repeat(43);
    let fill = |text: &str| {
        let pairs =
            [("host", &host), ("stranger", &stranger), ("agent", &agent), ("damaged", &damaged), ("secret", &secret)];
        pairs.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    };
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&parts(), |parts| {
        let mut request = format!("{} {} {}\r\nhost: {host}\r\n", parts.method, fill(parts.target), parts.version);
        for field in &parts.fields {
            request.push_str(&fill(field));
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        let answer: Option<Message> = runtime.block_on(async {
            let mut client = Raw::connect(world.gateway.addresses.public).await;
            client.try_send(request.as_bytes()).await.ok();
            client.head().await
        });
        let status = answer.as_ref().map_or(0, Message::status);
        // So many strangers at once may reach a limit, which is a refusal too.
        let is_limited = answer.as_ref().and_then(|answer| answer.header("gateway-error")) == Some("overloaded");
        let is_refused = status != 200 && status != 100 && status != 101 && (status < 500 || is_limited);
        prop_assert!(is_refused, "{}{:?}", request, answer);
        prop_assert_eq!((world.channels_opened(), app.seen.connections()), (0, 0), "{}", request);
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    // The same world does open channels for those who may.
    assert_eq!(runtime.block_on(world.ask(app.port, "GET /", "")).status(), 200);
    assert_eq!(world.channels_opened(), 1);
}
