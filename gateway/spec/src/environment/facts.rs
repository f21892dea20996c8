//! Facts about an environment and the job that asks for it, under the names that templates use (GitLab documentation,
//! "GitLab-managed Kubernetes resources", template variables).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::syntax::{is_dns_label, is_web_url};
use gateway_types::ClusterName;

/// Greatest id: the greatest whole number that every reader of JSON reads exactly. With it, an environment's key is at most 58
/// characters, and fits into the name part of a label's key.
pub const ID_MAX: u64 = (1 << 53) - 1;

/// Longest slug of an environment, in characters (GitLab documentation, `CI_ENVIRONMENT_SLUG`).
pub const ENVIRONMENT_SLUG_MAX: usize = 24;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest path of a project, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;

/// Longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// All facts that a template may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateVars {
    /// The cluster agent.
    pub agent: AgentFacts,
    /// The environment.
    pub environment: EnvironmentFacts,
    /// The project that the environment is of.
    pub project: ProjectFacts,
    /// The pipeline of the job that asks, if a job does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_pipeline: Option<NumberedFacts>,
    /// The job that asks, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_job: Option<NumberedFacts>,
    /// User who started the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserFacts>,
}

/// Facts that are known before an environment is recorded: [`TemplateVars`] without its number and the URL of the page
/// that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecordedFacts {
    /// The cluster agent.
    pub agent: AgentFacts,
    /// Name of the environment, as the project gave it.
    pub name: String,
    /// Its name, fit for names of objects.
    pub slug: String,
    /// URL under which the deployed app is reached, if known.
    pub url: Option<String>,
    /// Its deployment tier, if it has one.
    pub tier: Option<String>,
    /// The project that the environment is of.
    pub project: ProjectFacts,
    /// The pipeline of the job that asks, if a job does.
    pub ci_pipeline: Option<NumberedFacts>,
    /// The job that asks, if one does.
    pub ci_job: Option<NumberedFacts>,
    /// User who started the job.
    pub user: Option<UserFacts>,
}

/// A cluster agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFacts {
    /// The number that the gateway knows its cluster by.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// URL of its page.
    pub url: String,
}

/// An environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentFacts {
    /// Its number.
    pub id: u64,
    /// Its name, as the project gave it.
    pub name: String,
    /// Its name, fit for names of objects.
    pub slug: String,
    /// URL of its page.
    pub page_url: String,
    /// URL under which the deployed app is reached, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its deployment tier, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

/// A project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProjectFacts {
    /// Its number.
    pub id: u64,
    /// Its path, fit for names of objects.
    pub slug: String,
    /// Its path, with the groups that it is in.
    pub path: String,
    /// URL of its page.
    pub url: String,
}

/// A pipeline or a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberedFacts {
    /// Its number.
    pub id: u64,
}

/// A user of the system that runs the jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserFacts {
    /// Their number.
    pub id: u64,
    /// Their name.
    pub username: String,
}

/// A fact with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactProblem {
    /// Name of the fact in templates.
    pub path: &'static str,
    /// Description of the problem; it repeats nothing of the fact.
    pub message: String,
}

impl fmt::Display for FactProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

impl UnrecordedFacts {
    /// Returns the unique key of the environment, as [`TemplateVars::key`].
    #[must_use]
    pub fn key(&self) -> String {
        key(&self.slug, &self.project, &self.agent)
    }

    /// Checks lengths, characters and addresses.
    ///
    /// # Errors
    /// All facts with invalid values; never empty.
    pub fn validate(&self) -> Result<(), Vec<FactProblem>> {
        CheckedFacts {
            agent: &self.agent,
            id: None,
            name: &self.name,
            slug: &self.slug,
            page_url: None,
            url: self.url.as_deref(),
            tier: self.tier.as_deref(),
            project: &self.project,
            ci_pipeline: self.ci_pipeline,
            ci_job: self.ci_job,
            user: self.user.as_ref(),
        }
        .check()
    }

    /// Completes the facts, once the environment is recorded.
    #[must_use]
    pub fn recorded(self, id: u64, page_url: String) -> TemplateVars {
        let Self { agent, name, slug, url, tier, project, ci_pipeline, ci_job, user } = self;
        let environment = EnvironmentFacts { id, name, slug, page_url, url, tier };
        TemplateVars { agent, environment, project, ci_pipeline, ci_job, user }
    }
}

impl From<TemplateVars> for UnrecordedFacts {
    fn from(facts: TemplateVars) -> Self {
        let TemplateVars { agent, environment, project, ci_pipeline, ci_job, user } = facts;
        let EnvironmentFacts { id: _, name, slug, page_url: _, url, tier } = environment;
        Self { agent, name, slug, url, tier, project, ci_pipeline, ci_job, user }
    }
}

