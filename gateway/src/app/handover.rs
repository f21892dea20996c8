//! One process of a host takes another's place. The new one gets the listening sockets and the lock of the database, and starts; once it
//! serves, the old one accepts nothing more, has its agents move, and stays for what users have open there. Meanwhile both are
//! replicas in the directory of the database file, and reach each other's agents by lanes over a socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use gateway_config::{Config, Directory};
use gateway_net::handover::{HandedOver, NoHandover, Predecessor, Successor};
use gateway_net::host_sockets::{self, HostListener, HostSockets};
use gateway_net::inherited::InheritedSockets;
use gateway_store::SingleGateway;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tunnel_link::drain::Drain;

use super::listeners::Listeners;

/// Name of the socket at which a gateway is asked for its place.
const SOCKET: &str = "replace";

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Most processes of one host at a time: the one that serves, and those that it and its predecessor replaced.
const LIVE_MAX: usize = 3;

/// What a gateway does not open itself.
#[derive(Debug, Default)]
pub struct Inheritance {
    pub(super) sockets: InheritedSockets,
    pub(super) lock: Option<std::fs::File>,
    pub(super) predecessor: Option<Predecessor>,
}

/// Reason why this process cannot take another's place.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The configuration has no place to take.
    #[error("--replace needs directory = \"host\": then the gateway that runs can hand over")]
    Directory,
    /// The running gateway does not hand over.
    #[error(transparent)]
    Handover(#[from] NoHandover),
    /// A socket that it handed over cannot be used.
    #[error("a socket that was handed over cannot be used: {0}")]
    Socket(#[source] io::Error),
}

impl Inheritance {
    /// Takes the sockets of a service manager.
    #[must_use]
    pub fn of_manager(sockets: InheritedSockets) -> Self {
        Self { sockets, ..Self::default() }
    }

    /// Asks the gateway that runs with this configuration's database for its place. `None` if there is none.
    ///
    /// # Errors
    /// [`ReplaceError`].
    ///
    /// # Cancel safety
    /// Dropped, the running gateway goes on.
    pub async fn of_running(config: &Config) -> Result<Option<Self>, ReplaceError> {
        let Directory::Host(host) = &config.directory else { return Err(ReplaceError::Directory) };
        let running = match host_sockets::connect(&host.sockets, SOCKET).await {
            Ok(running) => running,
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
                return Ok(None);
            }
            Err(error) => return Err(NoHandover::Io(error).into()),
        };
        let HandedOver { lock, listeners, predecessor } = HandedOver::ask(running).await?;
        let sockets = InheritedSockets::handed_over(listeners).map_err(ReplaceError::Socket)?;
        Ok(Some(Self { sockets, lock: Some(lock), predecessor: Some(predecessor) }))
    }
}

/// The processes of this host before and after this one.
#[derive(Debug)]
pub(super) struct Succession {
    /// The process whose place this one takes.
    pub(super) predecessor: Option<Predecessor>,
    /// Cancelled once another process serves in this one's place.
    pub(super) handed: CancellationToken,
}

impl Succession {
    /// Waits for a process that takes this one's place, until a drain is `announced`, and tells the one before that this one serves.
    pub(super) fn execute(self, handover: Option<Handover>, tasks: &Drain, announced: &CancellationToken) {
        // Whatever asks from here on asks this process.
        if let Some((handover, socket)) = handover.and_then(Handover::listening) {
            tasks.spawn(handover.run(socket, announced.clone()));
        }
        let Some(predecessor) = self.predecessor else { return };
        tasks.spawn(async move {
            if let Err(error) = predecessor.serving().await {
                warn!(%error, "the process whose place this one takes is gone");
            }
        });
    }
}

/// Waits for a process that takes this one's place.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) sockets: HostSockets,
    pub(super) single: Arc<SingleGateway>,
    /// Copies of the listening sockets, of which an inherited one is closed by no listener.
    pub(super) listeners: Vec<OwnedFd>,
    /// Cancelled once another process serves.
    pub(super) handed: CancellationToken,
}

impl Handover {
    /// Copies the listening sockets.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn copies(listeners: &Listeners) -> io::Result<Vec<OwnedFd>> {
        let all = [Some(&listeners.public), Some(&listeners.agents), listeners.admin.as_ref()];
        all.into_iter().flatten().map(|listener| listener.as_fd().try_clone_to_owned()).collect()
    }

    fn listening(self) -> Option<(Self, HostListener)> {
        let socket = self.sockets.take_over(SOCKET).inspect_err(|error| {
            error!(%error, "no other process can take this one's place");
        });
        Some((self, socket.ok()?))
    }

    /// Hands over to the first process that asks and comes to serve, until `stop`.
    async fn run(self, socket: HostListener, stop: CancellationToken) {
        let (met, mut successors) = mpsc::channel(1);
        let handing = async {
            while let Some(successor) = successors.recv().await {
                if self.hand_over(successor, &mut successors).await {
                    info!("another process serves in this one's place");
                    self.single.give_up();
                    self.handed.cancel();
                    return;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = handing => {}
            () = meet_successors(&socket, met) => {}
        }
    }

    /// Returns a copy of the lock for another process, or the reason why there may be none.
    async fn lock(&self) -> Result<OwnedFd, String> {
        let living = self.sockets.living().await;
        if living.map_err(|error| format!("the folder of its sockets cannot be read: {error}"))? >= LIVE_MAX {
            return Err("gateways that were replaced still have what users opened there: wait, or end the oldest \
                        (gateway replicas list, gateway replicas drain --now)"
                .to_owned());
        }
        let lock = self.single.copy().map_err(|error| format!("its lock cannot be copied: {error}"))?;
        lock.ok_or_else(|| "it has no lock to hand over".to_owned())
    }

    /// Returns whether the other process serves.
    async fn hand_over(&self, successor: Successor, others: &mut mpsc::Receiver<Successor>) -> bool {
        let lock = match self.lock().await {
            Ok(lock) => lock,
            Err(reason) => {
                successor.refuse(&reason).await;
                return false;
            }
        };
        info!("another process asks for this one's place");
        let mut handing = pin!(successor.hand_over(lock.as_fd(), &self.listeners));
        let handed = loop {
            tokio::select! {
                handed = &mut handing => break handed,
                Some(other) = others.recv() => other.refuse("another process is about to take its place").await,
            }
        };
        match handed {
            Ok(true) => true,
            Ok(false) => {
                warn!("the process that asked for this one's place ended before it served: nothing has changed");
                false
            }
            Err(error) => {
                warn!(%error, "this process' place was not handed over: nothing has changed");
                false
            }
        }
    }
}

/// Meets the processes that ask for this one's place, one after the other.
async fn meet_successors(socket: &HostListener, met: mpsc::Sender<Successor>) {
    loop {
        match socket.accept().await {
            Ok(stream) => {
                if let Some(successor) = Successor::meet(stream).await
                    && met.send(successor).await.is_err()
                {
                    return;
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept a process that asks for this one's place");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
