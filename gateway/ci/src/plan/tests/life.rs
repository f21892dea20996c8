//! What becomes of a workspace whose owner asks, whose job dies, or whose CI system answers late, never, or is configured no more.

use super::*;

#[test]
fn workspace_starts_stops_restarts_and_ends_as_it_is_asked_to() {
    let mut world = World::new();
    world.runners = false;
    world.drive(Fault::None);
    assert_eq!((world.life.actual, world.pipes.len()), (ActualState::Starting, 1));
    assert_eq!(world.life.reason.as_deref(), Some("Its job waits for a runner"));
    world.settle();
    assert_eq!((world.life.actual, world.life.reason.as_deref()), (ActualState::Running, None));
    world.request_of_owner(DesiredState::Stopped);
    world.drive(Fault::None);
    assert_eq!(world.life.actual, ActualState::Stopping);
    world.settle();
    assert_eq!(world.live().len(), 0);
    assert_eq!(world.pipes.values().map(|pipe| pipe.state).collect::<Vec<_>>(), [RunState::Succeeded], "in good order");
    world.request_of_owner(DesiredState::Running);
    world.settle();
    world.request_of_owner(DesiredState::RestartRequested);
    world.settle();
    assert_eq!((world.pipes.len(), world.life.desired), (3, DesiredState::Running));
    world.request_of_owner(DesiredState::Terminated);
    world.settle();
    assert!(world.is_forgotten && world.life.is_over());
}

