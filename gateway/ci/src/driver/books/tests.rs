use tokio::task::JoinSet;

use super::*;

const START: UnixSeconds = UnixSeconds::new(1_000);

fn id(number: i64) -> WorkspaceId {
    format!("w-{number}").parse().unwrap()
}

fn at(seconds: u64) -> UnixSeconds {
    START.later(Duration::from_secs(seconds))
}

fn seen(revision: i64) -> Seen {
    Seen { name: "app".parse().unwrap(), revision, is_up: false }
}

fn done(id: WorkspaceId, revision: i64) -> Visit {
    Visit { id, heard: Heard::default(), outcome: Outcome::Done { seen: seen(revision), again: None } }
}

fn corrupt(id: WorkspaceId) -> Visit {
    let error = StoreError::Corrupt { table: "ci_workspaces", column: "provider" };
    Visit { id, heard: Heard::default(), outcome: Outcome::Failed { seen: None, error } }
}

/// Takes all that is due.
fn due(books: &mut Books, now: UnixSeconds) -> Vec<WorkspaceId> {
    std::iter::from_fn(|| books.next(now).map(|(id, _)| id)).collect()
}

/// Looks at a workspace in a task, as the driver does.
async fn look(books: &mut Books, visits: &mut JoinSet<Visit>, id: WorkspaceId, now: UnixSeconds) -> Option<String> {
    assert_eq!(books.next(now).map(|(id, _)| id), Some(id));
    let task = visits.spawn(async move { if id == self::id(1) { panic!("a mistake") } else { done(id, 7) } });
    books.begun(task.id(), id);
    let ended = visits.join_next_with_id().await.unwrap();
    books.ended(ended, now).map(|(of, text)| {
        assert_eq!(of, id);
        text
    })
}

#[tokio::test]
async fn look_that_panics_costs_its_workspace_a_growing_pause_and_no_other_workspace_anything() {
    let (mut books, mut visits) = (Books::default(), JoinSet::new());
    books.list(vec![(id(1), 7), (id(2), 7), (id(3), 7)], START);
    // Two are under way when the look at the first one panics.
    books.put(id(1), START.later(Duration::ZERO));
    let mut tasks = Vec::new();
    for other in [id(2), id(3)] {
        books.deadlines.remove(other);
        books.known.get_mut(&other).unwrap().is_under_way = true;
        let task = visits.spawn(std::future::pending());
        books.begun(task.id(), other);
        tasks.push(task);
    }
    assert!(look(&mut books, &mut visits, id(1), START).await.unwrap().contains("ended badly"));
    assert_eq!(visits.len(), 2, "they go on");
    assert!(books.known[&id(2)].is_under_way && books.known[&id(3)].is_under_way);
    let mut now = 0;
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600] {
        assert_eq!(due(&mut books, at(now + pause - 1)), []);
        now += pause;
        assert_eq!(look(&mut books, &mut visits, id(1), at(now)).await, None, "it was said");
    }
    // They come to their ends like any other.
    let task = tasks.pop().unwrap();
    assert_eq!(books.ended(Ok((task.id(), done(id(3), 7))), at(now)), None);
    assert!(!books.known[&id(3)].is_under_way);
}

#[test]
fn workspace_that_cannot_be_read_is_looked_at_less_and_less_often_and_said_once_until_it_changes() {
    let mut books = Books::default();
    books.list(vec![(id(1), 7)], START);
    let (mut looks, mut said) = (0, 0);
    for second in 0..3600 {
        // As often as the driver reads them.
        if second % 3 == 0 {
            books.list(vec![(id(1), 7)], at(second));
        }
        for one in due(&mut books, at(second)) {
            looks += 1;
            said += u32::from(books.done(corrupt(one), at(second)).is_some());
        }
    }
    assert_eq!((looks, said), (15, 1));
    // Somebody changes it: it is looked at at once, and said once more if it is still so.
    books.list(vec![(id(1), 8)], at(3600));
    assert_eq!(due(&mut books, at(3600)), [id(1)]);
    assert!(books.done(corrupt(id(1)), at(3600)).is_some());
    assert_eq!(due(&mut books, at(3660)), [], "and the pause is as long as it was");
    books.list(vec![(id(1), 9)], at(3700));
    assert_eq!(due(&mut books, at(3700)), [id(1)]);
    assert_eq!(books.done(done(id(1), 9), at(3700)), None);
    books.list(vec![(id(1), 9)], at(3703));
    assert_eq!(due(&mut books, at(9000)), [], "it is well again");
}

#[test]
fn workspace_that_changes_while_it_is_looked_at_is_looked_at_again() {
    let mut books = Books::default();
    books.list(vec![(id(1), 7)], START);
    assert_eq!(due(&mut books, START), [id(1)]);
    // A look that read 7 is under way; 8 is listed, and somebody tells of a change.
    books.list(vec![(id(1), 8)], START);
    assert_eq!(books.done(done(id(1), 7), START), None);
    books.list(vec![(id(1), 8)], at(3));
    assert_eq!(due(&mut books, at(3)), [id(1)]);
    books.put(id(1), at(3));
    assert_eq!(due(&mut books, at(3)), [], "one at a time");
    assert_eq!(books.done(done(id(1), 8), at(3)), None);
    assert_eq!(due(&mut books, at(3)), [id(1)]);
}
