mod files;
mod laws;
mod life;
mod refused;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::devfile;
use crate::document::{self, Node, Problems};

/// What a site says, for tests.
#[derive(Debug)]
struct Site {
    workspace: WorkspaceName,
    zone: Zone,
    project: Option<Project>,
    tags: Vec<String>,
    variables: Vec<VariableName>,
    public_url: String,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            workspace: "shop".parse().unwrap(),
            zone: "workspaces.example.net".parse().unwrap(),
            project: None,
            tags: Vec::new(),
            variables: Vec::new(),
            public_url: "https://gateway.example.com".to_owned(),
        }
    }
}

impl Site {
    fn facts(&self) -> PipelineFacts<'_> {
        PipelineFacts {
            workspace: &self.workspace,
            run: 3,
            cache_key: "0123456789abcdef0123456789abcdef",
            agents_url: "https://agents.example.com",
            public_url: &self.public_url,
            zone: &self.zone,
            project: self.project.as_ref(),
            tags: &self.tags,
            variables: &self.variables,
            ports: &[],
        }
    }
}

fn settings() -> PipelineSettings {
    let agent = |architecture, name: &str| AgentFile {
        architecture,
        url: format!("https://gateway.example.com/agents/{name}"),
        sha256: [7; 32],
    };
    PipelineSettings {
        tags: vec!["workspaces".to_owned()],
        job_timeout: Duration::from_secs(8 * 60 * 60),
        save_max: Duration::from_secs(30 * 60),
        inherit_variables: vec!["CI_PROJECT_URL".to_owned()],
        editor: Editor::Installed,
        agents: vec![agent(Architecture::Amd64, "amd64"), agent(Architecture::Arm64, "arm64")],
        proof: Proof::IdToken { audience: "https://gateway.example.com".to_owned() },
        value_bytes_max: usize::MAX,
        ca_pem: None,
    }
}

/// JSON is YAML.
fn read(devfile: &Value) -> Devfile {
    devfile::parse(devfile.to_string().as_bytes()).unwrap_or_else(|problems| panic!("{problems}\n{devfile}"))
}

fn main_component(mut container: Value) -> Value {
    container["image"] = json!("registry.example.com/tools:1");
    json!({"name": "main", "attributes": {"gateway/inject-editor": true}, "container": container})
}

/// Makes a devfile of a main component and more.
fn devfile_of(main: Value, more: Vec<Value>, rest: Value) -> Devfile {
    let components: Vec<Value> = std::iter::once(main_component(main)).chain(more).collect();
    let mut devfile = json!({"schemaVersion": "2.2.0", "components": components});
    if let (Value::Object(devfile), Value::Object(rest)) = (&mut devfile, rest) {
        devfile.extend(rest);
    }
    read(&devfile)
}

fn generated(devfile: &Devfile, settings: &PipelineSettings, site: &Site) -> String {
    let pipeline = generate(devfile, settings, &site.facts());
    pipeline.unwrap_or_else(|problems| panic!("{problems:?}")).yaml
}

/// Reads a definition back, with the reader of devfiles.
fn tree(yaml: &str) -> Node {
    let mut problems = Problems::default();
    let node = document::parse(yaml.as_bytes(), YAML_BYTES_MAX, &mut problems);
    let told = problems.finish();
    node.unwrap_or_else(|| panic!("{told:?}\n{yaml}"))
}

fn value<'n>(node: &'n Node, key: &str) -> &'n Node {
    let document::Value::Map(entries) = &node.value else { panic!("{key} of {node:?}") };
    &entries.iter().find(|entry| entry.key == key).unwrap_or_else(|| panic!("no {key}")).node
}

/// Returns the script of the job.
fn script_of(yaml: &str) -> String {
    let job = tree(yaml);
    let document::Value::List(lines) = &value(value(&job, "workspace"), "script").value else { panic!("no list") };
    let [line] = lines.as_slice() else { panic!("one line") };
    let document::Value::Text(text) = &line.value else { panic!("no text") };
    text.clone()
}

/// The shells of this machine that a job may find as `/bin/sh`, each with its own way to run a script.
fn shells() -> Vec<Vec<&'static str>> {
    let candidates = [vec!["sh"], vec!["dash"], vec!["busybox", "sh"], vec!["bash", "--posix"]];
    let is_there = |words: &Vec<&str>| {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join(words[0]).exists());
        found && Command::new(words[0]).args(&words[1..]).args(["-c", ":"]).status().is_ok_and(|it| it.success())
    };
    candidates.into_iter().filter(is_there).collect()
}

