//! What a running gateway takes over of a changed configuration. Pure: two configurations, and the changes or the refusals.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::{Config, EffectiveRow};

/// Keys that a running gateway takes over. All others need a restart.
pub const RELOADED: [&str; 25] = [
    "tls.public.cert",
    "tls.public.key",
    "tls.public.certs_dir",
    "tls.agents.cert",
    "tls.agents.key",
    "tls.agents.certs_dir",
    "tls.agents.client_ca",
    "auth.admins",
    "auth.admin_group",
    "auth.oidc.username_claim",
    "auth.oidc.groups_claim",
    "auth.oidc.required_group",
    "auth.oidc.client_secret",
    "auth.oidc.client_secret_file",
    "limits.connections_per_address",
    "limits.connections_per_second_per_address",
    "limits.agent_connections_per_address",
    "limits.agent_connections_per_second_per_address",
    "limits.handshakes_per_address",
    "limits.failed_sign_ins_per_minute",
    "limits.requests_per_port",
    "limits.requests_per_user",
    "limits.requests_per_second_per_user",
    "limits.requests_per_address",
    "limits.requests_per_second_per_address",
];

/// A change that a running gateway does not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedChange {
    /// The key.
    pub key: String,
    /// The reason.
    pub why: &'static str,
}

impl fmt::Display for RefusedChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.key, self.why)
    }
}

const NEEDS_A_RESTART: &str = "changed, which needs a restart";
const TURNS_TLS: &str = "turns TLS or client certificates on or off, which needs a restart";

/// Compares the configuration in force with a new one. Returns the keys whose values changed, all of which a running gateway takes
/// over; where a value came from does not matter.
///
/// # Errors
/// The keys that need a restart: then nothing is to be taken over.
pub fn changes(present: &Config, new: &Config) -> Result<Vec<String>, Vec<RefusedChange>> {
    let (before, after) = (values(present), values(new));
    let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
    let mut changed: Vec<String> =
        keys.filter(|key| before.get(*key) != after.get(*key)).map(|key| (*key).to_owned()).collect();
    changed.sort();
    let refused: Vec<RefusedChange> = changed
        .iter()
        .filter_map(|key| Some(RefusedChange { key: key.clone(), why: refusal(present, new, key)? }))
        .chain(hidden(present, new, &changed))
        .collect();
    if refused.is_empty() { Ok(changed) } else { Err(refused) }
}

fn values(config: &Config) -> BTreeMap<&str, Option<&str>> {
    config.effective().iter().map(|row: &EffectiveRow| (Cow::as_ref(&row.key), row.value.as_deref())).collect()
}

/// Returns why a change is not made, if it is not.
fn refusal(present: &Config, new: &Config, key: &str) -> Option<&'static str> {
    if !RELOADED.contains(&key) {
        return Some(NEEDS_A_RESTART);
    }
    let turns = match key.split('.').take(2).collect::<Vec<_>>().as_slice() {
        ["tls", "public"] => present.tls.public.is_some() != new.tls.public.is_some(),
        ["tls", "agents"] => {
            let has_ca = |config: &Config| config.tls.agents.as_ref().map(|files| files.client_ca.is_some());
            has_ca(present) != has_ca(new)
        }
        _ => false,
    };
    turns.then_some(TURNS_TLS)
}

/// Finds a changed secret, whose masks are the same.
fn hidden(present: &Config, new: &Config, changed: &[String]) -> Option<RefusedChange> {
    let is_seen = changed.iter().any(|key| key.starts_with("store."));
    let is_hidden = present.store != new.store && !is_seen;
    is_hidden.then(|| RefusedChange { key: "store.url".to_owned(), why: NEEDS_A_RESTART })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Config {
        let variable = |key: &str| format!("GATEWAY_{}", key.replace('.', "__").to_ascii_uppercase());
        let env: BTreeMap<String, String> =
            pairs.iter().map(|(key, value)| (variable(key), (*value).to_owned())).collect();
        Config::load(None, &env).unwrap()
    }

    fn told(before: &[(&str, &str)], after: &[(&str, &str)]) -> Result<Vec<String>, Vec<String>> {
        let told = |refused: Vec<RefusedChange>| refused.iter().map(ToString::to_string).collect();
        changes(&load(before), &load(after)).map_err(told)
    }

    const TLS: [(&str, &str); 3] =
        [("public_url", "https://localhost"), ("tls.public.cert", "/c"), ("tls.public.key", "/k")];

    #[test]
    fn same_values_are_no_change_wherever_they_come_from() {
        assert_eq!(told(&[], &[("limits.requests_per_user", "4096")]), Ok(vec![]));
    }

    #[test]
    fn limits_certificates_and_operators_are_taken_over() {
        let new = [("limits.requests_per_user", "7"), ("auth.admins", "olga")];
        assert_eq!(told(&[], &new), Ok(vec!["auth.admins".to_owned(), "limits.requests_per_user".to_owned()]));
        let moved = [TLS[0], ("tls.public.cert", "/other"), TLS[2]];
        assert_eq!(told(&TLS, &moved), Ok(vec!["tls.public.cert".to_owned()]));
    }

    #[test]
    fn one_key_that_needs_a_restart_refuses_all_changes() {
        let new = [("limits.requests_per_user", "7"), ("tunnel.lanes_max", "3"), ("limits.sessions", "9")];
        assert_eq!(
            told(&[], &new),
            Err(vec![
                "limits.sessions changed, which needs a restart".to_owned(),
                "tunnel.lanes_max changed, which needs a restart".to_owned()
            ])
        );
    }

    #[test]
    fn tls_is_turned_on_and_off_at_a_start_only() {
        let plain = [TLS[0]];
        for (before, after) in [(&plain[..], &TLS[..]), (&TLS[..], &plain[..])] {
            let refused = told(before, after).unwrap_err();
            assert!(refused.iter().all(|line| line.contains("turns TLS")), "{refused:?}");
            assert_eq!(refused.len(), 2);
        }
    }

    #[test]
    fn changed_password_is_seen_behind_its_mask_and_not_shown() {
        let url = |password: &str| format!("postgres://u:{password}@h/db");
        let (before, after) = (url("hunter2"), url("hunter3"));
        let refused = told(&[("store.url", &before)], &[("store.url", &after)]);
        assert_eq!(refused, Err(vec!["store.url changed, which needs a restart".to_owned()]));
    }
}
