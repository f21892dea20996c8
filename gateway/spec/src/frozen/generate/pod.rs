//! The Deployment: one pod, with the containers of the devfile and our own additions.

use serde_json::{Value, json};

use super::{ObjectPlan, resources};
use crate::cluster_config::PullPolicy;
use crate::devfile::{Component, Exposure, PROJECTS_PATH};
use crate::frozen::expansion::literal;
use crate::frozen::names::{
    FILES_DIR, HOME_DIR, LOGS_DIR, PASSWD_FILE, READY_FILE, SCRIPTS_DIR, TOOLS_DIR, USER_NAME, VOLUME_DIR,
};
use crate::frozen::role::Role;
use crate::frozen::scripts;

/// The user that everything runs as. With the group 0, images that are made for any user let it write.
pub(in crate::frozen) const USER: u32 = 5001;

/// Folders of the workspace's own volume, and where the containers see them. The first container makes them: what belongs to
/// another user git does not trust, and a volume's root belongs to root and may have a `lost+found`.
const FOLDERS: [(&str, &str); 3] = [("projects", PROJECTS_PATH), ("home", HOME_DIR), ("logs", LOGS_DIR)];

/// Seconds between two looks at whether the agent is connected, and tries until the container begins anew: three weeks, since a
/// gateway that is away is no fault of the container.
const STARTED_SECONDS: u32 = 5;
const STARTED_TRIES: u32 = 360_000;

/// Names in the pod; no name in a devfile begins so.
const DATA: &str = "gw-data";
const TOOLS: &str = "gw-tools";
const CLONER: &str = "gw-clone";
const SCRIPTS: &str = "gw-scripts";
const FILES: &str = "gw-files";

/// Readable and executable for all users (0555).
const SCRIPTS_MODE: u32 = 0o555;

/// Readable for the group, which is the containers' (0440).
const FILES_MODE: u32 = 0o440;

/// Longest start without clones (the default of `progressDeadlineSeconds`), and longest clone of one project, in seconds.
const START_SECONDS: usize = 600;
const CLONE_SECONDS: usize = 1800;

/// Variable of the configuration that git reads first (git 2.32): the user's own, and a repository's, have the last word.
const GIT_CONFIG_SYSTEM: &str = "GIT_CONFIG_SYSTEM";

/// What a container wrote last is the reason of its end, if it gave none (`terminationMessagePolicy`).
const LAST_LINES: &str = "FallbackToLogsOnError";

/// Role of a component's container in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContainerRole {
    /// Runs to its end before the others start.
    Before,
    /// Stays.
    Beside,
}

/// Returns the Deployment. The number of replicas is filled in when sending; until then it is 0.
pub(super) fn deployment(plan: &ObjectPlan<'_>) -> Value {
    let init = std::iter::once(tools_injector(plan)).chain(cloner(plan));
    let init: Vec<_> = init.chain(plan.init.iter().map(|one| container(plan, one, ContainerRole::Before))).collect();
    let containers: Vec<_> = plan.containers.iter().map(|one| container(plan, one, ContainerRole::Beside)).collect();
    let spec = json!({
        "replicas": 0,
        "selector": {"matchLabels": plan.selector()},
        // Two pods would write to one volume, and two agents displace each other.
        "strategy": {"type": "Recreate"},
        "progressDeadlineSeconds": deadline(plan),
        "template": {
            "metadata": {"labels": plan.labels, "annotations": plan.annotations},
            "spec": {
                "serviceAccountName": plan.names.workspace,
                "automountServiceAccountToken": false,
                // Variables for each Service of the namespace: thousands, where workspaces share one.
                "enableServiceLinks": false,
                "hostUsers": plan.config.user_namespaces.then_some(false),
                "runtimeClassName": plan.config.runtime_class,
                "securityContext": pod_security(plan),
                "initContainers": init,
                "containers": containers,
                "volumes": volumes(plan),
            },
        },
    });
    plan.object(Role::Deployment, plan.names.workspace.clone(), json!({"spec": spec}))
}

/// Returns the time after which a start counts as failed, if clones need more than Kubernetes' own ten minutes.
fn deadline(plan: &ObjectPlan<'_>) -> Option<usize> {
    let clones = plan.clones.len();
    (clones > 0).then_some(START_SECONDS + clones * CLONE_SECONDS)
}

/// The Pod Security Standard `restricted`, unless privileges may be escalated: then the image's own means have to work.
fn pod_security(plan: &ObjectPlan<'_>) -> Value {
    let profile = (!plan.config.allow_privilege_escalation).then(|| json!({"type": "RuntimeDefault"}));
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": 0,
        "fsGroup": 0,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": profile,
    })
}

