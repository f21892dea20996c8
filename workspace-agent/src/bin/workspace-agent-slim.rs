//! `workspace-agent-slim`: `workspace-agent` without `cluster`, for images of workspaces.

use std::process::ExitCode;

/// An agent's work is small messages, and each is an allocation or two.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    workspace_agent::program::slim()
}
