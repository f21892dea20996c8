//! `gateway workspace` and `gateway user` on the database of this machine.

use super::*;

#[tokio::test]
async fn workspace_share_opens_shows_and_takes_back() {
    let site = Site::new("");
    let share = ["workspace", "share", "app"];
    site.run(&["token", "create", "--workspace", "other"], false).await;
    let done = site.run(&[&share[..], &["80", "--with", "public"]].concat(), false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Failed, "there is no workspace app\n"));
    site.run(&["token", "create", "--workspace", "app"], false).await;
    let done = site.run(&[&share[..], &["80", "--with", "public"]].concat(), true).await;
    let link = "http://80-app.localhost:8080/\n";
    assert_eq!((done.exit, done.out.as_str()), (Exit::Success, link), "the link alone, to be handed on");
    assert_eq!(done.err, "port 80 of app is open to public; a gateway that runs sees it within 3 s\n");
    let done = site.run(&[&share[..], &["80", "--with", "user:ann", "--for", "8h", "-o", "json"]].concat(), true).await;
    let opened: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&opened["expires_at"], &opened["url"]), (&"2027-01-15T16:00:00Z".into(), &link.trim_end().into()));
    let shown = site.run(&share, false).await.out;
    insta::assert_snapshot!(shown, @r"
    PORT  AUDIENCE  UNTIL
    80    public    -
    80    user:ann  2027-01-15T16:00:00Z
    ");
    let revoke = [&share[..], &["80", "--with", "public", "--revoke"]].concat();
    assert_eq!(site.run(&revoke, false).await.exit, Exit::Success);
    let done = site.run(&revoke, false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Failed, "port 80 of app is not shared with public\n"));
    let json = site.run(&[&share[..], &["--output", "json"]].concat(), false).await.out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let ann = serde_json::json!({"port": 80, "audience": "user:ann", "expires_at": "2027-01-15T16:00:00Z"});
    assert_eq!(json, serde_json::json!([ann]));
}

#[test]
fn workspace_share_that_is_half_said_is_wrong_usage() {
    for words in [
        &["80"][..],
        &["--with", "public"],
        &["80", "--with", "everybody"],
        &["0", "--with", "public"],
        &["80", "--revoke"],
        &["80", "--with", "public", "--for", "8"],
        &["80", "--with", "public", "--for", "8h", "--revoke"],
    ] {
        let words = [&["gateway", "workspace", "share", "app"], words].concat();
        let error = Cli::try_parse_from(&words).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{words:?}");
    }
}

