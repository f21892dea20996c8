use std::net::IpAddr;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use super::*;
use crate::shared::SharedSignIns;
use crate::shared::memory::MemoryStore;
use gateway_types::opaque::Opaque;
use gateway_types::sign_in_rows::SessionChange;

const HOST: &str = "8080-app.zone";
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const WALL: i64 = 1_800_000_000;
const MINUTE: u64 = 60;

/// Two replicas with one store.
struct Fixture {
    start: Instant,
    store: Arc<MemoryStore>,
    a: BrowserSessions,
    b: BrowserSessions,
}

fn ann() -> UserName {
    "ann".parse().unwrap()
}

fn fixture() -> Fixture {
    let (start, store) =
        (Instant::now(), Arc::new(MemoryStore { wall: AtomicI64::new(WALL), ..MemoryStore::default() }));
    let replica = || BrowserSessions::shared(start, Lifetimes::default(), store.clone(), Availability::default());
    let (a, b) = (replica(), replica());
    Fixture { start, a, b, store }
}

impl Fixture {
    /// Lets time pass up to a number of seconds after the start.
    fn at(&self, seconds: u64) -> Instant {
        self.store.wall.store(WALL + i64::try_from(seconds).unwrap(), Ordering::Relaxed);
        self.start + Duration::from_secs(seconds)
    }

    /// Writes what a replica has noted, as its writer does.
    fn write(&self, replica: &BrowserSessions, now: Instant) {
        while replica.journal().has_more() {
            let changes = replica.changes(&replica.journal().begin(100), Both { now, wall: self.store.now() });
            let gone = |change: &SessionChange| match change {
                SessionChange::Ended(id) => Some(*id),
                SessionChange::Begun(_) | SessionChange::Used(..) => None,
            };
            let gone: Vec<Digest> = changes.iter().filter_map(gone).collect();
            self.store.keep(changes);
            replica.journal().end(Some(&gone));
        }
    }

    /// Signs ann in at the first replica, on the public host and a workspace host.
    fn sign_in(&self, now: Instant) -> (Digest, Digest) {
        let (public, host) = (Opaque::random().unwrap(), Opaque::random().unwrap());
        self.a.open_public(&public, ann(), PEER, now);
        self.a.open_host(&host, public.digest(), HOST, PEER, now).unwrap();
        self.write(&self.a, now);
        (public.digest(), host.digest())
    }

    fn asked(&self) -> usize {
        self.store.asked.load(Ordering::Relaxed)
    }
}

/// Looks a session of a workspace host up, as a request does.
async fn host(replica: &BrowserSessions, id: &Digest, now: Instant) -> Option<UserName> {
    replica.find(id, now).await.unwrap();
    replica.host(id, HOST, now)
}

#[tokio::test]
async fn session_of_another_replica_is_looked_up_once() {
    let it = fixture();
    let (public, session) = it.sign_in(it.start);
    assert_eq!(it.b.host(&session, HOST, it.start), None);
    assert_eq!(host(&it.b, &session, it.start).await, Some(ann()));
    assert_eq!(it.b.public(&public, it.start), Some(ann()), "its parent came with it");
    for _ in 0..3 {
        assert_eq!(host(&it.b, &session, it.start).await, Some(ann()));
    }
    assert_eq!(it.b.host(&session, "other.zone", it.start), None);
    assert_eq!(it.asked(), 1);
}

#[tokio::test]
async fn flood_of_unknown_ids_costs_the_store_little() {
    let it = fixture();
    let forged = Digest::from_bytes([7; 32]);
    for _ in 0..10 {
        assert_eq!(host(&it.b, &forged, it.start).await, None);
    }
    assert_eq!(it.asked(), 1, "an unknown id is remembered");
    let mut refused = 0_u32;
    for number in 0..2 * READS_PER_SECOND_MAX {
        let forged = Digest::of(&number.to_be_bytes());
        refused += u32::from(it.b.find(&forged, it.start).await.is_err());
    }
    let bound = usize::try_from(READS_PER_SECOND_MAX).unwrap();
    assert!(it.asked() == bound && refused > 0, "{} asked, {refused} refused", it.asked());
    let (_, session) = it.sign_in(it.start);
    assert_eq!(host(&it.b, &session, it.at(1)).await, Some(ann()));
}

