//! `gateway`: parses the command line, runs the command, and maps its result to an exit status.

mod successor;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gateway::app::{App, ConfigSource, Inheritance, StartError, configured_provider};
use gateway::demo;
use gateway_cli::files::allow_open_files;
use gateway_cli::{
    Cli, Console, Exit, GatewayCommand, asks_for_json, preflight, run_audit, run_backup, run_ci_run, run_cluster,
    run_completions, run_config, run_environment, run_explain, run_forward, run_git_credential, run_key, run_login,
    run_logout, run_man, run_replicas, run_restore, run_ssh, run_ssh_config, run_token, run_user, run_whoami,
    run_workspace,
};
use gateway_config::{Config, process_environment};
use gateway_doctor::run_doctor;
use gateway_net::inherited::InheritedSockets;
use gateway_net::telemetry;
use gateway_net::workers::Workers;
use gateway_store::{SingleError, wall_clock};
use program_log::{finish, stderr, stdout, watch_panics};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tunnel_link::causes;
use tunnel_link::memory::giving_back;

/// Most of a request's cost beside the kernel's is many small allocations, which this allocator is quicker at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Wait at the end for a thread that is in the middle of reading or writing a file.
const BLOCKED_GRACE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let is_json = asks_for_json(std::env::args_os().skip(1));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error, is_json),
    };
    let env = process_environment();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()).into(),
    };
    let exit = runtime.block_on(run(&cli, &env, is_json));
    if matches!(cli.command, GatewayCommand::Forward(_)) {
        // A thread that reads standard input cannot be interrupted.
        runtime.shutdown_background();
    } else {
        // Nor can a thread that writes to a disk or a pipe that takes nothing.
        runtime.shutdown_timeout(BLOCKED_GRACE);
    }
    finish();
    exit
}