/// Begins a command of a shell, in a folder and with nothing in the environment but the way to programs.
fn shell(words: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("TMPDIR", folder);
    command
}

#[test]
fn default_devfile_becomes_this_definition() {
    let devfile = devfile::parse(devfile::DEFAULT_DEVFILE.as_bytes()).unwrap();
    let yaml = generated(&devfile, &settings(), &Site::default());
    let (head, _script) = yaml.split_once("  script:\n").unwrap();
    let expected = r#"workflow:
  name: "Workspace shop, run 3"
  rules:
    -
      when: "always"
stages:
  - "workspace"
workspace:
  stage: "workspace"
  image:
    name: "docker.io/library/buildpack-deps:24.04-scm"
    entrypoint:
      - ""
  tags:
    - "workspaces"
  rules:
    -
      when: "on_success"
  retry: 0
  interruptible: false
  resource_group: "workspace/shop"
  timeout: "480 minutes"
  variables:
    GIT_STRATEGY: "none"
    RUNNER_SCRIPT_TIMEOUT: "27900s"
    CACHE_COMPRESSION_LEVEL: "fast"
  id_tokens:
    GW_ID_TOKEN_1:
      aud: "https://gateway.example.com"
    GW_ID_TOKEN_2:
      aud: "https://gateway.example.com"
    GW_ID_TOKEN_3:
      aud: "https://gateway.example.com"
    GW_ID_TOKEN_4:
      aud: "https://gateway.example.com"
    GW_ID_TOKEN_5:
      aud: "https://gateway.example.com"
  cache:
    key: "0123456789abcdef0123456789abcdef"
    paths:
      - "workspace-89abcdef/"
    policy: "pull-push"
    when: "always"
"#;
    assert_eq!(head, expected);
    assert_eq!(generated(&devfile, &settings(), &Site::default()), yaml, "the same input makes the same bytes");
}

#[test]
fn side_containers_become_services_and_what_a_request_says_goes_before_the_settings() {
    let database = json!({"name": "db", "container": {
        "image": "postgres:18",
        "command": ["docker-entrypoint.sh"],
        "args": ["postgres", "-c", "shared_buffers=64MB"],
        "env": [{"name": "POSTGRES_PASSWORD", "value": "not secret"}],
        "memoryLimit": "1Gi",
        "endpoints": [{"name": "sql", "targetPort": 5432, "exposure": "none"}],
    }});
    let devfile = devfile_of(json!({"cpuRequest": "500m", "memoryLimit": "2Gi"}), vec![database], json!({}));
    let site = Site { tags: vec!["large".to_owned()], ..Site::default() };
    let settings = PipelineSettings { proof: Proof::FileVariable, ..settings() };
    let yaml = generated(&devfile, &settings, &site);
    for part in [
        r#"  services:
    -
      name: "postgres:18"
      alias: "db"
      entrypoint:
        - "docker-entrypoint.sh"
      command:
        - "postgres"
        - "-c"
        - "shared_buffers=64MB"
      variables:
        POSTGRES_PASSWORD: "not secret"
        KUBERNETES_SERVICE_MEMORY_LIMIT: "1Gi"
  tags:
    - "large"
"#,
        "    KUBERNETES_CPU_REQUEST: \"500m\"\n    KUBERNETES_MEMORY_LIMIT: \"2Gi\"\n  cache:\n",
    ] {
        assert!(yaml.contains(part), "{yaml}");
    }
    assert!(!yaml.contains("id_tokens"));
}

#[test]
fn ports_that_are_for_the_gateway_are_named_and_no_others() {
    let endpoints = json!([
        {"name": "web", "targetPort": 3000},
        {"name": "api", "targetPort": 4000, "exposure": "internal"},
        {"name": "debug", "targetPort": 9229, "exposure": "none"},
        {"name": "dns", "targetPort": 5353, "protocol": "udp"},
    ]);
    let devfile = devfile_of(json!({"endpoints": endpoints}), Vec::new(), json!({}));
    let script = script_of(&generated(&devfile, &settings(), &Site::default()));
    assert!(script.contains("--terminal --default-port 60001 --port 3000 --port 4000 --port 60001\n"));
    let none = PipelineSettings { editor: Editor::None, ..settings() };
    let script = script_of(&generated(&devfile, &none, &Site::default()));
    assert!(script.contains("--terminal --default-port 60002 --port 3000 --port 4000 --port 60001\n"));
}

