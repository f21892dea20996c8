//! Jobs that end in good order: their files are saved, their time is renewed, and what is lost is said.

use super::*;

impl World {
    /// Returns the state of the only pipeline, or of the last one.
    fn last(&self) -> RunState {
        self.pipes.values().next_back().unwrap().state
    }

    /// Drives second by second while something is so, for a day at most. Returns how long that was.
    fn drive_while(&mut self, is_so: impl Fn(&Self) -> bool) -> i64 {
        let began_at = self.now;
        for _ in 0..24 * 60 * 60 {
            if !is_so(self) {
                return self.now.get() - began_at.get();
            }
            self.pass(1);
            self.drive(Fault::None);
        }
        panic!("it stays so: {:?} {:?} {:?}", self.life, self.ci, self.pipes);
    }

    fn stop(&mut self) {
        self.request_of_owner(DesiredState::Stopped);
        self.drive(Fault::None);
    }

    /// The session is gone, and does not come back.
    fn lose_agent(&mut self) {
        self.agents = false;
        self.act(Act::Drop);
    }
}

#[test]
fn save_that_takes_long_is_not_cut_after_an_orderly_leave() {
    for is_restart in [false, true] {
        for crashes in [false, true] {
            let mut world = running();
            world.saving = 29 * 60;
            match is_restart {
                true => world.request_of_owner(DesiredState::RestartRequested),
                false => world.request_of_owner(DesiredState::Stopped),
            }
            world.drive(Fault::None);
            if crashes {
                // Nothing that was in memory is left: the job's log tells.
                world.pass(60);
                world.crash();
            }
            world.drive_while(|world| world.ci.live().is_some_and(|run| run.number == 1));
            assert_eq!(world.pipes["k1"].state, RunState::Succeeded, "{is_restart} {crashes}");
            assert_eq!((world.pipes["k1"].cancelled_at, world.ci.failures), (None, 0));
            world.settle();
            assert_eq!(world.life.reason, None);
        }
    }
}

#[test]
fn save_that_takes_longer_than_it_may_is_cut_and_that_is_said_and_no_failure() {
    let mut world = running();
    world.saving = 24 * 60 * 60;
    world.stop();
    let took = world.drive_while(|world| world.life.actual != ActualState::Stopped);
    assert!((1920..1960).contains(&took), "{took} s: two minutes, and half an hour");
    assert_eq!((world.last(), world.ci.failures, world.ci.retry_at), (RunState::Cancelled, 0, None));
    let reason = world.life.reason.clone().unwrap();
    assert!(reason.contains("before its files were saved") && reason.contains("may be lost"), "{reason}");
    // It is said until it starts again, which does not wait.
    world.drive_while(|world| world.now < START.later(seconds(3000)));
    assert!(world.life.reason.is_some());
    world.saving = 20;
    world.request_of_owner(DesiredState::Running);
    world.drive(Fault::None);
    assert_eq!((world.life.actual, world.live().len()), (ActualState::Starting, 1));
    world.settle();
    assert_eq!(world.life.reason, None);
}

#[test]
fn save_is_never_waited_for_beyond_the_end_of_its_job() {
    let mut world = running();
    world.saving = 24 * 60 * 60;
    // Of a CI system that does not end jobs by itself.
    world.time = JobTime::of(minutes_of(120), minutes_of(30));
    let renewed_after = world.time.renew();
    let took = world.drive_while(|world| world.ci.live().is_some_and(|run| run.number == 1));
    let end = i64::try_from(world.time.end().as_secs()).unwrap();
    assert!(took <= end + 60 && took > i64::try_from(renewed_after.as_secs()).unwrap(), "{took} s");
    world.drive(Fault::None);
    assert_eq!((world.ci.failures, world.ci.retry_at), (0, None), "{:?}", world.ci);
    let reason = world.life.reason.clone().unwrap_or_default();
    assert!(world.pipes["k1"].state == RunState::Failed && world.pipes.len() == 2, "{reason}");
}

#[test]
fn job_whose_agent_cannot_be_told_is_cut_after_the_grace_unless_its_log_says_that_it_ends() {
    for is_ending in [false, true] {
        let mut world = running();
        world.lose_agent();
        world.stop();
        if is_ending {
            // It came back, was refused, and ended.
            world.pass(100);
            world
                .pipes
                .values_mut()
                .for_each(|pipe| pipe.ends_at = Some(pipe.started_at.unwrap().later(seconds(1500))));
        }
        let took = world.drive_while(|world| world.life.actual != ActualState::Stopped);
        let expected = if is_ending { 1380..1500 } else { 120..140 };
        assert!(expected.contains(&took), "{is_ending} {took} s");
        let (state, is_told) = (world.last(), world.life.reason.is_some());
        let cut = (RunState::Cancelled, true);
        assert_eq!((state, is_told), if is_ending { (RunState::Succeeded, false) } else { cut });
    }
}

#[test]
fn job_that_begins_to_end_after_a_request_to_end_it_was_lost_is_left_alone() {
    for crashes in [false, true] {
        let mut world = running();
        world.lose_agent();
        world.stop();
        // Nothing says that it is ending, and the request does not get there.
        world.drive_while(|world| world.ci.run.as_ref().unwrap().cancel_at.is_none());
        let pipe = world.pipes.get_mut("k1").unwrap();
        pipe.cancelled_at = None;
        pipe.ends_at = Some(world.now.later(seconds(900)));
        if crashes {
            world.crash();
        }
        assert!(world.ci.run.as_ref().unwrap().cancel_at.is_some());
        world.drive_while(|world| world.life.actual != ActualState::Stopped);
        assert_eq!((world.last(), world.life.reason.as_deref()), (RunState::Succeeded, None), "{crashes}");
    }
}

