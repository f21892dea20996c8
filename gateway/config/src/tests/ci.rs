//! Workspaces in CI systems.

use super::*;

const BOTH: &str = "public_url = 'https://gw.example'\nzone = 'ws.example'\n[ci]\nenabled = true\nagent_files = '/a, /b'\n\
    [ci.providers.gitlab]\nkind = 'gitlab'\nurl = 'https://gitlab.example'\nproject = 'group/project'\ntoken_file = '/t'\n\
    tags = 'docker, large box'\ninherit_variables = 'CI_JOB_ID CI_PROJECT_DIR'\n\
    [ci.providers.local]\nkind = 'command'\nprogram = 'gitlab-ci-local --x'\ndir = '/d'\njob_timeout = '1h'\nsave_max = '2h'\nquota = 3\n\
    editor = 'archive'\neditor_archive_url = 'https://e.example/c.tar.gz'\n";

#[test]
fn feature_is_off_and_has_no_providers_by_default() {
    assert_eq!(load("", &[]).unwrap().ci, Ci::default());
}

#[test]
fn providers_are_read_by_their_names_and_have_defaults() {
    let hash = "ab".repeat(32);
    let config = load(&format!("{BOTH}editor_archive_sha256 = '{hash}'\n"), &[]).unwrap();
    assert_eq!(config.ci.agent_files, [PathBuf::from("/a"), PathBuf::from("/b")]);
    let [gitlab, local] = config.ci.providers.as_slice() else { panic!("{:?}", config.ci) };
    let CiSystem::Gitlab(system) = &gitlab.system else { panic!("{gitlab:?}") };
    assert_eq!((&*system.reference, &system.issuer, &*system.audience), ("main", &system.url, "https://gw.example"));
    assert_eq!(system.token, GitlabToken::Private);
    assert_eq!(
        (gitlab.tags.as_slice(), gitlab.quota),
        (["docker".to_owned(), "large box".to_owned()].as_slice(), None)
    );
    assert_eq!(gitlab.inherit_variables, ["CI_JOB_ID", "CI_PROJECT_DIR"]);
    let minutes = |count: u64| Duration::from_secs(count * 60);
    assert_eq!((gitlab.job_timeout, gitlab.save_max), (minutes(480), minutes(30)));
    let CiSystem::Command(system) = &local.system else { panic!("{local:?}") };
    assert_eq!((system.program.len(), system.environment.as_slice()), (2, [].as_slice()));
    assert!(matches!(&local.editor, CiEditor::Archive { sha256, .. } if *sha256 == [0xab; 32]));
    assert_eq!((local.quota, local.job_timeout, local.save_max), (Some(3), minutes(60), minutes(120)));
    let shown = config.effective().iter().find(|row| row.key == "ci.providers.local.program");
    assert_eq!(shown.and_then(|row| row.value.as_deref()), Some("gitlab-ci-local --x"));
}

#[test]
fn command_beside_a_provider_of_identities_needs_the_operators_word_that_jobs_are_isolated() {
    let oidc = "[auth]\nmode = 'oidc'\n[auth.oidc]\nissuer = 'https://id.example'\nclient_id = 'gateway'\n";
    let local =
        "[ci]\nenabled = true\nagent_files = '/a'\n[ci.providers.local]\nkind = 'command'\nprogram = 'p'\ndir = '/d'\n";
    let site = "public_url = 'https://gw.example'\nzone = 'ws.test'\n";
    let told = problems(&format!("{site}{oidc}{local}"), &[]).join("\n");
    assert!(told.contains("ci.providers.local.kind") && told.contains("isolates_jobs = true"), "{told}");
    assert!(!told.contains('\n'), "{told}");
    for good in [
        format!("{site}{oidc}{local}isolates_jobs = true\n"),
        format!("{site}{oidc}{}", local.replace("enabled = true", "enabled = false")),
        format!("{site}{local}"),
    ] {
        assert!(load(&good, &[]).is_ok(), "{good}");
    }
}

#[test]
fn all_problems_of_providers_are_told_at_once() {
    let text = "[ci]\nenabled = true\n[ci.providers.Bad_Name]\nkind = 'command'\nprogram = ' '\n[ci.providers.one]\nkind = 'jenkins'\n\
        [ci.providers.two]\nkind = 'gitlab'\nurl = 'http://gitlab.example'\njob_timeout = '9m'\nsave_max = '2d'\neditor = 'archive'\nprogramm = 'x'\n\
        inherit_variables = 'A=1'\n[ci.providers.three]\n";
    let told = problems(text, &[]).join("\n");
    for expected in [
        ":3: ci.agent_files",
        "ci.providers.Bad_Name.kind = \"command\": the name of a provider",
        ":5: ci.providers.Bad_Name.program = \" \": the program is missing",
        ":7: ci.providers.one.kind = \"jenkins\": unknown kind",
        ":10: ci.providers.two.url = \"http://gitlab.example\": the scheme must be https",
        "ci.providers.two.project: is missing",
        "ci.providers.two.token_file: is missing",
        ":11: ci.providers.two.job_timeout = \"9m\": must be from 10m to 30d",
        ":12: ci.providers.two.save_max = \"2d\": must be from 1m to 1d",
        ":13: ci.providers.two.editor = \"archive\": needs editor_archive_url",
        ":14: ci.providers.two.programm: unknown key",
        ":15: ci.providers.two.inherit_variables = \"A=1\"",
        "ci.providers.three.kind: is missing",
    ] {
        let expected = expected.trim_start_matches(":3: ");
        assert!(told.contains(expected), "{expected:?} is not in\n{told}");
    }
    assert!(problems("ci.enabled = true\nci.agent_files = '/a'\n", &[]).join("\n").contains("needs a provider"));
    assert!(problems(BOTH, &[]).join("\n").contains("needs editor_archive_url and editor_archive_sha256"));
}

#[test]
fn several_replicas_have_no_jobs_on_a_machine_and_order_no_certificates() {
    let mut config = load(&format!("{BOTH}editor_archive_sha256 = '{}'\n", "ab".repeat(32)), &[]).unwrap();
    config.tls.acme = Some(Acme {
        directory: "https://acme.example/directory".to_owned(),
        email: None,
        names: Vec::new(),
        dns_hook: "/hook".into(),
        folder: "/acme".into(),
        ca_file: None,
    });
    let wrong =
        |config: &Config| check::of_one_gateway(config).into_iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
    assert_eq!(wrong(&config), [""; 0], "one gateway has both");
    let file = |name: &str| PathBuf::from(name);
    config.directory = Directory::Store(PeersConfig {
        listen: ([127, 0, 0, 1], 9).into(),
        url: "https://a.example:9".parse().unwrap(),
        shutdown_delay: Duration::ZERO,
        cert: file("/cert"),
        key: file("/key"),
        ca: file("/ca"),
    });
    assert_eq!(wrong(&config), ["ci.providers.local.kind"]);
    config.ci.enabled = false;
    assert_eq!(wrong(&config), [""; 0]);
}
