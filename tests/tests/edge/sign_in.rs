//! Signing in with a browser's means: link, cookie, workspace host, page; and which ports and hosts that opens.

use e2e::raw::{Message, Raw};
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

use super::support::{World, app, ok};

/// A browser in as far as these tests need one: one host at a time, cookies by host.
pub(super) struct Browser<'a> {
    pub(super) world: &'a World,
}

impl Browser<'_> {
    pub(super) async fn visit(&self, url: &str, cookies: &str) -> Message {
        let rest = url.strip_prefix("http://").expect("plain HTTP");
        let slash = rest.find('/').unwrap_or(rest.len());
        let (host, target) = rest.split_at(slash);
        let target = if target.is_empty() { "/" } else { target };
        let cookies = if cookies.is_empty() { String::new() } else { format!("cookie: {cookies}\r\n") };
        let mut client = Raw::connect(self.world.gateway.addresses.public).await;
        client
            .send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\naccept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n{cookies}\r\n"))
            .await;
        client.message().await.unwrap()
    }

    /// Goes all the way from nothing; returns the cookie of the workspace host and where the browser ended up.
    pub(super) async fn sign_in(&self, url: &str) -> (String, String) {
        let signed_in = self.visit(&self.world.gateway.sign_in_link, "").await;
        assert_eq!(signed_in.status(), 303, "{signed_in:?}");
        let public = cookie(&signed_in);
        let begun = self.visit(url, "").await;
        assert_eq!(begun.status(), 302, "{begun:?}");
        assert_eq!(begun.header("gateway-error"), Some("sign_in_required"));
        let pre = cookie(&begun);
        let vouched = self.visit(begun.header("location").unwrap(), &public).await;
        assert_eq!(vouched.status(), 303, "{vouched:?}");
        let arrived = self.visit(vouched.header("location").unwrap(), &pre).await;
        assert_eq!(arrived.status(), 303, "{arrived:?}");
        (cookie(&arrived), arrived.header("location").unwrap().to_owned())
    }
}

fn cookie(answer: &Message) -> String {
    let line = answer.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {answer:?}"));
    line.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn link_leads_to_the_page_that_was_asked_for_with_its_query() {
    let world = World::start().await;
    let app = app(|_, _, request| ok(&format!("{} {:?}", request.start, request.header("cookie")))).await;
    let browser = Browser { world: &world };
    let origin = format!("http://{}", world.authority(app.port));
    let target = "/a//b?x=1&y=%2f%26&&z=";
    let (session, location) = browser.sign_in(&format!("{origin}{target}")).await;
    assert_eq!(location, target);
    assert_eq!(app.seen.connections(), 0, "nothing reached the app so far");
    let page = browser.visit(&format!("{origin}{location}"), &format!("own=1; {session}")).await;
    assert_eq!(page.text(), format!("GET {target} HTTP/1.1 Some(\"own=1\")"));
}

// Row 1: a session is good at one host only.
#[tokio::test]
async fn session_of_one_host_is_worth_nothing_at_another() {
    let world = World::start().await;
    let _two = world.gateway.agent("two").await;
    let app = app(|_, _, _| ok("in")).await;
    let browser = Browser { world: &world };
    let (session, _) = browser.sign_in(&format!("http://{}/", world.authority(app.port))).await;
    assert_eq!(browser.visit(&format!("http://{}/", world.authority(app.port)), &session).await.text(), "in");
    for host in [
        world.authority(app.port - 1),
        world.gateway.authority("two", app.port),
        format!("one.localhost:{}", world.gateway.addresses.public.port()),
        format!("localhost:{}", world.gateway.addresses.public.port()),
    ] {
        let answer = browser.visit(&format!("http://{host}/"), &session).await;
        assert_ne!(answer.status(), 200, "{host}: {answer:?}");
        assert_eq!(answer.header("gateway-error"), Some("sign_in_required"), "{host}: {answer:?}");
    }
    // Twice is not at all: one of them was planted.
    let twice =
        browser.visit(&format!("http://{}/", world.authority(app.port)), &format!("{session}; {session}")).await;
    assert_eq!(twice.header("gateway-error"), Some("sign_in_required"), "{twice:?}");
}

// Row 5: a cookie does not speak for requests that another site's page caused.
#[tokio::test]
async fn cookie_does_not_speak_for_foreign_pages() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("in")).await;
    let browser = Browser { world: &world };
    let authority = world.authority(app.port);
    let (session, _) = browser.sign_in(&format!("http://{authority}/")).await;
    let websocket = super::upgrade::HANDSHAKE;
    let ask = async |start: &str, fields: &str| {
        let mut client = world.client().await;
        client.send(format!("{start} HTTP/1.1\r\nhost: {authority}\r\ncookie: {session}\r\n{fields}\r\n")).await;
        client.message().await.unwrap().status()
    };
    let port = world.gateway.addresses.public.port();
    let foreign = format!("origin: http://{}\r\n", world.gateway.authority("two", 3000));
    for fields in
        [foreign.as_str(), "sec-fetch-site: same-site\r\n", "sec-fetch-site: cross-site\r\n", "origin: null\r\n", ""]
    {
        assert_eq!(ask("POST /", fields).await, 401, "{fields}");
        assert_eq!(ask("GET /", &format!("{websocket}{fields}")).await, 401, "{fields}");
    }
    let neighbour = format!("origin: http://3000-one.localhost:{port}\r\n");
    let own = format!("origin: http://{authority}\r\n");
    for fields in [neighbour, own, "sec-fetch-site: same-origin\r\n".into()] {
        assert_eq!(ask("POST /", &fields).await, 200, "{fields}");
    }
}

