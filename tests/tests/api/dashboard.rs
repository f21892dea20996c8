//! Pages and forms of the dashboard: who may see and do what, and what hostile text becomes.

use e2e::browser::Browser;
use e2e::raw::Raw;
use gateway_store::wall_clock;
use gateway_types::ActualState;
use serde_json::json;

use super::support::{As, World, code};
use super::workspaces::{make, world};

pub(super) const FORM: &str = "sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n\
     content-type: application/x-www-form-urlencoded\r\naccept: text/html\r\n";

const VISIT: &str =
    "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: none\r\n";

pub(super) async fn signed_in(world: &World) -> Browser {
    let mut browser = Browser::default();
    browser.follow(&world.gateway.sign_in_link).await;
    browser
}

/// A page or an action, and the status for each caller.
struct Rule {
    method: &'static str,
    path: &'static str,
    form: &'static str,
    /// The owner, in a browser.
    owner: u16,
    /// The owner by an API token.
    token: u16,
    /// Another user, who has a share of a port, by an API token.
    share: u16,
    /// A user who may know of nothing.
    stranger: u16,
}

const fn rule(method: &'static str, path: &'static str, form: &'static str, statuses: [u16; 4]) -> Rule {
    let [owner, token, share, stranger] = statuses;
    Rule { method, path, form, owner, token, share, stranger }
}

