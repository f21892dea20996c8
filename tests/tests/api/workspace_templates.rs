//! Workspaces from operators' templates: made, refused, listed, and left alone by later changes of the file.

use std::path::{Path, PathBuf};

use gateway_cli::Exit;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::dashboard::{FORM, signed_in};
use super::support::{As, World, records};
use super::workspace_cli::Desk;
use super::workspaces::OPEN;

/// A template with a parameter of each kind.
pub(super) const NODE: &str = r#"title: Node service
description: A container with Node.js.
parameters:
- {name: version, title: Version of Node.js, options: ["20", "22"], default: "22"}
- {name: greeting, description: What it says, pattern: "[^\n]{1,200}"}
- {name: port, kind: number, default: 3000}
- {name: debug, kind: boolean}
- {name: branch, required: false}
devfile:
  schemaVersion: 2.2.0
  metadata: {name: "{{parameters.greeting}}"}
  components:
  - name: main
    attributes: {gateway/inject-editor: true}
    container:
      image: "registry.example/node:{{parameters.version}}"
      env:
      - {name: GREETING, value: "{{parameters.greeting}}"}
      - {name: DEBUG, value: "debug={{ parameters.debug }}"}
      endpoints:
      - {name: web, targetPort: "{{parameters.port}}"}
projects:
- {url: "https://git.example/team/app.git", ref: "{{parameters.branch}}"}
editor: none
idle_minutes: 45
"#;

/// A gateway with templates of the cluster `one`.
pub(super) struct Templates {
    pub(super) world: World,
    folder: TempDir,
}

