//! `gateway forward`: ports of this machine that lead into a workspace, or standard input and output.

mod spec;
mod stdio;

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tunnel_link::causes;
use tunnel_link::raw::{CarriedBytes, RawSocket};
use tunnel_link::socket;

use super::client::GatewayClient;
use super::credentials::{Remote, SignedIn, signed_in};
use super::place::complain;
use super::tunnel::{PortTarget, Tunnel, TunnelError};
use super::workspace::idle::{warning, warning_in};
use super::{Console, Exit, Output};
use gateway_types::WorkspaceName;

pub(super) use self::spec::parse_workspace;
pub use self::spec::{BadForwarding, Forwarding};

const EXAMPLES: &str = "\
Examples:
  gateway forward my-app 5432                    127.0.0.1:5432 is port 5432 of my-app
  gateway forward my-app 15432:5432 6379         several at once
  gateway forward my-app 0:5432 --output json    any free port; prints which
  gateway forward my-app 0.0.0.0:8080:80         open to others on your network
  gateway forward --stdio my-app 22              for ssh's ProxyCommand; see gateway ssh-config

Each connection asks the gateway anew. What is open ends when your access does. Ctrl-C ends it all.";

/// Lines that may wait to be printed; above that they are left out, so that printing never holds bytes up.
const LINES_WAITING_MAX: usize = 256;

/// Pause of accepting when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Longest wait for whether the workspace is about to be stopped.
const WARNING_PATIENCE: Duration = Duration::from_secs(2);

/// Flags of `gateway forward`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ForwardArgs {
    /// The workspace.
    #[arg(value_name = "NAME", value_parser = parse_workspace)]
    pub workspace: WorkspaceName,
    /// Ports of the workspace, and where they are here [default: the same port of 127.0.0.1; 0 is any].
    #[arg(value_name = "[[ADDRESS:]LOCAL:]PORT", required = true)]
    pub forwardings: Vec<Forwarding>,
    /// Joins standard input and output with the one port, instead of listening.
    #[arg(long)]
    pub stdio: bool,
    /// Tells each connection.
    #[arg(long, short)]
    pub verbose: bool,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text, conflicts_with = "stdio")]
    pub output: Output,
    /// The gateway, and the identity there.
    #[command(flatten)]
    pub remote: Remote,
}

/// A listener and its destination.
struct ForwardedPort {
    listener: TcpListener,
    local: SocketAddr,
    target: PortTarget,
}

/// Runs `gateway forward`.
pub async fn run_forward(args: &ForwardArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let only = match args.forwardings.as_slice() {
        [only] if only.local.is_none() => Some(only),
        [_, ..] | [] => None,
    };
    if args.stdio && only.is_none() {
        console.complain("--stdio takes one port of the workspace and no local one");
        return Exit::Usage;
    }
    let signed_in = match signed_in(&args.remote, env) {
        Ok(signed_in) => signed_in,
        Err(error) => {
            console.complain(error);
            return Exit::Failed;
        }
    };
    let tunnel = match Tunnel::new(signed_in.clone()).await {
        Ok(tunnel) => tunnel,
        Err(error) => {
            console.complain_of(&error);
            return Exit::Failed;
        }
    };
    match only.filter(|_| args.stdio) {
        Some(only) => {
            let target = PortTarget { workspace: args.workspace.clone(), port: only.port };
            let carried = stdio::carry(&tunnel, &target);
            match beside_warning(carried, signed_in, &args.workspace, console).await {
                Ok(_copied) => Exit::Success,
                Err(error) => {
                    console.complain_of(&error);
                    Exit::Failed
                }
            }
        }
        None => match refused_ahead(signed_in, &tunnel, args, console).await {
            Ok(()) => listen(args, Arc::new(tunnel), console).await,
            Err(error) => complain(&*error, console),
        },
    }
}

/// Runs a stream, and beside it tells its user if the workspace is about to be stopped: it is not waited for.
async fn beside_warning<T>(
    carried: impl Future<Output = T>,
    signed_in: SignedIn,
    workspace: &WorkspaceName,
    console: &mut Console,
) -> T {
    let SignedIn { gateway, token, ca_file } = signed_in;
    let warn = async {
        let client = GatewayClient::new(&gateway, Some(&token), ca_file.as_deref()).ok()?;
        timeout(WARNING_PATIENCE, warning(&client, workspace)).await.ok()?
    };
    let mut carried = std::pin::pin!(carried);
    tokio::select! {
        biased;
        done = &mut carried => return done,
        told = warn => {
            if let Some(told) = told {
                console.hint(told);
            }
        }
    }
    carried.await
}

