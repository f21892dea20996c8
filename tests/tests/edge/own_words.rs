//! What the gateway says itself: pages that nobody can frame or write into, answers that give nobody permission, numbers
//! that nobody outside can make grow.

use std::collections::BTreeSet;

use e2e::raw::{Message, Raw};

use super::sign_in::Browser;
use super::support::{Reply, VISIT, World, app, ok};

/// Rows 17 and 33: every page of the gateway's own, of every host.
#[tokio::test]
async fn own_pages_are_framed_and_written_into_by_nobody() {
    let world = World::start().await;
    world.gateway.agent_token("absent").await;
    let public = format!("localhost:{}", world.gateway.addresses.public.port());
    let workspace = world.authority(1);
    let (absent, foreign) = (world.gateway.authority("absent", 80), world.gateway.authority("evil-marker", 80));
    let browser = Browser { world: &world };
    let signed_in = browser.visit(&world.gateway.sign_in_link, "").await;
    let session = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let token = format!("gateway-authorization: Bearer {}\r\n", world.gateway.user_token);
    let script = "/%3Cscript%3Eevil-marker?x=%3Cscript%3Eevil-marker&return=//evil-marker&error=evil-marker";
    for (host, target, fields, expected) in [
        (&public, "/", format!("cookie: {session}\r\n"), 200),
        (&public, "/", String::new(), 401),
        (&public, script, String::new(), 404),
        (&public, "/.gateway/sign-in?code=evil-marker&host=evil-marker", String::new(), 401),
        (&public, "/.gateway/authorize?host=evil-marker", String::new(), 400),
        (&public, "/.gateway/sign-out?evil-marker", String::new(), 400),
        (&workspace, "/.gateway/callback?code=evil-marker", String::new(), 400),
        (&workspace, "/.gateway/evil-marker", String::new(), 404),
        (&workspace, script, token.clone(), 502),
        (&absent, script, token.clone(), 503),
        (&foreign, script, token.clone(), 404),
        (&workspace, script, format!("{token}x_forwarded_for: evil-marker\r\n"), 400),
    ] {
        let mut client = world.client().await;
        client.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nx-y: evil-marker\r\n{VISIT}{fields}\r\n")).await;
        let answer = client.message().await.unwrap();
        let told = format!("{host}{target}: {answer:?} {}", answer.text());
        assert_eq!(answer.status(), expected, "{told}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{told}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{told}");
        let policy = answer.header("content-security-policy").expect(&told);
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"), "{told}");
        assert!(policy.contains("base-uri 'none'") && policy.contains("form-action"), "{told}");
        // No script but the gateway's own, from a file: the list of workspaces follows what happens.
        let policy = policy.replace("script-src 'self'", "");
        assert!(!policy.contains("unsafe") && !policy.contains("script-src") && !policy.contains('*'), "{told}");
        let said = format!("{:?} {}", answer.headers, answer.text());
        let said = without_own_script(&said);
        assert!(!said.contains("evil-marker") && !said.contains("<script"), "{told}");
    }
}

/// Leaves out the one script of the gateway's own pages, whose address has its hash.
fn without_own_script(page: &str) -> String {
    match page.split_once("<script src=\"/assets/dashboard.js?v=") {
        Some((before, rest)) => {
            format!("{before}{}", rest.split_once("\" defer></script>").map_or(rest, |(_, rest)| rest))
        }
        None => page.to_owned(),
    }
}

