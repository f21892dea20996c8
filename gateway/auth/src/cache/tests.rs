use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join, join_all};
use tokio::sync::Notify;

use super::*;

const MOMENT: Duration = Duration::from_nanos(1);

/// Answers `value` and counts how often it was asked.
fn say<V>(asked: &AtomicUsize, value: V) -> Ready<Result<V, Infallible>> {
    asked.fetch_add(1, Ordering::SeqCst);
    ready(Ok(value))
}

async fn fail() -> Result<Option<u8>, &'static str> {
    Err("the store is down")
}

async fn never() -> Result<Option<u8>, Infallible> {
    pending().await
}

fn count(asked: &AtomicUsize) -> usize {
    asked.load(Ordering::SeqCst)
}

fn is_idle(cache: &Cache<u8, u8>) -> bool {
    cache.loads.lock().is_empty()
}

#[tokio::test(start_paused = true)]
async fn found_value_is_asked_for_again_when_due_and_a_miss_after_its_own_time() {
    let (cache, asked, start) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    for at in [Duration::ZERO, REFRESH_AFTER - MOMENT] {
        assert_eq!(cache.get(&1, start + at, || say(&asked, Some(7))).await, Ok(Some(7)));
        assert_eq!(count(&asked), 1);
    }
    assert_eq!(cache.get(&1, start + REFRESH_AFTER, || say(&asked, Some(8))).await, Ok(Some(8)));
    assert_eq!(count(&asked), 2);

    for at in [Duration::ZERO, UNKNOWN_AGE_MAX - MOMENT] {
        assert_eq!(cache.get(&2, start + at, || say(&asked, None)).await, Ok(None));
        assert_eq!(count(&asked), 3);
    }
    assert_eq!(cache.get(&2, start + UNKNOWN_AGE_MAX, || say(&asked, Some(9))).await, Ok(Some(9)));
    assert!(is_idle(&cache));
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_key_share_one_look_up() {
    let (cache, asked, now) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    let slow = || async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        say(&asked, Some(7)).await
    };
    let answers = join_all((0..50).map(|_| cache.get(&1, now, slow))).await;
    assert!(answers.iter().all(|answer| *answer == Ok(Some(7))));
    assert_eq!(count(&asked), 1);
    // A failure is shared as well: it is not tried once per caller.
    let failing = || async {
        asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
        fail().await
    };
    let answers = join_all((0..50).map(|_| cache.get(&2, now, failing))).await;
    assert!(answers.iter().all(|answer| *answer == Err(Unavailable)));
    assert_eq!(count(&asked), 2);
    assert!(is_idle(&cache));
}

#[tokio::test(start_paused = true)]
async fn value_that_is_due_is_refreshed_by_one_caller_while_others_use_it() {
    let (cache, asked, start) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    assert_eq!(cache.get(&1, start, || say(&asked, Some(7))).await, Ok(Some(7)));
    let (go, due) = (Notify::new(), start + REFRESH_AFTER);
    let refresher = cache.get(&1, due, || async {
        go.notified().await;
        say(&asked, Some(8)).await
    });
    let others = async {
        for _ in 0..3 {
            assert_eq!(cache.get(&1, due, || say(&asked, Some(99))).await, Ok(Some(7)));
        }
        go.notify_one();
    };
    assert_eq!(join(refresher, others).await.0, Ok(Some(8)));
    assert_eq!(count(&asked), 2);
    assert_eq!(cache.get(&1, due, || say(&asked, Some(99))).await, Ok(Some(8)));
}

#[tokio::test(start_paused = true)]
async fn broken_store_does_not_stretch_the_age_of_a_value() {
    let (cache, asked, start) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    assert_eq!(cache.get(&1, start, || say(&asked, Some(7))).await, Ok(Some(7)));
    assert_eq!(cache.get(&1, start + REFRESH_AFTER, fail).await, Ok(Some(7)));
    let last = start + KNOWN_AGE_MAX - MOMENT;
    assert_eq!(cache.get(&1, last, fail).await, Ok(Some(7)));
    assert_eq!(cache.get(&1, start + KNOWN_AGE_MAX, fail).await, Err(Unavailable));
    // A refresh that begins late and hangs ends past the value's time: then the value may not be used any more.
    assert_eq!(cache.get(&1, last, never).await, Err(Unavailable));
    assert!(is_idle(&cache));
}

#[tokio::test(start_paused = true)]
async fn look_up_that_hangs_ends_at_its_deadline() {
    let (cache, now) = (Cache::new(), Instant::now());
    assert_eq!(cache.get(&1, now, never).await, Err(Unavailable));
    assert_eq!(now.elapsed(), LOAD_TIME_MAX);
    assert!(is_idle(&cache));
}

#[tokio::test(start_paused = true)]
async fn waiter_takes_over_when_the_caller_who_looks_up_hangs_up() {
    let (cache, asked, now) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    let mut first = Box::pin(cache.get(&1, now, never));
    assert!(futures_util::poll!(&mut first).is_pending());
    let mut second = Box::pin(cache.get(&1, now, || say(&asked, Some(7))));
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    assert_eq!(second.await, Ok(Some(7)));

    let mut alone = Box::pin(cache.get(&2, now, never));
    assert!(futures_util::poll!(&mut alone).is_pending());
    drop(alone);
    assert!(is_idle(&cache));
}

