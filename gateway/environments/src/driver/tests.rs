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

/// Has environments looked at and pause until `until`, each of the cluster that it is given with.
async fn pausing(books: &mut Books, all: &[(u64, u64)], until: i64, now: (Instant, UnixSeconds)) {
    for (number, of) in all {
        let visit = Visit { cluster: Some(cluster(*of)), then: Then::At(at(until)) };
        let mut visits = JoinSet::new();
        let id = environment(*number);
        visits.spawn(async move { (id, visit) });
        let ended = visits.join_next_with_id().await.unwrap();
        books.close(ended, now);
    }
}

#[tokio::test]
async fn agent_that_comes_ends_the_pauses_of_its_own_cluster_alone_and_of_what_is_under_way() {
    let (mut books, now) = (Books::default(), Instant::now());
    pausing(&mut books, &[(1, 1), (2, 2), (3, 1)], 400, (now, at(100))).await;
    assert_eq!(books.begin(9, now), []);
    books.came(cluster(1), now);
    assert_eq!(books.begin(9, now), [(environment(1), true), (environment(3), true)]);
    // One is under way as the agent comes: it may have asked the one before.
    let mut visits: JoinSet<Ended> = JoinSet::new();
    let visit = Visit { cluster: Some(cluster(2)), then: Then::At(at(130)) };
    let id = visits.spawn(async move { (environment(2), visit) }).id();
    books.due.remove(&environment(2));
    books.under_way.insert(environment(2), id);
    books.came(cluster(2), now);
    assert_eq!(books.begin(9, now), [], "one visit at a time");
    books.close(visits.join_next_with_id().await.unwrap(), (now, at(100)));
    assert_eq!(books.begin(9, now), [(environment(2), true)]);
}

#[tokio::test]
async fn clock_that_steps_back_delays_nothing_by_more_than_the_longest_pause() {
    let (mut books, now) = (Books::default(), Instant::now());
    pausing(&mut books, &[(1, 1)], 1_000_000, (now, at(100))).await;
    assert_eq!(books.begin(9, now + Duration::from_secs(599)), []);
    assert_eq!(books.begin(9, now + Duration::from_secs(600)), [(environment(1), false)]);
    // Nor does it matter to what is written down already, in which direction ever.
    pausing(&mut books, &[(2, 1)], 130, (now, at(100))).await;
    assert_eq!(books.begin(9, now + Duration::from_secs(29)), []);
    assert_eq!(books.begin(9, now + Duration::from_secs(30)), [(environment(2), false)]);
}

#[tokio::test]
async fn room_is_for_those_that_wait_longest() {
    let (mut books, now) = (Books::default(), Instant::now());
    pausing(&mut books, &[(1, 1), (2, 1)], 130, (now, at(100))).await;
    pausing(&mut books, &[(3, 1)], 110, (now, at(100))).await;
    let later = now + Duration::from_secs(60);
    assert_eq!(books.begin(1, later), [(environment(3), false)]);
    assert_eq!(books.begin(9, later), [(environment(1), false), (environment(2), false)]);
}

#[test]
fn environments_whose_agents_are_called_keep_no_others_from_being_looked_after() {
    assert_eq!((room(0, 0), room(VISITS_MAX, 0)), (VISITS_MAX, 0));
    assert_eq!(room(VISITS_MAX + 12, VISITS_MAX), VISITS_MAX - 12, "however slow many clusters are");
    // One whose visit has begun and not ended is there once; a seat that is given back a moment later is no room too many.
    assert_eq!(room(1, 2), VISITS_MAX);
}