/// Row 6: what other origins may read is the app's own word. The gateway repeats it and adds nothing, whoever asks.
#[tokio::test]
async fn gateway_gives_no_other_origin_permission_of_its_own() {
    let world = World::start().await;
    let plain = app(|_, _, _| ok("")).await;
    let open = app(|_, _, _| {
        Reply::Keep(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\naccess-control-allow-origin: https://a.example\r\n\r\n".into(),
        )
    })
    .await;
    let neighbour = format!("http://{}", world.gateway.authority("two", 3000));
    let sibling = format!("http://{}", world.authority(3000));
    let permissions = |answer: &Message| {
        let names = answer.headers.iter().filter(|(name, _)| name.starts_with("access-control"));
        names.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    for origin in ["http://evil.example", "null", &neighbour, &sibling] {
        let fields = format!("origin: {origin}\r\n");
        assert_eq!(permissions(&world.ask(plain.port, "GET /", &fields).await), [""; 0], "{origin}");
        assert_eq!(permissions(&world.ask(open.port, "GET /", &fields).await), ["https://a.example"], "{origin}");
        // Answers of the gateway's own: nothing listens, no credential, no such workspace.
        assert_eq!(permissions(&world.ask(1, "GET /", &fields).await), [""; 0], "{origin}");
        for host in [world.authority(plain.port), world.gateway.authority("none-such", 80)] {
            let mut client = world.client().await;
            client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n")).await;
            assert_eq!(permissions(&client.message().await.unwrap()), [""; 0], "{origin}");
        }
    }
}

/// Row 20: an app cannot send the gateway anywhere; a redirect is the browser's to follow, under its own rules.
#[tokio::test]
async fn redirects_of_an_app_are_followed_by_nobody() {
    let world = World::start().await;
    let victim = app(|_, _, _| ok("secret")).await;
    let port = victim.port;
    let elsewhere = world.gateway.authority("two", port);
    for status in [300, 301, 302, 303, 305, 307, 308] {
        for location in
            [format!("http://127.0.0.1:{port}/"), format!("http://localhost:{port}/"), format!("//{elsewhere}/")]
        {
            let said = location.clone();
            let hostile = app(move |_, _, _| {
                Reply::Keep(format!("HTTP/1.1 {status} X\r\nlocation: {said}\r\ncontent-length: 0\r\n\r\n"))
            })
            .await;
            for start in ["GET /", "POST /"] {
                let answer = world.ask(hostile.port, start, "").await;
                assert_eq!((answer.status(), answer.header("location")), (status, Some(location.as_str())), "{start}");
            }
            assert_eq!(hostile.seen.requests().len(), 2, "{status}");
        }
    }
    assert_eq!(victim.seen.connections(), 0);
}

/// Trap 32: a proxy in front would have to be trusted by its address; nothing is taken from whoever just says so.
#[tokio::test]
async fn address_that_a_client_claims_in_a_proxy_header_counts_for_nothing() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("in")).await;
    let get = world.head(app.port, "GET /", "");
    let two =
        [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x09\x09\x09\x09\x7f\0\0\x01\x04\0\0\x50".as_slice(), get.as_bytes()];
    for bytes in [format!("PROXY TCP4 9.9.9.9 127.0.0.1 1024 80\r\n{get}").into_bytes(), two.concat()] {
        let mut client = world.client().await;
        client.send(&bytes).await;
        let answer = String::from_utf8_lossy(&client.read_rest().await).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.matches("HTTP/1.1").count() == 1, "{answer}");
        assert_eq!(app.seen.connections(), 0);
    }
}

/// Names and labels of all series on the operator's page.
async fn series(world: &World) -> BTreeSet<String> {
    let mut admin = Raw::connect(world.gateway.addresses.admin.unwrap()).await;
    admin.send("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
    let page = admin.message().await.unwrap().text();
    assert!(page.contains("gateway_responses") && page.contains("gateway_panics"), "{page}");
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
}

/// Trap 37: labels come from the gateway's own lists.
#[tokio::test]
async fn metrics_do_not_grow_with_what_users_send() {
    let world = World::start().await;
    let app =
        app(|_, number, _| Reply::Keep(format!("HTTP/1.1 {} X\r\ncontent-length: 0\r\n\r\n", 200 + number % 400)))
            .await;
    let everything = async |round: usize| {
        let mark = format!("marker{round}");
        let mut client = world.client().await;
        for _ in 0..5 {
            client.send(world.head(app.port, &format!("{} /{mark}", mark.to_uppercase()), "")).await;
            client.message().await.unwrap();
        }
        for host in [format!("80-{mark}.localhost"), world.authority(1), format!("{mark}.example")] {
            let mut client = world.client().await;
            let token = &world.gateway.user_token;
            client
                .send(format!(
                    "GET /{mark} HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\nuser-agent: {mark}\r\n\r\n"
                ))
                .await;
            client.message().await.unwrap();
        }
    };
    everything(0).await;
    let before = series(&world).await;
    for round in 1..20 {
        everything(round).await;
    }
    let after = series(&world).await;
    assert_eq!(before, after);
    assert!(after.iter().all(|series| !series.to_ascii_lowercase().contains("marker")), "{after:?}");
}
