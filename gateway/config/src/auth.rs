//! Keys of `auth`: sign-in of users, and the rules between the keys. Sign-in that is half configured is no sign-in:
//! every contradiction is a problem, and a key that would have no effect is one too.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::AgentAuth;
use super::environments::USERS;
use super::keys::{keys, section};
use super::reader::{ContradictedKey, Reader};
use super::sections::SITE;
use super::value::{COUNT, DURATION, FILE_PATH, ValueKind, words};
use gateway_types::{Endpoint, GroupName, PublicUrl, Scheme, Secret, UserName};

/// Bounds of a session's lifetime: long enough to be of use, and not for ever.
const SESSION_TIMES: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(30 * 24);

/// Longest text of a key here, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

section! {
    /// Sign-in of users and agents.
    pub struct Auth, AUTH: AuthKeys below "auth." {
        /// Kind of sign-in for users: `dev` prints a link that works once, for one developer; `oidc` asks an OpenID
        /// Connect provider.
        mode: AuthMode = AUTH_MODE, or AuthMode::Dev;
        /// Time after which a browser session without use ends.
        session_idle: Duration = DURATION, or Duration::from_hours(2), in SESSION_TIMES;
        /// Time after which a browser session ends, used or not; groups count as long after the sign-in that brought
        /// them.
        session_max: Duration = DURATION, or Duration::from_hours(12), in SESSION_TIMES;
        // Each costs three redirects beside the six of a sign-in with a provider, and browsers give up after 16 to 20.
        /// Other listening ports of a workspace at which the first sign-in at one of them signs the browser in too, so
        /// that their pages can talk to each other; each takes three redirects, and `0` turns it off, as where not
        /// every host has a name.
        neighbour_ports: usize = COUNT, or 2, in 0..=4;
        /// Users who are operators of this gateway: they see and change what belongs to any user, in the API, the
        /// command line and the dashboard. In dev mode its one user is an operator too.
        admins: Vec<UserName> = USERS, or Vec::new();
        /// Group of the identity provider whose members are operators as well, for as long as groups count.
        admin_group: GroupName = GROUP, optional;
    } also {
        /// Credentials of agents (`auth.agents.*`).
        agents: AgentAuth,
        /// The identity provider (`auth.oidc.*`); there exactly if `mode` is [`AuthMode::Oidc`].
        oidc: Option<Oidc>,
    }
}

section! {
    /// The identity provider, and its claims that count.
    pub struct Oidc, OIDC: OidcKeys below "auth.oidc." {
        /// Address of the provider, as its tokens spell it.
        issuer: Endpoint = PROVIDER, open;
        /// Client id of this gateway at the provider.
        client_id: String = WORD, open;
        /// Requested scopes. Many providers give groups only for a scope such as `groups`.
        scopes: String = SCOPE_LIST, or "openid profile email".to_owned();
        /// Claim with the user's name; one that people cannot change themselves.
        username_claim: String = WORD, or "preferred_username".to_owned();
        /// Claim with the user's groups, a list; for shares with `group:NAME`.
        groups_claim: String = WORD, or "groups".to_owned();
        /// Group whose members alone may sign in.
        required_group: GroupName = GROUP, optional;
        /// Authorities that vouch for the provider's server, beside the system's: for one with a certificate of your
        /// own authority.
        ca_file: PathBuf = FILE_PATH, optional;
    } also {
        /// Client secret; `None` for a public client.
        client_secret: Option<ClientSecret>,
    }
}

keys! {
    OIDC_SECRET: OidcSecretKeys below "auth.oidc." {
        /// Client secret of this gateway at the provider; set it by its variable, never in this file.
        client_secret: Secret = SECRET, optional;
        /// File with the client secret, one line. A public client has neither of the two.
        client_secret_file: PathBuf = FILE_PATH, optional;
    }
}

/// Kind of sign-in for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// A one-time link in the log; for one developer's machine.
    Dev,
    /// With an `OpenID` Connect provider.
    Oidc,
}

impl AuthMode {
    /// Returns the mode as the file spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Oidc => "oidc",
        }
    }
}

/// Source of the client secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSecret {
    /// In a file, without the line's end.
    File(PathBuf),
    /// In an environment variable.
    Value(Secret),
}

const AUTH_MODE: ValueKind<AuthMode> =
    words!("`dev` or `oidc`", "unknown way to sign in", "dev" => AuthMode::Dev, "oidc" => AuthMode::Oidc);

const PROVIDER: ValueKind<Endpoint> = ValueKind::of_text("an https URL such as `https://id.example.com/realms/dev`");

const WORD: ValueKind<String> = ValueKind::new(
    "a text without spaces",
    |text| if text.contains(' ') { Err("it contains a space".to_owned()) } else { printable(text) },
    Clone::clone,
);

const SCOPE_LIST: ValueKind<String> = ValueKind::new(
    "scopes separated by single spaces, `openid` among them",
    |text| {
        let text = printable(text)?;
        if text.split(' ').any(str::is_empty) {
            return Err("there are spaces beside no scope".to_owned());
        }
        if text.split(' ').any(|scope| scope == "openid") { Ok(text) } else { Err("`openid` is missing".to_owned()) }
    },
    Clone::clone,
);

const GROUP: ValueKind<GroupName> = ValueKind::of_text("the name of a group");

