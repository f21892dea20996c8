//! Workspaces that are run for their owners, over the API: made, started, stopped, restarted, ended, forgotten; by the owner
//! and nobody else; and what comes of bad requests.

use gateway_types::ActualState;
use serde_json::{Value, json};

use super::support::{As, SAME_ORIGIN, World, code, records, without_trace};

/// A cluster that takes workspaces.
pub(super) const OPEN: &str = "enabled: true\n";

pub(super) async fn world() -> World {
    let world = World::start().await;
    world.gateway.configured_cluster("one", OPEN).await;
    world
}

pub(super) fn wanted(name: &str) -> String {
    json!({"name": name, "executor": "kubernetes", "agent": "one"}).to_string()
}

pub(super) async fn make(world: &World, name: &str) -> Value {
    world.json("POST", "/workspaces", &world.dev(), &wanted(name), 201).await
}

#[track_caller]
fn assert_state(seen: &Value, desired: &str, actual: &str, generation: u64) {
    let state = &seen["state"];
    assert_eq!(
        (&state["desired"], &state["actual"], &state["generation"]),
        (&desired.into(), &actual.into(), &generation.into()),
        "{seen}"
    );
}

#[tokio::test]
async fn workspace_is_made_stopped_started_restarted_ended_and_forgotten() {
    let world = world().await;
    let dev = world.dev();
    let made = world.call("POST", "/workspaces", &dev, &wanted("app")).await;
    assert_eq!((made.status(), made.header("location")), (201, Some("/api/v1/workspaces/app")), "{}", made.text());
    let first_tag = made.header("etag").unwrap().to_owned();
    let made: Value = serde_json::from_slice(&made.body).unwrap();
    assert_state(&made, "Running", "CreationRequested", 1);
    assert_eq!((&made["executor"], &made["cluster"]), (&"kubernetes".into(), &"one".into()));
    assert_eq!((&made["connected"], &made["agent"]), (&false.into(), &Value::Null));
    let stored = world.gateway.managed("app").await;
    assert!(world.gateway.store.frozen(stored.workspace.id).await.unwrap().is_some_and(|json| json.starts_with('[')));

    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    let seen = world.call("GET", "/workspaces/app", &dev, "").await;
    assert_eq!(seen.header("etag"), Some(&*first_tag), "what is observed is nobody's intent");
    let patch = async |desired: &str, status| {
        world.json("PATCH", "/workspaces/app", &dev, &format!(r#"{{"desired_state":"{desired}"}}"#), status).await
    };
    assert_state(&patch("Stopped", 200).await, "Stopped", "Running", 2);
    assert_state(&patch("Stopped", 200).await, "Stopped", "Running", 2);
    world.gateway.observe("app", ActualState::Stopped, None, &[]).await;
    assert_state(&patch("Running", 200).await, "Running", "Stopped", 3);
    world.gateway.observe("app", ActualState::Running, None, &[]).await;
    assert_state(&patch("RestartRequested", 200).await, "RestartRequested", "Running", 4);
    world.gateway.observe("app", ActualState::Stopped, None, &[]).await;
    assert_state(&world.json("GET", "/workspaces/app", &dev, "", 200).await, "Running", "Stopped", 5);
    assert_state(&world.json("DELETE", "/workspaces/app", &dev, "", 202).await, "Terminated", "Stopped", 6);
    let refused = world.call("PATCH", "/workspaces/app", &dev, r#"{"desired_state":"Running"}"#).await;
    assert_eq!((refused.status(), code(&refused)), (409, "conflict"));
    assert!(refused.text().contains("\"reason\":\"terminated\""), "{}", refused.text());
    assert_state(&world.json("DELETE", "/workspaces/app", &dev, "", 202).await, "Terminated", "Stopped", 6);
    world.gateway.observe("app", ActualState::Terminated, None, &[]).await;
    world.json("DELETE", "/workspaces/app", &dev, "", 204).await;
    assert_eq!(world.call("GET", "/workspaces/app", &dev, "").await.status(), 404);

    let requested = world.audited("workspace_requested", 4).await;
    let told: Vec<_> = requested.iter().map(|record| (record["how"].clone(), record["generation"].clone())).collect();
    let expected = [("stop", 2), ("start", 3), ("restart", 4), ("terminate", 6)];
    assert_eq!(told, expected.map(|(how, generation)| (how.into(), generation.into())), "asking again is no news");
    let created = world.audited("workspace_created", 1).await;
    assert_eq!((&created[0]["workspace"], &created[0]["cluster"]), (&"app".into(), &"one".into()));
    assert_eq!((&created[0]["by"], &created[0]["credential"]["id"]), (&json!({"user": "dev"}), &"t-1".into()));
    world.audited("workspace_forgotten", 1).await;
    assert_state(&make(&world, "app").await, "Running", "CreationRequested", 1);
}

#[tokio::test]
async fn only_the_owner_has_a_say_whoever_it_is_shared_with() {
    let world = world().await;
    make(&world, "app").await;
    let share = r#"{"shares":[{"port":3000,"audience":"user:ann"}]}"#;
    world.json("PUT", "/workspaces/app/shares", &world.dev(), share, 200).await;
    let (ann, eve) = (world.user("ann").await, world.user("eve").await);
    let seen = world.json("GET", "/workspaces/app", &ann, "", 200).await;
    assert_eq!((&seen["state"], &seen["cluster"]), (&Value::Null, &Value::Null), "a share tells nothing of that");
    let list = world.json("GET", "/workspaces", &ann, "", 200).await;
    assert_eq!((&list["workspaces"][0]["name"], &list["workspaces"][0]["state"]), (&"app".into(), &Value::Null));
    for (method, path, body) in [
        ("PATCH", "/workspaces/NAME", r#"{"desired_state":"Terminated"}"#),
        ("PATCH", "/workspaces/NAME", r#"{"desired_state":"Nonsense"}"#),
        ("DELETE", "/workspaces/NAME", ""),
        ("GET", "/workspaces/NAME/events", ""),
    ] {
        let ask = async |who: &As, name: &str| world.call(method, &path.replace("NAME", name), who, body).await;
        let by_ann = ask(&ann, "app").await;
        assert_eq!((by_ann.status(), code(&by_ann)), (403, "forbidden"), "{method} {path}");
        let by_eve = ask(&eve, "app").await;
        assert_eq!(by_eve.status(), 404);
        assert_eq!(without_trace(&by_eve), without_trace(&ask(&eve, "absent").await), "{method} {path}");
        assert_eq!(ask(&As::Nobody, "app").await.status(), 401);
    }
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 1);
    let log = world.stopped().await;
    assert!(records(&log).iter().all(|record| record["event"] != "workspace_requested"), "{log}");
}

#[tokio::test]
async fn cookie_changes_nothing_on_the_word_of_another_site() {
    let world = world().await;
    let cookie = world.browser().await;
    let own = As::Cookie(cookie.clone(), SAME_ORIGIN);
    world.json("POST", "/workspaces", &own, &wanted("app"), 201).await;
    for site in ["sec-fetch-site: cross-site\r\n", "origin: http://3000-app.localhost\r\n", ""] {
        let foreign = As::Cookie(cookie.clone(), site);
        for (method, path, body) in [
            ("POST", "/workspaces", wanted("evil")),
            ("PATCH", "/workspaces/app", r#"{"desired_state":"Terminated"}"#.to_owned()),
            ("DELETE", "/workspaces/app", String::new()),
        ] {
            assert_eq!(world.call(method, path, &foreign, &body).await.status(), 401, "{method} {site:?}");
        }
    }
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 1);
}

#[tokio::test]
async fn change_with_if_match_is_made_only_if_nobody_was_faster() {
    let (world, body) = (world().await, r#"{"desired_state":"Stopped"}"#);
    make(&world, "app").await;
    let tag = world.call("GET", "/workspaces/app", &world.dev(), "").await.header("etag").unwrap().to_owned();
    let condition = format!("if-match: {tag}\r\n");
    let stop = world.call_with("PATCH", "/workspaces/app", &world.dev(), &condition, body).await;
    assert_eq!(stop.status(), 200);
    assert_ne!(stop.header("etag"), Some(&*tag));
    for (method, body) in [("PATCH", r#"{"desired_state":"Running"}"#), ("DELETE", "")] {
        let late = world.call_with(method, "/workspaces/app", &world.dev(), &condition, body).await;
        assert_eq!((late.status(), code(&late)), (412, "conflict"), "{method}");
    }
    assert_eq!(world.gateway.managed("app").await.lifecycle.generation, 2);
}

#[tokio::test]
async fn workspace_that_nobody_runs_cannot_be_started() {
    let world = world().await;
    world.workspace("external", "dev").await;
    for (method, path, body) in [
        ("PATCH", "/workspaces/external", r#"{"desired_state":"Stopped"}"#),
        ("GET", "/workspaces/external/events", ""),
    ] {
        let refused = world.call(method, path, &world.dev(), body).await;
        assert_eq!((refused.status(), code(&refused)), (409, "conflict"), "{method}");
        let text = refused.text();
        assert!(text.contains("not_managed") && text.contains("is not run by the gateway"), "{text}");
    }
    let seen = world.json("GET", "/workspaces/external", &world.dev(), "", 200).await;
    assert_eq!((&seen["state"], &seen["executor"]), (&Value::Null, &"external".into()));
}

#[tokio::test]
async fn names_and_quotas_are_refused_by_name() {
    let world = World::start().await;
    world.gateway.configured_cluster("one", "enabled: true\nquota: 3\nquota_per_user: 2\n").await;
    let ann = world.user("ann").await;
    make(&world, "app").await;
    let reason = async |who: &As, name: &str| {
        let refused = world.json("POST", "/workspaces", who, &wanted(name), 409).await;
        assert_eq!(refused["code"], if refused["reason"] == "name_taken" { "conflict" } else { "quota_exceeded" });
        refused["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(&world.dev(), "app").await, "name_taken");
    assert_eq!(reason(&ann, "app").await, "name_taken");
    make(&world, "second").await;
    assert_eq!(reason(&world.dev(), "third").await, "user_quota");
    world.json("POST", "/workspaces", &ann, &wanted("anns"), 201).await;
    assert_eq!(reason(&ann, "fourth").await, "cluster_quota");
    world.json("DELETE", "/workspaces/app", &world.dev(), "", 202).await;
    make(&world, "third").await;
    assert_eq!(world.audited("workspace_created", 4).await.len(), 4);
}

#[tokio::test]
async fn quota_refuses_with_its_amounts_and_what_to_stop_and_counts_all_containers() {
    let world = World::start().await;
    let lines = |running: u32| {
        format!(
            "enabled: true\ndefault_resources_per_container: {{requests: {{cpu: 100m, memory: 256Mi}}, limits: {{cpu: 1, \
             memory: 1Gi}}}}\nrunning_quota_per_user: {running}\nresource_quota_per_user: {{storage: 150Gi}}\nresource_quota: \
             {{memory: 600Mi}}\n"
        )
    };
    world.gateway.configured_cluster("one", &lines(2)).await;
    let (dev, ann) = (world.dev(), world.user("ann").await);
    make(&world, "first").await;
    make(&world, "second").await;
    let refused = world.json("POST", "/workspaces", &dev, &wanted("third"), 409).await;
    assert_eq!((&refused["code"], &refused["reason"]), (&"quota_exceeded".into(), &"user_quota".into()));
    let exceeded =
        |scope: &str, item: &str, used: u64, allowed: u64, asked: u64| json!([scope, item, used, allowed, asked]);
    let told = |refused: &Value| -> Vec<Value> {
        let all = refused["quota"]["exceeded"].as_array().unwrap().iter();
        all.map(|one| json!([one["scope"], one["item"], one["used"], one["allowed"], one["asked"]])).collect()
    };
    let memory = exceeded("cluster", "memory_bytes", 512 << 20, 600 << 20, 256 << 20);
    assert_eq!(told(&refused), [exceeded("user", "running", 2, 2, 1), memory.clone()]);
    let owned = refused["quota"]["owned"].as_array().unwrap();
    assert_eq!((owned.len(), &owned[0]["name"], &owned[0]["running"]), (2, &"first".into(), &true.into()));
    // Names of other users' workspaces are not shown.
    let refused = world.json("POST", "/workspaces", &ann, &wanted("anns"), 409).await;
    assert_eq!((told(&refused), &refused["reason"]), (vec![memory], &"cluster_quota".into()));
    assert_eq!(refused["quota"]["owned"], json!([]));

    let patch = async |name: &str, desired: &str, status| {
        let body = format!(r#"{{"desired_state":"{desired}"}}"#);
        world.json("PATCH", &format!("/workspaces/{name}"), &dev, &body, status).await
    };
    patch("second", "Stopped", 200).await;
    let usage = world.json("GET", "/agents/one/usage", &dev, "", 200).await;
    let used: Vec<_> =
        usage["user"].as_array().unwrap().iter().map(|row| (row["used"].as_u64(), row["allowed"].as_u64())).collect();
    let expected = [
        (Some(2), None),
        (Some(1), Some(2)),
        (Some(100), None),
        (Some(256 << 20), None),
        (Some(100 << 30), Some(150 << 30)),
    ];
    assert_eq!(used, expected, "a stopped one keeps its storage and nothing else");
    make(&world, "third").await;
    let refused = patch("second", "Running", 409).await;
    assert_eq!((&refused["code"], told(&refused)[0][1].as_str()), (&"quota_exceeded".into(), Some("running")));
    // A lowered quota stops nothing, and what runs may be restarted.
    world.gateway.configured_cluster("one", &lines(1)).await;
    patch("third", "RestartRequested", 200).await;
    patch("second", "Running", 409).await;
    patch("first", "Terminated", 200).await;
    patch("second", "Running", 409).await;
    patch("third", "Stopped", 200).await;
    patch("second", "Running", 200).await;
}

#[tokio::test]
async fn mistakes_of_a_devfile_are_told_all_at_once_with_their_places() {
    let world = world().await;
    let devfile = "schemaVersion: 2.2.0\nparent: {}\ncomponents:\n  - name: gw-x\n    kubernetes: {}\n";
    let body = json!({"name": "app", "executor": "kubernetes", "agent": "one", "devfile": devfile}).to_string();
    let refused = world.json("POST", "/workspaces", &world.dev(), &body, 422).await;
    assert_eq!((&refused["code"], &refused["errors"][0]["pointer"]), (&"invalid".into(), &"/devfile".into()));
    let problems = refused["problems"].as_array().unwrap();
    assert!(problems.len() >= 3, "{refused}");
    let places: Vec<_> = problems.iter().map(|one| one["line"].as_u64()).collect();
    assert!(places.contains(&Some(2)) && places.contains(&Some(4)), "{problems:?}");
    assert!(problems.iter().all(|one| one["message"].as_str().is_some_and(|text| !text.is_empty())));
    assert_eq!(world.call("GET", "/workspaces/app", &world.dev(), "").await.status(), 404);
}

#[tokio::test]
async fn hostile_bodies_are_refused_by_name_and_make_nothing() {
    let world = world().await;
    world.gateway.configured_cluster("closed", "enabled: false\n").await;
    let bomb = (0..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, number| {
        text + &format!("a{}: &a{} [*a{number}, *a{number}]\n", number + 1, number + 1)
    });
    let with = |more: Value| {
        let mut body = json!({"name": "app", "executor": "kubernetes", "agent": "one"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let env = |name: &str| json!({"name": name, "value": "secret-value", "kind": "env"});
    for (body, status, told) in [
        ("{}".to_owned(), 422, "/name"),
        ("[".repeat(60_000), 400, "malformed_json"),
        (with(json!({"name": "8080-app"})), 422, "/name"),
        (with(json!({"executor": "external"})), 422, "unknown member"),
        (with(json!({"executor": "ci"})), 409, "executor_disabled"),
        (with(json!({"executor": "ci", "project": {"ref": "main"}})), 422, "/project"),
        (with(json!({"executor": "ci", "tags": "large"})), 422, "/tags"),
        (with(json!({"executor": "ci", "agent": "Not A Name"})), 422, "/agent"),
        (with(json!({"tags": []})), 422, "unknown member"),
        (with(json!({"agent": "absent"})), 422, "/agent"),
        (with(json!({"agent": "closed"})), 422, "/agent"),
        (with(json!({"agent": "../x"})), 422, "/agent"),
        (with(json!({"devfile": 1})), 422, "/devfile"),
        (with(json!({"devfile": ""})), 422, "problems"),
        (with(json!({"devfile": "\u{0}"})), 422, "problems"),
        (with(json!({"devfile": bomb})), 422, "problems"),
        (with(json!({"devfile": "[".repeat(100_000)})), 422, "problems"),
        (with(json!({"devfile": "x".repeat(3 * 1024 * 1024 + 1)})), 422, "problems"),
        (with(json!({"ports": [3000]})), 422, "/ports"),
        (with(json!({"variables": [1]})), 422, "/variables/0"),
        (with(json!({"variables": [env("A"), env("A")]})), 422, "/variables/1/name"),
        (with(json!({"variables": [env("A"), env("A=B")]})), 422, "/variables/1/name"),
        (with(json!({"variables": [env("GW_X")]})), 422, "/variables/0/name"),
        (with(json!({"variables": vec![env("A"); 257]})), 422, "/variables"),
        (with(json!({"secret-member": 1})), 422, "unknown member"),
    ] {
        let refused = world.call("POST", "/workspaces", &world.dev(), &body).await;
        let shown = body.get(..80).unwrap_or(&body);
        assert_eq!(refused.status(), status, "{shown}: {}", refused.text());
        assert!(refused.text().contains(told), "{shown}: {}", refused.text());
        assert!(!refused.text().contains("secret"), "{shown}: {}", refused.text());
    }
    assert_eq!(world.call("GET", "/workspaces/app", &world.dev(), "").await.status(), 404);
    let log = world.stopped().await;
    assert!(records(&log).iter().all(|record| record["event"] != "workspace_created"), "{log}");
}

#[tokio::test]
async fn large_body_is_for_devfiles_only_and_has_a_bound() {
    let world = world().await;
    let of_length = |length: usize| format!(r#"{{"name":"app","more":"{}"}}"#, "x".repeat(length - 24));
    let status = async |path: &str, length: usize, who: &As| {
        let answer = world.call("POST", path, who, &of_length(length)).await;
        (answer.status(), code(&answer).to_owned())
    };
    let large = (413, "too_large".to_owned());
    assert_eq!(status("/tokens", 64 * 1024 + 1, &world.dev()).await, large);
    assert_eq!(status("/workspaces", 64 * 1024 + 1, &world.dev()).await.0, 422, "read, and found wanting");
    // Before a byte of the body was read.
    assert_eq!(status("/workspaces", 64 * 1024 + 1, &As::Nobody).await.0, 401);
    let over = format!("content-type: application/json\r\ncontent-length: {}\r\n", 8 * 1024 * 1024 + 1);
    let As::Token(token) = world.dev() else { unreachable!() };
    let fields = format!("authorization: Bearer {token}\r\n{over}");
    assert_eq!(world.send("POST", "/api/v1/workspaces", &fields, "").await.status(), 413, "by its own word");
}

#[tokio::test]
async fn variables_are_kept_and_never_told() {
    let world = world().await;
    let variables = json!([
        {"name": "KEY", "value": "secret-one", "kind": "env"},
        {"name": "id_rsa", "value": "secret-two\n", "kind": "file"},
    ]);
    let body = json!({"name": "app", "executor": "kubernetes", "agent": "one", "variables": variables}).to_string();
    let made = world.json("POST", "/workspaces", &world.dev(), &body, 201).await;
    let stored = world.gateway.managed("app").await;
    let kept = world.gateway.store.variables(stored.workspace.id).await.unwrap();
    let texts: Vec<_> = kept.iter().map(|one| (one.name.as_str(), one.value.reveal())).collect();
    assert!(texts.contains(&("KEY", "secret-one")) && texts.contains(&("id_rsa", "secret-two\n")));
    let token = texts.iter().find(|(name, _)| *name == "agent-token").unwrap().1;
    let frozen = world.gateway.store.frozen(stored.workspace.id).await.unwrap().unwrap();
    world.audited("workspace_created", 1).await;
    let log = std::fs::read_to_string(world.audit_path()).unwrap();
    for text in [made.to_string(), frozen, log] {
        assert!(!text.contains("secret-") && !text.contains(token), "{text}");
    }
    let agent = world.gateway.start_agent(token, Vec::new());
    world.gateway.until_connected("app").await;
    assert_eq!(world.json("GET", "/workspaces/app", &world.dev(), "", 200).await["connected"], true);
    agent.stop().await;
}

#[tokio::test]
async fn clusters_are_listed_for_everybody_who_is_signed_in() {
    let world = world().await;
    world.gateway.configured_cluster("closed", "enabled: false\n").await;
    let list = world.json("GET", "/agents", &world.user("eve").await, "", 200).await;
    let rows: Vec<_> = list["agents"].as_array().unwrap().iter().map(|row| (&row["name"], &row["enabled"])).collect();
    assert_eq!(rows, [(&json!("closed"), &json!(false)), (&json!("one"), &json!(true))]);
    let first = &list["agents"][0];
    assert_eq!((&first["connected"], &first["version"]), (&json!(false), &json!(null)));
    assert_eq!((&first["configuration_refused"], &first["configuration_refusal"]), (&json!(false), &json!(null)));
    assert_eq!(world.call("GET", "/agents", &As::Nobody, "").await.status(), 401);
}
