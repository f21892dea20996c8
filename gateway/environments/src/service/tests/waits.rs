//! What those hear who wait for an environment that is stopped, asked for anew or forgotten meanwhile.

use tunnel_proto::environments::Call;

use super::super::super::request::Met;
use super::super::*;
use super::acts::{Polled, begun, operator};
use super::stage::{Stage, request};

#[tokio::test]
async fn environment_is_forgotten_as_a_whole_or_not_at_all_and_never_removed_by_it() {
    let stage = Stage::new().await;
    for times in 1.. {
        let asked = stage.environments.complete(request(1, "two")).await.unwrap();
        let id = EnvironmentId::new(asked.environment().unwrap());
        let begun = stage.store.next_preparation(id).await.unwrap().unwrap();
        assert!(stage.store.begin_apply(&begun, &begun.tracked).await.unwrap());
        // Whoever asks hangs up after a while.
        let forgotten = Polled::new(stage.environments.forget(id.get(), operator()), times).await;
        let left = stage.store.environment(id).await.unwrap();
        if let Some(left) = &left {
            assert_eq!((left.state, left.is_removal_due), (EnvironmentState::Available, false), "after {times}");
        }
        if let Some(forgotten) = forgotten {
            assert!(left.is_none() && forgotten.unwrap().objects.len() == 2);
            assert!(times > 1, "it never waited for the store");
            assert_eq!(asked.outcome().await.failure.unwrap().code, "no_such_environment");
            return;
        }
        // The next one begins as this one did.
        stage.store.forget_environment(id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_was_prepared_in_a_forgotten_environment_is_so_no_more_and_nothing_was_removed() {
    let stage = Stage::new().await;
    stage.cluster.world.lock().is_prompt = true;
    let (_stop, _tasks) = begun(&stage);
    let made = stage.environments.complete(request(1, "two")).await.unwrap().outcome().await.environment.unwrap();
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Met(Met::Completed));
    stage.environments.forget(made.id, operator()).await.unwrap();
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Unmet);
    assert_eq!(stage.environments.follow(made.id).outcome().await.failure.unwrap().code, "no_such_environment");
    let world = stage.cluster.world.lock();
    assert!(world.calls.iter().all(|call| matches!(call, Call::Apply(_))) && world.objects.len() == 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_job_that_is_asked_for_anew_hears_how_that_ends() {
    let stage = Stage::new().await;
    {
        let mut world = stage.cluster.world.lock();
        (world.is_absent, world.is_prompt) = (true, true);
    }
    let (_stop, _tasks) = begun(&stage);
    let mut slow = stage.environments.complete(request(1, "two")).await.unwrap();
    assert!(matches!(slow.next().await, Some(EnvironmentEvent::Retrying { .. })));
    let prompt = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.later(600);
    assert_eq!(prompt.outcome().await.failure.unwrap().code, "agent_absent");
    // The agent is there before it is asked for: a try that misses it pauses, on a clock that stands still.
    stage.cluster.world.lock().is_absent = false;
    // Asked for again before the first one has heard it.
    let again = stage.environments.complete(request(1, "two")).await.unwrap();
    let (slow, again) = (slow.outcome().await, again.outcome().await);
    assert_eq!((slow.failure, again.failure), (None, None));
    assert_eq!(slow.environment.unwrap().objects.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_removal_does_not_wait_for_a_job_that_asks_meanwhile() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = begun(&stage);
    let first = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.cluster.began.notified().await;
    stage.cluster.answer(usize::MAX, None);
    let id = first.outcome().await.environment.unwrap().id;
    stage.environments.set_state(id, DesiredEnvironment::Stopped, operator()).await.unwrap();
    stage.cluster.began.notified().await;
    let removal = stage.environments.follow_removal(id);
    let job = stage.environments.complete(request(2, "two")).await.unwrap();
    stage.cluster.answer(usize::MAX, None);
    // The agent has the job's call now, and says nothing.
    stage.cluster.began.notified().await;
    let removed = removal.outcome().await;
    assert_eq!(removed.failure, None);
    let calls = stage.cluster.world.lock().calls.len();
    assert_eq!((removed.environment.unwrap().is_removal_due, calls), (false, 3));
    stage.cluster.answer(usize::MAX, None);
    assert_eq!(job.outcome().await.failure, None);
}
