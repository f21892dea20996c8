//! From a host of a workspace that is stopped to its page, to its start, and back to where somebody wanted to go.

use e2e::browser::Browser;
use e2e::raw::{Message, RawApp};
use gateway_config::PublicUrl;
use gateway_types::ActualState;
use serde_json::Value;

use super::support::{As, World, code};
use super::workspaces::{OPEN, make, world};

/// What a browser says of a form that the page itself sends.
const FORM: &str = "sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n\
     content-type: application/x-www-form-urlencoded\r\naccept: text/html\r\n";

/// What a browser says of a link on another host's page.
const VISIT: &str =
    "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: cross-site\r\n";

async fn signed_in(world: &World) -> Browser {
    let mut browser = Browser::default();
    browser.follow(&world.gateway.sign_in_link).await;
    browser
}

fn address(world: &World, port: u16, path: &str) -> String {
    format!("http://{}{path}", world.gateway.authority("app", port))
}

/// Returns the address behind the words of a link.
fn link(page: &Message, words: &str) -> String {
    let text = page.text();
    let before = text.split(&format!("\">{words}</a>")).next().unwrap();
    assert_ne!(before.len(), text.len(), "{words}: {text}");
    before.rsplit("href=\"").next().unwrap().replace("&amp;", "&")
}

/// Returns what the form of a page would send for a button.
fn form(page: &Message, action: &str) -> String {
    let text = page.text();
    let button = format!("<button name=\"action\" value=\"{action}\">");
    assert!(text.contains(&button), "{action}: {text}");
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    for input in text.split("<input type=\"hidden\" name=\"").skip(1) {
        let (name, rest) = input.split_once("\" value=\"").unwrap();
        let value = rest.split('"').next().unwrap();
        let value = value.replace("&#39;", "'").replace("&#34;", "\"").replace("&#60;", "<").replace("&#38;", "&");
        body.append_pair(name, &value);
    }
    body.append_pair("action", action).finish()
}

async fn press(world: &World, browser: &mut Browser, page: &Message, action: &str) -> (u16, String) {
    let pressed =
        browser.ask("POST", &format!("http://{}/workspaces/app", world.public()), FORM, &form(page, action)).await;
    (pressed.status(), pressed.header("location").unwrap_or_default().to_owned())
}

async fn stop(world: &World) {
    make(world, "app").await;
    world.json("PATCH", "/workspaces/app", &world.dev(), r#"{"desired_state":"Stopped"}"#, 200).await;
    world.gateway.observe("app", ActualState::Stopped, None, &[]).await;
}

#[tokio::test]
async fn owner_starts_a_stopped_workspace_from_its_host_and_gets_back_there() {
    let world = world().await;
    stop(&world).await;
    let app = RawApp::mirror().await;
    let mut browser = signed_in(&world).await;
    let wanted = address(&world, app.port, "/a/b?c=d&e=%2F'%22<");
    let (at, stopped) = browser.follow(&wanted.replace('<', "%3C")).await;
    assert_eq!((stopped.status(), code(&stopped)), (503, "workspace_stopped"), "{at}: {}", stopped.text());
    assert!(stopped.text().contains("Workspace stopped"));
    let start = link(&stopped, "Start it");
    assert_eq!(start, format!("http://{}/workspaces/app?host={}-app.localhost", world.public(), app.port));
    assert!(!stopped.text().contains("/a/b"), "nothing of the request is repeated: {}", stopped.text());

    // The browser says where the link was; the page of a failure allows it that once.
    assert!(stopped.text().contains("referrerpolicy=\"unsafe-url\""), "{}", stopped.text());
    let page = browser.ask("GET", &start, &format!("{VISIT}referer: {at}\r\n"), "").await;
    assert_eq!(page.status(), 200, "{}", page.text());
    assert!(
        page.text().contains("</span> stopped <span class=\"hint\">(<span id=\"state\">Stopped")
            && page.text().contains("Its storage is kept"),
        "{}",
        page.text()
    );
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 2, "to look starts nothing");
    let (status, next) = press(&world, &mut browser, &page, "start").await;
    assert_eq!(status, 303, "{next}");
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 3);
    let next = format!("http://{}{next}", world.public());

    world.gateway.observe("app", ActualState::Starting, Some("Pulling image <b>"), &[]).await;
    let page = browser.visit(&next).await;
    assert_eq!(page.status(), 200);
    let text = page.text();
    assert!(text.contains("Pulling image &#60;b&#62;") && text.contains("http-equiv=\"refresh\""), "{text}");
    assert!(text.contains("data-back=\"") && text.contains("<script src=\"/assets/dashboard.js?v="), "{text}");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("script-src 'self'") && policy.contains("connect-src 'self'"), "{policy}");

    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    assert_eq!(browser.visit(&next).await.status(), 200, "its agent is not there yet");
    let _agent = world.gateway.agent("app").await;
    let back = browser.visit(&next).await;
    assert_eq!((back.status(), back.header("location")), (303, Some(&*at)));
    let (_, answer) = browser.follow(back.header("location").unwrap()).await;
    assert_eq!((answer.status(), code(&answer)), (200, ""), "{}", answer.text());
    let started = world.audited("workspace_requested", 2).await;
    assert_eq!((&started[1]["how"], &started[1]["credential"]["kind"]), (&"start".into(), &"session".into()));
}

