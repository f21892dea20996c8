//! Calls about workspaces that are in the cluster: listed with their marks, and removed on the gateway's word.

use agent_cluster::call::CallEnd;
use agent_cluster::orphan_calls::OrphanCalls;
use agent_cluster::{FIELD_MANAGER, Options};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tunnel_proto::orphans::{Decoder, Marked, MarkedIn, MarkedRemove, MarkedRemoved, OrphanAnswer, OrphanCall};

use crate::world::{Subject, World};

crate::scenarios! {
    everything_with_the_marks_is_listed_and_one_is_removed_with_all_its_objects
    what_another_gateway_made_stays
    what_holds_an_orphan_up_is_told_and_a_later_call_goes_on
}

const HOSTS: &str = "{port}-lost.ws.example";

fn within(world: &World) -> MarkedIn {
    MarkedIn { cluster: world.cluster.clone(), namespaces: world.mode.clone() }
}

fn remove(world: &World, subject: &Subject) -> OrphanCall {
    OrphanCall::Remove(MarkedRemove {
        within: within(world),
        workspace: subject.name.clone(),
        namespace: subject.namespace.clone(),
        host_template: HOSTS.to_owned(),
    })
}

/// Makes a call; returns its answers up to the last one, or up to the first that `is_enough`.
async fn call(world: &World, call: &OrphanCall, is_enough: impl Fn(&OrphanAnswer) -> bool) -> Vec<OrphanAnswer> {
    let client = world.trouble.wrap(world.admin.clone());
    let calls = OrphanCalls::new(Options { client, field_manager: FIELD_MANAGER.to_owned() });
    let permit = calls.permit().expect("room");
    let (mut near, far) = tokio::io::duplex(64 * 1024);
    let mut answering = JoinSet::new();
    answering.spawn(async move { calls.answer(permit, far, CancellationToken::new()).await });
    near.write_all(&call.encode()).await.expect("a call");
    let (mut decoder, mut answers) = (Decoder::default(), Vec::new());
    let mut buffer = [0; 4096];
    loop {
        while let Some(answer) = decoder.next_message().expect("an answer") {
            let is_last = matches!(answer, OrphanAnswer::Listed(_) | OrphanAnswer::Removed(_));
            let is_over = is_last || is_enough(&answer);
            answers.push(answer);
            if is_over {
                drop(near);
                let end = answering.join_next().await.expect("a task").expect("an end");
                assert!(is_last == (end == CallEnd::Answered) || end == CallEnd::CalledOff, "{end:?}");
                return answers;
            }
        }
        let read = near.read(&mut buffer).await.expect("a channel");
        assert!(read > 0, "the channel ended without a last answer: {answers:?}");
        decoder.push(&buffer[..read]);
    }
}

async fn listed(world: &World) -> Vec<Marked> {
    let answers = call(world, &OrphanCall::List(within(world)), |_| false).await;
    let mut all = Vec::new();
    for answer in answers {
        match answer {
            OrphanAnswer::Page(page) => all.extend(page),
            last @ (OrphanAnswer::Listed(_) | OrphanAnswer::Removing(_) | OrphanAnswer::Removed(_)) => {
                assert_eq!(last, OrphanAnswer::Listed(None));
            }
        }
    }
    all
}

async fn removed(world: &World, subject: &Subject) -> MarkedRemoved {
    match call(world, &remove(world, subject), |_| false).await.pop() {
        Some(OrphanAnswer::Removed(removed)) => removed,
        other => panic!("{other:?}"),
    }
}

/// Makes workspaces `lost` and `other` as a gateway does, and lets the conversation about them end.
async fn made(world: &World) -> (Subject, Subject) {
    let (lost, other) = (world.workspace("lost"), world.workspace("other"));
    let mut peer = world.agent().await;
    for subject in [&lost, &other] {
        peer.intend(subject.running(1)).await;
        peer.applied(&subject.name, 1).await;
    }
    for name in [lost.core(), lost.secrets()] {
        let annotations = json!({"workspace-gateway.dev/host-template": HOSTS});
        world.change(&lost.path("configmaps", &name), |object| object["metadata"]["annotations"] = annotations).await;
    }
    (lost, other)
}

async fn everything_with_the_marks_is_listed_and_one_is_removed_with_all_its_objects(world: &World) {
    let (lost, other) = made(world).await;
    let found = listed(world).await;
    let names: Vec<_> = found.iter().map(|one| (one.workspace.as_str(), one.namespace.as_str())).collect();
    assert_eq!(names, [("lost", lost.namespace.as_str()), ("other", other.namespace.as_str())]);
    assert_eq!((found[0].host_template.as_str(), found[1].host_template.as_str()), (HOSTS, ""));
    assert!(found[0].objects > 2, "{found:?}");
    let before = world.versions(&other).await.keys().filter(|name| name.contains("other")).count();
    assert_eq!(removed(world, &lost).await, MarkedRemoved { was_there: true, failure: None });
    world.check_gone(&lost).await;
    assert_eq!(world.versions(&other).await.keys().filter(|name| name.contains("other")).count(), before);
    assert_eq!(removed(world, &lost).await, MarkedRemoved::default(), "it is not there any more");
    let found = listed(world).await;
    assert_eq!(found.iter().map(|one| one.workspace.as_str()).collect::<Vec<_>>(), ["other"]);
}

async fn what_another_gateway_made_stays(world: &World) {
    let (_, other) = made(world).await;
    let before = world.versions(&other).await;
    let refused = removed(world, &other).await;
    assert!(refused.was_there && refused.failure.is_some_and(|why| why.contains("another gateway")));
    assert_eq!(world.versions(&other).await, before, "nothing of it was touched");
    // Nor is anything done in a namespace of Kubernetes itself, or under another agent's name.
    for (cluster, namespace) in
        [(world.cluster.clone(), "kube-system".to_owned()), ("elsewhere".into(), other.namespace.clone())]
    {
        let within = MarkedIn { cluster, namespaces: world.mode.clone() };
        let (workspace, host_template) = (other.name.clone(), String::new());
        let wanted = OrphanCall::Remove(MarkedRemove { within, workspace, namespace, host_template });
        let answer = call(world, &wanted, |_| false).await.pop();
        let is_refused = match &answer {
            Some(OrphanAnswer::Removed(removed)) => !removed.was_there || removed.failure.is_some(),
            _ => false,
        };
        assert!(is_refused, "{answer:?}");
    }
    assert_eq!(world.versions(&other).await, before);
}

async fn what_holds_an_orphan_up_is_told_and_a_later_call_goes_on(world: &World) {
    let (lost, _) = made(world).await;
    let path = lost.path("configmaps", "lost-scripts");
    world.change(&path, |object| object["metadata"]["finalizers"] = json!(["example.net/hold"])).await;
    let is_held = |answer: &OrphanAnswer| {
        matches!(answer, OrphanAnswer::Removing(left)
            if left.iter().any(|one| one.object == "ConfigMap lost-scripts" && one.finalizers == ["example.net/hold"]))
    };
    let answers = call(world, &remove(world, &lost), is_held).await;
    assert!(answers.last().is_some_and(is_held), "{answers:?}");
    assert!(world.get(&lost.path("configmaps", &lost.core())).await.is_some(), "it is still tracked");
    world.change(&path, |object| object["metadata"]["finalizers"] = json!([])).await;
    if let Some(fake) = &world.fake {
        fake.drop_finalized(&lost.namespace);
    }
    assert_eq!(removed(world, &lost).await, MarkedRemoved { was_there: true, failure: None });
    world.check_gone(&lost).await;
}
