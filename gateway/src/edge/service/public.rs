//! The public host: sign-in, the API, and the pages.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::info;

use super::{Edge, Origin, Refusal};
use crate::api::{Api, Caller, Told};
use crate::audit::{Credential, Event, Items, Record, Text};
use crate::auth::request::{At, Offered};
use crate::auth::shape::{self, Here};
use crate::auth::sign_in::Visit;
use crate::auth::sign_in::event::SignInEvent;
use crate::edge::body::ResponseBody;
use crate::edge::host::{BadHost, authority_of};
use crate::edge::living::Asker;
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
        let now = Instant::now();
        if let Some(response) = self.sign_in.answer_public(Visit::from(&request), now) {
            self.note_sign_in(&response, origin);
            return Ok(response.map(ResponseBody::from));
        }
        let offered = Offered::read(request.headers(), self.site.cookies());
        let principal = self.principal(&offered, At::Public, now).await?;
        let (parts, body) = request.into_parts();
        if Api::has(parts.uri.path()) {
            let authority = authority_of(&parts).map_err(BadHost::failure)?;
            let here = Here { site: &self.site, authority, workspace: None, workspace_of: &|_| None };
            let shape = shape::read(&parts.method, &parts.headers, &offered, here);
            let path = parts.uri.path();
            let caller = Caller::new(principal, offered, (path, shape), origin.peer, &self.traces.next());
            if caller.has_to_sign_in(path, shape) {
                return Ok(self.sign_in.ask(Visit::from(&parts), now).map(ResponseBody::from));
            }
            let request = Request::from_parts(parts, body);
            return Ok(self.call(request, caller, origin).await.map(ResponseBody::from));
        }
        let pages = Pages { store: &self.store, registry: &self.registry, site: &self.site, rules: &self.rules };
        let page = ui::answer(pages, &parts, principal.as_ref()).await;
        Ok(page?.map(ResponseBody::from))
    }

    /// Calls the API, and counts and logs a failure as for any other host.
    async fn call(&self, request: Request<Incoming>, caller: Caller, origin: &Origin) -> Response<Bytes> {
        let trace = caller.trace();
        let response = self.api.answer(request, caller).await;
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
            SignInEvent::SignedOut { user, session } => {
                let sessions: Items = [&session].into_iter().collect();
                let event = Event::SignedOut { user: Text::of(user), sessions };
                Record::new(event).with(Credential::Session { id: Text::of(session) })
            }
        };
        self.audit.record(record.from_peer(origin.peer));
    }
}
