use super::*;
use crate::changes::Feed;
use crate::each::each;
use crate::{AccessChange, NewReplica};
use gateway_types::sign_in_rows::{DeviceChange, KeptParent, SessionChange};

const ISSUER: Option<&str> = Some("https://id.example");
const LIFE: Duration = Duration::from_secs(60);

fn digest(number: u8) -> Digest {
    Digest::from_bytes([number; 32])
}

fn session(number: u8, user: &str, of: Option<u8>) -> KeptSession {
    KeptSession {
        id: digest(number),
        user: user.parse().unwrap(),
        of: of.map(|of| KeptParent { parent: digest(of), host: "8080-app.zone".into() }),
        provider: of.is_none().then(|| (format!("subject-{user}").into(), Some(format!("sid-{number}").into()))),
        peer: "192.0.2.1".parse().unwrap(),
        opened_at: UnixSeconds::new(100),
        used_at: UnixSeconds::new(200),
    }
}

async fn put(store: &Store, sessions: &[KeptSession]) {
    let changes: Vec<_> = sessions.iter().map(|session| SessionChange::Begun(Box::new(session.clone()))).collect();
    store.keep_browser_sessions(ISSUER, &changes).await.unwrap();
}

async fn left(store: &Store) -> Vec<Digest> {
    let mut ids: Vec<Digest> = store.browser_sessions(ISSUER).await.unwrap().iter().map(|row| row.id).collect();
    ids.sort_by_key(|id| *id.as_bytes());
    ids
}

