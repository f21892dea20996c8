//! Signs a browser in at the other ports of a workspace on its way back from a sign-in at one of them.
//!
//! Each workspace host has a sign-in of its own, and only a visit to a page can begin one: requests of a page on port
//! 5173 to port 8000 would be refused until the user had opened port 8000 by hand. So the way back from the first
//! sign-in leads over ports that listen, each of which begins its own sign-in as any visit to a page does, with a nonce
//! of its own. Nothing new vouches for a browser. Decision record:
//! docs/decisions/2026-11-23-two-ports-sign-in-apart.md.

mod tours;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderValue, Response, Uri};
use tokio::time::{Instant, timeout};

use self::tours::{Stop, TOUR_PATH, Tour, Tours};
use super::Edge;
use super::ports::Viewer;
use crate::address::Address;
use gateway_auth::policy::{Exposure, sees};
use gateway_auth::sign_in::path::{ReturnPath, is_reserved};
use gateway_auth::sign_in::{PageVisit, SignedInBrowser};
use gateway_store::wall_clock;
use gateway_types::opaque::Opaque;
use gateway_types::principal::{Principal, Via};
use gateway_types::{Port, UserName};

/// Longest time that a browser waits for its tour to be planned.
const PATIENCE: Duration = Duration::from_secs(1);

/// The tours of browsers over ports, and how many ports each may have.
#[derive(Debug)]
pub struct Neighbours {
    ports_max: usize,
    tours: Tours,
}

impl Neighbours {
    /// Creates them without a tour.
    pub fn new(ports_max: usize) -> Self {
        Self { ports_max, tours: Tours::default() }
    }
}

/// Returns whether a visit is to a stop of a tour.
pub(super) fn is_stop(uri: &Uri) -> bool {
    uri.path() == TOUR_PATH
}

/// Picks the ports to visit. The product's own are left out: a user who opened another port must not thereby let its
/// page reach the editor or terminal. A page's API is more often near its port than far.
fn nearest(own: Port, listening: impl Iterator<Item = Port>) -> Vec<Port> {
    let mut ports: Vec<Port> = listening.filter(|port| port.label().is_none() && *port != own).collect();
    ports.sort_by_key(|port| (own.get().abs_diff(port.get()), port.get()));
    ports
}

impl Edge {
    /// Answers a visit to a stop of a tour; `None` if there is no such tour, or it does not lead over this host.
    pub(super) fn pass_neighbour(&self, visit: PageVisit<'_>, host: &str, now: Instant) -> Option<Response<Bytes>> {
        let onward = self.neighbours.tours.onward(visit.uri.query()?, host, now)?;
        Some(self.access.visitors.sign_in.pass(visit, host, &self.at(&onward), now))
    }

    /// Leads a browser that has just signed in at a port over other listening ports that its user may open. Any other
    /// answer stays as it is.
    pub(super) async fn lead_over_neighbours(&self, answer: &mut Response<Bytes>, address: &Address, now: Instant) {
        let Some(entered) = answer.extensions_mut().remove::<SignedInBrowser>() else { return };
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(path) = location.and_then(ReturnPath::parse) else { return };
        let stop = match path.as_str().split_once('?') {
            Some((TOUR_PATH, query)) => self.neighbours.tours.onward(query, &address.host, now),
            Some(_) | None => timeout(PATIENCE, self.begin_tour(&entered, address, path, now)).await.ok().flatten(),
        };
        if let Some(location) = stop.and_then(|stop| HeaderValue::try_from(self.at(&stop)).ok()) {
            answer.headers_mut().insert(LOCATION, location);
        }
    }

    /// Plans a tour that ends where the browser was going; `None` if there is nothing to visit, or a tour would be of
    /// no use.
    async fn begin_tour(
        &self,
        entered: &SignedInBrowser,
        address: &Address,
        path: ReturnPath,
        now: Instant,
    ) -> Option<Stop> {
        // To a browser the hosts of a zone of one label, as `localhost`, are sites of their own, and it sends no cookie from one to
        // another: the label is a public suffix.
        let is_of_use = self.neighbours.ports_max > 0 && self.hosts.rules.zone().as_str().contains('.');
        if !is_of_use || is_reserved(path.as_str().split('?').next().unwrap_or_default()) {
            return None;
        }
        let user = self.access.visitors.sign_in.user_of(entered, now)?;
        let (own, ports) = self.listening_for(&user, address, now).await?;
        let tours = &self.neighbours.tours;
        // Once for all ports: each looks at every session, and an agent may name hundreds of ports.
        let (known, visited) =
            (self.access.visitors.sign_in.hosts_of(entered, now), tours.hosts_of(&entered.public, now));
        let hosts = nearest(own, ports.into_iter())
            .into_iter()
            .map(|port| Box::from(self.hosts.rules.format(&address.name, Some(port))))
            .filter(|host| !known.contains(host) && !visited.contains(host))
            .take(self.neighbours.ports_max)
            .collect();
        let tour = Tour { public: entered.public, hosts, back: address.host.clone(), path };
        tours.begin(&Opaque::random().ok()?, tour, now)
    }

    /// Returns the port at an address, and the listening ports that the user may open. Without a share of the workspace
    /// by name or group, the user gets none, and its agent is not asked.
    async fn listening_for(&self, user: &UserName, address: &Address, now: Instant) -> Option<(Port, Vec<Port>)> {
        let status = self.access.visitors.user_status(user, now).await.ok()?;
        let principal = Principal { user: user.clone(), groups: Arc::default(), via: Via::Browser };
        let principal = principal.with(&status, self.access.visitors.groups_age_max, wall_clock())?;
        let record = self.access.workspace(&address.name, now).await.ok()??;
        let exposure = Exposure { owner: &record.owner, ports: None, shares: &record.shares };
        let seen = sees(&principal, &exposure, wall_clock())?;
        let session = self.registry.current(&address.name)?;
        let own = address.port.or_else(|| session.default_port())?;
        let list = self
            .ports_of(
                address,
                &session,
                &Viewer { seen, principal: Some(&principal), shares: &record.shares, named: &[] },
            )
            .await;
        let listening = list.links.into_iter().filter(|link| link.listens == Some(true));
        Some((own, listening.map(|link| link.port).collect()))
    }

    fn at(&self, stop: &Stop) -> String {
        self.hosts.site.workspace(&stop.host, &stop.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_near_the_own_come_first_and_those_of_the_product_never() {
        let port = |number| Port::new(number).unwrap();
        let listening = [22, 5432, 5174, 60_001, 60_002, 5173, 8000, 3000, 5175].map(port);
        let nearest = nearest(port(5173), listening.into_iter());
        assert_eq!(nearest, [5174, 5175, 5432, 3000, 8000, 22].map(port));
    }
}
