//! `gateway`: parse, run, map the result to an exit status.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use gateway::app::App;
use gateway::cli::files::allow_open_files;
use gateway::cli::{
    Cli, Command, Console, Exit, run_ci_run, run_config, run_environment, run_forward, run_login, run_logout, run_ssh,
    run_ssh_config, run_token, run_user, run_whoami, run_workspace,
};
use gateway::config::{Config, process_environment};
use gateway::net::workers::Workers;
use gateway::store::wall_clock;
use gateway::{demo, telemetry};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Most of a request's cost beside the kernel's is many small allocations, which this one is quicker at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let env = process_environment();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()).into(),
    };
    let exit = runtime.block_on(run(&cli, &env));
    if matches!(cli.command, Command::Forward(_)) {
        // Whoever reads standard input cannot be called back.
        runtime.shutdown_background();
    }
    exit
}

async fn run(cli: &Cli, env: &BTreeMap<String, String>) -> ExitCode {
    let mut console = Console::process();
    let exit = match &cli.command {
        Command::CiRun(args) => return run_ci_run(args).await,
        Command::Config(args) => run_config(cli, args, env, &mut console),
        Command::Login(args) => run_login(args, env, &mut console).await,
        Command::Whoami(args) => run_whoami(args, env, &mut console).await,
        Command::Logout(args) => run_logout(args, env, &mut console).await,
        Command::Workspace(args) => run_workspace(cli, args, env, &mut console, wall_clock()).await,
        Command::User(args) => run_user(cli, args, env, &mut console, wall_clock()).await,
        Command::Environment(args) => run_environment(args, env, &mut console).await,
        Command::Token(args) => run_token(cli, args, env, &mut console, wall_clock()).await,
        Command::Forward(args) => run_forward(args, env, &mut console).await,
        Command::Ssh(args) => run_ssh(args, env, &mut console),
        Command::SshConfig(args) => run_ssh_config(args, env, &mut console),
        Command::Serve(_) => match load(cli, env) {
            // On the heap: it holds all that a gateway is built of.
            Ok(config) => finish(Box::pin(serve(config)).await),
            Err(exit) => exit,
        },
        Command::Demo(args) => match load(cli, env) {
            Ok(config) => finish(with_signals(|stop| demo::run(config, args, stop, announce)).await),
            Err(exit) => exit,
        },
    };
    exit.into()
}

fn load(cli: &Cli, env: &BTreeMap<String, String>) -> Result<Config, Exit> {
    match cli.load_config(env) {
        Ok(config) => {
            telemetry::start_logging(&config.log);
            telemetry::watch_panics();
            Ok(config)
        }
        Err(problems) => {
            // Nothing can be done about a closed standard error.
            drop(writeln!(std::io::stderr().lock(), "{problems}"));
            Err(Exit::BadConfig)
        }
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    allow_open_files(&config.limits);
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (workers, _threads) = Workers::start(&Handle::current(), count)?;
    let app = App::bind(config).await?;
    let addresses = app.addresses()?;
    tracing::info!(users = %addresses.public, agents = %addresses.agents, admin = ?addresses.admin, public_url = %app.config().public_url, "gateway is up");
    if let Some(link) = app.sign_in_link()? {
        writeln!(std::io::stdout().lock(), "Sign in with this link, once: {link}")?;
    }
    with_signals(async |stop| {
        app.run_on(&workers, stop).await;
        Ok(())
    })
    .await
}

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
        // A second signal means: now.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

fn announce(link: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n  Open this link (it works once):\n\n    {link}\n\n  Ctrl-C ends the demo.\n")?;
    out.flush()
}

fn finish(result: anyhow::Result<()>) -> Exit {
    match result {
        Ok(()) => Exit::Success,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> Exit {
    // Nothing can be done about a closed standard error.
    drop(writeln!(std::io::stderr().lock(), "gateway: {error:#}"));
    Exit::Failed
}
