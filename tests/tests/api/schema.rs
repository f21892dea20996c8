//! Checks answers against the document that describes them: as much of JSON Schema as that document uses.

use e2e::until;
use gateway_environments::on_record::OnRecord;
use gateway_environments::request::By;
use gateway_net::audit::RecordPermit;
use serde_json::Value;
use workspace_spec::environment::facts::TemplateVars;
use workspace_spec::environment::template::{RenderedTemplate, TemplateName};

use super::support::{As, SAME_ORIGIN, World};
use super::workspace_templates::{NODE, Templates};

/// Finds where a value is not what a schema says.
fn check(value: &Value, schema: &Value, document: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.trim_start_matches('#')).expect("it is there");
        return check(value, schema, document, at);
    }
    let mut wrong = Vec::new();
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = any.iter().any(|schema| check(value, schema, document, at).is_empty());
        return if fits { wrong } else { vec![format!("{at}: fits none: {value}")] };
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        wrong.push(format!("{at}: {value} is not one of {allowed:?}"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the document has the type {other}"),
    };
    if !types.is_empty() && !types.iter().any(|name| is(name)) {
        wrong.push(format!("{at}: {value} is not {types:?}"));
    }
    if schema["format"] == "date-time"
        && let Some(text) = value.as_str()
        && text.parse::<gateway_types::UnixSeconds>().is_err()
    {
        wrong.push(format!("{at}: {text} is no time"));
    }
    if let Value::Array(items) = value {
        for (number, item) in items.iter().enumerate() {
            wrong.extend(check(item, &schema["items"], document, &format!("{at}/{number}")));
        }
    }
    if let (Value::Object(members), Some(known)) = (value, schema["properties"].as_object()) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                wrong.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, member) in members {
            match known.get(name) {
                Some(schema) => wrong.extend(check(member, schema, document, &format!("{at}/{name}"))),
                None => wrong.push(format!("{at}: {name} is not described")),
            }
        }
    }
    wrong
}

struct Checker<'a> {
    world: &'a World,
    document: Value,
}

impl Checker<'_> {
    /// Calls the API and compares the answer with the document.
    async fn call(&self, method: &str, template: &str, path: &str, who: &As, body: &str) -> Value {
        let answer = self.world.call(method, path, who, body).await;
        let operation = &self.document["paths"][template][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {template} is described");
        let described = &operation["responses"][answer.status().to_string()];
        assert!(described.is_object(), "{method} {path}: {} is described", answer.status());
        if answer.body.is_empty() {
            assert!(described["content"].is_null(), "{method} {path}: a body is described");
            return Value::Null;
        }
        let media = answer.header("content-type").unwrap();
        let schema = &described["content"][media]["schema"];
        assert!(schema.is_object(), "{method} {path}: {media} is described");
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(check(&value, schema, &self.document, ""), [""; 0], "{method} {path}");
        value
    }
}