/// Reports what is wrong with a command line; to programs as JSON.
fn misused(error: &clap::Error, is_json: bool) -> ExitCode {
    if !is_json || !error.use_stderr() {
        // Nothing can be done about a closed stream.
        error.print().unwrap_or_default();
        return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    let mut console = Console::process().with_json_failures(true);
    console.complain(error.to_string().trim_end());
    console.end(Exit::Usage);
    Exit::Usage.into()
}

async fn run(cli: &Cli, env: &BTreeMap<String, String>, is_json: bool) -> ExitCode {
    let mut console = Console::process().with_json_failures(is_json);
    let exit = match &cli.command {
        GatewayCommand::CiRun(args) => return run_ci_run(args).await,
        GatewayCommand::Config(args) => run_config(cli, args, env, &mut console),
        GatewayCommand::Doctor(args) => {
            let provider = |config: &Config| configured_provider(config).map_err(|error| error.to_string());
            Box::pin(run_doctor(cli, args, env, &mut console, provider)).await
        }
        GatewayCommand::Login(args) => run_login(args, env, &mut console).await,
        GatewayCommand::Explain(args) => run_explain(args, env, &mut console).await,
        GatewayCommand::Whoami(args) => run_whoami(cli, args, env, &mut console).await,
        GatewayCommand::Logout(args) => run_logout(args, env, &mut console).await,
        GatewayCommand::Workspace(args) => run_workspace(cli, args, env, &mut console, wall_clock()).await,
        GatewayCommand::GitCredential(args) => run_git_credential(args, env, &mut console).await,
        GatewayCommand::User(args) => run_user(cli, args, env, &mut console, wall_clock()).await,
        GatewayCommand::Audit(args) => run_audit(cli, args, env, &mut console, wall_clock()).await,
        GatewayCommand::Cluster(args) => run_cluster(args, env, &mut console).await,
        GatewayCommand::Replicas(args) => run_replicas(cli, args, env, &mut console, wall_clock()).await,
        GatewayCommand::Backup(args) => Box::pin(run_backup(cli, args, env, &mut console, wall_clock())).await,
        GatewayCommand::Restore(args) => Box::pin(run_restore(cli, args, env, &mut console, wall_clock())).await,
        GatewayCommand::Key(args) => run_key(cli, args, env, &mut console, wall_clock()).await,
        GatewayCommand::Environment(args) => run_environment(args, env, &mut console).await,
        GatewayCommand::Token(args) => run_token(cli, args, env, &mut console, wall_clock()).await,
        GatewayCommand::Forward(args) => run_forward(args, env, &mut console).await,
        GatewayCommand::Ssh(args) => run_ssh(args, env, &mut console).await,
        GatewayCommand::SshConfig(args) => run_ssh_config(args, env, &mut console).await,
        GatewayCommand::Completions(args) => run_completions(args, &mut console),
        GatewayCommand::Man(args) => run_man(args, &mut console),
        GatewayCommand::Serve(args) => match load(cli, env).and_then(ready) {
            // On the heap: it holds all parts of a gateway.
            Ok(config) => ended(Box::pin(serve(config, args.replace, source(cli, env))).await),
            Err(exit) => exit,
        },
        GatewayCommand::Demo(args) => match load(cli, env) {
            Ok(config) => ended(Box::pin(with_signals(|stop| demo::run(config, args, stop, announce))).await),
            Err(exit) => exit,
        },
    };
    console.end(exit);
    exit.into()
}

fn load(cli: &Cli, env: &BTreeMap<String, String>) -> Result<Config, Exit> {
    match cli.load_config(env) {
        Ok(config) => {
            telemetry::start_logging(&config.log);
            watch_panics();
            Ok(config)
        }
        Err(problems) => {
            stderr().say(problems);
            Err(Exit::BadConfig)
        }
    }
}

/// Returns what reads the configuration anew, of the same file, variables and flags, and opens everything that it names.
fn source(cli: &Cli, env: &BTreeMap<String, String>) -> ConfigSource {
    let (cli, env) = (cli.clone(), env.clone());
    ConfigSource::new(move || {
        let config =
            cli.load_config(&env).map_err(|bad| bad.to_string().lines().map(str::to_owned).collect::<Vec<_>>())?;
        let found = preflight::look(&config);
        if found.problems.is_empty() {
            Ok(config)
        } else {
            Err(found.problems.iter().map(ToString::to_string).collect())
        }
    })
}

/// Opens everything that the configuration names, so that all its mistakes are reported at once.
fn ready(config: Config) -> Result<Config, Exit> {
    let found = preflight::look(&config);
    for warning in found.warnings.iter().chain(&found.later) {
        tracing::warn!("{warning}");
    }
    if found.problems.is_empty() {
        return Ok(config);
    }
    for problem in &found.problems {
        stderr().say(format_args!("{problem}"));
    }
    Err(Exit::BadConfig)
}

async fn serve(config: Config, replaces: bool, source: ConfigSource) -> anyhow::Result<()> {
    allow_open_files(&config);
    let inherited = Inheritance::of_manager(InheritedSockets::from_environment()?);
    let taken = if replaces { Inheritance::of_running(&config).await? } else { None };
    if replaces && taken.is_none() {
        tracing::info!("no gateway runs with this database that could be replaced");
    }
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (workers, _threads) = Workers::start(&Handle::current(), count)?;
    let app = App::bind_with(config, taken.unwrap_or(inherited)).await?.reloading(source);
    let replaced = app.replaced();
    let addresses = app.addresses()?;
    let admin = addresses.admin.map_or_else(|| "off".into(), |address| address.to_string());
    tracing::info!(users = %addresses.public, agents = %addresses.agents, admin = %admin, public_url = %app.config().public_url, "gateway is up");
    if let Some(link) = app.sign_in_link()? {
        stdout().say(format_args!("Sign in with this link, once: {link}"));
    }
    successor::say_that_this_serves();
    with_signals(async |stop| {
        tokio::select! {
            _drained = giving_back(Box::pin(app.run_on(&workers, stop))) => {}
            Err(error) = successor::start_on_signal() => return Err(error.into()),
        }
        if replaced.is_cancelled() { Err(Replaced.into()) } else { Ok(()) }
    })
    .await
}

/// Another gateway serves the database by now.
#[derive(Debug, thiserror::Error)]
#[error("another gateway serves the same database by now, and this version serves one gateway per database")]
struct Replaced;

/// Runs `work` with a token that SIGINT and SIGTERM cancel.
async fn with_signals<F, W>(work: W) -> anyhow::Result<()>
where
    W: FnOnce(CancellationToken) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut work = std::pin::pin!(work(stop.clone()));
    tokio::select! {
        result = &mut work => return result,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    tokio::select! {
        result = &mut work => result,
        // A second signal ends it at once.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

fn announce(link: &str) {
    stdout().say(format_args!("\n  Open this link (it works once):\n\n    {link}\n\n  Ctrl-C ends the demo.\n"));
}

fn ended(result: anyhow::Result<()>) -> Exit {
    match result {
        Ok(()) => Exit::Success,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> Exit {
    stderr().say(format_args!("gateway: {}", causes::with_remedy(error.as_ref(), "--ca-file")));
    let is_second =
        matches!(error.downcast_ref(), Some(StartError::Single(SingleError::Taken { .. }))) || error.is::<Replaced>();
    if is_second { Exit::BadConfig } else { Exit::Failed }
}
