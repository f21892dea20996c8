//! Stores the reports of a cluster agent.

use tracing::debug;
use tunnel_proto::reconcile::WorkspaceReport;

use super::conversation::{Conversation, ConversationEnd, Unread, now as clock};
use crate::changes::ChangeNotice;
use crate::observed::observe;
use gateway_net::telemetry::ReportEnd;
use gateway_store::{KubernetesState, Observation, wall_clock};
use gateway_types::{Lifecycle, UnixSeconds, WorkspaceName, blockers, start_progress};

/// Shortest interval in seconds at which reports without news are stored, only to record when the agent last spoke.
const REPEAT_SECONDS: i64 = 60;

impl Conversation<'_> {
    /// Stores the contents of a report. On return that is done, or nothing was to be stored.
    ///
    /// # Errors
    /// [`ConversationEnd`].
    pub(super) async fn store(&mut self, report: &WorkspaceReport) -> Result<(), ConversationEnd> {
        let end = self.store_as(report).await?;
        self.controller.metrics.reported(end);
        Ok(())
    }

    async fn store_as(&mut self, report: &WorkspaceReport) -> Result<ReportEnd, ConversationEnd> {
        // An agent answers for its own cluster: its reports about another's workspaces are ignored.
        let Ok(name) = report.workspace.parse::<WorkspaceName>() else {
            return Ok(self.ignore(report, "no such name"));
        };
        let store = &self.controller.store;
        // Each further iteration means that another writer was faster, and so made progress.
        loop {
            let managed = match self.read(|| store.managed(&name)).await {
                Ok(Some(managed)) => managed,
                Ok(None) => return Ok(self.ignore(report, "there is no such workspace")),
                Err(Unread::Row(error)) => {
                    debug!(%error, "what a report is about cannot be read");
                    return Ok(self.ignore(report, "what is stored of it cannot be read"));
                }
                Err(Unread::End(end)) => return Err(end),
            };
            let id = managed.workspace.id;
            let is_theirs =
                |state: &&KubernetesState| state.cluster == self.cluster.id && state.namespace == report.namespace;
            let Some(kubernetes) = managed.kubernetes().filter(is_theirs) else {
                return Ok(self.ignore(report, "it is another's workspace"));
            };
            let Some(seen) = seen(report, &managed.lifecycle, kubernetes, wall_clock()) else {
                if managed.lifecycle.is_over() {
                    self.plan.knows_what_is_over(id, clock());
                }
                return Ok(ReportEnd::Unchanged);
            };
            let revision = managed.lifecycle.revision;
            if !self.ask(|| store.swap_report(id, revision, &seen.life, &seen.observation)).await? {
                continue;
            }
            if seen.is_news {
                self.controller.changes.publish(ChangeNotice { workspace: id, cluster: Some(self.cluster.id) });
            }
            if seen.life.is_over() {
                self.plan.knows_what_is_over(id, clock());
            }
            return Ok(ReportEnd::Stored);
        }
    }

    fn ignore(&self, report: &WorkspaceReport, why: &'static str) -> ReportEnd {
        debug!(cluster = %self.cluster.name, number = report.number, why, "a report is ignored");
        ReportEnd::Ignored
    }
}

/// Contents of a report to store.
#[derive(Debug)]
struct ReportContents {
    life: Lifecycle,
    observation: Observation,
    /// The change is visible to users.
    is_news: bool,
}

/// Decides what to store of a report about a workspace; `None` for nothing.
fn seen(
    report: &WorkspaceReport,
    life: &Lifecycle,
    stored: &KubernetesState,
    now: UnixSeconds,
) -> Option<ReportContents> {
    // A workspace that is over stays so, whatever is reported of it.
    if life.is_over() {
        return None;
    }
    let observed = observe(report, life);
    let next = life.observe(observed.actual, observed.reason.as_deref(), now);
    let observation = Observation {
        applied_generation: observed.applied,
        deployment_version: report.deployment.as_ref().map(|deployment| deployment.resource_version.clone()),
        termination: report.termination.as_ref().map(|termination| blockers::to_json(&termination.blockers)),
        start: report.start.as_ref().map(start_progress::to_json),
        reported_at: Some(now),
    };
    let is_news = next != *life || is_other(&observation, stored);
    let is_same = !is_news && observation.deployment_version == stored.deployment_version;
    let is_recent = |at: UnixSeconds| now.get().saturating_sub(at.get()) < REPEAT_SECONDS;
    if is_same && stored.reported_at.is_some_and(is_recent) {
        return None;
    }
    Some(ReportContents { life: next, observation, is_news })
}

fn is_other(observation: &Observation, stored: &KubernetesState) -> bool {
    observation.applied_generation != stored.applied_generation
        || observation.termination != stored.termination
        || observation.start != stored.start
}
