//! Workspaces from operators' templates: made, refused, listed, and left alone by later changes of the file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{As, World};
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
