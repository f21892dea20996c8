//! Two replicas with one store: jobs and operators ask one, and the other one does the work.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tunnel_proto::environments::{Call, ObjectStep};

use super::super::*;
use super::acts::{begun, operator};
use super::stage::{Stage, request};
use crate::elsewhere::EnvironmentChange;

/// Time in which a change is seen elsewhere: well below every interval of readings.
const SOON: Duration = Duration::from_millis(800);

/// Sends the changes of one replica to another.
fn link(tasks: &mut JoinSet<()>, from: &Environments, to: &Environments) {
    let (mut own, to) = (from.own_changes(), to.clone());
    tasks.spawn(async move {
        loop {
            to.changed_elsewhere(own.next().await);
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_at_one_replica_begins_at_the_other_and_its_progress_is_shown_where_it_was_asked_for() {
    let stage = Stage::new().await;
    stage.cluster.world.lock().is_prompt = true;
    let (_stop, _tasks) = begun(&stage);
    let (asked, mut links) = (stage.beside().await, JoinSet::new());
    link(&mut links, &asked, &stage.environments);
    link(&mut links, &stage.environments, &asked);
    // The first reading of all that is due is over.
    sleep(Duration::from_millis(100)).await;

    let mut following = asked.complete(request(1, "two")).await.unwrap();
    let shown = async {
        let mut applied = 0;
        loop {
            match following.next().await {
                Some(EnvironmentEvent::Object(progress)) if progress.step == ObjectStep::Applied => applied += 1,
                Some(EnvironmentEvent::Done(outcome)) => return (applied, outcome.environment.expect("it is there")),
                Some(_) => {}
                None => panic!("it ended without an outcome"),
            }
        }
    };
    let (applied, made) = timeout(SOON, shown).await.expect("in time");
    assert_eq!(applied, 2, "each object was shown");

    let stopped = async {
        let stopped = asked.set_state(made.id, EnvironmentState::Stopped, operator()).await.unwrap();
        asked.follow_removal(stopped.id).outcome().await
    };
    assert!(timeout(SOON, stopped).await.expect("in time").failure.is_none());
    assert!(stage.cluster.world.lock().objects.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_is_found_in_the_store_begins_what_is_due_and_ends_no_pause() {
    let stage = Stage::new().await;
    stage.cluster.world.lock().is_absent = true;
    let (_stop, _tasks) = begun(&stage);
    let asked = stage.beside().await;
    sleep(Duration::from_millis(100)).await;
    let mut there = stage.environments.own_changes();

    let following = asked.complete(request(1, "two")).await.unwrap();
    let id = EnvironmentId::new(following.environment().unwrap());
    stage.environments.stored(id);
    let paused = async { while !matches!(there.next().await, EnvironmentChange::Event(..)) {} };
    timeout(SOON, paused).await.expect("it was tried, and is tried again later");
    {
        let mut world = stage.cluster.world.lock();
        (world.is_absent, world.is_prompt) = (false, true);
    }
    stage.environments.stored(id);
    sleep(Duration::from_millis(200)).await;
    assert!(stage.cluster.world.lock().calls.is_empty(), "its pause goes on");
    // Asked for by a user.
    stage.environments.changed_elsewhere(EnvironmentChange::Wanted(id));
    let made = async {
        while !matches!(there.next().await, EnvironmentChange::Settled(_)) {}
        asked.stored(id);
        following.outcome().await
    };
    assert!(timeout(SOON, made).await.expect("in time").failure.is_none());
    assert!(matches!(stage.cluster.world.lock().calls[..], [Call::Apply(_)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_too_much_to_name_the_store_is_read_for_all_that_is_due_and_every_follower_reads() {
    let stage = Stage::new().await;
    stage.cluster.world.lock().is_prompt = true;
    let (_stop, _tasks) = begun(&stage);
    let asked = stage.beside().await;
    sleep(Duration::from_millis(100)).await;
    let (mut there, following) = (stage.environments.own_changes(), asked.complete(request(1, "two")).await.unwrap());
    stage.environments.changed_elsewhere(EnvironmentChange::Everything);
    let made = async {
        while !matches!(there.next().await, EnvironmentChange::Settled(_)) {}
        asked.changed_elsewhere(EnvironmentChange::Everything);
        following.outcome().await
    };
    assert!(timeout(SOON, made).await.expect("in time").failure.is_none());
}

/// A replica that reconciles no environments keeps no list of all that others announce.
#[tokio::test]
async fn announced_wakes_that_no_controller_takes_have_a_bound() {
    let stage = Stage::new().await;
    for number in 1..20_000 {
        stage.environments.changed_elsewhere(EnvironmentChange::Wanted(EnvironmentId::new(number)));
        stage.environments.stored(EnvironmentId::new(number));
    }
    assert_eq!(stage.environments.inner.wakes.waiting(), crate::controller::ANNOUNCED_MAX);
}
