//! The commands against a running gateway: sign in, work over the API, sign out.

use std::collections::BTreeMap;

use clap::Parser as _;
use e2e::buffer::Buffer;
use e2e::until;
use gateway_cli::{
    Cli, Console, Exit, GatewayCommand, run_audit, run_forward, run_login, run_logout, run_token, run_user, run_whoami,
    run_workspace,
};
use gateway_store::wall_clock;
use serde_json::{Deserializer, Value};

use super::device;
use tempfile::TempDir;

use super::support::{As, SAME_ORIGIN, World};

/// Somebody at a machine of their own.
pub(super) struct Desk {
    folder: TempDir,
    env: BTreeMap<String, String>,
}

impl Desk {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config/credentials.json").display().to_string();
        Self { folder, env: BTreeMap::from([("GATEWAY_CREDENTIALS_FILE".to_owned(), file)]) }
    }

    pub(super) async fn run(&self, words: &str) -> (Exit, String, String) {
        let (out, err) = (Buffer::default(), Buffer::default());
        let exit = self.run_into(words, &out, &err).await;
        (exit, out.text(), err.text())
    }

    pub(super) async fn run_into(&self, words: &str, out: &Buffer, err: &Buffer) -> Exit {
        let cli = Cli::try_parse_from(["gateway"].into_iter().chain(words.split_whitespace())).unwrap();
        let mut console = Console::new(Box::new(out.clone()), Box::new(err.clone()), false);
        match &cli.command {
            GatewayCommand::Login(args) => run_login(args, &self.env, &mut console).await,
            GatewayCommand::Whoami(args) => run_whoami(&cli, args, &self.env, &mut console).await,
            GatewayCommand::Logout(args) => run_logout(args, &self.env, &mut console).await,
            GatewayCommand::Token(args) => run_token(&cli, args, &self.env, &mut console, wall_clock()).await,
            GatewayCommand::Workspace(args) => run_workspace(&cli, args, &self.env, &mut console, wall_clock()).await,
            GatewayCommand::Forward(args) => run_forward(args, &self.env, &mut console).await,
            GatewayCommand::User(args) => run_user(&cli, args, &self.env, &mut console, wall_clock()).await,
            GatewayCommand::Audit(args) => run_audit(&cli, args, &self.env, &mut console, wall_clock()).await,
            other => panic!("{other:?} is not run here"),
        }
    }

    /// Runs a command that has to succeed and returns what it prints.
    pub(super) async fn done(&self, words: &str) -> String {
        let (exit, out, err) = self.run(words).await;
        assert_eq!(exit, Exit::Success, "{words}: {out} {err}");
        out
    }
}

/// Signs in, with a user who presses the button.
pub(super) async fn login(world: &World, desk: &Desk, cookie: &str) {
    let (out, err) = (Buffer::default(), Buffer::default());
    let words = format!("login --no-browser --gateway http://{}", world.public());
    let confirm = async {
        until("the code is shown", || err.text().contains("user_code=")).await;
        let text = err.text();
        let code = text.split_once("user_code=").unwrap().1.split_whitespace().next().unwrap().to_owned();
        assert!(text.matches(&code).count() == 2, "the code stands alone too: {text}");
        device::press(world, cookie, SAME_ORIGIN, &code, "allow").await
    };
    let (exit, page) = tokio::join!(desk.run_into(&words, &out, &err), confirm);
    assert_eq!((exit, page.status()), (Exit::Success, 200), "{}", err.text());
    assert!(err.text().contains("as dev until 20"), "{}", err.text());
    assert_eq!(out.text(), "", "standard output is for data");
}

