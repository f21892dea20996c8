//! Workspaces by path on an origin of their own: what the app and the browser see, and that it is for the owner alone.

use e2e::browser::Browser;
use e2e::raw::{Message, Raw};
use gateway_config::PublicUrl;
use gateway_store::wall_clock;
use gateway_types::{Port, Share};

use super::support::{App, Reply, VISIT, World, app, ok};

/// Ports of the agent's own pages.
const OWN_PAGES: [u16; 2] = [60_002, 60_003];

async fn world() -> World {
    World::configured(|config| config.paths_url = Some(PublicUrl::parse("http://127.0.0.1").unwrap()), Vec::new()).await
}

fn origin(world: &World) -> String {
    format!("http://127.0.0.1:{}", world.gateway.addresses.public.port())
}

/// Asks on the origin of paths, with a token or without a credential.
async fn ask(world: &World, token: Option<&str>, start: &str, fields: &str) -> Message {
    let port = world.gateway.addresses.public.port();
    let credential = token.map(|token| format!("gateway-authorization: Bearer {token}\r\n")).unwrap_or_default();
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    client.send(format!("{start} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{credential}{fields}\r\n")).await;
    client.message().await.expect("an answer")
}

async fn token_of(world: &World, user: &str) -> String {
    let made = world.gateway.store.create_user_token(&user.parse().unwrap(), wall_clock()).await.unwrap();
    made.token.reveal().to_owned()
}

async fn share(world: &World, app: &App, audience: &str) {
    let share = Share { port: Port::new(app.port).unwrap(), audience: audience.parse().unwrap(), expires_at: None };
    let (name, by) = ("one".parse().unwrap(), "dev".parse().unwrap());
    assert!(world.gateway.store.share(&name, &share, &by, wall_clock()).await.unwrap());
}

fn fields(request: &Message) -> String {
    let names = ["host", "cookie", "x-forwarded-prefix", "x-forwarded-host", "origin"];
    names.map(|name| format!("{name}={}", request.header(name).unwrap_or("-"))).join(" ")
}

#[tokio::test]
async fn owner_signs_in_and_the_app_sees_its_own_paths() {
    let world = world().await;
    let app = app(|_, _, request| {
        Reply::Keep(format!(
            "HTTP/1.1 200 OK\r\nset-cookie: app=1; Path=/; Domain=0.1\r\nservice-worker-allowed: /\r\n\
             clear-site-data: \"*\"\r\ncontent-length: {}\r\n\r\n{} {}",
            request.start.len() + 1 + fields(request).len(),
            request.start,
            fields(request)
        ))
    })
    .await;
    let (origin, mut browser) = (origin(&world), Browser::default());
    browser.follow(&world.gateway.sign_in_link).await;
    let page = format!("{origin}/one/{}/a//b?x=/one/1/", app.port);
    let (end, answer) = browser.follow(&page).await;
    assert_eq!((end.as_str(), answer.status()), (page.as_str(), 200), "{answer:?}");
    let authority = origin.trim_start_matches("http://");
    let expected = format!(
        "GET /a//b?x=/one/1/ HTTP/1.1 host={authority} cookie=- x-forwarded-prefix=/one/{} x-forwarded-host={authority} origin=-",
        app.port
    );
    assert_eq!(answer.text(), expected);
    let prefix = format!("/one/{}", app.port);
    assert_eq!(answer.header("set-cookie"), Some(&*format!("app=1; Path={prefix}/")));
    assert_eq!(answer.header("service-worker-allowed"), Some(&*format!("{prefix}/")));
    assert_eq!(answer.header("clear-site-data"), None);
    let posted = browser.ask("POST", &page, &format!("origin: {origin}\r\nsec-fetch-site: same-origin\r\n"), "x").await;
    assert_eq!(posted.status(), 200, "{posted:?}");
    let foreign = browser.ask("POST", &page, "origin: http://evil.example\r\n", "x").await;
    assert_eq!(foreign.status(), 401, "no page of another origin: {foreign:?}");
}

#[tokio::test]
async fn redirects_of_the_app_and_missing_slashes_lead_below_the_prefix() {
    let world = world().await;
    let app = app(|_, _, _| {
        Reply::Keep("HTTP/1.1 302 Found\r\nlocation: /login?next=/\r\ncontent-length: 0\r\n\r\n".to_owned())
    })
    .await;
    let token = Some(&*world.gateway.user_token);
    let led = ask(&world, token, &format!("GET /one/{}/", app.port), "").await;
    assert_eq!(led.header("location"), Some(&*format!("/one/{}/login?next=/", app.port)));
    for (path, status, location) in [
        (format!("/one/{}?a=b", app.port), 307, format!("/one/{}/?a=b", app.port)),
        ("/one".to_owned(), 307, "/one/".to_owned()),
        ("/".to_owned(), 307, world.gateway.sign_in_link.split("/.gateway").next().unwrap().to_owned() + "/"),
    ] {
        let answer = ask(&world, token, &format!("GET {path}"), "").await;
        assert_eq!((answer.status(), answer.header("location")), (status, Some(&*location)), "{path}");
    }
    for nothing in ["/one/x", "/one/08080/", "/%6fne/80/", "/xn--a/80/", "/.gateway", "/.gateway/idle"] {
        let answer = ask(&world, token, &format!("GET {nothing}"), "").await;
        assert_eq!(answer.status(), 404, "{nothing}");
        assert!(answer.text().contains("\"reason\":\"no_such_page\""), "{nothing}: {}", answer.text());
    }
    let list = ask(&world, token, "GET /one/", "accept: application/json\r\n").await;
    assert!(list.text().contains("\"reason\":\"no_default_port\""), "{}", list.text());
    assert!(list.text().contains(&format!("{}/one/{}/", origin(&world), app.port)), "{}", list.text());
    assert!(OWN_PAGES.iter().all(|port| !list.text().contains(&port.to_string())), "{}", list.text());
}