/// Makes a cluster that takes workspaces.
async fn cluster(site: &Site) {
    let store = Store::open(&site.store_url()).await.unwrap();
    let cluster = store.ensure_cluster(&"one".parse().unwrap(), UnixSeconds::new(1_800_000_000)).await.unwrap();
    let config = b"workspaces:\n  enabled: true\n  tools_image: registry.example/tools:1\n";
    let config = workspace_spec::cluster_config::parse(config).unwrap().to_json();
    store.put_cluster_config(cluster.id, &config, UnixSeconds::new(1_800_000_000)).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn workspace_is_made_and_changed_in_the_database_of_this_machine() {
    let site = Site::new("");
    let log = site.0.path().join("audit.log");
    let config = format!("store.url = '{}'\naudit.path = '{}'\n", site.store_url(), log.display());
    std::fs::write(site.0.path().join("gateway.toml"), &config).unwrap();
    cluster(&site).await;
    let run = async |words: &str| site.run(&words.split(' ').collect::<Vec<_>>(), false).await;
    let done = run("workspace create app").await;
    assert_eq!((done.exit, done.out.as_str()), (Exit::Success, "http://app.localhost:8080/\n"), "{}", done.err);
    let done = run("workspace create app --agent one --owner ann").await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Failed, "the name is taken\n"));
    insta::assert_snapshot!(run("workspace list").await.out, @r"
    NAME  OWNER  ACCESS    AGENT  STATE              EXECUTOR    ADDRESS
    app   dev    operator  -      CreationRequested  kubernetes  http://app.localhost:8080/
    ");
    let done = run("workspace stop app --no-wait --output json").await;
    let line: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((done.exit, &line["desired"], &line["generation"]), (Exit::Success, &"Stopped".into(), &2.into()));
    let done = run("workspace start app --timeout 1s").await;
    assert_eq!(done.exit, Exit::Failed);
    assert!(done.err.contains("app: not within 1s; it is CreationRequested"), "{}", done.err);
    assert_eq!(run("workspace terminate app --no-wait").await.exit, Exit::Success, "nobody is there to be asked");
    let done = run("workspace start app").await;
    assert_eq!((done.exit, done.err.contains("cannot be taken back")), (Exit::Failed, true), "{}", done.err);
    let done = run("workspace start absent").await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Failed, "there is no workspace absent\n"));
    run("token create --workspace external").await;
    let done = run("workspace stop external").await;
    assert_eq!((done.exit, done.err.contains("where it was made")), (Exit::Failed, true), "{}", done.err);
    let shown = run("workspace show app --output json").await.out;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["cluster"], &shown["state"]["desired"]), (&"one".into(), &"Terminated".into()));
    let text = std::fs::read_to_string(&log).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        records.iter().map(|record| record["how"].as_str().or(record["event"].as_str()).unwrap()).collect();
    assert_eq!(told, ["workspace_created", "stop", "start", "terminate", "token_created"]);
    assert!(records.iter().all(|record| record["by"]["operator"].is_u64()));
}

