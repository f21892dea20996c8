//! Admits authenticated agents: the one place that decides which Hello gets a session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tunnel_link::grpc::{Code, RpcRefused, Via};
use tunnel_proto::hello::Hello;
use tunnel_proto::limit::RESUME_ANSWER_TIMEOUT;

use super::admission_rate::{AdmissionRate, Busy};
use super::identity::{AgentIdentities, AgentIdentity, Entitlement};
use super::named_ports;

pub mod claim;
mod factory;
mod owners;

pub use self::factory::{AdmittedAgent, Candidate, SessionFactory};
pub use self::owners::Owners;

/// Time that a refused agent waits before it dials again.
pub const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Longest wait of an agent for its turn; below its own wait for a Welcome, with a session to save or without.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

const _: () = assert!(TURN_PATIENCE.as_millis() < RESUME_ANSWER_TIMEOUT.as_millis());

/// Admits agents.
#[derive(Debug)]
pub struct Admission {
    identities: Arc<AgentIdentities>,
    pacer: AdmissionRate,
    factory: SessionFactory,
}

/// Result of an admission.
#[derive(Debug)]
pub enum Admitted {
    /// A session, or a link for one.
    Here(Box<AdmittedAgent>),
    /// A relay lane that ends at another replica.
    Elsewhere {
        /// The replica: the number of its process start.
        replica: u64,
        /// The agent, entitled to a session.
        candidate: Box<Candidate>,
    },
}

/// A request for a session, as it came over a link.
#[derive(Debug)]
pub struct SessionRequest {
    /// First frame of the agent.
    pub hello: Hello,
    /// Address that it dialed from.
    pub peer: SocketAddr,
    /// Transport of its link.
    pub via: Via,
}

impl Admission {
    /// Makes it for `sessions_per_second` new sessions each second.
    #[must_use]
    pub fn new(identities: Arc<AgentIdentities>, factory: SessionFactory, sessions_per_second: u32) -> Self {
        Self { identities, pacer: AdmissionRate::new(sessions_per_second, TURN_PATIENCE), factory }
    }

    /// Makes or finds the session of an authenticated agent, in this order: a drain takes no new sessions, new ones
    /// wait for their turn, the workspace has to be one that may run, a credential for one process is used up, and
    /// then the session is provided.
    ///
    /// # Errors
    /// [`RpcRefused`] with the text for the agent's log.
    ///
    /// # Cancel safety
    /// Safe: a session comes up in the last step, which does not wait. A turn, and the use of a credential by this
    /// process, stay taken.
    pub async fn admit(&self, identity: AgentIdentity, request: SessionRequest) -> Result<Admitted, RpcRefused> {
        if let Some(replica) = request.hello.relay.as_ref().map(|relay| relay.replica) {
            return Box::pin(self.admit_lane(identity, request, replica)).await;
        }
        if let Some(replica) = Box::pin(self.home(&identity, &request.hello)).await {
            return Box::pin(self.admit_lane(identity, request, replica)).await;
        }
        let SessionRequest { mut hello, peer, via } = request;
        // A resuming agent has users that wait, and costs less. After a restart no agent resumes, whatever it asks for.
        let is_new = !self.factory.knows(&identity.subject, &hello);
        if is_new {
            self.factory.takes_new()?;
            self.turn().await?;
        }
        // Also for resuming agents: a session closed a moment ago may still be there.
        let Entitlement { subject, lease, owned, ports } = self.identities.entitle(identity, &hello, is_new).await?;
        named_ports::add(&mut hello, &ports);
        let mut candidate = Candidate { subject, owned, lease, peer, via, hello, generation: None, lane: None };
        if let Some(peers) = self.factory.peers.as_ref().filter(|_| is_new && candidate.hello.join.is_none()) {
            candidate.generation = Some(peers.claim(&candidate).await?);
        }
        self.factory.provide(candidate).map(Box::new).map(Admitted::Here)
    }

