//! The public host: sign-in, the API, and the pages.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::info;

use super::sign_in::is_sign_in;
use super::strangers::{overloaded, tried};
use super::{Edge, Origin, Refusal};
use crate::api::{Answer, Api, Caller, Told};
use crate::audit::{Credential, Event, Items, Record, Text};
use crate::auth::request::Offered;
use crate::auth::shape::{self, Here};
use crate::auth::sign_in::Visit;
use crate::auth::sign_in::event::SignInEvent;
use crate::edge::body::ResponseBody;
use crate::edge::host::{BadHost, authority_of};
use crate::edge::living::Asker;
use crate::edge::respond::Failure;
use crate::edge::zone;
use crate::ui::{self, Pages};

/// Who asks for a port, for the audit log.
pub(super) struct Asking<'a> {
    pub(super) edge: &'a Edge,
    pub(super) offered: &'a Offered,
    pub(super) peer: IpAddr,
}

impl Asker for Asking<'_> {
    fn peer(&self) -> IpAddr {
        self.peer
    }

    /// A browser's session on a workspace host goes by the name of the one on the public host that it hangs on.
    fn credential(&self) -> Credential {
        match self.offered {
            Offered::Session(id) => match self.edge.identities.session_of_host(id) {
                Some(name) => Credential::Session { id: Text::of(name) },
                None => Credential::None,
            },
            Offered::Token(hash) => Credential::TokenHash(*hash),
            Offered::Nothing | Offered::Refused => Credential::None,
        }
    }
}

impl Edge {
    /// Answers a request to the public host.
    pub(super) async fn public(
        &self,
        request: Request<Incoming>,
        origin: &Origin,
    ) -> Result<Response<ResponseBody>, Refusal> {
        if Api::has(request.uri().path()) {
            return self.call_api(request, origin).await;
        }
        let (parts, body) = request.into_parts();
        let now = Instant::now();
        if let Some(answer) = zone::answer(&parts, self.rules.zone()) {
            return Ok(answer?.map(ResponseBody::from));
        }
        if is_sign_in(&parts) {
            origin.guest.ask(now.into_std()).map_err(overloaded)?;
        }
        if let Some(response) = self.sign_in_page(&parts, body, origin).await {
            self.note_sign_in(&response, origin);
            tried(&parts, &response, origin, now)?;
            return Ok(response.map(ResponseBody::from));
        }
        let offered = Offered::read(&parts.headers, self.site.cookies());
        let principal = self.visitor(&offered, origin, now).await?;
        let pages = Pages { store: &self.store, registry: &self.registry, site: &self.site, rules: &self.rules };
        let page = match ui::answer(pages, &parts, principal.as_ref()).await {
            Err(Failure::SignInRequired) => {
                self.sign_in.begin_public(Visit::from(&parts)).ok_or(Failure::SignInRequired)?
            }
            answer => answer?,
        };
        Ok(page.map(ResponseBody::from))
    }

    /// Answers a request to the API, or to the page that belongs to it.
    async fn call_api(&self, request: Request<Incoming>, origin: &Origin) -> Result<Response<ResponseBody>, Refusal> {
        let (parts, body) = request.into_parts();
        let now = Instant::now();
        let offered = Offered::read(&parts.headers, self.site.cookies());
        let principal = self.visitor(&offered, origin, now).await?;
        let authority = authority_of(&parts).map_err(BadHost::failure)?;
        let here = Here { site: &self.site, authority, workspace: None, workspace_of: &|_| None };
        let shape = shape::read(&parts.method, &parts.headers, &offered, here);
        let path = parts.uri.path();
        let caller = Caller::new(principal, offered, (path, shape), origin.peer, &self.traces.next());
        if caller.has_to_sign_in(path, shape) {
            return Ok(self.sign_in.ask(Visit::from(&parts), now).map(ResponseBody::from));
        }
        let request = Request::from_parts(parts, body);
        Ok(self.call(request, caller, origin).await)
    }

    /// Calls the API, and counts and logs a failure as for any other host.
    async fn call(&self, request: Request<Incoming>, caller: Caller, origin: &Origin) -> Response<ResponseBody> {
        let (trace, proven) = (caller.trace(), caller.proven());
        let response = match (self.api.answer(request, caller).await, proven) {
            (Answer::Whole(response), _) => response.map(ResponseBody::from),
            (Answer::Events(response), Some((offered, user))) => {
                let followed = self.followers.follow(offered, user);
                response.map(|body| ResponseBody::events(body, followed))
            }
            (Answer::File(response, bytes), _) => response.map(|body| ResponseBody::file(body, bytes)),
            // Nobody gets any without having proved who they are.
            (Answer::Events(response), None) => response.map(|_| ResponseBody::from(Bytes::new())),
        };
        if let Some(Told { code, .. }) = response.extensions().get::<Told>() {
            self.metrics.failed(code);
            info!(code, %trace, peer = %origin.peer, "request to the API failed");
        }
        response
    }

    /// Writes down what a sign-in page did.
    pub(super) fn note_sign_in<B>(&self, response: &Response<B>, origin: &Origin) {
        let Some(event) = response.extensions().get::<SignInEvent>() else { return };
        let record = match event.clone() {
            SignInEvent::SignedIn { user, how, session } => {
                let session = Text::of(session);
                let event = Event::SignedIn { user: Text::of(user), how, session: session.clone() };
                Record::new(event).with(Credential::Session { id: session })
            }
            SignInEvent::Failed { how, reason } => Record::new(Event::SignInFailed { how, reason }),
            SignInEvent::SignedOut { user, sessions } => {
                let sessions: Items = sessions.into_iter().collect();
                Record::new(Event::SignedOut { user: Text::of(user), how: "user", sessions })
            }
        };
        self.audit.record(record.at_peer(origin.peer));
    }
}
