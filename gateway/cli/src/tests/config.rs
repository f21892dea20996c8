//! `gateway config`, and configurations that are wrong.

use super::*;

#[tokio::test]
async fn bad_configuration_ends_with_64_and_tells_all() {
    let site = Site::new("zone = 'A'\nquux = 1\n");
    for words in [&["config", "check"][..], &["config", "show"], &["token", "list"]] {
        let done = site.run(words, false).await;
        assert_eq!((done.exit, done.exit.code(), done.out.as_str()), (Exit::BadConfig, 64, ""), "{words:?}");
        assert_eq!(done.err.lines().count(), 2, "{}", done.err);
    }
}

#[tokio::test]
async fn config_check_says_what_it_read_and_that_it_is_good() {
    let site = Site::new("zone = 'ws.localhost'\n");
    let done = site.run(&["config", "check"], false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Success, ""));
    let file = site.0.path().join("gateway.toml");
    let expected = format!("{}: 2 keys, 0 of GATEWAY_ variables, ", file.display());
    assert!(
        done.out.starts_with(&expected) && done.out.ends_with("opened: the configuration is good\n"),
        "{}",
        done.out
    );
    let done = site.run(&["config", "check", "-o", "json"], false).await;
    let found: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&found["keys_of_file"], &found["warnings"]), (&2.into(), &serde_json::json!([])));
    assert!(!site.0.path().join("gateway.db").exists(), "nothing is made by a look");
}

#[tokio::test]
async fn config_check_opens_what_is_named_and_serve_would_say_the_same() {
    let site = Site::new("audit.path = 'no/audit.log'\n[tls.public]\ncert = 'c.pem'\nkey = 'k.pem'\n");
    let done = site.run(&["config", "check"], false).await;
    assert_eq!((done.exit, done.out.as_str()), (Exit::BadConfig, ""));
    for key in [":2: audit.path: ", ":4: tls.public.cert: ", ":5: tls.public.key: "] {
        assert!(done.err.contains(key), "{key}: {}", done.err);
    }
    let (exit, failure) = site.failure(&["config", "check", "-o", "json"]).await;
    assert_eq!((exit, &failure["code"]), (Exit::BadConfig, &"bad_configuration".into()));
    assert_eq!(failure["detail"].as_str().unwrap().lines().count(), 3, "{failure}");
}

#[tokio::test]
async fn reading_makes_no_database_and_says_where_none_is() {
    let site = Site::new("");
    for words in [
        "token list",
        "token revoke t-1",
        "token rotate t-1",
        "workspace list",
        "workspace show app",
        "workspace open app 80",
        "workspace share app",
        "workspace share app 80 --with public",
        "workspace stop app",
        "user list",
        "user disable ann",
    ] {
        let done = site.run(&words.split(' ').collect::<Vec<_>>(), false).await;
        assert_eq!(done.exit, Exit::Failed, "{words}: {}", done.out);
        assert!(
            done.err.contains("there is no database ") && done.err.contains("gateway serve makes it"),
            "{}",
            done.err
        );
    }
    let left: Vec<_> = std::fs::read_dir(site.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["gateway.toml"]);
    let done = site.run(&["token", "create", "--workspace", "app"], true).await;
    assert_eq!(done.exit, Exit::Success, "a configuration says which: {}", done.err);
    let expected = format!("as the gateway's operator, on {}\n", site.store_url());
    assert_eq!(done.said, expected);
}

#[tokio::test]
async fn failure_is_json_where_json_was_asked_for() {
    let site = Site::new("");
    site.run(&["token", "create", "--user", "alice"], false).await;
    let (exit, failure) = site.failure(&["token", "revoke", "t-9"]).await;
    assert_eq!(exit, Exit::Failed);
    let expected =
        serde_json::json!({"code": "failed", "title": "The command failed", "detail": "there is no token t-9"});
    assert_eq!(failure, expected);
}

#[tokio::test]
async fn config_show_prints_a_file_that_loads_to_the_same_values() {
    let site = Site::new(
        "zone = 'ws.test'\ntls.public.cert = 'c\"\\u00e4'\ntls.public.key = 'k'\nlisten.admin = 'off'\n\
        [[auth.agents.ci]]\nissuer = 'https://ci.test'\n\
        [[auth.agents.ci.rules]]\nworkspace = 'a-{job}'\nowner = 'o'\nclaims.'a.b' = 'c'\n\
        [[auth.agents.ci.rules]]\nworkspace = 'b'\nowner = 'o'\nclaims.d = 'e'\n\
        [[auth.agents.ci]]\nissuer = 'https://other.test'\n\
        [[auth.agents.ci.rules]]\nworkspace = 'c'\nowner = 'o'\nclaims.f = 'g'\n",
    );
    let shown = site.run(&["config", "show"], false).await.out;
    assert!(shown.contains("\nlisten.admin = \"off\" "), "{shown}");
    assert!(shown.contains("\n# tls.agents.cert is not set "), "{shown}");
    let before = site.cli(&["serve"]).load_config(&BTreeMap::new()).unwrap();
    std::fs::write(site.0.path().join("gateway.toml"), &shown).unwrap();
    let after = site.cli(&["serve"]).load_config(&BTreeMap::new()).unwrap();
    let values =
        |config: &Config| config.effective().iter().map(|row| (row.key.clone(), row.value.clone())).collect::<Vec<_>>();
    assert_eq!(values(&before), values(&after));

    let rows: serde_json::Value =
        serde_json::from_str(&site.run(&["config", "show", "--output", "json"], false).await.out).unwrap();
    assert_eq!(rows[0], serde_json::json!({"key": "zone", "value": "ws.test", "origin": "file"}));
}

#[tokio::test]
async fn config_check_tells_what_is_wrong_with_clusters_too() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new(&format!("agents_dir = '{}'\n", folder.path().display()));
    let file = folder.path().join("prod/config.yaml");
    std::fs::create_dir(folder.path().join("prod")).unwrap();
    std::fs::write(&file, "workspaces:\n  enabled: perhaps\n").unwrap();
    let done = site.run(&["config", "check"], false).await;
    assert_eq!(done.exit, Exit::BadConfig);
    assert!(done.err.starts_with(&format!("{}:2", file.display())), "{}", done.err);
    std::fs::write(&file, "workspaces:\n  enabled: false\n").unwrap();
    assert_eq!(site.run(&["config", "check"], false).await.exit, Exit::Success);
    let template = folder.path().join("prod/environment_templates/web.yaml");
    std::fs::create_dir(template.parent().unwrap()).unwrap();
    std::fs::write(&template, "objects:\n- name: '{{ .no.such }}'\n").unwrap();
    let done = site.run(&["config", "check"], false).await;
    assert_eq!(done.exit, Exit::BadConfig);
    assert!(done.err.starts_with(&format!("{}:2:10: unknown variable", template.display())), "{}", done.err);
}
