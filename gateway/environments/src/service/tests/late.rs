//! How long jobs wait, and for what.

use tunnel_proto::environments::{Call, TRACKED_MAX};

use super::super::*;
use super::acts::{Crowd, begun, code, done, of_environment, operator, running};
use super::stage::{Stage, request};
use crate::cluster_permits::CLUSTER_CALLS_MAX;
use crate::record::objects_to;
use workspace_spec::environment::facts::ObjectRef;
use workspace_spec::environment::slug::environment_slug;

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_time_ends_while_it_is_prepared_hears_so_then_and_its_call_is_called_off() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = begun(&stage);
    let following = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.cluster.began.notified().await;
    stage.later(600);
    // The agent never answers.
    assert_eq!(code(following.outcome().await), "call_timeout");
    assert!(stage.cluster.world.lock().pending.is_none(), "the agent goes on with what nobody waits for");
    stage.cluster.world.lock().is_prompt = true;
    assert_eq!(code(done(&stage, 1, "two").await), "", "it may be asked for again");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_time_ends_while_a_removal_is_under_way_hears_so_then_and_the_removal_goes_on() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let id = done(&stage, 1, "two").await.environment.unwrap().id;
    stage.cluster.world.lock().is_prompt = false;
    let removal = stage.environments.remove(id, operator()).await.unwrap();
    stage.cluster.began.notified().await;
    let first = stage.environments.complete(request(2, "two")).await.unwrap();
    let second = stage.environments.complete(request(3, "two")).await.unwrap();
    stage.later(600);
    for following in [first, second] {
        assert_eq!(code(following.outcome().await), "environment_busy");
    }
    assert!(matches!(
        stage.cluster.world.lock().pending.as_ref().map(|pending| pending.call.clone()),
        Some(Call::Remove(_))
    ));
    stage.cluster.answer(usize::MAX, None);
    assert!(removal.outcome().await.environment.unwrap().objects.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_that_a_job_waits_for_goes_before_those_that_nobody_waits_for() {
    let stage = Stage::new().await;
    let crowd = Crowd::new(&stage).await;
    for (number, id) in crowd.made.iter().enumerate() {
        let mut following = stage.environments.follow(*id);
        stage.environments.remove(*id, operator()).await.unwrap();
        if number < CLUSTER_CALLS_MAX {
            // Each has its permit before the next comes, so all others wait.
            crowd.until(&stage, number + 1).await;
        } else {
            // In this order they wait, so the last one is behind all others.
            while following.next().await != Some(EnvironmentEvent::Waiting { why: "queued" }) {}
        }
    }
    let mut job = stage.environments.complete(of_environment(30, "review/19")).await.unwrap();
    while job.next().await != Some(EnvironmentEvent::Waiting { why: "queued" }) {}
    let next = crowd.next_call(&stage).await;
    let Some(Call::Remove(remove)) = next else { panic!("{next:?}") };
    let its = format!("{}-42-", environment_slug("review/19"));
    assert!(remove.scope.environment.starts_with(&its), "{} is removed first", remove.scope.environment);
    crowd.gate.add_permits(1000);
    assert_eq!(code(job.outcome().await), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_for_whose_objects_the_record_has_no_room_is_told_to_stop_the_environment_first() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let id = EnvironmentId::new(done(&stage, 1, "one").await.environment.unwrap().id);
    let account = |number| ObjectRef {
        version: "v1".to_owned(),
        kind: "ServiceAccount".to_owned(),
        namespace: environment_slug("review/1"),
        name: format!("of-job-{number}"),
        ..ObjectRef::default()
    };
    let recorded: Vec<_> = (0..TRACKED_MAX).map(account).collect();
    stage.store.note_left(id, &objects_to(&recorded), None).await.unwrap();
    for _ in 0..2 {
        let failure = done(&stage, 2, "two").await.failure.unwrap();
        assert_eq!(failure.code, "too_many_objects", "for good: asking again changes nothing");
        assert!(failure.message.contains("stop the environment"), "{failure:?}");
    }
    assert_eq!(stage.cluster.world.lock().calls.len(), 1);
    stage.environments.remove(id.get(), operator()).await.unwrap().outcome().await;
    assert_eq!(code(done(&stage, 3, "two").await), "");
}
