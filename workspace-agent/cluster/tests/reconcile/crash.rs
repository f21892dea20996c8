//! An agent that is killed at any of its writes, before or after the API server carried it out: the next one finishes.

use serde_json::json;
use tunnel_proto::reconcile::{Intent, WorkspaceReport};
use tunnel_proto::state::DesiredState;

use crate::world::{Subject, World};

crate::scenarios! {
    agent_that_is_killed_at_any_write_of_a_life_is_followed_by_one_that_finishes
}

/// One stretch of a workspace's life, which ends when a report says so.
struct Stretch {
    intent: fn(&Subject) -> Intent,
    is_over: fn(&WorkspaceReport) -> bool,
}

fn more(subject: &Subject) -> Vec<serde_json::Value> {
    let mut objects = subject.full(1);
    objects.push(subject.object("v1", "ConfigMap", "more", &subject.core(), &json!({"data": {"a": "b"}})));
    objects
}

fn is_applied(report: &WorkspaceReport, generation: u64) -> bool {
    report.applied >= generation && report.failure.is_none()
}

const LIFE: [Stretch; 4] = [
    Stretch { intent: |subject| subject.running(1), is_over: |report| is_applied(report, 1) },
    Stretch {
        intent: |subject| subject.intent(2, DesiredState::Running, &more(subject)),
        is_over: |report| is_applied(report, 2),
    },
    // Prunes what the one before had more.
    Stretch {
        intent: |subject| subject.intent(3, DesiredState::Stopped, &subject.full(0)),
        is_over: |report| is_applied(report, 3),
    },
    Stretch {
        intent: |subject| subject.end(4),
        is_over: |report| report.termination.as_ref().is_some_and(|termination| termination.is_done),
    },
];

async fn agent_that_is_killed_at_any_write_of_a_life_is_followed_by_one_that_finishes(world: &World) {
    let bystander = world.workspace("bystander");
    let mut peer = world.agent().await;
    peer.intend(bystander.running(1)).await;
    peer.applied("bystander", 1).await;
    peer.kill().await;
    let before = world.objects(&bystander).await;
    let mut kills = 0;
    // On a real server, where a life takes seconds, not each of them.
    let step = if world.fake.is_some() { 1 } else { 6 };
    for write in (0..).step_by(step) {
        let mut is_killed = false;
        for is_after in [false, true] {
            is_killed |= live(world, &world.workspace("w"), write, is_after).await;
            kills += usize::from(is_killed);
        }
        if !is_killed {
            break;
        }
    }
    assert!(kills > 20 / step, "a life has more writes than {kills}");
    assert_eq!(world.objects(&bystander).await, before, "nothing of others was touched");
}

/// Lives a whole life with one kill. Returns whether there was so late a write.
async fn live(world: &World, subject: &Subject, write: usize, is_after: bool) -> bool {
    let mut world = World { trouble: crate::trouble::Trouble::default(), ..world.again() };
    world.trouble.kill_at(write, is_after);
    let mut is_killed = false;
    let mut peer = world.agent().await;
    for Stretch { intent, is_over } in LIFE {
        peer.intend(intent(subject)).await;
        let is_it = |report: &WorkspaceReport| report.workspace == subject.name && is_over(report);
        let killed = world.trouble.killed.clone();
        let dies = async { if is_killed { std::future::pending().await } else { killed.cancelled().await } };
        if peer.talk_until(dies, is_it).await {
            continue;
        }
        is_killed = true;
        peer.kill().await;
        // Another process: the one before said nothing of what it did.
        world.trouble = crate::trouble::Trouble::default();
        peer = world.agent().await;
        peer.intend(intent(subject)).await;
        peer.until("the end of the stretch", is_it).await;
        check(&world, subject, intent(subject).generation).await;
    }
    world.check_gone(subject).await;
    peer.kill().await;
    is_killed
}

async fn check(world: &World, subject: &Subject, generation: u64) {
    let has = async |plural, name: &str| world.get(&subject.path(plural, name)).await.is_some();
    let is_alive = generation < 4;
    assert_eq!(has("deployments", &subject.name).await, is_alive);
    assert_eq!(has("secrets", "w-env").await, is_alive);
    assert_eq!(has("configmaps", "more").await, generation == 2);
}
