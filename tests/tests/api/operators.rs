//! Who is an operator, and what operators see and change of all users.

use std::time::Duration;

use e2e::PATIENCE;
use e2e::raw::{Message, Raw};
use gateway_store::wall_clock;
use gateway_types::DesiredState;
use serde_json::Value;

use super::support::{As, SAME_ORIGIN, World, code};

/// Every path that is for operators, with a good body.
const PATHS: [(&str, &str, &str); 11] = [
    ("GET", "/admin/workspaces", ""),
    ("GET", "/admin/users", ""),
    ("GET", "/admin/agents", ""),
    ("GET", "/admin/clusters", ""),
    ("GET", "/admin/audit", ""),
    ("GET", "/admin/refusals", ""),
    ("GET", "/admin/limits", ""),
    ("GET", "/admin/config", ""),
    ("GET", "/admin/health", ""),
    ("POST", "/admin/users/ann/enable", ""),
    ("POST", "/admin/users/ann/disable", r#"{"stop":false}"#),
];

/// Texts that mean something to a database, a shell, a page or a log, and nothing here.
const HOSTILE: [&str; 9] =
    ["%25", "_", "'", "%27%20OR%201=1--", "%5C", "*", "%3Cscript%3E", "%F0%9F%A6%80", "%22%7D%2C%7B"];

/// A gateway with an operator by name and a group of operators.
async fn world() -> World {
    World::configured(|config| {
        config.auth.admins = vec!["olga".parse().unwrap(), "otto".parse().unwrap()];
        config.auth.admin_group = Some("platform".parse().unwrap());
    })
    .await
}

/// Makes a user who signed in with groups, and their token.
async fn member(world: &World, name: &str, groups: &[&str]) -> As {
    let groups: Vec<_> = groups.iter().map(|group| group.parse().unwrap()).collect();
    let (name, subject) = (name.parse().unwrap(), format!("subject of {name}"));
    world.gateway.store.admit("https://id.example", &subject, &name, &groups, wall_clock()).await.unwrap();
    world.user(name.as_str()).await
}

/// Makes a workspace of a user in a cluster.
async fn managed(world: &World, name: &str, owner: &As) {
    let body = format!(r#"{{"name":"{name}","executor":"kubernetes","agent":"one"}}"#);
    world.json("POST", "/workspaces", owner, &body, 201).await;
}

/// Visits a port of a workspace with a token.
async fn visit(world: &World, workspace: &str, who: &As) -> Message {
    let As::Token(token) = who else { panic!("{who:?}") };
    let mut client = Raw::connect(world.gateway.addresses.public).await;
    let host = world.gateway.authority(workspace, 3000);
    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n")).await;
    client.message().await.expect("an answer")
}

/// Asks until the answer has a status.
async fn until_status(world: &World, path: &str, who: &As, status: u16) {
    let asked = async {
        while world.call("GET", path, who, "").await.status() != status {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, asked).await.is_ok(), "waited in vain: {path} {status}");
}

fn names(list: &Value, name: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|row| row[name].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn operators_are_named_or_in_the_group_and_no_other_is() {
    let world = world().await;
    let (ann, eve) = (member(&world, "ann", &["devs"]).await, world.user("eve").await);
    let (olga, gina) = (world.user("olga").await, member(&world, "gina", &["devs", "platform"]).await);
    let otto = world.user("otto").await;
    world.gateway.store.disable_user(&"otto".parse().unwrap(), wall_clock()).await.unwrap();
    let agent = As::Token(world.gateway.agent_token("one").await);
    let job = As::Token("eyJhbGciOiJub25lIn0.e30.".to_owned());
    let made_up = As::Token(format!("gwu_{}", "A".repeat(49)));
    let cookie = world.browser().await;
    let table = [
        ("no sign-in", As::Nobody, 401),
        ("a user", ann, 403),
        ("another user", eve, 403),
        ("the user of dev mode", world.dev(), 200),
        ("an operator by name, with a token", olga, 200),
        ("an operator by group, with a token", gina, 200),
        ("a disabled operator", otto, 401),
        ("an agent", agent, 401),
        ("a CI job", job, 401),
        ("a token that was made up", made_up, 401),
        ("an operator's browser", As::Cookie(cookie.clone(), SAME_ORIGIN), 200),
        ("another site's page in it", As::Cookie(cookie.clone(), "sec-fetch-site: cross-site\r\n"), 401),
        ("a link to it", As::Cookie(cookie, "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n"), 401),
    ];
    for (who, caller, status) in &table {
        for (method, path, body) in PATHS {
            let answer = world.call(method, path, caller, body).await;
            assert_eq!(answer.status(), *status, "{who}: {method} {path}: {}", answer.text());
            if *status == 403 {
                assert_eq!((code(&answer), answer.text().contains("not_an_operator")), ("forbidden", true), "{who}");
            }
        }
        let is_known = *status != 401;
        let told = world.call("GET", "/whoami", caller, "").await;
        assert_eq!(told.status() == 200, is_known, "{who}");
        if is_known {
            let told: Value = serde_json::from_slice(&told.body).unwrap();
            assert_eq!(told["is_operator"], *status == 200, "{who}");
        }
    }
    let changes = world.audited("user_changed", 2 * 4).await;
    let by: Vec<_> = changes.iter().map(|record| record["by"]["user"].as_str().unwrap()).collect();
    assert_eq!(by, ["dev", "dev", "olga", "olga", "gina", "gina", "dev", "dev"], "and nothing by any other");
}

#[tokio::test]
async fn group_counts_until_the_next_sign_in_without_it() {
    let world = world().await;
    let gina = member(&world, "gina", &["platform"]).await;
    world.json("GET", "/admin/users", &gina, "", 200).await;
    member(&world, "gina", &["devs"]).await;
    until_status(&world, "/admin/users", &gina, 403).await;
}

#[tokio::test]
async fn disabled_user_is_cut_and_what_runs_for_them_stops() {
    let world = world().await;
    world.gateway.configured_cluster("one", "enabled: true\n").await;
    let (ann, olga) = (world.user("ann").await, world.user("olga").await);
    managed(&world, "first", &ann).await;
    managed(&world, "second", &ann).await;
    managed(&world, "others", &world.user("bob").await).await;
    world.json("PATCH", "/workspaces/second", &ann, r#"{"desired_state":"Stopped"}"#, 200).await;
    let rows = world.json("GET", "/admin/users?q=AN", &olga, "", 200).await;
    assert_eq!((&rows["users"][0]["name"], &rows["users"][0]["workspaces"]), (&"ann".into(), &2.into()));
    for (body, status) in [(r#"{"stop":1}"#, 422), (r#"{"halt":true}"#, 422), ("[", 400)] {
        world.json("POST", "/admin/users/ann/disable", &olga, body, status).await;
    }
    let yourself = world.json("POST", "/admin/users/olga/disable", &olga, "", 409).await;
    assert_eq!(yourself["reason"], "yourself");
    world.json("POST", "/admin/users/unknown/disable", &olga, "", 404).await;
    let done = world.json("POST", "/admin/users/ann/disable", &olga, r#"{"stop":true}"#, 200).await;
    assert_eq!((&done["state"], &done["stopped"]), (&"disabled".into(), &serde_json::json!(["first"])));
    assert_eq!(done["not_stopped"], serde_json::json!([]));
    let desired = async |name: &str| {
        world.gateway.store.managed(&name.parse().unwrap()).await.unwrap().unwrap().lifecycle.desired
    };
    assert_eq!(desired("first").await, DesiredState::Stopped);
    assert_eq!(desired("others").await, DesiredState::Running, "of another user");
    until_status(&world, "/whoami", &ann, 401).await;
    let changed = &world.audited("user_changed", 1).await[0];
    assert_eq!(
        (&changed["by"]["user"], &changed["user"], &changed["how"]),
        (&"olga".into(), &"ann".into(), &"disabled".into())
    );
    let stopped = world.audit().into_iter().filter(|record| record["event"] == "workspace_requested");
    let stopped: Vec<_> = stopped.map(|record| (record["by"]["user"].clone(), record["workspace"].clone())).collect();
    assert_eq!(stopped, [("ann".into(), "second".into()), ("olga".into(), "first".into())]);
    let rows = world.json("GET", "/admin/users?state=disabled", &olga, "", 200).await;
    assert_eq!(names(&rows["users"], "name"), ["ann"]);
    world.json("POST", "/admin/users/ann/enable", &olga, "", 200).await;
    until_status(&world, "/whoami", &ann, 200).await;
    assert_eq!(desired("first").await, DesiredState::Stopped, "what was stopped stays stopped");
}

#[tokio::test]
async fn workspaces_of_all_users_are_listed_page_by_page_and_found() {
    let world = world().await;
    world.gateway.configured_cluster("one", "enabled: true\n").await;
    let (ann, olga) = (world.user("ann").await, world.user("olga").await);
    managed(&world, "app-a", &ann).await;
    world.gateway.observe("app-a", gateway_types::ActualState::Failed, Some("image not found"), &[]).await;
    for number in 0..4 {
        world.workspace(&format!("ext-{number}"), "bob").await;
    }
    let _agent = world.gateway.agent("mine").await;
    let (mut found, mut path) = (Vec::new(), "/admin/workspaces?limit=2".to_owned());
    loop {
        let page = world.json("GET", &path, &olga, "", 200).await;
        assert!(page["workspaces"].as_array().unwrap().len() <= 2);
        found.extend(page["workspaces"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/admin/workspaces?limit=2&cursor={cursor}");
    }
    assert_eq!(names(&found.clone().into(), "name"), ["app-a", "ext-0", "ext-1", "ext-2", "ext-3", "mine"]);
    let row = &found[0];
    assert_eq!((&row["state"], &row["reason"]), (&"Failed".into(), &"image not found".into()));
    assert_eq!((&row["owner"], &row["cluster"], &row["connected"]), (&"ann".into(), &"one".into(), &false.into()));
    assert_eq!((&found[5]["connected"], &found[5]["state"]), (&true.into(), &Value::Null));
    for (query, expected) in [
        ("q=EXT-1", vec!["ext-1"]),
        ("q=ann", vec!["app-a"]),
        ("state=Failed", vec!["app-a"]),
        ("state=Running", vec![]),
        ("owner=bob&q=3", vec!["ext-3"]),
        ("owner=&state=&q=mine", vec!["mine"]),
    ] {
        let list = world.json("GET", &format!("/admin/workspaces?{query}"), &olga, "", 200).await;
        assert_eq!(names(&list["workspaces"], "name"), expected, "{query}");
    }
    let agents = world.json("GET", "/admin/agents", &olga, "", 200).await;
    let agent = &agents["agents"][0];
    assert_eq!((&agent["workspace"], &agent["is_waiting"]), (&"mine".into(), &false.into()));
    assert_eq!((&agent["version"], &agent["replica"]), (&agents["gateway_version"], &Value::Null));
    let none = world.json("GET", "/admin/agents?q=ext", &olga, "", 200).await;
    assert_eq!(none["agents"], serde_json::json!([]));
    let clusters = world.json("GET", "/admin/clusters", &olga, "", 200).await;
    assert_eq!(
        (&clusters["clusters"][0]["name"], &clusters["clusters"][0]["connected"]),
        (&"one".into(), &false.into())
    );
}

#[tokio::test]
async fn hostile_text_finds_nothing_and_breaks_nothing() {
    let world = world().await;
    world.workspace("one", "ann").await;
    let olga = world.user("olga").await;
    for path in ["/admin/workspaces", "/admin/users", "/admin/agents"] {
        for text in HOSTILE {
            let list = world.json("GET", &format!("{path}?q={text}"), &olga, "", 200).await;
            let rows = list.as_object().unwrap().values().find_map(Value::as_array).unwrap();
            assert!(rows.is_empty(), "{path}?q={text}: {list}");
        }
        for text in ["%00", "a%0Ab", "%1B%5B31m", &"x".repeat(201)] {
            world.json("GET", &format!("{path}?q={text}"), &olga, "", 422).await;
        }
        world.json("GET", &format!("{path}?q=a&q=b"), &olga, "", 422).await;
        world.json("GET", &format!("{path}?what=1"), &olga, "", 422).await;
    }
    for query in ["state=x", "owner=%00", "owner=a%20b", "cursor=x", "limit=0"] {
        world.json("GET", &format!("/admin/workspaces?{query}"), &olga, "", 422).await;
    }
    world.json("POST", "/admin/users/%00/disable", &olga, "", 404).await;
    world.json("POST", "/admin/users/..%2Fann/enable", &olga, "", 404).await;
}

#[tokio::test]
async fn refusals_and_limits_are_told_with_their_user_and_trace() {
    let world = World::configured(|config| {
        config.auth.admins = vec!["olga".parse().unwrap()];
        config.limits.requests_per_second_per_user = 1;
    })
    .await;
    world.workspace("idle", "ann").await;
    let _agent = world.gateway.agent("mine").await;
    let (ann, olga) = (world.user("ann").await, world.user("olga").await);
    let absent = visit(&world, "idle", &ann).await;
    assert_eq!(code(&absent), "agent_absent");
    let forbidden = world.call("GET", "/admin/users", &ann, "").await;
    let list = world.json("GET", "/admin/refusals", &olga, "", 200).await;
    let rows = list["refusals"].as_array().unwrap();
    assert_eq!(names(&list["refusals"], "code"), ["forbidden", "agent_absent"], "the newest first");
    assert_eq!((&rows[0]["user"], &rows[0]["detail"]), (&"ann".into(), &"not_an_operator".into()));
    assert_eq!(rows[0]["trace_id"].as_str(), forbidden.header("gateway-trace"));
    assert_eq!((&rows[1]["user"], &rows[1]["workspace"]), (&"ann".into(), &"idle".into()));
    assert_eq!((&rows[1]["address"], &rows[1]["count"]), (&"127.0.0.1".into(), &1.into()));
    let trace = absent.header("gateway-trace").unwrap();
    for (query, count) in [
        ("code=agent_absent".to_owned(), 1),
        ("user=ann&workspace=idle".to_owned(), 1),
        ("user=bob".to_owned(), 0),
        (format!("trace={trace}"), 1),
        ("limit=1".to_owned(), 1),
    ] {
        let list = world.json("GET", &format!("/admin/refusals?{query}"), &olga, "", 200).await;
        assert_eq!(list["refusals"].as_array().unwrap().len(), count, "{query}");
    }
    for _ in 0..12 {
        visit(&world, "mine", &world.dev()).await;
    }
    let limits = world.json("GET", "/admin/limits", &olga, "", 200).await;
    let row = &limits["limits"][0];
    assert_eq!(
        (&row["limit"], &row["user"]),
        (&"limits.requests_per_second_per_user".into(), &"dev".into()),
        "{limits}"
    );
    assert!(row["count"].as_u64().unwrap() >= 3, "{limits}");
    assert_eq!((&row["workspace"], &row["address"]), (&"mine".into(), &Value::Null));
}

#[tokio::test]
async fn configuration_and_health_are_told() {
    let world = world().await;
    let olga = world.user("olga").await;
    let told = world.json("GET", "/admin/config", &olga, "", 200).await;
    let settings = told["settings"].as_array().unwrap();
    let expected = gateway_config::Config::default();
    assert_eq!(settings.len(), expected.effective().len());
    let zone = settings.iter().find(|row| row["key"] == "zone").unwrap();
    assert_eq!((&zone["value"], &zone["origin"]), (&"localhost".into(), &"default".into()));
    let health = world.json("GET", "/admin/health", &olga, "", 200).await;
    assert_eq!((&health["store"]["word"], &health["store"]["kind"]), (&"good".into(), &"sqlite".into()));
    assert_eq!((&health["directory"]["word"], &health["identity_provider"]), (&"alone".into(), &Value::Null));
    assert_eq!(health["certificates"], serde_json::json!([]));
    // Users who are known come through while the store is away, and operators see why things fail.
    let availability = world.gateway.store.availability().clone();
    availability.hold(true, tokio::time::Instant::now());
    let health = world.json("GET", "/admin/health", &olga, "", 200).await;
    assert_eq!(health["store"]["word"], "away", "{health}");
    assert_eq!(health["store"]["answered_milliseconds"], Value::Null);
    availability.hold(false, tokio::time::Instant::now());
}

#[tokio::test]
async fn health_tells_of_the_identity_provider_and_dev_is_no_operator_beside_one() {
    for is_down in [false, true] {
        let provider = e2e::provider::TestProvider::start().await;
        provider.set_down(is_down);
        let world = World::configured(|config| {
            provider.configure(config);
            config.auth.admin_group = Some("platform".parse().unwrap());
        })
        .await;
        let gina = member(&world, "gina", &["platform"]).await;
        world.json("GET", "/admin/health", &world.user("dev").await, "", 403).await;
        let expected = if is_down { "failing" } else { "good" };
        let asked = async {
            loop {
                let health = world.json("GET", "/admin/health", &gina, "", 200).await;
                if health["identity_provider"]["word"] == expected {
                    return health["identity_provider"].clone();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let told = tokio::time::timeout(PATIENCE, asked).await.unwrap();
        assert_eq!((told["read_at"].is_null(), told["failed_at"].is_null()), (is_down, !is_down), "{told}");
        assert!(told["issuer"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{told}");
    }
}
