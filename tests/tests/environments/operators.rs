//! What operators ask over HTTP.

use serde_json::{Value, json};
use tunnel_proto::environments::Call;

use super::support::{CLUSTER, PROJECT, World, asked};

const TEMPLATE: &str = "objects:\n  - apiVersion: v1\n    kind: Namespace\n    metadata:\n      name: '{{ .environment.slug }}-{{ .project.id }}'\n";

fn wanted(template: &Value) -> String {
    json!({
        "agent": CLUSTER, "template": template,
        "info": {"environment": {"name": "review/1"}, "project": {"id": PROJECT, "path": "team/app"}},
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_renders_ensures_shows_and_deletes() {
    let world = World::start().await;
    let agent = world.agent().await;
    let token = &world.operator;
    let default = world.json("GET", "/environment-templates/default", token, "", 200).await;
    assert!(default["data"].as_str().unwrap().contains("RoleBinding"), "{default}");
    let own = world.json("GET", "/agents/prod/environment-templates", token, "", 200).await;
    assert_eq!(own["templates"], json!([{"name": "default"}]));
    assert_eq!(world.json("GET", "/agents/prod/environment-templates/default", token, "", 200).await, default);
    let missing = world.refused("GET", "/agents/prod/environment-templates/none", token, "").await;
    assert_eq!(missing.1, "no_such_template");
    assert_eq!(world.json("GET", "/agents/prod", token, "", 200).await["name"], CLUSTER);
    assert_eq!(world.refused("GET", "/agents/nowhere", token, "").await.1, "not_found");

    let brought = wanted(&json!({"name": "mine", "data": TEMPLATE}));
    let rendered = world.json("POST", "/environments/render", token, &brought, 200).await;
    let data = rendered["data"].as_str().unwrap();
    assert!(data.contains("-42") && !data.contains("{{"), "{data}");
    assert!(agent.calls().is_empty(), "rendering asks nobody");
    let ensured = wanted(&json!({"name": "mine", "data": data}));
    let events = world.events("POST", "/environments/ensure", token, &ensured).await;
    let done = &events.last().unwrap().1;
    assert_eq!((&done["outcome"], &done["environment"]["template"]), (&json!("completed"), &json!("mine")));
    let Call::Apply(apply) = &agent.calls()[0] else { panic!("not applied") };
    let objects: Value = serde_json::from_slice(&apply.objects).unwrap();
    assert_eq!(objects.as_array().unwrap().len(), 1);

    // Without data it is the template that counts for the agent; what is not wanted any more is recorded until it is gone.
    let again = world.json("POST", "/environments/ensure", token, &wanted(&json!({"name": "default"})), 200).await;
    let id = again["environment"]["id"].as_u64().unwrap();
    assert_eq!(again["environment"]["template"], "default");
    let listed = world.json("GET", "/environments?state=available&project_id=42", token, "", 200).await;
    assert_eq!(listed["environments"][0]["id"], id);
    let named = "/environments?agent=prod&project_id=42&name=review%2F1";
    assert_eq!(world.json("GET", named, token, "", 200).await["environments"][0]["id"], id);
    for query in ["state=gone", "project_id=x", "agent=Not-A-Name", "agent=prod&name=a", "other=1"] {
        assert_eq!(world.refused("GET", &format!("/environments?{query}"), token, "").await.1, "invalid", "{query}");
    }
    let path = format!("/environments/{id}");
    let due = world.json("DELETE", &path, token, "", 202).await;
    assert_eq!(due["state"], "stopped");
    let events = world.events("GET", &format!("{path}/events"), token, "").await;
    assert_eq!(events.last().unwrap().1["environment"]["objects"], json!([]));
    let swept = world.json("DELETE", "/projects/42/environments", token, "", 200).await;
    assert!(swept["environments"].is_u64(), "{swept}");
    assert_eq!(world.refused("DELETE", "/projects/x/environments", token, "").await.1, "invalid");
    let audit = world.stopped().await;
    assert_eq!(audit.lines().filter(|line| line.contains("environments_swept")).count(), 1, "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_brought_is_refused_with_all_that_is_wrong() {
    let world = World::start().await;
    let agent = world.agent().await;
    let token = &world.operator;
    let post = async |path: &str, body: &str| {
        let answer = world.call("POST", path, token, "", body).await;
        let problem: Value = serde_json::from_slice(&answer.body).unwrap();
        (answer.status(), problem["code"].as_str().unwrap().to_owned(), problem)
    };
    let unknown = TEMPLATE.replace(".environment.slug", ".environment.secret");
    let (status, code, problem) =
        post("/environments/render", &wanted(&json!({"name": "mine", "data": unknown}))).await;
    assert_eq!((status, code.as_str()), (422, "template_invalid"), "{problem}");
    assert_eq!(problem["problems"][0]["line"], 5, "{problem}");
    let secret = "objects:\n  - {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: kube-system}}\n";
    let (status, code, problem) = post("/environments/ensure", &wanted(&json!({"name": "mine", "data": secret}))).await;
    assert_eq!((status, code.as_str()), (422, "objects_refused"), "{problem}");
    let codes: Vec<&str> =
        problem["problems"].as_array().unwrap().iter().filter_map(|one| one["code"].as_str()).collect();
    assert!(codes.contains(&"kind_not_allowed"), "{problem}");
    let (_, code, problem) =
        post("/environments/ensure", r#"{"agent":"prod","template":{},"info":{"project":3}}"#).await;
    assert_eq!(code, "invalid");
    let pointers: Vec<&str> =
        problem["errors"].as_array().unwrap().iter().filter_map(|one| one["pointer"].as_str()).collect();
    for pointer in ["/template/name", "/info/environment", "/info/project"] {
        assert!(pointers.contains(&pointer), "{pointer}: {problem}");
    }
    assert!(agent.calls().is_empty(), "nothing was applied");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_who_is_no_operator_may_nothing_of_it() {
    let world = World::start().await;
    let _agent = world.agent().await;
    let made = world.json("POST", "/environments/complete", &world.job(1, &json!({})), &asked(&json!({})), 200).await;
    let path = format!("/environments/{}", made["environment"]["id"]);
    for (method, path, body) in [
        ("GET", "/environments".to_owned(), ""),
        ("GET", path.clone(), ""),
        ("GET", format!("{path}/events"), ""),
        ("PATCH", path.clone(), r#"{"state":"stopped"}"#),
        ("DELETE", path.clone(), ""),
        ("POST", "/environments/unmet".to_owned(), "{}"),
        ("POST", "/environments/complete".to_owned(), "{}"),
        ("POST", "/environments/ensure".to_owned(), "{}"),
        ("POST", "/environments/render".to_owned(), "{}"),
        ("GET", "/agents/prod/environment-templates".to_owned(), ""),
        ("DELETE", "/projects/42/environments".to_owned(), ""),
    ] {
        let refused = world.refused(method, &path, &world.user, body).await;
        let expected = (403, "forbidden".to_owned(), "not_an_operator".to_owned());
        assert_eq!(refused, expected, "{method} {path}");
        assert_eq!(world.refused(method, &path, "", body).await.1, "sign_in_required", "{method} {path}");
    }
    // What everybody may see who is signed in.
    world.json("GET", "/environment-templates/default", &world.user, "", 200).await;
    world.json("GET", "/agents/prod", &world.user, "", 200).await;
    // An operator says of which job; without, nobody's would be meant.
    let without = world.refused("POST", "/environments/unmet", &world.operator, &asked(&json!({}))).await;
    assert_eq!(without.1, "invalid");
    let job = json!({
        "project_id": PROJECT, "project_path": "team/app", "environment": "review/9", "job_id": 9, "user_id": 1,
        "username": "ann",
    });
    let unmet = world.json("POST", "/environments/unmet", &world.operator, &asked(&json!({"job": job})), 200).await;
    assert_eq!(unmet["unmet"], true);
    world.json("POST", "/environments/complete", &world.operator, &asked(&json!({"job": job})), 200).await;
    let audit = world.stopped().await;
    let told = audit.lines().find(|line| line.contains("review/9") && line.contains("asked_for")).unwrap();
    assert!(told.contains("olga") && !told.contains("team/app#9"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_ensures_first_is_rendered_with_the_gateways_own_numbers() {
    let world = World::start().await;
    let agent = world.agent().await;
    let wish = json!({
        "agent": CLUSTER, "template": {"name": "default"},
        "info": {
            "agent": {"id": 999, "name": CLUSTER, "url": "https://elsewhere.example"},
            "environment": {"name": "review/7"}, "project": {"id": PROJECT, "path": "team/app"},
        },
    });
    let made = world.json("POST", "/environments/ensure", &world.operator, &wish.to_string(), 200).await;
    let Call::Apply(apply) = &agent.calls()[0] else { panic!("not applied") };
    let objects: Value = serde_json::from_slice(&apply.objects).unwrap();
    let known_id = world.gateway.environments.agent(&CLUSTER.parse().unwrap()).unwrap().id;
    let own = format!("-{PROJECT}-{known_id}");
    assert!(objects[0]["metadata"]["name"].as_str().unwrap().ends_with(&own), "{objects}");
    let annotations = objects[0]["metadata"]["annotations"].as_object().unwrap();
    let (_, told) = annotations.iter().find(|(key, _)| key.starts_with("agent.gitlab.com/env-")).unwrap();
    let told: Value = serde_json::from_str(told.as_str().unwrap()).unwrap();
    assert_eq!((&told["environment_id"], &told["agent_id"]), (&made["environment"]["id"], &json!(known_id)));
    assert_eq!(told["agent_url"].as_str().unwrap().split_once("/api/").unwrap().1, "v1/agents/prod");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_whose_agent_never_comes_back_is_forgotten_with_a_list_of_what_may_be_left() {
    let world = World::start().await;
    let agent = world.agent().await;
    let made = world.json("POST", "/environments/complete", &world.job(1, &json!({})), &asked(&json!({})), 200).await;
    let path = format!("/environments/{}", made["environment"]["id"]);
    drop(agent);
    let token = &world.operator;
    for query in ["forget=yes", "forget", "force=true"] {
        assert_eq!(world.refused("DELETE", &format!("{path}?{query}"), token, "").await.1, "invalid", "{query}");
    }
    let job = world.refused("DELETE", &format!("{path}?forget=true"), &world.job(1, &json!({})), "").await;
    assert_eq!(job.1, "forbidden");
    let forgotten = world.json("DELETE", &format!("{path}?forget=true"), token, "", 200).await;
    assert_eq!(forgotten["objects"].as_array().unwrap().len(), 2);
    assert_eq!(world.refused("GET", &path, token, "").await.1, "no_such_environment");
    let audit = world.stopped().await;
    let line = audit.lines().find(|line| line.contains("environment_forgotten")).unwrap();
    let name = forgotten["objects"][0]["name"].as_str().unwrap();
    assert!(line.contains("olga") && line.contains("v1 Namespace") && line.contains(name), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_cannot_be_is_refused_and_one_that_is_already_is_not_told_to_the_audit_log() {
    let world = World::start().await;
    let _agent = world.agent().await;
    let made = world.json("POST", "/environments/complete", &world.job(1, &json!({})), &asked(&json!({})), 200).await;
    let path = format!("/environments/{}", made["environment"]["id"]);
    let token = &world.operator;
    for state in ["available", "stopping", "stopping", "stopped", "stopped", "stopping"] {
        world.json("PATCH", &path, token, &json!({"state": state}).to_string(), 200).await;
    }
    let refused = world.refused("PATCH", &path, token, r#"{"state":"available"}"#).await;
    assert_eq!((refused.0, refused.1.as_str()), (409, "environment_stopped"));
    for (query, last) in [("?of=removal", "done"), ("?of=everything", "done")] {
        let events = world.events("GET", &format!("{path}/events{query}"), token, "").await;
        assert_eq!(events.last().unwrap().0, last, "{query}");
    }
    for query in ["of=stop", "of", "since=1"] {
        assert_eq!(world.refused("GET", &format!("{path}/events?{query}"), token, "").await.1, "invalid", "{query}");
    }
    let audit = world.stopped().await;
    let told = |how: &str| {
        let how = format!(r#""how":"{how}""#);
        audit.lines().filter(|line| line.contains("environment_changed") && line.contains(&how)).count()
    };
    assert_eq!((told("available"), told("stopping"), told("stopped")), (0, 1, 1), "{audit}");
}
