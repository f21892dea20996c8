//! Subject of a comparison: the gateway with its agent, or a peer.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use super::crew::RunningPeer;
use super::meter::Trees;
use super::program::{Invocation, ProgramTree, free_address, wait_for_listener};
use super::{Peer, find};
use crate::lab::{Lab, LabSpec};
use crate::results::rows::{OURS, OURS_TLS, OURS_TLS_BOTH, OURS_TLS_USERS};
use crate::target::LoadTarget;

/// One subject of a comparison.
#[derive(Debug, Clone)]
pub enum Subject {
    /// The gateway, an agent and the app, as the lab starts them.
    Gateway {
        /// The name in tables.
        name: String,
        /// Settings of its lab.
        spec: LabSpec,
    },
    /// A peer in front of the app.
    Peer(&'static Peer),
}

impl Subject {
    /// Makes the gateway a subject, named by its encryption: none, on the link as with peers, or more.
    #[must_use]
    pub fn gateway(spec: LabSpec) -> Self {
        let name = match (spec.users_tls, spec.link_tls) {
            (false, false) => OURS,
            (false, true) => OURS_TLS,
            (true, false) => OURS_TLS_USERS,
            (true, true) => OURS_TLS_BOTH,
        };
        Self::Gateway { name: name.to_owned(), spec }
    }

    /// Finds a peer as a subject.
    ///
    /// # Errors
    /// Fails if there is no such peer.
    pub fn peer(name: &str) -> anyhow::Result<Self> {
        Ok(Self::Peer(find(name)?))
    }

    /// Returns the name in tables.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Gateway { name, .. } => name,
            Self::Peer(peer) => peer.name,
        }
    }

    /// Starts it, with its files in `directory`.
    ///
    /// A peer stands in front of `app`; the gateway's lab starts the same app as a process of its own, since its agent
    /// has to be beside it.
    ///
    /// # Errors
    /// Fails if a part of it does not start or does not answer.
    pub async fn start(
        &self,
        app: &SubjectApp,
        directory: &Path,
        link: Option<&crate::relay::LinkSpec>,
    ) -> anyhow::Result<StartedSubject> {
        match self {
            Self::Gateway { spec, .. } => {
                let spec = LabSpec { link: link.copied().or(spec.link), ..spec.clone() };
                Ok(StartedSubject::Gateway(Arc::new(Lab::start(spec).await?)))
            }
            Self::Peer(peer) => {
                Ok(StartedSubject::Peer(Box::new(peer.start(app.address, directory, link).await?), app.process.pid()))
            }
        }
    }
}

/// A subject that answers. Dropping it stops its processes.
pub enum StartedSubject {
    /// The gateway with its agent and app.
    Gateway(Arc<Lab>),
    /// A peer, and the process of the app.
    Peer(Box<RunningPeer>, u32),
}

impl StartedSubject {
    /// Returns the target of the load.
    #[must_use]
    pub fn target(&self) -> LoadTarget {
        match self {
            Self::Gateway(lab) => lab.target(),
            Self::Peer(running, _) => running.target.clone(),
        }
    }

    /// Returns the lab, if this is the gateway.
    #[must_use]
    pub fn lab(&self) -> Option<Arc<Lab>> {
        match self {
            Self::Gateway(lab) => Some(Arc::clone(lab)),
            Self::Peer(..) => None,
        }
    }

    /// Returns the process trees whose usage counts.
    #[must_use]
    pub fn trees(&self) -> Trees {
        match self {
            Self::Gateway(lab) => {
                Trees { server: vec![lab.gateway().pid()], agent: vec![lab.agent().pid()], app: vec![lab.app().pid()] }
            }
            Self::Peer(running, app) => {
                Trees { server: running.server_pids.clone(), agent: running.agent_pids.clone(), app: vec![*app] }
            }
        }
    }

    /// Stops it and waits until its processes are gone.
    pub async fn stop(self) {
        match self {
            // The last owner of the lab stops it on drop.
            Self::Gateway(lab) => drop(lab),
            Self::Peer(running, _) => running.stop().await,
        }
    }
}

/// The app behind all peers: this program's own, as a process of its own.
#[derive(Debug)]
pub struct SubjectApp {
    /// Address of the app.
    pub address: SocketAddr,
    process: ProgramTree,
}

impl SubjectApp {
    /// Starts `loadlab app`.
    ///
    /// # Errors
    /// Fails if this program cannot be started again or does not listen.
    pub async fn start(directory: &Path) -> anyhow::Result<Self> {
        let address = free_address()?;
        let log = std::fs::File::create(directory.join("app.log"))?;
        let own = std::env::current_exe().context("finding this program")?;
        let invocation = Invocation::at(own).arg("app").arg("--listen").arg(address.to_string());
        let process = invocation.spawn(directory, &log)?;
        wait_for_listener(address).await.context("starting the app")?;
        Ok(Self { address, process })
    }

    /// Stops the app and waits until it is gone.
    pub async fn stop(self) {
        self.process.stop().await;
    }
}
