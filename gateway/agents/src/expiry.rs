//! Ends sessions whose agents would no longer be admitted: their credential has ended, or its issuer took it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tunnel_proto::reason::Reason;

use super::identity::{AgentIdentities, CredentialRefusal};
use super::registry::{Credential, LeaseAction, LiveSession, Registry, Review};
use gateway_store::wall_clock;

/// Interval of the checks; an expired session ends within this, plus the time to say so.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Most reviews awaited at a time. A review that finds no place is made when its time comes again: sessions are not
/// ended for want of an answer.
const QUESTIONS_MAX: usize = 512;

/// Watches the credentials that sessions live on, until `stop`. An issuer that does not answer neither holds up the
/// others nor ends anything.
pub async fn watch(registry: Arc<Registry>, identities: Arc<AgentIdentities>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut questions = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        while questions.try_join_next().is_some() {}
        for (session, due) in registry.due(wall_clock()) {
            match due {
                LeaseAction::Renew => {
                    debug!(agent = %session.subject, session = %session.id, "the credential ends soon: links are cut");
                    session.ask_to_renew();
                }
                LeaseAction::End => end(&session),
                LeaseAction::Ask(review) if questions.len() < QUESTIONS_MAX => {
                    let identities = identities.clone();
                    questions.spawn(async move { ask(&identities, &session, &review).await });
                }
                LeaseAction::Ask(_) => {
                    debug!(session = %session.id, "credential review put off: too many are in flight")
                }
            }
        }
    }
}

async fn ask(identities: &AgentIdentities, session: &LiveSession, review: &Review) {
    match identities.review(review).await {
        // A cluster that does not answer ends nothing that is under way.
        Ok(()) | Err(CredentialRefusal::Unavailable(_) | CredentialRefusal::Busy) => {}
        Err(_) if !session.lives_by(review) => {}
        Err(refusal) => {
            info!(
                agent = %session.subject, session = %session.id, credential = %session.credential(),
                code = refusal.code(), "credential revoked: session ended"
            );
            session.tunnel.close(Reason::Revoked, "the cluster does not vouch for this agent any more");
        }
    }
}

fn end(session: &LiveSession) {
    let credential = session.credential();
    // Agents that get new credentials come back with one; for jobs it is over.
    let (reason, detail) = match &credential {
        Credential::Token(_) => (Reason::SessionLost, "the token has expired: dial again with a new one"),
        Credential::Job { .. } => (Reason::Revoked, "the time for which this job may be connected is over"),
        Credential::Certificate { .. } => (Reason::SessionLost, "the client certificate has expired"),
        Credential::Pod { .. } => (Reason::SessionLost, "the service-account token has expired"),
        Credential::Relayed { .. } => (Reason::SessionLost, "the agent's credential has expired"),
    };
    info!(agent = %session.subject, session = %session.id, %credential, detail, "session ended");
    session.tunnel.close(reason, detail);
}
