//! Keys of `auth`: sign-in of users, and the rules between the keys. Sign-in that is half configured is no sign-in:
//! every contradiction is a problem, and a key that would have no effect is one too.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::AgentAuth;
use super::reader::Reader;
use super::sections::{AUTH_MODE, AuthMode};
use super::value::{COUNT, DURATION, ValueKind};
use gateway_types::{Endpoint, GroupName, Scheme};
use gateway_types::{PublicUrl, Secret};

const ISSUER: &str = "auth.oidc.issuer";
const CLIENT_ID: &str = "auth.oidc.client_id";
const CLIENT_SECRET: &str = "auth.oidc.client_secret";
const CLIENT_SECRET_FILE: &str = "auth.oidc.client_secret_file";
const SCOPES: &str = "auth.oidc.scopes";
const USERNAME_CLAIM: &str = "auth.oidc.username_claim";
const GROUPS_CLAIM: &str = "auth.oidc.groups_claim";
const REQUIRED_GROUP: &str = "auth.oidc.required_group";
const CA_FILE: &str = "auth.oidc.ca_file";

/// Keys that are set only for a provider. The others have defaults, which `config show` writes out.
const PROVIDER_KEYS: [&str; 6] = [ISSUER, CLIENT_ID, CLIENT_SECRET, CLIENT_SECRET_FILE, REQUIRED_GROUP, CA_FILE];

/// Bounds of a session's lifetime: long enough to be of use, and not for ever.
const SESSION_TIMES: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 60 * 60);

/// Longest text of a key here, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Sign-in of users and agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The way (`auth.mode`).
    pub mode: AuthMode,
    /// A browser session without use ends after this (`auth.session_idle`).
    pub session_idle: Duration,
    /// A browser session ends after this, used or not, and groups count no longer (`auth.session_max`).
    pub session_max: Duration,
    /// Other ports of a workspace at which the first sign-in at one of them signs a browser in too (`auth.neighbour_ports`).
    pub neighbour_ports: usize,
    /// Credentials of agents (`auth.agents.*`).
    pub agents: AgentAuth,
    /// The identity provider (`auth.oidc.*`); there exactly if `mode` is [`AuthMode::Oidc`].
    pub oidc: Option<Oidc>,
}

/// Each costs three redirects beside the six of a sign-in with a provider, and browsers give up after 16 to 20.
const NEIGHBOUR_PORTS_MAX: usize = 4;

/// The identity provider, and its claims that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oidc {
    /// The provider's address, as its tokens spell it.
    pub issuer: Endpoint,
    /// Client id of this gateway at the provider.
    pub client_id: String,
    /// Client secret; `None` for a public client.
    pub client_secret: Option<ClientSecret>,
    /// Requested scopes, separated by spaces.
    pub scopes: String,
    /// The claim with the user's name.
    pub username_claim: String,
    /// The claim with the user's groups.
    pub groups_claim: String,
    /// Only members of this group may sign in.
    pub required_group: Option<GroupName>,
    /// Authorities that vouch for the provider beside those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Source of the client secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSecret {
    /// In a file, without the line's end.
    File(PathBuf),
    /// In an environment variable.
    Value(Secret),
}

const ENDPOINT: ValueKind<Endpoint> = ValueKind {
    accepted: "an https URL such as `https://id.example.com/realms/dev`",
    parse: |text| text.parse().map_err(|error: gateway_types::BadEndpoint| error.to_string()),
    show: ToString::to_string,
    secret: false,
};

const WORD: ValueKind<String> = ValueKind {
    accepted: "a text without spaces",
    parse: |text| if text.contains(' ') { Err("it contains a space".to_owned()) } else { printable(text) },
    show: Clone::clone,
    secret: false,
};

const SCOPE_LIST: ValueKind<String> = ValueKind {
    accepted: "scopes separated by single spaces, `openid` among them",
    parse: |text| {
        let text = printable(text)?;
        if text.split(' ').any(str::is_empty) {
            return Err("there are spaces beside no scope".to_owned());
        }
        if text.split(' ').any(|scope| scope == "openid") { Ok(text) } else { Err("`openid` is missing".to_owned()) }
    },
    show: Clone::clone,
    secret: false,
};

const GROUP: ValueKind<GroupName> = ValueKind {
    accepted: "the name of a group",
    parse: |text| text.parse().map_err(|error: gateway_types::BadGroupName| error.to_string()),
    show: ToString::to_string,
    secret: false,
};

const SECRET: ValueKind<Secret> = ValueKind {
    accepted: "a text",
    parse: |text| if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(Secret::new(text.to_owned())) },
    show: |_| Secret::MASK.to_owned(),
    secret: true,
};

