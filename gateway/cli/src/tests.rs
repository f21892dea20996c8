//! What is typed, what is printed where, and how it ends.

use std::io::{self, Write};
use std::sync::Arc;

use clap::CommandFactory;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;
use gateway_store::Store;
use gateway_types::UnixSeconds;
use gateway_types::token::{Token, TokenKind};

/// A stream that keeps what it is given.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream whose reader has gone.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A directory with a configuration file and a database, removed at the end.
struct Site(TempDir);

/// How a command ended and what it wrote.
struct Done {
    exit: Exit,
    out: String,
    err: String,
    /// As whom it was done.
    said: String,
}

impl Site {
    fn new(text: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        let text = format!("store.url = '{}'\n{text}", site.store_url());
        std::fs::write(site.0.path().join("gateway.toml"), text).unwrap();
        site
    }

    fn store_url(&self) -> String {
        format!("sqlite://{}", self.0.path().join("gateway.db").display())
    }

    fn cli(&self, words: &[&str]) -> Cli {
        let file = self.0.path().join("gateway.toml");
        Cli::try_parse_from(["gateway", "--config", file.to_str().unwrap()].iter().chain(words)).unwrap()
    }

    async fn run(&self, words: &[&str], err_is_terminal: bool) -> Done {
        let (out, err) = (Buffer::default(), Buffer::default());
        let mut console = Console::new(Box::new(out.clone()), Box::new(err.clone()), err_is_terminal);
        let exit = self.run_on(words, &mut console).await;
        // As whom it is done is said first; one test asks for that.
        let lines: Vec<String> = err.text().split_inclusive('\n').map(str::to_owned).collect();
        let (said, err) =
            lines.into_iter().partition::<Vec<_>, _>(|line| line.starts_with("as the gateway's operator"));
        Done { exit, out: out.text(), err: err.concat(), said: said.concat() }
    }

    /// Runs a command that is to tell failures as JSON, and returns what it tells.
    async fn failure(&self, words: &[&str]) -> (Exit, serde_json::Value) {
        let err = Buffer::default();
        let console = Console::new(Box::new(io::sink()), Box::new(err.clone()), true);
        let mut console = console.with_json_failures(true);
        let exit = self.run_on(words, &mut console).await;
        console.end(exit);
        (exit, serde_json::from_str(&err.text()).unwrap())
    }