#[tokio::test]
async fn visitor_gets_back_once_the_app_listens_even_before_the_cluster_calls_it_running() {
    let world = world().await;
    stop(&world).await;
    let app = RawApp::mirror().await;
    let mut browser = signed_in(&world).await;
    let place = |port: u16| {
        let host = world.gateway.authority("app", port);
        let host = host.split(':').next().unwrap().to_owned();
        format!("http://{}/workspaces/app?host={host}&return=%2Fx&follow=1", world.public())
    };
    let status = async |browser: &mut Browser, port: u16| browser.visit(&place(port)).await.status();
    let agent = world.gateway.agent("app").await;
    assert_eq!(status(&mut browser, app.port).await, 200, "it is to be stopped, whatever still runs");
    world.json("PATCH", "/workspaces/app", &world.dev(), r#"{"desired_state":"Running"}"#, 200).await;
    assert_eq!(status(&mut browser, app.port).await, 200, "nothing was started yet");
    world.gateway.observe("app", ActualState::Starting, None, &[]).await;
    assert_eq!(status(&mut browser, app.port).await, 303);
    assert_eq!(status(&mut browser, 9).await, 200, "nothing listens there");
    drop(agent);
}

#[tokio::test]
async fn programs_and_other_users_are_told_that_it_is_stopped_and_offered_nothing() {
    let world = world().await;
    stop(&world).await;
    let share = r#"{"shares":[{"port":3000,"audience":"user:ann"}]}"#;
    world.json("PUT", "/workspaces/app/shares", &world.dev(), share, 200).await;
    let (As::Token(ann), As::Token(dev)) = (world.user("ann").await, world.dev()) else { unreachable!() };
    for (token, accept) in [(&dev, "*/*"), (&ann, "*/*"), (&ann, "text/html")] {
        let mut raw = e2e::raw::Raw::connect(world.gateway.addresses.public).await;
        let host = world.gateway.authority("app", 3000);
        raw.send(format!(
            "GET /x HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\naccept: {accept}\r\n\r\n"
        ))
        .await;
        let answer = raw.message().await.unwrap();
        assert_eq!((answer.status(), code(&answer)), (503, "workspace_stopped"), "{}", answer.text());
        assert!(!answer.text().contains("Start it"), "{}", answer.text());
        if accept == "*/*" {
            let problem: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!((&problem["code"], &problem["status"]), (&"workspace_stopped".into(), &503.into()));
        }
    }
}

#[tokio::test]
async fn workspace_that_runs_without_its_agent_is_not_called_stopped() {
    let world = world().await;
    make(&world, "app").await;
    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    world.workspace("external", "dev").await;
    for name in ["app", "external"] {
        let mut raw = e2e::raw::Raw::connect(world.gateway.addresses.public).await;
        let (host, token) = (world.gateway.authority(name, 3000), &world.gateway.user_token);
        raw.send(format!("GET /x HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
        assert_eq!(code(&raw.message().await.unwrap()), "agent_absent", "{name}");
    }
}

#[tokio::test]
async fn page_is_its_owners_and_its_buttons_are_pressed_by_nobody_elses_page() {
    let world = world().await;
    stop(&world).await;
    world.gateway.configured_cluster("one", "enabled: true\n").await;
    let ann = world.user("ann").await;
    world.json("POST", "/workspaces", &ann, &super::workspaces::wanted("anns"), 201).await;
    world.workspace("external", "dev").await;
    let mut browser = signed_in(&world).await;
    let page = async |browser: &mut Browser, name: &str| {
        let answer = browser.visit(&format!("http://{}/workspaces/{name}", world.public())).await;
        (answer.status(), code(&answer).to_owned())
    };
    assert_eq!(page(&mut browser, "app").await, (200, String::new()));
    assert_eq!(page(&mut browser, "anns").await, (404, "not_found".to_owned()));
    assert_eq!(page(&mut browser, "absent").await, (404, "not_found".to_owned()));
    assert_eq!(page(&mut browser, "NO-NAME").await, (404, "not_found".to_owned()));
    assert_eq!(page(&mut browser, "external").await, (200, String::new()));
    let (status, code_of_nobody) = page(&mut Browser::default(), "app").await;
    assert!(status >= 400, "{status} {code_of_nobody}: nobody is signed in");

    let to = format!("http://{}/workspaces/app", world.public());
    let content = "content-type: application/x-www-form-urlencoded\r\n";
    for site in [
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\naccept: text/html\r\n",
        "sec-fetch-site: same-site\r\n",
        "origin: http://3000-app.localhost\r\n",
        "",
    ] {
        let pressed = browser.ask("POST", &to, &format!("{site}{content}"), "action=start").await;
        assert_eq!((pressed.status(), code(&pressed)), (401, "sign_in_required"), "{site:?}");
    }
    for body in ["", "action=terminate", "action=start&action=stop"] {
        let pressed = browser.ask("POST", &to, FORM, body).await;
        assert_eq!((pressed.status(), code(&pressed)), (400, "bad_request"), "{body}");
    }
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 2);
}

#[tokio::test]
async fn way_back_leads_to_a_host_of_the_workspace_and_nowhere_else() {
    let world = world().await;
    make(&world, "app").await;
    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    let _agent = world.gateway.agent("app").await;
    let mut browser = signed_in(&world).await;
    let open = async |browser: &mut Browser, query: &str| {
        let answer = browser.visit(&format!("http://{}/workspaces/app?{query}", world.public())).await;
        answer.header("location").map(str::to_owned)
    };
    let port = world.gateway.addresses.public.port();
    let back = open(&mut browser, "host=3000-app.localhost&return=%2Fx&follow=1").await;
    assert_eq!(back, Some(format!("http://3000-app.localhost:{port}/x")));
    assert_eq!(open(&mut browser, "host=3000-app.localhost&return=%2Fx").await, None, "nobody waits");
    let root = open(&mut browser, "host=app.localhost&return=%2F%2Fevil.example&follow=1").await;
    assert_eq!(root, Some(format!("http://app.localhost:{port}/")));
    for host in [
        "evil.example",
        "other.localhost",
        "localhost",
        "app.localhost.evil.example",
        "APP.localhost",
        "app.localhost:1",
    ] {
        assert_eq!(open(&mut browser, &format!("host={host}&return=%2F&follow=1")).await, None, "{host}");
    }
}

#[tokio::test]
async fn way_back_by_path_leads_to_the_workspace_that_was_started_and_to_no_other() {
    let paths = PublicUrl::parse("http://127.0.0.1").unwrap();
    let world = World::configured(|config| config.paths_url = Some(paths)).await;
    world.gateway.configured_cluster("one", OPEN).await;
    stop(&world).await;
    let app = RawApp::mirror().await;
    let mut browser = signed_in(&world).await;
    let origin = format!("http://127.0.0.1:{}", world.gateway.addresses.public.port());
    let (at, stopped) = browser.follow(&format!("{origin}/app/{}/a?b=c", app.port)).await;
    assert_eq!((stopped.status(), code(&stopped)), (503, "workspace_stopped"), "{at}: {}", stopped.text());
    let start = link(&stopped, "Start it");
    assert_eq!(start, format!("http://{}/workspaces/app?host=127.0.0.1&return=/app/{}/", world.public(), app.port));
    let page = browser.ask("GET", &start, &format!("{VISIT}referer: {at}\r\n"), "").await;
    let (status, next) = press(&world, &mut browser, &page, "start").await;
    assert_eq!(status, 303, "{next}");
    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    let _agent = world.gateway.agent("app").await;
    let back = browser.visit(&format!("http://{}{next}", world.public())).await;
    assert_eq!((back.status(), back.header("location")), (303, Some(&*at)));
    for query in
        ["host=127.0.0.1&return=/two/3000/", "host=127.0.0.1&return=/", "host=127.0.0.1&return=//evil.example/"]
    {
        let elsewhere = browser.visit(&format!("http://{}/workspaces/app?{query}&follow=1", world.public())).await;
        assert_eq!(elsewhere.header("location"), None, "{query}");
    }
    // The owner's addresses are by path, and the pattern for those with a share is not.
    let detail = world.json("GET", "/workspaces/app", &world.dev(), "", 200).await;
    assert_eq!(detail["url"], format!("{origin}/app/"));
    assert_eq!(detail["path_url"], format!("{origin}/app/{{port}}/"));
    assert!(detail["port_url"].as_str().unwrap().starts_with("http://{port}-app.localhost:"), "{detail}");
}

#[tokio::test]
async fn list_shows_states_and_has_buttons_without_a_script() {
    let world = world().await;
    stop(&world).await;
    world.workspace("external", "dev").await;
    let mut browser = signed_in(&world).await;
    let list = browser.visit(&format!("http://{}/", world.public())).await;
    let text = list.text();
    assert!(text.contains("</span> stopped</p>") && text.contains(">external</a></h3>"), "{text}");
    // The page's own script, which it works without, and no other.
    assert!(text.contains("action=\"/workspaces/app\"") && text.matches("<script").count() == 1, "{text}");
    let (status, next) = press(&world, &mut browser, &list, "start").await;
    assert_eq!((status, next.as_str()), (303, "/workspaces/app?follow=1"));
    world.gateway.observe("app", ActualState::Failed, Some("<i>quota</i>"), &[]).await;
    let text = browser.visit(&format!("http://{}/", world.public())).await.text();
    assert!(text.contains("&#60;i&#62;quota") && text.contains("Start again"), "{text}");
}