fn printable(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("it is longer than {TEXT_BYTES_MAX} bytes"));
    }
    let plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if text.bytes().all(plain) { Ok(text.to_owned()) } else { Err("it has other than printable characters".to_owned()) }
}

/// Reads the keys.
pub(super) fn read(reader: &mut Reader, agents: AgentAuth) -> Auth {
    let hours = |count: u64| Duration::from_secs(count * 60 * 60);
    let mode = reader.take("auth.mode", AuthMode::Dev, &AUTH_MODE);
    let session_idle = reader.take_within("auth.session_idle", hours(2), SESSION_TIMES, &DURATION);
    let session_max = reader.take_within("auth.session_max", hours(12), SESSION_TIMES, &DURATION);
    if reader.is_sound(&["auth.session_idle", "auth.session_max"]) && session_idle > session_max {
        let (idle, max) = (("auth.session_idle", "must not be above"), ("auth.session_max", "must not be below"));
        reader.object_to_pair(idle, max);
    }
    let neighbour_ports = reader.take_within("auth.neighbour_ports", 2, 0..=NEIGHBOUR_PORTS_MAX, &COUNT);
    let oidc = read_oidc(reader, mode);
    Auth { mode, session_idle, session_max, neighbour_ports, agents, oidc }
}

fn read_oidc(reader: &mut Reader, mode: AuthMode) -> Option<Oidc> {
    let issuer = reader.take_optional(ISSUER, &ENDPOINT);
    let client_id = reader.take_optional(CLIENT_ID, &WORD);
    let client_secret = read_secret(reader);
    let scopes = reader.take(SCOPES, "openid profile email".to_owned(), &SCOPE_LIST);
    let username_claim = reader.take(USERNAME_CLAIM, "preferred_username".to_owned(), &WORD);
    let groups_claim = reader.take(GROUPS_CLAIM, "groups".to_owned(), &WORD);
    let required_group = reader.take_optional(REQUIRED_GROUP, &GROUP);
    let ca_file = reader.take_path(CA_FILE);
    match mode {
        AuthMode::Dev => {
            // An operator who set these believes that users sign in there.
            for key in PROVIDER_KEYS {
                if reader.is_set(key) && reader.is_sound(&["auth.mode", key]) {
                    reader.object(key, "has no effect while auth.mode is `dev`; say auth.mode = \"oidc\"");
                }
            }
            None
        }
        AuthMode::Oidc => {
            for (key, is_there) in [(ISSUER, issuer.is_some()), (CLIENT_ID, client_id.is_some())] {
                if !is_there && reader.is_sound(&[key]) {
                    reader.object(key, "is missing: auth.mode = \"oidc\" needs it");
                }
            }
            let (issuer, client_id) = (issuer?, client_id?);
            Some(Oidc {
                issuer,
                client_id,
                client_secret,
                scopes,
                username_claim,
                groups_claim,
                required_group,
                ca_file,
            })
        }
    }
}

fn read_secret(reader: &mut Reader) -> Option<ClientSecret> {
    let file = reader.take_path(CLIENT_SECRET_FILE);
    let value = reader.take_optional(CLIENT_SECRET, &SECRET);
    if reader.is_in_file(CLIENT_SECRET) {
        reader.object(CLIENT_SECRET, format!("a secret has no place in this file; use {CLIENT_SECRET_FILE}"));
    }
    match (file, value) {
        (Some(_), Some(_)) => {
            reader.object(CLIENT_SECRET, format!("is set together with {CLIENT_SECRET_FILE}; one is enough"));
            None
        }
        (Some(path), None) => Some(ClientSecret::File(path)),
        (None, Some(secret)) => Some(ClientSecret::Value(secret)),
        (None, None) => None,
    }
}