#[tokio::test]
async fn user_signs_in_works_and_signs_out() {
    let world = World::start().await;
    world.workspace("one", "dev").await;
    let (desk, cookie) = (Desk::new(), world.browser().await);
    let (exit, _, err) = desk.run("whoami").await;
    assert_eq!((exit, err.contains("gateway login")), (Exit::Failed, true), "{err}");
    login(&world, &desk, &cookie).await;
    let url = format!("http://{}", world.public());
    assert!(desk.done("whoami").await.starts_with(&format!("dev at {url}, token t-")));
    let who: Value = serde_json::from_str(&desk.done("whoami --output json").await).unwrap();
    assert_eq!((&who["user"], &who["gateway"]), (&"dev".into(), &url.clone().into()));

    let list = desk.done("workspace list").await;
    assert!(list.lines().nth(1).unwrap().starts_with("one   dev    owner   absent"), "{list}");
    let shown = desk.done("workspace show one").await;
    assert!(
        shown.contains("address  http://one.localhost:") && shown.contains("ports    http://{port}-one."),
        "{shown}"
    );
    let port = world.gateway.addresses.public.port();
    assert_eq!(desk.done("workspace open one 3000").await, format!("http://3000-one.localhost:{port}/\n"));
    let (exit, _, err) = desk.run("workspace open absent").await;
    assert_eq!((exit, err.contains("not_found")), (Exit::Failed, true), "{err}");

    desk.done("workspace share one 3000 --with user:ann --for 8h").await;
    assert_eq!(
        desk.done("workspace share one 3001 --with public").await,
        format!("http://3001-one.localhost:{port}/\n"),
        "the link alone"
    );
    let shares = desk.done("workspace share one").await;
    assert_eq!(shares.lines().count(), 3, "{shares}");
    desk.done("workspace share one 3001 --with public --revoke").await;
    let (exit, _, err) = desk.run("workspace share one 3001 --with public --revoke").await;
    assert_eq!((exit, err.contains("is not shared with")), (Exit::Failed, true), "{err}");
    let shares: Value = serde_json::from_str(&desk.done("workspace share one --output json").await).unwrap();
    assert_eq!(shares[0]["audience"], "user:ann");

    let token = desk.done("token create --workspace one --expires 30d --note pod").await;
    assert!(token.starts_with("gwa_"), "{token}");
    let made: Value = serde_json::from_str(&desk.done("token create --user dev --output json").await).unwrap();
    let id = made["id"].as_str().unwrap();
    let rotated = desk.done(&format!("token rotate {id} --overlap 1h")).await;
    assert!(rotated.starts_with("gwu_"), "{rotated}");
    desk.done(&format!("token revoke {id}")).await;
    let list = desk.done("token list").await;
    assert!(
        list.contains("pod") && list.lines().any(|line| line.starts_with(id) && line.contains("revoked")),
        "{list}"
    );
    for (words, told) in [
        ("token create --user ann", "you are dev"),
        ("token create --workspace one --owner ann", "--owner"),
        ("token revoke t-99999", "not_found"),
    ] {
        let (exit, out, err) = desk.run(words).await;
        assert!(exit != Exit::Success && out.is_empty() && err.contains(told), "{words}: {err}");
    }

    desk.done("logout").await;
    let (exit, _, err) = desk.run("whoami").await;
    assert_eq!((exit, err.contains("gateway login")), (Exit::Failed, true), "{err}");
    let tokens = world.gateway.store.list_tokens().await.unwrap();
    let login_token =
        tokens.iter().find(|token| token.note.as_ref().is_some_and(|note| note.as_str().starts_with("gateway login")));
    assert!(login_token.unwrap().revoked_at.is_some(), "signing out revokes what the sign-in gave");
}

#[tokio::test]
async fn second_sign_in_replaces_the_first_and_programs_use_a_file() {
    let world = World::start().await;
    let (desk, cookie) = (Desk::new(), world.browser().await);
    login(&world, &desk, &cookie).await;
    login(&world, &desk, &cookie).await;
    let tokens = world.gateway.store.list_tokens().await.unwrap();
    let of_login: Vec<_> =
        tokens.iter().filter(|token| token.note.is_some()).map(|token| token.revoked_at.is_some()).collect();
    assert_eq!(of_login, [true, false]);

    let (program, As::Token(ann)) = (Desk::new(), world.user("ann").await) else { unreachable!() };
    let file = program.folder.path().join("token");
    std::fs::write(&file, format!("{ann}\n")).unwrap();
    let words = format!("whoami --gateway http://{} --token-file {}", world.public(), file.display());
    assert!(program.done(&words).await.starts_with("ann at http://"));
}