#[tokio::test]
async fn user_is_disabled_with_what_they_run_and_the_records_are_found() {
    let site = Site::new("");
    cluster(&site).await;
    let run = async |words: &str| site.run(&words.split(' ').collect::<Vec<_>>(), false).await;
    for words in ["workspace create app --agent one --owner ann", "workspace create other --agent one --owner bob"] {
        assert_eq!(run(words).await.exit, Exit::Success, "{words}");
    }
    let done = site.run(&["user", "disable", "ann", "--stop"], true).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Success, "ann is disabled\napp is to stop\n"));
    let again: serde_json::Value = serde_json::from_str(&run("user disable ann --stop -o json").await.out).unwrap();
    let nothing = serde_json::json!({"name": "ann", "state": "disabled", "stopped": [], "not_stopped": []});
    assert_eq!(again, nothing, "it is stopped");
    let desired = async |name: &str| {
        let shown: serde_json::Value =
            serde_json::from_str(&run(&format!("workspace show {name} -o json")).await.out).unwrap();
        shown["state"]["desired"].clone()
    };
    assert_eq!((desired("app").await, desired("other").await), ("Stopped".into(), "Running".into()));
    let search = async |words: &str| -> Vec<serde_json::Value> {
        serde_json::from_str(&run(&format!("audit search {words} -o json")).await.out).unwrap()
    };
    let events = |records: &[serde_json::Value]| {
        records.iter().map(|record| record["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = search("--limit 100").await;
    let expected = ["user_changed", "workspace_requested", "user_changed", "workspace_created", "workspace_created"];
    assert_eq!(events(&all), expected, "the newest first");
    assert!(all.iter().all(|record| record["actor"].as_str().unwrap().starts_with("operator/")));
    assert_eq!(events(&search("--workspace app").await), ["workspace_requested", "workspace_created"]);
    assert_eq!(events(&search("BOB --since 2027-01-01T00:00:00Z").await), [""; 0], "no part of any line");
    assert_eq!(search("--limit 2").await, all[..2]);
    assert_eq!(search("--until 1h").await, [] as [serde_json::Value; 0]);
    let text = run("audit search --event workspace_requested").await.out;
    assert!(text.starts_with("TIME ") && text.contains("  app  ") && text.contains("how=stop"), "{text}");
    let done = site.run(&["audit", "search", "nothing-like-it"], true).await;
    assert_eq!((done.exit, done.out.as_str(), done.err.as_str()), (Exit::Success, "", "nothing was found\n"));
}

#[tokio::test]
async fn user_is_disabled_enabled_and_listed() {
    let site = Site::new("");
    let store = Store::open(&site.store_url()).await.unwrap();
    let (name, groups) = ("ann".parse().unwrap(), ["devs".parse().unwrap(), "ops".parse().unwrap()]);
    store.admit("https://id.example", "u-1", &name, &groups, UnixSeconds::new(1_800_000_000)).await.unwrap();
    store.close().await;
    let done = site.run(&["user", "disable", "bob"], false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Failed, "there is no user bob\n"));
    let done = site.run(&["user", "disable", "ann"], true).await;
    assert_eq!((done.exit, done.err.as_str(), done.out.as_str()), (Exit::Success, "ann is disabled\n", ""));
    insta::assert_snapshot!(site.run(&["user", "list"], false).await.out, @r"
    NAME  STATE     LAST SIGN-IN          GROUPS
    ann   disabled  2027-01-15T08:00:00Z  devs ops
    ");
    let json = site.run(&["user", "enable", "ann", "--output", "json"], false).await.out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_json::json!({"name": "ann", "state": "enabled"}));
    let json = site.run(&["user", "list", "--output", "json"], false).await.out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let ann = serde_json::json!([{
        "name": "ann", "state": "enabled", "issuer": "https://id.example", "subject": "u-1", "groups": ["devs", "ops"],
        "created_at": "2027-01-15T08:00:00Z", "last_seen": "2027-01-15T08:00:00Z", "disabled_at": null,
    }]);
    assert_eq!(json, ann);
}

#[tokio::test]
async fn new_workspace_needs_an_owner_where_a_provider_signs_users_in() {
    let text = "[auth]\nmode = 'oidc'\n[auth.oidc]\nissuer = 'https://id.example'\nclient_id = 'gw'\n";
    let site = Site::new(text);
    let create = ["token", "create", "--workspace", "app"];
    let done = site.run(&create, false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Usage, "app is new: name its owner with --owner\n"));
    assert_eq!(site.run(&[&create[..], &["--owner", "ann"]].concat(), false).await.exit, Exit::Success);
    assert_eq!(site.run(&create, false).await.exit, Exit::Success, "it has one now");
}

#[tokio::test]
async fn local_changes_are_in_the_audit_log_and_without_it_nothing_is_changed() {
    let site = Site::new("");
    let log = site.0.path().join("audit.log");
    let config = format!("store.url = '{}'\naudit.path = '{}'\n", site.store_url(), log.display());
    std::fs::write(site.0.path().join("gateway.toml"), &config).unwrap();
    let token = site.run(&["token", "create", "--workspace", "app", "--note", "pod"], false).await.out;
    for words in [
        "workspace share app 80 --with public --for 8h",
        "workspace share app 80 --with public --revoke",
        "token rotate t-1 --overlap 1h",
        "token revoke t-1",
        "user disable dev",
    ] {
        let done = site.run(&words.split(' ').collect::<Vec<_>>(), false).await;
        assert_eq!(done.exit, Exit::Success, "{words}: {}", done.err);
    }
    for words in ["token list", "workspace list", "workspace show app", "workspace open app 80", "user list"] {
        assert_eq!(site.run(&words.split(' ').collect::<Vec<_>>(), false).await.exit, Exit::Success, "{words}");
    }
    let text = std::fs::read_to_string(&log).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = records.iter().map(|record| record["event"].as_str().unwrap()).collect();
    let expected =
        ["token_created", "shares_changed", "shares_changed", "token_rotated", "token_revoked", "user_changed"];
    assert_eq!(events, expected, "what only looks leaves no trace");
    assert!(
        records.iter().all(|record| record["by"]["operator"].is_u64() && record["time"] == "2027-01-15T08:00:00.000Z")
    );
    assert!(!text.contains(&token.trim()[..30]), "{text}");

    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    for words in ["token create --user ann", "token revoke t-2", "workspace share app 80 --with public"] {
        let done = site.run(&words.split(' ').collect::<Vec<_>>(), false).await;
        assert_eq!((done.exit, done.err.contains("audit.path")), (Exit::Failed, true), "{words}: {}", done.err);
    }
    let list = site.run(&["token", "list"], false).await.out;
    assert!(list.lines().count() == 3 && list.lines().nth(2).unwrap().contains(" live "), "{list}");
}