/// Checks that the workspace exists before anything is promised about its ports; returns the reason if not. The API
/// does not show a workspace that is open to all users and shared with none by name: there, a port is tried.
async fn refused_ahead(
    signed_in: SignedIn,
    tunnel: &Tunnel,
    args: &ForwardArgs,
    console: &mut Console,
) -> Result<(), Box<dyn Error>> {
    let SignedIn { gateway, token, ca_file } = signed_in;
    let client = GatewayClient::new(&gateway, Some(&token), ca_file.as_deref())?;
    let asked: Result<serde_json::Value, _> = client.get(&format!("/workspaces/{}", args.workspace)).await;
    let error = match asked {
        Ok(found) => {
            if let Some(told) = warning_in(found, &args.workspace) {
                console.hint(told);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    match (error.code(), args.forwardings.first()) {
        (Some("not_found"), Some(first)) => {
            let target = PortTarget { workspace: args.workspace.clone(), port: first.port };
            match tunnel.open(&target).await {
                Err(TunnelError::Refused(refusal)) if refusal.is_of("no_such_host") => {
                    Err(TunnelError::Refused(refusal).into())
                }
                Ok(_) | Err(_) => Ok(()),
            }
        }
        (Some("sign_in_required"), _) => Err(error.into()),
        // Each connection reports its own error.
        (Some(_) | None, _) => Ok(()),
    }
}

/// Listens until a signal.
async fn listen(args: &ForwardArgs, tunnel: Arc<Tunnel>, console: &mut Console) -> Exit {
    let mut ways = Vec::new();
    for forwarding in &args.forwardings {
        match bind(&args.workspace, forwarding).await {
            Ok(way) => ways.push(way),
            Err(error) => {
                let place = forwarding.address();
                console.complain(format_args!("cannot listen on {place}: {error}; name another port, or 0 for any"));
                return Exit::Failed;
            }
        }
    }
    for way in ways.iter().filter(|way| !way.local.ip().is_loopback()) {
        console.report(format_args!("warning: every client that reaches {} reaches {} as you", way.local, way.target));
    }
    let stops = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(interrupt), Ok(terminate)) = stops else {
        console.complain("the system does not tell of signals");
        return Exit::Failed;
    };
    if console.data(show(&ways, args.output)).is_err() {
        return Exit::Failed;
    }
    let (lines, said) = mpsc::channel(LINES_WAITING_MAX);
    let mut listeners = JoinSet::new();
    for way in ways {
        listeners.spawn(serve(way, tunnel.clone(), ForwardReports { lines: lines.clone(), is_verbose: args.verbose }));
    }
    until_stopped(said, interrupt, terminate, console).await;
    // Their connections end with them.
    listeners.shutdown().await;
    Exit::Success
}

async fn until_stopped(
    mut said: mpsc::Receiver<String>,
    mut interrupt: Signal,
    mut terminate: Signal,
    console: &mut Console,
) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => return,
            _ = terminate.recv() => return,
            Some(line) = said.recv() => console.report(line),
        }
    }
}

async fn bind(workspace: &WorkspaceName, forwarding: &Forwarding) -> io::Result<ForwardedPort> {
    let listener = TcpListener::bind(forwarding.address()).await?;
    let local = listener.local_addr()?;
    Ok(ForwardedPort { listener, local, target: PortTarget { workspace: workspace.clone(), port: forwarding.port } })
}

fn show(ways: &[ForwardedPort], output: Output) -> String {
    match output {
        Output::Text => {
            let lines: Vec<_> = ways.iter().map(|way| format!("{} is {}", way.local, way.target)).collect();
            lines.join("\n")
        }
        Output::Json => {
            let rows: Vec<_> = ways
                .iter()
                .map(|way| {
                    let PortTarget { workspace, port } = &way.target;
                    json!({ "local": way.local.to_string(), "workspace": workspace.as_str(), "port": port.get() })
                })
                .collect();
            format!("{:#}", json!(rows))
        }
    }
}

/// Queue for the reports of connections.
#[derive(Clone)]
struct ForwardReports {
    lines: mpsc::Sender<String>,
    is_verbose: bool,
}

impl ForwardReports {
    /// Reports a failure, whether verbose or not.
    fn failed(&self, line: String) {
        // A line that the printer has no time for is left out.
        self.lines.try_send(line).ok();
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if self.is_verbose {
            self.failed(line());
        }
    }
}

/// Takes connections, each with a stream of its own.
async fn serve(way: ForwardedPort, tunnel: Arc<Tunnel>, report: ForwardReports) {
    let ForwardedPort { listener, target, .. } = way;
    let target = Arc::new(target);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(connect(stream, peer, target.clone(), tunnel.clone(), report.clone()));
                }
                Err(error) => {
                    report.failed(format!("cannot take a connection to {target}: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    target: Arc<PortTarget>,
    tunnel: Arc<Tunnel>,
    report: ForwardReports,
) {
    report.tell(|| format!("{peer} connects to {target}"));
    // A socket that is gone says so at the first read.
    socket::tune(&stream).ok();
    let (local, ended) = tunnel.carry(&target, RawSocket::new(stream)).await;
    match ended {
        Ok(CarriedBytes { inward, outward }) => {
            report.tell(|| format!("{peer} is done with {target}: {outward} bytes sent, {inward} received"));
        }
        Err(error) => {
            // So that the program at this end does not take it for a good end.
            local.into_inner().set_zero_linger().ok();
            report.failed(format!("{peer}: {}", causes::with_remedy(&error, "--ca-file")));
        }
    }
}
