//! Counters of events for the audit log, whether written there or not.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::event::AuditEvent;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct How {
    how: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Counters of sign-ins and agents. All possible labels exist from the start.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    sign_ins: Family<How, Counter>,
    failed_sign_ins: Family<Reason, Counter>,
    agents: Family<How, Counter>,
    refused_agents: Counter,
    ended_agents: Counter,
}

/// Reasons of failed sign-ins: those of the sign-in pages, and of the page for codes of other machines.
const REASONS: [&str; 8] = [
    "code_unknown",
    "link_not_good",
    "not_admitted",
    "not_pending",
    "provider_denied",
    "provider_failed",
    "provider_unavailable",
    "transfer_failed",
];

impl Default for Tally {
    fn default() -> Self {
        let tally = Self {
            sign_ins: Family::default(),
            failed_sign_ins: Family::default(),
            agents: Family::default(),
            refused_agents: Counter::default(),
            ended_agents: Counter::default(),
        };
        for how in ["dev_link", "oidc"] {
            drop(tally.sign_ins.get_or_create(&How { how }));
        }
        for reason in REASONS {
            drop(tally.failed_sign_ins.get_or_create(&Reason { reason }));
        }
        for how in ["lane", "new", "resumed"] {
            drop(tally.agents.get_or_create(&How { how }));
        }
        tally
    }
}

impl Tally {
    pub(super) fn count(&self, event: &AuditEvent) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "what else there is to record is counted elsewhere, or not"
        )]
        match *event {
            AuditEvent::SignedIn { how, .. } => self.sign_ins.get_or_create(&How { how }).inc(),
            AuditEvent::SignInFailed { reason, .. } => self.failed_sign_ins.get_or_create(&Reason { reason }).inc(),
            AuditEvent::AgentConnected { how, .. } => self.agents.get_or_create(&How { how }).inc(),
            AuditEvent::AgentRefused { .. } => self.refused_agents.inc(),
            AuditEvent::AgentEnded { .. } => self.ended_agents.inc(),
            _ => 0,
        };
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("gateway_sign_ins", "Sign-ins of users with a browser", self.sign_ins.clone());
        registry.register("gateway_sign_ins_failed", "Those that failed", self.failed_sign_ins.clone());
        registry.register("gateway_agents_connected", "Links of agents that were let in", self.agents.clone());
        registry.register("gateway_agents_refused", "Agents that were turned away", self.refused_agents.clone());
        registry.register("gateway_agents_ended", "Sessions of agents that ended", self.ended_agents.clone());
    }
}
