//! Answers requests to the address of a workspace without a port, while its agent names no port for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Response};

use super::access::exposure;
use super::anonymous::count;
use super::authorise::Visit;
use super::failures::{Form, RequestFacts};
use super::route::with_link;
use super::{Edge, EdgeAnswer};
use crate::address::Address;
use crate::body::ResponseBody;
use gateway_agents::registry::LiveSession;
use gateway_auth::policy::{Visibility, may_see, shared_with};
use gateway_auth::request::OfferedAt;
use gateway_http::respond::ports::{self, PortLink, PortList};
use gateway_http::respond::{self, Failure, Wants};
use gateway_store::wall_clock;
use gateway_types::principal::Principal;
use gateway_types::{NamedPort, Port, Share};

/// A caller who may know of a workspace.
pub(super) struct Viewer<'a> {
    /// Reason that the workspace is visible.
    pub(super) seen: Visibility,
    pub(super) principal: Option<&'a Principal>,
    /// Shares of the workspace.
    pub(super) shares: &'a [Share],
    /// Its named ports.
    pub(super) named: &'a [NamedPort],
}

/// Returns the label of a port: this product's own, the name that it was given, or what the agent calls it.
fn label(port: Port, named: &[NamedPort], labels: Option<&BTreeMap<u16, String>>) -> Option<String> {
    let own = port.label().map(str::to_owned);
    let given = || named.iter().find(|named| named.port == port)?.name.as_ref().map(ToString::to_string);
    own.or_else(given).or_else(|| labels?.get(&port.get()).cloned())
}

impl Edge {
    /// Shows the ports to visitors who may know of the workspace; for all others there is no such workspace.
    pub(super) async fn without_port(
        &self,
        visit: &Visit<'_>,
        session: Option<Arc<LiveSession>>,
        known: &mut RequestFacts,
    ) -> Result<Response<ResponseBody>, EdgeAnswer> {
        let Visit { parts, offered, origin, address, now } = *visit;
        let turn = self.access.visitors.may_try(offered, origin, now).await?;
        let shape = self.hosts.shape(parts, address, offered);
        let principal = self.access.visitors.principal(offered, OfferedAt::Workspace(&address.host), now).await?;
        known.user = principal.as_ref().map(|principal| principal.user.clone());
        // As for a port: without a principal the store is not asked.
        let record = match &principal {
            Some(_) => self.access.workspace(&address.name, now).await?,
            None => None,
        };
        drop(turn);
        known.user = principal.as_ref().map(|principal| principal.user.clone());
        let exposure = record.as_ref().map(|record| exposure(record, address));
        let seen = match may_see(principal.as_ref(), exposure.as_ref(), shape, wall_clock()) {
            Ok(seen) => {
                origin.guest.prove();
                seen
            }
            Err(decision) => {
                count(&decision, offered, shape, origin, now)?;
                return Err(self.refusal(decision, visit));
            }
        };
        let is_draining = self.drain.is_draining();
        let session = with_link(session).await;
        let Some(session) = session else {
            let why = self.absent(address, seen == Visibility::Owner, now);
            return Err(if is_draining { Failure::Draining.into() } else { why.await });
        };
        let shares = record.as_ref().map_or(&[][..], |record| &record.shares);
        let named = record.as_ref().map_or(&[][..], |record| &record.ports);
        let viewer = Viewer { seen, principal: principal.as_ref(), shares, named };
        let list = self.ports_of(address, &session, &viewer).await;
        let is_head = parts.method == Method::HEAD;
        if respond::wants(&parts.headers, &parts.method) == Wants::Html && (is_head || parts.method == Method::GET) {
            return Ok(ports::page(&list, &self.failures.links, is_head).map(ResponseBody::from));
        }
        let mut response =
            self.failures.answer(Failure::NoDefaultPort, Form { wants: Wants::Json, is_head }, known, origin);
        ports::add_to_problem(&mut response, &list);
        Err(EdgeAnswer::Response(Box::new(response)))
    }

    /// Finds the ports that the visitor may open: those that listen, and those that the agent or a share names.
    pub(super) async fn ports_of<'a>(
        &self,
        address: &'a Address,
        session: &LiveSession,
        viewer: &Viewer<'_>,
    ) -> PortList<'a> {
        let Viewer { seen, principal, shares, named } = *viewer;
        let report = session.report().await;
        let listening = report.as_ref().map(|report| report.listening.clone());
        let listens = |port: Port| listening.as_ref().map(|ports| ports.contains(&port));
        let mut found: BTreeMap<Port, Option<bool>> = BTreeMap::new();
        match (seen, principal) {
            (Visibility::Owner, _) => {
                found.extend(listening.iter().flat_map(|ports| ports.iter()).map(|port| (*port, Some(true))));
                let said = session.ports().iter().filter_map(|said| Port::new(said.number));
                let all = said.chain(named.iter().map(|named| named.port).filter(|port| session.exposes(*port)));
                found.extend(all.map(|port| (port, listens(port))));
            }
            (Visibility::Shared, Some(principal)) => {
                let theirs = shared_with(principal, shares, wall_clock()).map(|share| share.port);
                found.extend(theirs.map(|port| (port, listens(port))));
            }
            (Visibility::Shared, None) => {}
        }
        // No link leads there.
        found.retain(|port, _| !(port.is_ssh() || (address.is_by_path() && port.is_agents_page())));
        let url = |port| self.hosts.beside(address, Some(port));
        let labels = report.as_ref().map(|report| report.labels.as_ref());
        let is_open = |share: &&Share, port: Port| share.port == port && share.is_live(wall_clock());
        let link = |(port, listens): (Port, Option<bool>)| PortLink {
            port,
            url: url(port),
            listens,
            label: label(port, named, labels),
            protocol: session.mode(port).protocol_word(),
            open_to: match seen {
                Visibility::Owner => {
                    shares.iter().filter(|share| is_open(share, port)).map(|one| one.audience.to_string()).collect()
                }
                Visibility::Shared => Vec::new(),
            },
        };
        let links = found.into_iter().map(link).collect();
        let is_any_exposed = seen == Visibility::Owner && session.ports().is_empty();
        let pattern = is_any_exposed.then(|| match address.is_by_path() {
            true => format!("{}PORT/", self.hosts.beside(address, None)),
            false => self.hosts.site.workspace(&format!("PORT-{}", self.hosts.rules.format(&address.name, None)), "/"),
        });
        PortList { workspace: &address.name, links, pattern }
    }
}
