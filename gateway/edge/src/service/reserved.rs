//! Step 3 of a request's way: the reserved paths of a workspace's host, where a browser signs in.

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tokio::time::Instant;

use super::anonymous::{overloaded, tried};
use super::{Edge, EdgeAnswer, Origin, RequestFacts, neighbours};
use crate::address::Address;
use crate::body::ResponseBody;
use gateway_auth::sign_in::PageVisit;
use gateway_auth::sign_in::event::SignInEvent;
use gateway_http::respond::Failure;
use gateway_net::audit::{Audit, AuditEvent, AuditRecord, Credential, Items, Text};

impl Edge {
    /// Answers a reserved path of a workspace host, which is the gateway's own.
    pub(super) async fn reserved(
        &self,
        parts: &Parts,
        origin: &Origin,
        address: &Address,
        now: Instant,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let visit = PageVisit::new(parts, origin.peer);
        if neighbours::is_stop(visit.uri) {
            origin.guest.ask(now.into_std()).map_err(overloaded)?;
            let answer = self.pass_neighbour(visit, &address.host, now).ok_or(Failure::NoSuchPage)?;
            return Ok(answer.map(ResponseBody::from));
        }
        let mut answer = self.sign_in_page(parts, origin, &address.host, now).await?;
        self.lead_over_neighbours(&mut answer, address, now).await;
        Ok(answer.map(ResponseBody::from))
    }

    /// Answers a page of the sign-in at a host of workspaces.
    pub(super) async fn sign_in_page(
        &self,
        parts: &Parts,
        origin: &Origin,
        host: &str,
        now: Instant,
    ) -> Result<Response<Bytes>, EdgeAnswer> {
        origin.guest.ask(now.into_std()).map_err(overloaded)?;
        let visit = PageVisit::new(parts, origin.peer);
        let sign_in = &self.access.visitors.sign_in;
        if let Some(answer) = sign_in.prepare_workspace(visit, now).await {
            return Ok(answer);
        }
        let answer = sign_in.answer_workspace(visit, host, now).ok_or(Failure::NoSuchPage)?;
        let answer = sign_in.finish(visit, answer).await;
        record_sign_in(&self.audit, &answer, origin);
        tried(parts, &answer, origin, now)?;
        Ok(self.failures.of_page(answer, &RequestFacts::new(now), origin))
    }
}

/// Records the outcome of a sign-in page in the audit log.
pub fn record_sign_in<B>(audit: &Audit, response: &Response<B>, origin: &Origin) {
    let Some(event) = response.extensions().get::<SignInEvent>() else { return };
    let record = match event.clone() {
        SignInEvent::SignedIn { user, how, session } => {
            let session = Text::of(session);
            let event = AuditEvent::SignedIn { user: Text::of(user), how, session: session.clone() };
            AuditRecord::new(event).with(Credential::Session { id: session })
        }
        SignInEvent::Failed { how, reason, user } => {
            let user = user.as_deref().map(Text::new);
            AuditRecord::new(AuditEvent::SignInFailed { how, reason, user })
        }
        SignInEvent::SignedOut { user, sessions } => {
            let sessions: Items = sessions.into_iter().collect();
            AuditRecord::new(AuditEvent::SignedOut { user: Text::of(user), how: "user", sessions })
        }
    };
    audit.record(record.at_peer(origin.peer));
}