#[tokio::test]
async fn answers_are_what_the_document_says() {
    let templates = Templates::start(&[("node.yaml", NODE), ("bad.yaml", "devfile: 1\n")]).await;
    let world = &templates.world;
    let _agent = world.gateway.agent("mine").await;
    world.workspace("theirs", "ann").await;
    world.workspace("elsewhere", "zoe").await;
    let document = world.json("GET", "/openapi.json", &As::Nobody, "", 200).await;
    let it = Checker { world, document };
    let dev = world.dev();
    let browser = As::Cookie(world.browser().await, SAME_ORIGIN);
    for who in [&dev, &browser, &As::Nobody] {
        it.call("GET", "/whoami", "/whoami", who, "").await;
        it.call("GET", "/workspaces", "/workspaces", who, "").await;
        it.call("GET", "/workspaces", "/workspaces?limit=0&cursor=x&y", who, "").await;
        it.call("GET", "/workspaces/{name}", "/workspaces/mine", who, "").await;
        it.call("GET", "/workspaces/{name}", "/workspaces/theirs", who, "").await;
        let shares = r#"{"shares":[{"port":80,"audience":"user:ann","expires_at":"2100-01-01T00:00:00+01:00"}]}"#;
        let path = "/workspaces/mine/shares";
        for body in [shares, r#"{"shares":[{"port":0,"audience":"all"},1],"more":1}"#, "[", "{}"] {
            it.call("PUT", "/workspaces/{name}/shares", path, who, body).await;
        }
        it.call("GET", "/workspaces/{name}/shares", path, who, "").await;
        for body in [
            r#"{"kind":"user","expires_in":60,"note":"n"}"#,
            r#"{"kind":"agent","workspace":"mine"}"#,
            r#"{"kind":"agent","workspace":"theirs"}"#,
            r#"{"kind":"agent"}"#,
        ] {
            it.call("POST", "/tokens", "/tokens", who, body).await;
        }
        it.call("GET", "/tokens", "/tokens", who, "").await;
        it.call("GET", "/sessions", "/sessions", who, "").await;
    }
    for who in [&dev, &As::Nobody, &world.user("ann").await] {
        operators(&it, who).await;
    }
    lifecycle(&it, &dev).await;
    environments(&it, &dev).await;
    let made = it.call("POST", "/tokens", "/tokens", &dev, r#"{"kind":"user"}"#).await;
    let id = made["id"].as_str().unwrap();
    for _ in 0..2 {
        it.call("POST", "/tokens/{id}/rotate", &format!("/tokens/{id}/rotate"), &dev, r#"{"overlap":0}"#).await;
        it.call("DELETE", "/tokens/{id}", &format!("/tokens/{id}"), &dev, "").await;
        it.call("DELETE", "/tokens/{id}", "/tokens/t-999", &dev, "").await;
    }
    let codes = it.call("POST", "/device", "/device", &As::Nobody, r#"{"machine":"laptop"}"#).await;
    let poll = format!(r#"{{"device_code":{}}}"#, codes["device_code"]);
    for _ in 0..2 {
        it.call("POST", "/device/token", "/device/token", &As::Nobody, &poll).await;
    }
    let sessions = it.call("GET", "/sessions", "/sessions", &browser, "").await;
    let session = format!("/sessions/{}", sessions["sessions"][0]["id"].as_str().unwrap());
    it.call("DELETE", "/sessions/{id}", &session, &dev, "").await;
    it.call("DELETE", "/sessions/{id}", &session, &dev, "").await;
    it.call("DELETE", "/sessions", "/sessions", &dev, "").await;
}

/// Asks what operators ask.
async fn operators(it: &Checker<'_>, who: &As) {
    for path in ["workspaces", "users", "agents", "clusters", "audit", "refusals", "limits", "config", "health"] {
        let path = format!("/admin/{path}");
        it.call("GET", &path, &path, who, "").await;
    }
    for path in ["/admin/workspaces", "/admin/users", "/admin/agents", "/admin/audit", "/admin/refusals"] {
        it.call("GET", path, &format!("{path}?limit=0&cursor=x&y"), who, "").await;
    }
    let (disable, enable) = ("/admin/users/{name}/disable", "/admin/users/{name}/enable");
    for body in [r#"{"stop":true}"#, "{}", "[", r#"{"stop":1}"#] {
        it.call("POST", disable, "/admin/users/zoe/disable", who, body).await;
    }
    it.call("POST", disable, "/admin/users/dev/disable", who, "{}").await;
    it.call("POST", disable, "/admin/users/not-known/disable", who, "").await;
    it.call("POST", enable, "/admin/users/zoe/enable", who, "").await;
    it.call("POST", enable, "/admin/users/not-known/enable", who, "").await;
}

/// Makes, changes and ends workspaces, in all the ways that are answered differently.
async fn lifecycle(it: &Checker<'_>, dev: &As) {
    let (world, one, template) = (it.world, "/workspaces/app", "/workspaces/{name}");
    it.call("GET", "/agents", "/agents", dev, "").await;
    it.call("GET", "/agents", "/agents", &As::Nobody, "").await;
    let templates = "/agents/{name}/workspace-templates";
    for (agent, who) in [("one", dev), ("none", dev), ("one", &As::Nobody)] {
        it.call("GET", templates, &format!("/agents/{agent}/workspace-templates"), who, "").await;
    }
    let wanted = |more: &str| format!(r#"{{"name":"app","executor":"kubernetes","agent":"one"{more}}}"#);
    for body in [
        "{}",
        "[",
        &wanted(r#","devfile":"a: [""#),
        &wanted(r#","variables":[{}]"#),
        &wanted(r#","template":"none""#),
        &wanted(r#","template":"node""#),
        &wanted(r#","template":"bad""#),
    ] {
        it.call("POST", "/workspaces", "/workspaces", dev, body).await;
    }
    let variables = r#","template":"node","template_parameters":{"greeting":"x"},"devfile":null,"ports":[],"variables":[{"name":"A","value":"1","kind":"env"}]"#;
    for _ in 0..2 {
        it.call("POST", "/workspaces", "/workspaces", dev, &wanted(variables)).await;
    }
    it.call("POST", "/workspaces", "/workspaces", &As::Nobody, &wanted("")).await;
    it.call("GET", template, one, dev, "").await;
    it.call("GET", "/workspaces", "/workspaces", dev, "").await;
    for body in [r#"{"desired_state":"Stopped"}"#, r#"{"desired_state":"x"}"#, "["] {
        it.call("PATCH", template, one, dev, body).await;
        it.call("PATCH", template, "/workspaces/theirs", dev, body).await;
        it.call("PATCH", template, "/workspaces/mine", dev, body).await;
    }
    it.call("DELETE", template, "/workspaces/theirs", dev, "").await;
    it.call("DELETE", template, "/workspaces/mine", dev, "").await;
    it.call("DELETE", template, one, dev, "").await;
    it.call("PATCH", template, one, dev, r#"{"desired_state":"Running"}"#).await;
    let blocker = tunnel_proto::reconcile::Blocker {
        object: "Pod app".to_owned(),
        finalizers: vec!["example.com/finalizer".to_owned()],
        since: 1_800_000_000,
        message: "in use".to_owned(),
    };
    world.gateway.observe("app", gateway_types::ActualState::Terminating, Some("why"), &[blocker]).await;
    it.call("GET", template, one, dev, "").await;
    it.call("GET", "/workspaces/{name}/events", "/workspaces/mine/events", dev, "").await;
    it.call("GET", "/workspaces/{name}/events", "/workspaces/theirs/events", dev, "").await;
    world.gateway.observe("app", gateway_types::ActualState::Terminated, None, &[]).await;
    for _ in 0..2 {
        it.call("DELETE", template, one, dev, "").await;
    }
}

/// Asks for environments, in all the ways that are answered differently without a cluster's agent.
async fn environments(it: &Checker<'_>, dev: &As) {
    let world = it.world;
    until("the cluster is known", || world.gateway.environments.agent(&"one".parse().unwrap()).is_ok()).await;
    let info =
        r#"{"environment":{"name":"review/1"},"project":{"id":7,"path":"team/app","url":"https://git.test/team/app"}}"#;
    let wanted = |template: &str| format!(r#"{{"agent":"one","template":{template},"info":{info}}}"#);
    let built_in = wanted(r#"{"name":"default"}"#);
    let rendered = it.call("POST", "/environments/render", "/environments/render", dev, &built_in).await;
    let rendered = rendered["data"].as_str().unwrap().to_owned();
    for template in [r#"{"name":"none"}"#, r#"{"name":"x","data":"objects: [{{ .x }}]"}"#, "{}"] {
        it.call("POST", "/environments/render", "/environments/render", dev, &wanted(template)).await;
    }
    let secret = r#"{"name":"x","data":"objects: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]"}"#;
    for who in [dev, &As::Nobody] {
        it.call("POST", "/environments/ensure", "/environments/ensure", who, &wanted(secret)).await;
    }
    let name: TemplateName = "default".parse().unwrap();
    let rendered = RenderedTemplate::parse(&name, rendered.as_bytes()).unwrap();
    let facts: TemplateVars = serde_json::from_str(
        r#"{"agent":{"id":1,"name":"one","url":"http://x.test"},"environment":{"id":0,"name":"review/1","slug":"review-1",
            "page_url":"http://x.test"},"project":{"id":7,"slug":"team-app","path":"team/app","url":"http://x.test"}}"#,
    )
    .unwrap();
    let by = OnRecord::new(By::User("dev".parse().unwrap()), RecordPermit::nowhere());
    let made = world.gateway.environments.ensure(&"one".parse().unwrap(), rendered, facts, by).await.unwrap();
    let one = format!("/environments/{}", made.environment().unwrap());
    let template = "/environments/{id}";
    for who in [dev, &As::Nobody] {
        for query in
            ["", "?limit=1", "?limit=0", "?state=gone", "?agent=one&project_id=7&name=review%2F1", "?agent=none"]
        {
            it.call("GET", "/environments", &format!("/environments{query}"), who, "").await;
        }
        it.call("GET", template, &one, who, "").await;
        it.call("GET", template, "/environments/0", who, "").await;
        for body in [r#"{"state":"stopping"}"#, r#"{"state":"gone"}"#, "["] {
            it.call("PATCH", template, &one, who, body).await;
        }
        it.call("GET", "/agents/{name}", "/agents/one", who, "").await;
        it.call("GET", "/agents/{name}", "/agents/none", who, "").await;
        let templates = "/agents/{name}/environment-templates";
        it.call("GET", templates, "/agents/one/environment-templates", who, "").await;
        it.call("GET", templates, "/agents/none/environment-templates", who, "").await;
        for name in ["default", "none", "Not-A-Name"] {
            let path = format!("/agents/one/environment-templates/{name}");
            it.call("GET", "/agents/{name}/environment-templates/{template}", &path, who, "").await;
        }
        it.call("GET", "/environment-templates/default", "/environment-templates/default", who, "").await;
        let job = r#"{"project_id":7,"project_path":"team/app","environment":"review/1","job_id":1,"user_id":1,"username":"ann"}"#;
        for body in [format!(r#"{{"agent":"one","job":{job}}}"#), r#"{"agent":"one"}"#.to_owned(), "[".to_owned()] {
            it.call("POST", "/environments/unmet", "/environments/unmet", who, &body).await;
            it.call("POST", "/environments/complete", "/environments/complete", who, &body).await;
        }
        let hook = "/environments/hooks/gitlab";
        it.call("POST", hook, hook, who, r#"{"event_name":"project_destroy","project_id":7}"#).await;
        it.call("DELETE", template, "/environments/0", who, "").await;
        it.call("DELETE", template, &one, who, "").await;
        it.call("DELETE", "/projects/{id}/environments", "/projects/7/environments", who, "").await;
        it.call("DELETE", "/projects/{id}/environments", "/projects/x/environments", who, "").await;
    }
}

#[test]
fn checker_finds_what_is_wrong() {
    let document = serde_json::json!({"s": {
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": {"type": ["integer", "null"]}, "b": {"enum": ["x"]}, "c": {"type": "array", "items": {"type": "string"}}},
    }});
    let schema = serde_json::json!({"$ref": "#/s"});
    let wrong = |value: Value| check(&value, &schema, &document, "").len();
    assert_eq!(wrong(serde_json::json!({"a": 1, "b": "x", "c": ["y"]})), 0);
    assert_eq!(wrong(serde_json::json!({"a": null})), 0);
    assert_eq!(wrong(serde_json::json!({"b": "y", "c": [1], "d": 1})), 4);
    assert_eq!(wrong(serde_json::json!([])), 1);
}
