use super::*;

const START: UnixSeconds = UnixSeconds::new(1_000);

fn id(number: i64) -> WorkspaceId {
    format!("w-{number}").parse().unwrap()
}

fn at(seconds: u64) -> UnixSeconds {
    START.later(Duration::from_secs(seconds))
}

fn seen(revision: i64) -> VisitState {
    VisitState { name: "app".parse().unwrap(), revision, is_up: false }
}

fn done(revision: i64) -> EndedReconcile {
    EndedReconcile {
        heard: ObservedRun::default(),
        outcome: CiReconcileOutcome::Done { seen: seen(revision), again: None },
    }
}

fn corrupt() -> EndedReconcile {
    let error = StoreError::Corrupt { table: "ci_workspaces", column: "provider" };
    EndedReconcile { heard: ObservedRun::default(), outcome: CiReconcileOutcome::Failed { seen: None, error } }
}

/// Takes all that is due.
fn due(queue: &mut ReconcileQueue, now: UnixSeconds) -> Vec<WorkspaceId> {
    std::iter::from_fn(|| queue.runner.queue.start(now, usize::MAX)).collect()
}

/// Ends a look at a workspace.
fn end(queue: &mut ReconcileQueue, id: WorkspaceId, visit: EndedReconcile, now: UnixSeconds) -> Option<String> {
    let (of, text) = queue.settle(Completion { key: id, result: Ok(visit) }, now)?;
    assert_eq!(of, id);
    Some(text)
}

/// Looks at all that is due in tasks, as the controller does: at the first workspace a look panics, at others it lasts.
/// Returns what is to be said of the first.
async fn reconcile_due(queue: &mut ReconcileQueue, now: UnixSeconds) -> Option<String> {
    queue.start(now, usize::MAX, |id, _| async move {
        if id == self::id(1) {
            panic!("a mistake");
        }
        std::future::pending().await
    });
    let completion = queue.runner.next().await.unwrap();
    assert_eq!(completion.key, id(1));
    queue.settle(completion, now).map(|(of, text)| {
        assert_eq!(of, id(1));
        text
    })
}

#[tokio::test]
async fn look_that_panics_costs_its_workspace_a_growing_pause_and_no_other_workspace_anything() {
    let mut queue = ReconcileQueue::default();
    queue.list(vec![(id(1), 7), (id(2), 7), (id(3), 7)], START);
    // Two are under way when the look at the first one panics.
    assert!(reconcile_due(&mut queue, START).await.unwrap().contains("ended badly"));
    assert_eq!(queue.runner.queue.in_flight(), 2, "they go on");
    assert!(queue.runner.queue.is_in_flight(&id(2)) && queue.runner.queue.is_in_flight(&id(3)));
    let mut now = 0;
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600] {
        assert_eq!(due(&mut queue, at(now + pause - 1)), []);
        now += pause;
        assert_eq!(reconcile_due(&mut queue, at(now)).await, None, "it was said");
    }
    // They come to their ends like any other.
    assert_eq!(end(&mut queue, id(3), done(7), at(now)), None);
    assert!(!queue.runner.queue.is_in_flight(&id(3)));
}

#[test]
fn workspace_that_cannot_be_read_is_looked_at_less_and_less_often_and_said_once_until_it_changes() {
    let mut queue = ReconcileQueue::default();
    queue.list(vec![(id(1), 7)], START);
    let (mut looks, mut said) = (0, 0);
    for second in 0..3600 {
        // As often as the controller reads them.
        if second % 3 == 0 {
            queue.list(vec![(id(1), 7)], at(second));
        }
        for one in due(&mut queue, at(second)) {
            looks += 1;
            said += u32::from(end(&mut queue, one, corrupt(), at(second)).is_some());
        }
    }
    assert_eq!((looks, said), (15, 1));
    // Somebody changes it: it is looked at at once, and said once more if it is still so.
    queue.list(vec![(id(1), 8)], at(3600));
    assert_eq!(due(&mut queue, at(3600)), [id(1)]);
    assert!(end(&mut queue, id(1), corrupt(), at(3600)).is_some());
    assert_eq!(due(&mut queue, at(3660)), [], "and the pause is as long as it was");
    queue.list(vec![(id(1), 9)], at(3700));
    assert_eq!(due(&mut queue, at(3700)), [id(1)]);
    assert_eq!(end(&mut queue, id(1), done(9), at(3700)), None);
    queue.list(vec![(id(1), 9)], at(3703));
    assert_eq!(due(&mut queue, at(9000)), [], "it is well again");
}

#[test]
fn workspace_that_changes_while_it_is_looked_at_is_looked_at_again() {
    let mut queue = ReconcileQueue::default();
    queue.list(vec![(id(1), 7)], START);
    assert_eq!(due(&mut queue, START), [id(1)]);
    // A look that read 7 is under way; 8 is listed, and somebody tells of a change.
    queue.list(vec![(id(1), 8)], START);
    assert_eq!(end(&mut queue, id(1), done(7), START), None);
    queue.list(vec![(id(1), 8)], at(3));
    assert_eq!(due(&mut queue, at(3)), [id(1)]);
    queue.add(id(1), at(3));
    assert_eq!(due(&mut queue, at(3)), [], "one at a time");
    assert_eq!(end(&mut queue, id(1), done(8), at(3)), None);
    assert_eq!(due(&mut queue, at(3)), [id(1)]);
}

#[test]
fn change_during_a_look_is_not_lost_while_no_further_look_can_begin() {
    let mut queue = ReconcileQueue::default();
    queue.list(vec![(id(1), 7)], START);
    assert_eq!(due(&mut queue, START), [id(1)]);
    queue.add(id(1), at(1));
    assert_eq!(queue.runner.queue.start(at(1), 1), None, "as many as may be are under way");
    let visit = EndedReconcile {
        heard: ObservedRun::default(),
        outcome: CiReconcileOutcome::Done { seen: seen(7), again: Some(at(600)) },
    };
    assert_eq!(end(&mut queue, id(1), visit, at(2)), None);
    assert_eq!(due(&mut queue, at(2)), [id(1)]);
}
