//! `gateway token` on the database of this machine.

use super::*;

#[tokio::test]
async fn token_goes_into_a_file_that_only_its_user_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new("");
    let path = site.0.path().join("agent.token");
    let file = path.to_str().unwrap();
    let done = site.run(&["token", "create", "--workspace", "app", "--out", file], false).await;
    assert_eq!((done.exit, done.out.as_str(), done.err), (Exit::Success, "", format!("t-1 is in {file}\n")));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let first = std::fs::read_to_string(&path).unwrap();
    assert_eq!(Token::parse(first.trim_end()).unwrap().kind(), TokenKind::Agent);
    let done = site.run(&["token", "create", "--workspace", "app", "--out", file], false).await;
    assert_eq!((done.exit, done.err.contains("is there already")), (Exit::Failed, true), "{}", done.err);
    assert_eq!(site.run(&["token", "list"], false).await.out.lines().count(), 2, "none was made for nothing");
    let done = site.run(&["token", "rotate", "t-1", "--out", file, "--force", "-o", "json"], false).await;
    let kept: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&kept["id"], &kept["file"], &kept["token"]), (&"t-2".into(), &file.into(), &serde_json::Value::Null));
    assert_ne!(std::fs::read_to_string(&path).unwrap(), first);
}

#[tokio::test]
async fn who_am_i_is_the_operator_where_a_configuration_says_so() {
    let site = Site::new("");
    let done = site.run(&["whoami"], false).await;
    assert!(done.out.starts_with(&format!("the gateway's operator, on {} (", site.store_url())), "{}", done.out);
    let told: serde_json::Value = serde_json::from_str(&site.run(&["whoami", "-o", "json"], false).await.out).unwrap();
    assert_eq!((&told["operator"], &told["database"]), (&true.into(), &site.store_url().into()));
}

#[tokio::test]
async fn token_create_prints_the_token_alone() {
    let site = Site::new("");
    let done = site.run(&["token", "create", "--workspace", "app"], false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Success, ""));
    let token = Token::parse(done.out.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!(token.kind(), TokenKind::Agent);
    let done = site.run(&["token", "create", "--user", "alice"], true).await;
    assert_eq!(Token::parse(done.out.trim_end()).unwrap().kind(), TokenKind::User);
    assert!(done.err.starts_with("t-2 is shown this once"), "{}", done.err);
    assert!(!done.err.contains(done.out.trim_end()), "the hint does not repeat it");

    let store = Store::open(&site.store_url()).await.unwrap();
    assert!(store.token_by_hash(&token.hash()).await.unwrap().is_some());
    assert_eq!(store.workspace(&"app".parse().unwrap()).await.unwrap().unwrap().owner.as_str(), "dev");
    store.close().await;
}

#[tokio::test]
async fn token_for_a_cluster_makes_the_cluster_known_and_is_listed() {
    let site = Site::new("");
    let done = site.run(&["token", "create", "--cluster", "prod"], false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Success, ""));
    assert_eq!(Token::parse(done.out.trim_end()).unwrap().kind(), TokenKind::Cluster);
    let listed = site.run(&["token", "list", "--output", "json"], false).await.out;
    let rows: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&rows[0]["kind"], &rows[0]["cluster"]), (&"cluster".into(), &"prod".into()));
    assert!(site.run(&["token", "list"], false).await.out.contains("prod"));
    let store = Store::open(&site.store_url()).await.unwrap();
    assert!(store.cluster(&"prod".parse().unwrap()).await.unwrap().is_some());
    store.close().await;
    for words in
        [&["--cluster", "a", "--user", "b"][..], &["--cluster", "a", "--workspace", "b"], &["--cluster", "A"], &[]]
    {
        let error = Cli::try_parse_from([&["gateway", "token", "create"], words].concat()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{words:?}");
    }
}

#[tokio::test]
async fn token_create_keeps_the_owner_unless_another_is_named() {
    let site = Site::new("");
    let create = ["token", "create", "--workspace", "app"];
    assert_eq!(site.run(&[&create[..], &["--owner", "alice"]].concat(), false).await.exit, Exit::Success);
    assert_eq!(site.run(&create, false).await.exit, Exit::Success);
    let done = site.run(&[&create[..], &["--owner", "bob"]].concat(), false).await;
    assert_eq!((done.exit, done.out.as_str()), (Exit::Failed, ""));
    assert_eq!(done.err, "the workspace app belongs to another user\n");
}

#[tokio::test]
async fn token_that_cannot_be_printed_is_revoked() {
    let site = Site::new("");
    let mut console = Console::new(Box::new(Closed), Box::new(io::sink()), false);
    assert_eq!(site.run_on(&["token", "create", "--user", "alice"], &mut console).await, Exit::Failed);
    let store = Store::open(&site.store_url()).await.unwrap();
    let tokens = store.list_tokens().await.unwrap();
    assert!(tokens.len() == 1 && tokens[0].revoked_at.is_some(), "{tokens:?}");
    store.close().await;
}

#[tokio::test]
async fn token_list_and_revoke_go_by_id() {
    let site = Site::new("");
    site.run(&["token", "create", "--workspace", "app"], false).await;
    let token = site.run(&["token", "create", "--user", "alice"], false).await.out;
    let done = site.run(&["token", "revoke", "t-1"], true).await;
    assert_eq!((done.exit, done.out.as_str(), done.err.as_str()), (Exit::Success, "", "t-1 is revoked\n"));
    let done = site.run(&["token", "revoke", "t-9"], false).await;
    assert_eq!((done.exit, done.err.as_str()), (Exit::Failed, "there is no token t-9\n"));

    let text = site.run(&["token", "list"], false).await.out;
    let mask = |text: &str| {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect::<Vec<Vec<_>>>()
    };
    let rows = mask(&text);
    assert_eq!((rows[1][0].as_str(), rows[1][2].as_str(), rows[1][4].as_str()), ("t-1", "app", "revoked"));
    assert_eq!(rows[2][..3], ["t-2", "user", "alice"]);
    assert_eq!(rows[2][4..], ["live", "2027-01-15T08:00:00Z", "-", "-"]);
    assert!(!text.contains(token.trim_end()));

    let json: serde_json::Value =
        serde_json::from_str(&site.run(&["token", "list", "--output", "json"], false).await.out).unwrap();
    assert_eq!(json[0]["state"], "revoked");
    assert_eq!((&json[1]["user"], &json[1]["workspace"]), (&"alice".into(), &serde_json::Value::Null));
}

#[tokio::test]
async fn tokens_in_memory_are_refused_because_they_would_vanish() {
    let site = Site::new("");
    std::fs::write(site.0.path().join("gateway.toml"), "store.url = 'sqlite::memory:'").unwrap();
    let done = site.run(&["token", "create", "--user", "alice"], false).await;
    assert_eq!((done.exit, done.out.as_str()), (Exit::BadConfig, ""));
}
