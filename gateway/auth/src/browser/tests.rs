use super::*;

const HOST: &str = "8080-app.zone";
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const IDLE_MAX: Duration = Duration::from_secs(2 * 60 * 60);
const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
const MOMENT: Duration = Duration::from_millis(1);

fn ann() -> UserName {
    "ann".parse().unwrap()
}

/// A store with one public session and one host session under it.
struct Fixture {
    sessions: BrowserSessions,
    start: Instant,
    public: Digest,
    host: Digest,
}

fn fixture() -> Fixture {
    let start = Instant::now();
    let sessions = BrowserSessions::new(start, Lifetimes { idle_max: IDLE_MAX, age_max: AGE_MAX });
    let (public, host) = (Opaque::random().unwrap(), Opaque::random().unwrap());
    sessions.open_public(&public, ann(), PEER, start);
    sessions.open_host(&host, public.digest(), HOST, PEER, start).unwrap();
    Fixture { sessions, start, public: public.digest(), host: host.digest() }
}

#[test]
fn session_of_one_host_is_none_on_any_other() {
    let it = fixture();
    assert_eq!(it.sessions.host(&it.host, HOST, it.start), Some(ann()));
    for other in ["8081-app.zone", "app.zone", "8080-other.zone", "8080-app.zone.", "8080-APP.zone", ""] {
        assert_eq!(it.sessions.host(&it.host, other, it.start), None, "{other}");
    }
    // The two kinds do not stand in for each other either.
    assert_eq!(it.sessions.public(&it.host, it.start), None);
    assert_eq!(it.sessions.host(&it.public, HOST, it.start), None);
}

#[test]
fn unused_session_ends_exactly_at_the_idle_bound() {
    let it = fixture();
    let late = it.start + IDLE_MAX;
    assert_eq!(it.sessions.public(&it.public, late), None);
    assert_eq!(it.sessions.host(&it.host, HOST, late), None);
    let it = fixture();
    let late = it.start + IDLE_MAX - MOMENT;
    assert_eq!(it.sessions.host(&it.host, HOST, late), Some(ann()));
    // That use counted for both.
    let later = late + IDLE_MAX - MOMENT;
    assert_eq!(it.sessions.public(&it.public, later), Some(ann()));
    assert_eq!(it.sessions.host(&it.host, HOST, later), Some(ann()));
}

#[test]
fn idle_host_session_ends_while_its_parent_is_used() {
    let it = fixture();
    let half = it.start + IDLE_MAX / 2;
    assert!(it.sessions.public(&it.public, half).is_some());
    let late = it.start + IDLE_MAX;
    assert_eq!(it.sessions.host(&it.host, HOST, late), None);
    assert!(it.sessions.public(&it.public, late).is_some());
}

#[test]
fn busy_session_ends_exactly_at_the_absolute_bound() {
    let it = fixture();
    let mut now = it.start;
    while now + IDLE_MAX / 2 < it.start + AGE_MAX {
        now += IDLE_MAX / 2;
        assert!(it.sessions.host(&it.host, HOST, now).is_some());
    }
    assert!(it.sessions.host(&it.host, HOST, it.start + AGE_MAX - MOMENT).is_some());
    assert!(it.sessions.host(&it.host, HOST, it.start + AGE_MAX).is_none());
    let child = Opaque::random().unwrap();
    let refused = it.sessions.open_host(&child, it.public, HOST, PEER, it.start + AGE_MAX);
    assert_eq!(refused, Err(ParentEnded));
}

#[test]
fn sign_out_ends_the_session_and_its_children_only() {
    let it = fixture();
    let (other, child) = (Opaque::random().unwrap(), Opaque::random().unwrap());
    it.sessions.open_public(&other, ann(), PEER, it.start);
    it.sessions.open_host(&child, other.digest(), HOST, PEER, it.start).unwrap();
    assert_eq!(it.sessions.sign_out(&it.public).map(|who| who.user), Some(ann()));
    assert!(it.sessions.sign_out(&it.public).is_none());
    assert_eq!(it.sessions.public(&it.public, it.start), None);
    assert_eq!(it.sessions.host(&it.host, HOST, it.start), None);
    assert_eq!(it.sessions.open_host(&Opaque::random().unwrap(), it.public, HOST, PEER, it.start), Err(ParentEnded));
    assert_eq!(it.sessions.host(&child.digest(), HOST, it.start), Some(ann()));
}

