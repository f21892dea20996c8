//! `gateway ci-run`: not for people. The gateway starts it, to watch over a CI job that a program on this machine runs.

use std::process::ExitCode;

use clap::Args;

use gateway_ci::provider::RunKey;
use gateway_ci::provider::command::{become_program, supervise};

/// Flags of `gateway ci-run`.
#[derive(Clone, Debug, Args)]
pub struct CiRunArgs {
    /// Key of the run.
    #[arg(value_name = "KEY")]
    pub key: RunKey,
    /// Be the program that the supervisor with this process number watches over.
    #[arg(long, value_name = "PID")]
    pub program_of: Option<u32>,
}

/// Watches over a run in the working folder, or becomes its program.
pub async fn run_ci_run(args: &CiRunArgs) -> ExitCode {
    match args.program_of {
        Some(supervisor) => become_program(&args.key, supervisor),
        None => supervise(&args.key).await,
    }
}
