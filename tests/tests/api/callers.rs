//! Every path, asked by the owner, a stranger, nobody, and a browser that another site's page makes ask.

use e2e::PATIENCE;
use e2e::stopwatch::Stopwatch;
use tunnel_proto::reason::Reason;

use super::support::{As, SAME_ORIGIN, World, code, without_trace};

/// Method, path, body, and the status for the owner.
const CALLS: [(&str, &str, &str, u16); 17] = [
    ("GET", "/whoami", "", 200),
    ("GET", "/workspaces", "", 200),
    ("GET", "/workspaces/one", "", 200),
    ("GET", "/workspaces/one/shares", "", 200),
    ("PUT", "/workspaces/one/shares", r#"{"shares":[]}"#, 200),
    ("GET", "/workspaces/one/events", "", 409),
    ("PATCH", "/workspaces/one", r#"{"desired_state":"Running"}"#, 409),
    ("GET", "/agents", "", 200),
    ("GET", "/tokens", "", 200),
    ("POST", "/tokens", r#"{"kind":"agent","workspace":"one"}"#, 201),
    ("POST", "/tokens/t-2/rotate", "{}", 201),
    ("DELETE", "/tokens/t-2", "", 204),
    ("GET", "/sessions", "", 200),
    ("DELETE", "/sessions/s-AAAAAAAAAAAAAAAA", "", 404),
    ("DELETE", "/workspaces/one", "", 204),
    ("GET", "/openapi.json", "", 200),
    ("DELETE", "/sessions", "", 204),
];

/// Paths that belong to nobody in particular: a stranger has their own behind them.
fn is_of_everybody(path: &str) -> bool {
    matches!(path, "/whoami" | "/workspaces" | "/agents" | "/tokens" | "/sessions" | "/openapi.json")
}

#[tokio::test]
async fn owner_may_and_a_stranger_is_told_that_there_is_nothing() {
    let world = World::start().await;
    world.workspace("one", "dev").await;
    let eve = world.user("eve").await;
    for (method, path, body, status) in CALLS {
        let by_eve = world.call(method, path, &eve, body).await;
        if is_of_everybody(path) && !body.contains("one") {
            assert_eq!(by_eve.status(), status, "{method} {path}");
            assert!(!by_eve.text().contains("\"one\""), "{method} {path}: {}", by_eve.text());
        } else {
            assert_eq!((by_eve.status(), code(&by_eve)), (404, "not_found"), "{method} {path}");
        }
        let by_dev = world.call(method, path, &world.dev(), body).await;
        assert_eq!(by_dev.status(), status, "{method} {path}: {}", by_dev.text());
    }
}

#[tokio::test]
async fn nobody_learns_nothing_but_what_there_is_to_ask() {
    let world = World::start().await;
    world.workspace("one", "dev").await;
    let agent = As::Token(world.gateway.agent_token("one").await);
    let made_up = As::Token(format!("gwu_{}", "A".repeat(49)));
    for (method, path, body, _) in CALLS {
        for who in [&As::Nobody, &agent, &made_up] {
            let answer = world.call(method, path, who, body).await;
            if path == "/openapi.json" {
                assert_eq!(answer.status(), 200);
            } else {
                assert_eq!((answer.status(), code(&answer)), (401, "sign_in_required"), "{method} {path} {who:?}");
                assert!(answer.header("www-authenticate").is_some());
            }
        }
    }
}

#[tokio::test]
async fn cookie_speaks_for_the_page_itself_and_for_no_other_site() {
    let world = World::start().await;
    world.workspace("one", "dev").await;
    let cookie = world.browser().await;
    let foreign = [
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\naccept: text/html\r\n",
        "origin: https://evil.example\r\n",
        "origin: null\r\n",
        "origin: http://3000-one.localhost\r\n",
    ];
    for (method, path, body, status) in CALLS.into_iter().filter(|(_, path, ..)| *path != "/openapi.json") {
        for site in foreign {
            let answer = world.call(method, path, &As::Cookie(cookie.clone(), site), body).await;
            assert_eq!((answer.status(), code(&answer)), (401, "sign_in_required"), "{method} {path} {site}");
        }
        let unstated = world.call(method, path, &As::Cookie(cookie.clone(), ""), body).await;
        let may_read = method == "GET";
        assert_eq!(unstated.status() == 401, !may_read, "{method} {path} without a word on where it comes from");
        let own = world.call(method, path, &As::Cookie(cookie.clone(), SAME_ORIGIN), body).await;
        assert_eq!(own.status(), status, "{method} {path}");
        assert_eq!(own.header("access-control-allow-origin"), None);
        assert_eq!(own.header("cross-origin-resource-policy"), Some("same-origin"));
    }
    let origin: &'static str = Box::leak(format!("origin: http://{}\r\n", world.public()).into_boxed_str());
    let old = world.call("DELETE", "/sessions", &As::Cookie(cookie, origin), "").await;
    assert_eq!(old.status(), 401, "the session has ended with the last call above");
}

// "No such workspace" and "not yours" are the same answer, byte for byte but for the trace id.
#[tokio::test]
async fn what_is_not_there_and_what_is_not_yours_are_the_same_answer() {
    let world = World::start().await;
    world.workspace("secret", "dev").await;
    let eve = world.user("eve").await;
    let theirs = world.gateway.store.list_tokens().await.unwrap()[0].id;
    for (method, path, body) in [
        ("GET", "/workspaces/NAME", ""),
        ("HEAD", "/workspaces/NAME", ""),
        ("GET", "/workspaces/NAME/events", ""),
        ("PATCH", "/workspaces/NAME", r#"{"desired_state":"Stopped"}"#),
        ("DELETE", "/workspaces/NAME", ""),
        ("GET", "/workspaces/NAME/shares", ""),
        ("PUT", "/workspaces/NAME/shares", r#"{"shares":[]}"#),
        ("PUT", "/workspaces/NAME/shares", r#"{"shares":[{"port":0}]}"#),
        ("DELETE", "/tokens/ID", ""),
        ("POST", "/tokens/ID/rotate", "{}"),
        ("DELETE", "/sessions/SESSION", ""),
    ] {
        let ask = async |name: &str, id: &str, session: &str| {
            let fill = |text: &str| text.replace("NAME", name).replace("ID", id).replace("SESSION", session);
            let answer = world.call(method, &fill(path), &eve, &fill(body)).await;
            assert_eq!(answer.status(), 404, "{method} {path}: {}", answer.text());
            without_trace(&answer)
        };
        let not_yours = ask("secret", &theirs.to_string(), "s-AAAAAAAAAAAAAAAA").await;
        assert_eq!(not_yours, ask("absent", "t-999999", "s-BBBBBBBBBBBBBBBB").await, "{method} {path}");
        assert_eq!(not_yours, ask("NO-NAME", "nonsense", "nonsense").await, "{method} {path}");
    }
}

#[tokio::test]
async fn workspaces_are_listed_for_those_they_are_shared_with_and_page_by_page() {
    let world = World::start().await;
    for number in 0..7 {
        world.workspace(&format!("mine-{number}"), "ann").await;
    }
    for (name, audience) in
        [("by-name", "user:ann"), ("by-group", "group:devs"), ("to-all", "signed-in"), ("open", "public")]
    {
        world.workspace(name, "dev").await;
        let body = format!(r#"{{"shares":[{{"port":80,"audience":"{audience}"}}]}}"#);
        world.json("PUT", &format!("/workspaces/{name}/shares"), &world.dev(), &body, 200).await;
    }
    let ann = world.user("ann").await;
    let (mut names, mut path, mut pages) = (Vec::new(), "/workspaces?limit=3".to_owned(), 0);
    loop {
        let page = world.json("GET", &path, &ann, "", 200).await;
        pages += 1;
        let rows = page["workspaces"].as_array().unwrap();
        names.extend(rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), row["access"].clone())));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/workspaces?limit=3&cursor={cursor}");
    }
    let own = (0..7).map(|number| (format!("mine-{number}"), "owner".into()));
    let expected: Vec<_> = std::iter::once(("by-name".to_owned(), "shared".into())).chain(own).collect();
    assert_eq!((names, pages), (expected, 3));
    assert_eq!(world.call("GET", "/workspaces/by-name", &ann, "").await.status(), 200);
    for unknown in ["by-group", "to-all", "open"] {
        assert_eq!(world.call("GET", &format!("/workspaces/{unknown}"), &ann, "").await.status(), 404, "{unknown}");
    }
    let shares = world.call("GET", "/workspaces/by-name/shares", &ann, "").await;
    assert_eq!((shares.status(), code(&shares)), (403, "forbidden"), "she may know of it, and not who else may");
}

#[tokio::test]
async fn stranger_sees_of_a_shared_workspace_only_what_is_shared() {
    let world = World::start().await;
    let _agent = world.gateway.agent_with("one", ports(&[3000, 4000])).await;
    let body = r#"{"shares":[{"port":3000,"audience":"user:ann"},{"port":4000,"audience":"user:bob"}]}"#;
    world.json("PUT", "/workspaces/one/shares", &world.dev(), body, 200).await;
    let seen = world.json("GET", "/workspaces/one", &world.user("ann").await, "", 200).await;
    assert_eq!(seen["agent"]["ports"].as_array().unwrap().len(), 1);
    assert_eq!(seen["agent"]["ports"][0]["port"], 3000);
    assert_eq!((&seen["agent"]["version"], &seen["agent"]["default_port"]), (&serde_json::Value::Null, &3000.into()));
    assert!(!seen.to_string().contains("bob") && !seen.to_string().contains("4000"), "{seen}");
    let seen = world.json("GET", "/workspaces/one", &world.dev(), "", 200).await;
    assert_eq!((seen["agent"]["ports"].as_array().unwrap().len(), &seen["connected"]), (2, &true.into()));
}

#[tokio::test]
async fn owner_is_told_when_and_why_the_agent_was_disconnected_last() {
    let world = World::start().await;
    let agent = world.gateway.agent_with("one", ports(&[3000])).await;
    let body = r#"{"shares":[{"port":3000,"audience":"user:ann"}]}"#;
    world.json("PUT", "/workspaces/one/shares", &world.dev(), body, 200).await;
    let (dev, ann) = (world.dev(), world.user("ann").await);
    let shown = async |caller: &As| world.json("GET", "/workspaces/one", caller, "", 200).await;
    assert_eq!(shown(&dev).await["last_disconnect"], serde_json::Value::Null);
    assert_eq!(shown(&dev).await["agent"]["via"], "http2");
    assert_eq!(shown(&ann).await["agent"]["via"], serde_json::Value::Null);
    agent.stop().await;
    let stopwatch = Stopwatch::start();
    let last = loop {
        let last = shown(&dev).await["last_disconnect"].clone();
        if last.is_object() {
            break last;
        }
        assert!(stopwatch.elapsed() < PATIENCE, "no record of it");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(last["reason"], Reason::Shutdown.text(), "{last}");
    assert!(last["at"].as_str().unwrap().ends_with('Z'), "{last}");
    assert_eq!(shown(&ann).await["last_disconnect"], serde_json::Value::Null, "a share does not tell it");
}

fn ports(numbers: &[u16]) -> Vec<tunnel_proto::hello::Port> {
    use tunnel_proto::hello::{AppProtocol, HostMode, Port};
    numbers
        .iter()
        .map(|number| Port { number: *number, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false })
        .collect()
}