fn container_security(plan: &ObjectPlan<'_>) -> Value {
    let escalates = plan.config.allow_privilege_escalation;
    json!({
        "allowPrivilegeEscalation": escalates,
        "privileged": false,
        "runAsNonRoot": true,
        "runAsUser": USER,
        "capabilities": (!escalates).then(|| json!({"drop": ["ALL"]})),
    })
}

/// Copies agent and editor into the folder in which the containers find them, and makes the folders of the volume.
fn tools_injector(plan: &ObjectPlan<'_>) -> Value {
    json!({
        "name": TOOLS,
        "image": plan.config.tools_image,
        "imagePullPolicy": plan.config.image_pull_policy.map(PullPolicy::as_str),
        "command": ["/bin/sh", format!("{SCRIPTS_DIR}/prepare.sh")],
        "resources": resources::tools(plan).to_json(),
        "terminationMessagePolicy": LAST_LINES,
        "volumeMounts": [
            {"name": TOOLS, "mountPath": TOOLS_DIR},
            {"name": DATA, "mountPath": VOLUME_DIR},
            {"name": SCRIPTS, "mountPath": SCRIPTS_DIR, "readOnly": true},
        ],
        "securityContext": container_security(plan),
    })
}

/// Clones the projects, if there are any: with the tools image's git, since the devfile's image may have none. It has what the main
/// container may have, so that it fits where that fits.
fn cloner(plan: &ObjectPlan<'_>) -> Option<Value> {
    let main = plan.containers.iter().find(|component| component.is_main).filter(|_| !plan.clones.is_empty())?;
    let own = |name: &str, value: &str| json!({"name": name, "value": literal(value)});
    let logs = format!("{LOGS_DIR}/{CLONER}");
    let mut mounts = shared_mounts(plan);
    mounts.push(json!({"name": SCRIPTS, "mountPath": SCRIPTS_DIR, "readOnly": true}));
    // The credential helper, in the place in which the main container has it.
    mounts.push(json!({"name": TOOLS, "mountPath": TOOLS_DIR, "readOnly": true}));
    Some(json!({
        "name": CLONER,
        "image": plan.config.tools_image,
        "imagePullPolicy": plan.config.image_pull_policy.map(PullPolicy::as_str),
        "command": ["/bin/sh", format!("{SCRIPTS_DIR}/clone-projects.sh")],
        "env": [own("HOME", HOME_DIR), own("USER", USER_NAME), own("GW_LOGS_DIR", &logs), own(GIT_CONFIG_SYSTEM, &git_config())],
        "resources": resources::of(plan, main).to_json(),
        "terminationMessagePolicy": LAST_LINES,
        "volumeMounts": mounts,
        "securityContext": container_security(plan),
    }))
}

fn container(plan: &ObjectPlan<'_>, component: &Component, place: ContainerRole) -> Value {
    // A container that only waits would keep the others from starting.
    let only_stays = component.override_command && place == ContainerRole::Beside;
    let literals = |words: &[String]| words.iter().map(|word| literal(word)).collect::<Vec<_>>();
    let command = if only_stays { scripts::first_process(component) } else { component.command.clone() };
    let args = if only_stays { &[][..] } else { &component.args };
    let hook = match place {
        ContainerRole::Before => None,
        ContainerRole::Beside => scripts::hook(plan, component),
    };
    json!({
        "name": component.name,
        "image": component.image,
        "imagePullPolicy": plan.config.image_pull_policy.map(PullPolicy::as_str),
        "command": literals(&command),
        "args": literals(args),
        "env": environment(plan, component),
        "envFrom": [{"secretRef": {"name": plan.names.env()}}],
        "ports": ports(component),
        "resources": resources::of(plan, component).to_json(),
        "volumeMounts": mounts(plan, component, place),
        // Kubernetes puts nothing into a hook's command.
        "lifecycle": hook.map(|command| json!({"postStart": {"exec": {"command": command}}})),
        "startupProbe": component.is_main.then(agent_probe),
        "terminationMessagePolicy": LAST_LINES,
        "securityContext": container_security(plan),
    })
}

/// Asks whether the agent has been connected: only then does the workspace count as running. It is not asked again afterwards,
/// since a gateway that goes away for a while stops nothing.
fn agent_probe() -> Value {
    json!({
        "exec": {"command": ["/bin/sh", format!("{SCRIPTS_DIR}/started.sh")]},
        "periodSeconds": STARTED_SECONDS,
        "timeoutSeconds": STARTED_SECONDS,
        "failureThreshold": STARTED_TRIES,
    })
}

