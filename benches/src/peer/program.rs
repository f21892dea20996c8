//! Programs of peers: finds them, asks for their versions, and runs them as processes that end with their owner.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use rand::Rng as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::lab::usage::tree;

/// Range of ports, below the one from which the system picks the ports of outgoing connections, so that a port found
/// free is not gone again before the peer binds it.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Time limit for a program to listen.
const LISTEN_DEADLINE: Duration = Duration::from_secs(15);

/// Folders searched after `PATH`: daemons live there, and the `PATH` of a plain user lacks them.
const SBIN: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Program of a peer, and its source.
#[derive(Debug, Clone, Copy)]
pub struct PeerProgram {
    /// The program's name on `PATH`.
    pub name: &'static str,
    /// The argument that makes it print its version.
    pub version: &'static str,
    /// Way to install it.
    pub source: &'static str,
}

/// The programs a peer is made of.
#[derive(Debug, Clone, Copy)]
pub struct Programs(pub &'static [PeerProgram]);

impl Programs {
    /// Names the first program that is not here, with how to get it.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.0
            .iter()
            .find(|needed| locate(needed.name).is_none())
            .map(|needed| format!("the program {} is not on PATH ({})", needed.name, needed.source))
    }

    /// Returns what each program prints as its version, one line each, joined.
    pub async fn versions(&self) -> String {
        let mut lines = Vec::new();
        for needed in self.0.iter().filter(|needed| !needed.version.is_empty()) {
            lines.push(version_of(needed.name, needed.version).await.unwrap_or_else(|| format!("{}: ?", needed.name)));
        }
        lines.join("; ")
    }
}

/// Returns the whole path of a program: `NAME` upper-cased in the environment first, then `PATH`, then the folders of
/// daemons.
#[must_use]
pub fn locate(name: &str) -> Option<PathBuf> {
    let variable = name.to_uppercase().replace(['-', '+'], "_");
    if let Some(given) = std::env::var_os(format!("LOADLAB_{variable}")) {
        return Some(PathBuf::from(given)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SBIN.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Runs a program for its version and returns the line that says it.
async fn version_of(name: &str, argument: &str) -> Option<String> {
    let output = Command::new(locate(name)?).arg(argument).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(5), output).await.ok()?.ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    version_line(name, &text)
}

/// Picks the line with the version and puts the program's name in front if the line lacks it.
fn version_line(name: &str, text: &str) -> Option<String> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines()
        .find(|line| line.starts_with("Build Version:"))
        .or_else(|| lines().find(|line| line.chars().any(|letter| letter.is_ascii_digit())))?;
    let line = line.trim_start_matches("Build Version:").trim();
    let line = line.split(" Copyright").next().unwrap_or(line);
    let named = line.to_lowercase().contains(&name.to_lowercase()) || name == "ssh";
    Some(if named { line.to_owned() } else { format!("{name} {line}") })
}

/// Returns a loopback address that was free a moment ago.
///
/// # Errors
/// Fails if no port could be bound after many tries.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..200 {
        let port = rand::rng().random_range(PORTS);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener.local_addr()?);
        }
    }
    anyhow::bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

/// Waits until something listens on an address.
///
/// # Errors
/// Fails when nothing does after [`LISTEN_DEADLINE`].
pub async fn wait_for_listener(address: SocketAddr) -> anyhow::Result<()> {
    let until = Instant::now() + LISTEN_DEADLINE;
    loop {
        match tokio::net::TcpStream::connect(address).await {
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => return Err(error).with_context(|| format!("nothing listens on {address}")),
        }
    }
}

/// Command to run.
#[derive(Debug)]
pub struct Invocation {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
}

impl Invocation {
    /// Begins the command line of a program.
    #[must_use]
    pub fn new(program: &str) -> Self {
        // A program that is not here fails when it is run, by its name.
        Self::at(locate(program).unwrap_or_else(|| PathBuf::from(program)))
    }