#[tokio::test]
async fn session_that_ended_is_not_taken_up_again_although_its_row_was_read_before() {
    let it = fixture();
    let (public, session) = it.sign_in(it.start);
    let rows = it.store.session(session).await.unwrap();
    assert_eq!(host(&it.b, &session, it.start).await, Some(ann()));
    assert!(it.b.ended_elsewhere(&public, it.start));
    assert_eq!(it.b.host(&session, HOST, it.start), None, "its children end with it");
    assert!(!it.b.take_up(&rows, Both { now: it.start, wall: it.store.now() }));
    assert_eq!(host(&it.b, &session, it.start).await, None);
    // Signed out here, and the store has not been told yet.
    assert!(it.a.sign_out(&public).is_some());
    assert!(!it.a.take_up(&rows, Both { now: it.start, wall: it.store.now() }));
    it.write(&it.a, it.start);
    assert!(it.store.sessions.lock().is_empty());
}

#[tokio::test]
async fn session_idle_here_and_used_elsewhere_goes_on() {
    let it = fixture();
    let (public, session) = it.sign_in(it.start);
    assert_eq!(host(&it.b, &session, it.start).await, Some(ann()));
    let used = it.at(110 * MINUTE);
    assert!(it.a.host(&session, HOST, used).is_some());
    it.a.note_uses(used);
    it.write(&it.a, used);
    // More than two hours without a use at the other one.
    let later = it.at(130 * MINUTE);
    it.b.note_uses(later);
    it.write(&it.b, later);
    assert_eq!(it.store.sessions.lock().len(), 2, "nothing was ended for that");
    assert_eq!(it.b.host(&session, HOST, later), None);
    assert_eq!(host(&it.b, &session, later).await, Some(ann()));
    // Not swept in between either.
    let again = it.at(200 * MINUTE);
    assert!(it.a.host(&session, HOST, again).is_some());
    it.a.note_uses(again);
    it.write(&it.a, again);
    let last = it.at(255 * MINUTE);
    assert_eq!(it.b.public(&public, last), None);
    assert_eq!(host(&it.b, &session, last).await, Some(ann()));
    // Idle everywhere.
    let end = it.at(600 * MINUTE);
    assert_eq!(host(&it.b, &session, end).await, None);
    assert_eq!(host(&it.a, &session, end).await, None);
}

#[tokio::test]
async fn store_that_is_away_ends_no_known_session_and_says_so_of_others() {
    let it = fixture();
    let (_, known) = it.sign_in(it.start);
    assert_eq!(host(&it.b, &known, it.start).await, Some(ann()));
    let (_, unknown) = it.sign_in(it.start);
    it.store.is_away.store(true, Ordering::Relaxed);
    assert_eq!(host(&it.b, &known, it.start).await, Some(ann()));
    assert_eq!(it.b.find(&unknown, it.start).await, Err(Unavailable));
    it.store.is_away.store(false, Ordering::Relaxed);
    assert_eq!(host(&it.b, &unknown, it.start).await, Some(ann()), "a failure is not remembered");
}

#[tokio::test]
async fn user_sees_and_ends_the_sessions_of_all_replicas() {
    let it = fixture();
    let (first, _) = it.sign_in(it.start);
    let (second, session) = it.sign_in(it.start);
    let listed = it.b.list_all(&ann(), it.start).await.unwrap();
    assert_eq!(listed.iter().map(|row| row.hosts.len()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(it.b.end_one(&ann(), &session_name(&first), it.start).await, Ok(true));
    it.write(&it.b, it.start);
    assert!(!it.store.sessions.lock().contains_key(&first) && it.store.sessions.lock().contains_key(&second));
    // A replica that knows none of them.
    let c = BrowserSessions::shared(it.start, Lifetimes::default(), it.store.clone(), Availability::default());
    assert_eq!(c.end_every(&ann(), it.start).await, Ok(vec![session_name(&second)]));
    assert_eq!(host(&c, &session, it.start).await, None);
    assert!(it.store.sessions.lock().is_empty());
}

#[tokio::test]
async fn too_many_changes_make_a_replica_ask_again() {
    let it = fixture();
    let (public, session) = it.sign_in(it.start);
    let unwritten = Opaque::random().unwrap();
    it.a.open_public(&unwritten, ann(), PEER, it.start);
    it.a.forget_all();
    assert_eq!(it.a.public(&public, it.start), None);
    assert!(it.a.public(&unwritten.digest(), it.start).is_some(), "only this replica has it yet");
    assert_eq!(host(&it.a, &session, it.start).await, Some(ann()));
    it.write(&it.a, it.start);
    assert_eq!(it.store.sessions.lock().len(), 3, "what was forgotten is not deleted");
}