    /// Returns the other replica that has the session which an agent resumes or joins. A balancer may lead its dial anywhere,
    /// and users at that replica have streams on the session.
    async fn home(&self, identity: &AgentIdentity, hello: &Hello) -> Option<u64> {
        let peers = self.factory.peers.as_ref()?;
        let joined = hello.join.as_ref().map(|join| join.session);
        let session = joined.or(hello.resume.as_ref().map(|resume| resume.session))?;
        let replica = session.replica();
        // Other credentials are asked about again while a session lives, and only here is what that takes.
        identity.lease.credential.token()?;
        let workspace = identity.subject.workspace().filter(|_| replica != peers.incarnation())?;
        peers.has_session(replica, workspace, session).await.then_some(replica)
    }

    /// Admits a link that may end at another replica. It is no newcomer: a replica with users asked for it, or it comes back to
    /// them.
    async fn admit_lane(
        &self,
        identity: AgentIdentity,
        request: SessionRequest,
        replica: u64,
    ) -> Result<Admitted, RpcRefused> {
        let SessionRequest { mut hello, peer, via } = request;
        let Some(peers) = &self.factory.peers else { return Err(no_lane()) };
        let Entitlement { subject, lease, owned, ports } = self.identities.entitle(identity, &hello, true).await?;
        named_ports::add(&mut hello, &ports);
        let candidate = Candidate { subject, owned, lease, peer, via, hello, generation: None, lane: None };
        if replica != peers.incarnation() {
            return Ok(Admitted::Elsewhere { replica, candidate: Box::new(candidate) });
        }
        self.provide_lane(candidate).await.map(Box::new).map(Admitted::Here)
    }

    /// Makes or resumes a relay lane that ends here, of an agent that this or another replica has entitled; or resumes or
    /// joins a session here of an agent that dialed another replica.
    ///
    /// # Errors
    /// [`RpcRefused`] with the text for the agent's log.
    ///
    /// # Cancel safety
    /// Safe; a ticket stays used.
    pub async fn provide_lane(&self, mut candidate: Candidate) -> Result<AdmittedAgent, RpcRefused> {
        if !self.factory.knows(&candidate.subject, &candidate.hello) {
            match &candidate.hello.relay {
                Some(relay) => candidate.lane = self.factory.registry.expected.take(&relay.ticket).await,
                // Judged when it joins.
                None if candidate.hello.join.is_some() => {}
                // It ended meanwhile. The hint makes the agent dial again, for a new one.
                None => return Err(refused(Code::PermissionDenied, "the session is over", Some(RETRY_AFTER))),
            }
        }
        self.factory.provide(candidate)
    }

    /// Returns the maker of sessions.
    #[must_use]
    pub fn factory(&self) -> &SessionFactory {
        &self.factory
    }

    /// Waits for a turn, so that a crowd does not take the processor from connected agents.
    async fn turn(&self) -> Result<(), RpcRefused> {
        match self.pacer.turn(Instant::now().into_std()) {
            Ok(Duration::ZERO) => Ok(()),
            Ok(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Err(Busy { retry_after }) => {
                Err(refused(Code::ResourceExhausted, "limits.sessions_per_second is reached", Some(retry_after)))
            }
        }
    }
}

/// Makes the answer for a relay lane that is not waited for.
fn no_lane() -> RpcRefused {
    refused(Code::PermissionDenied, "there is no relay lane for this ticket", None)
}

/// Makes the answer for an agent that has no session here while this gateway drains.
#[must_use]
pub fn shutting_down() -> RpcRefused {
    refused(Code::Unavailable, "this gateway is shutting down", Some(RETRY_AFTER))
}

/// Makes the answer for an agent whose token a newer process has: it does not come again.
#[must_use]
pub fn displaced_by_newer() -> RpcRefused {
    refused(Code::Aborted, "a newer agent with the same token took over", None)
}

/// Makes the answer for an agent that is refused.
#[must_use]
pub fn refused(code: Code, message: &str, retry_after: Option<Duration>) -> RpcRefused {
    RpcRefused { code, message: message.to_owned(), retry_after }
}

#[cfg(test)]
mod tests;
