use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::Request;
use http::header::{COOKIE, LOCATION, SET_COOKIE};

use super::*;
use crate::browser::persistence::Both;
use crate::browser::{BrowserSessions, Lifetimes};
use crate::shared::memory::MemoryStore;
use crate::sign_in::provider::SignInStep;
use crate::site::Site;
use gateway_net::availability::Availability;

const WALL: i64 = 1_800_000_000;
const PUBLIC: &str = "gw.localhost";
const HOST: &str = "8080-app.zone";

struct Replica {
    pages: SignIn,
    sessions: Arc<BrowserSessions>,
}

/// Replicas with one store.
struct Fixture {
    now: Instant,
    store: Arc<MemoryStore>,
    replicas: Vec<Replica>,
}

fn fixture() -> Fixture {
    let (now, store) = (Instant::now(), Arc::new(MemoryStore { wall: AtomicI64::new(WALL), ..MemoryStore::default() }));
    let replica = || {
        let availability = Availability::default();
        let sessions = Arc::new(BrowserSessions::shared(now, Lifetimes::default(), store.clone(), availability));
        let site = Site::new(&"http://gw.localhost:8080".parse().unwrap()).unwrap();
        let is_workspace_host = Box::new(|host: &str| host.ends_with(".zone"));
        let pages = SignIn::new(site, sessions.clone(), "dev".parse().unwrap(), is_workspace_host, Box::new(|_| {}));
        Replica { pages: pages.sharing(Some(store.clone())), sessions }
    };
    let replicas = (0..3).map(|_| replica()).collect();
    Fixture { now, store, replicas }
}

/// A browser that keeps cookies by host.
#[derive(Clone, Default)]
struct Browser(BTreeMap<String, BTreeMap<String, String>>);

impl Browser {
    /// Asks one of the replicas.
    async fn visit(&mut self, it: &Fixture, replica: usize, address: &str) -> Response<Bytes> {
        let uri: http::Uri = address.parse().unwrap();
        let host = uri.host().unwrap_or(HOST).to_owned();
        let mut request =
            Request::get(uri.path_and_query().unwrap().as_str()).header("accept", "text/html").body(()).unwrap();
        let pairs = self.0.get(&host).into_iter().flatten();
        let line = pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
        if !line.is_empty() {
            request.headers_mut().insert(COOKIE, line.parse().unwrap());
        }
        let (visit, pages) = (PageVisit::from(&request), &it.replicas[replica].pages);
        let answer = if host == PUBLIC {
            match pages.prepare_public(visit, it.now).await {
                Some(answer) => Err(answer),
                None => match pages.answer_public(visit, it.now) {
                    Some(SignInStep::Answer(answer)) => Ok(answer),
                    step => panic!("{step:?}"),
                },
            }
        } else {
            let begin = || pages.begin(visit, &host, it.now);
            match pages.prepare_workspace(visit, it.now).await {
                Some(answer) => Err(answer),
                None => Ok(pages.answer_workspace(visit, &host, it.now).unwrap_or_else(begin)),
            }
        };
        let answer = match answer {
            Ok(answer) => pages.finish(visit, answer).await,
            Err(answer) => answer,
        };
        it.write(replica);
        for set in answer.headers().get_all(SET_COOKIE) {
            let (name, value) = set.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            self.0.entry(host.clone()).or_default().insert(name.to_owned(), value.to_owned());
        }
        answer
    }

    /// Signs in on the public host at one replica, with a link of another.
    async fn sign_in(&mut self, it: &Fixture, replica: usize) {
        let link = it.link(0).await;
        assert_eq!(self.visit(it, replica, &link).await.status(), StatusCode::SEE_OTHER);
    }
}

impl Fixture {
    fn write(&self, replica: usize) {
        let sessions = &self.replicas[replica].sessions;
        let batch = sessions.journal().begin(100);
        self.store.keep(sessions.changes(&batch, Both { now: self.now, wall: self.store.now() }));
        sessions.journal().end(Some(&[]));
    }

    /// Makes a link at a replica.
    async fn link(&self, replica: usize) -> String {
        let pages = &self.replicas[replica].pages;
        let link = pages.issue_link(self.now).unwrap().expect("dev mode has links").to_string();
        pages.share_links().await;
        link
    }
}

fn location(answer: &Response<Bytes>) -> String {
    answer.headers()[LOCATION].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_request_of_a_sign_in_may_arrive_at_another_replica() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it, 1).await;
    let authorize = location(&browser.visit(&it, 2, "http://8080-app.zone/a?b").await);
    let callback = location(&browser.visit(&it, 0, &authorize).await);
    let answer = browser.visit(&it, 1, &callback).await;
    assert_eq!((answer.status(), location(&answer)), (StatusCode::SEE_OTHER, "/a?b".to_owned()));
    let cookie = browser.0[HOST].iter().find(|(name, _)| name.contains("session")).unwrap().1;
    let id = Opaque::parse(cookie).unwrap().digest();
    for replica in &it.replicas {
        replica.sessions.find(&id, it.now).await.unwrap();
        assert!(replica.sessions.host(&id, HOST, it.now).is_some());
    }
}