    async fn run_on(&self, words: &[&str], console: &mut Console) -> Exit {
        let cli = self.cli(words);
        let env = BTreeMap::new();
        match &cli.command {
            GatewayCommand::Config(args) => run_config(&cli, args, &env, console),
            GatewayCommand::Token(args) => run_token(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await,
            GatewayCommand::Workspace(args) => {
                run_workspace(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await
            }
            GatewayCommand::Login(args) => run_login(args, &env, console).await,
            GatewayCommand::Whoami(args) => run_whoami(&cli, args, &env, console).await,
            GatewayCommand::Logout(args) => run_logout(args, &env, console).await,
            GatewayCommand::Environment(args) => run_environment(args, &env, console).await,
            GatewayCommand::User(args) => run_user(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await,
            GatewayCommand::Demo(_)
            | GatewayCommand::Serve(_)
            | GatewayCommand::Forward(_)
            | GatewayCommand::Ssh(_)
            | GatewayCommand::SshConfig(_)
            | GatewayCommand::Completions(_)
            | GatewayCommand::Man(_)
            | GatewayCommand::CiRun(_) => {
                panic!("not run here")
            }
        }
    }
}

#[test]
fn command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_has_usage_and_examples() {
    let help = Cli::command().term_width(100).render_long_help().to_string();
    // Lines that hold only spaces would not survive editors.
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(help.join("\n"), @r"
    Signs users in and routes their traffic through reverse tunnels into workspaces

    Usage: gateway [OPTIONS] <COMMAND>

    Commands:
      demo         Run gateway, agent and a sample app in one process, with nothing to install
      serve        Run a gateway
      config       Check or show the configuration
      login        Sign in to a gateway, for the commands that speak with it
      whoami       Tell who is signed in, and where
      logout       Revoke what the sign-in gave, and forget it
      token        Make, list, rotate or revoke tokens of agents and users
      workspace    Make, start, stop and end workspaces, open them, and share their ports
      user         List users, and decide who may not come in
      environment  Have a CI job's Kubernetes resources be there, and end them
      forward      Bring ports of a workspace to this machine
      ssh          Log in to a workspace with SSH
      ssh-config   Let plain ssh, scp, rsync and editors find workspaces
      completions  Write what completes these commands in a shell
      man          Write a manual page for each command into a folder
      help         Print this message or the help of the given subcommand(s)

    Options:
          --config <FILE>
              Configuration file [default: gateway.toml, if there is one]

              [env: GATEWAY_CONFIG]

      -h, --help
              Print help

      -V, --version
              Print version

    Examples:
      gateway demo                                  everything in one process, to look around
      gateway serve --config gateway.toml           run a gateway
      gateway config check                          all problems of the configuration at once
      gateway login --gateway https://gw.example.com  sign in with a browser, here or elsewhere
      gateway token create --workspace my-app --out agent.token
      gateway workspace create my-app --agent cluster-1
      gateway workspace share my-app 3000 --with signed-in
      gateway user disable ann                      lets a user in no more
      gateway environment ensure --agent prod       in a CI job: its Kubernetes resources are ready
      gateway forward my-app 5432                   its port 5432 on this machine
      gateway ssh my-app                            a shell in it

    Configuration: defaults, then gateway.toml, then GATEWAY_… variables, then flags; the later wins.
    The variable of `listen.public` is GATEWAY_LISTEN__PUBLIC.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 64 bad configuration.
    ");
}

#[test]
fn every_command_has_examples() {
    for command in ["demo", "serve", "config", "token", "environment", "forward", "ssh", "ssh-config"] {
        let words = ["gateway", command];
        let help = Cli::try_parse_from(words.into_iter().chain(["--help"])).unwrap_err().to_string();
        assert!(help.contains("Examples:\n") && help.contains("--config <FILE>"), "{words:?}: {help}");
    }
}

/// Calls `check` with each command, the words that lead to it, and the help of the one above.
fn each_command(check: &mut dyn FnMut(&clap::Command, &str, &str)) {
    fn walk(command: &clap::Command, path: &str, above: &str, check: &mut dyn FnMut(&clap::Command, &str, &str)) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        check(command, path, above);
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
            walk(inner, &format!("{path} {}", inner.get_name()), &help, check);
        }
    }
    walk(&Cli::command(), "gateway", "", check);
}

#[test]
fn help_of_each_command_has_examples_of_its_own_and_whole_paragraphs() {
    each_command(&mut |command, path, above| {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.starts_with("Examples:\n"), "{path}: {help}");
        assert_ne!(help, above, "{path} repeats what the command above says");
        let is_leaf = command.get_subcommands().next().is_none();
        for line in help.lines().filter(|line| line.starts_with("  gateway ")).filter(|_| is_leaf) {
            assert!(line.trim_start().starts_with(path), "{path}: {line}");
        }
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && line != "Examples:";
        let lines: Vec<&str> = help.lines().collect();
        for pair in lines.windows(2) {
            // The terminal's width breaks lines; a line that ends before would be broken twice.
            assert!(!(is_prose(pair[0]) && is_prose(pair[1])), "{path}: wrapped by hand: {pair:?}");
        }
    });
}

#[test]
fn every_output_can_be_asked_for_in_short() {
    each_command(&mut |command, path, _| {
        for arg in command.get_arguments().filter(|arg| arg.get_id() == "output") {
            assert_eq!(arg.get_short(), Some('o'), "{path}");
        }
    });
    let asks = |words: &str| asks_for_json(words.split(' ').map(OsString::from));
    for words in
        ["token list -o json", "--output=json token list", "workspace list -ojson", "config check --output json"]
    {
        assert!(asks(words), "{words}");
    }
    for words in ["token list -o text", "ssh app -- --output json", "token create --note json", "token list"] {
        assert!(!asks(words), "{words}");
    }
}

#[test]
fn flags_stand_above_the_file() {
    let site = Site::new("listen.public = '127.0.0.1:1'\nlisten.admin = '127.0.0.1:2'\n");
    let config =
        site.cli(&["serve", "--listen", "127.0.0.1:9", "--admin-listen", "off"]).load_config(&BTreeMap::new()).unwrap();
    assert_eq!((config.listen.public.port(), config.listen.admin), (9, None));
    assert_eq!(config.origin("listen.admin"), Some(gateway_config::Origin::Flag));
    let config = site.cli(&["demo", "--agents-listen", "127.0.0.1:0"]).load_config(&BTreeMap::new()).unwrap();
    assert_eq!((config.listen.public.port(), config.listen.agents.port()), (1, 0));
}

#[test]
fn wrong_usage_ends_with_2() {
    for words in [
        &[][..],
        &["nonsense"],
        &["serve", "--listen", "localhost"],
        &["serve", "--admin-listen", "on"],
        &["token", "create"],
        &["token", "create", "--workspace", "a", "--user", "b"],
        &["token", "create", "--user", "b", "--owner", "c"],
        &["token", "create", "--workspace", "Not-A-Name"],
        &["token", "revoke", "12"],
        &["workspace", "create", "app", "--agent", "Not-A-Name"],
        &["workspace", "start"],
        &["workspace", "stop", "app", "--timeout", "soon"],
        &["workspace", "create", "app", "--agent", "one", "--env", "SECRET=1"],
    ] {
        let error = Cli::try_parse_from(["gateway"].iter().chain(words)).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()), "{words:?}");
    }
}

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
async fn completions_and_manual_pages_are_of_all_commands() {
    let out = Buffer::default();
    let mut console = Console::new(Box::new(out.clone()), Box::new(io::sink()), false);
    assert_eq!(run_completions(&CompletionsArgs { shell: clap_complete::Shell::Bash }, &mut console), Exit::Success);
    assert!(
        out.text().contains("gateway__workspace") || out.text().contains("gateway__subcmd__workspace"),
        "{}",
        out.text()
    );
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run_man(&ManArgs { folder: folder.path().to_owned() }, &mut console), Exit::Success);
    assert!(folder.path().join("gateway-token-create.1").exists());
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

#[test]
fn help_of_create_says_how_secrets_come_in() {
    let mut command = Cli::command();
    let workspace = command.find_subcommand_mut("workspace").unwrap();
    let help = workspace.find_subcommand_mut("create").unwrap().clone().term_width(100).render_long_help().to_string();
    for part in
        ["--devfile -", "--env-file <FILE>", "--secret-file <NAME=FILE>", "never come from the command line", "--wait"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
    let help = workspace.clone().term_width(100).render_help().to_string();
    let commands: Vec<&str> =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take(10).map(str::trim_end).collect();
    insta::assert_snapshot!(commands.join("\n"), @r"
      create     Make a workspace in a cluster, which is to run from then on
      start      Have a workspace run
      stop       Have a workspace stop; its storage is kept
      restart    Stop a workspace, and start it again once it has
      terminate  End a workspace for good, with its storage
      list       List workspaces: one's own and those shared by name over the API, all of them on the
                 gateway's machine
      show       Show what is known of a workspace
      open       Print the address of a workspace or a port of it, and open it where there is a desktop
      share      Show who may reach which port, or change it
    ");
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