/// Returns our own variables, then the devfile's, which has none of our names and whose values are literal.
fn environment(plan: &ObjectPlan<'_>, component: &Component) -> Vec<Value> {
    let own = |name: &str, value: String| (name.to_owned(), value);
    let mut environment = vec![
        own("PROJECTS_ROOT", PROJECTS_PATH.to_owned()),
        own("PROJECT_SOURCE", plan.project_source()),
        own("GW_WORKSPACE", plan.names.workspace.clone()),
        own("GW_URL_TEMPLATE", plan.url_template.clone()),
        own("GW_FILES_DIR", FILES_DIR.to_owned()),
        own("GW_LOGS_DIR", format!("{LOGS_DIR}/{}", component.name)),
    ];
    // A devfile may have a home and a name of its own.
    for (name, value) in [("HOME", HOME_DIR), ("USER", USER_NAME)] {
        if component.env.iter().all(|(own, _)| own != name) {
            environment.push(own(name, value.to_owned()));
        }
    }
    if component.is_main {
        environment.push(own("GW_READY_FILE", READY_FILE.to_owned()));
    }
    // Where the credential helper is.
    if component.is_main && component.env.iter().all(|(name, _)| name != GIT_CONFIG_SYSTEM) {
        environment.push(own(GIT_CONFIG_SYSTEM, git_config()));
    }
    // URL for the editor's list of ports.
    if component.is_main && component.env.iter().all(|(name, _)| name != "VSCODE_PROXY_URI") {
        environment.push(own("VSCODE_PROXY_URI", plan.url_template.replace("{port}", "{{port}}")));
    }
    environment.extend(component.env.iter().cloned());
    environment.into_iter().map(|(name, value)| json!({"name": name, "value": literal(&value)})).collect()
}

fn git_config() -> String {
    format!("{SCRIPTS_DIR}/{}", scripts::GIT_CONFIG)
}

/// Returns the ports that other pods could reach. They document more than they open: the network policy decides who is
/// let in.
fn ports(component: &Component) -> Vec<Value> {
    let open = component.endpoints.iter().filter(|endpoint| endpoint.exposure != Exposure::None);
    let port = |number: u16, protocol: &str| {
        let (name, protocol) = port_name(number, protocol);
        json!({"name": name, "containerPort": number, "protocol": protocol})
    };
    open.map(|endpoint| port(endpoint.target_port, &endpoint.protocol)).collect()
}

/// Names a port by what it is: a name of a devfile may be longer than Kubernetes takes.
pub(super) fn port_name(number: u16, protocol: &str) -> (String, &'static str) {
    if protocol == "udp" { (format!("{number}-udp"), "UDP") } else { (format!("{number}-tcp"), "TCP") }
}

fn mounts(plan: &ObjectPlan<'_>, component: &Component, place: ContainerRole) -> Vec<Value> {
    let read_only = |name, path| json!({"name": name, "mountPath": path, "readOnly": true});
    let mut mounts = shared_mounts(plan);
    if place == ContainerRole::Beside {
        mounts.push(read_only(SCRIPTS, SCRIPTS_DIR));
    }
    if component.is_main {
        mounts.push(read_only(TOOLS, TOOLS_DIR));
    }
    let own = |mount: &crate::devfile::VolumeMount| json!({"name": mount.name, "mountPath": mount.mount_path()});
    mounts.extend(component.volume_mounts.iter().map(own));
    mounts
}

/// Returns the mounts that every container has: the folders of the workspace's own volume, its files, and the list of users.
fn shared_mounts(plan: &ObjectPlan<'_>) -> Vec<Value> {
    let folder = |(folder, path)| json!({"name": DATA, "mountPath": path, "subPath": folder});
    let mut mounts: Vec<Value> = FOLDERS.into_iter().map(folder).collect();
    mounts.push(json!({"name": FILES, "mountPath": FILES_DIR, "readOnly": true}));
    if has_own_users(plan) {
        mounts.push(json!({"name": SCRIPTS, "mountPath": PASSWD_FILE, "subPath": "passwd", "readOnly": true}));
    }
    mounts
}

/// Returns whether containers get our list of users, in which theirs is. Where privileges may be escalated, an image has means of
/// its own, which make users and change that file.
pub(in crate::frozen) fn has_own_users(plan: &ObjectPlan<'_>) -> bool {
    !plan.config.allow_privilege_escalation
}

fn volumes(plan: &ObjectPlan<'_>) -> Vec<Value> {
    let names = &plan.names;
    let mut volumes = vec![
        json!({"name": DATA, "persistentVolumeClaim": {"claimName": names.data()}}),
        json!({"name": TOOLS, "emptyDir": {}}),
        json!({"name": SCRIPTS, "configMap": {"name": names.scripts(), "defaultMode": SCRIPTS_MODE}}),
        json!({"name": FILES, "secret": {"secretName": names.file(), "defaultMode": FILES_MODE}}),
    ];
    volumes.extend(plan.devfile.volumes.iter().map(|volume| {
        if volume.ephemeral {
            json!({"name": volume.name, "emptyDir": {"sizeLimit": volume.size}})
        } else {
            json!({"name": volume.name, "persistentVolumeClaim": {"claimName": names.volume(&volume.name)}})
        }
    }));
    volumes
}
