//! Main functions of this package's two programs. One is everything; the other leaves `cluster` out, and with it a
//! Kubernetes client that makes up more than half of a program which every workspace has to hold.

use std::process::ExitCode;

use clap::Parser;
use program_log::{stderr, stdout, wants_colours, watch_panics};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tunnel_link::causes;
use tunnel_link::memory::giving_back;

use crate::cli::{
    AgentCli, CiArguments, DoctorArguments, DoctorOutput, GitCredentialArguments, RunArguments, WorkspaceCommand,
};
use crate::dial::Observer;
use crate::git_credential::{self, HelperAction};
use crate::{AgentEvent, DialEnded, Options, announce, busy, ci, doctor};

/// Exit status for a configuration that cannot work (`EX_USAGE` of sysexits).
const BAD_CONFIGURATION: u8 = 64;

/// Exit status of an agent whose workspace is not to run: its supervisor need not start it again.
const WORKSPACE_STOPPED: u8 = 3;

/// Runs `workspace-agent-slim`: parses, runs, maps the result to an exit status.
#[must_use]
pub fn slim() -> ExitCode {
    let exit = workspace(AgentCli::parse().command);
    program_log::finish();
    exit
}

/// Runs `workspace-agent`: parses, runs, maps the result to an exit status.
#[cfg(feature = "cluster")]
#[must_use]
pub fn whole() -> ExitCode {
    let exit = match AgentCli::parse().command {
        crate::cli::AgentCommand::Workspace(command) => workspace(command),
        crate::cli::AgentCommand::Cluster(arguments) => {
            log(LevelFilter::INFO);
            match arguments.options() {
                // Two threads: what a large cluster sends is read beside the session, which has to answer in time.
                Ok(options) => {
                    let mut two = Builder::new_multi_thread();
                    two.worker_threads(2);
                    finish(two, |stop| crate::cluster::run(options, stop))
                }
                Err(error) => fail(&error, BAD_CONFIGURATION),
            }
        }
    };
    program_log::finish();
    exit
}

/// Begins the log, at this level by default. Levels and targets only: filters by field would bring an engine for
/// regular expressions into every workspace.
fn log(level: LevelFilter) {
    let said = std::env::var("WORKSPACE_AGENT_LOG").unwrap_or_default();
    let filter = filter(&said, level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(stderr().writer())
        .with_ansi(wants_colours())
        // The layer would write them to standard error itself, and panic where that cannot be done.
        .log_internal_errors(false)
        .with_target(false);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    watch_panics();
}

/// Reads the filter of the log: one level, or levels of targets, which count as they are. `level` is for a text that is
/// neither.
fn filter(said: &str, level: LevelFilter) -> Targets {
    let said = Some(said).filter(|said| !said.is_empty());
    match said.and_then(|said| said.parse().ok()) {
        Some(level) => of_level(level),
        None => said.and_then(|said| said.parse().ok()).unwrap_or_else(|| of_level(level)),
    }
}

/// Lets everything of a level through, except what the Kubernetes client says of each try: its caller reports a failure
/// once, and not at all if the next try went well. The client also logs an answer that it cannot read with all that is
/// in it, Secrets too.
fn of_level(level: LevelFilter) -> Targets {
    let all = Targets::new().with_default(level);
    // Debug and trace ask for all details.
    if level > LevelFilter::INFO {
        return all;
    }
    let errors = level.min(LevelFilter::ERROR);
    all.with_target("kube_runtime", errors)
        .with_target("kube_client::client", LevelFilter::OFF)
        .with_target("kube_client::client::tls", level)
}

fn workspace(command: WorkspaceCommand) -> ExitCode {
    match command {
        WorkspaceCommand::Run(arguments) => {
            log(LevelFilter::INFO);
            match observed(arguments) {
                // One thread: an agent moves bytes for one workspace and has to stay small.
                Ok((options, observer)) => {
                    finish(Builder::new_current_thread(), |stop| crate::run_observed(options, observer, stop))
                }
                Err(error) => fail(&error, BAD_CONFIGURATION),
            }
        }
        WorkspaceCommand::Ci(arguments) => {
            // Standard error belongs to the command.
            log(LevelFilter::OFF);
            wrap(arguments)
        }
        WorkspaceCommand::GitCredential(arguments) => {
            log(LevelFilter::OFF);
            help_git(arguments)
        }
        WorkspaceCommand::Doctor(arguments) => {
            log(LevelFilter::OFF);
            examine(*arguments)
        }
        WorkspaceCommand::Busy(arguments) => {
            // Standard error belongs to the command.
            log(LevelFilter::OFF);
            let runtime = Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from);
            let ended = runtime.and_then(|runtime| runtime.block_on(busy::run(arguments)));
            ended.unwrap_or_else(|error| fail(&error, 1))
        }
        WorkspaceCommand::CiWitness => {
            let runtime = Builder::new_current_thread().enable_all().build();
            let ended = runtime.and_then(|runtime| runtime.block_on(ci::signal_probe::be()));
            ended.unwrap_or(ExitCode::FAILURE)
        }
    }
}