#[test]
fn job_that_dies_is_replaced_after_longer_and_longer_waits_and_the_reason_says_why() {
    let mut world = running();
    let mut waits = Vec::new();
    for _ in 0..9 {
        let pipe = world.pipes.values_mut().find(|pipe| !pipe.state.is_over()).unwrap();
        (pipe.state, pipe.is_connected) = (RunState::Failed, false);
        pipe.failure = Some("runner_system_failure".to_owned());
        world.agents = false;
        while world.life.actual != ActualState::Failed {
            world.pass(1);
            world.drive(Fault::None);
        }
        let reason = world.life.reason.clone().unwrap();
        assert!(reason.contains("the job failed (runner_system_failure)"), "{reason}");
        let failed_at = world.now;
        while world.live().is_empty() {
            world.pass(1);
            world.drive(Fault::None);
        }
        waits.push(world.now.get() - failed_at.get());
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
    // Who asks again does not wait, and a good time counts as a new beginning.
    let pipe = world.pipes.values_mut().find(|pipe| !pipe.state.is_over()).unwrap();
    pipe.state = RunState::Failed;
    world.agents = true;
    while world.life.actual != ActualState::Failed {
        world.pass(1);
        world.drive(Fault::None);
    }
    world.request_of_owner(DesiredState::Running);
    world.drive(Fault::None);
    assert_eq!((world.life.actual, world.live().len(), world.ci.failures), (ActualState::Starting, 1, 0));
    world.settle();
    world.pass(700);
    world.act(Act::Die(RunState::Gone));
    world.pass(70);
    world.drive(Fault::None);
    assert_eq!(world.ci.failures, 1);
}

#[test]
fn ci_system_that_does_not_answer_is_told_at_once_and_makes_a_workspace_unknown_after_a_while() {
    let mut world = running();
    world.is_out = true;
    world.pass(200);
    world.drive(Fault::None);
    assert_eq!(world.life.actual, ActualState::Running, "its agent is there");
    world.agents = false;
    world.act(Act::Drop);
    while world.life.actual == ActualState::Running {
        world.pass(1);
        world.drive(Fault::None);
    }
    assert_eq!(world.life.actual, ActualState::Unknown);
    assert!(world.life.reason.as_deref().unwrap().contains("no answer"));
    assert_eq!(world.live().len(), 1);
    world.settle();
    assert_eq!(world.live().len(), 1);
}

#[test]
fn agent_that_stays_away_costs_its_job_and_one_that_comes_back_does_not() {
    let mut world = running();
    world.agents = false;
    world.act(Act::Drop);
    for _ in 0..290 {
        world.pass(1);
        world.drive(Fault::None);
    }
    assert_eq!((world.life.actual, world.pipes.len()), (ActualState::Running, 1));
    world.agents = true;
    world.settle();
    world.agents = false;
    world.act(Act::Drop);
    while world.life.actual != ActualState::Failed {
        world.pass(1);
        world.drive(Fault::None);
    }
    assert!(world.life.reason.as_deref().unwrap().contains("was not connected for 5 minutes"));
}

#[test]
fn request_that_lands_late_is_found_and_not_made_again() {
    let mut world = World::new();
    world.drive(Fault::None);
    let mut world = World { pipes: BTreeMap::new(), ..world };
    world.ci.run.as_mut().unwrap().pipeline = None;
    world.heard = ObservedRun::default();
    let key = world.ci.run.as_ref().unwrap().key.to_string();
    world.late.push((world.now.later(seconds(9)), key));
    // The owner has changed their mind: nobody knows whether there is a run, until it is certain.
    world.request_of_owner(DesiredState::Stopped);
    world.drive(Fault::None);
    assert_eq!(world.life.actual, ActualState::Stopping);
    world.settle();
    assert_eq!(world.pipes.values().map(|pipe| pipe.state).collect::<Vec<_>>(), [RunState::Cancelled]);
}

#[test]
fn request_of_another_replica_is_given_its_time_from_the_takeover_on_whatever_that_ones_clock_said() {
    let mut world = World::new();
    world.act(Act::Fault(1, Fault::Written));
    let asked_at = world.ci.live().unwrap().asked_at.unwrap();
    let step = |world: &World, begun_at, now| {
        let heard = ObservedRun::default();
        let (life, ci, time) = (&world.life, &world.ci, world.time);
        decide(&PlanInput { life, ci, heard: &heard, is_up: false, time, now, pace: &PACE, begun_at }).step
    };
    let free = asked_at.later(PACE.settle);
    assert_eq!(step(&world, None, asked_at), RunStep::Wait(Some(free)));
    assert_eq!(step(&world, None, free), RunStep::Create);
    // By the clock here it was asked an hour ago.
    let begun_at = asked_at.later(minutes_of(60));
    assert_eq!(step(&world, Some(begun_at), begun_at), RunStep::Wait(Some(begun_at.later(PACE.settle))));
    assert_eq!(step(&world, Some(begun_at), begun_at.later(PACE.settle)), RunStep::Create);
}

#[test]
fn run_that_cannot_be_asked_for_again_is_looked_for_before_it_is_given_up() {
    for is_late in [true, false] {
        let mut world = World::new();
        world.act(Act::Fault(1, Fault::Late(9)));
        assert!(world.ci.live().unwrap().asked_at.is_some() && world.pipes.is_empty());
        if !is_late {
            world.late.clear();
        }
        world.has_definition = false;
        while world.ci.live().is_some_and(|run| run.pipeline.is_none()) {
            world.pass(1);
            world.drive(Fault::None);
        }
        let run = world.ci.run.clone().unwrap();
        assert_eq!((run.number, run.ended_at.is_none(), run.pipeline.is_some()), (1, is_late, is_late));
        let told = run.failure.unwrap_or_default();
        assert_eq!(told.contains(NO_DEFINITION), !is_late, "{told}");
        world.settle();
        assert_eq!(world.live().len(), 1);
    }
}

#[test]
fn workspace_whose_ci_system_is_not_configured_any_more_comes_to_its_stop_and_to_its_end() {
    for (wish, expected) in [
        (DesiredState::Stopped, ActualState::Stopped),
        (DesiredState::Terminated, ActualState::Terminated),
        (DesiredState::RestartRequested, ActualState::Error),
        (DesiredState::Running, ActualState::Error),
    ] {
        // Asked for before anybody has looked, or after.
        let mut world = running();
        world.is_configured = false;
        world.crash();
        world.request_of_owner(wish);
        world.drive(Fault::None);
        assert_eq!(world.life.actual, expected);
        assert_eq!(world.ci.live().is_none(), wish == DesiredState::Terminated);
        let mut world = running();
        world.act(Act::Configured(false));
        assert_eq!(world.life.actual, ActualState::Error);
        let reason = world.life.reason.clone().unwrap();
        assert!(reason.contains("not configured here any more") && reason.contains("time limit"), "{reason}");
        world.request_of_owner(wish);
        world.drive(Fault::None);
        assert_eq!(world.life.actual, expected);
        assert_eq!(world.ci.live().is_none(), wish == DesiredState::Terminated);
        assert!(world.ci.run.as_ref().unwrap().failure.is_some() && !world.is_up());
    }
}

#[test]
fn job_of_before_is_cancelled_before_the_next_one_when_the_ci_system_is_configured_again() {
    let mut world = running();
    world.act(Act::Configured(false));
    world.request_of_owner(DesiredState::Stopped);
    world.drive(Fault::None);
    assert_eq!(world.life.actual, ActualState::Stopped);
    // Its agent heard nothing, so the job goes on.
    world.pass(600);
    assert_eq!(world.live().len(), 1);
    world.request_of_owner(DesiredState::Running);
    world.drive(Fault::None);
    assert_eq!(world.life.actual, ActualState::Error);
    world.settle();
    let states: Vec<_> = world.pipes.values().map(|pipe| pipe.state).collect();
    assert_eq!(states, [RunState::Cancelled, RunState::Running]);
    assert_eq!(world.ci.run.as_ref().unwrap().number, 2);
}
