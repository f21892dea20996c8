//! `loadlab app`.

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Exit;
use crate::app::serve;

/// Flags of `loadlab app`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  loadlab app --listen 127.0.0.1:3000      in the workspace; then run profiles against its URL for port 3000
  loadlab app                              on a free port, which is printed")]
pub(super) struct AppArgs {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Threads that serve
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
}

/// Serves the app until the program is stopped. The address is printed alone on standard output.
pub(super) async fn run(arguments: &AppArgs, stop: CancellationToken) -> anyhow::Result<Exit> {
    let listener = std::net::TcpListener::bind(arguments.listen);
    let listener = listener.with_context(|| format!("listening on {}", arguments.listen))?;
    listener.set_nonblocking(true)?;
    let mut threads = Vec::new();
    for _ in 1..arguments.threads {
        let (listener, stop) = (listener.try_clone()?, stop.clone());
        threads.push(std::thread::Builder::new().name("app".to_owned()).spawn(move || -> std::io::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { serve(TcpListener::from_std(listener)?, stop).await })
        })?);
    }
    program_log::stdout().say(listener.local_addr()?);
    serve(TcpListener::from_std(listener)?, stop).await?;
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a thread of the app panicked"))??;
    }
    Ok(Exit::Passed)
}
