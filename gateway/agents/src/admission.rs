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
    pub async fn admit(&self, identity: AgentIdentity, request: SessionRequest) -> Result<AdmittedAgent, RpcRefused> {
        let SessionRequest { hello, peer, via } = request;
        // A resuming agent has users that wait, and costs less. After a restart no agent resumes, whatever it asks for.
        let is_new = !hello.resume.as_ref().is_some_and(|resume| self.factory.knows(&identity.subject, resume));
        if is_new {
            self.factory.takes_new()?;
            self.turn().await?;
        }
        // Also for resuming agents: a session closed a moment ago may still be there.
        let Entitlement { subject, lease, owned } = self.identities.entitle(identity, hello.instance, is_new).await?;
        self.factory.provide(Candidate { subject, owned, lease, peer, via, hello })
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

/// Makes the answer for an agent that has no session here while this gateway drains.
#[must_use]
pub fn shutting_down() -> RpcRefused {
    refused(Code::Unavailable, "this gateway is shutting down", Some(RETRY_AFTER))
}

/// Makes the answer for an agent that is refused.
#[must_use]
pub fn refused(code: Code, message: &str, retry_after: Option<Duration>) -> RpcRefused {
    RpcRefused { code, message: message.to_owned(), retry_after }
}

#[cfg(test)]
mod tests;
