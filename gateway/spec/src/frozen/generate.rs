//! Generates Kubernetes objects from a devfile, a cluster's configuration and a few facts. Done once for each
//! workspace.

mod check;
mod objects;
pub(super) mod pod;
mod resources;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::names::{
    CLUSTER_LABEL, HOST_TEMPLATE_ANNOTATION, INVENTORY_ID_LABEL, OWNING_INVENTORY_ANNOTATION, ObjectNames,
    WORKSPACE_LABEL,
};
use super::role::{Inventory, Owner, Role};
use super::{Facts, FrozenProblem};
use crate::cluster_config::ClusterConfig;
use crate::devfile::{Command, CommandKind, Component, Devfile, PROJECTS_PATH};
use crate::project::Project;
use crate::syntax::url_template;

/// Working directory of commands that name none, in the words of a devfile (devfile 2.2.0).
const PROJECT_SOURCE: &str = "${PROJECT_SOURCE}";

/// Input of generation, sorted by the objects that it becomes.
#[derive(Debug)]
pub(super) struct ObjectPlan<'a> {
    pub(super) devfile: &'a Devfile,
    pub(super) config: &'a ClusterConfig,
    pub(super) facts: &'a Facts<'a>,
    pub(super) names: ObjectNames,
    /// Components that run to their end before the others start.
    pub(super) init: Vec<&'a Component>,
    /// The other components.
    pub(super) containers: Vec<&'a Component>,
    /// Projects to clone before anything else.
    pub(super) clones: Vec<ProjectClone<'a>>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    /// URL of a port of the workspace for a browser, with `{port}` for it.
    url_template: String,
}

/// A project to clone.
#[derive(Clone, Debug)]
pub(super) struct ProjectClone<'a> {
    /// Name of its log.
    pub(super) id: String,
    /// Its folder among the projects.
    pub(super) folder: String,
    pub(super) project: &'a Project,
}

/// A command of the devfile that runs when its container has started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exec<'a> {
    pub(super) id: &'a str,
    pub(super) line: &'a str,
    /// Working directory; empty for the image's own.
    pub(super) folder: &'a str,
}

/// Generates the objects, in order.
///
/// # Errors
/// All problems that only the generator can notice: those that involve two of the inputs.
pub(super) fn objects(
    devfile: &Devfile,
    config: &ClusterConfig,
    facts: &Facts<'_>,
) -> Result<Vec<Value>, Vec<FrozenProblem>> {
    let plan = ObjectPlan::new(devfile, config, facts);
    let problems = check::problems(&plan);
    if !problems.is_empty() {
        return Err(problems);
    }
    let one = |role: Role| match role {
        Role::CoreInventory => vec![plan.object(role, plan.names.core_inventory(), json!({}))],
        Role::Deployment => vec![pod::deployment(&plan)],
        Role::Service => vec![objects::service(&plan)],
        Role::Volume => objects::volumes(&plan),
        Role::ServiceAccount => vec![objects::service_account(&plan)],
        Role::NetworkPolicy => objects::network_policy(&plan).into_iter().collect(),
        Role::Scripts => vec![objects::scripts(&plan)],
        Role::SecretsInventory => vec![plan.object(role, plan.names.secrets_inventory(), json!({}))],
        Role::ResourceQuota => objects::resource_quota(&plan).into_iter().collect(),
        Role::EnvSecret => vec![objects::secret(&plan, role, plan.names.env())],
        Role::FileSecret => vec![objects::secret(&plan, role, plan.names.file())],
    };
    Ok(Role::ALL.into_iter().flat_map(one).collect())
}

impl<'a> ObjectPlan<'a> {
    fn new(devfile: &'a Devfile, config: &'a ClusterConfig, facts: &'a Facts<'a>) -> Self {
        let workspace = facts.workspace.as_str();
        let before: Vec<&str> = devfile.events.pre_start.iter().filter_map(|id| applied(devfile, id)).collect();
        let find = |name: &&str| devfile.components.iter().find(|component| component.name == **name);
        let mut labels = config.labels.clone();
        labels.insert(WORKSPACE_LABEL.to_owned(), workspace.to_owned());
        labels.insert(CLUSTER_LABEL.to_owned(), facts.cluster.to_string());
        let mut annotations = config.annotations.clone();
        annotations.insert(HOST_TEMPLATE_ANNOTATION.to_owned(), format!("{{port}}-{workspace}.{}", facts.zone));
        let mut init: Vec<&Component> = Vec::new();
        for component in before.iter().filter_map(find) {
            // A component that two events apply would be two containers of one name.
            if init.iter().all(|one| one.name != component.name) {
                init.push(component);
            }
        }
        Self {
            devfile,
            config,
            facts,
            names: ObjectNames::new(workspace),
            init,
            containers: devfile.components.iter().filter(|one| !before.contains(&one.name.as_str())).collect(),
            clones: clones(facts.projects),
            labels,
            annotations,
            url_template: url_template(facts.public_url, workspace, facts.zone.as_str()),
        }
    }