/// Notes a public address at which a sign-in with a provider could be read by others: the code travels in its URLs, and
/// without TLS its cookies are not bound to their host.
pub(super) fn public_url_is_private(auth: &Auth, public_url: &PublicUrl, reader: &mut Reader) {
    let host = public_url.host();
    let is_here = host == "localhost"
        || host.ends_with(".localhost")
        || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_plain = public_url.scheme() == Scheme::Http && !is_here;
    if auth.mode == AuthMode::Oidc && is_plain && reader.is_sound(&["public_url", "auth.mode"]) {
        reader.object("public_url", "must be https with auth.mode = \"oidc\", except on localhost");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{BadConfig, Config};
    use super::*;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, BadConfig> {
        let variable = |key: &str| format!("GATEWAY_{}", key.replace('.', "__").to_ascii_uppercase());
        let env: BTreeMap<String, String> =
            pairs.iter().map(|(key, value)| (variable(key), (*value).to_owned())).collect();
        Config::load(None, &env)
    }

    fn told(pairs: &[(&str, &str)]) -> String {
        load(pairs).unwrap_err().to_string()
    }

    const GOOD: [(&str, &str); 3] = [("auth.mode", "oidc"), (ISSUER, "https://id.example.com"), (CLIENT_ID, "gateway")];

    #[test]
    fn provider_needs_an_issuer_and_a_client_and_has_defaults_for_the_rest() {
        let auth = load(&GOOD).unwrap().auth;
        let oidc = auth.oidc.unwrap();
        assert_eq!(
            (oidc.scopes.as_str(), oidc.username_claim.as_str()),
            ("openid profile email", "preferred_username")
        );
        assert_eq!((oidc.groups_claim.as_str(), oidc.client_secret, oidc.ca_file), ("groups", None, None));
        let hour = Duration::from_secs(60 * 60);
        assert_eq!((auth.session_idle, auth.session_max), (2 * hour, 12 * hour));
    }

    #[test]
    fn half_configured_sign_in_names_all_its_problems_at_once() {
        insta::assert_snapshot!(told(&[
            ("auth.mode", "oidc"),
            (ISSUER, "http://id.example.com"),
            (SCOPES, "profile email"),
            (REQUIRED_GROUP, "Team A"),
            (CLIENT_SECRET, "hunter2"),
            (CLIENT_SECRET_FILE, "/run/secret"),
            ("auth.session_idle", "1d"),
            ("public_url", "http://gw.example.com"),
        ]), @r#"
        environment GATEWAY_AUTH__SESSION_IDLE: auth.session_idle = "1d": must not be above auth.session_max = "12h"
        environment GATEWAY_AUTH__OIDC__ISSUER: auth.oidc.issuer = "http://id.example.com": the scheme must be https; http is for localhost, 127.0.0.1 and [::1] only; accepted: an https URL such as `https://id.example.com/realms/dev`
        environment GATEWAY_AUTH__OIDC__CLIENT_SECRET: auth.oidc.client_secret = "********": is set together with auth.oidc.client_secret_file; one is enough
        environment GATEWAY_AUTH__OIDC__SCOPES: auth.oidc.scopes = "profile email": `openid` is missing; accepted: scopes separated by single spaces, `openid` among them
        environment GATEWAY_AUTH__OIDC__REQUIRED_GROUP: auth.oidc.required_group = "Team A": a group name has 1 to 128 printable ASCII characters and no spaces; accepted: the name of a group
        default: auth.oidc.client_id: is missing: auth.mode = "oidc" needs it
        environment GATEWAY_PUBLIC_URL: public_url = "http://gw.example.com": must be https with auth.mode = "oidc", except on localhost
        "#);
    }

    #[test]
    fn session_that_ends_at_once_or_never_is_a_problem() {
        for time in ["0s", "59s", "31d", "5"] {
            let told = told(&[("auth.session_max", time)]);
            assert!(told.starts_with("environment GATEWAY_AUTH__SESSION_MAX: "), "{time}: {told}");
        }
    }

    #[test]
    fn keys_of_a_provider_that_signs_nobody_in_are_a_problem() {
        let told = told(&GOOD[1..]);
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.contains("auth.oidc.issuer") && told.contains("has no effect while auth.mode is `dev`"), "{told}");
    }

    #[test]
    fn secret_is_taken_from_the_environment_or_a_file_and_never_shown() {
        let with = |more: (&str, &str)| load(&[&GOOD[..], &[more]].concat()).unwrap();
        let config = with((CLIENT_SECRET, "hunter2"));
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter2"));
        let secret = config.auth.oidc.unwrap().client_secret;
        assert_eq!(secret, Some(ClientSecret::Value(Secret::new("hunter2".to_owned()))));
        let config = with((CLIENT_SECRET_FILE, "/run/secret"));
        assert_eq!(config.auth.oidc.unwrap().client_secret, Some(ClientSecret::File("/run/secret".into())));
    }

    #[test]
    fn secret_in_the_configuration_file_is_refused_without_repeating_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        let text = "[auth]\nmode = 'oidc'\n[auth.oidc]\nissuer = 'https://id.example.com'\nclient_id = 'gw'\nclient_secret = 'hunter2'\n";
        std::fs::write(&path, text).unwrap();
        let told = Config::load(Some(&path), &BTreeMap::new()).unwrap_err().to_string();
        assert!(told.contains("a secret has no place in this file") && !told.contains("hunter2"), "{told}");
    }

    #[test]
    fn plain_public_address_is_for_this_machine_only() {
        for (url, is_good) in [
            ("https://gw.example.com", true),
            ("http://localhost:8080", true),
            ("http://gw.localhost:8080", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://gw.example.com", false),
            ("http://192.0.2.1", false),
        ] {
            assert_eq!(
                load(&[&GOOD[..], &[("public_url", url), ("zone", "ws.localhost")]].concat()).is_ok(),
                is_good,
                "{url}"
            );
        }
    }
}
