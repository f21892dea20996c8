//! What is typed, what is printed where, and how it ends.

mod backup;
mod config;
mod help;
mod replicas;
mod tokens;
mod workspaces;

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
            GatewayCommand::Explain(args) => run_explain(args, &env, console).await,
            GatewayCommand::Whoami(args) => run_whoami(&cli, args, &env, console).await,
            GatewayCommand::Logout(args) => run_logout(args, &env, console).await,
            GatewayCommand::Environment(args) => run_environment(args, &env, console).await,
            GatewayCommand::GitCredential(args) => run_git_credential(args, &env, console).await,
            GatewayCommand::Audit(args) => run_audit(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await,
            GatewayCommand::Cluster(args) => run_cluster(args, &env, console).await,
            GatewayCommand::Replicas(args) => {
                run_replicas(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await
            }
            GatewayCommand::User(args) => run_user(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await,
            GatewayCommand::Backup(args) => {
                run_backup(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await
            }
            GatewayCommand::Restore(args) => {
                run_restore(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await
            }
            GatewayCommand::Key(args) => run_key(&cli, args, &env, console, UnixSeconds::new(1_800_000_000)).await,
            GatewayCommand::Demo(_)
            | GatewayCommand::Serve(_)
            | GatewayCommand::Doctor(_)
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