/// Reads the options of an agent, and makes the observer that tells people and probes of it.
fn observed(mut arguments: RunArguments) -> anyhow::Result<(Options, Observer)> {
    let ready_file = arguments.ready_file.take();
    let options = arguments.options()?;
    let mut person = announce::observer(&options);
    let Some(path) = ready_file else { return Ok((options, person)) };
    let mut probe = announce::ready_file(path);
    let both = move |event: AgentEvent<'_>| {
        probe(event);
        person(event);
    };
    Ok((options, Box::new(both)))
}

/// Serves one request of git.
fn help_git(arguments: GitCredentialArguments) -> ExitCode {
    let Some(action) = HelperAction::parse(&arguments.action) else { return ExitCode::SUCCESS };
    let options = match arguments.options() {
        Ok(options) => options,
        Err(error) => return fail(&error, BAD_CONFIGURATION),
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into(), 1),
    };
    let helped =
        runtime.block_on(git_credential::help(action, &options, std::io::stdin().lock(), std::io::stdout().lock()));
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    match helped {
        Ok(words) => {
            for line in words.iter().flat_map(|words| words.lines()) {
                stderr().say(format_args!("workspace-agent: {line}"));
            }
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.into(), 1),
    }
}

/// Looks around, and prints what was found.
fn examine(arguments: DoctorArguments) -> ExitCode {
    let (strict, output) = (arguments.strict, arguments.output);
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into(), 1),
    };
    let report = runtime.block_on(doctor::look(arguments.options()));
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    match output {
        DoctorOutput::Text => stdout().say(report.text()),
        DoctorOutput::Json => stdout().say(format_args!("{:#}", report.json())),
    }
    if report.is_good(strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the command of a CI job, whatever is wrong with anything else.
fn wrap(arguments: CiArguments) -> ExitCode {
    let (command, options) = arguments.options();
    let alone = |why: Option<String>| {
        if let Some(why) = why {
            ci::say(&format!("this job will not be held open: {why}"));
        }
        command.become_it(ci::say)
    };
    let end = match options.map_err(|error| format!("{error:#}")) {
        Err(why) => alone(Some(why)),
        Ok(None) => alone(None),
        Ok(Some(options)) => match Builder::new_current_thread().enable_all().build() {
            Err(error) => alone(Some(error.to_string())),
            Ok(runtime) => {
                let ended = runtime.block_on(giving_back(Box::pin(ci::run(options, ci::say))));
                // Work that still waits, for a name to be resolved for example, is not waited for.
                runtime.shutdown_background();
                ended.unwrap_or_else(|error| alone(Some(error.to_string())))
            }
        },
    };
    // A command that a signal ended ends this process right here.
    program_log::finish();
    end.finish()
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
    match runtime.block_on(giving_back(Box::pin(until_signal(agent)))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, status_of(&error)),
    }
}

/// Returns the exit status that tells why an agent ended.
fn status_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<DialEnded>() {
        Some(DialEnded::WorkspaceStopped { .. }) => WORKSPACE_STOPPED,
        Some(
            DialEnded::Refused { .. } | DialEnded::Displaced | DialEnded::Revoked { .. } | DialEnded::Token { .. },
        )
        | None => 1,
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
    stderr().say(format_args!("workspace-agent: {}", causes::one_line(error.as_ref())));
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn log_repeats_no_warnings_of_the_kubernetes_client_unless_details_are_asked_for() {
        for said in ["", "info", "INFO", "warn", "nonsense=nonsense"] {
            let filter = filter(said, LevelFilter::INFO);
            for target in ["kube_runtime::watcher", "kube_client::client", "kube_client::client::builder"] {
                assert!(!filter.would_enable(target, &Level::WARN), "{said} {target}");
            }
            assert!(filter.would_enable("kube_runtime::watcher", &Level::ERROR), "{said}");
            // One for each try, whatever becomes of the next.
            assert!(!filter.would_enable("kube_client::client::builder", &Level::ERROR), "{said}");
            for target in ["agent_cluster::watch", "kube_client::client::tls", "kube_client::config"] {
                assert!(filter.would_enable(target, &Level::WARN), "{said} {target}");
            }
        }
        for said in ["debug", "info,kube_runtime=warn"] {
            assert!(filter(said, LevelFilter::INFO).would_enable("kube_runtime::watcher", &Level::WARN), "{said}");
        }
    }

    #[test]
    fn log_is_silent_where_it_is_off() {
        for target in ["workspace_agent", "kube_runtime::watcher", "kube_client::client::tls"] {
            assert!(!filter("", LevelFilter::OFF).would_enable(target, &Level::ERROR), "{target}");
            assert!(!filter("off", LevelFilter::INFO).would_enable(target, &Level::ERROR), "{target}");
            assert!(filter("warn", LevelFilter::OFF).would_enable("workspace_agent", &Level::WARN));
        }
    }
}