fn key(slug: &str, project: &ProjectFacts, agent: &AgentFacts) -> String {
    format!("{slug}-{}-{}", project.id, agent.id)
}

impl TemplateVars {
    /// Returns the unique key of the environment: `{slug}-{project}-{agent}`, which can be read in one way only because
    /// the last two parts are numbers.
    #[must_use]
    pub fn key(&self) -> String {
        key(&self.environment.slug, &self.project, &self.agent)
    }

    /// Checks lengths, characters and addresses.
    ///
    /// # Errors
    /// All facts with invalid values; never empty.
    pub fn validate(&self) -> Result<(), Vec<FactProblem>> {
        let environment = &self.environment;
        CheckedFacts {
            agent: &self.agent,
            id: Some(environment.id),
            name: &environment.name,
            slug: &environment.slug,
            page_url: Some(&environment.page_url),
            url: environment.url.as_deref(),
            tier: environment.tier.as_deref(),
            project: &self.project,
            ci_pipeline: self.ci_pipeline,
            ci_job: self.ci_job,
            user: self.user.as_ref(),
        }
        .check()
    }
}

/// Facts to check; those of an environment that is not recorded have no number and no page.
struct CheckedFacts<'a> {
    agent: &'a AgentFacts,
    id: Option<u64>,
    name: &'a str,
    slug: &'a str,
    page_url: Option<&'a str>,
    url: Option<&'a str>,
    tier: Option<&'a str>,
    project: &'a ProjectFacts,
    ci_pipeline: Option<NumberedFacts>,
    ci_job: Option<NumberedFacts>,
    user: Option<&'a UserFacts>,
}

impl CheckedFacts<'_> {
    fn check(&self) -> Result<(), Vec<FactProblem>> {
        let mut check = Check::default();
        check.ids(self);
        check.that(
            "agent.name",
            self.agent.name.parse::<ClusterName>().is_ok(),
            "is not the name of a cluster agent: a-z, 0-9 and inner dashes, at most 40",
        );
        check.url("agent.url", &self.agent.url);
        check.text("environment.name", self.name, NAME_BYTES_MAX);
        check.that(
            "environment.slug",
            is_environment_slug(self.slug),
            "must begin with a letter and have a-z, 0-9 and inner dashes, at most 24",
        );
        if let Some(page_url) = self.page_url {
            check.url("environment.page_url", page_url);
        }
        if let Some(url) = self.url {
            check.url("environment.url", url);
        }
        if let Some(tier) = self.tier {
            check.that("environment.tier", is_dns_label(tier), "must have a-z, 0-9 and inner dashes, at most 63");
        }
        check.that("project.slug", is_dns_label(&self.project.slug), "must have a-z, 0-9 and inner dashes, at most 63");
        check.text("project.path", &self.project.path, PATH_BYTES_MAX);
        check.url("project.url", &self.project.url);
        if let Some(user) = self.user {
            check.text("user.username", &user.username, NAME_BYTES_MAX);
        }
        if check.problems.is_empty() { Ok(()) } else { Err(check.problems) }
    }
}

/// Returns whether a text is the slug of an environment.
fn is_environment_slug(text: &str) -> bool {
    text.len() <= ENVIRONMENT_SLUG_MAX
        && is_dns_label(text)
        && text.starts_with(|first: char| first.is_ascii_lowercase())
}

#[derive(Default)]
struct Check {
    problems: Vec<FactProblem>,
}

impl Check {
    fn that(&mut self, path: &'static str, is_so: bool, otherwise: impl Into<String>) {
        if !is_so {
            self.problems.push(FactProblem { path, message: otherwise.into() });
        }
    }

    fn ids(&mut self, facts: &CheckedFacts<'_>) {
        let ids = [
            ("agent.id", Some(facts.agent.id)),
            ("environment.id", facts.id),
            ("project.id", Some(facts.project.id)),
            ("ci_pipeline.id", facts.ci_pipeline.map(|pipeline| pipeline.id)),
            ("ci_job.id", facts.ci_job.map(|job| job.id)),
            ("user.id", facts.user.map(|user| user.id)),
        ];
        for (path, id) in ids {
            self.that(path, id.is_none_or(|id| id <= ID_MAX), format!("must not be more than {ID_MAX}"));
        }
    }

    fn text(&mut self, path: &'static str, text: &str, bytes_max: usize) {
        let is_good = (1..=bytes_max).contains(&text.len()) && !text.chars().any(char::is_control);
        self.that(path, is_good, format!("must have 1 to {bytes_max} bytes and no control characters"));
    }

    fn url(&mut self, path: &'static str, text: &str) {
        let is_good = text.len() <= URL_BYTES_MAX && !text.chars().any(char::is_control) && is_web_url(text);
        self.that(path, is_good, format!("must be an http or https URL of at most {URL_BYTES_MAX} bytes"));
    }
}

