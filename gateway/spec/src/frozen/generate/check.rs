//! Checks of the inputs together. A problem of one input alone is refused where that input is read.

use super::{ObjectPlan, resources};
use crate::frozen::FrozenProblem;
use crate::frozen::names::{GATEWAY_DIR, HOME_DIR, PASSWD_FILE, unfit_for_kubernetes};
use crate::project::PROJECTS_MAX;
use crate::syntax::is_web_url;

/// Returns all problems.
pub(super) fn problems(plan: &ObjectPlan<'_>) -> Vec<FrozenProblem> {
    let mut problems = Vec::new();
    let mut tell = |place: &str, message: String| problems.push(FrozenProblem::new(place.to_owned(), message));
    if let Some(message) = unfit_for_kubernetes(plan.facts.workspace) {
        tell("name", message);
    }
    for (what, text) in [("public_url", plan.facts.public_url), ("gateway_url", plan.gateway_url())] {
        if !is_web_url(text) {
            tell(what, "is no URL of a gateway".to_owned());
        }
    }
    let own = [plan.names.env(), plan.names.file()];
    for secret in plan.config.image_pull_secrets.iter().filter(|secret| own.contains(&secret.name)) {
        let message = "a secret for pulling images has the name that a secret of this workspace would have";
        tell("name", format!("{message}: {}", secret.name));
    }
    if plan.facts.projects.len() > PROJECTS_MAX {
        tell("projects", format!("are more than {PROJECTS_MAX}"));
    }
    for (number, project) in plan.facts.projects.iter().enumerate() {
        project.problems().for_each(|problem| tell(&format!("project {}", number + 1), problem.to_string()));
    }
    for component in &plan.devfile.components {
        for mount in &component.volume_mounts {
            let path = mount.mount_path();
            let owner = |folder| format!("a volume is mounted {folder}, which is the gateway's");
            if std::path::Path::new(&path).starts_with(GATEWAY_DIR) {
                tell(&format!("component {}", component.name), owner(format!("in {GATEWAY_DIR}")));
            } else if let Some(ours) = [HOME_DIR, PASSWD_FILE]
                .into_iter()
                .find(|ours| std::path::Path::new(&path) == std::path::Path::new(ours))
            {
                tell(&format!("component {}", component.name), owner(format!("at {ours}")));
            }
        }
    }
    problems.extend(resources::beyond_the_most(plan));
    problems
}
