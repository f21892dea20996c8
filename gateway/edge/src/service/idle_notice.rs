//! Tells the owner, on a page of the workspace's own host, when the workspace is stopped for idleness, and puts that off. For the
//! terminal's page, which cannot ask the public host: that is another origin.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response};

use super::anonymous::overloaded;
use super::authorise::Visit;
use super::{Edge, EdgeAnswer};
use crate::body::ResponseBody;
use gateway_auth::policy::{Because, Grant, RequestSource};
use gateway_http::respond::Failure;
use gateway_net::audit::{Actor, AuditEvent, AuditRecord, Text};
use gateway_store::{ManagedWorkspace, StoreError, wall_clock};
use gateway_types::KEEP_TIME;

/// The reserved path.
pub(super) const PATH: &str = "/.gateway/idle";

impl Edge {
    /// Answers a request to [`PATH`]: a GET with what is to come, and a POST by keeping the workspace for [`KEEP_TIME`].
    pub(super) async fn idle_notice(
        &self,
        visit: &Visit<'_>,
        grant: &Grant,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let Visit { parts, offered, origin, address, now } = *visit;
        origin.guest.ask(now.into_std()).map_err(overloaded)?;
        let (Because::Owner, Some(user)) = (grant.because(), grant.user()) else {
            return Err(Failure::NoSuchPage.into());
        };
        let mut managed = self.managed(visit).await?;
        match parts.method {
            Method::GET => {}
            Method::POST => {
                // A page of another origin, also of this workspace, has no say in it.
                if self.hosts.shape(parts, address, offered).source != RequestSource::SameOrigin {
                    return Err(Failure::PortNotAllowed.into());
                }
                let until = wall_clock().later(KEEP_TIME);
                let kept = self.access.store.keep_awake(managed.workspace.id, until).await;
                kept.map_err(|error| unavailable(&error))?;
                let event = AuditEvent::WorkspaceKept {
                    by: Actor::User(Text::of(user)),
                    workspace: Text::of(&address.name),
                    until: Text::of(until),
                };
                self.audit.record(AuditRecord::new(event).at_peer(origin.peer));
                managed = self.managed(visit).await?;
            }
            _ => return Err(Failure::MethodNotAllowed.into()),
        }
        let (idle, life) = (&managed.idle, &managed.lifecycle);
        // Fixed words and a number: nothing to escape.
        let stops_at = idle.stops_at(life).map_or_else(|| "null".to_owned(), |at| at.get().to_string());
        let stage = idle.stage(life, wall_clock()).as_str();
        let told = format!("{{\"stage\":\"{stage}\",\"stops_at\":{stops_at}}}\n");
        let mut response = Response::new(Bytes::from(told));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response.map(ResponseBody::from))
    }

    async fn managed(&self, visit: &Visit<'_>) -> Result<Box<ManagedWorkspace>, Failure> {
        let found = self.access.store.managed(&visit.address.name).await;
        // The gateway does not stop what it does not run.
        found.map_err(|error| unavailable(&error))?.map(Box::new).ok_or(Failure::NoSuchPage)
    }
}

fn unavailable(error: &StoreError) -> Failure {
    if !error.is_unanswered() {
        tracing::warn!(%error, "the store did not answer");
    }
    Failure::Overloaded { limit: "store" }
}
