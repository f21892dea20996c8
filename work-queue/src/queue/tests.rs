use proptest::prelude::*;

use super::*;

const ALL: usize = usize::MAX;

#[test]
fn earliest_key_is_started_first_and_none_before_its_time() {
    let mut queue = WorkQueue::default();
    queue.add('a', 30);
    queue.add('b', 10);
    queue.add('c', 20);
    queue.add('a', 5);
    queue.add('b', 40);
    queue.remove(&'c');
    assert_eq!((queue.next_due(ALL), queue.start(4, ALL)), (Some(5), None));
    assert_eq!([queue.start(99, ALL), queue.start(99, ALL), queue.start(99, ALL)], [Some('a'), Some('b'), None]);
}

#[test]
fn key_in_flight_is_not_started_and_once_more_if_it_was_added() {
    let mut queue = WorkQueue::default();
    queue.add('a', 1);
    assert_eq!(queue.start(1, ALL), Some('a'));
    queue.add('a', 2);
    assert_eq!((queue.start(9, ALL), queue.waiting(), queue.in_flight()), (None, 1, 1));
    // What it says itself does not put off what was added meanwhile.
    queue.finish('a', Requeue::At(100));
    assert_eq!(queue.start(2, ALL), Some('a'));
    queue.finish('a', Requeue::AwaitAdd);
    assert_eq!((queue.start(999, ALL), queue.contains(&'a')), (None, false));
}

#[test]
fn no_more_are_in_flight_than_may_be() {
    let mut queue = WorkQueue::default();
    for key in 0..3 {
        queue.add(key, 0);
    }
    assert_eq!([queue.start(0, 2), queue.start(0, 2), queue.start(0, 2)], [Some(0), Some(1), None]);
    assert_eq!(queue.next_due(2), None, "no instant at which the third could start");
    queue.finish(0, Requeue::AwaitAdd);
    assert_eq!(queue.start(0, 2), Some(2));
}

#[test]
fn failures_in_a_row_are_counted_until_they_are_forgotten() {
    let mut queue = WorkQueue::default();
    let mut fail = |is_forgotten: bool| {
        queue.add('a', 0);
        assert_eq!(queue.start(99, ALL), Some('a'));
        if is_forgotten {
            queue.forget(&'a');
        }
        let mut count = 0;
        queue.retry('a', |failures| {
            count = failures;
            7
        });
        assert_eq!(queue.next_due(ALL), Some(7));
        count
    };
    assert_eq!([fail(false), fail(false), fail(true), fail(false)], [1, 2, 1, 2]);
}

#[test]
fn removed_key_ends_its_flight_and_does_not_come_back() {
    let mut queue = WorkQueue::default();
    queue.add('a', 0);
    assert_eq!(queue.start(0, ALL), Some('a'));
    queue.add('a', 0);
    queue.remove(&'a');
    assert!(queue.is_in_flight(&'a'), "the reconcile still runs");
    queue.finish('a', Requeue::AwaitAdd);
    assert_eq!((queue.start(9, ALL), queue.keys().count()), (None, 0));
    // A second end of the same flight says nothing.
    queue.finish('a', Requeue::At(1));
    queue.retry('a', |_| 1);
    assert!(!queue.contains(&'a') && queue.failures.is_empty());
}

/// One key of the model: a list of all instants for which it was added since it was last started.
#[derive(Clone, Debug, Default)]
struct Key {
    added: Vec<u8>,
    is_in_flight: bool,
    failures: u32,
}

/// What a controller may do with a queue.
#[derive(Clone, Debug)]
enum Act {
    Add(usize, u8),
    Start(usize),
    Finish(usize, Option<u8>),
    Retry(usize),
    Forget(usize),
    Remove(usize),
    Wait(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0..5_usize;
    prop_oneof![
        4 => (key.clone(), any::<u8>()).prop_map(|(key, at)| Act::Add(key, at)),
        6 => (0..4_usize).prop_map(Act::Start),
        3 => (key.clone(), any::<Option<u8>>()).prop_map(|(key, at)| Act::Finish(key, at)),
        2 => key.clone().prop_map(Act::Retry),
        1 => key.clone().prop_map(Act::Forget),
        1 => key.prop_map(Act::Remove),
        3 => (1..60_u8).prop_map(Act::Wait),
    ]
}

/// Returns the key that is to be started.
fn expected(model: &[Key], now: u8, max: usize) -> Option<usize> {
    if model.iter().filter(|key| key.is_in_flight).count() >= max {
        return None;
    }
    let waiting = model.iter().enumerate().filter(|(_, key)| !key.is_in_flight);
    let due = waiting.filter_map(|(number, key)| Some((*key.added.iter().min()?, number)));
    due.filter(|(at, _)| *at <= now).min().map(|(_, number)| number)
}

proptest! {
    #[test]
    fn queue_does_as_a_list_of_all_that_was_added(acts in prop::collection::vec(act(), 0..120)) {
        let (mut queue, mut model, mut now) = (WorkQueue::default(), vec![Key::default(); 5], 0_u8);
        for act in acts {
            match act {
                Act::Add(key, at) => {
                    queue.add(key, at);
                    model[key].added.push(at);
                }
                Act::Start(max) => {
                    let started = queue.start(now, max);
                    prop_assert_eq!(started, expected(&model, now, max));
                    if let Some(key) = started {
                        model[key] = Key { added: Vec::new(), is_in_flight: true, ..model[key] };
                    }
                }
                Act::Finish(key, at) => {
                    queue.finish(key, at.map_or(Requeue::AwaitAdd, Requeue::At));
                    if std::mem::take(&mut model[key].is_in_flight) {
                        model[key].added.extend(at);
                    }
                }
                Act::Retry(key) if model[key].is_in_flight => {
                    let mut count = 0;
                    queue.retry(key, |failures| {
                        count = failures;
                        now.saturating_add(u8::try_from(failures).unwrap_or(u8::MAX))
                    });
                    let key = &mut model[key];
                    (key.is_in_flight, key.failures) = (false, key.failures + 1);
                    key.added.push(now.saturating_add(u8::try_from(key.failures).unwrap()));
                    prop_assert_eq!(count, key.failures);
                }
                Act::Retry(_) => {}
                Act::Forget(key) => {
                    queue.forget(&key);
                    model[key].failures = 0;
                }
                Act::Remove(key) => {
                    queue.remove(&key);
                    model[key] = Key { is_in_flight: model[key].is_in_flight, ..Key::default() };
                }
                Act::Wait(by) => now = now.saturating_add(by),
            }
            let waiting = model.iter().filter(|key| !key.added.is_empty()).count();
            let in_flight = model.iter().filter(|key| key.is_in_flight).count();
            prop_assert_eq!((queue.waiting(), queue.in_flight()), (waiting, in_flight));
            for (number, key) in model.iter().enumerate() {
                prop_assert_eq!(queue.contains(&number), key.is_in_flight || !key.added.is_empty());
            }
        }
        // Whatever happened, each key that waits is started once, and nothing is left.
        for key in queue.in_flight.clone() {
            queue.finish(key, Requeue::AwaitAdd);
        }
        while let Some(key) = queue.start(u8::MAX, ALL) {
            prop_assert!(!std::mem::take(&mut model[key].added).is_empty());
        }
        prop_assert!(model.iter().all(|key| key.added.is_empty()));
        prop_assert!(queue.due.is_empty() && queue.order.is_empty());
    }
}
