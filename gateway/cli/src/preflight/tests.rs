//! Folders with files that are good, bad or missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A folder with a configuration.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes a certificate and its key.
    fn pair(&self, name: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        self.put(&format!("{name}.pem"), &made.cert.pem());
        self.put(&format!("{name}.key"), &made.signing_key.serialize_pem());
    }

    fn look(&self, text: &str) -> PreflightFindings {
        self.put("gateway.toml", text);
        look(&Config::load(Some(&self.path("gateway.toml")), &BTreeMap::new()).unwrap())
    }
}

fn lines(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn everything_that_is_missing_is_told_at_once_at_its_key() {
    let desk = Desk::new();
    let found = desk.look(
        "audit.path = 'no/audit.log'\nagents_dir = 'agents'\n\
         [tls.public]\ncert = 'public.pem'\nkey = 'public.key'\n\
         [tls.agents]\ncert = 'agents.pem'\nkey = 'agents.key'\nclient_ca = 'ca.pem'\n\
         [store]\nurl = 'sqlite://no/gateway.db'\nkey_file = 'no/gateway.key'\n\
         [auth]\nmode = 'oidc'\n[auth.oidc]\nissuer = 'https://id.example'\nclient_id = 'gw'\n\
         client_secret_file = 'secret'\nca_file = 'authority.pem'\n\
         [environments]\nhook_token_file = 'hook'\n",
    );
    let told = lines(&found.problems);
    for (line, key) in [
        (4, "tls.public.cert"),
        (5, "tls.public.key"),
        (7, "tls.agents.cert"),
        (8, "tls.agents.key"),
        (9, "tls.agents.client_ca"),
        (11, "store.url"),
        (12, "store.key_file"),
        (18, "auth.oidc.client_secret_file"),
        (19, "auth.oidc.ca_file"),
        (21, "environments.hook_token_file"),
        (1, "audit.path"),
    ] {
        let place = format!("{}:{line}: {key}: ", desk.path("gateway.toml").display());
        assert!(told.contains(&place), "{place}\n{told}");
    }
    assert_eq!(found.problems.len(), 11, "{told}");
    assert!(told.lines().all(|line| line.matches("No such file").count() == 1), "each reason once: {told}");
    assert!(lines(&found.later).contains(":2: agents_dir: "), "{:?}", found.later);
    assert_eq!(fs::read_dir(desk.0.path()).unwrap().count(), 1, "nothing is made by looking");
}

#[test]
fn key_has_to_fit_its_certificate_and_the_certificate_its_names() {
    let desk = Desk::new();
    desk.pair("public", &["*.ws.test", "gw.test"]);
    desk.pair("other", &["gw.test"]);
    let text = |cert: &str, key: &str| {
        format!(
            "zone = 'ws.test'\npublic_url = 'https://gw.test'\n[tls.public]\ncert = '{cert}.pem'\nkey = '{key}.key'\n"
        )
    };
    let good = desk.look(&text("public", "public"));
    assert!(good.problems.is_empty() && good.warnings.is_empty(), "{good:?}");
    let crossed = desk.look(&text("public", "other"));
    assert!(lines(&crossed.problems).contains("public.pem and its key cannot be used together"), "{crossed:?}");
    let narrow = desk.look(&text("other", "other"));
    assert!(narrow.problems.is_empty(), "{narrow:?}");
    assert!(lines(&narrow.warnings).contains("other.pem is not for *.ws.test"), "{narrow:?}");
    desk.pair("zone", &["*.ws.test"]);
    let zone = desk.look(&text("zone", "zone"));
    assert!(lines(&zone.warnings).contains("zone.pem is not for gw.test"), "{zone:?}");
    desk.put("public.pem", "no certificate");
    let broken = desk.look(&text("public", "public"));
    assert!(lines(&broken.problems).contains("public.pem"), "{broken:?}");
}

#[test]
fn secret_is_a_line_of_which_nothing_is_repeated() {
    let desk = Desk::new();
    let text = "[environments]\nhook_token_file = 'hook'\n";
    desk.put("hook", "hunter2 hunter2");
    let told = lines(&desk.look(text).problems);
    assert!(told.contains("holds no secret") && !told.contains("hunter2"), "{told}");
    desk.put("hook", "0123456789abcdef\n");
    let found = desk.look(text);
    assert!(found.problems.is_empty(), "{found:?}");
}

#[test]
fn database_of_an_earlier_start_in_the_working_directory_is_not_left_for_a_new_one() {
    // The working directory of tests is the crate's.
    let desk = Desk::new();
    let found = desk.look("store.url = 'sqlite://Cargo.toml'\n");
    let told = lines(&found.problems);
    assert!(told.contains("Cargo.toml is in the working directory"), "{told}");
}
