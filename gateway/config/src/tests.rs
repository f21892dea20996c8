//! The whole way: layers in, typed values or all problems out.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// A file in a directory of its own, removed at the end.
struct TempFile {
    path: PathBuf,
    _directory: TempDir,
}

impl TempFile {
    fn with(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.toml");
        fs::write(&path, text).unwrap();
        Self { path, _directory: directory }
    }
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(text: &str, env: &[(&str, &str)]) -> Result<Config, BadConfig> {
    let file = TempFile::with(text);
    Config::load(Some(&file.path), &variables(env))
}

/// Returns the problems without the directory of the file.
fn problems(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    let bad = load(text, env).unwrap_err().to_string();
    bad.lines().map(|line| line.rsplit_once("/gateway.toml").map_or(line, |(_, rest)| rest).to_owned()).collect()
}

#[test]
fn defaults_are_a_working_node_on_loopback() {
    let config = Config::load(None, &BTreeMap::new()).unwrap();
    assert_eq!(config.zone.as_str(), "localhost");
    assert_eq!(config.public_url.to_string(), "http://localhost:8080");
    assert_eq!(config.listen.public.to_string(), "127.0.0.1:8080");
    assert_eq!(config.listen.admin.map(|address| address.port()), Some(8082));
    assert_eq!(config.store.url.to_string(), "sqlite://gateway.db");
    assert_eq!(config.tls, Tls { public: None, agents: None, acme: None });
    assert_eq!(config.limits.header_bytes, 65_536);
    assert_eq!(config.tunnel.window_max, 32 << 20);
    assert!(config.effective().iter().all(|row| row.origin == Origin::Default));
    assert_eq!(Config::default().effective(), config.effective());
    assert_eq!(Config::default().effective().len(), 120);
}

#[test]
fn later_layer_wins_and_the_origin_tells_which() {
    let text = "zone = 'ws.test'\n[listen]\npublic = '127.0.0.1:1'\nagents = '127.0.0.1:2'\nadmin = 'off'\n";
    let file = TempFile::with(text);
    let env = variables(&[
        ("GATEWAY_LISTEN__PUBLIC", "127.0.0.1:3"),
        ("GATEWAY_LISTEN__AGENTS", "127.0.0.1:4"),
        ("PATH", "x"),
    ]);
    let flag = Flag { name: "--listen", key: "listen.public", value: "127.0.0.1:5".to_owned() };
    let config = Config::load_with_flags(Some(&file.path), &env, &[flag]).unwrap();
    assert_eq!(config.listen.public.port(), 5);
    assert_eq!(config.listen.agents.port(), 4);
    assert_eq!(config.listen.admin, None);
    assert_eq!(config.public_url.to_string(), "http://localhost:5", "follows the listener");
    for (key, origin) in [
        ("listen.public", Some(Origin::Flag)),
        ("listen.agents", Some(Origin::Environment)),
        ("listen.admin", Some(Origin::File)),
        ("log.level", Some(Origin::Default)),
        ("no.such", None),
    ] {
        assert_eq!(config.origin(key), origin, "{key}");
    }
}

#[test]
fn all_problems_are_told_at_once_with_place_value_and_remedy() {
    let text = "zone = 'Not A Zone'\nlimits.headers = -1\n\n[listen]\npubic = '127.0.0.1:1'\nagents = 8081\n\n[timeouts]\ndrain = 30\n";
    let env = [("GATEWAY_TUNNEL__WINDOW_MAX", "1 KB"), ("GATEWAY_LISTEN__PUBIC", "x"), ("GATEWAY_AUTH__MODE", "oidc")];
    insta::assert_snapshot!(problems(text, &env).join("\n"), @r#"
    :1: zone = "Not A Zone": not a DNS name; accepted: a lower-case DNS name such as `localhost` or `workspaces.example.com`
    :6: listen.agents = "8081": not an IP address and a port; accepted: an IP address and a port such as `127.0.0.1:8080` or `[::]:8080`
    default: auth.oidc.issuer: is missing: auth.mode = "oidc" needs it
    default: auth.oidc.client_id: is missing: auth.mode = "oidc" needs it
    :9: timeouts.drain = "30": the unit is missing; accepted: a whole number with a unit: `500ms`, `10s`, `5m`, `1h`, `1d`
    :2: limits.headers = "-1": not a whole number; accepted: a whole number
    environment GATEWAY_TUNNEL__WINDOW_MAX: tunnel.window_max = "1 KB": the unit is unknown; accepted: a whole number of bytes, or with a unit: `64 KiB`, `8MiB`, `1 GiB`
    environment GATEWAY_LISTEN__PUBIC: listen.pubic: unknown key; did you mean GATEWAY_LISTEN__PUBLIC?
    "#);
}

#[test]
fn unknown_key_in_the_file_gets_the_nearest_known_one() {
    let text = "zoen = 'a'\nhandshakes = 1\nquux = 1\nlisten-public = 1\n'listen.public' = 1\ndirectory = 'x'\nauth = 'dev'\n[timeout]\n[listen]\n";
    insta::assert_snapshot!(problems(text, &[]).join("\n"), @r#"
    :6: directory = "x": unknown directory; accepted: `memory`, `host` or `store`
    :5: "listen.public": unknown key; did you mean listen.public?
    :7: auth: is a section, not a key; it has auth.admin_group, auth.admins, auth.agents.mtls.required, auth.agents.mtls.uri_prefix, auth.mode, auth.neighbour_ports, auth.oidc.ca_file, auth.oidc.client_id, auth.oidc.client_secret, auth.oidc.client_secret_file, auth.oidc.groups_claim, auth.oidc.issuer, auth.oidc.required_group, auth.oidc.scopes, auth.oidc.username_claim, auth.session_idle, auth.session_max
    :2: handshakes: unknown key; did you mean limits.handshakes?
    :4: listen-public: unknown key; did you mean listen.public?
    :3: quux: unknown key
    :1: zoen: unknown key; did you mean zone?
    :8: timeout: unknown key
    "#);
}

#[test]
fn unknown_variable_is_a_problem_unless_it_is_of_the_small_set() {
    let known =
        [("GATEWAY_CONFIG", "x"), ("GATEWAY_LOG", "x"), ("GATEWAY_TOKEN", "x"), ("GATEWAY_URL", "x"), ("OTHER", "x")];
    assert!(Config::load(None, &variables(&known)).is_ok());
    let bad =
        Config::load(None, &variables(&[("GATEWAY_SECRET_THING", "hunter2"), ("GATEWAY_Zone", "x")])).unwrap_err();
    insta::assert_snapshot!(bad.to_string(), @r"
    environment GATEWAY_Zone: Zone: unknown key; did you mean GATEWAY_ZONE?
    environment GATEWAY_SECRET_THING: secret_thing: unknown key
    ");
}

#[test]
fn keys_that_contradict_each_other_are_told_where_they_stand() {
    let text = "zone = 'ws.test'\npublic_url = 'http://app.ws.test'\nlisten.public = '0.0.0.0:8081'\nlimits.header_bytes = 1\n\
        [tls.public]\ncert = '/a'\n[tls.agents]\nclient_ca = '/b'\n[tunnel]\nwindow_initial = '64 MiB'\nreplica_budget = '32 MiB'\n";
    insta::assert_snapshot!(problems(text, &[]).join("\n"), @r#"
    :6: tls.public.cert = "/a": needs tls.public.key beside it
    :8: tls.agents.client_ca = "/b": needs tls.agents.cert and tls.agents.key beside it
    :4: limits.header_bytes = "1": must be from 8 KiB to 16 MiB
    :3: listen.public = "0.0.0.0:8081": collides with listen.agents = "127.0.0.1:8081"
    :2: public_url = "http://app.ws.test": the host would be a workspace's inside zone ws.test; choose one outside
    :10: tunnel.window_initial = "64 MiB": must not be above tunnel.window_max = "32 MiB"
    :11: tunnel.replica_budget = "32 MiB": must not be below tunnel.session_budget = "128 MiB"
    "#);
}

#[test]
fn paths_url_has_a_host_of_its_own_and_the_listener_of_public_url() {
    let load = |url: &str| {
        let set = [("GATEWAY_ZONE", "ws.test"), ("GATEWAY_PUBLIC_URL", "https://gw.test"), ("GATEWAY_PATHS_URL", url)];
        let mut set = set.to_vec();
        set.extend([("GATEWAY_TLS__PUBLIC__CERT", "/c"), ("GATEWAY_TLS__PUBLIC__KEY", "/k")]);
        Config::load(None, &variables(&set)).map(|config| config.paths_url.map(|url| url.to_string()))
    };
    assert_eq!(load("https://paths.test").ok().flatten().as_deref(), Some("https://paths.test"));
    let wrong = |url: &str| load(url).unwrap_err().to_string();
    assert!(wrong("https://gw.test").contains("has the host of public_url"), "{}", wrong("https://gw.test"));
    assert!(wrong("https://gw.test:8443").contains("has the host of public_url"), "cookies know no ports");
    assert!(wrong("https://GW.test").contains("has the host of public_url"));
    assert!(wrong("https://app.ws.test").contains("inside zone ws.test"));
    assert!(wrong("http://paths.test").contains("needs the scheme and the port"));
    assert!(wrong("https://paths.test:444").contains("needs the scheme and the port"));
    assert!(load("https://paths.test/x").is_err());
    for related in ["https://ws.test", "https://a.b.ws.test", "https://apps.gw.test", "https://test"] {
        assert!(wrong(related).contains("is above or below"), "{}", wrong(related));
    }
    assert!(wrong("https://[::1]").contains("needs a name or an IPv4 address"));
}

#[test]
fn zone_and_public_url_share_a_host_only_on_localhost() {
    let bad = |zone: &str, url: &str| {
        Config::load(None, &variables(&[("GATEWAY_ZONE", zone), ("GATEWAY_PUBLIC_URL", url)])).is_err()
    };
    assert!(!bad("localhost", "http://localhost:8080"));
    assert!(!bad("dev.localhost", "http://dev.localhost:8080"));
    assert!(!bad("ws.example.com", "https://gateway.example.org"));
    assert!(bad("ws.example.com", "https://ws.example.com"));
    assert!(bad("ws.example.com", "https://gateway.ws.example.com"));
    assert!(bad("localhost", "http://8080-app.localhost"));
}

#[test]
fn bad_key_does_not_cause_a_second_message_about_its_default() {
    let text = "[tunnel]\nwindow_initial = '16 MiB'\nwindow_max = 'big'\n[tls.public]\ncert = ''\nkey = 'k'\n";
    let told = problems(text, &[]);
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn syntax_errors_are_told_together_with_bad_variables() {
    let told = problems("zone = \nlisten = [\n", &[("GATEWAY_ZONE", "A")]);
    assert!(told.iter().any(|line| line.starts_with(":1: not valid TOML")), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("environment GATEWAY_ZONE")), "{told:?}");
}

#[test]
fn file_that_is_not_there_is_a_problem() {
    let bad = Config::load(Some(Path::new("/no/such/gateway.toml")), &BTreeMap::new()).unwrap_err();
    assert!(bad.to_string().starts_with("/no/such/gateway.toml: cannot be read: "), "{bad}");
}

#[test]
fn password_in_a_bad_value_is_masked() {
    let told =
        Config::load(None, &variables(&[("GATEWAY_STORE__URL", "mysql://u:hunter2@h/db")])).unwrap_err().to_string();
    assert!(told.contains("mysql://********@h/db") && !told.contains("hunter2"), "{told}");
}

#[test]
fn long_value_is_shortened_and_stays_on_one_line() {
    let value = format!("\n{}", "x".repeat(1000));
    let told = Config::load(None, &variables(&[("GATEWAY_ZONE", &value)])).unwrap_err().to_string();
    assert!(told.len() < 300 && !told.contains('\n'), "{told}");
}

#[test]
fn tls_files_make_the_default_url_https() {
    let config = load("[tls.public]\ncert = '/c.pem'\nkey = '/k.pem'\n", &[]).unwrap();
    assert_eq!(config.public_url.to_string(), "https://localhost:8080");
    assert_eq!(
        config.tls.public,
        Some(TlsFiles { cert: "/c.pem".into(), key: "/k.pem".into(), certs_dir: None, client_ca: None })
    );
}

#[test]
fn relative_path_starts_at_the_folder_of_the_file_that_has_it() {
    let text = "agents_dir = 'agents'\naudit.path = '/var/log/audit'\n[tls.public]\ncert = 'c.pem'\nkey = '../k.pem'\n\
        [ci]\nagent_files = 'a, /b'\n[ci.providers.local]\nkind = 'command'\nprogram = 'bin/run --now'\ndir = 'jobs'\n";
    let file = TempFile::with(text);
    let env = [("GATEWAY_TLS__PUBLIC__CERTS_DIR", "more"), ("GATEWAY_STORE__KEY_FILE", "k")];
    let config = Config::load(Some(&file.path), &variables(&env)).unwrap();
    let folder = file.path.parent().unwrap();
    assert_eq!(config.agents_dir.as_deref(), Some(&*folder.join("agents")));
    assert_eq!(config.audit.path.as_deref(), Some(Path::new("/var/log/audit")));
    let tls = config.tls.public.unwrap();
    assert_eq!((tls.cert, tls.key), (folder.join("c.pem"), folder.join("../k.pem")));
    assert_eq!(tls.certs_dir.as_deref(), Some(Path::new("more")), "of a variable: where it was typed");
    assert_eq!(config.store.url, StoreUrl::SqliteFile(folder.join("gateway.db")), "defaults too");
    assert_eq!(config.store.key_file(), Some("k".into()));
    assert_eq!(config.ci.agent_files, [folder.join("a"), PathBuf::from("/b")]);
    let CiSystem::Command(local) = &config.ci.providers[0].system else { panic!("a command") };
    assert_eq!(local.program, [folder.join("bin/run").display().to_string(), "--now".to_owned()]);
    assert_eq!(local.dir, folder.join("jobs"));
    let server = TempFile::with("store.url = 'postgres://h/db?sslmode=verify-full&sslrootcert=ca.pem'\n");
    let config = Config::load(Some(&server.path), &variables(&[])).unwrap();
    let folder = server.path.parent().unwrap();
    assert_eq!(config.store.key_file(), Some(folder.join("gateway.key")));
    let StoreUrl::Postgres(url) = &config.store.url else { panic!("a server") };
    assert_eq!(url.file("sslrootcert"), Some(folder.join("ca.pem")));
}

#[test]
fn listen_on_any_port_leaves_the_url_for_the_binder() {
    let config = Config::load(None, &variables(&[("GATEWAY_LISTEN__PUBLIC", "127.0.0.1:0")])).unwrap();
    assert_eq!(config.public_url.port(), 0);
    assert_eq!(config.public_url.with_port(4000).to_string(), "http://localhost:4000");
}

mod agents;
mod ci;
mod environments;
mod git;
mod reference;
