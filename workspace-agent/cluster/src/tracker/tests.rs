use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn progress(applied: u64) -> WorkspaceReport {
    WorkspaceReport { workspace: "w".into(), namespace: "ns".into(), applied, ..WorkspaceReport::default() }
}

fn sent(tracker: &mut Tracker, at: Duration) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| tracker.next_due(at)).map(|report| (report.number, report.applied)).collect()
}

#[test]
fn unchanged_progress_that_was_noted_is_not_said_again() {
    let mut tracker = Tracker::default();
    assert!(tracker.update_or_set("w", progress(1)));
    assert_eq!(sent(&mut tracker, Duration::ZERO), [(1, 1)]);
    tracker.noted(1);
    assert!(!tracker.update_or_set("w", progress(1)));
    assert_eq!(tracker.repeat(PATIENCE * 9, PATIENCE), 0);
    assert_eq!(sent(&mut tracker, PATIENCE * 9), []);
    assert_eq!(tracker.unsettled(), 0);
}

#[test]
fn progress_that_was_lost_is_repeated_under_a_new_number() {
    let mut tracker = Tracker::default();
    tracker.update_or_set("w", progress(1));
    assert_eq!(sent(&mut tracker, Duration::ZERO), [(1, 1)]);
    assert!(!tracker.update_or_set("w", progress(1)), "it is on its way");
    assert_eq!(tracker.repeat(PATIENCE / 2, PATIENCE), 0, "it may still be noted");
    assert_eq!(tracker.repeat(PATIENCE, PATIENCE), 1);
    assert_eq!(sent(&mut tracker, PATIENCE), [(2, 1)]);
    tracker.noted(1);
    assert_eq!(tracker.unsettled(), 1, "the repetition was not noted, and it is the one that counts");
    tracker.noted(2);
    assert_eq!(tracker.unsettled(), 0);
}

#[test]
fn changed_progress_is_said_however_far_the_one_before_it_came() {
    let mut tracker = Tracker::default();
    tracker.update_or_set("w", progress(1));
    assert!(tracker.update_or_set("w", progress(2)));
    assert_eq!(sent(&mut tracker, Duration::ZERO), [(1, 2)], "only the newest is worth sending");
    assert!(tracker.update_or_set("w", progress(3)));
    tracker.noted(1);
    assert_eq!(sent(&mut tracker, Duration::ZERO), [(2, 3)], "noting the one before says nothing of this");
    tracker.noted(2);
    assert!(tracker.update_or_set("w", progress(2)), "back to what was said once is a change");
}

#[test]
fn forgotten_workspace_is_not_spoken_of() {
    let mut tracker = Tracker::default();
    tracker.update_or_set("w", progress(1));
    tracker.forget("w");
    assert_eq!(sent(&mut tracker, Duration::ZERO), []);
    tracker.update_or_set("w", progress(1));
    assert_eq!(sent(&mut tracker, Duration::ZERO).len(), 1);
}

#[test]
fn workspace_that_changes_all_the_time_starves_no_other() {
    let mut tracker = Tracker::default();
    for name in ["a", "b", "c"] {
        tracker.update_or_set(name, progress(1));
    }
    for round in 2..5 {
        assert!(tracker.next_due(Duration::ZERO).is_some());
        tracker.update_or_set("a", progress(round));
    }
    tracker.noted(3);
    let unsettled: BTreeSet<_> =
        tracker.entries.iter().filter(|(_, entry)| entry.said != MessageState::Noted).collect_names();
    assert_eq!(unsettled, BTreeSet::from(["a"]));
}

#[test]
fn numbers_go_on_where_the_conversation_before_left_off() {
    let mut before = Tracker::default();
    before.update_or_set("a", progress(1));
    assert_eq!(before.next_due(Duration::ZERO).map(|report| report.number), Some(1));
    let mut tracker = Tracker::after(before.last_number());
    tracker.update_or_set("a", progress(1));
    assert_eq!(tracker.next_due(Duration::ZERO).map(|report| report.number), Some(2));
    tracker.noted(1);
    assert_eq!(tracker.unsettled(), 1, "a late note is of the one before");
    tracker.noted(2);
    assert_eq!((tracker.unsettled(), tracker.last_number()), (0, 2));
}