const SECRET: ValueKind<Secret> = ValueKind::new(
    "a text",
    |text| if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(Secret::new(text.to_owned())) },
    |_| Secret::MASK.to_owned(),
)
.secret();

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
    let mode = reader.take(&AUTH.mode);
    let session_idle = reader.take(&AUTH.session_idle);
    let session_max = reader.take(&AUTH.session_max);
    let (idle, max) = (&*AUTH.session_idle.name, &*AUTH.session_max.name);
    if reader.is_sound(&[idle, max]) && session_idle > session_max {
        reader.object_to_pair(
            ContradictedKey { key: idle, wrong: "must not be above" },
            ContradictedKey { key: max, wrong: "must not be below" },
        );
    }
    let neighbour_ports = reader.take(&AUTH.neighbour_ports);
    let admins = reader.take(&AUTH.admins);
    let admin_group = reader.take(&AUTH.admin_group);
    let oidc = read_oidc(reader, mode);
    Auth { mode, session_idle, session_max, neighbour_ports, admins, admin_group, agents, oidc }
}

fn read_oidc(reader: &mut Reader, mode: AuthMode) -> Option<Oidc> {
    let issuer = reader.take(&OIDC.issuer);
    let client_id = reader.take(&OIDC.client_id);
    let client_secret = read_secret(reader);
    let scopes = reader.take(&OIDC.scopes);
    let username_claim = reader.take(&OIDC.username_claim);
    let groups_claim = reader.take(&OIDC.groups_claim);
    let required_group = reader.take(&OIDC.required_group);
    let ca_file = reader.take(&OIDC.ca_file);
    match mode {
        AuthMode::Dev => {
            // An operator who set these believes that users sign in there. The others have defaults, which `config show`
            // writes out.
            let keys = [
                &OIDC.issuer.name,
                &OIDC.client_id.name,
                &OIDC_SECRET.client_secret.name,
                &OIDC_SECRET.client_secret_file.name,
                &OIDC.required_group.name,
                &OIDC.ca_file.name,
                // No user of dev mode has groups.
                &AUTH.admin_group.name,
            ];
            if reader.is_sound(&[&AUTH.mode.name]) {
                let mode = &AUTH.mode;
                reader.object_to_set(&keys, &format!("has no effect while {mode} is `dev`; say {mode} = \"oidc\""));
            }
            None
        }
        AuthMode::Oidc => {
            for (key, is_there) in [(&OIDC.issuer.name, issuer.is_some()), (&OIDC.client_id.name, client_id.is_some())]
            {
                if !is_there && reader.is_sound(&[key]) {
                    reader.object(key.clone(), format!("is missing: {} = \"oidc\" needs it", AUTH.mode));
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
    let OidcSecretKeys { client_secret, client_secret_file } = &OIDC_SECRET;
    let file = reader.take(client_secret_file);
    let value = reader.take(client_secret);
    if reader.is_in_file(&client_secret.name) {
        reader.object(client_secret, format!("a secret has no place in this file; use {client_secret_file}"));
    }
    match (file, value) {
        (Some(_), Some(_)) => {
            reader.object(client_secret, format!("is set together with {client_secret_file}; one is enough"));
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
    if auth.mode == AuthMode::Oidc && is_plain && reader.is_sound(&[&SITE.public_url.name, &AUTH.mode.name]) {
        let wrong = format!("must be https with {} = \"oidc\", except on localhost", AUTH.mode);
        reader.object(&SITE.public_url, wrong);
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

    const GOOD: [(&str, &str); 3] =
        [("auth.mode", "oidc"), ("auth.oidc.issuer", "https://id.example.com"), ("auth.oidc.client_id", "gateway")];

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
    fn operators_are_users_and_a_group_of_the_provider() {
        let auth = load(&GOOD).unwrap().auth;
        assert_eq!((auth.admins, auth.admin_group), (Vec::new(), None), "there is none unless it is said");
        let named = [("auth.admins", "olga, ann"), ("auth.admin_group", "platform")];
        let auth = load(&[&GOOD[..], &named].concat()).unwrap().auth;
        assert_eq!(auth.admins, ["olga".parse().unwrap(), "ann".parse().unwrap()]);
        assert_eq!(auth.admin_group, Some("platform".parse().unwrap()));
        let told = told(&named);
        assert!(told.contains("auth.admin_group") && told.contains("has no effect while"), "{told}");
        assert!(!told.contains("auth.admins"), "users of tokens have names in dev mode too: {told}");
    }

    #[test]
    fn half_configured_sign_in_names_all_its_problems_at_once() {
        insta::assert_snapshot!(told(&[
            ("auth.mode", "oidc"),
            ("auth.oidc.issuer", "http://id.example.com"),
            ("auth.oidc.scopes", "profile email"),
            ("auth.oidc.required_group", "Team A"),
            ("auth.oidc.client_secret", "hunter2"),
            ("auth.oidc.client_secret_file", "/run/secret"),
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
        let config = with(("auth.oidc.client_secret", "hunter2"));
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter2"));
        let secret = config.auth.oidc.unwrap().client_secret;
        assert_eq!(secret, Some(ClientSecret::Value(Secret::new("hunter2".to_owned()))));
        let config = with(("auth.oidc.client_secret_file", "/run/secret"));
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
