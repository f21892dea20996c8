//! Ends preparations and removals: stores the result, and tells the followers.

use tracing::{info, warn};
use tunnel_proto::environments::ObjectError;
use tunnel_proto::reconcile::Blocker;

use super::Visited;
use crate::progress::Notification;
use crate::refusal::RefusalCode;
use crate::service::EnvironmentsShared;
use gateway_net::audit::{AuditEvent, AuditRecord, Text};
use gateway_net::telemetry::JobEnd;
use gateway_store::{Preparation, PreparationEnd, StoreError, StoredEnvironment, Tries};
use gateway_types::blockers;

impl EnvironmentsShared {
    /// Ends a preparation whose time is over, with the reason of the last failed try.
    pub(super) async fn give_up(
        &self,
        visited: &Visited<'_>,
        preparation: &Preparation,
        code: RefusalCode,
    ) -> Result<(), StoreError> {
        let last = visited.environment.tries.failure.as_ref().map(|(_, message)| message.as_str());
        self.refuse(visited, preparation, code, last).await
    }

    /// Ends a preparation without asking the cluster; `why` is for people, if there is more to say than the code does.
    pub(super) async fn refuse(
        &self,
        visited: &Visited<'_>,
        preparation: &Preparation,
        code: RefusalCode,
        why: Option<&str>,
    ) -> Result<(), StoreError> {
        let message = why.map_or_else(|| code.text().to_owned(), |why| format!("{}: {why}", code.text()));
        let errors = preparation.errors.as_deref().unwrap_or("[]");
        let end = PreparationEnd::Failed { code: code.as_str(), message: &message, errors };
        if self.store.give_up(preparation, end, self.now()).await? {
            // The next preparation has not failed yet, unless it is late as well: then it failed for the same reason.
            let next = self.store.next_preparation(visited.id).await?;
            let is_late_too = next.is_some_and(|next| next.give_up_at <= self.now());
            if !visited.environment.is_removal_due && !is_late_too {
                self.store.note_tries(visited.id, &Tries::default()).await?;
            }
            self.ended(visited, preparation, Some(code));
        }
        Ok(())
    }

    /// Ends the preparations that wait for a removal which is under way and whose time is over.
    pub(super) async fn give_up_late(&self, visited: &Visited<'_>) {
        loop {
            let given_up = match self.store.next_preparation(visited.id).await {
                Ok(Some(next)) if next.give_up_at <= self.now() => {
                    self.give_up(visited, &next, RefusalCode::EnvironmentBusy).await
                }
                Ok(Some(_) | None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = given_up {
                // They are looked at again in a moment, and the removal goes on.
                warn!(environment = %visited.id, %error, "the timeout of a waiting job cannot be stored");
                return;
            }
        }
    }

    /// Reports that a preparation ended.
    pub(super) fn ended(&self, visited: &Visited<'_>, preparation: &Preparation, failure: Option<RefusalCode>) {
        let StoredEnvironment { project_path, name, .. } = visited.environment;
        self.metrics.environment_job(if failure.is_none() { JobEnd::Completed } else { JobEnd::Failed });
        let code = failure.map_or("completed", RefusalCode::as_str);
        info!(environment = %visited.id, project = project_path, code, "an environment's preparation ended");
        self.audit.record(AuditRecord::new(AuditEvent::EnvironmentPrepared {
            environment: Text::of(visited.id),
            project: Text::new(project_path),
            name: Text::new(name),
            job: preparation.job,
            template: Text::new(&preparation.template),
            outcome: code,
        }));
        self.tell(visited.id, Notification::Settled);
    }

    /// Stores that none of an environment's own objects is left, and tells the followers; `kept` are objects in the
    /// cluster that were released.
    pub(super) async fn gone(&self, visited: &Visited<'_>, kept: &[ObjectError]) -> Result<(), StoreError> {
        let blockers = (!kept.is_empty()).then(|| blockers::to_json(&kept.iter().map(left_there).collect::<Vec<_>>()));
        self.store.end_removal(visited.id, blockers.as_deref()).await?;
        let StoredEnvironment { project_path, name, .. } = visited.environment;
        let kept = kept.len();
        info!(environment = %visited.id, project = project_path, kept, "an environment's objects were removed");
        self.audit.record(AuditRecord::new(AuditEvent::EnvironmentRemoved {
            environment: Text::of(visited.id),
            project: Text::new(project_path),
            name: Text::new(name),
            kept,
        }));
        self.tell(visited.id, Notification::Settled);
        Ok(())
    }
}

/// Returns a released object with the reason.
fn left_there(error: &ObjectError) -> Blocker {
    let named = |object: &tunnel_proto::environments::ObjectRef| {
        let (kind, name) = (&object.kind, &object.name);
        if object.namespace.is_empty() {
            format!("{kind} {name}")
        } else {
            format!("{kind} {}/{name}", object.namespace)
        }
    };
    let object = error.object.as_ref().map(named).unwrap_or_default();
    Blocker { object, message: error.message.clone(), ..Blocker::default() }
}
