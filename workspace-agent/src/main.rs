//! `workspace-agent`: parse, run, map the result to an exit status.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use workspace_agent::Ended;
use workspace_agent::cli::{Cli, Command};

/// Exit status for a configuration that cannot work (`EX_USAGE` of sysexits).
const BAD_CONFIGURATION: u8 = 64;

/// Exit status of an agent whose workspace is not to run: whoever supervises it need not start it again.
const WORKSPACE_STOPPED: u8 = 3;

/// An agent's work is small messages, and each is an allocation or two.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let filter = EnvFilter::try_from_env("WORKSPACE_AGENT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    match command {
        Command::Run(arguments) => match arguments.options() {
            // One thread: an agent moves bytes for one workspace and has to stay small.
            Ok(options) => finish(Builder::new_current_thread(), |stop| workspace_agent::run(options, stop)),
            Err(error) => fail(&error, BAD_CONFIGURATION),
        },
        #[cfg(feature = "cluster")]
        Command::Cluster(arguments) => match arguments.options() {
            // Two: what a large cluster sends is read beside the session, which has to answer in time.
            Ok(options) => {
                let mut two = Builder::new_multi_thread();
                two.worker_threads(2);
                finish(two, |stop| workspace_agent::cluster::run(options, stop))
            }
            Err(error) => fail(&error, BAD_CONFIGURATION),
        },
    }
}

/// Runs an agent until it ends or a signal asks it to.
fn finish<F, E>(mut runtime: Builder, agent: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = Result<(), E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into(), 1),
    };
    match runtime.block_on(until_signal(agent)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, status_of(&error)),
    }
}

/// Returns the exit status that tells why an agent ended.
fn status_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Ended>() {
        Some(Ended::WorkspaceStopped { .. }) => WORKSPACE_STOPPED,
        Some(Ended::Refused { .. } | Ended::Displaced | Ended::Revoked { .. } | Ended::Token { .. }) | None => 1,
    }
}

async fn until_signal<F, E>(agent: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<()>
where
    F: Future<Output = Result<(), E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut agent = std::pin::pin!(agent(stop.clone()));
    tokio::select! {
        result = &mut agent => return Ok(result?),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    Ok(agent.await?)
}

fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    // Nothing can be done about a closed standard error.
    drop(writeln!(std::io::stderr().lock(), "workspace-agent: {error:#}"));
    ExitCode::from(status)
}