// Row 3: ports that the agent does not name are closed at the gateway.
#[tokio::test]
async fn port_that_the_agent_does_not_expose_is_refused() {
    let (open, shut) = (app(|_, _, _| ok("open")).await, app(|_, _, _| ok("shut")).await);
    let port = Port { number: open.port, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let world = World::exposing(vec![port]).await;
    assert_eq!(world.ask(open.port, "GET /", "").await.text(), "open");
    let answer = world.ask(shut.port, "GET /", "").await;
    assert_eq!((answer.status(), answer.header("gateway-error")), (403, Some("port_not_allowed")));
    assert_eq!(shut.seen.connections(), 0);
}

#[tokio::test]
async fn address_without_a_port_is_the_default_port() {
    let app = app(|_, _, request| ok(request.header("host").unwrap())).await;
    let port = Port { number: app.port, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let world = World::exposing(vec![port]).await;
    let ask = async |host: &str| {
        let mut client = world.client().await;
        let token = &world.gateway.user_token;
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
        client.message().await.unwrap()
    };
    let host = format!("one.localhost:{}", world.gateway.addresses.public.port());
    assert_eq!(ask(&host).await.text(), host);
    assert_eq!(ask("ONE.localhost.").await.status(), 200, "in any case, with a trailing dot, without the port");
    // A workspace without a default port has no such address.
    let _two = world.gateway.agent("two").await;
    assert_eq!(ask("two.localhost").await.status(), 404);
    assert_eq!(ask("none-such.localhost").await.status(), 404);
}

#[tokio::test]
async fn reserved_paths_of_a_workspace_host_reach_no_app() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    for path in ["/.gateway/x", "/.gateway", "//.gateway/x", "/%2egateway/x", "/a/../.gateway/", "/.gateway/callback"] {
        let answer = world.ask(app.port, &format!("GET {path}"), "").await;
        assert!(answer.status() >= 400, "{path}: {answer:?}");
    }
    assert_eq!(app.seen.connections(), 0);
}

// Row A3: what a script of the workspace's host can do with a visitor who is signed in.
#[tokio::test]
async fn script_of_a_workspace_gets_no_code_for_a_nonce_of_its_own() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("in")).await;
    let browser = Browser { world: &world };
    let signed_in = browser.visit(&world.gateway.sign_in_link, "").await;
    let public = cookie(&signed_in);
    let host = world.authority(app.port);
    let name = host.split(':').next().unwrap();
    let own = gateway_types::opaque::Opaque::random().unwrap();
    let port = world.gateway.addresses.public.port();
    let authorize =
        format!("http://localhost:{port}/.gateway/authorize?host={name}&return=/&pre={}", own.digest().encoded());
    let answer = browser.visit(&authorize, &public).await;
    assert_eq!((answer.status(), answer.header("location")), (303, Some(&*format!("http://{host}/"))));
    assert_eq!(answer.header("cross-origin-opener-policy"), Some("same-origin"));
    // What the host's own redirect began is good for one code, which its first presentation spends.
    let begun = browser.visit(&format!("http://{host}/"), "").await;
    let pre = cookie(&begun);
    let vouched = browser.visit(begun.header("location").unwrap(), &public).await;
    let callback = vouched.header("location").unwrap().to_owned();
    let lost = browser.visit(&callback, "").await;
    assert_eq!((lost.status(), lost.header("cross-origin-opener-policy")), (401, Some("same-origin")));
    assert_eq!(browser.visit(&callback, &pre).await.status(), 401, "spent");
    let again = browser.visit(begun.header("location").unwrap(), &public).await;
    assert_eq!(again.header("location"), Some(&*format!("http://{host}/")), "vouched for once");
    for path in ["/.gateway/anything", "/.gateway/callback", "/%2egateway/x"] {
        let answer = browser.visit(&format!("http://{host}{path}"), "").await;
        assert_eq!(answer.header("cross-origin-opener-policy"), Some("same-origin"), "{path}: {answer:?}");
    }
    // Pages of apps are theirs.
    let (session, _) = {
        let begun = browser.visit(&format!("http://{host}/"), "").await;
        let pre = cookie(&begun);
        let vouched = browser.visit(begun.header("location").unwrap(), &public).await;
        let arrived = browser.visit(vouched.header("location").unwrap(), &pre).await;
        (cookie(&arrived), ())
    };
    let page = browser.visit(&format!("http://{host}/"), &session).await;
    assert_eq!((page.text().as_str(), page.header("cross-origin-opener-policy")), ("in", None));
}