#[tokio::test(start_paused = true)]
async fn forgotten_key_is_asked_for_again_even_if_a_look_up_was_under_way() {
    let (cache, asked, now) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    let go = Notify::new();
    let mut old = Box::pin(cache.get(&1, now, || async {
        go.notified().await;
        say(&asked, Some(7)).await
    }));
    assert!(futures_util::poll!(&mut old).is_pending());
    cache.forget(&1, now);
    go.notify_one();
    assert_eq!(old.await, Ok(Some(7)));
    assert_eq!(cache.get(&1, now, || say(&asked, None)).await, Ok(None));
    cache.forget(&1, now);
    assert_eq!(cache.get(&1, now, || say(&asked, Some(8))).await, Ok(Some(8)));
}

#[tokio::test(start_paused = true)]
async fn value_that_vanished_is_not_used_again() {
    let (cache, asked, start) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    assert_eq!(cache.get(&1, start, || say(&asked, Some(7))).await, Ok(Some(7)));
    assert_eq!(cache.get(&1, start + REFRESH_AFTER, || say(&asked, None)).await, Ok(None));
    assert_eq!(cache.get(&1, start + REFRESH_AFTER, || say(&asked, Some(9))).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn look_ups_under_way_are_bounded_and_found_values_still_served() {
    let (cache, asked, now) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    assert_eq!(cache.get(&0, now, || say(&asked, Some(7))).await, Ok(Some(7)));
    let keys: Vec<usize> = (1..=LOADS_MAX).collect();
    let mut hanging: Vec<_> = keys.iter().map(|key| Box::pin(cache.get(key, now, never))).collect();
    for one in &mut hanging {
        assert!(futures_util::poll!(one).is_pending());
    }
    assert_eq!(cache.get(&usize::MAX, now, || say(&asked, Some(7))).await, Err(Unavailable));
    assert_eq!(cache.get(&0, now + REFRESH_AFTER, || say(&asked, Some(8))).await, Ok(Some(7)));
    drop(hanging);
    assert_eq!(cache.get(&usize::MAX, now, || say(&asked, Some(7))).await, Ok(Some(7)));
}

#[tokio::test(start_paused = true)]
async fn flood_of_misses_pushes_out_no_found_value() {
    let (cache, asked, now) = (Cache::new(), AtomicUsize::new(0), Instant::now());
    assert_eq!(cache.get(&0, now, || say(&asked, Some(7))).await, Ok(Some(7)));
    for key in 1..=2 * UNKNOWN_ENTRIES_MAX {
        assert_eq!(cache.get(&key, now, || say(&asked, None)).await, Ok(None));
    }
    assert_eq!(cache.get(&0, now, || say(&asked, Some(8))).await, Ok(Some(7)));
}

/// A cache of a store that can be away, and the store's word.
fn bridging(outage_max: Duration) -> (Cache<u8, u8>, Availability) {
    let availability = Availability::new(outage_max);
    availability.watched();
    (Cache::bridging(availability.clone()), availability)
}

#[tokio::test(start_paused = true)]
async fn what_was_found_before_an_outage_counts_in_it_and_nobody_waits() {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let (cache, availability) = bridging(HOUR);
    let (asked, start) = (AtomicUsize::new(0), Instant::now());
    assert_eq!(cache.get(&1, start, || say(&asked, Some(7))).await, Ok(Some(7)));
    let since = start + REMEMBERED_MAX - MOMENT;
    assert_eq!(cache.get(&2, since, || say(&asked, Some(8))).await, Ok(Some(8)));
    assert!(availability.failed(since));
    let last = since + HOUR - MOMENT;
    for at in [since + MOMENT, since + KNOWN_AGE_MAX, last] {
        assert_eq!(cache.get(&1, at, never).await, Ok(Some(7)), "{:?}", at - since);
        assert_eq!(cache.get(&2, at, never).await, Ok(Some(8)));
        assert!(cache.holds(&1, at));
        assert_eq!(cache.get(&3, at, never).await, Err(Unavailable), "never looked up");
    }
    assert_eq!(Instant::now(), start, "nobody waited");
    assert_eq!(cache.get(&1, since + HOUR, never).await, Err(Unavailable), "longer than it may last");
    assert!(cache.forget(&2, last));
    assert_eq!(cache.get(&2, last, never).await, Err(Unavailable), "it was changed");
    availability.answered(last);
    assert_eq!(cache.get(&1, last, || say(&asked, None)).await, Ok(None), "when the store is back, it is asked");
    assert!(is_idle(&cache));
}

#[tokio::test(start_paused = true)]
async fn first_look_up_without_an_answer_is_the_last_that_waits() {
    let (cache, availability) = bridging(KNOWN_AGE_MAX * 100);
    let (asked, start) = (AtomicUsize::new(0), Instant::now());
    for key in [1, 2, 3] {
        assert_eq!(cache.get(&key, start, || say(&asked, Some(key))).await, Ok(Some(key)));
    }
    let later = start + KNOWN_AGE_MAX;
    tokio::time::advance(KNOWN_AGE_MAX).await;
    // The three look-ups of one request.
    for key in [1, 2, 3] {
        assert_eq!(cache.get(&key, later, never).await, Ok(Some(key)));
    }
    assert_eq!(later.elapsed(), LOAD_TIME_MAX, "only the first waited");
    assert!(LOAD_TIME_MAX < Duration::from_secs(2) && availability.outage().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_was_found_too_long_before_an_outage_does_not_count_in_it() {
    let (cache, availability) = bridging(KNOWN_AGE_MAX * 100);
    let (asked, start) = (AtomicUsize::new(0), Instant::now());
    assert_eq!(cache.get(&1, start, || say(&asked, Some(7))).await, Ok(Some(7)));
    let since = start + REMEMBERED_MAX + MOMENT;
    assert!(availability.failed(since));
    assert_eq!(cache.get(&1, since, never).await, Err(Unavailable));
}
