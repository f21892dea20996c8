mod laws;
mod refused;

use serde_json::{Value, json};

use super::*;
use crate::cluster_config::{Amounts, PullPolicy, Resources, SecretRef};
use crate::devfile;

/// What a site says, for tests.
pub(super) struct Site {
    workspace: WorkspaceName,
    cluster: ClusterName,
    owner: UserName,
    zone: Zone,
}

impl Site {
    pub(super) fn new(workspace: &str) -> Self {
        let zone = "workspaces.example.net".parse().expect("a zone");
        let (cluster, owner) = ("prod".parse().expect("a cluster"), "ann".parse().expect("a user"));
        Self { workspace: workspace.parse().expect("a workspace"), cluster, owner, zone }
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts {
            workspace: &self.workspace,
            cluster: &self.cluster,
            namespace: "ws-mine",
            owner: &self.owner,
            zone: &self.zone,
            public_url: "https://gateway.example.com:8443",
            agents_url: "https://agents.example.com",
            projects: &[],
            editor: Chosen::CodeServer,
        }
    }
}

pub(super) fn config() -> ClusterConfig {
    ClusterConfig { enabled: true, tools_image: "registry.example.com/tools:1".to_owned(), ..ClusterConfig::default() }
}

/// JSON is YAML.
pub(super) fn read(devfile: &Value) -> Devfile {
    devfile::parse(devfile.to_string().as_bytes()).unwrap_or_else(|problems| panic!("{problems}\n{devfile}"))
}

fn container(name: &str, container: Value) -> Value {
    json!({"name": name, "container": container})
}

fn main(container: Value) -> Value {
    json!({"name": "main", "attributes": {"gateway/inject-editor": true}, "container": container})
}

fn devfile_of(components: Vec<Value>, rest: Value) -> Devfile {
    let mut devfile = json!({"schemaVersion": "2.2.0", "components": components});
    if let (Value::Object(devfile), Value::Object(rest)) = (&mut devfile, rest) {
        devfile.extend(rest);
    }
    read(&devfile)
}

pub(super) fn default_frozen() -> FrozenConfig {
    let devfile = devfile::parse(devfile::DEFAULT_DEVFILE.as_bytes()).expect("the default devfile");
    freeze(&devfile, &config(), &Site::new("mine").facts()).expect("frozen")
}

fn froze(devfile: &Devfile, config: &ClusterConfig) -> FrozenConfig {
    freeze(devfile, config, &Site::new("mine").facts()).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn of(frozen: &FrozenConfig, role: Role) -> &Value {
    &frozen.objects().iter().find(|object| object.role == role).expect("an object").value
}

fn pod_of(frozen: &FrozenConfig) -> &Value {
    &of(frozen, Role::Deployment)["spec"]["template"]["spec"]
}

fn script<'f>(frozen: &'f FrozenConfig, name: &str) -> Option<&'f str> {
    of(frozen, Role::Scripts)["data"][name].as_str()
}

