//! The section `workspaces`, and the rules between its keys.

use std::collections::BTreeMap;

use super::{AGE_HOURS_MAX, ClusterConfig, PullPolicy, access, amounts, lists, network, totals};
use crate::document::{Location, MapFields, Problems, Value, ValueAt, show};
use crate::editor;
use crate::syntax::{is_dns_label, is_dns_subdomain, is_image};
use gateway_types::PublicUrl;

/// Longest prefix of a namespace's name, in characters: the longest name of a workspace on Kubernetes follows it, in 63
/// together.
pub(super) const PREFIX_MAX: usize = 20;

/// Prefix of Kubernetes' own namespaces.
const KUBERNETES_PREFIX: &str = "kube-";

/// Places of the keys in the file, for the messages of rules between keys.
type KeyLocations = BTreeMap<&'static str, Location>;

/// Reads a whole file; an empty one says nothing.
pub(super) fn read_file(at: &ValueAt<'_>, problems: &mut Problems) -> ClusterConfig {
    if at.node.value == Value::Null {
        return ClusterConfig::default();
    }
    let Some(mut fields) = at.fields(problems) else {
        return ClusterConfig::default();
    };
    let section = fields.take("workspaces").and_then(|at| at.fields(problems));
    let mut config = section.map(|section| read_section(section, problems)).unwrap_or_default();
    if let Some(at) = fields.take("ci_access") {
        config.ci_access = access::read(&at, problems);
    }
    fields.finish(problems);
    config
}

/// The section while it is being read.
struct Section<'n, 'p> {
    fields: MapFields<'n>,
    places: KeyLocations,
    problems: &'p mut Problems,
}

impl<'n> Section<'n, '_> {
    fn take(&mut self, key: &'static str) -> Option<ValueAt<'n>> {
        let at = self.fields.take(key)?;
        self.places.insert(key, at.node.place);
        Some(at)
    }

    fn boolean(&mut self, key: &'static str, default: bool) -> bool {
        self.take(key).and_then(|at| at.boolean(self.problems)).unwrap_or(default)
    }

    /// Reads a number of workspaces; -1 says that any number will do.
    fn quota(&mut self, key: &'static str) -> Option<u32> {
        let number = self.take(key).and_then(|at| at.whole(-1..=i64::from(u32::MAX), self.problems));
        number.and_then(|number| u32::try_from(number).ok())
    }

    fn hours(&mut self, key: &'static str) -> Option<u32> {
        let number = self.take(key).and_then(|at| at.whole(1..=i64::from(AGE_HOURS_MAX), self.problems));
        number.and_then(|number| u32::try_from(number).ok())
    }

    fn idle_minutes(&mut self, key: &'static str) -> u32 {
        let number = self.take(key).and_then(|at| at.whole(0..=i64::from(AGE_HOURS_MAX) * 60, self.problems));
        number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
    }

    /// Reads text that keeps a rule; an empty one says nothing.
    fn text(&mut self, key: &'static str, rule: impl Fn(&str) -> Result<String, String>) -> Option<String> {
        let at = self.take(key)?;
        let text = at.text(self.problems).filter(|text| !text.is_empty())?;
        match rule(text) {
            Ok(text) => Some(text),
            Err(wrong) => {
                at.object(self.problems, format!("{wrong}; it is {}", show(text)));
                None
            }
        }
    }

    fn pull_policy(&mut self, key: &'static str) -> Option<PullPolicy> {
        let at = self.take(key)?;
        let text = at.text(self.problems)?;
        let policy = PullPolicy::named(text);
        if policy.is_none() {
            at.object(self.problems, format!("must be Always, IfNotPresent or Never, not {}", show(text)));
        }
        policy
    }

    /// Notes a problem of a key, at its place or else at the section's.
    fn object(&mut self, key: &'static str, message: impl Into<String>) {
        let place = self.places.get(key).copied().unwrap_or(self.fields.place);
        self.problems.add(format!("{}.{key}", self.fields.path), Some(place), message);
    }
}

