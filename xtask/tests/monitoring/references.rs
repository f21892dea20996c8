//! What runbooks tell an operator to run and to change: commands, keys of the configuration, metrics and other alerts.

use std::collections::BTreeSet;
use std::fs;

use super::root;
use super::source::{Alert, Source};

/// What the references list.
pub(crate) struct References {
    commands: BTreeSet<String>,
    keys: BTreeSet<String>,
    alerts: BTreeSet<String>,
}

impl References {
    pub(crate) fn read(source: &Source) -> Self {
        let page = |name: &str| fs::read_to_string(root().join("docs/reference").join(name)).expect("a reference");
        Self {
            commands: commands(&page("commands.md")),
            keys: keys(&page("configuration.md")),
            alerts: source.alerts.iter().map(|alert| alert.name.clone()).collect(),
        }
    }

    /// Returns what an alert's runbook names and no reference has.
    pub(crate) fn missing(&self, alert: &Alert) -> Vec<String> {
        let lines = || alert.check.iter().chain(&alert.mend).chain([&alert.meaning]);
        let quoted = lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let alerts = lines().flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphanumeric()));
        let unknown = quoted.filter(|text| !self.has(text));
        unknown.chain(alerts.filter(|word| is_alert(word) && !self.alerts.contains(*word))).map(str::to_owned).collect()
    }

    fn has(&self, text: &str) -> bool {
        let mut words = text.split(' ');
        match words.next() {
            Some("gateway" | "workspace-agent") => self.has_command(text),
            Some(word) if is_key(word) && words.next().is_none() => self.keys.contains(word),
            _ => true,
        }
    }

    /// A command that does something: not one that only has others below it.
    fn has_command(&self, text: &str) -> bool {
        let is_name = |word: &&str| {
            word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-') && !word.starts_with('-')
        };
        let name = text.split(' ').take_while(is_name).collect::<Vec<_>>().join(" ");
        let below = format!("{name} ");
        self.commands.contains(&name) && !self.commands.iter().any(|command| command.starts_with(&below))
    }
}

fn is_alert(word: &str) -> bool {
    word.strip_prefix("Gateway").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
}

/// `store.outage_max`, not `agent_absent` and not `side=way`.
fn is_key(word: &str) -> bool {
    word.contains('.') && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_' || letter == '.')
}

fn commands(page: &str) -> BTreeSet<String> {
    let heading = |line: &str| Some(line.strip_prefix("## `")?.strip_suffix('`')?.to_owned());
    page.lines().filter_map(heading).collect()
}

/// Keys with their sections, and the sections.
fn keys(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut section = String::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.trim_matches(['`', '[', ']']).to_owned();
            found.insert(section.clone());
        } else if let Some(key) = line.strip_prefix("| `").and_then(|row| row.split('`').next()) {
            found.insert(format!("{section}.{key}"));
        }
    }
    found
}

#[test]
fn command_without_effect_and_key_that_is_not_there_are_found_missing() {
    let references = References {
        commands: commands("## `gateway replicas`\n## `gateway replicas list`\n## `gateway doctor`\n"),
        keys: keys("## `[store]`\n| `url` | x |\n"),
        alerts: BTreeSet::from(["GatewayStoreAway".to_owned()]),
    };
    for good in [
        "gateway replicas list",
        "gateway doctor --output json",
        "gateway doctor",
        "store.url",
        "store",
        "agent_absent",
        "side=way",
    ] {
        assert!(references.has(good), "{good}");
    }
    for bad in ["gateway replicas", "gateway status", "store.uri", "workspace-agent doctor"] {
        assert!(!references.has(bad), "{bad}");
    }
    assert!(is_alert("GatewayStoreAway") && !is_alert("Gateway") && !is_alert("Gateways"));
}
