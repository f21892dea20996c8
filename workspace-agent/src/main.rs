//! `workspace-agent`: in a workspace, in a CI job, or beside a Kubernetes cluster.

use std::process::ExitCode;

/// An agent's work is small messages, and each is an allocation or two.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    workspace_agent::program::whole()
}
