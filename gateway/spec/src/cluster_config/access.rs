//! The section `ci_access`: projects whose jobs may have environments in the cluster (GitLab documentation, "Using
//! GitLab CI/CD with a Kubernetes cluster").

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::settings::namespace;
use crate::document::{Location, Problems, Value, ValueAt, show};

/// Most entries of each list (GitLab documentation: 500 projects and 500 groups).
pub const ACCESS_ENTRIES_MAX: usize = 500;

/// Most patterns of an entry, and longest of them in bytes.
const PATTERNS_MAX: usize = 100;
const PATTERN_BYTES_MAX: usize = 255;

/// Longest path of a project or group, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// Projects whose jobs may use the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CiAccess {
    /// Single projects.
    pub projects: Vec<AccessEntry>,
    /// All projects of groups and of the groups in them.
    pub groups: Vec<AccessEntry>,
}

/// Permissions of the jobs of one project or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessEntry {
    /// The path of the project or group.
    pub id: String,
    /// The namespace of objects that do not name one, which they may always be in.
    pub default_namespace: Option<String>,
    /// Identity whose rights count in the cluster.
    pub access_as: AccessAs,
    /// The environments that may be used, with `*` for any text; empty for all.
    pub environments: Vec<String>,
    /// Whether only jobs of protected branches and tags may.
    pub protected_branches_only: bool,
    /// Whether objects are made for environments.
    pub resource_management: bool,
}

/// Identity whose rights count in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessAs {
    /// The cluster agent's.
    #[default]
    Agent,
    /// The job's, which the agent impersonates.
    CiJob,
}

impl CiAccess {
    /// Returns whether no project has access.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.projects.is_empty() && self.groups.is_empty()
    }

    /// Returns the default namespaces of all entries, each once.
    #[must_use]
    pub fn default_namespaces(&self) -> Vec<String> {
        let entries = self.projects.iter().chain(&self.groups);
        let names: BTreeSet<_> = entries.filter_map(|entry| entry.default_namespace.clone()).collect();
        names.into_iter().collect()
    }

    /// Returns the entry that counts for a project, given its path with its groups: its own, or else that of the
    /// innermost group with an entry. GitLab does not tell paths apart by case.
    #[must_use]
    pub fn entry(&self, project_path: &str) -> Option<&AccessEntry> {
        let own = self.projects.iter().find(|entry| entry.id.eq_ignore_ascii_case(project_path));
        own.or_else(|| {
            let around = self.groups.iter().filter(|entry| is_below(project_path, &entry.id));
            around.max_by_key(|entry| entry.id.len())
        })
    }
}

/// Returns whether a path is inside of a group.
fn is_below(path: &str, group: &str) -> bool {
    let head = path.get(..group.len()).filter(|head| head.eq_ignore_ascii_case(group));
    head.is_some() && path.get(group.len()..).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

impl AccessEntry {
    /// Returns whether an environment may be used, given its name.
    #[must_use]
    pub fn allows_environment(&self, name: &str) -> bool {
        self.environments.is_empty() || self.environments.iter().any(|pattern| matches(pattern, name))
    }
}

/// Returns whether a text fits a pattern, in which each `*` stands for any text, also none.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut rest) = text.strip_prefix(head) else {
        return false;
    };
    // Inner pieces are best matched at their earliest place; the last piece has to end the text.
    let mut pieces: Vec<&str> = tail.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Reads the section.
pub(super) fn read(at: &ValueAt<'_>, problems: &mut Problems) -> CiAccess {
    let Some(mut fields) = at.fields(problems) else {
        return CiAccess::default();
    };
    let mut list = |key: &'static str, is_path: fn(&str) -> bool, what: &str| {
        fields.take(key).map(|at| read_entries(&at, is_path, what, problems)).unwrap_or_default()
    };
    let projects = list("projects", is_project_path, "project, such as group/project");
    let groups = list("groups", is_group_path, "group, such as group/subgroup");
    fields.refuse(&[("instance", "is not supported: name the groups whose projects may use the cluster")], problems);
    fields.finish(problems);
    CiAccess { projects, groups }
}

