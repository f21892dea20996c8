//! Tours over hosts of a workspace. They are kept here, and a URL has only the id of one: the other ports must not see
//! where the browser was going, and what it carries in its query.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use gateway_auth::expiring::Expiring;
use gateway_auth::sign_in::path::ReturnPath;
use gateway_types::opaque::{Digest, Opaque};

/// The page of a workspace host that signs a browser in there and sends it on.
pub(super) const TOUR_PATH: &str = "/.gateway/neighbours";

/// Longest age of a tour. It is a chain of redirects.
const TOUR_AGE_MAX: Duration = Duration::from_secs(60);

/// Most tours at once. Beyond it, the oldest ends, and its browser stays where it was led.
const TOURS_MAX: usize = 1024;

/// A tour of one browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tour {
    /// The public session behind the sign-in that began it.
    pub(super) public: Digest,
    /// The hosts that are visited, each once, in this order.
    pub(super) hosts: Vec<Box<str>>,
    /// The host that the browser was going to.
    pub(super) back: Box<str>,
    /// Path that it was going to there.
    pub(super) path: ReturnPath,
}

/// A place that a browser is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) host: Box<str>,
    pub(super) path: String,
}

/// The tours that are under way, by their ids' digests.
#[derive(Debug)]
pub(super) struct Tours {
    under_way: Mutex<Expiring<Digest, Tour>>,
}

impl Default for Tours {
    fn default() -> Self {
        Self { under_way: Mutex::new(Expiring::new(TOUR_AGE_MAX, TOURS_MAX)) }
    }
}

impl Tours {
    /// Begins a tour under a fresh id, and returns its first stop; `None` for one over no host.
    pub(super) fn begin(&self, id: &Opaque, tour: Tour, now: Instant) -> Option<Stop> {
        let first = tour.hosts.first()?.clone();
        self.under_way.lock().insert(id.digest(), tour, now);
        Some(Stop { host: first, path: path_of(id) })
    }

    /// Returns where a browser goes from `host` with the query of a stop's URL; `None` if there is no such tour, or it
    /// does not lead over that host.
    pub(super) fn onward(&self, query: &str, host: &str, now: Instant) -> Option<Stop> {
        let id = Opaque::parse(query.strip_prefix("tour=")?)?;
        let under_way = self.under_way.lock();
        let (tour, _age) = under_way.get(&id.digest(), now)?;
        let at = tour.hosts.iter().position(|stop| **stop == *host)?;
        Some(match tour.hosts.get(at + 1) {
            Some(next) => Stop { host: next.clone(), path: path_of(&id) },
            None => Stop { host: tour.back.clone(), path: tour.path.as_str().to_owned() },
        })
    }

    /// Returns the hosts to which tours of a browser lead: two at once would spoil each other's sign-in there.
    pub(super) fn hosts_of(&self, public: &Digest, now: Instant) -> HashSet<Box<str>> {
        let under_way = self.under_way.lock();
        let theirs = under_way.values(now).filter(|tour| tour.public == *public);
        theirs.flat_map(|tour| tour.hosts.iter().cloned()).collect()
    }
}

fn path_of(id: &Opaque) -> String {
    format!("{TOUR_PATH}?tour={}", id.reveal())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        tours: Tours,
        public: Digest,
        first: Stop,
        now: Instant,
    }

    fn fixture() -> Fixture {
        let (tours, now, public) = (Tours::default(), Instant::now(), Opaque::random().unwrap().digest());
        let hosts = ["8000-app.ws.test", "9000-app.ws.test"].map(Box::from).to_vec();
        let path = ReturnPath::parse("/a?b=c").unwrap();
        let tour = Tour { public, hosts, back: "5173-app.ws.test".into(), path };
        let first = tours.begin(&Opaque::random().unwrap(), tour, now).unwrap();
        Fixture { tours, public, first, now }
    }

    impl Fixture {
        fn query(&self) -> &str {
            self.first.path.split_once('?').unwrap().1
        }
    }

    #[test]
    fn tour_leads_over_each_host_and_back_to_what_was_asked_for_and_says_that_in_no_address_before() {
        let it = fixture();
        assert_eq!(&*it.first.host, "8000-app.ws.test");
        let second = it.tours.onward(it.query(), &it.first.host, it.now).unwrap();
        assert_eq!(second, Stop { host: "9000-app.ws.test".into(), path: it.first.path.clone() });
        let last = it.tours.onward(it.query(), &second.host, it.now).unwrap();
        assert_eq!(last, Stop { host: "5173-app.ws.test".into(), path: "/a?b=c".to_owned() });
        let again = it.tours.onward(it.query(), &it.first.host, it.now).unwrap();
        assert_eq!(again.host, second.host, "a page that is loaded again goes on as before");
        assert!(!it.first.path.contains("b=c"));
    }

    #[test]
    fn tour_is_none_at_other_hosts_with_other_ids_and_after_its_time() {
        let it = fixture();
        for host in ["5173-app.ws.test", "8000-app.ws.test.evil", ""] {
            assert_eq!(it.tours.onward(it.query(), host, it.now), None, "{host}");
        }
        let other = format!("tour={}", Opaque::random().unwrap().reveal());
        let doubled = format!("{}&tour=x", it.query());
        for query in ["", "tour=", "tour=x", &other, &doubled] {
            assert_eq!(it.tours.onward(query, &it.first.host, it.now), None, "{query}");
        }
        let last = it.now + TOUR_AGE_MAX - Duration::from_nanos(1);
        assert!(it.tours.onward(it.query(), &it.first.host, last).is_some());
        assert_eq!(it.tours.onward(it.query(), &it.first.host, it.now + TOUR_AGE_MAX), None);
    }

    #[test]
    fn browser_is_led_to_a_host_by_one_tour_at_a_time() {
        let it = fixture();
        let lead_to = |public: &Digest, host: &str, now| it.tours.hosts_of(public, now).contains(host);
        assert!(lead_to(&it.public, "9000-app.ws.test", it.now));
        assert!(!lead_to(&it.public, "5173-app.ws.test", it.now));
        let other = Opaque::random().unwrap().digest();
        assert!(!lead_to(&other, "9000-app.ws.test", it.now));
        assert!(!lead_to(&it.public, "9000-app.ws.test", it.now + TOUR_AGE_MAX));
    }

    #[test]
    fn tour_over_no_host_is_none() {
        let it = fixture();
        let tour =
            Tour { public: it.public, hosts: Vec::new(), back: "a".into(), path: ReturnPath::parse("/").unwrap() };
        assert_eq!(it.tours.begin(&Opaque::random().unwrap(), tour, it.now), None);
    }
}
