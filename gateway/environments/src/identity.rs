//! Identity that a cluster's agent impersonates for a job (Kubernetes documentation, "User impersonation"; GitLab
//! documentation, "Using GitLab CI/CD with a Kubernetes cluster", impersonation of the job), and how it is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tunnel_proto::environments::CallIdentity;

use workspace_spec::environment::facts::TemplateVars;

/// Group of an agent's actions by a gateway's templates, and of no others: jobs that reach a cluster in another way are
/// in the groups that GitLab knows too.
const MANAGED_GROUP: &str = "gitlab:managed_resources";

#[derive(Serialize, Deserialize)]
struct Stored {
    user: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Returns the identity of the job of these facts; `None` without a job.
pub(super) fn of_job(info: &TemplateVars) -> Option<CallIdentity> {
    let job = info.ci_job?.id;
    let (project, environment) = (info.project.id, &info.environment);
    let mut groups = vec![
        MANAGED_GROUP.to_owned(),
        "gitlab:ci_job".to_owned(),
        format!("gitlab:project:{project}"),
        format!("gitlab:project_env:{project}:{}", environment.slug),
    ];
    let mut extra: Vec<(&str, String)> = vec![
        ("id", info.agent.id.to_string()),
        ("project_id", project.to_string()),
        ("ci_job_id", job.to_string()),
        ("environment_slug", environment.slug.clone()),
    ];
    if let Some(pipeline) = info.ci_pipeline {
        extra.push(("ci_pipeline_id", pipeline.id.to_string()));
    }
    if let Some(user) = &info.user {
        extra.push(("username", user.username.clone()));
    }
    if let Some(tier) = &environment.tier {
        groups.push(format!("gitlab:project_env_tier:{project}:{tier}"));
        extra.push(("environment_tier", tier.clone()));
    }
    let extra = extra.into_iter().map(|(key, value)| (format!("agent.gitlab.com/{key}"), vec![value])).collect();
    Some(CallIdentity { user: format!("gitlab:ci_job:{job}"), groups, extra })
}

/// Serialises an identity.
pub(super) fn to_json(identity: &CallIdentity) -> String {
    let CallIdentity { user, groups, extra } = identity;
    let stored = Stored { user: user.clone(), groups: groups.clone(), extra: extra.iter().cloned().collect() };
    // Strings and lists of strings always serialise.
    serde_json::to_string(&stored).unwrap_or_default()
}

/// Parses an identity. `None` if it cannot be read: then the agent must not act as the job.
pub(super) fn from_json(text: &str) -> Option<CallIdentity> {
    let Stored { user, groups, extra } = serde_json::from_str(text).ok()?;
    Some(CallIdentity { user, groups, extra: extra.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use workspace_spec::environment::facts::testing::info;

    #[test]
    fn rights_to_make_objects_are_given_to_no_group_that_a_jobs_own_requests_have() {
        let file = include_str!("../../../deploy/rbac/environments-ci-job.yaml");
        let names = file.lines().filter_map(|line| line.trim().strip_prefix("name: "));
        let groups: Vec<_> = names.filter(|name| name.starts_with("gitlab:")).collect();
        assert_eq!(groups, [MANAGED_GROUP]);
        assert!(of_job(&info()).unwrap().groups.iter().any(|group| group == MANAGED_GROUP));
        assert!(!file.contains("kind: User"));
    }

    #[test]
    fn job_has_the_names_that_clusters_know_and_reads_back_the_same() {
        let slug = info().environment.slug;
        let identity = of_job(&info()).unwrap();
        assert_eq!(identity.user, "gitlab:ci_job:20002");
        assert_eq!(
            identity.groups,
            [
                "gitlab:managed_resources".to_owned(),
                "gitlab:ci_job".to_owned(),
                "gitlab:project:42".to_owned(),
                format!("gitlab:project_env:42:{slug}"),
                "gitlab:project_env_tier:42:development".to_owned()
            ]
        );
        let mut read = from_json(&to_json(&identity)).unwrap();
        let mut identity = identity;
        read.extra.sort();
        identity.extra.sort();
        assert_eq!(read, identity);
        assert_eq!(identity.extra.len(), 7);
        assert_eq!(from_json("{}"), None);
        let mut nobody = info();
        nobody.ci_job = None;
        assert_eq!(of_job(&nobody), None);
    }
}