fn read_section(fields: MapFields<'_>, problems: &mut Problems) -> ClusterConfig {
    let mut section = Section { fields, places: KeyLocations::new(), problems };
    let defaults = ClusterConfig::default();
    let enabled = section.fields.require("enabled", section.problems).and_then(|at| at.boolean(section.problems));
    let mut config = ClusterConfig {
        enabled: enabled.unwrap_or(false),
        namespace_prefix: section.text("namespace_prefix", prefix).unwrap_or(defaults.namespace_prefix),
        shared_namespace: section.text("shared_namespace", namespace),
        quota: section.quota("quota"),
        quota_per_user: section.quota("quota_per_user"),
        running_quota: section.quota("running_quota"),
        running_quota_per_user: section.quota("running_quota_per_user"),
        user_namespaces: section.boolean("use_kubernetes_user_namespaces", defaults.user_namespaces),
        runtime_class: section.text("default_runtime_class", runtime_class),
        image_pull_policy: section.pull_policy("image_pull_policy"),
        allow_privilege_escalation: section.boolean("allow_privilege_escalation", defaults.allow_privilege_escalation),
        max_active_hours: section.hours("max_active_hours_before_stop").unwrap_or(defaults.max_active_hours),
        max_stopped_hours: section.hours("max_stopped_hours_before_termination").unwrap_or(defaults.max_stopped_hours),
        max_age_hours: section.hours("max_age_hours_before_termination"),
        idle_minutes: section.idle_minutes("idle_minutes"),
        max_idle_minutes: section.idle_minutes("max_idle_minutes"),
        tools_image: section.text("tools_image", image).unwrap_or_default(),
        gateway_url: section.text("gateway_url", url),
        ..defaults
    };
    if let Some(at) = section.take("network_policy") {
        config.network_policy = network::read(&at, section.problems);
    }
    config.default_resources =
        section.take("default_resources_per_container").and_then(|at| amounts::read(&at, section.problems));
    config.max_resources =
        section.take("max_resources_per_workspace").and_then(|at| amounts::read(&at, section.problems));
    config.resource_quota = section.take("resource_quota").and_then(|at| totals::read(&at, section.problems));
    config.resource_quota_per_user =
        section.take("resource_quota_per_user").and_then(|at| totals::read(&at, section.problems));
    if let Some(at) = section.take("editors") {
        config.editors = editor::read(&at, section.problems);
    }
    if let Some(at) = section.take("image_pull_secrets") {
        config.image_pull_secrets = lists::read_secrets(&at, config.shared_namespace.as_deref(), section.problems);
    }
    if let Some(at) = section.take("annotations") {
        config.annotations = lists::read_annotations(&at, section.problems);
    }
    if let Some(at) = section.take("labels") {
        config.labels = lists::read_labels(&at, section.problems);
    }
    check_together(&config, &mut section);
    section.fields.finish(section.problems);
    config
}

/// Checks the rules between keys.
fn check_together(config: &ClusterConfig, section: &mut Section<'_, '_>) {
    if config.allow_privilege_escalation && !config.user_namespaces && config.runtime_class.is_none() {
        section.object(
            "allow_privilege_escalation",
            "needs use_kubernetes_user_namespaces or a default_runtime_class that contains it",
        );
    }
    for (key, totals) in
        [("resource_quota", &config.resource_quota), ("resource_quota_per_user", &config.resource_quota_per_user)]
    {
        if config.default_resources.is_none() && totals.as_ref().is_some_and(|totals| totals.counts_containers()) {
            section.object(
                key,
                "needs default_resources_per_container: a container without requests would not be counted",
            );
        }
    }
    if config.shared_namespace.is_some() && config.max_resources.is_some() {
        section.object(
            "max_resources_per_workspace",
            "must be left out with shared_namespace: a quota would count for all workspaces together",
        );
    }
    if config.shared_namespace.is_some() && section.places.contains_key("namespace_prefix") {
        section.object("namespace_prefix", "must be left out with shared_namespace: no namespace is made");
    }
    if config.max_idle_minutes > 0 && config.idle_minutes > config.max_idle_minutes {
        section.object("idle_minutes", format!("must be at most max_idle_minutes, {}", config.max_idle_minutes));
    }
    let hours = u64::from(config.max_active_hours) + u64::from(config.max_stopped_hours);
    if hours > u64::from(AGE_HOURS_MAX) {
        let key = "max_stopped_hours_before_termination";
        let key = if section.places.contains_key(key) { key } else { "max_active_hours_before_stop" };
        let message =
            format!("max_active_hours_before_stop and max_stopped_hours_before_termination are {hours} hours together");
        section.object(key, format!("{message}, and must not be more than {AGE_HOURS_MAX}"));
    }
    if config.enabled && config.tools_image.is_empty() && !section.places.contains_key("tools_image") {
        section.object("tools_image", "is missing: the image that carries the workspace agent and the editor");
    }
}

fn prefix(text: &str) -> Result<String, String> {
    // A name follows the prefix, and begins and ends like a label.
    let is_sound = text.len() <= PREFIX_MAX && is_dns_label(&format!("{text}a"));
    match is_sound && !text.starts_with(KUBERNETES_PREFIX) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "must be at most {PREFIX_MAX} of a-z, 0-9 and dashes, not a dash first and not {KUBERNETES_PREFIX}"
        )),
    }
}

pub(super) fn namespace(text: &str) -> Result<String, String> {
    match is_dns_label(text) && !text.starts_with(KUBERNETES_PREFIX) {
        true => Ok(text.to_owned()),
        false => Err("must be the name of a namespace, a DNS label, and not one of Kubernetes' own".to_owned()),
    }
}

fn runtime_class(text: &str) -> Result<String, String> {
    match is_dns_subdomain(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("must be the name of a runtime class: DNS labels with dots between them, at most 253 characters"
                .to_owned())
        }
    }
}

fn image(text: &str) -> Result<String, String> {
    match is_image(text) {
        true => Ok(text.to_owned()),
        false => Err("must be a reference to an image, such as registry.example.com/team/tools:1.0".to_owned()),
    }
}

fn url(text: &str) -> Result<String, String> {
    text.parse::<PublicUrl>().map(|url| url.to_string()).map_err(|bad| bad.to_string())
}