fn read_entries(at: &ValueAt<'_>, is_path: fn(&str) -> bool, what: &str, problems: &mut Problems) -> Vec<AccessEntry> {
    let items = at.items(problems);
    if items.len() > ACCESS_ENTRIES_MAX {
        at.object(problems, format!("has {} entries, and must not have more than {ACCESS_ENTRIES_MAX}", items.len()));
        return Vec::new();
    }
    let mut seen: BTreeMap<String, Location> = BTreeMap::new();
    let mut entries = Vec::with_capacity(items.len());
    for item in items {
        let Some((id, entry)) = read_entry(&item, problems) else {
            continue;
        };
        if !is_path(&entry.id) {
            id.object(problems, format!("must be the path of a {what}; it is {}", show(&entry.id)));
        } else if let Some(first) = seen.insert(entry.id.to_ascii_lowercase(), id.node.place) {
            id.object(problems, format!("is there twice; the first is on line {}", first.line));
        }
        entries.push(entry);
    }
    entries
}

/// Reads an entry; `None` if it names no project or group.
fn read_entry<'n>(item: &ValueAt<'n>, problems: &mut Problems) -> Option<(ValueAt<'n>, AccessEntry)> {
    let mut fields = item.fields(problems)?;
    let id = fields.require("id", problems);
    let default_namespace = fields.take("default_namespace").and_then(|at| read_namespace(&at, problems));
    let access_as = fields.take("access_as").map(|at| read_access_as(&at, problems)).unwrap_or_default();
    let environments = fields.take("environments").map(|at| read_patterns(&at, problems)).unwrap_or_default();
    let protected = fields.take("protected_branches_only").and_then(|at| at.boolean(problems));
    let managed = fields.take("resource_management").and_then(|at| read_management(&at, problems));
    fields.finish(problems);
    let id = id?;
    let entry = AccessEntry {
        id: id.text(problems)?.to_owned(),
        default_namespace,
        access_as,
        environments,
        protected_branches_only: protected.unwrap_or(false),
        resource_management: managed.unwrap_or(false),
    };
    Some((id, entry))
}

fn read_namespace(at: &ValueAt<'_>, problems: &mut Problems) -> Option<String> {
    let text = at.text(problems).filter(|text| !text.is_empty())?;
    match namespace(text) {
        Ok(text) => Some(text),
        Err(wrong) => {
            at.object(problems, format!("{wrong}; it is {}", show(text)));
            None
        }
    }
}

fn read_access_as(at: &ValueAt<'_>, problems: &mut Problems) -> AccessAs {
    let Some(mut fields) = at.fields(problems) else {
        return AccessAs::default();
    };
    let mut is_named = |key: &'static str| match fields.take(key) {
        // Nothing is asked of it; `agent: {}` is how it is written.
        Some(at) if at.node.value != Value::Map(Vec::new()) => {
            at.object(problems, "must be {}");
            true
        }
        found => found.is_some(),
    };
    let (agent, job) = (is_named("agent"), is_named("ci_job"));
    let other = "is not supported: the agent acts as itself (agent) or as the job (ci_job)";
    let refused = fields.refuse(&[("impersonate", other), ("ci_user", other), ("user", other)], problems);
    fields.finish(problems);
    match (agent, job) {
        (true, true) => at.object(problems, "must name one of agent and ci_job"),
        (false, false) if refused == 0 => at.object(problems, "must name one of agent and ci_job, such as ci_job: {}"),
        (true | false, false) | (false, true) => {}
    }
    if job { AccessAs::CiJob } else { AccessAs::Agent }
}

fn read_patterns(at: &ValueAt<'_>, problems: &mut Problems) -> Vec<String> {
    let items = at.items(problems);
    if items.len() > PATTERNS_MAX {
        at.object(problems, format!("has {} patterns, and must not have more than {PATTERNS_MAX}", items.len()));
        return Vec::new();
    }
    let mut patterns = Vec::with_capacity(items.len());
    for item in items {
        match item.text(problems) {
            Some(text) if text.is_empty() || text.len() > PATTERN_BYTES_MAX => {
                item.object(problems, format!("must have 1 to {PATTERN_BYTES_MAX} bytes"));
            }
            Some(text) => patterns.push(text.to_owned()),
            None => {}
        }
    }
    patterns
}

fn read_management(at: &ValueAt<'_>, problems: &mut Problems) -> Option<bool> {
    let mut fields = at.fields(problems)?;
    let enabled = fields.require("enabled", problems).and_then(|at| at.boolean(problems));
    fields.finish(problems);
    enabled
}

/// Returns whether a text is names of groups, with slashes between them.
fn is_group_path(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(inner);
    text.len() <= PATH_BYTES_MAX && text.split('/').all(is_name)
}

fn is_project_path(text: &str) -> bool {
    text.contains('/') && is_group_path(text)
}