/// An object in a cluster, as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectRef {
    /// The group of its kind; empty for Kubernetes' own.
    pub group: String,
    /// The version that it was applied as.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for an object of the whole cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Kubernetes UID, which distinguishes it from earlier and later objects of the same name; empty if not known.
    #[serde(default)]
    pub uid: String,
}

impl fmt::Display for ObjectRef {
    /// Writes `RoleBinding namespace/name`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(formatter, "{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// Facts for tests, here and in the crates above.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::*;

    /// Facts of a review app.
    #[must_use]
    pub fn info() -> TemplateVars {
        TemplateVars {
            agent: AgentFacts {
                id: 7,
                name: "prod-eu".to_owned(),
                url: "https://gateway.example.com/api/v1/agents/prod-eu".to_owned(),
            },
            environment: EnvironmentFacts {
                id: 31,
                name: "review/feature-1".to_owned(),
                slug: "review-feature-1-1q251u".to_owned(),
                page_url: "https://gateway.example.com/api/v1/environments/31".to_owned(),
                url: Some("https://feature-1.example.com".to_owned()),
                tier: Some("development".to_owned()),
            },
            project: ProjectFacts {
                id: 42,
                slug: "group-shop".to_owned(),
                path: "group/shop".to_owned(),
                url: "https://gitlab.example.com/group/shop".to_owned(),
            },
            ci_pipeline: Some(NumberedFacts { id: 1001 }),
            ci_job: Some(NumberedFacts { id: 20_002 }),
            user: Some(UserFacts { id: 5, username: "alice".to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::info;
    use super::*;

    #[test]
    fn key_of_the_greatest_ids_fits_into_a_label() {
        let mut info = info();
        info.environment.slug = "e".repeat(ENVIRONMENT_SLUG_MAX);
        (info.project.id, info.agent.id) = (ID_MAX, ID_MAX);
        assert_eq!(info.validate(), Ok(()));
        assert_eq!(info.key().len(), 58);
        assert!(crate::syntax::is_annotation_key(&format!("agent.gitlab.com/env-{}", info.key())));
    }

    #[test]
    fn facts_that_are_not_what_they_are_called_are_told_together() {
        assert_eq!(info().validate(), Ok(()));
        let mut bad = info();
        bad.agent = AgentFacts { id: ID_MAX + 1, name: "A".to_owned(), url: "ftp://a".to_owned() };
        bad.environment.name = "a\nb".to_owned();
        bad.environment.slug = "9".to_owned();
        bad.environment.page_url = "/1".to_owned();
        bad.environment.url = Some("javascript:alert(1)".to_owned());
        bad.environment.tier = Some("a b".to_owned());
        bad.project = ProjectFacts { id: 1, slug: String::new(), path: String::new(), url: "x".to_owned() };
        bad.user = Some(UserFacts { id: 1, username: "a".repeat(256) });
        let paths_of = |checked: Result<(), Vec<FactProblem>>| -> Vec<_> {
            checked.unwrap_err().iter().map(|problem| problem.path).collect()
        };
        let paths = paths_of(bad.validate());
        let unrecorded: Vec<_> = paths.iter().copied().filter(|path| *path != "environment.page_url").collect();
        assert_eq!(paths_of(UnrecordedFacts::from(bad).validate()), unrecorded);
        assert_eq!(
            paths,
            [
                "agent.id",
                "agent.name",
                "agent.url",
                "environment.name",
                "environment.slug",
                "environment.page_url",
                "environment.url",
                "environment.tier",
                "project.slug",
                "project.path",
                "project.url",
                "user.username"
            ]
        );
    }

    #[test]
    fn facts_of_a_recorded_environment_are_those_from_before_with_its_number() {
        let EnvironmentFacts { id, page_url, .. } = info().environment;
        let unrecorded = UnrecordedFacts::from(info());
        assert_eq!((unrecorded.validate(), unrecorded.key()), (Ok(()), info().key()));
        assert_eq!(unrecorded.recorded(id, page_url), info());
    }

    #[test]
    fn unknown_facts_are_refused_and_those_left_out_stay_out() {
        let json = serde_json::to_value(info()).unwrap();
        assert_eq!(serde_json::from_value::<TemplateVars>(json.clone()).unwrap(), info());
        let mut unknown = json;
        unknown["project"]["owner"] = "x".into();
        assert!(serde_json::from_value::<TemplateVars>(unknown).is_err());
        let bare = TemplateVars { ci_pipeline: None, ci_job: None, user: None, ..info() };
        let text = serde_json::to_string(&bare).unwrap();
        assert!(!text.contains("null") && !text.contains("ci_job"), "{text}");
        assert_eq!(serde_json::from_str::<TemplateVars>(&text).unwrap(), bare);
    }
}
