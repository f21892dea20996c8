//! `docs/reference/configuration.md`, made of the table of all keys: a key that is read and not in it fails a test, and so
//! does an entry that is never read.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::*;
use crate::keys::{Entry, Keys};
use crate::{acme, agents, auth, ci, directory, environments, git, idle, sections, store, tls};

/// Where it is, from this crate's folder.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");

/// Set to write the file anew.
const UPDATE: &str = "UPDATE_REFERENCE";

/// A configuration with an entry in every list, whose keys have no other place.
const LISTS: &str = "\
[[auth.agents.kubernetes]]
issuer = 'https://a.example'
jwks_url = 'https://a.example/keys'
[[auth.agents.kubernetes.rules]]
namespace = 'n'
service_account = 's'
workspace = '{pod}'
[[auth.agents.ci]]
issuer = 'https://b.example'
[[auth.agents.ci.rules]]
workspace = 'w'
owner = 'o'
claims.NAME = 'x'
[ci.providers.gitlab]
kind = 'gitlab'
url = 'https://c.example'
project = 'p'
token_file = '/t'
[ci.providers.command]
kind = 'command'
program = 'p'
dir = '/d'
[git.forge]
host = 'git.example.com'
token_url = 'https://git.example.com/oauth/token'
client_id = 'gateway'
";

/// Returns the entries of all keys, in the order of the page.
fn table() -> Vec<Entry> {
    [
        sections::SiteKeys::entries(),
        directory::DirectoryKeys::entries(),
        sections::ListenKeys::entries(),
        directory::ListenPeersKeys::entries(),
        directory::PeersKeys::entries(),
        directory::DrainKeys::entries(),
        tls::TlsPublicKeys::entries(),
        tls::TlsAgentsKeys::entries(),
        directory::TlsPeersKeys::entries(),
        acme::AcmeKeys::entries(),
        acme::TermsKeys::entries(),
        store::StoreKeys::entries(),
        auth::AuthKeys::entries(),
        agents::MtlsKeys::entries(),
        auth::OidcKeys::entries(),
        auth::OidcSecretKeys::entries(),
        sections::LogKeys::entries(),
        sections::AuditKeys::entries(),
        sections::TraceKeys::entries(),
        sections::FolderKeys::entries(),
        ci::CiKeys::entries(),
        environments::JobIssuerKeys::entries(),
        environments::EnvironmentKeys::entries(),
        idle::IdleKeys::entries(),
        sections::TimeoutKeys::entries(),
        sections::LimitKeys::entries(),
        sections::TunnelKeys::entries(),
        agents::KubernetesKeys::entries(),
        agents::KubernetesRuleKeys::entries(),
        agents::CiIssuerKeys::entries(),
        agents::ClaimKeys::entries(),
        agents::CiRuleKeys::entries(),
        ci::SystemKeys::entries(),
        ci::ProviderKeys::entries(),
        ci::EditorKeys::entries(),
        ci::GitlabKeys::entries(),
        ci::CommandKeys::entries(),
        git::GitServerKeys::entries(),
        git::GitOauthKeys::entries(),
    ]
    .concat()
}

/// One key.
struct Known {
    default: Option<String>,
    accepted: &'static str,
}

/// Returns the key as the reference has it: numbers of entries and names of providers stand for any.
fn general(key: &str) -> String {
    let key = key.replace("[0]", "[]");
    key.replace("ci.providers.gitlab.", "ci.providers.NAME.")
        .replace("ci.providers.command.", "ci.providers.NAME.")
        .replace("git.forge.", "git.NAME.")
}

fn known() -> BTreeMap<String, Known> {
    let mut known = BTreeMap::new();
    let lists = load(LISTS, &[]).unwrap();
    for row in Config::default().effective().iter().chain(lists.effective()) {
        // What the sample had to say is no default.
        let default = row.value.clone().filter(|_| row.origin == Origin::Default);
        known.entry(general(&row.key)).or_insert(Known { default, accepted: row.accepted });
    }
    known
}

fn reference() -> String {
    let known = known();
    let mut text = "# Configuration\n\n\
        All keys of `gateway.toml`. This page is made of the keys themselves (`UPDATE_REFERENCE=1 cargo test -p gateway-config --lib \
        reference`).\n\n\
        Values come from defaults, the file, `GATEWAY_…` variables and flags; the later wins. The variable of `listen.public` is \
        `GATEWAY_LISTEN__PUBLIC`; lists (`[[…]]`) are set in the file only. Values that are not numbers or `true` and `false` \
        are TOML strings. Relative paths in the file start at the file's folder, and so do defaults where there is a file; those \
        of variables and flags start at the working directory. `gateway config show` prints every key with its value and where \
        that comes from, `gateway config check` opens what is named and tells all that is wrong at once.\n\n\
        Keys with `yes` under *reload* are taken over by a running gateway on SIGHUP ([how](../guide/reload.md)); all others need a \
        restart.\n"
        .to_owned();
    let mut section = None;
    for Entry { key, meaning } in &table() {
        let (of, name) = key.rsplit_once('.').unwrap_or(("", key));
        let Some(Known { default, accepted }) = known.get(key) else { continue };
        if section != Some(of) {
            let title = match of {
                "" => "Top level".to_owned(),
                of if of.ends_with("[]") => format!("`[[{}]]`", of.replace("[]", "")),
                of => format!("`[{}]`", of.replace("[]", "")),
            };
            write!(text, "\n## {title}\n\n| key | default | accepted | reload | |\n| --- | --- | --- | --- | --- |\n")
                .unwrap();
            section = Some(of);
        }
        let default = default.as_deref().map(|value| format!("`{value}`")).unwrap_or_default();
        let default = if default == "``" { "none".to_owned() } else { default };
        let cell = |text: &str| text.replace('|', "\\|");
        let reload = if RELOADED.contains(&key.as_str()) { "yes" } else { "" };
        writeln!(text, "| `{name}` | {default} | {} | {reload} | {} |", cell(accepted), cell(meaning)).unwrap();
    }
    text
}

#[test]
fn keys_that_are_declared_and_keys_that_are_read_are_the_same() {
    let read: BTreeSet<String> = known().into_keys().collect();
    let declared: BTreeSet<String> = table().into_iter().map(|entry| entry.key).collect();
    assert_eq!(declared.len(), table().len(), "a key is declared twice");
    let missing: Vec<_> = read.difference(&declared).collect();
    assert!(missing.is_empty(), "these are read, and not in the table: {missing:?}");
    let unread: Vec<_> = declared.difference(&read).collect();
    assert!(unread.is_empty(), "these are in the table, and never read: {unread:?}");
}

#[test]
fn keys_that_are_reloaded_are_keys() {
    let declared: BTreeSet<String> = table().into_iter().map(|entry| entry.key).collect();
    let unknown: Vec<_> = RELOADED.iter().filter(|key| !declared.contains(**key)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn reference_of_the_configuration_is_current() {
    let expected = reference();
    if std::env::var_os(UPDATE).is_some() {
        fs::write(PATH, &expected).unwrap();
    }
    let present = fs::read_to_string(PATH).unwrap_or_default();
    assert!(present == expected, "docs/reference/configuration.md is not current: {UPDATE}=1 writes it anew");
}
