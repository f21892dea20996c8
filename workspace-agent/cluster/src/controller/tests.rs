use tokio_util::sync::CancellationToken;
use tunnel_proto::reconcile::NamespaceMode;

use super::*;
use crate::FIELD_MANAGER;
use crate::api::CancelableApi;
use crate::config::Scope;
use crate::resources::Resources;
use crate::worker::Remainder;

const NAME: &str = "w";

/// Makes a controller on a cluster that is never asked anything.
fn controller() -> Controller {
    let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
    let client = kube::Client::try_from(config).expect("a client");
    let context = ReconcileContext {
        api: CancelableApi::new(client, FIELD_MANAGER),
        resources: Resources::default(),
        sources: Arc::default(),
        mode: NamespaceMode::Unique,
    };
    Controller::new(Arc::new(context), Arc::new(ConversationShared::after(0)))
}

fn add(controller: &mut Controller) {
    let scope = Scope { cluster: "c".into(), workspace: NAME.into(), namespace: "ns".into() };
    controller.add(NAME, || Mailbox::new(scope, CancellationToken::new()));
}

/// Begins a pass; the caller says what comes of it.
fn begin(controller: &mut Controller, left: Option<Remainder>) -> Completion<String, Option<PassEnd>> {
    assert_eq!(controller.runner.queue.start(Instant::now(), 1).as_deref(), Some(NAME));
    let (mailbox, movements) = (controller.workspaces[NAME].mailbox.clone(), controller.shared.movements());
    Completion { key: NAME.to_owned(), result: Ok(Some(PassEnd { mailbox, movements, left })) }
}

fn is_due(controller: &Controller) -> bool {
    controller.next_due().is_some_and(|due| due <= Instant::now())
}

#[tokio::test(start_paused = true)]
async fn movement_during_a_pass_or_after_it_is_not_missed_by_a_workspace_that_waits_for_it() {
    let mut controller = controller();
    let held = Some(Remainder { is_held: true, again: Again::No });
    add(&mut controller);
    let pass = begin(&mut controller, held);
    controller.settle(pass).expect("no panic");
    assert!(!is_due(&controller), "nothing has moved since it looked");
    controller.moved();
    assert!(is_due(&controller));
    let pass = begin(&mut controller, held);
    controller.shared.moved();
    controller.moved();
    controller.settle(pass).expect("no panic");
    assert!(is_due(&controller), "it moved, perhaps after the pass had looked");
    // A newer intent that cannot be carried out ended the pass: the workspace waits as before.
    let pass = begin(&mut controller, None);
    controller.settle(pass).expect("no panic");
    controller.moved();
    assert!(is_due(&controller));
    let pass = begin(&mut controller, Some(Remainder { is_held: false, again: Again::No }));
    controller.shared.moved();
    controller.moved();
    controller.settle(pass).expect("no panic");
    controller.moved();
    assert!(!is_due(&controller), "it waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn end_of_a_pass_says_nothing_of_a_workspace_that_was_named_anew_or_is_over() {
    let mut controller = controller();
    add(&mut controller);
    let failed = Some(Remainder { is_held: true, again: Again::Permanent });
    let pass = begin(&mut controller, failed);
    assert!(controller.remove(NAME));
    add(&mut controller);
    assert!(!is_due(&controller) && controller.next_due().is_none(), "the pass of before is not over");
    controller.settle(pass).expect("no panic");
    assert!(is_due(&controller) && controller.held.is_empty());
    let pass = begin(&mut controller, failed);
    controller.clear();
    controller.settle(pass).expect("no panic");
    assert!(!controller.runner.queue.contains(&NAME.to_owned()) && controller.held.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pass_that_panics_is_said_and_its_workspace_waits_to_be_named() {
    let mut controller = controller();
    add(&mut controller);
    controller.runner.start(Instant::now(), PASSES_MAX, |_| async { panic!("a mistake") });
    let completion = controller.runner.next().await.expect("it is in flight");
    assert!(controller.settle(completion).is_err_and(|error| error.is_panic()));
    assert!(!controller.runner.queue.contains(&NAME.to_owned()));
}

#[test]
fn attempts_are_repeated_with_growing_waits_and_rest_when_all_is_well() {
    let (mut queue, mut looks) = (WorkQueue::default(), 0);
    let mut next = |again: Again| {
        queue.add("w".to_owned(), Duration::ZERO);
        let name = queue.start(Duration::ZERO, 1).expect("it is due");
        settle(&mut queue, &name, again, &mut looks, Pause { later: |wait| wait, roll: 1.0 });
        let due = queue.next_due(1);
        assert_eq!(queue.contains(&name), due.is_some());
        due
    };
    assert_eq!(next(Again::Temporary), Some(Duration::from_secs(1)));
    assert_eq!(next(Again::Temporary), Some(Duration::from_secs(2)));
    for _ in 0..20 {
        next(Again::Temporary);
    }
    assert_eq!(next(Again::Temporary), Some(TEMPORARY.max));
    assert_eq!(next(Again::Permanent), Some(PERMANENT.max));
    assert_eq!(next(Again::Look), Some(LOOK.first));
    assert_eq!(next(Again::Look), Some(LOOK.first * 2));
    assert_eq!(next(Again::No), None);
    assert_eq!(next(Again::Temporary), Some(Duration::from_secs(1)), "counted anew");
}