fn problems_of(devfile: &Devfile, config: &ClusterConfig, workspace: &str) -> String {
    let problems = freeze(devfile, config, &Site::new(workspace).facts()).expect_err("problems");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn default_devfile_becomes_these_objects_in_this_order() {
    let frozen = default_frozen();
    let names: Vec<_> = frozen
        .objects()
        .iter()
        .map(|object| {
            let annotation = &object.value["metadata"]["annotations"][OWNING_INVENTORY_ANNOTATION];
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            [&object.value["kind"], &object.value["metadata"]["name"], annotation].map(text).join(" ")
        })
        .collect();
    let expected = [
        "ConfigMap mine-workspace-inventory -",
        "Deployment mine mine-workspace-inventory",
        "Service mine mine-workspace-inventory",
        "PersistentVolumeClaim mine-data mine-workspace-inventory",
        "ServiceAccount mine mine-workspace-inventory",
        "NetworkPolicy mine mine-workspace-inventory",
        "ConfigMap mine-scripts mine-workspace-inventory",
        "ConfigMap mine-secrets-inventory -",
        "Secret mine-env mine-secrets-inventory",
        "Secret mine-file mine-secrets-inventory",
    ];
    assert_eq!(names, expected);
}

#[test]
fn nobody_gets_in_and_out_goes_what_is_configured() {
    let frozen = default_frozen();
    let spec = &of(&frozen, Role::NetworkPolicy)["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(spec.get("ingress"), None);
    assert_eq!(spec["podSelector"]["matchLabels"], json!({WORKSPACE_LABEL: "mine"}));
    let blocks = &spec["egress"][1]["to"];
    assert_eq!(blocks[0]["ipBlock"]["except"][0], "10.0.0.0/8");
    assert_eq!(blocks[0]["ipBlock"]["except"][1], "169.254.169.254/32", "a cloud's metadata");
    assert_eq!((&blocks[0]["ipBlock"]["cidr"], blocks.as_array().map(Vec::len)), (&json!("0.0.0.0/0"), Some(1)));
    assert_eq!(spec["egress"].as_array().map(Vec::len), Some(2));
    let mut open = config();
    open.network_policy.enabled = false;
    let devfile = devfile_of(vec![main(json!({"image": "a"}))], json!({}));
    assert!(froze(&devfile, &open).objects().iter().all(|object| object.role != Role::NetworkPolicy));
}

#[test]
fn pod_keeps_the_restricted_standard_unless_privileges_may_be_escalated() {
    let frozen = default_frozen();
    let pod = pod_of(&frozen);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    for container in [&pod["initContainers"][0], &pod["containers"][0]] {
        let security = &container["securityContext"];
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!([&security["allowPrivilegeEscalation"], &security["privileged"]], [false, false]);
    }
    assert_eq!(pod.get("hostUsers"), None);
    let config = ClusterConfig {
        user_namespaces: true,
        allow_privilege_escalation: true,
        runtime_class: Some("sysbox".to_owned()),
        ..config()
    };
    let devfile = devfile_of(vec![main(json!({"image": "a"}))], json!({}));
    let frozen = froze(&devfile, &config);
    let pod = pod_of(&frozen);
    // True would switch user namespaces off.
    assert_eq!(pod["hostUsers"], false);
    assert_eq!(pod["runtimeClassName"], "sysbox");
    assert_eq!(pod["securityContext"].get("seccompProfile"), None);
    assert_eq!(pod["containers"][0]["securityContext"].get("capabilities"), None);
}

#[test]
fn agent_leads_to_every_port_but_those_of_the_pod_alone() {
    let ports = json!([
        {"name": "web", "targetPort": 3000},
        {"name": "inner", "targetPort": 3001, "exposure": "internal"},
        {"name": "own", "targetPort": 3002, "exposure": "none"},
        {"name": "voice", "targetPort": 3003, "protocol": "udp"},
    ]);
    let devfile = devfile_of(vec![main(json!({"image": "a", "endpoints": ports}))], json!({}));
    let frozen = froze(&devfile, &config());
    let agent = script(&frozen, "agent.sh").expect("a script");
    assert!(agent.contains("--gateway 'https://agents.example.com' --token-file /workspace-gateway/files/agent-token"));
    assert!(agent.ends_with("--default-port 60001 --deny-port 3002\n"), "{agent}");
    let service = &of(&frozen, Role::Service)["spec"];
    let numbers: Vec<_> = service["ports"].as_array().expect("ports").iter().map(|port| port["port"].clone()).collect();
    assert_eq!((numbers, &service["clusterIP"]), (vec![json!(3000), json!(3001), json!(3003)], &json!("None")));
    let mut elsewhere = config();
    elsewhere.gateway_url = Some("http://10.0.0.7:8081/it's".to_owned());
    let frozen = froze(&devfile, &elsewhere);
    assert!(
        script(&frozen, "agent.sh").is_some_and(|agent| agent.contains(r"--gateway 'http://10.0.0.7:8081/it'\''s' "))
    );
    // Its address is in none of the usual destinations.
    let gateway = json!({"to": [{"ipBlock": {"cidr": "10.0.0.7/32"}}], "ports": [{"port": 8081, "protocol": "TCP"}]});
    assert_eq!(of(&frozen, Role::NetworkPolicy)["spec"]["egress"][1], gateway);
}

#[test]
fn every_container_has_a_writable_home_a_name_for_its_user_and_the_folders_of_the_volume() {
    let own_home = json!([{"name": "HOME", "value": "/root"}, {"name": "USER", "value": "me"}]);
    let side = container("side", json!({"image": "b", "env": own_home}));
    let before = container("before", json!({"image": "c"}));
    let rest = json!({"commands": [{"id": "one", "apply": {"component": "before"}}], "events": {"preStart": ["one"]}});
    let devfile = devfile_of(vec![main(json!({"image": "a"})), side, before], rest);
    let frozen = froze(&devfile, &config());
    let pod = pod_of(&frozen);
    let value = |container: &Value, name: &str| {
        let env = container["env"].as_array().expect("variables").clone();
        let named: Vec<_> = env.into_iter().filter(|one| one["name"] == name).map(|one| one["value"].clone()).collect();
        assert_eq!(named.len(), 1, "{name}");
        named[0].clone()
    };
    for container in [&pod["containers"][0], &pod["initContainers"][1]] {
        assert_eq!(
            (value(container, "HOME"), value(container, "USER")),
            (json!("/home/workspace"), json!("workspace"))
        );
    }
    let side = &pod["containers"][1];
    assert_eq!((value(side, "HOME"), value(side, "USER")), (json!("/root"), json!("me")));
    for container in [&pod["containers"][0], side, &pod["initContainers"][1]] {
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        let folders: Vec<_> = mounts
            .iter()
            .filter(|mount| mount["name"] == "gw-data")
            .map(|mount| (mount["mountPath"].as_str().expect("a path"), mount["subPath"].as_str().expect("a folder")))
            .collect();
        assert_eq!(
            folders,
            [("/projects", "projects"), ("/home/workspace", "home"), ("/workspace-gateway/logs", "logs")]
        );
        assert!(mounts.iter().any(|mount| mount["mountPath"] == "/etc/passwd" && mount["subPath"] == "passwd"));
    }
    // Only the first container sees the volume as a whole.
    assert_eq!(
        pod["initContainers"][0]["volumeMounts"][1],
        json!({"name": "gw-data", "mountPath": "/workspace-gateway/volume"})
    );
    // An image with means of its own adds users.
    let free = ClusterConfig {
        allow_privilege_escalation: true,
        runtime_class: Some("sysbox".to_owned()),
        image_pull_policy: Some(PullPolicy::Never),
        ..config()
    };
    let text = froze(&devfile, &free).to_json();
    assert!(!text.contains("passwd"), "{text}");
    assert_eq!(text.matches(r#""imagePullPolicy":"Never""#).count(), 4);
    assert!(!frozen.to_json().contains("imagePullPolicy"), "Kubernetes' own rule");
    let at_home = main(json!({"image": "a", "volumeMounts": [{"name": "v", "path": "/home/workspace/"}]}));
    let volume = json!({"name": "v", "volume": {}});
    let said = problems_of(&devfile_of(vec![at_home, volume], json!({})), &config(), "mine");
    assert_eq!(said, "component main: a volume is mounted at /home/workspace, which is the gateway's");
}

#[test]
fn workspace_counts_as_running_once_its_agent_has_been_connected() {
    let frozen = froze(
        &devfile_of(vec![main(json!({"image": "a"})), container("side", json!({"image": "b"}))], json!({})),
        &config(),
    );
    let containers = &pod_of(&frozen)["containers"];
    let probe = &containers[0]["startupProbe"];
    assert_eq!(probe["exec"]["command"], json!(["/bin/sh", "/workspace-gateway/scripts/started.sh"]));
    assert_eq!(containers[1].get("startupProbe"), None);
    assert!(script(&frozen, "started.sh").is_some_and(|text| text.contains("$logs/agent.log")));
    let agent = script(&frozen, "agent.sh").expect("a script");
    assert!(agent.contains("WORKSPACE_AGENT_READY_FILE=\"$GW_READY_FILE\""), "{agent}");
}

#[test]
fn editor_is_the_one_that_was_chosen() {
    let (site, devfile) = (Site::new("mine"), devfile::parse(devfile::DEFAULT_DEVFILE.as_bytes()).expect("a devfile"));
    let frozen = |editor| freeze(&devfile, &config(), &Facts { editor, ..site.facts() }).expect("frozen");
    let own = frozen(Chosen::CodeServer);
    assert!(script(&own, "editor.sh").is_some_and(|text| text.contains("bin/code-server")));
    assert_eq!(script(&own, "editor-command"), None);
    let line = "exec lab --port \"$EDITOR_PORT\" # it's $HERE";
    let other = frozen(Chosen::Command(line));
    assert_eq!(script(&other, "editor-command"), Some(line));
    assert!(script(&other, "editor.sh").is_some_and(|text| !text.contains("code-server")));
    let none = frozen(Chosen::None);
    assert_eq!((script(&none, "editor.sh"), script(&none, "editor-command")), (None, None));
    assert!(script(&none, "services.sh").is_some(), "the agent runs all the same");
}

#[test]
fn projects_are_cloned_each_into_a_folder_of_its_own_before_anything_begins() {
    let projects =
        ["https://git.example.com/a/shop.git@v1", "https://git.example.com/b/shop", "https://git.example.com/it's"];
    let projects = projects.map(|text| text.parse().expect("a project"));
    let site = Site::new("mine");
    let facts = Facts { projects: &projects, ..site.facts() };
    let install = json!({"id": "install", "exec": {"component": "main", "commandLine": "make"}});
    let before = container("before", json!({"image": "c"}));
    let rest = json!({
        "commands": [{"id": "one", "apply": {"component": "before"}}, install],
        "events": {"preStart": ["one"], "postStart": ["install"]},
    });
    let devfile = devfile_of(vec![main(json!({"image": "a", "memoryLimit": "3Gi"})), before], rest);
    let frozen = freeze(&devfile, &config(), &facts).expect("frozen");
    let pod = pod_of(&frozen);
    // Three clones of half an hour at most are no failure of the cluster's.
    assert_eq!(of(&frozen, Role::Deployment)["spec"]["progressDeadlineSeconds"], 6000);
    assert_eq!(of(&default_frozen(), Role::Deployment)["spec"].get("progressDeadlineSeconds"), None);
    let names: Vec<_> = pod["initContainers"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["gw-tools", "gw-clone", "before"]);
    let cloner = &pod["initContainers"][1];
    assert_eq!(
        (&cloner["image"], &cloner["resources"]["limits"]["memory"]),
        (&json!("registry.example.com/tools:1"), &json!("3Gi"))
    );
    let expected = ". /workspace-gateway/scripts/clone.sh\n\
                    clone clone-1 'shop' 'https://git.example.com/a/shop.git' 'v1'\n\
                    clone clone-2 'shop-2' 'https://git.example.com/b/shop' ''\n\
                    clone clone-3 'its' 'https://git.example.com/it'\\''s' ''\nexit 0\n";
    assert_eq!(script(&frozen, "clone-projects.sh"), Some(expected));
    let source = json!({"name": "PROJECT_SOURCE", "value": "/projects/shop"});
    assert!(pod["containers"][0]["env"].as_array().expect("variables").contains(&source));
    let started = script(&frozen, "start-main.sh").expect("a script");
    assert!(started.ends_with("run 'install' \"${PROJECT_SOURCE}\"\n"), "{started}");
    let wrong = [Project { url: "https://u:p@git.example.com/a".to_owned(), reference: Some("-x".to_owned()) }];
    let problems = freeze(&devfile, &config(), &Facts { projects: &wrong, ..site.facts() }).expect_err("problems");
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn service_without_ports_has_no_list_of_them() {
    let frozen = default_frozen();
    assert_eq!(of(&frozen, Role::Service)["spec"].get("ports"), None);
}

#[test]
fn command_lines_are_files_byte_for_byte() {
    let line = "echo \"$(id)\" `id` 'x'\\\n  # é \t; rm -rf / & exit 1\r\n\u{1b}[0m";
    let exec = |line: &str, folder: Value| json!({"component": "main", "commandLine": line, "workingDir": folder});
    let commands = json!([
        {"id": "hostile", "exec": exec(line, json!("/a'; id; '$(id) ${PROJECT_SOURCE}/b"))},
        {"id": "plain", "exec": {"component": "side", "commandLine": "true"}},
        {"id": "unused", "exec": {"component": "side", "commandLine": "false"}},
    ]);
    let components = vec![main(json!({"image": "a"})), container("side", json!({"image": "b"}))];
    let rest = json!({"commands": commands, "events": {"postStart": ["hostile", "plain"]}});
    let frozen = froze(&devfile_of(components, rest), &config());
    assert_eq!(script(&frozen, "command-hostile"), Some(line));
    let started = ". /workspace-gateway/scripts/common.sh\nevents=$(fresh_log post-start)\n\
                   run 'hostile' '/a'\\''; id; '\\''$(id) '\"${PROJECT_SOURCE}\"'/b'\n";
    assert_eq!(script(&frozen, "start-main.sh"), Some(started));
    // Only the main component begins in the project's folder by itself.
    assert!(script(&frozen, "start-side.sh").is_some_and(|text| text.ends_with("run 'plain' ''\n")));
    assert_eq!(script(&frozen, "command-unused"), None);
    let hook = &pod_of(&frozen)["containers"][1]["lifecycle"]["postStart"]["exec"]["command"];
    let line = "/bin/sh '/workspace-gateway/scripts/start-side.sh' </dev/null >/dev/null 2>&1 & exit 0";
    assert_eq!(*hook, json!(["/bin/sh", "-c", line]));
}

#[test]
fn services_run_first_or_beside_the_devfiles_own_command() {
    let frozen = default_frozen();
    let container = &pod_of(&frozen)["containers"][0];
    assert_eq!(container["command"], json!(["/bin/sh", "/workspace-gateway/scripts/services.sh"]));
    assert_eq!(container.get("lifecycle"), None);
    let own = json!({
        "name": "main",
        "attributes": {"gateway/inject-editor": true, "overrideCommand": false},
        "container": {"image": "a", "command": ["own"], "args": ["$1", "$(HOME) $$"]},
    });
    let waiting = json!({"name": "idle", "attributes": {"overrideCommand": true}, "container": {"image": "b"}});
    let frozen = froze(&devfile_of(vec![own, waiting], json!({})), &config());
    let containers = &pod_of(&frozen)["containers"];
    assert_eq!(
        (&containers[0]["command"], &containers[0]["args"]),
        (&json!(["own"]), &json!(["$$1", "$$(HOME) $$$$"]))
    );
    let started = script(&frozen, "start-main.sh").expect("a script");
    assert!(started.contains("\n/bin/sh /workspace-gateway/scripts/services.sh &\n"), "{started}");
    assert!(containers[0]["lifecycle"]["postStart"]["exec"]["command"].is_array());
    assert_eq!(containers[1]["command"], json!(["/bin/sh", "/workspace-gateway/scripts/keep-alive.sh"]));
}

#[test]
fn container_that_runs_before_the_start_is_not_kept_alive() {
    let before = json!({"name": "before", "attributes": {"overrideCommand": true}, "container": {"image": "b"}});
    let rest = json!({
        "commands": [{"id": "one", "apply": {"component": "before"}}, {"id": "two", "apply": {"component": "before"}}],
        "events": {"preStart": ["one", "two"]},
    });
    let frozen = froze(&devfile_of(vec![main(json!({"image": "a"})), before], rest), &config());
    let pod = pod_of(&frozen);
    assert_eq!(pod["containers"].as_array().map(Vec::len), Some(1));
    assert_eq!(pod["initContainers"].as_array().map(Vec::len), Some(2));
    assert_eq!((&pod["initContainers"][1]["name"], pod["initContainers"][1].get("command")), (&json!("before"), None));
}

#[test]
fn volumes_outlive_the_pod_unless_they_are_ephemeral() {
    let mounts = json!([{"name": "m2"}, {"name": "scratch", "path": "/tmp/scratch"}]);
    let components = vec![
        main(json!({"image": "a", "volumeMounts": mounts})),
        json!({"name": "m2", "volume": {}}),
        json!({"name": "scratch", "volume": {"size": "3Gi", "ephemeral": true}}),
    ];
    let frozen = froze(&devfile_of(components, json!({})), &config());
    let claims: Vec<_> = frozen.objects().iter().filter(|object| object.role == Role::Volume).collect();
    assert_eq!(claims.len(), 2);
    assert_eq!(claims[0].value["spec"]["resources"]["requests"]["storage"], "50Gi");
    assert_eq!(claims[1].value["metadata"]["name"], "mine.m2");
    assert_eq!(claims[1].value["spec"]["resources"]["requests"]["storage"], "1Gi");
    let pod = pod_of(&frozen);
    let mounted = |path: &str| {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        mounts.iter().find(|mount| mount["mountPath"] == path).map(|mount| mount["name"].clone())
    };
    assert_eq!((mounted("/m2"), mounted("/tmp/scratch")), (Some(json!("m2")), Some(json!("scratch"))));
    let volumes = pod["volumes"].as_array().expect("volumes");
    assert!(volumes.contains(&json!({"name": "scratch", "emptyDir": {"sizeLimit": "3Gi"}})));
    assert!(volumes.contains(&json!({"name": "m2", "persistentVolumeClaim": {"claimName": "mine.m2"}})));
}

fn bounded() -> ClusterConfig {
    let amounts = |cpu: &str, memory: &str| Amounts { cpu: cpu.to_owned(), memory: memory.to_owned() };
    let max = Resources { requests: amounts("2", "2Gi"), limits: amounts("4", "4Gi") };
    let usual = Resources { requests: amounts("1", "1Gi"), limits: amounts("2", "2Gi") };
    ClusterConfig { max_resources: Some(max), default_resources: Some(usual), ..config() }
}

#[test]
fn quota_is_of_the_secrets_inventory_and_of_namespaces_of_their_own() {
    let devfile = devfile_of(vec![main(json!({"image": "a"}))], json!({}));
    let frozen = froze(&devfile, &bounded());
    let quota = of(&frozen, Role::ResourceQuota);
    // Partial messages have the core inventory and no quota: owned by that one, it would be pruned by the next of them.
    assert_eq!(quota["metadata"]["annotations"][OWNING_INVENTORY_ANNOTATION], "mine-secrets-inventory");
    assert_eq!(quota["spec"]["hard"]["limits.memory"], "4Gi");
    // A pod's quota counts the container that copies the tools, which takes no more than there is.
    let mut small = bounded();
    small.max_resources.as_mut().expect("a bound").limits.memory = "300Mi".to_owned();
    let devfile_that_fits =
        devfile_of(vec![main(json!({"image": "a", "memoryRequest": "280Mi", "memoryLimit": "300Mi"}))], json!({}));
    let frozen = froze(&devfile_that_fits, &small);
    let tools = &pod_of(&frozen)["initContainers"][0]["resources"];
    assert_eq!((&tools["requests"]["memory"], &tools["limits"]["memory"]), (&json!("256Mi"), &json!("300Mi")));
    let mut shared = bounded();
    shared.shared_namespace = Some("ws-mine".to_owned());
    assert!(froze(&devfile, &shared).objects().iter().all(|object| object.role != Role::ResourceQuota));
}

#[test]
fn workspace_that_could_never_start_is_refused_when_it_is_made() {
    let three = ["b", "c"].map(|name| container(name, json!({"image": name})));
    let components = [vec![main(json!({"image": "a"}))], three.to_vec()].concat();
    let said = problems_of(&devfile_of(components, json!({})), &bounded(), "mine");
    assert_eq!(said.lines().count(), 4, "{said}");
    assert!(
        said.contains("all containers together have a CPU request over the most that a workspace may have, 2"),
        "{said}"
    );
    let unspecified = ClusterConfig { default_resources: None, ..bounded() };
    let one = devfile_of(vec![main(json!({"image": "a", "memoryLimit": "1Gi", "cpuLimit": "1"}))], json!({}));
    froze(&one, &unspecified);
    let none = devfile_of(vec![main(json!({"image": "a", "memoryRequest": "1Gi", "cpuLimit": "1"}))], json!({}));
    let said = problems_of(&none, &unspecified, "mine");
    assert_eq!(said, "component main: needs a memory limit: the cluster bounds what a workspace takes");
}

#[test]
fn names_that_would_collide_or_be_refused_are_told_at_once() {
    let devfile = devfile_of(vec![main(json!({"image": "a"}))], json!({}));
    let mut config = config();
    let secret = SecretRef { name: "3d-env".to_owned(), namespace: "ws-mine".to_owned() };
    config.image_pull_secrets.push(secret);
    config.gateway_url = Some("ftp://nowhere".to_owned());
    let said = problems_of(&devfile, &config, "3d");
    for part in ["begins with a letter", "3d-env", "gateway_url: is no URL of a gateway"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn variables_of_the_devfile_come_after_ours_and_labels_of_the_cluster_are_on_all() {
    let env = json!([{"name": "A", "value": "$(B) \"'"}, {"name": "VSCODE_PROXY_URI", "value": "mine"}]);
    let devfile = devfile_of(vec![main(json!({"image": "a", "env": env}))], json!({}));
    let mut config = config();
    config.labels.insert("team".to_owned(), "red".to_owned());
    config.annotations.insert("example.com/note".to_owned(), "x y".to_owned());
    let frozen = froze(&devfile, &config);
    let env = &pod_of(&frozen)["containers"][0]["env"];
    let last: Vec<_> = env.as_array().expect("a list").iter().rev().take(2).map(|one| one["name"].clone()).collect();
    assert_eq!(last, [json!("VSCODE_PROXY_URI"), json!("A")]);
    let value = |name: &str| {
        let named = env.as_array().expect("a list").iter().filter(|one| one["name"] == name).collect::<Vec<_>>();
        assert_eq!(named.len(), 1, "{name}");
        named[0]["value"].clone()
    };
    // What Kubernetes makes of it is what the devfile says.
    assert_eq!((value("VSCODE_PROXY_URI"), value("A")), (json!("mine"), json!("$$(B) \"'")));
    assert_eq!(value("GW_URL_TEMPLATE"), "https://{port}-mine.workspaces.example.net:8443");
    assert_eq!(value("GW_LOGS_DIR"), "/workspace-gateway/logs/main");
    for object in frozen.objects() {
        assert_eq!(object.value["metadata"]["labels"]["team"], "red");
        assert_eq!(object.value["metadata"]["annotations"]["example.com/note"], "x y");
        assert_eq!(
            object.value["metadata"]["annotations"][HOST_TEMPLATE_ANNOTATION],
            "{port}-mine.workspaces.example.net"
        );
    }
    // What a pod is found by never changes with the configuration.
    let selector = &of(&frozen, Role::Deployment)["spec"]["selector"]["matchLabels"];
    assert_eq!(*selector, json!({WORKSPACE_LABEL: "mine", CLUSTER_LABEL: "prod"}));
}

#[test]
fn devfile_too_large_to_be_sent_is_refused() {
    let exec = json!({"component": "main", "commandLine": "x".repeat(FROZEN_BYTES_MAX)});
    let rest = json!({"commands": [{"id": "long", "exec": exec}], "events": {"postStart": ["long"]}});
    let said = problems_of(&devfile_of(vec![main(json!({"image": "a"}))], rest), &config(), "mine");
    assert_eq!(said, "the Kubernetes objects of the workspace are larger than 256 KiB together");
}