    /// Returns the URL that the workspace's agent dials.
    pub(super) fn gateway_url(&self) -> &str {
        self.config.gateway_url.as_deref().unwrap_or(self.facts.agents_url)
    }

    /// Returns where the project is: the first one's folder, or the one of all projects.
    pub(super) fn project_source(&self) -> String {
        self.clones
            .first()
            .map_or_else(|| PROJECTS_PATH.to_owned(), |clone| format!("{PROJECTS_PATH}/{}", clone.folder))
    }

    /// Returns the labels by which the workspace's pod is found.
    fn selector(&self) -> Value {
        json!({WORKSPACE_LABEL: self.facts.workspace.as_str(), CLUSTER_LABEL: self.facts.cluster.to_string()})
    }

    /// Returns the commands that run when a container has started, in order.
    pub(super) fn post_start_of(&self, component: &Component) -> Vec<Exec<'a>> {
        let commands = self.devfile.events.post_start.iter().filter_map(|id| command(self.devfile, id));
        let exec = |command: &'a Command| match &command.kind {
            CommandKind::Exec { component: of, command_line, working_dir, label: _ } if *of == component.name => {
                let default = if component.is_main { PROJECT_SOURCE } else { "" };
                let folder = working_dir.as_deref().unwrap_or(default);
                Some(Exec { id: &command.id, line: command_line, folder })
            }
            CommandKind::Exec { .. } | CommandKind::Apply { .. } => None,
        };
        commands.filter_map(exec).collect()
    }

    /// Puts together an object of a role: the members that all have, and its own besides the metadata.
    fn object(&self, role: Role, name: String, rest: Value) -> Value {
        let mut labels = self.labels.clone();
        let mut annotations = self.annotations.clone();
        let owner = match role.owner() {
            Owner::IsInventory(_) => {
                labels.insert(INVENTORY_ID_LABEL.to_owned(), name.clone());
                None
            }
            Owner::Core => Some(self.inventory(Inventory::Core)),
            Owner::Secrets => Some(self.inventory(Inventory::Secrets)),
        };
        annotations.extend(owner.map(|owner| (OWNING_INVENTORY_ANNOTATION.to_owned(), owner)));
        let mut object = json!({
            "apiVersion": role.api_version(),
            "kind": role.kind(),
            "metadata": {
                "name": name,
                "namespace": self.facts.namespace,
                "labels": labels,
                "annotations": annotations,
            },
        });
        if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
            object.extend(rest);
        }
        object
    }

    fn inventory(&self, inventory: Inventory) -> String {
        match inventory {
            Inventory::Core => self.names.core_inventory(),
            Inventory::Secrets => self.names.secrets_inventory(),
        }
    }
}

/// Gives each project a folder of its own, and an id for logs.
fn clones(projects: &[Project]) -> Vec<ProjectClone<'_>> {
    let mut folders = BTreeSet::new();
    let mut clones = Vec::new();
    for project in projects {
        let (plain, mut folder, mut number) = (project.folder(), project.folder(), 1);
        while !folders.insert(folder.clone()) {
            number += 1;
            folder = format!("{plain}-{number}");
        }
        clones.push(ProjectClone { id: format!("clone-{}", clones.len() + 1), folder, project });
    }
    clones
}

fn command<'a>(devfile: &'a Devfile, id: &str) -> Option<&'a Command> {
    devfile.commands.iter().find(|command| command.id == id)
}

/// Returns the component that an event's command applies.
fn applied<'a>(devfile: &'a Devfile, id: &str) -> Option<&'a str> {
    command(devfile, id).and_then(|command| match &command.kind {
        CommandKind::Apply { component, .. } => Some(component.as_str()),
        CommandKind::Exec { .. } => None,
    })
}