#[test]
fn user_with_too_many_sessions_loses_the_one_idle_longest_and_nobody_elses() {
    let it = fixture();
    let bob: UserName = "bob".parse().unwrap();
    let ids: Vec<_> = (0..PUBLIC_SESSIONS_PER_USER_MAX).map(|_| Opaque::random().unwrap()).collect();
    let mut now = it.start;
    for id in &ids {
        now += MOMENT;
        it.sessions.open_public(id, bob.clone(), PEER, now);
    }
    // The first is used again, so the second has been idle longest.
    assert!(it.sessions.public(&ids[0].digest(), now + MOMENT).is_some());
    it.sessions.open_public(&Opaque::random().unwrap(), bob, PEER, now + MOMENT);
    let live: Vec<_> = ids.iter().map(|id| it.sessions.public(&id.digest(), now + MOMENT).is_some()).collect();
    assert_eq!(live.iter().position(|live| !live), Some(1));
    assert_eq!(live.iter().filter(|live| !**live).count(), 1);
    assert!(it.sessions.host(&it.host, HOST, now).is_some());
}

#[test]
fn sessions_are_bounded_in_every_direction() {
    let it = fixture();
    for _ in 0..HOST_SESSIONS_PER_PARENT_MAX + 10 {
        it.sessions.open_host(&Opaque::random().unwrap(), it.public, HOST, PEER, it.start + MOMENT).unwrap();
    }
    assert_eq!(it.sessions.state.read().hosts.len(), HOST_SESSIONS_PER_PARENT_MAX);
    assert_eq!(it.sessions.host(&it.host, HOST, it.start + MOMENT), None, "the oldest made room");

    let mut state = SessionTable::default();
    for number in 0..PUBLIC_SESSIONS_MAX {
        let user: UserName = format!("user-{number}").parse().unwrap();
        let used = LastUse::new(it.start, it.start + MOMENT * u32::try_from(number).unwrap());
        state.public.insert(
            Opaque::random().unwrap().digest(),
            Arc::new(PublicSession {
                who: user.into(),
                lifetimes: it.sessions.lifetimes,
                opened_ms: 0,
                used,
                peer: PEER,
            }),
        );
    }
    state.make_public_room(&ann());
    assert_eq!(state.public.len(), PUBLIC_SESSIONS_MAX - 1);
    assert!(!state.public.values().any(|session| session.who.user.as_str() == "user-0"));
}

#[test]
fn expired_sessions_do_not_stay_in_memory() {
    let it = fixture();
    it.sessions.open_public(&Opaque::random().unwrap(), ann(), PEER, it.start + IDLE_MAX);
    let state = it.sessions.state.read();
    assert_eq!((state.public.len(), state.hosts.len()), (1, 0));
}

#[test]
fn signing_out_everywhere_ends_all_browsers_of_one_user_and_no_other() {
    let it = fixture();
    let (second, bobs) = (Opaque::random().unwrap(), Opaque::random().unwrap());
    let bob: UserName = "bob".parse().unwrap();
    it.sessions.open_public(&second, ann(), PEER, it.start);
    it.sessions.open_public(&bobs, bob.clone(), PEER, it.start);
    let bobs_host = Opaque::random().unwrap();
    it.sessions.open_host(&bobs_host, bobs.digest(), HOST, PEER, it.start).unwrap();
    assert_eq!(it.sessions.sign_out_everywhere(&ann()), 2);
    for id in [it.public, second.digest()] {
        assert_eq!(it.sessions.public(&id, it.start), None);
    }
    assert_eq!(it.sessions.host(&it.host, HOST, it.start), None);
    assert_eq!(it.sessions.host(&bobs_host.digest(), HOST, it.start), Some(bob));
    assert_eq!(it.sessions.sign_out_everywhere(&ann()), 0);
}

#[test]
fn provider_session_that_ended_ends_ours_and_what_hangs_on_it() {
    let it = fixture();
    let (one, other) = (Opaque::random().unwrap(), Opaque::random().unwrap());
    let of = |session: &str| SignedIn {
        user: ann(),
        provider: Some(Arc::new(ProviderSession::new("u-1", Some(session), ""))),
    };
    it.sessions.open_public(&one, of("s-1"), PEER, it.start);
    it.sessions.open_public(&other, of("s-2"), PEER, it.start);
    let child = Opaque::random().unwrap();
    it.sessions.open_host(&child, one.digest(), HOST, PEER, it.start).unwrap();
    let is_ended = |who: &SignedIn| who.provider.as_ref().is_some_and(|provider| provider.session() == Some("s-1"));
    assert_eq!(it.sessions.end_where(is_ended).len(), 1);
    assert_eq!(it.sessions.public(&one.digest(), it.start), None);
    assert_eq!(it.sessions.host(&child.digest(), HOST, it.start), None);
    assert!(it.sessions.public(&other.digest(), it.start).is_some());
    assert!(it.sessions.public(&it.public, it.start).is_some(), "dev mode's sessions know no provider");
}
