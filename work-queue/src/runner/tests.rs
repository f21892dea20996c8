use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use crate::{Requeue, RetryDelays};

const SECOND: Duration = Duration::from_secs(1);
const DELAYS: RetryDelays = RetryDelays { first: SECOND, max: Duration::from_secs(4) };

type Keys = Runner<char, Instant, &'static str>;

fn add(runner: &mut Keys, keys: &str) {
    keys.chars().for_each(|key| runner.queue.add(key, Instant::now()));
}

/// Starts reconciles that end once they get a permit; returns those that were started.
fn start(runner: &mut Keys, gate: &Arc<Semaphore>, max: usize) -> String {
    let mut started = String::new();
    runner.start(Instant::now(), max, |key| {
        started.push(key);
        let gate = gate.clone();
        async move { gate.acquire_owned().await.map(|permit| permit.forget()).map_or("closed", |()| "done") }
    });
    started
}

#[tokio::test(start_paused = true)]
async fn key_is_reconciled_by_one_task_at_a_time_and_all_by_no_more_than_may_be() {
    let (mut runner, gate) = (Keys::default(), Arc::new(Semaphore::new(0)));
    add(&mut runner, "abc");
    assert_eq!(start(&mut runner, &gate, 2), "ab");
    add(&mut runner, "a");
    assert_eq!(start(&mut runner, &gate, 9), "c", "a is in flight");
    gate.add_permits(1);
    let ended = runner.next().await.unwrap();
    assert_eq!((ended.key, ended.result.unwrap()), ('a', "done"));
    assert_eq!(start(&mut runner, &gate, 9), "", "its end is not settled yet");
    runner.queue.finish('a', Requeue::AwaitAdd);
    assert_eq!(start(&mut runner, &gate, 3), "a", "it was added meanwhile");
    assert!(timeout(SECOND, runner.next()).await.is_err(), "all wait");
    gate.close();
    runner.drain().await;
    assert_eq!((runner.queue.in_flight(), runner.next().await.is_none()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn panic_is_a_failure_of_its_key_alone_and_tried_again_after_growing_delays() {
    let (mut runner, begin) = (Keys::default(), Instant::now());
    add(&mut runner, "a");
    let mut tries = Vec::new();
    while tries.len() < 5 {
        until(runner.queue.next_due(1)).await;
        tries.push(begin.elapsed().as_secs());
        runner.start(Instant::now(), 1, |_| async { panic!("a mistake") });
        let ended = runner.next().await.unwrap();
        assert!(ended.result.unwrap_err().is_panic());
        runner.queue.retry(ended.key, |failures| Instant::now() + DELAYS.after(failures, 1.0));
    }
    assert_eq!(tries, [0, 1, 3, 7, 11]);
    add(&mut runner, "b");
    assert_eq!(start(&mut runner, &Arc::new(Semaphore::new(1)), 9), "b");
    assert_eq!(runner.next().await.unwrap().result.unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_waited_for_while_no_more_may_be_in_flight() {
    let (mut runner, gate) = (Keys::default(), Arc::new(Semaphore::new(0)));
    assert!(timeout(SECOND, until(runner.queue.next_due(1))).await.is_err(), "no key");
    add(&mut runner, "ab");
    assert_eq!(start(&mut runner, &gate, 1), "a");
    assert!(timeout(SECOND, until(runner.queue.next_due(1))).await.is_err(), "a loop would run hot");
    gate.add_permits(1);
    let ended = runner.next().await.unwrap();
    runner.queue.finish(ended.key, Requeue::At(Instant::now() + SECOND));
    assert!(timeout(SECOND, until(runner.queue.next_due(1))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn aborted_reconciles_end_without_their_result_and_a_drain_waits_for_them() {
    let (mut runner, gate) = (Keys::default(), Arc::new(Semaphore::new(0)));
    add(&mut runner, "ab");
    start(&mut runner, &gate, 9);
    assert!(timeout(SECOND, runner.drain()).await.is_err(), "they are in flight");
    runner.abort().await;
    assert_eq!((runner.queue.in_flight(), Arc::strong_count(&gate)), (0, 1));
}
