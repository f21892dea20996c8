//! `workspace-agent`: parse, run, map the result to an exit status.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use workspace_agent::cli::{Cli, Command};

/// Exit status for a configuration that cannot work (`EX_USAGE` of sysexits).
const BAD_CONFIGURATION: u8 = 64;

/// An agent's work is small messages, and each is an allocation or two.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Command::Run(arguments) = Cli::parse().command;
    let filter = EnvFilter::try_from_env("WORKSPACE_AGENT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    let options = match arguments.options() {
        Ok(options) => options,
        Err(error) => return fail(&error, BAD_CONFIGURATION),
    };
    // One thread: an agent moves bytes for one workspace and has to stay small.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into(), 1),
    };
    match runtime.block_on(run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

async fn run(options: workspace_agent::Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let agent = workspace_agent::run(options, stop.clone());
    let mut agent = std::pin::pin!(agent);
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