#[tokio::test]
async fn sign_in_as_json_says_what_to_open_and_then_whose_it_is() {
    let world = World::start().await;
    let (desk, cookie) = (Desk::new(), world.browser().await);
    let (out, err) = (Buffer::default(), Buffer::default());
    let words = format!("login --no-browser -o json --gateway http://{}", world.public());
    let documents =
        || -> Vec<Value> { Deserializer::from_str(&out.text()).into_iter().map_while(Result::ok).collect() };
    let confirm = async {
        until("the code is there", || !documents().is_empty()).await;
        let asked = documents().remove(0);
        let (uri, code) = (asked["verification_uri"].as_str().unwrap(), asked["user_code"].as_str().unwrap());
        assert!(uri.ends_with(code) && asked["expires_in"].as_u64() > Some(0), "{asked}");
        device::press(&world, &cookie, SAME_ORIGIN, code, "allow").await
    };
    let (exit, page) = tokio::join!(desk.run_into(&words, &out, &err), confirm);
    assert_eq!((exit, page.status()), (Exit::Success, 200), "{}", err.text());
    let [_, told] = &documents()[..] else { panic!("{}", out.text()) };
    assert_eq!(
        (&told["user"], told["gateway"].as_str()),
        (&"dev".into(), Some(&*format!("http://{}", world.public())))
    );
    assert!(told["expires_at"].as_str().unwrap().starts_with("20"), "{told}");
    assert_eq!(err.text(), "", "what programs read is on standard output");
}

#[tokio::test]
async fn refused_sign_in_ends_with_1_and_keeps_nothing() {
    let world = World::start().await;
    let (desk, cookie) = (Desk::new(), world.browser().await);
    let (out, err) = (Buffer::default(), Buffer::default());
    let words = format!("login --no-browser --gateway http://{}", world.public());
    let refuse = async {
        until("the code is shown", || err.text().contains("user_code=")).await;
        let text = err.text();
        let code = text.split_once("user_code=").unwrap().1.split_whitespace().next().unwrap().to_owned();
        device::press(&world, &cookie, SAME_ORIGIN, &code, "refuse").await
    };
    let (exit, _) = tokio::join!(desk.run_into(&words, &out, &err), refuse);
    assert_eq!((exit, err.text().contains("refused in the browser")), (Exit::Failed, true), "{}", err.text());
    assert!(!desk.folder.path().join("config/credentials.json").exists());
    let (exit, _, err) = desk.run("login --gateway http://gw.example").await;
    assert_eq!((exit, err.contains("must be https")), (Exit::Failed, true), "{err}");
}

#[tokio::test]
async fn operator_disables_a_user_over_the_api_and_finds_the_record() {
    let world = World::start().await;
    world.gateway.configured_cluster("one", "enabled: true\n").await;
    let ann = world.user("ann").await;
    let body = r#"{"name":"app","executor":"kubernetes","agent":"one"}"#;
    world.json("POST", "/workspaces", &ann, body, 201).await;
    let (desk, cookie) = (Desk::new(), world.browser().await);
    login(&world, &desk, &cookie).await;
    let told = desk.done("whoami").await;
    assert!(told.trim_end().ends_with(", operator"), "{told}");
    let list = desk.done("user list").await;
    assert!(list.contains("ann   enabled  -             1"), "{list}");
    let told: Value = serde_json::from_str(&desk.done("user disable ann --stop -o json").await).unwrap();
    assert_eq!((&told["state"], &told["stopped"]), (&"disabled".into(), &serde_json::json!(["app"])));
    let (exit, _, err) = desk.run("user disable dev").await;
    assert_eq!((exit, err.contains("yourself")), (Exit::Failed, true), "{err}");
    let (exit, _, err) = desk.run("user enable no/body").await;
    assert_eq!((exit, err.contains("not_found")), (Exit::Failed, true), "{err}");
    let users: Value = serde_json::from_str(&desk.done("user list -o json").await).unwrap();
    let ann = users.as_array().unwrap().iter().find(|user| user["name"] == "ann").unwrap();
    assert_eq!((&ann["state"], &ann["workspaces"]), (&"disabled".into(), &1.into()));
    let found = async || -> Vec<Value> {
        let words = "audit search ANN --actor dev --event user_changed --since 1h -o json";
        serde_json::from_str(&desk.done(words).await).unwrap()
    };
    let waited = tokio::time::timeout(e2e::PATIENCE, async {
        while found().await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    waited.await.unwrap();
    let text = desk.done("audit search --workspace app").await;
    assert!(text.contains("workspace_requested") && text.contains("how=stop"), "{text}");
    let all: Vec<Value> = serde_json::from_str(&desk.done("audit search --limit 500 -o json").await).unwrap();
    assert!(all.len() >= 4 && all.iter().all(|record| record["record"]["v"] == 1), "{all:?}");
}
