//! CORS preflights between ports of one workspace (hole 6 of docs/defences.md).

use e2e::raw::Raw;

use super::support::{World, app, ok};

async fn asked(world: &World, host: &str, fields: &str) -> e2e::raw::Message {
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    client.send(format!("OPTIONS /api HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n")).await;
    client.message().await.unwrap()
}

#[tokio::test]
async fn preflight_from_another_port_is_answered_and_reaches_no_app() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let own = world.authority(app.port);
    for port in [3000, 1] {
        let origin = format!("http://{}", world.authority(port));
        for site in ["", "sec-fetch-site: same-site\r\n", "sec-fetch-site: cross-site\r\n"] {
            let fields = format!(
                "origin: {origin}\r\n{site}access-control-request-method: PUT\r\naccess-control-request-headers: content-type,x-own\r\n"
            );
            let answer = asked(&world, &own, &fields).await;
            assert_eq!(answer.status(), 204, "{answer:?}");
            assert_eq!(answer.header("access-control-allow-origin"), Some(origin.as_str()));
            assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
            assert_eq!(answer.header("access-control-allow-methods"), Some("PUT"));
            assert_eq!(answer.header("access-control-allow-headers"), Some("content-type, x-own"));
            assert!(answer.header("vary").unwrap().contains("origin"), "{answer:?}");
            assert_eq!(answer.header("set-cookie"), None);
        }
    }
    assert_eq!(app.seen.connections(), 0);
}

#[tokio::test]
async fn preflight_answer_does_not_tell_whether_a_workspace_exists() {
    let world = World::start().await;
    let port = world.gateway.addresses.public.port();
    let answer = async |name: &str| {
        let host = format!("8080-{name}.localhost:{port}");
        let fields = format!("origin: http://3000-{name}.localhost:{port}\r\naccess-control-request-method: GET\r\n");
        let answer = asked(&world, &host, &fields).await;
        let fields =
            answer.headers.into_iter().filter(|(name, _)| name != "access-control-allow-origin" && name != "date");
        (answer.start, fields.collect::<Vec<_>>())
    };
    assert_eq!(answer("one").await, answer("none-such").await);
}

// Row 6 (CVE-2026-55438): a neighbour's page gets nothing, however it spells itself.
#[tokio::test]
async fn preflight_from_anywhere_else_is_refused() {
    let world = World::start().await;
    let app = app(|_, _, _| ok("")).await;
    let own = world.authority(app.port);
    let port = world.gateway.addresses.public.port();
    for origin in [
        format!("http://3000-two.localhost:{port}"),
        format!("http://localhost:{port}"),
        "http://3000-one.localhost".into(),
        format!("http://3000-one.localhost:{}", port.wrapping_add(1)),
        format!("https://3000-one.localhost:{port}"),
        format!("http://3000-one.localhost:{port}/"),
        format!("http://x@3000-one.localhost:{port}"),
        format!("http://3000-one.localhost.evil.example:{port}"),
        format!("http://03000-one.localhost:{port}"),
        "null".into(),
        String::new(),
    ] {
        let answer = asked(&world, &own, &format!("origin: {origin}\r\naccess-control-request-method: GET\r\n")).await;
        assert_eq!(answer.status(), 401, "{origin}: {answer:?}");
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control")), "{answer:?}");
    }
    assert_eq!(app.seen.connections(), 0);
}

#[tokio::test]
async fn options_of_a_program_reaches_the_app() {
    let world = World::start().await;
    let app = app(|_, _, request| ok(&request.start)).await;
    let answer = world.ask(app.port, "OPTIONS /x", "").await;
    assert_eq!(answer.text(), "OPTIONS /x HTTP/1.1");
    let fields = "origin: http://evil.example\r\naccess-control-request-method: GET\r\n";
    let answer = world.ask(app.port, "OPTIONS /y", fields).await;
    assert_eq!(answer.text(), "OPTIONS /y HTTP/1.1", "with a token the app's own rules decide");
}