#[tokio::test]
async fn session_is_found_with_its_parent_and_for_its_provider_only() {
    each(async |store| {
        let (public, host) = (session(1, "ann", None), session(2, "ann", Some(1)));
        put(store, &[public.clone(), host.clone(), session(3, "bob", None)]).await;
        assert_eq!(store.browser_session(ISSUER, &public.id).await.unwrap(), std::slice::from_ref(&public));
        let found = store.browser_session(ISSUER, &host.id).await.unwrap();
        assert!(found.len() == 2 && found.contains(&public) && found.contains(&host), "{found:?}");
        assert_eq!(store.browser_session(None, &public.id).await.unwrap(), []);
        assert_eq!(store.browser_session(ISSUER, &digest(9)).await.unwrap(), []);
        assert_eq!(store.browser_sessions_of(ISSUER, "ann").await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn sessions_of_a_user_or_a_provider_end_with_their_children_and_no_others() {
    each(async |store| {
        let all =
            [session(1, "ann", None), session(2, "ann", Some(1)), session(3, "ann", None), session(4, "bob", None)];
        put(store, &all).await;
        let ended = |id| EndedSession { id: digest(id), user: "ann".parse().unwrap() };
        let of = |subject: Option<&str>, session: Option<&str>| SessionsOf::Provider {
            subject: subject.map(str::to_owned),
            session: session.map(str::to_owned),
        };
        for nothing in [of(None, None), of(Some("subject-bob"), Some("sid-1")), of(Some("other"), None)] {
            assert_eq!(store.end_browser_sessions(ISSUER, &nothing).await.unwrap(), [], "{nothing:?}");
        }
        assert_eq!(store.end_browser_sessions(Some("other"), &of(Some("subject-ann"), None)).await.unwrap(), []);
        let one = store.end_browser_sessions(ISSUER, &of(None, Some("sid-1"))).await.unwrap();
        assert_eq!((one, left(store).await), (vec![ended(1)], vec![digest(3), digest(4)]));
        let ann = SessionsOf::User("ann".parse().unwrap());
        assert_eq!(store.end_browser_sessions(ISSUER, &ann).await.unwrap(), [ended(3)]);
        assert_eq!(left(store).await, [digest(4)]);
    })
    .await;
}

#[tokio::test]
async fn end_of_each_session_is_in_the_feed_if_there_are_replicas() {
    each(async |store| {
        let mut feed = Feed::default();
        store.news(&mut feed).await.unwrap();
        put(store, &[session(1, "ann", None), session(2, "ann", None)]).await;
        store.keep_browser_sessions(ISSUER, &[SessionChange::Ended(digest(1))]).await.unwrap();
        assert_eq!(store.news(&mut feed).await.unwrap(), [], "one gateway alone knows by itself");
        let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z", public_url: "https://z", lease: LIFE };
        store.add_replica(&new).await.unwrap().unwrap();
        store.keep_browser_sessions(ISSUER, &[SessionChange::Ended(digest(2))]).await.unwrap();
        assert_eq!(store.news(&mut feed).await.unwrap(), [AccessChange::Session(digest(2))]);
    })
    .await;
}

#[tokio::test]
async fn last_use_only_moves_on_and_keeps_a_session_from_being_cleared() {
    each(async |store| {
        put(store, &[session(1, "ann", None), session(2, "ann", None)]).await;
        for at in [900, 300] {
            let used = SessionChange::Used(digest(1), UnixSeconds::new(at));
            store.keep_browser_sessions(ISSUER, &[used]).await.unwrap();
        }
        assert_eq!(store.browser_session(ISSUER, &digest(1)).await.unwrap()[0].used_at, UnixSeconds::new(900));
        let obsolete = Obsolete {
            used_before: UnixSeconds::new(500),
            opened_before: UnixSeconds::new(100),
            asked_before: UnixSeconds::new(0),
            guess_window: LIFE,
        };
        store.clear_sign_ins(obsolete).await.unwrap();
        assert_eq!(left(store).await, [digest(1)]);
        store.clear_sign_ins(Obsolete { opened_before: UnixSeconds::new(101), ..obsolete }).await.unwrap();
        assert_eq!(left(store).await, []);
    })
    .await;
}

#[tokio::test]
async fn program_is_decided_once_and_taken_once() {
    each(async |store| {
        let waiting = KeptDevice {
            device: digest(1),
            code: digest(2),
            machine: "laptop".to_owned(),
            peer: "192.0.2.1".parse().unwrap(),
            asked_at: UnixSeconds::new(100),
            answer: KeptAnswer::None,
        };
        store.keep_device_sign_ins(&[DeviceChange::Is(Box::new(waiting.clone()))]).await.unwrap();
        for key in [DeviceKey::Device(digest(1)), DeviceKey::Code(digest(2))] {
            assert_eq!(store.device_sign_in(key).await.unwrap(), Some(waiting.clone()));
        }
        assert_eq!(store.device_sign_in(DeviceKey::Code(digest(1))).await.unwrap(), None);
        assert!(!store.take_device_sign_in(&digest(1)).await.unwrap(), "not decided yet");
        let yes = KeptAnswer::Yes("ann".parse().unwrap());
        assert!(store.decide_device_sign_in(&digest(1), &yes).await.unwrap());
        assert!(!store.decide_device_sign_in(&digest(1), &KeptAnswer::No).await.unwrap());
        let decided = store.device_sign_in(DeviceKey::Device(digest(1))).await.unwrap().unwrap();
        assert_eq!(decided.answer, yes);
        assert!(store.take_device_sign_in(&digest(1)).await.unwrap());
        assert!(!store.take_device_sign_in(&digest(1)).await.unwrap());
    })
    .await;
}

fn step(number: u8, kind: StepKind, age_max: Duration) -> NewStep {
    NewStep { kind, id: digest(number), contents: vec![number; 3], age_max }
}

#[tokio::test]
async fn step_is_taken_once_as_its_kind_and_in_time() {
    each(async |store| {
        let [link, spent] = [step(1, StepKind::Link, LIFE), step(2, StepKind::Spent, LIFE)];
        assert!(store.add_sign_in_steps(&[link.clone(), spent.clone()]).await.unwrap());
        // What was spent before makes nothing.
        let transfer = step(3, StepKind::Transfer, LIFE);
        assert!(!store.add_sign_in_steps(&[transfer.clone(), spent]).await.unwrap());
        assert_eq!(store.take_sign_in_step(StepKind::Transfer, &transfer.id).await.unwrap(), None);
        assert_eq!(store.take_sign_in_step(StepKind::Provider, &link.id).await.unwrap(), None);
        assert_eq!(store.take_sign_in_step(StepKind::Link, &link.id).await.unwrap(), Some(link.contents));
        assert_eq!(store.take_sign_in_step(StepKind::Link, &link.id).await.unwrap(), None);
        store.add_sign_in_steps(&[step(4, StepKind::Link, Duration::ZERO)]).await.unwrap();
        assert_eq!(store.take_sign_in_step(StepKind::Link, &digest(4)).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn contents_of_a_step_are_sealed() {
    each(async |store| {
        store.add_sign_in_steps(&[step(7, StepKind::Provider, LIFE)]).await.unwrap();
        let row = sql("SELECT sealed FROM sign_in_steps").fetch_one(&store.readers).await.unwrap();
        let sealed: &[u8] = row.get("sealed").unwrap();
        assert!(!sealed.windows(3).any(|part| part == [7; 3]));
    })
    .await;
}

#[tokio::test]
async fn guesses_count_over_all_replicas_until_their_window_is_over() {
    each(async |store| {
        let keys = ["address".to_owned(), "user".to_owned()];
        assert_eq!(store.count_guesses(&keys, LIFE).await.unwrap(), [1, 1]);
        assert_eq!(store.count_guesses(&keys[..1], LIFE).await.unwrap(), [2]);
        store.uncount_guesses(&keys).await.unwrap();
        assert_eq!(store.count_guesses(&keys, LIFE).await.unwrap(), [2, 1]);
        assert_eq!(store.count_guesses(&keys, Duration::ZERO).await.unwrap(), [1, 1], "the count began anew");
    })
    .await;
}

#[tokio::test]
async fn proof_is_of_its_text_and_its_key() {
    each(async |store| {
        let proof = store.prove_sign_in(b"a");
        assert_eq!(store.prove_sign_in(b"a"), proof);
        assert_ne!(store.prove_sign_in(b"b"), proof);
    })
    .await;
}