impl Templates {
    pub(super) async fn start(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            write(folder.path(), name, text);
        }
        let path = folder.path().to_owned();
        let world = World::configured(|config| config.agents_dir = Some(path)).await;
        world.gateway.configured_cluster("one", OPEN).await;
        Self { world, folder }
    }

    fn write(&self, name: &str, text: &str) {
        write(self.folder.path(), name, text);
    }

    async fn list(&self, who: &As) -> Vec<Value> {
        let list = self.world.json("GET", "/agents/one/workspace-templates", who, "", 200).await;
        list["templates"].as_array().unwrap().clone()
    }

    /// Asks for a workspace, with further members.
    async fn make(&self, name: &str, more: Value, status: u16) -> Value {
        let mut body = json!({"name": name, "executor": "kubernetes", "agent": "one"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.world.json("POST", "/workspaces", &self.world.dev(), &body.to_string(), status).await
    }

    async fn frozen(&self, name: &str) -> String {
        let stored = self.world.gateway.managed(name).await;
        self.world.gateway.store.frozen(stored.workspace.id).await.unwrap().unwrap()
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    let path: PathBuf = folder.join("one/workspace_templates").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn workspace_is_made_from_a_template_and_keeps_what_it_was_made_into() {
    let it = Templates::start(&[("node.yaml", NODE)]).await;
    let greeting = "say: \"hi\" {{version}} #1 & 'x'";
    let wanted =
        json!({"template": "node", "template_parameters": {"greeting": greeting, "version": "20", "branch": "main"}});
    let made = it.make("app", wanted.clone(), 201).await;
    let values = json!({"greeting": greeting, "version": "20", "branch": "main", "port": "3000", "debug": "false"});
    assert_eq!((&made["template"], &made["template_parameters"]), (&"node".into(), &values));
    assert_eq!(made["idle"]["wanted_minutes"], 45.0, "{made}");
    let frozen = it.frozen("app").await;
    for part in ["registry.example/node:20", "https://git.example/team/app.git", "debug=false"] {
        assert!(frozen.contains(part), "{part}: {frozen}");
    }
    let objects: Value = serde_json::from_str(&frozen).unwrap();
    assert!(has(&objects, &json!({"name": "GREETING", "value": greeting})), "{frozen}");
    assert_eq!(made["ports"][0]["port"], 3000);

    it.write(
        "node.yaml",
        &NODE.replace("registry.example/node", "registry.example/other").replace("title: Node service", "title: Other"),
    );
    let renewed = async || {
        let dev = it.world.dev();
        until(async || it.list(&dev).await[0]["title"] == "Other").await;
    };
    renewed().await;
    assert_eq!(it.frozen("app").await, frozen);
    let seen = it.world.json("GET", "/workspaces/app", &it.world.dev(), "", 200).await;
    assert_eq!((&seen["template"], &seen["template_parameters"]), (&"node".into(), &values));
    it.make("later", wanted, 201).await;
    assert!(it.frozen("later").await.contains("registry.example/other:20"));
    let plain = it.make("plain", json!({}), 201).await;
    assert_eq!((&plain["template"], &plain["template_parameters"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn parameters_that_are_wrong_are_named_one_by_one_and_nothing_is_made() {
    let it = Templates::start(&[("node.yaml", NODE)]).await;
    let refused = async |parameters: Value| {
        let refused = it.make("app", json!({"template": "node", "template_parameters": parameters}), 422).await;
        assert_eq!(refused["code"], "invalid");
        let errors = refused["errors"].as_array().unwrap().iter();
        errors
            .map(|one| format!("{} {}", one["pointer"].as_str().unwrap(), one["detail"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let bad = json!({"version": "18", "greeting": "a\nb", "port": "x", "debug": "yes", "branch": "--upload-pack=id", "other": "secret-value"});
    assert_eq!(
        refused(bad).await,
        [
            "/template_parameters/version has to be one of: 20, 22",
            "/template_parameters/greeting has to match the pattern [^\n]{1,200}",
            "/template_parameters/port has to be a decimal number, such as 4, -1 or 0.5",
            "/template_parameters/debug has to be true or false",
            "/template_parameters/other is no parameter of the template",
        ]
    );
    assert_eq!(refused(json!({})).await, ["/template_parameters/greeting is missing"]);
    assert_eq!(
        refused(json!({"greeting": "x", "branch": "--upload-pack=id"})).await,
        ["/template_parameters/branch makes a project that the reference is no name of a branch or tag"]
    );
    assert_eq!(
        refused(json!({"greeting": "x", "debug": true, "port": null, "b c": "x"})).await,
        ["/template_parameters/debug has to be a text", "/template_parameters/port has to be a text"],
        "values are texts"
    );
    assert_eq!(
        refused(json!({"greeting": "x", "b c": "x"})).await,
        ["/template_parameters is no parameter of the template"],
        "what is no name is not repeated"
    );
    let long = "x".repeat(64 * 1024);
    assert_eq!(
        refused(json!({"greeting": "x", "branch": long})).await,
        ["/template_parameters/branch is longer than 4096 bytes"]
    );
    assert_eq!(refused(json!("x")).await, ["/template_parameters has to be an object of texts"]);
    let log = it.world.stopped().await;
    assert!(records(&log).iter().all(|record| record["event"] != "workspace_created"), "{log}");
}

#[tokio::test]
async fn template_that_cannot_be_used_is_refused_by_name() {
    let unmet = NODE.replace("container:\n", "container:\n      memoryLimit: \"{{parameters.greeting}}\"\n");
    let files = [("node.yaml", NODE), ("bad.yaml", "devfile: 1\nmore: 1\n"), ("unmet.yaml", &unmet)];
    let it = Templates::start(&files).await;
    let (dev, eve) = (it.world.dev(), it.world.user("eve").await);
    let first = async |more: Value, status| {
        let refused = it.make("app", more, status).await;
        format!(
            "{} {}",
            refused["errors"][0]["pointer"].as_str().unwrap(),
            refused["errors"][0]["detail"].as_str().unwrap()
        )
    };
    assert_eq!(
        first(json!({"template": "none"}), 422).await,
        "/template there is no workspace template of that name at this cluster"
    );
    assert!(first(json!({"template": "Not A Name"}), 422).await.starts_with("/template the name of a template has"));
    assert_eq!(
        first(json!({"template": "node", "devfile": "x", "template_parameters": {"greeting": "x"}}), 422).await,
        "/template a workspace is made from a template or from a devfile, not from both"
    );
    assert_eq!(
        first(json!({"template_parameters": {"greeting": "x"}}), 422).await,
        "/template_parameters is for a workspace that is made from a template"
    );
    let broken = it.make("app", json!({"template": "bad"}), 409).await;
    assert_eq!((&broken["code"], &broken["reason"]), (&"conflict".into(), &"template_invalid".into()));
    // What only shows with a user's value is told as a devfile's problem, of the template.
    let rendered = it.make("app", json!({"template": "unmet", "template_parameters": {"greeting": "much"}}), 422).await;
    assert_eq!(rendered["errors"][0]["pointer"], "/template");
    let problem = &rendered["problems"][0];
    assert_eq!((&problem["path"], &problem["line"]), (&"components[0].container.memoryLimit".into(), &Value::Null));
    for executor in ["ci", "external"] {
        let body = json!({"name": "app", "executor": executor, "template": "node"}).to_string();
        it.world.json("POST", "/workspaces", &dev, &body, 422).await;
    }
    assert_eq!(it.world.call("GET", "/workspaces/app", &dev, "").await.status(), 404);

    let list = it.list(&eve).await;
    let told: Vec<_> = list.iter().map(|row| (row["name"].as_str().unwrap(), row["error"].as_str())).collect();
    assert_eq!(told, [("bad", Some("template_invalid")), ("node", None), ("unmet", None)]);
    assert_eq!(list[0]["problems"], json!([]), "what is wrong is for operators");
    let problems = it.list(&dev).await[0]["problems"].as_array().unwrap().clone();
    assert!(problems.iter().any(|one| one["path"] == "more" && one["line"] == 2), "{problems:?}");
    let node = &list[1];
    assert_eq!((&node["title"], &node["description"]), (&"Node service".into(), &"A container with Node.js.".into()));
    let parameters = json!([
        {"name": "version", "title": "Version of Node.js", "description": null, "kind": "text", "default": "22", "options": ["20", "22"],
            "pattern": null, "required": false},
        {"name": "greeting", "title": null, "description": "What it says", "kind": "text", "default": null, "options": [],
            "pattern": "[^\n]{1,200}", "required": true},
        {"name": "port", "title": null, "description": null, "kind": "number", "default": "3000", "options": [], "pattern": null,
            "required": false},
        {"name": "debug", "title": null, "description": null, "kind": "boolean", "default": null, "options": [], "pattern": null,
            "required": false},
        {"name": "branch", "title": null, "description": null, "kind": "text", "default": null, "options": [], "pattern": null,
            "required": false},
    ]);
    assert_eq!(node["parameters"], parameters);
    for (who, agent, status) in [(&As::Nobody, "one", 401), (&eve, "none", 404), (&eve, "..%2fone", 404)] {
        let path = format!("/agents/{agent}/workspace-templates");
        assert_eq!(it.world.call("GET", &path, who, "").await.status(), status, "{agent}");
    }
}

#[tokio::test]
async fn request_has_the_last_word_and_a_share_shows_nothing_of_the_template() {
    let it = Templates::start(&[("node.yaml", NODE)]).await;
    let wanted = json!({"template": "node", "template_parameters": {"greeting": "x"}, "idle_minutes": 90, "editor": "code-server",
        "projects": [{"url": "https://git.example/other.git"}]});
    let made = it.make("app", wanted, 201).await;
    assert_eq!(made["idle"]["wanted_minutes"], 90.0);
    let frozen = it.frozen("app").await;
    assert!(frozen.contains("other.git") && !frozen.contains("team/app.git"), "{frozen}");
    it.make("plain", json!({"template": "node", "template_parameters": {"greeting": "x"}}), 201).await;
    assert_ne!(it.frozen("plain").await.replace("plain", "app"), frozen);
    let shares = r#"{"shares":[{"port":3000,"audience":"user:ann"}]}"#;
    it.world.json("PUT", "/workspaces/app/shares", &it.world.dev(), shares, 200).await;
    let ann = it.world.user("ann").await;
    let seen = it.world.json("GET", "/workspaces/app", &ann, "", 200).await;
    assert_eq!((&seen["template"], &seen["template_parameters"]), (&Value::Null, &Value::Null));
    let list = it.world.json("GET", "/workspaces", &it.world.dev(), "", 200).await;
    assert_eq!(list["workspaces"][0]["template"], "node");
}

#[tokio::test]
async fn command_line_lists_templates_and_makes_workspaces_from_them() {
    let it = Templates::start(&[("node.yaml", NODE), ("bad.yaml", "devfile: 1\n")]).await;
    let desk = Desk::new(&it.world);
    let (exit, out, err) = desk.run("templates", None).await;
    assert_eq!(exit, Exit::Success, "{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["TEMPLATE", "PARAMETERS", "ABOUT"]);
    assert!(
        lines[1].starts_with("bad ") && lines[1].contains("cannot be used: line 1, devfile: must be a map"),
        "{out}"
    );
    assert!(lines[2].contains("version=22, greeting (required), port=3000, debug, branch  Node service"), "{out}");
    let (_, out, _) = desk.run("templates --agent one --output json", None).await;
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&rows[1]["name"], &rows[1]["parameters"][1]["required"]), (&"node".into(), &true.into()));

    let words = "create app --agent one --template node --parameter greeting=a=b --parameter version=20";
    let (exit, _, err) = desk.run(words, None).await;
    assert_eq!(exit, Exit::Success, "{err}");
    assert!(it.frozen("app").await.contains("registry.example/node:20"));
    let (_, out, _) = desk.run("show app", None).await;
    assert!(out.contains("template  node (branch=, debug=false, greeting=a=b, port=3000, version=20)"), "{out}");
    for (words, told) in [
        ("create other --agent one --template node", "/template_parameters/greeting"),
        ("create other --agent one --template none", "/template"),
        ("create other --agent one --template bad", "template_invalid"),
        (
            "create other --agent one --template node --parameter greeting=a --parameter greeting=b",
            "--parameter greeting is there twice",
        ),
        ("create other --executor ci --template node", "--template is for --executor kubernetes"),
        ("create other --executor external --template node", "takes no --agent, --devfile, --template"),
        ("templates --agent none", "not_found"),
    ] {
        let (exit, out, err) = desk.run(words, None).await;
        assert!(exit != Exit::Success && out.is_empty() && err.contains(told), "{words}: {out} {err}");
    }
}

/// Reads the attribute of the element with an id.
fn attribute<'t>(page: &'t str, id: &str, name: &str) -> Option<&'t str> {
    let (before, after) = page.split_once(&format!(" id=\"{id}\""))?;
    let begin = before.rsplit_once('<').map_or("", |(_, begin)| begin);
    let end = after.split_once('>').map_or("", |(end, _)| end);
    let find = |part: &'t str| part.split_once(&format!(" {name}=\"")).and_then(|(_, rest)| rest.split('"').next());
    find(end).or_else(|| find(begin))
}

#[tokio::test]
async fn page_offers_templates_and_shows_a_form_of_the_one_that_was_chosen() {
    let hostile = "title: \"<img src=x onerror=alert(1)>\"\nparameters:\n- {name: x, title: '<script>', description: '\"><b>', default: '\"><i>'}\ndevfile:\n  \
        schemaVersion: 2.2.0\n  components:\n  - {name: main, attributes: {gateway/inject-editor: true}, container: {image: a, env: [{name: A, \
        value: '{{parameters.x}}'}]}}\n";
    let it = Templates::start(&[("node.yaml", NODE), ("bad.yaml", "devfile: 1\n"), ("hostile.yaml", hostile)]).await;
    let mut browser = signed_in(&it.world).await;
    let site = format!("http://{}", it.world.public());
    let page = browser.visit(&format!("{site}/create")).await.text();
    assert!(page.contains("href=\"/create?agent=one&amp;template=node#template\">Node service</a>"), "{page}");
    assert!(
        page.contains("A container with Node.js.") && page.contains("it cannot be used: an operator has to"),
        "{page}"
    );
    assert!(!page.contains("name=\"parameter."), "{page}");

    let page = browser.visit(&format!("{site}/create?agent=one&template=node&parameter.greeting=hi")).await.text();
    assert_eq!(attribute(&page, "parameter-greeting", "value"), Some("hi"));
    assert_eq!(
        attribute(&page, "parameter-greeting", "aria-describedby"),
        Some("parameter-greeting-hint parameter-greeting-pattern")
    );
    assert_eq!(attribute(&page, "parameter-port", "type"), Some("number"));
    assert_eq!(attribute(&page, "parameter-port", "value"), Some("3000"));
    assert_eq!(attribute(&page, "parameter-debug", "type"), Some("checkbox"));
    assert!(
        page.contains("<option>20</option><option selected>22</option>")
            && page.contains("greeting (required)</label>"),
        "{page}"
    );
    for name in ["version", "greeting", "port", "branch"] {
        assert!(page.contains(&format!("<label for=\"parameter-{name}\">")), "{name}: {page}");
    }
    assert!(page.contains("<label><input id=\"parameter-debug\""), "a box is inside of its label: {page}");
    let page = browser.visit(&format!("{site}/create?agent=one&template=hostile")).await.text();
    assert!(!page.contains("<img") && !page.contains("<b>") && !page.contains("<i>"), "{page}");
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    for (name, status) in [("none", 422), ("bad", 409), ("Not%20A%20Name", 422)] {
        let gone = browser.visit(&format!("{site}/create?agent=one&template={name}")).await;
        assert!(gone.status() == status && gone.text().contains("This template cannot be shown."), "{}", gone.text());
    }
}

#[tokio::test]
async fn page_shows_what_is_wrong_beside_each_field() {
    let it = Templates::start(&[("node.yaml", NODE)]).await;
    let mut browser = signed_in(&it.world).await;
    let site = format!("http://{}", it.world.public());
    let form = "on=template&agent=one&template=node&name=Bad&parameter.version=18&parameter.greeting=&parameter.port=x&parameter.branch=";
    let answer = browser.ask("POST", &format!("{site}/create"), FORM, form).await;
    let page = answer.text();
    assert_eq!(answer.status(), 422, "{page}");
    assert_eq!(
        (attribute(&page, "template-name", "value"), attribute(&page, "template-name", "aria-invalid")),
        (Some("Bad"), Some("true"))
    );
    let form = form.replace("name=Bad", "name=app");
    let answer = browser.ask("POST", &format!("{site}/create"), FORM, &form).await;
    let page = answer.text();
    assert_eq!(answer.status(), 422, "{page}");
    for name in ["version", "greeting", "port"] {
        let id = format!("parameter-{name}");
        assert_eq!(attribute(&page, &id, "aria-invalid"), Some("true"), "{name}: {page}");
        assert!(
            attribute(&page, &id, "aria-describedby").unwrap().ends_with(&format!("{id}-mistake")),
            "{name}: {page}"
        );
        assert!(
            page.contains(&format!("id=\"{id}-mistake\"")) && page.contains(&format!("<a href=\"#{id}\">")),
            "{name}: {page}"
        );
    }
    assert!(page.contains("role=\"alert\"") && !page.contains("parameter-branch-mistake"), "{page}");
}

#[tokio::test]
async fn page_makes_a_workspace_and_names_its_template() {
    let it = Templates::start(&[("node.yaml", NODE)]).await;
    let mut browser = signed_in(&it.world).await;
    let site = format!("http://{}", it.world.public());
    let form = "on=template&agent=one&template=node&name=app&parameter.version=20&parameter.greeting=%3Cb%3E%20%22hi%22&parameter.port=4000\
        &parameter.debug=true&parameter.branch=&projects=&editor=&idle_minutes=";
    let answer = browser.ask("POST", &format!("{site}/create"), FORM, form).await;
    assert_eq!(
        (answer.status(), answer.header("location")),
        (303, Some("/workspaces/app?follow=1")),
        "{}",
        answer.text()
    );
    let seen = it.world.json("GET", "/workspaces/app", &it.world.dev(), "", 200).await;
    let values = json!({"version": "20", "greeting": "<b> \"hi\"", "port": "4000", "debug": "true", "branch": ""});
    assert_eq!(seen["template_parameters"], values);
    let page = browser.visit(&format!("{site}/workspaces/app")).await.text();
    assert!(
        page.contains("from the template <code>node</code>") && page.contains("<h2 id=\"template\">Template node</h2>"),
        "{page}"
    );
    assert!(!page.contains("<b>"), "{page}");
    let form = form.replace("name=app", "name=quiet").replace("&parameter.debug=true", "");
    assert_eq!(browser.ask("POST", &format!("{site}/create"), FORM, &form).await.status(), 303);
    let seen = it.world.json("GET", "/workspaces/quiet", &it.world.dev(), "", 200).await;
    assert_eq!(seen["template_parameters"]["debug"], "false", "a box that is not checked is not sent");
}

/// Waits for what the gateway finds within a few seconds.
async fn until(holds: impl AsyncFn() -> bool) {
    for _ in 0..200 {
        if holds().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("it did not come about");
}

/// Returns whether a value is somewhere in another.
fn has(whole: &Value, part: &Value) -> bool {
    whole == part
        || match whole {
            Value::Array(items) => items.iter().any(|item| has(item, part)),
            Value::Object(members) => members.values().any(|item| has(item, part)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}