#[tokio::test]
async fn nothing_is_shared_by_path() {
    let world = world().await;
    let app = app(|_, _, _| ok("in")).await;
    let path = format!("GET /one/{}/", app.port);
    let (dev, bob, eve) = (&*world.gateway.user_token, token_of(&world, "bob").await, token_of(&world, "eve").await);
    share(&world, &app, "user:bob").await;
    share(&world, &app, "signed-in").await;
    world.gateway.publish("one", app.port).await;
    assert_eq!(ask(&world, Some(dev), &path, "").await.text(), "in");
    let on_host = world.ask(app.port, "GET /", "").await;
    assert_eq!(on_host.text(), "in", "the share holds on a host of its own");
    let before = app.seen.connections();
    for token in [&bob, &eve] {
        let answer = ask(&world, Some(token), &path, "").await;
        assert_eq!((answer.status(), answer.header("gateway-error")), (404, Some("no_such_host")), "{answer:?}");
        let nowhere = ask(&world, Some(token), "GET /none-such/80/", "").await;
        assert_eq!(nowhere.header("gateway-error"), Some("no_such_host"), "as for no workspace");
        assert_eq!(ask(&world, Some(token), "GET /one/", "").await.header("gateway-error"), Some("no_such_host"));
    }
    for target in [&*path, "GET /none-such/80/", "GET /one/"] {
        let page = ask(&world, None, target, VISIT).await;
        assert_eq!((page.status(), page.header("gateway-error")), (302, Some("sign_in_required")), "{target}");
        assert_eq!(ask(&world, None, target, "").await.status(), 401, "{target}");
    }
    assert_eq!(app.seen.connections(), before, "nothing of them reached the app");
}

#[tokio::test]
async fn terminal_and_raw_bytes_have_hosts_of_their_own() {
    let world = world().await;
    let app = app(|_, _, _| ok("in")).await;
    let token = Some(&*world.gateway.user_token);
    for port in OWN_PAGES {
        let page = ask(&world, token, &format!("GET /one/{port}/"), "").await;
        assert_eq!((page.status(), page.header("gateway-error")), (403, Some("port_not_allowed")), "{page:?}");
    }
    // Raw TCP is asked for at the root of a host that names a port, and here none is.
    let tcp = ask(&world, token, "GET /.gateway/tcp", "connection: upgrade\r\nupgrade: gateway-tcp\r\n").await;
    assert_eq!(tcp.status(), 404, "{tcp:?}");
    assert!(tcp.text().contains("\"reason\":\"no_such_page\""), "{}", tcp.text());
    assert_eq!(app.seen.connections(), 0);
}

#[tokio::test]
async fn page_by_path_reaches_neither_the_api_nor_a_cookie_of_the_dashboard() {
    let world = world().await;
    let app = app(|_, _, request| ok(&fields(request))).await;
    let (origin, mut browser) = (origin(&world), Browser::default());
    browser.follow(&world.gateway.sign_in_link).await;
    browser.follow(&format!("{origin}/one/{}/", app.port)).await;
    let public = format!("http://localhost:{}", world.gateway.addresses.public.port());
    let of_page = format!("origin: {origin}\r\nreferer: {origin}/one/{}/\r\nsec-fetch-site: cross-site\r\n", app.port);
    for (method, path) in [("GET", "/api/v1/whoami"), ("DELETE", "/api/v1/sessions"), ("GET", "/live"), ("POST", "/me")]
    {
        let answer = browser.ask(method, &format!("{public}{path}"), &of_page, "").await;
        assert_eq!(answer.status(), 401, "{method} {path}: {answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
    // A cookie of one host is worth nothing at the other, in either direction.
    let stolen = browser.cookie("127.0.0.1", "gateway_session").expect("a session").to_owned();
    let mut thief = Browser::default();
    thief.plant("localhost", "gateway_session", &stolen);
    assert_eq!(thief.ask("GET", &format!("{public}/api/v1/whoami"), "", "").await.status(), 401);
    let own = browser.cookie("localhost", "gateway_session").expect("a session").to_owned();
    thief.plant("127.0.0.1", "gateway_session", &own);
    assert_eq!(thief.ask("GET", &format!("{origin}/one/{}/", app.port), "", "").await.status(), 401);
}

#[tokio::test]
async fn requests_of_one_connection_reach_the_workspace_that_each_names() {
    let world = world().await;
    let (first, second) = (app(|_, _, _| ok("first")).await, app(|_, _, _| ok("second")).await);
    let (port, token) = (world.gateway.addresses.public.port(), &world.gateway.user_token);
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    for (to, expected) in [(&first, "first"), (&second, "second"), (&first, "first")] {
        let head = format!("GET /one/{}/ HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n", to.port);
        client.send(format!("{head}gateway-authorization: Bearer {token}\r\n\r\n")).await;
        assert_eq!(client.message().await.unwrap().text(), expected);
    }
}

#[tokio::test]
async fn without_the_key_the_address_is_the_public_host_as_before() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("in")).await;
    let answer = ask(&world, Some(&world.gateway.user_token), &format!("GET /one/{}/", app.port), "").await;
    assert_eq!(answer.status(), 404, "{answer:?}");
    assert_eq!(app.seen.connections(), 0);
}