#[tokio::test]
async fn link_code_and_redirect_count_once_at_all_replicas() {
    let it = fixture();
    let link = it.link(0).await;
    let mut browser = Browser::default();
    assert_eq!(browser.visit(&it, 1, &link).await.status(), StatusCode::SEE_OTHER);
    for replica in 0..3 {
        assert_ne!(Browser::default().visit(&it, replica, &link).await.status(), StatusCode::SEE_OTHER, "the link");
    }
    let authorize = location(&browser.visit(&it, 2, "http://8080-app.zone/").await);
    let callback = location(&browser.visit(&it, 0, &authorize).await);
    let mut thief = browser.clone();
    assert_eq!(browser.visit(&it, 1, &callback).await.status(), StatusCode::SEE_OTHER);
    for replica in 0..3 {
        let status = thief.visit(&it, replica, &callback).await.status();
        assert!(status.is_client_error(), "the code: {status}");
        let again = location(&browser.visit(&it, replica, &authorize).await);
        assert_eq!(again, "http://8080-app.zone:8080/", "the redirect begins anew");
    }
}

#[tokio::test]
async fn code_is_for_its_host_and_its_browser() {
    let it = fixture();
    let mut browser = Browser::default();
    browser.sign_in(&it, 0).await;
    let authorize = location(&browser.visit(&it, 0, "http://8080-app.zone/").await);
    let callback = location(&browser.visit(&it, 1, &authorize).await);
    let status = Browser::default().visit(&it, 2, &callback).await.status();
    assert!(status.is_client_error(), "another browser: {status}");
    let status = browser.visit(&it, 2, &callback).await.status();
    assert!(status.is_client_error(), "it is spent all the same: {status}");
}

#[tokio::test]
async fn nonces_and_tickets_of_others_and_old_ones_count_for_nothing() {
    let it = fixture();
    let store: &dyn SharedSignIns = &*it.store;
    let own = nonce(store, HOST).unwrap();
    assert!(is_own_nonce(store, HOST, &own) && !is_own_nonce(store, "other.zone", &own));
    assert!(!is_own_nonce(store, HOST, &Opaque::random().unwrap()));
    let (pre, other) = (own.digest(), Digest::of(b"other"));
    let ticket = Ticket::new(store, HOST, &pre).unwrap();
    assert_eq!(Ticket::parse(&ticket.encoded()), Some(ticket));
    assert!(ticket.is_good(store, HOST, &pre));
    assert!(!ticket.is_good(store, "other.zone", &pre) && !ticket.is_good(store, HOST, &other));
    assert!(!Ticket(Digest::of(b"made up")).is_good(store, HOST, &pre));
    let at = |seconds: i64| it.store.wall.store(WALL + seconds, Ordering::Relaxed);
    for (seconds, is_good) in [(599, true), (600, false), (-300, true), (-301, false)] {
        at(seconds);
        assert_eq!(ticket.is_good(store, HOST, &pre), is_good, "{seconds} s");
    }
    // A redirect that no replica made leads back to the host, which begins anew.
    at(0);
    let mut browser = Browser::default();
    browser.sign_in(&it, 0).await;
    let made_up = format!("http://gw.localhost:8080/.gateway/authorize?host={HOST}&return=%2F&pre={}", pre.encoded());
    assert_eq!(location(&browser.visit(&it, 1, &made_up).await), "http://8080-app.zone:8080/");
}

#[tokio::test]
async fn store_that_is_away_fails_a_sign_in_and_uses_nothing_up() {
    let it = fixture();
    let link = it.link(0).await;
    it.store.is_away.store(true, Ordering::Relaxed);
    let mut browser = Browser::default();
    assert_eq!(browser.visit(&it, 1, &link).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    it.store.is_away.store(false, Ordering::Relaxed);
    assert_eq!(browser.visit(&it, 1, &link).await.status(), StatusCode::SEE_OTHER);
}

#[test]
fn contents_of_steps_read_back() {
    let opaque = || Opaque::random().unwrap();
    let (path, pre) = (ReturnPath::parse("/a?b").unwrap(), opaque().digest());
    let transfer = Transfer { host: HOST.into(), pre, parent: opaque().digest(), return_to: path.clone() };
    assert_eq!(read_transfer(&write_transfer(&transfer)), Some(transfer));
    let ticket = Some(Ticket(Digest::of(b"ticket")));
    for destination in [
        Destination::Public(path.clone()),
        Destination::Workspace { host: HOST.into(), path: path.clone() },
        Destination::Authorize { host: HOST.into(), pre, return_to: path, ticket },
    ] {
        let pending = Pending { pre, nonce: opaque(), verifier: opaque(), destination };
        let read = read_pending(&write_pending(&pending)).unwrap();
        assert_eq!(
            (read.pre, read.nonce, read.verifier, read.destination),
            (pending.pre, pending.nonce, pending.verifier, pending.destination)
        );
    }
    assert!(read_pending(b"{}").is_none() && read_transfer(b"").is_none());
}