/// Pages of the sign-in, on either kind of host, say what every failure says: with a trace id that leads to the log and to `explain`.
#[tokio::test]
async fn failed_sign_in_has_the_facts_of_every_failure() {
    let world = World::start().await;
    let (public, port) = (world.gateway.addresses.public.port(), 4000);
    let sites = [
        (format!("http://localhost:{public}/.gateway/sign-in?code=used"), 401, "sign_in_required", "link_not_good"),
        (format!("http://{}/.gateway/callback", world.authority(port)), 400, "bad_request", "bad_request"),
    ];
    for (url, status, code, reason) in sites {
        let page = Browser { world: &world }.visit(&url, "").await;
        let field = |name: &str| page.header(name).unwrap_or_else(|| panic!("no {name}: {page:?}")).to_owned();
        assert_eq!(page.status(), status, "{page:?}");
        assert_eq!((field("gateway-error"), field("gateway-reason")), (code.to_owned(), reason.to_owned()));
        assert_eq!(field("gateway-side"), "client");
        let trace = field("gateway-trace");
        for fact in [reason, &trace, code, "client"] {
            assert!(page.text().contains(&format!("<dd>{fact}</dd>")), "{fact}: {page:?}");
        }
        let series = format!("gateway_failures_total{{code=\"{code}\",reason=\"{reason}\",side=\"client\"}}");
        assert_eq!(world.gateway.metrics().await.get(&series), Some(&1.0), "{series}");
        let mut operator = world.client().await;
        let token = &world.gateway.user_token;
        operator
            .send(format!(
                "GET /api/v1/failures/{trace} HTTP/1.1\r\nhost: localhost:{public}\r\nauthorization: Bearer {token}\r\n\r\n"
            ))
            .await;
        let explained: serde_json::Value = serde_json::from_slice(&operator.message().await.unwrap().body).unwrap();
        assert_eq!(explained["code"], code);
        assert_eq!(explained["detail"].as_str().unwrap_or(code), reason);
    }
}