    /// Begins the command line of a program whose path is known.
    #[must_use]
    pub const fn at(program: PathBuf) -> Self {
        Self { program, arguments: Vec::new(), environment: Vec::new() }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(self, argument: impl Into<OsString>) -> Self {
        self.args([argument.into()])
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs to the end and returns the program's output.
    ///
    /// # Errors
    /// Fails if the program is missing or ends with a failure; the end of its output is in the message.
    pub async fn output(self, directory: &Path) -> anyhow::Result<String> {
        let name = self.name();
        let output = self.command(directory).output().await.with_context(|| format!("running {name}"))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            anyhow::bail!("{name} ended with {}: {}", output.status, words.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts the program with its output going to `log`.
    ///
    /// # Errors
    /// Fails if the program is missing or cannot be started.
    pub fn spawn(self, directory: &Path, log: &File) -> anyhow::Result<ProgramTree> {
        let name = self.name();
        let mut command = self.command(directory);
        command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        let pid = child.id().with_context(|| format!("{name} ended at once"))?;
        Ok(ProgramTree { child, pid })
    }

    fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn command(self, directory: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.arguments).envs(self.environment).current_dir(directory);
        // A group of its own: a ctrl-c at the terminal reaches only the lab, which then stops its processes in order.
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        command
    }
}

/// A running program with all its children; dropping it ends them.
#[derive(Debug)]
pub struct ProgramTree {
    child: Child,
    pid: u32,
}

impl ProgramTree {
    /// Returns the process id of the program itself.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends the program with its children and waits until it is gone.
    pub async fn stop(mut self) {
        kill_tree(self.pid);
        if let Err(error) = self.child.wait().await {
            tracing::debug!(%error, pid = self.pid, "a stopped program could not be waited for");
        }
    }
}

impl Drop for ProgramTree {
    fn drop(&mut self) {
        // A child that was waited for has given its id back: it may belong to another process by now.
        if self.child.id().is_some() {
            kill_tree(self.pid);
        }
    }
}

/// Ends a process and its descendants: some daemons leave their workers behind, and sshd's children are in sessions of
/// their own.
fn kill_tree(root: u32) {
    for pid in tree(root) {
        let killed = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, Signal::KILL));
        if let Some(Err(error)) = killed {
            tracing::debug!(%error, pid, "a child was gone before it was stopped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_lines_of_the_peers_are_found() {
        let check = |name, text: &str, expected: &str| assert_eq!(version_line(name, text).as_deref(), Some(expected));
        check("nginx", "nginx version: nginx/1.22.1\n", "nginx version: nginx/1.22.1");
        check("rathole", "rathole \nBuild Timestamp:     2026\nBuild Version:       0.5.0\n", "rathole 0.5.0");
        check("chisel", "1.11.3\n", "chisel 1.11.3");
        check("wrk", "wrk debian/4.1.0 [epoll] Copyright (C) 2012 W\nUsage", "wrk debian/4.1.0 [epoll]");
        check("ssh", "OpenSSH_9.2p1, OpenSSL 3.0\n", "OpenSSH_9.2p1, OpenSSL 3.0");
    }

    #[test]
    fn missing_program_says_how_to_get_it() {
        let programs = Programs(&[PeerProgram { name: "no-such-peer", version: "-v", source: "from a shop" }]);
        assert_eq!(programs.missing().unwrap(), "the program no-such-peer is not on PATH (from a shop)");
    }

    #[tokio::test]
    async fn stopping_a_program_ends_its_children_too() {
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let script = "setsid sleep 600 & echo $! > child; wait";
        let process = Invocation::new("sh").args(["-c", script]).spawn(directory.path(), &log).unwrap();
        let file = directory.path().join("child");
        let child: u32 = loop {
            if let Some(pid) = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()) {
                break pid;
            }
            tokio::task::yield_now().await;
        };
        let alive =
            |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"));
        assert!(alive(child));

        process.stop().await;

        while alive(child) {
            tokio::task::yield_now().await;
        }
    }
}
