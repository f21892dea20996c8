//! Processes of one started peer, and the folder and the link that they share.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::program::{Invocation, ProgramTree};
use crate::relay::{self, LinkSpec, Relay};
use crate::target::LoadTarget;

/// Lines of a log that go into an error.
const LOG_LINES: usize = 8;

/// Peer while it is being started.
pub struct Crew {
    /// Address of the app.
    pub backend: SocketAddr,
    directory: PathBuf,
    log: File,
    link: Option<LinkSpec>,
    relays: Vec<relay::Handle>,
    servers: Vec<ProgramTree>,
    agents: Vec<ProgramTree>,
}

impl Crew {
    /// Prepares the folder of a peer.
    ///
    /// # Errors
    /// Fails if the folder cannot be written.
    pub fn new(backend: SocketAddr, directory: &Path, link: Option<LinkSpec>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        // Daemons that drop their privileges still have to enter it.
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
        let log = File::options().create(true).append(true).open(directory.join("log"))?;
        let directory = directory.to_path_buf();
        Ok(Self { backend, directory, log, link, relays: Vec::new(), servers: Vec::new(), agents: Vec::new() })
    }

    /// Returns the peer's folder.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file into the peer's folder, readable by its owner only: some hold keys.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        use std::io::Write as _;
        let path = self.directory.join(name);
        let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Starts a program of the half that users reach.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub fn server(&mut self, invocation: Invocation) -> anyhow::Result<()> {
        self.servers.push(invocation.spawn(&self.directory, &self.log)?);
        Ok(())
    }

    /// Starts a program of the half beside the app.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub fn agent(&mut self, invocation: Invocation) -> anyhow::Result<()> {
        self.agents.push(invocation.spawn(&self.directory, &self.log)?);
        Ok(())
    }

    /// Returns the address at which the other half is reached: itself, or a relay that shapes the way to it.
    ///
    /// # Errors
    /// Fails if the relay cannot listen.
    pub fn over_link(&mut self, far: SocketAddr) -> anyhow::Result<SocketAddr> {
        self.over_link_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), far)
    }

    /// Like [`Self::over_link`], with the relay on a given address.
    ///
    /// # Errors
    /// Fails if the relay cannot listen.
    pub fn over_link_at(&mut self, listen: SocketAddr, far: SocketAddr) -> anyhow::Result<SocketAddr> {
        let Some(link) = self.link else { return Ok(far) };
        let relay = Relay::bind(listen, far, link).context("starting the link")?;
        let address = relay.address();
        self.relays.push(relay);
        Ok(address)
    }

    /// Returns the end of the peer's log as part of an error message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(self.directory.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let mut tail = String::new();
        for line in lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default() {
            // Writing to a string does not fail.
            writeln!(tail, "\n    {line}").ok();
        }
        if tail.is_empty() { String::new() } else { format!("; its log ends:{}", tail.trim_end()) }
    }

    /// Stops all started processes.
    pub async fn stop(self) {
        for process in self.agents.into_iter().chain(self.servers) {
            process.stop().await;
        }
    }

    /// Hands over a peer that answers.
    #[must_use]
    pub fn into_running(self, target: LoadTarget) -> RunningPeer {
        let pids = |processes: &[ProgramTree]| processes.iter().map(ProgramTree::pid).collect();
        RunningPeer { target, server_pids: pids(&self.servers), agent_pids: pids(&self.agents), crew: self }
    }
}

/// A peer that answers. Dropping it stops its processes.
pub struct RunningPeer {
    /// Target of users' requests to the app.
    pub target: LoadTarget,
    /// The roots of the process trees that users reach.
    pub server_pids: Vec<u32>,
    /// The roots of the process trees beside the app.
    pub agent_pids: Vec<u32>,
    crew: Crew,
}

impl RunningPeer {
    /// Returns the link between the halves, if they were given one.
    #[must_use]
    pub fn link(&self) -> Option<&relay::Handle> {
        self.crew.relays.first()
    }

    /// Stops the peer and waits until its processes are gone, so that their end is not measured with the next one.
    pub async fn stop(self) {
        self.crew.stop().await;
    }
}
