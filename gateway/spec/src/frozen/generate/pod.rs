//! The Deployment: one pod, with the containers of the devfile and our own additions.

use serde_json::{Value, json};

use super::{ObjectPlan, resources};
use crate::devfile::{Component, Exposure, PROJECTS_PATH};
use crate::frozen::expansion::literal;
use crate::frozen::names::{FILES_DIR, LOGS_DIR, SCRIPTS_DIR, TOOLS_DIR, TOOLS_IMAGE_DIR};
use crate::frozen::role::Role;
use crate::frozen::scripts;

/// The user that everything runs as. With the group 0, images that are made for any user let it write.
const USER: u32 = 5001;

/// Names in the pod; no name in a devfile begins so.
const DATA: &str = "gw-data";
const TOOLS: &str = "gw-tools";
const SCRIPTS: &str = "gw-scripts";
const FILES: &str = "gw-files";

/// Readable and executable for all users (0555).
const SCRIPTS_MODE: u32 = 0o555;

/// Readable for the group, which is the containers' (0440).
const FILES_MODE: u32 = 0o440;

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
    let init = std::iter::once(tools_injector(plan));
    let init: Vec<_> = init.chain(plan.init.iter().map(|one| container(plan, one, ContainerRole::Before))).collect();
    let containers: Vec<_> = plan.containers.iter().map(|one| container(plan, one, ContainerRole::Beside)).collect();
    let spec = json!({
        "replicas": 0,
        "selector": {"matchLabels": plan.selector()},
        // Two pods would write to one volume, and two agents displace each other.
        "strategy": {"type": "Recreate"},
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

/// Copies agent and editor into the folder in which the containers find them.
fn tools_injector(plan: &ObjectPlan<'_>) -> Value {
    json!({
        "name": TOOLS,
        "image": plan.config.tools_image,
        "imagePullPolicy": "Always",
        "command": ["/bin/cp", "-Rf", format!("{TOOLS_IMAGE_DIR}/."), format!("{TOOLS_DIR}/")],
        "resources": resources::TOOLS.to_json(),
        "volumeMounts": [{"name": TOOLS, "mountPath": TOOLS_DIR}],
        "securityContext": container_security(plan),
    })
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
        "imagePullPolicy": "Always",
        "command": literals(&command),
        "args": literals(args),
        "env": environment(plan, component),
        "envFrom": [{"secretRef": {"name": plan.names.env()}}],
        "ports": ports(component),
        "resources": resources::of(plan, component).to_json(),
        "volumeMounts": mounts(component, place),
        // Kubernetes puts nothing into a hook's command.
        "lifecycle": hook.map(|command| json!({"postStart": {"exec": {"command": command}}})),
        "securityContext": container_security(plan),
    })
}

/// Returns our own variables, then the devfile's, which has none of our names and whose values are literal.
fn environment(plan: &ObjectPlan<'_>, component: &Component) -> Vec<Value> {
    let own = |name: &str, value: String| (name.to_owned(), value);
    let mut environment = vec![
        own("PROJECTS_ROOT", PROJECTS_PATH.to_owned()),
        own("PROJECT_SOURCE", PROJECTS_PATH.to_owned()),
        own("GW_WORKSPACE", plan.names.workspace.clone()),
        own("GW_URL_TEMPLATE", plan.url_template.clone()),
        own("GW_FILES_DIR", FILES_DIR.to_owned()),
        own("GW_LOGS_DIR", format!("{LOGS_DIR}/{}", component.name)),
    ];
    // URL for the editor's list of ports.
    if component.is_main && component.env.iter().all(|(name, _)| name != "VSCODE_PROXY_URI") {
        environment.push(own("VSCODE_PROXY_URI", plan.url_template.replace("{port}", "{{port}}")));
    }
    environment.extend(component.env.iter().cloned());
    environment.into_iter().map(|(name, value)| json!({"name": name, "value": literal(&value)})).collect()
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

fn mounts(component: &Component, place: ContainerRole) -> Vec<Value> {
    let read_only = |name, path| json!({"name": name, "mountPath": path, "readOnly": true});
    let mut mounts = vec![json!({"name": DATA, "mountPath": PROJECTS_PATH}), read_only(FILES, FILES_DIR)];
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
