//! Private network to measure in: only loopback, with the packet size of a real link and the same congestion control
//! everywhere.
//!
//! Loopback's own packets of 64 KiB turn a missing `TCP_NODELAY` into stalls of 44 ms that no real link shows, and a
//! congestion control that paces (BBR) halves what loopback carries. Nothing of the machine's own network is changed:
//! the namespace goes away with the command.

use std::process::ExitStatus;

use anyhow::Context as _;
use tokio::process::Command;

use crate::peer::program::locate;

/// Variable that is set inside the namespace, to its description.
const INSIDE: &str = "LOADLAB_NETWORK";

/// Description of the namespace, for the page.
const PRIVATE: &str = "a network namespace with only loopback, MTU 1500, congestion control cubic";

/// Script inside the new namespace: loopback up, its two local routes with cubic, then the command.
const SCRIPT: &str = "ip link set lo mtu 1500 up && \
     ip route replace table local local 127.0.0.0/8 dev lo proto kernel scope host src 127.0.0.1 congctl cubic && \
     ip route replace table local local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 congctl cubic && \
     exec \"$@\"";

/// Network to measure in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LabNetwork {
    /// In a namespace if this is root and the programs `unshare` and `ip` are here, else on the machine's loopback.
    Auto,
    /// In a namespace of its own.
    Private,
    /// On the machine's loopback.
    Host,
}

/// Place of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceEntry {
    /// In this process.
    Here,
    /// It was done by this program run again inside the namespace.
    Elsewhere,
}

/// Runs this program again inside a namespace of its own, or says that the work is to be done here.
///
/// # Errors
/// Fails if a namespace is wanted and cannot be had, or if the program failed inside it.
pub async fn enter(network: LabNetwork) -> anyhow::Result<NamespaceEntry> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(NamespaceEntry::Here);
    }
    let reason = match network {
        LabNetwork::Host => return Ok(NamespaceEntry::Here),
        LabNetwork::Auto | LabNetwork::Private => obstacle(),
    };
    match (network, reason) {
        (LabNetwork::Private, Some(reason)) => anyhow::bail!("no network namespace: {reason}"),
        (_, Some(_)) => return Ok(NamespaceEntry::Here),
        (_, None) => {}
    }
    let own = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", SCRIPT, "loadlab"]).arg(own).args(std::env::args_os().skip(1));
    let status: ExitStatus = command.env(INSIDE, PRIVATE).status().await.context("running unshare")?;
    anyhow::ensure!(status.success(), "the run inside the network namespace failed ({status}); see above");
    Ok(NamespaceEntry::Elsewhere)
}

fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    let absent = ["unshare", "ip", "sh"].into_iter().find(|program| locate(program).is_none())?;
    Some(format!("the program {absent} is not on PATH"))
}

/// Describes the network in which this process measures.
#[must_use]
pub fn describe() -> String {
    std::env::var(INSIDE).unwrap_or_else(|_| {
        let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let mtu = read("/sys/class/net/lo/mtu");
        let control = read("/proc/sys/net/ipv4/tcp_congestion_control");
        format!("the machine's loopback, MTU {mtu}, congestion control {control}")
    })
}