/// All pages and actions. Pages are for browsers: a token is good for the lists and their updates, and for nothing that changes.
const RULES: [Rule; 29] = [
    rule("GET", "/", "", [200, 200, 200, 200]),
    rule("GET", "/help", "", [200, 200, 200, 200]),
    rule("GET", "/create", "", [200, 401, 401, 401]),
    rule("POST", "/create", "on=machine&name=made", [200, 401, 401, 401]),
    rule("POST", "/create", "on=cluster&name=Bad", [422, 401, 401, 401]),
    rule("GET", "/me", "", [200, 401, 401, 401]),
    rule("POST", "/me", "action=token&days=1", [200, 401, 401, 401]),
    rule("POST", "/me", "action=revoke&id=t-9999", [404, 401, 401, 401]),
    rule("GET", "/workspaces/app", "", [200, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=pin", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=unpin", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=rename&display_name=Shop", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=share&port=4000&kind=signed-in", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=revoke&port=4000&audience=signed-in", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=idle&minutes=30", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=keep", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=end-access&number=1", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=stop", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=start", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=restart", [303, 401, 401, 401]),
    rule("POST", "/workspaces/app", "action=delete", [422, 401, 401, 401]),
    // In dev mode its user is an operator.
    rule("GET", "/operator", "", [200, 401, 401, 401]),
    rule("GET", "/operator/workspaces", "", [200, 401, 401, 401]),
    rule("GET", "/operator/users", "", [200, 401, 401, 401]),
    rule("GET", "/operator/agents", "", [200, 401, 401, 401]),
    rule("GET", "/operator/refusals", "", [200, 401, 401, 401]),
    rule("GET", "/operator/audit", "", [200, 401, 401, 401]),
    rule("GET", "/operator/configuration", "", [200, 401, 401, 401]),
    rule("POST", "/operator/users", "action=disable&user=eve", [303, 401, 401, 401]),
];

#[tokio::test]
async fn every_page_and_action_is_for_those_of_the_table_and_no_other() {
    let world = world().await;
    make(&world, "app").await;
    let shares = r#"{"shares":[{"port":3000,"audience":"user:ann"}]}"#;
    world.json("PUT", "/workspaces/app/shares", &world.dev(), shares, 200).await;
    let (ann, eve, gone) = (world.user("ann").await, world.user("eve").await, world.user("gone").await);
    assert!(world.gateway.store.disable_user(&"gone".parse().unwrap(), wall_clock()).await.unwrap());
    let (other, dev) = ("else".parse().unwrap(), "dev".parse().unwrap());
    let agent = world.gateway.store.create_agent_token(&other, &dev, wall_clock()).await.unwrap();
    let agent = As::Token(agent.token.reveal().to_owned());
    let mut browser = signed_in(&world).await;
    let proof = |who: &As| match who {
        As::Token(token) => format!("authorization: Bearer {token}\r\n"),
        As::Nobody | As::Cookie(..) => String::new(),
    };
    for Rule { method, path, form, owner, token, share, stranger } in RULES {
        let what = format!("{method} {path} {form}");
        let fields = if method == "GET" { VISIT } else { FORM };
        // Callers who may not come before the one who may: what is done once cannot be done again.
        for (who, expected) in [
            (&As::Nobody, None),
            (&gone, None),
            (&agent, None),
            (&eve, Some(stranger)),
            (&ann, Some(share)),
            (&world.dev(), Some(token)),
        ] {
            let answer = world.send(method, path, &format!("{}{fields}", proof(who)), form).await;
            match expected {
                Some(expected) => assert_eq!(answer.status(), expected, "{what} as {who:?}: {}", answer.text()),
                // No page, and nothing done: a sign-in, or its failure.
                None => {
                    assert!([302, 401].contains(&answer.status()), "{what} as {who:?}: {answer:?}");
                    assert_eq!(code(&answer), "sign_in_required", "{what} as {who:?}");
                }
            }
        }
        let address = format!("http://{}{path}", world.public());
        let foreign = fields.replace("same-origin", "cross-site");
        if method == "POST" {
            assert_eq!(browser.ask(method, &address, &foreign, form).await.status(), 401, "{what} from elsewhere");
        }
        let answer = browser.ask(method, &address, fields, form).await;
        assert_eq!(answer.status(), owner, "{what} as the owner: {}", answer.text());
        assert!(owner == 303 || answer.text().contains("<!doctype html>"), "{what}: {}", answer.text());
        let policy = answer.header("content-security-policy").unwrap_or("frame-ancestors 'none'");
        assert!(policy.contains("frame-ancestors 'none'"), "{what}: {policy}");
    }
}

#[tokio::test]
async fn text_of_users_agents_and_clusters_is_text() {
    const HOSTILE: &str = "\"><img src=x onerror=alert(1)>{{7*7}}<script>";
    let world = world().await;
    make(&world, "app").await;
    world.gateway.observe("app", ActualState::Failed, Some(HOSTILE), &[]).await;
    let body = json!({"display_name": HOSTILE}).to_string();
    let detail = world.json("PATCH", "/workspaces/app", &world.dev(), &body, 200).await;
    assert_eq!(detail["display_name"], HOSTILE);
    let mut browser = signed_in(&world).await;
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("q", HOSTILE).finish();
    let site = format!("http://{}", world.public());
    let pages = ["/", "/workspaces/app", &format!("/?{query}"), &format!("/create?name={query}&devfile={query}")];
    for path in pages {
        let text = browser.visit(&format!("{site}{path}")).await.text();
        assert!(!text.contains("<img") && text.matches("<script").count() == 1, "{path}: {text}");
        assert!(!text.contains("49") || text.contains("{{7*7}}"), "{path}: {text}");
    }
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("on", "cluster")
        .append_pair("name", HOSTILE)
        .append_pair("devfile", &format!("schemaVersion: 2.2.0\ncomponents:\n  - name: '{HOSTILE}'\n"))
        .finish();
    let answer = browser.ask("POST", &format!("{site}/create"), FORM, &form).await;
    let text = answer.text();
    assert_eq!(answer.status(), 422, "{text}");
    assert!(!text.contains("<img") && text.matches("<script").count() == 1, "{text}");
}

/// Reads from a stream until it has said something.
async fn read_until(client: &mut Raw, words: &str) -> String {
    let mut text = String::new();
    while !text.contains(words) {
        let some = client.some().await;
        assert!(!some.is_empty(), "it ended: {text}");
        text.push_str(&String::from_utf8_lossy(&some));
    }
    text
}

#[tokio::test]
async fn list_has_what_changed_and_says_when_there_is_more() {
    let world = world().await;
    make(&world, "app").await;
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    let (host, token) = (world.public(), &world.gateway.user_token);
    client.send(format!("GET /live HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n")).await;
    let first = read_until(&mut client, "event: lists").await;
    assert!(first.contains("text/event-stream"), "{first}");
    world.gateway.observe("app", ActualState::Failed, Some("no room"), &[]).await;
    let rows = read_until(&mut client, "no room").await;
    assert!(rows.contains("event: rows") && rows.contains("trouble"), "{rows}");
    let refused = world.send("GET", "/live", "accept: text/event-stream\r\n", "").await;
    assert_eq!((refused.status(), code(&refused)), (401, "sign_in_required"));
}

#[tokio::test]
async fn workspace_is_handed_over_with_nothing_of_its_former_owner() {
    let world = World::start().await;
    let (ann, bob) = (world.user("ann").await, world.user("bob").await);
    let body = r#"{"name":"app","executor":"external","display_name":"Shop"}"#;
    assert_eq!(world.json("POST", "/workspaces", &ann, body, 201).await["display_name"], "Shop");
    let token = world.json("POST", "/tokens", &ann, r#"{"kind":"agent","workspace":"app"}"#, 201).await;
    let shares = r#"{"shares":[{"port":3000,"audience":"user:eve"}]}"#;
    world.json("PUT", "/workspaces/app/shares", &ann, shares, 200).await;
    let mut agent = world.gateway.start_agent(token["token"].as_str().unwrap(), Vec::new());
    world.gateway.until_connected("app").await;
    for (who, to, status) in [(&bob, "bob", 404), (&ann, "ann", 422), (&ann, "N\u{f6}", 422)] {
        let body = json!({ "to": to }).to_string();
        world.json("POST", "/workspaces/app/hand-over", who, &body, status).await;
    }
    assert_eq!(world.call("POST", "/workspaces/app/hand-over", &ann, r#"{"to":"bob"}"#).await.status(), 204);
    assert!(agent.ended().await.is_err(), "its token counts no more");
    assert_eq!(world.json("GET", "/workspaces/app", &ann, "", 404).await["code"], "not_found");
    let there = world.json("GET", "/workspaces/app", &bob, "", 200).await;
    assert_eq!((&there["access"], &there["owner"]), (&"owner".into(), &"bob".into()));
    assert_eq!(world.json("GET", "/workspaces/app/shares", &bob, "", 200).await["shares"], json!([]));
    let record = &world.audited("workspace_handed_over", 1).await[0];
    assert_eq!(
        (&record["workspace"], &record["to"], &record["by"]["user"]),
        (&"app".into(), &"bob".into(), &"ann".into())
    );
}

#[tokio::test]
async fn workspace_that_the_gateway_runs_is_not_handed_over() {
    let world = world().await;
    make(&world, "app").await;
    world.user("bob").await;
    let refused = world.json("POST", "/workspaces/app/hand-over", &world.dev(), r#"{"to":"bob"}"#, 409).await;
    assert_eq!(refused["reason"], "managed");
}

#[tokio::test]
async fn pins_and_names_are_the_owners_and_order_the_list() {
    let world = World::start().await;
    for name in ["one", "two"] {
        world.workspace(name, "dev").await;
    }
    let mut browser = signed_in(&world).await;
    let site = format!("http://{}", world.public());
    let order = |text: &str| text.find("data-name=\"two\"").unwrap() < text.find("data-name=\"one\"").unwrap();
    assert!(!order(&browser.visit(&site).await.text()));
    let pinned = browser.ask("POST", &format!("{site}/workspaces/two"), FORM, "action=pin").await;
    assert_eq!((pinned.status(), pinned.header("location")), (303, Some("/")));
    assert!(order(&browser.visit(&site).await.text()));
    let named =
        browser.ask("POST", &format!("{site}/workspaces/two"), FORM, "action=rename&display_name=My+laptop").await;
    assert_eq!(named.status(), 303);
    let text = browser.visit(&format!("{site}/?q=LAPTOP")).await.text();
    assert!(text.contains("My laptop") && !text.contains("data-name=\"one\""), "{text}");
    let long = format!("action=rename&display_name={}", "x".repeat(61));
    let refused = browser.ask("POST", &format!("{site}/workspaces/two"), FORM, &long).await;
    assert!(refused.status() == 422 && refused.text().contains("A display name has 1 to 60"), "{}", refused.text());
}
