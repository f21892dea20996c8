use super::*;

fn environment(number: u64) -> EnvironmentId {
    EnvironmentId::new(number)
}

fn cluster(number: u64) -> ClusterId {
    format!("c-{number}").parse().unwrap()
}

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

/// Looks at environments, which pause until `until` from then on, each of the cluster that it is given with.
fn pausing(queue: &mut EnvironmentQueue, all: &[(u64, u64)], until: i64, now: ControllerTime) {
    for (number, of) in all {
        queue.add(environment(*number), now.clock, false);
        assert_eq!(begin(queue, 9, now.clock), [(environment(*number), false)]);
        end(queue, *number, EnvironmentReconciled { cluster: Some(cluster(*of)), then: Then::At(at(until)) }, now);
    }
}

/// Begins to look at environments for which there is room.
fn begin(queue: &mut EnvironmentQueue, room: usize, now: Instant) -> Vec<(EnvironmentId, bool)> {
    let mut begun = Vec::new();
    queue.start(now, room, |id, is_urgent| {
        begun.push((id, is_urgent));
        std::future::pending()
    });
    begun
}

fn end(queue: &mut EnvironmentQueue, number: u64, visit: EnvironmentReconciled, now: ControllerTime) {
    queue.settle(Completion { key: environment(number), result: Ok(visit) }, now);
}

#[tokio::test]
async fn agent_that_comes_ends_the_pauses_of_its_own_cluster_alone_and_of_what_is_under_way() {
    let (mut queue, now) = (EnvironmentQueue::default(), Instant::now());
    pausing(&mut queue, &[(1, 1), (2, 2), (3, 1)], 400, ControllerTime { clock: now, wall: at(100) });
    assert_eq!(begin(&mut queue, 9, now), []);
    queue.came(cluster(1), now);
    assert_eq!(begin(&mut queue, 9, now), [(environment(1), true), (environment(3), true)]);
    // One is under way as the agent comes: it may have asked the one before.
    queue.add(environment(2), now, false);
    assert_eq!(begin(&mut queue, 9, now), [(environment(2), false)]);
    queue.came(cluster(2), now);
    assert_eq!(begin(&mut queue, 9, now), [], "one visit at a time");
    end(
        &mut queue,
        2,
        EnvironmentReconciled { cluster: Some(cluster(2)), then: Then::At(at(130)) },
        ControllerTime { clock: now, wall: at(100) },
    );
    assert_eq!(begin(&mut queue, 9, now), [(environment(2), true)]);
}

#[tokio::test]
async fn clock_that_steps_back_delays_nothing_by_more_than_the_longest_pause() {
    let (mut queue, now) = (EnvironmentQueue::default(), Instant::now());
    pausing(&mut queue, &[(1, 1)], 1_000_000, ControllerTime { clock: now, wall: at(100) });
    assert_eq!(begin(&mut queue, 9, now + Duration::from_secs(599)), []);
    assert_eq!(begin(&mut queue, 9, now + Duration::from_secs(600)), [(environment(1), false)]);
    // Nor does it matter to what is written down already, in which direction ever.
    pausing(&mut queue, &[(2, 1)], 130, ControllerTime { clock: now, wall: at(100) });
    assert_eq!(begin(&mut queue, 9, now + Duration::from_secs(29)), []);
    assert_eq!(begin(&mut queue, 9, now + Duration::from_secs(30)), [(environment(2), false)]);
}

#[tokio::test]
async fn room_is_for_those_that_wait_longest() {
    let (mut queue, now) = (EnvironmentQueue::default(), Instant::now());
    pausing(&mut queue, &[(1, 1), (2, 1)], 130, ControllerTime { clock: now, wall: at(100) });
    pausing(&mut queue, &[(3, 1)], 110, ControllerTime { clock: now, wall: at(100) });
    let later = now + Duration::from_secs(60);
    assert_eq!(begin(&mut queue, 1, later), [(environment(3), false)]);
    assert_eq!(begin(&mut queue, 9, later), [(environment(1), false), (environment(2), false)]);
}

#[tokio::test]
async fn look_that_panics_is_repeated_after_a_while_and_one_that_waits_for_its_turn_stays_urgent() {
    let (mut queue, now) = (EnvironmentQueue::default(), Instant::now());
    queue.add(environment(1), now, true);
    queue.start(now, 9, |_, _| async { panic!("a mistake") });
    let completion = queue.runner.next().await.unwrap();
    queue.settle(completion, ControllerTime { clock: now, wall: at(100) });
    assert_eq!(begin(&mut queue, 9, now + READ_INTERVAL / 2), []);
    assert_eq!(begin(&mut queue, 9, now + READ_INTERVAL), [(environment(1), false)], "as after a start");
    end(
        &mut queue,
        1,
        EnvironmentReconciled { cluster: None, then: Then::Queue(at(160), true) },
        ControllerTime { clock: now, wall: at(100) },
    );
    assert_eq!(begin(&mut queue, 9, now + Duration::from_secs(60)), [(environment(1), true)]);
    end(
        &mut queue,
        1,
        EnvironmentReconciled { cluster: None, then: Then::Rest },
        ControllerTime { clock: now, wall: at(160) },
    );
    assert!(queue.urgent.is_empty() && queue.runner.queue.keys().next().is_none());
}

#[test]
fn environments_whose_agents_are_called_keep_no_others_from_being_looked_after() {
    assert_eq!((room(0, 0), room(VISITS_MAX, 0)), (VISITS_MAX, 0));
    assert_eq!(room(VISITS_MAX + 12, VISITS_MAX), VISITS_MAX - 12, "however slow many clusters are");
    // One whose reconcile has begun and not ended is there once; a permit that is given back a moment later is no room too many.
    assert_eq!(room(1, 2), VISITS_MAX);
}