#[tokio::test]
async fn workspace_is_made_from_a_template_of_this_machines_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new(&format!("agents_dir = '{}'\n", folder.path().display()));
    cluster(&site).await;
    let templates = folder.path().join("one/workspace_templates");
    std::fs::create_dir_all(&templates).unwrap();
    let text = "title: A shell\nparameters:\n- {name: image, options: [a, b]}\n- {name: note, required: false, description: For people}\ndevfile:\n  \
        schemaVersion: 2.2.0\n  metadata: {name: '{{parameters.note}}'}\n  components:\n  - {name: main, attributes: {gateway/inject-editor: true}, \
        container: {image: 'example.com/{{parameters.image}}'}}\n";
    std::fs::write(templates.join("shell.yaml"), text).unwrap();
    std::fs::write(templates.join("bad.yaml"), "devfile: 1\n").unwrap();
    let run = async |words: &str| site.run(&words.split(' ').collect::<Vec<_>>(), false).await;
    insta::assert_snapshot!(run("workspace templates").await.out, @r"
    TEMPLATE  PARAMETERS              ABOUT
    bad                               cannot be used: line 1, devfile: must be a map, not a number
    shell     image (required), note  A shell
    ");
    let rows: serde_json::Value =
        serde_json::from_str(&run("workspace templates --agent one -o json").await.out).unwrap();
    assert_eq!((&rows[0]["error"], &rows[1]["parameters"][0]["options"][1]), (&"template_invalid".into(), &"b".into()));
    assert_eq!(run("workspace templates --agent none").await.err, "there is no cluster none\n");
    let done = run("workspace create app --template shell --parameter image=b").await;
    assert_eq!(done.exit, Exit::Success, "{}", done.err);
    let shown: serde_json::Value = serde_json::from_str(&run("workspace show app -o json").await.out).unwrap();
    let values = serde_json::json!({"image": "b", "note": ""});
    assert_eq!((&shown["template"], &shown["template_parameters"]), (&"shell".into(), &values));
    assert!(run("workspace show app").await.out.contains("template     shell (image=b, note=)"));
    for (words, told) in [
        ("workspace create other --template shell", "image is missing"),
        ("workspace create other --template shell --parameter image=c", "image has to be one of: a, b"),
        ("workspace create other --template none", "there is no workspace template of that name"),
        ("workspace create other --template bad", "which an operator has to correct: line 1, devfile"),
    ] {
        let done = run(words).await;
        assert!(done.exit == Exit::Failed && done.err.contains(told), "{words}: {}", done.err);
    }
    let done = site.run(&["config", "check"], false).await;
    let place = templates.join("bad.yaml");
    assert!(
        done.exit == Exit::BadConfig && done.err.contains(&format!("{}:1:10: devfile: must be a map", place.display())),
        "{}",
        done.err
    );
}

#[test]
fn template_that_is_half_said_is_wrong_usage() {
    for words in [
        &["--parameter", "a=b"][..],
        &["--template", "node", "--parameter", "a"],
        &["--template", "Not A Name"],
        &["--template", "node", "--devfile", "x"],
        &["--template", "node", "--built-in-devfile"],
    ] {
        let words = [&["gateway", "workspace", "create", "app"], words].concat();
        assert_eq!(Cli::try_parse_from(&words).unwrap_err().exit_code(), 2, "{words:?}");
    }
}