#[test]
fn attempt_that_is_held_takes_its_failure_back_and_applies_nothing() {
    let mut attempts = Attempts::default();
    attempts.intend(2);
    attempts.failed(2, FailureKind::Kubernetes, "down".into());
    attempts.held(1);
    assert!(attempts.failure().is_some(), "it is of a later intent");
    attempts.held(2);
    assert_eq!((attempts.failure(), attempts.applied()), (None, 0));
}

trait Names<'a> {
    fn collect_names(self) -> BTreeSet<&'a str>;
}

impl<'a, I: Iterator<Item = (&'a String, &'a TrackedMessage)>> Names<'a> for I {
    fn collect_names(self) -> BTreeSet<&'a str> {
        self.map(|(name, _)| name.as_str()).collect()
    }
}

#[test]
fn late_error_of_an_earlier_intent_is_dropped() {
    let mut attempts = Attempts::default();
    assert!(attempts.intend(1));
    assert!(attempts.intend(2));
    assert!(!attempts.failed(1, FailureKind::Kubernetes, "late".into()));
    assert_eq!(attempts.failure(), None);
    assert!(attempts.failed(2, FailureKind::Config, "no".into()));
    attempts.succeeded(1);
    assert!(attempts.failure().is_some(), "an earlier success does not heal a later failure");
    assert!(attempts.intend(2), "the same intent again");
    assert!(attempts.failure().is_some());
    attempts.succeeded(2);
    assert_eq!((attempts.failure(), attempts.applied()), (None, 2));
    assert!(!attempts.intend(1), "an older intent does not count");
}

#[test]
fn newer_intent_takes_the_failure_of_the_one_before_away() {
    let mut attempts = Attempts::default();
    attempts.intend(1);
    attempts.failed(1, FailureKind::Kubernetes, "down".into());
    attempts.intend(2);
    assert_eq!(attempts.failure(), None);
}

#[derive(Clone, Debug)]
enum Event {
    Progress(u8, u64),
    Send,
    Lose,
    Note,
    Wait,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3_u8, 0..3_u64).prop_map(|(name, applied)| Event::Progress(name, applied)),
        Just(Event::Send),
        Just(Event::Lose),
        Just(Event::Note),
        Just(Event::Wait),
    ]
}

proptest! {
    /// Whatever is lost on the way, in the end the gateway has the newest progress of each workspace, and once it has that,
    /// nothing is said any more.
    #[test]
    fn gateway_ends_with_the_newest_progress_and_hears_it_once(events in proptest::collection::vec(events(), 0..60)) {
        let mut tracker = Tracker::default();
        let (mut truth, mut stored) = (BTreeMap::new(), BTreeMap::new());
        let mut now = Duration::ZERO;
        let mut sent_up_to = 0;
        let mut lost = false;
        for event in events {
            match event {
                Event::Progress(name, applied) => {
                    let name = format!("w{name}");
                    truth.insert(name.clone(), applied);
                    tracker.update_or_set(&name, WorkspaceReport { workspace: name.clone(), ..progress(applied) });
                }
                Event::Send => if let Some(report) = tracker.next_due(now) {
                    sent_up_to = report.number;
                    stored.insert(report.workspace, report.applied);
                },
                // The gateway could not store it, and notes nothing from there on until it was repeated.
                Event::Lose => lost |= tracker.next_due(now).is_some(),
                Event::Note => if !lost { tracker.noted(sent_up_to) },
                Event::Wait => {
                    now += PATIENCE;
                    tracker.repeat(now, PATIENCE);
                    lost = false;
                }
            }
        }
        now += PATIENCE;
        tracker.repeat(now, PATIENCE);
        while let Some(report) = tracker.next_due(now) {
            sent_up_to = report.number;
            stored.insert(report.workspace, report.applied);
        }
        tracker.noted(sent_up_to);
        prop_assert_eq!(&stored, &truth);
        prop_assert_eq!(tracker.unsettled(), 0);
        for (name, applied) in truth {
            let is_due = tracker.update_or_set(&name, WorkspaceReport { workspace: name.clone(), ..progress(applied) });
            prop_assert!(!is_due, "it was noted");
        }
    }
}