#[test]
fn fixed_scripts_are_sound_and_small() {
    let devfile = devfile_of(json!({}), Vec::new(), json!({}));
    let script = script_of(&generated(&devfile, &settings(), &Site::default()));
    let folder = tempfile::tempdir().unwrap();
    for words in shells() {
        let checked = shell(&words, folder.path()).args(["-n", "-c", &script]).output().unwrap();
        assert!(checked.status.success(), "{words:?} {checked:?}");
    }
    // It is read by people in the log of the CI system, and stored with each job.
    assert!(script.len() < 20_000, "{}", script.len());
}

#[test]
fn what_a_job_keeps_private_is_where_its_ci_system_cleans_up_if_it_says_where() {
    let script = script_of(&generated(&devfile_of(json!({}), Vec::new(), json!({})), &settings(), &Site::default()));
    let (beginning, _) = script.split_once("printf ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let private = folder.path().join("private");
    std::fs::create_dir(&private).unwrap();
    for words in shells() {
        let is_below = |said: Option<&Path>, expected: &Path| {
            let mut job = shell(&words, folder.path());
            if let Some(said) = said {
                job.env("GW_PRIVATE_DIR", said);
            }
            let made = job.args(["-euc", &format!("{beginning}echo \"$gw_job\"")]).output().unwrap();
            let path = String::from_utf8(made.stdout).unwrap();
            assert_eq!(Path::new(path.trim_end()).parent(), Some(expected), "{words:?} {said:?}");
        };
        is_below(Some(&private), &private);
        // One of another machine than the job's, as in a container.
        is_below(Some(Path::new("/nonexistent")), folder.path());
        is_below(None, folder.path());
    }
}

/// A devfile that has everything, and what it becomes.
fn full() -> Devfile {
    let database = json!({"name": "db", "container": {
        "image": "docker.io/library/postgres:18",
        "args": ["postgres", "-c", "shared_buffers=64MB"],
        "env": [{"name": "POSTGRES_HOST_AUTH_METHOD", "value": "trust"}],
        "memoryLimit": "1Gi",
    }});
    let cache = json!({"name": "cache", "container": {"image": "docker.io/library/redis:8"}});
    let mut main = main_component(json!({
        "command": ["/usr/bin/watchexec"],
        "args": ["--", "make", "-C", "$(PROJECT_SOURCE)"],
        "cpuRequest": "500m",
        "memoryLimit": "4Gi",
        "env": [{"name": "DATABASE_URL", "value": "postgres://db/shop"}, {"name": "ODD", "value": "it's $(DATABASE_URL)\n\u{7}"}],
        "endpoints": [{"name": "web", "targetPort": 3000}],
    }));
    main["attributes"]["overrideCommand"] = json!(false);
    read(&json!({
        "schemaVersion": "2.2.0",
        "components": [main, database, cache],
        "commands": [
            {"id": "install", "exec": {"component": "main", "commandLine": "npm ci &&\n\tnpm run dev &\n", "workingDir": "/projects/shop"}},
            {"id": "hello", "exec": {"component": "main", "commandLine": "echo 'it'\\''s there'"}},
        ],
        "events": {"postStart": ["install", "hello"]},
    }))
}

/// The definitions in `gateway/spec/tests/pipelines` are those that are generated now: other programs read them too
/// (tests/real/suites/ci-schema.sh). `UPDATE_PIPELINES=1` writes them anew.
#[test]
fn recorded_definitions_are_what_is_generated() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pipelines");
    let least = devfile::parse(devfile::DEFAULT_DEVFILE.as_bytes()).unwrap();
    let project =
        Project { url: "https://gitlab.example.com/team/shop.git".to_owned(), reference: Some("main".to_owned()) };
    let variable = |name: &str, is_file| VariableName { name: name.to_owned(), is_file, bytes: 1 };
    let site = Site {
        project: Some(project),
        variables: vec![variable("API_KEY", false), variable("id_ed25519", true)],
        ..Site::default()
    };
    let with_all = PipelineSettings {
        editor: Editor::Archive { url: "https://example.com/code-server.tar.gz".to_owned(), sha256: [9; 32] },
        proof: Proof::FileVariable,
        ca_pem: Some("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_owned()),
        ..settings()
    };
    for (name, yaml) in [
        ("least.yml", generated(&least, &settings(), &Site::default())),
        ("full.yml", generated(&full(), &with_all, &site)),
    ] {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_PIPELINES").is_some() {
            std::fs::write(&path, &yaml).unwrap();
        }
        let recorded = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(recorded == yaml, "{name} is another now: UPDATE_PIPELINES=1 writes it anew\n{yaml}");
    }
}