#[test]
fn terminated_workspace_is_cut_while_it_saves() {
    let mut world = running();
    world.saving = 600;
    world.stop();
    world.request_of_owner(DesiredState::Terminated);
    let took = world.drive_while(|world| !world.life.is_over());
    assert!(took < 10 && world.last() == RunState::Cancelled, "{took} s");
    assert_eq!(world.life.reason, None);
}

#[test]
fn jobs_time_is_told_and_used_up_in_good_order_and_its_files_are_saved_however_short_it_is() {
    for job_timeout in [10, 14, 30, 44, 120, 480] {
        let mut world = World::new();
        world.time = JobTime::of(minutes_of(job_timeout), minutes_of(30));
        let (time, room) = (world.time, world.time.end() - world.time.renew());
        // As much as there is, but for what it takes to see that it is over.
        world.saving = room.as_secs() - 5;
        world.settle();
        let started_at = world.pipes["k1"].started_at.unwrap();
        let at = |after: Duration| started_at.later(after).get();
        let (mut warned_at, mut stopped_at) = (None, None);
        while world.pipes.len() == 1 {
            world.pass(1);
            world.drive(Fault::None);
            let is_told = world.life.reason.as_deref().is_some_and(|reason| reason.starts_with("Save your work"));
            warned_at = warned_at.or(is_told.then_some(world.now.get()));
            let is_told_to_end = world.ci.run.as_ref().is_some_and(|run| run.stop_at.is_some());
            stopped_at = stopped_at.or(is_told_to_end.then_some(world.now.get()));
        }
        assert_eq!((warned_at, stopped_at), (Some(at(time.warn())), Some(at(time.renew()))), "{job_timeout}");
        world.settle();
        let states: Vec<_> = world.pipes.values().map(|pipe| pipe.state).collect();
        assert_eq!(states, [RunState::Succeeded, RunState::Running], "{job_timeout}");
        assert_eq!((world.ci.failures, world.life.generation), (0, 1));
    }
}

#[test]
fn job_that_ends_by_its_own_clock_is_renewed_and_has_not_failed() {
    for job_timeout in [10, 44, 480] {
        for (saving, expected) in [(20, RunState::Succeeded), (24 * 60 * 60, RunState::Failed)] {
            let mut world = World::new();
            world.time = JobTime::of(minutes_of(job_timeout), minutes_of(30));
            world.settle();
            world.saving = saving;
            // Nobody renews it: the gateway is away until it is over.
            world.pass(job_timeout * 60 + 3600);
            world.crash();
            assert_eq!(world.pipes["k1"].state, expected);
            world.drive(Fault::None);
            assert_eq!((world.life.actual, world.ci.failures), (ActualState::Starting, 0), "{:?}", world.ci);
            assert_eq!(world.pipes.len(), 2, "the next one begins at once");
            world.saving = 20;
            world.settle();
        }
    }
}

#[test]
fn job_that_ends_well_before_its_time_has_failed_as_before() {
    let mut world = running();
    world.pass(1000);
    world.act(Act::Die(RunState::Succeeded));
    world.drive_while(|world| world.life.actual == ActualState::Running);
    assert_eq!((world.life.actual, world.ci.failures), (ActualState::Failed, 1));
    assert!(world.life.reason.unwrap().contains("the job ended by itself"));
}

#[test]
fn job_that_nobody_came_from_is_not_renewed_for_ever_but_tried_less_and_less_often() {
    let mut world = World::new();
    world.time = JobTime::of(minutes_of(10), minutes_of(30));
    world.agents = false;
    let mut waits = Vec::new();
    for number in 1..=4 {
        world
            .drive_while(|world| world.ci.run.as_ref().is_none_or(|run| run.number < number || run.ended_at.is_none()));
        let reason = world.life.reason.clone().unwrap_or_default();
        assert!(reason.contains("did not connect before its time was over"), "{reason}");
        let run = world.ci.run.clone().unwrap();
        waits.push(world.ci.retry_at.unwrap().get() - run.ended_at.unwrap().get());
    }
    assert_eq!(waits, [10, 20, 40, 80]);
}

#[test]
fn run_that_waits_for_a_runner_is_asked_about_less_and_less_often_and_seen_to_begin_within_half_a_minute() {
    let mut world = World::new();
    world.runners = false;
    world.drive(Fault::None);
    world.drive_while(|world| world.now < START.later(seconds(60)));
    assert!((15..25).contains(&world.asks), "{}", world.asks);
    world.drive_while(|world| world.now < START.later(seconds(3600)));
    assert!(world.asks < 180, "{}: every three seconds would be 1,200", world.asks);
    (world.runners, world.agents) = (true, false);
    let took = world.drive_while(|world| world.ci.run.as_ref().is_some_and(|run| run.started_at.is_none()));
    assert!(took <= 31, "{took} s");
    // Its agent is expected now.
    let asks = world.asks;
    world.drive_while(|world| world.now < START.later(seconds(3660)));
    assert!(world.asks >= asks + 8, "{}", world.asks - asks);
}
