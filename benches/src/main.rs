//! Program `loadlab`: parses the command line, runs the command, and maps its result to an exit status.

use std::process::ExitCode;

use clap::Parser;
use loadlab::cli::{BadConfig, Exit, LabCli};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Default log filter, which `RUST_LOG` overrides. Lines of a fleet's agents about redials are off: there are ten
/// thousand agents, and the fleet counts.
const LOG: &str = "warn,workspace_agent=off";

fn main() -> ExitCode {
    let cli = LabCli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOG));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(program_log::wants_colours())
        // The library would write them to standard error itself, and panic if it cannot.
        .log_internal_errors(false)
        .with_writer(program_log::stderr().writer())
        .init();
    program_log::watch_panics();
    raise_descriptors();
    let mut builder = match cli.threads() {
        Some(1) => tokio::runtime::Builder::new_current_thread(),
        Some(_) | None => tokio::runtime::Builder::new_multi_thread(),
    };
    let result = builder.enable_all().build().map_err(Into::into).and_then(|runtime| runtime.block_on(run(cli)));
    let exit = match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            program_log::stderr().say(format_args!("loadlab: {error:#}"));
            if error.is::<BadConfig>() { Exit::BadConfig.into() } else { Exit::Failed.into() }
        }
    };
    program_log::finish();
    exit
}

/// Runs the command; the first signal asks it to end with its results so far, the second ends it.
async fn run(cli: LabCli) -> anyhow::Result<Exit> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut work = std::pin::pin!(cli.run(stop.clone()));
    tokio::select! {
        result = &mut work => return result,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    tokio::select! {
        result = &mut work => result,
        _ = terminate.recv() => Ok(Exit::Failed),
        _ = interrupt.recv() => Ok(Exit::Failed),
    }
}

/// Lets this process have as many descriptors as it may: each connection is one.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of descriptors stays as it is");
    }
}
