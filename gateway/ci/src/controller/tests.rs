//! The controller with the GitLab provider and a GitLab that fails, while jobs, agents and the controller itself are killed.
//!
//! The clock is turned by hand, the sockets are real: nothing waits for time that passes by itself.

mod world;

use std::io::Write as _;

use self::world::{START, World, chance};
use super::*;
use crate::provider::gitlab::tests::server::Trouble;
use crate::reconcile::CiReconcileOutcome;
use gateway_types::{ActualState, DesiredState};

/// Says which case it was, if it fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(writeln!(std::io::stderr(), "the seed was {0}: CI_SEED={0} runs it alone", self.0));
        }
    }
}

/// Does something of what can happen.
async fn act(world: &mut World) {
    let random = &mut world.random;
    match chance(random, 24) {
        0..6 => {
            let seconds = chance(random, 30);
            world.pass(seconds).await;
        }
        6..8 => {
            let seconds = chance(random, 1200);
            world.pass(seconds).await;
        }
        8..11 => {
            let wishes = [DesiredState::Running, DesiredState::Stopped, DesiredState::RestartRequested];
            let wish = wishes[usize::try_from(chance(random, 3)).unwrap()];
            world.wish(wish).await;
        }
        11..15 => {
            let count = chance(random, 6);
            world.trouble(count);
        }
        // It is killed in the middle of what it does next.
        15..19 => {
            let polls = chance(random, 120);
            world.kill_after = Some(polls);
            world.pass(2).await;
        }
        19 => world.has_runners = !world.has_runners,
        20 => world.has_agents = !world.has_agents,
        21 => world.drop_agent(),
        22 => world.kill_job(),
        _ => world.saving = chance(random, 2500),
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_killed_and_whatever_gitlab_does_no_two_pipelines_run_and_what_is_wanted_comes_about() {
    let alone = std::env::var("CI_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = alone.map_or_else(|| (1..=16).collect(), |seed| vec![seed]);
    for seed in seeds {
        let _said = Seed(seed);
        let mut world = World::new(seed).await;
        for _ in 0..40 {
            act(&mut world).await;
        }
        let last = [DesiredState::Running, DesiredState::Stopped, DesiredState::Terminated];
        let last = last[usize::try_from(seed % 3).unwrap()];
        world.wish(last).await;
        world.settle().await;
        assert_eq!(world.live().len(), usize::from(last == DesiredState::Running), "{:?}", world.read().await);
    }
}

#[tokio::test(start_paused = true)]
async fn workspace_on_gitlab_starts_saves_for_long_and_stops_without_being_cut() {
    let mut world = World::new(0).await;
    world.settle().await;
    let (life, ci) = world.read().await;
    assert_eq!((life.actual, ci.failures), (ActualState::Running, 0));
    world.saving = 1200;
    world.wish(DesiredState::Stopped).await;
    world.settle().await;
    let run = world.read().await.1.run.unwrap();
    assert_eq!((run.cancel_at, run.failure), (None, None));
    assert!(run.ended_at.unwrap() >= run.stop_at.unwrap().later(Duration::from_secs(1200)));
}

#[tokio::test(start_paused = true)]
async fn job_whose_agent_was_away_when_it_was_told_is_not_cut_when_its_log_says_that_it_is_ending() {
    let mut world = World::new(0).await;
    world.settle().await;
    world.saving = 1200;
    // It comes back when the wish is written down already, and is refused.
    world.has_agents = false;
    world.drop_agent();
    world.pass(1).await;
    world.wish(DesiredState::Stopped).await;
    world.pass(60).await;
    world.has_agents = true;
    world.settle().await;
    let run = world.read().await.1.run.unwrap();
    assert_eq!((run.cancel_at, run.failure), (None, None));
    // One that never comes back is cut, and that is said.
    world.wish(DesiredState::Running).await;
    world.settle().await;
    world.has_agents = false;
    world.drop_agent();
    world.wish(DesiredState::Stopped).await;
    world.pass(200).await;
    let (life, ci) = world.read().await;
    assert_eq!((life.actual, ci.failures), (ActualState::Stopped, 0));
    assert!(ci.run.unwrap().cancel_at.is_some() && life.reason.unwrap().contains("may be lost"));
}

#[tokio::test(start_paused = true)]
async fn run_is_asked_for_when_that_is_written_down_however_long_others_are_asked_before() {
    let world = World::new(0).await;
    let system = world.controller.systems.get(&world::provider()).unwrap().clone();
    let mut slots = Vec::new();
    for _ in 0..8 {
        slots.push(system.slot().await);
    }
    let (controller, id) = (world.controller.clone(), world.id);
    let visit = controller.reconcile(id, super::super::plan::ObservedRun::default());
    let free = async {
        // Each of these takes about as long as what is done meanwhile.
        let mut reads = 0;
        while reads < 50 {
            let (_, ci) = world.read().await;
            reads += i32::from(ci.live().is_some());
        }
        world.turn(60);
        drop(slots);
    };
    tokio::join!(visit, free);
    let run = world.read().await.1.run.unwrap();
    assert_eq!(run.intended_at, START);
    assert_eq!(run.asked_at, Some(START.later(Duration::from_secs(60))), "{run:?}");
}

#[tokio::test(start_paused = true)]
async fn replica_that_was_paused_before_it_asked_for_a_job_asks_for_none_once_another_does_the_work() {
    let mut world = World::new(0).await;
    let [first, second] = world.two_replicas().await;
    let (controller, id) = (world.controller.clone(), world.id);
    let system = controller.systems.get(&world::provider()).unwrap().clone();
    let mut slots = Vec::new();
    for _ in 0..8 {
        slots.push(system.slot().await);
    }
    let visit = controller.reconcile(id, super::super::plan::ObservedRun::default());
    let meanwhile = async {
        while world.read().await.1.live().is_none() {}
        // It is about to write that it asks. Another takes over and has the job made.
        world.pause(first).await;
        world.take_over(second).await;
        world.settle().await;
        assert_eq!(world.made(), 1);
        drop(slots);
    };
    let (ended, ()) = tokio::join!(visit, meanwhile);
    let CiReconcileOutcome::Failed { error, .. } = ended.outcome else { panic!("{:?}", ended.outcome) };
    assert!(matches!(error, StoreError::Fenced), "{error}");
    world.pass(60).await;
    assert_eq!((world.made(), world.live().len()), (1, 1), "and the job is well");
}

#[tokio::test(start_paused = true)]
async fn request_that_lands_after_its_answer_was_given_up_is_found_and_not_made_again() {
    let mut world = World::new(0).await;
    // It lands as late as any may.
    world.server.trouble(Trouble::Later(START.later(Duration::from_secs(29))));
    world.pass(1).await;
    let asked_at = world.read().await.1.run.unwrap().asked_at;
    assert!(
        asked_at >= Some(START.later(Duration::from_secs(10))),
        "it is waited from when it was given up: {asked_at:?}"
    );
    world.settle().await;
    assert_eq!(world.made(), 1);
}
