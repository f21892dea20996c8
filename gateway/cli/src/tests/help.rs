//! Help, examples, flags and wrong usage.

use super::*;

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
      demo            Run gateway, agent and a sample app in one process, with nothing to install
      serve           Run a gateway
      config          Check or show the configuration
      doctor          Find what is wrong with an installation, why it matters, and how to mend it
      login           Sign in to a gateway, for the commands that speak with it
      whoami          Tell who is signed in, and where
      logout          Revoke what the sign-in gave, and forget it
      explain         Explain a request that failed, by the trace id of its answer
      token           Make, list, rotate or revoke tokens of agents and users
      workspace       Make, start, stop and end workspaces, open them, and share their ports
      git-credential  Store credentials for git servers, which your workspaces get when git asks
      user            List users, and decide who may not come in
      audit           Search the audit log of all replicas
      cluster         Show what workspaces take in a cluster, and find what lost records left there
      replicas        List the replicas of a gateway, and drain one
      backup          Back up the database and the keys of its secrets, while the gateway runs
      restore         Bring a backup back
      key             Exchange the key that seals secrets in the database, while gateways run
      environment     Have a CI job's Kubernetes resources be there, and end them
      forward         Bring ports of a workspace to this machine
      ssh             Log in to a workspace with SSH
      ssh-config      Let plain ssh, scp, rsync and editors find workspaces
      completions     Write what completes these commands in a shell
      man             Write a manual page for each command into a folder
      help            Print this message or the help of the given subcommand(s)

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
      gateway doctor                                what is wrong here, and how to mend it
      gateway login --gateway https://gw.example.com  sign in with a browser, here or elsewhere
      gateway token create --workspace my-app --out agent.token
      gateway workspace create my-app --agent cluster-1
      gateway workspace share my-app 3000 --with signed-in
      gateway git-credential set git.example.com < token
      gateway user disable ann                      lets a user in no more
      gateway audit search --workspace my-app       who did what, on all replicas
      gateway cluster show prod                     what workspaces take there, and how much they may
      gateway replicas list                         the gateways that share one database
      gateway backup --to gateway.backup            the database and its keys in one file
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
    for command in [
        "demo",
        "serve",
        "config",
        "token",
        "git-credential",
        "replicas",
        "environment",
        "audit",
        "user",
        "forward",
        "ssh",
        "ssh-config",
    ] {
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
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take(15).map(str::trim_end).collect();
    insta::assert_snapshot!(commands.join("\n"), @r"
      create     Make a workspace in a cluster, which is to run from then on
      start      Have a workspace run
      stop       Have a workspace stop; its storage is kept
      restart    Stop a workspace, and start it again once it has
      terminate  End a workspace for good, with its storage
      list       List workspaces: one's own and those shared by name over the API, all of them on the
                 gateway's machine
      keep       Keep a workspace from being stopped for idleness for a while
      idle       Set after how many minutes without use a workspace is stopped
      rename     Give a workspace the name that people read, or take it away
      hand-over  Give a workspace that runs elsewhere to another user
      templates  List the templates that workspaces of a cluster can be made from, and their parameters
      show       Show what is known of a workspace
      open       Print the address of a workspace or a port of it, and open it where there is a desktop
      share      Show who may reach which port, or change it
    ");
}
