//! When an issuer is asked for its keys, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

/// An issuer that counts how often it is asked.
#[derive(Default)]
struct Published {
    keys: Mutex<Option<Value>>,
    asked: AtomicUsize,
    /// Answers wait for this while it is there.
    gate: Mutex<Option<Arc<Notify>>>,
}

impl Published {
    fn with(signers: &[&Signer]) -> Arc<Self> {
        let published = Arc::new(Self::default());
        published.publish(signers);
        published
    }

    fn publish(&self, signers: &[&Signer]) {
        let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
        *self.keys.lock() = Some(json!({ "keys": keys }));
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn set(self: &Arc<Self>) -> Arc<KeySet> {
        let published = self.clone();
        Arc::new(KeySet::new(move || {
            let published = published.clone();
            async move {
                published.asked.fetch_add(1, Ordering::SeqCst);
                let gate = published.gate.lock().clone();
                if let Some(gate) = gate {
                    gate.notified().await;
                }
                let keys = published.keys.lock().clone();
                keys.ok_or_else(|| "unreachable".to_owned())
            }
        }))
    }
}

fn now() -> Moment {
    Moment { wall: NOW, clock: Instant::now() }
}

#[tokio::test(start_paused = true)]
async fn storm_of_unknown_key_ids_asks_the_issuer_once_per_cool_down_and_only_its_word_is_final() {
    let signer = Signer::new("real");
    let published = Published::with(&[&signer]);
    let set = published.set();
    set.verify(&signer.sign(&good()), &expect(), now()).await.unwrap();
    assert_eq!(published.asked(), 1);
    tokio::time::advance(COOL_DOWN).await;
    for number in 0..200 {
        let stranger = Signer::new(&format!("made-up-{number}"));
        let refused = set.verify(&stranger.sign(&good()), &expect(), now()).await;
        let wanted = if number == 0 { TokenRefused::UnknownKey } else { TokenRefused::UnknownKeySoFar };
        assert_eq!(refused, Err(wanted), "{number}");
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    assert_eq!(published.asked(), 2, "200 strangers within the cool-down cost one request");
    set.verify(&signer.sign(&good()), &expect(), now()).await.expect("the real key still counts");
}

#[tokio::test(start_paused = true)]
async fn many_who_need_keys_at_once_share_one_request() {
    let signer = Signer::new("real");
    let published = Published::with(&[&signer]);
    let (set, gate) = (published.set(), Arc::new(Notify::new()));
    *published.gate.lock() = Some(gate.clone());
    let mut users = JoinSet::new();
    for _ in 0..50 {
        let (set, token) = (set.clone(), signer.sign(&good()));
        users.spawn(async move { set.verify(&token, &expect(), now()).await.map(|_| ()) });
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    while let Some(done) = users.join_next().await {
        assert_eq!(done.unwrap(), Ok(()));
    }
    assert_eq!(published.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn new_key_is_found_after_a_rotation_also_if_those_who_ask_hang_up() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let published = Published::with(&[&old]);
    let set = published.set();
    set.verify(&old.sign(&good()), &expect(), now()).await.unwrap();
    published.publish(&[&new]);
    tokio::time::advance(COOL_DOWN).await;
    let gate = Arc::new(Notify::new());
    *published.gate.lock() = Some(gate.clone());
    {
        let token = new.sign(&good());
        let expect = expect();
        let mut hung_up = std::pin::pin!(set.verify(&token, &expect, now()));
        let waits = tokio::time::timeout(Duration::from_millis(1), hung_up.as_mut()).await;
        assert!(waits.is_err(), "it waits for the issuer");
    }
    gate.notify_one();
    tokio::time::sleep(Duration::from_millis(1)).await;
    set.verify(&new.sign(&good()), &expect(), now()).await.expect("what was begun went on");
    assert_eq!(published.asked(), 2);
    assert_eq!(set.verify(&old.sign(&good()), &expect(), now()).await, Err(TokenRefused::UnknownKeySoFar), "too soon");
    *published.gate.lock() = None;
    tokio::time::advance(COOL_DOWN).await;
    assert_eq!(set.verify(&old.sign(&good()), &expect(), now()).await, Err(TokenRefused::UnknownKey));
}

#[tokio::test(start_paused = true)]
async fn key_that_is_new_is_not_called_unknown_by_an_issuer_that_was_not_asked_or_does_not_answer() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let published = Published::with(&[&old]);
    let set = published.set();
    set.verify(&old.sign(&good()), &expect(), now()).await.unwrap();
    published.publish(&[&old, &new]);
    assert_eq!(set.verify(&new.sign(&good()), &expect(), now()).await, Err(TokenRefused::UnknownKeySoFar), "not asked");
    *published.keys.lock() = None;
    tokio::time::advance(COOL_DOWN).await;
    assert_eq!(set.verify(&new.sign(&good()), &expect(), now()).await, Err(TokenRefused::UnknownKeySoFar), "no answer");
    published.publish(&[&old, &new]);
    tokio::time::advance(COOL_DOWN).await;
    set.verify(&new.sign(&good()), &expect(), now()).await.expect("it is read");
}

#[tokio::test(start_paused = true)]
async fn keys_outlive_an_issuer_that_cannot_be_reached_and_a_key_that_was_taken_back_ends() {
    let (kept, taken_back) = (Signer::new("kept"), Signer::new("taken-back"));
    let published = Published::with(&[&kept, &taken_back]);
    let set = published.set();
    set.verify(&taken_back.sign(&good()), &expect(), now()).await.unwrap();
    *published.keys.lock() = None;
    tokio::time::advance(KEYS_AGE_MAX).await;
    for signer in [&kept, &taken_back] {
        set.verify(&signer.sign(&good()), &expect(), now()).await.expect("stale keys count while nobody answers");
    }
    tokio::time::advance(COOL_DOWN).await;
    published.publish(&[&kept]);
    set.verify(&kept.sign(&good()), &expect(), now()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    set.verify(&kept.sign(&good()), &expect(), now()).await.unwrap();
    assert_eq!(set.verify(&taken_back.sign(&good()), &expect(), now()).await, Err(TokenRefused::UnknownKeySoFar));
    tokio::time::advance(COOL_DOWN).await;
    assert_eq!(set.verify(&taken_back.sign(&good()), &expect(), now()).await, Err(TokenRefused::UnknownKey));
}

#[tokio::test(start_paused = true)]
async fn issuer_that_comes_up_late_is_asked_again_soon_and_garbage_never_asks_it() {
    let signer = Signer::new("real");
    let published = Arc::new(Published::default());
    let set = published.set();
    for garbage in ["", "a.b.c", &signer.sign_with(&json!({"alg": "none"}), &good())] {
        assert!(set.verify(garbage, &expect(), now()).await.is_err());
    }
    assert_eq!(published.asked(), 0);
    let token = signer.sign(&good());
    assert_eq!(set.verify(&token, &expect(), now()).await, Err(TokenRefused::KeysUnavailable));
    published.publish(&[&signer]);
    assert_eq!(set.verify(&token, &expect(), now()).await, Err(TokenRefused::KeysUnavailable), "too soon");
    tokio::time::advance(RETRY_AFTER).await;
    set.verify(&token, &expect(), now()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn observer_tells_how_the_last_requests_ended() {
    let published = Arc::new(Published::default());
    let (set, at) = (published.set(), |seconds: i64| UnixSeconds::new(NOW.get() + seconds));
    let observer = set.observer();
    assert_eq!(observer.health(), IssuerHealth::default(), "it has not been asked");
    set.refresh(now()).await;
    let failed = observer.health();
    assert_eq!((failed.read_at, failed.failed_at, failed.failure.as_deref()), (None, Some(NOW), Some("unreachable")));
    published.publish(&[&Signer::new("real")]);
    tokio::time::advance(RETRY_AFTER).await;
    set.refresh(Moment { wall: at(3), clock: Instant::now() }).await;
    assert_eq!(observer.health(), IssuerHealth { read_at: Some(at(3)), ..IssuerHealth::default() });
    *published.keys.lock() = None;
    tokio::time::advance(COOL_DOWN).await;
    set.refresh(Moment { wall: at(33), clock: Instant::now() }).await;
    let failed = observer.health();
    assert_eq!((failed.read_at, failed.failed_at), (Some(at(3)), Some(at(33))), "the old keys count on");
}
