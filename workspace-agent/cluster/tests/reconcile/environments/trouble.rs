//! Calls in trouble: the API server fails, the agent is killed, the gateway goes away or calls again.

use agent_cluster::call::CallEnd;
use serde_json::Value;
use tokio::sync::oneshot;
use tunnel_proto::environments::{Call, Done, ObjectErrorCode, ObjectRef, ObjectStep};

use super::desk::{Calling, Desk, Place};
use crate::trouble::Fault;

super::scenarios! {
    agent_that_is_killed_at_any_write_is_followed_by_one_that_finishes
    newer_call_for_an_environment_ends_the_older_one
    call_whose_channel_ends_stops_between_two_requests
    api_server_that_is_away_loses_nothing_that_was_recorded
    ; in memory alone:
    slow_call_about_no_objects_is_heard_of
}

/// What is called for, one after the other, and what is there then.
fn calls(place: &Place, tracked: &[ObjectRef]) -> [(Call, usize); 4] {
    let usual = place.usual();
    let mut more: Vec<Value> = usual.clone();
    more.push(place.account(&place.namespace, "more"));
    [
        (place.apply(&usual, tracked), 3),
        (place.apply(&more, tracked), 4),
        (place.apply(&usual[..2], tracked), 2),
        (place.remove(tracked), 0),
    ]
}

async fn agent_that_is_killed_at_any_write_is_followed_by_one_that_finishes(desk: &Desk) {
    let bystander = desk.place("bystander");
    let others = desk.applied(&bystander, &bystander.usual(), &[]).await;
    let mut kills = 0;
    // On a real server, where a life takes seconds, not each of them.
    let step = if desk.world.fake.is_some() { 1 } else { 6 };
    for write in (0..).step_by(step) {
        let mut is_killed = false;
        for is_after in [false, true] {
            is_killed |= live(desk, &desk.place("review"), write, is_after).await;
            kills += usize::from(is_killed);
        }
        if !is_killed {
            break;
        }
    }
    assert!(kills > 30 / step, "a life has more writes than {kills}");
    let heard = desk.apply(&bystander, &bystander.usual(), &others).await;
    assert_eq!(heard.done, Done { objects: others.clone(), ..Done::default() }, "nothing of others was touched");
    desk.removed(&bystander, &others).await;
}

/// Lives a life with one kill, and a gateway that hears nothing of what the killed agent did. Returns whether there was so late a
/// write.
async fn live(desk: &Desk, place: &Place, write: usize, is_after: bool) -> bool {
    let desk = desk.again();
    desk.world.trouble.kill_at(write, is_after);
    let (mut tracked, mut is_killed) = (Vec::new(), false);
    for step in 0..4 {
        let (call, count) = calls(place, &tracked)[step].clone();
        let mut calling = Calling::begin(&desk.agent(), &call).await;
        let killed = desk.world.trouble.killed.clone();
        let done = tokio::select! {
            biased;
            () = killed.cancelled(), if !is_killed => None,
            done = calling.done() => done,
        };
        let done = match done {
            Some(done) => done,
            None => {
                is_killed = true;
                calling.kill().await;
                desk.again().call(&call).await.done
            }
        };
        assert_eq!((done.errors.len(), done.left.len(), done.objects.len()), (0, 0, count), "{done:?}");
        let inventory = desk.inventory(place).await.map_or(0, |keys| keys.len());
        assert_eq!(inventory, count, "write {write}, step {step}");
        tracked = done.objects;
    }
    assert!(!desk.has(&place.path()).await);
    is_killed
}

/// Has the next request that patches this object wait. It is told when that comes, and goes on when it is told so.
fn hold_at(desk: &Desk, path: String) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (arrived, arrives) = oneshot::channel();
    let (go, gone) = oneshot::channel::<()>();
    let other = async move {
        arrived.send(()).expect("somebody waits");
        drop(gone.await);
    };
    desk.world.trouble.meanwhile(move |method, asked| method == "PATCH" && asked == path, other);
    (arrives, go)
}

async fn newer_call_for_an_environment_ends_the_older_one(desk: &Desk) {
    let place = desk.place("review");
    let agent = desk.agent();
    let (arrives, go) = hold_at(desk, place.path());
    let older = Calling::begin(&agent, &place.apply(&place.usual(), &[])).await;
    arrives.await.expect("the first object is being applied");
    let newer = Calling::begin(&agent, &place.apply(&place.usual()[..2], &[])).await;
    let unrelated = desk.place("unrelated");
    let beside = Calling::begin(&agent, &unrelated.apply(&unrelated.usual(), &[])).await.heard().await;
    assert_eq!(beside.done.objects.len(), 3, "other environments do not wait");
    go.send(()).expect("the request waits");
    let older = older.heard().await;
    assert_eq!(older.errors().last().map(|error| error.1), Some(ObjectErrorCode::Superseded), "{older:?}");
    assert!(older.steps("ServiceAccount").is_empty() && older.steps("RoleBinding").is_empty(), "{older:?}");
    let newer = newer.heard().await;
    assert_eq!((newer.errors(), newer.kinds()), (Vec::new(), vec!["Namespace", "RoleBinding"]), "{newer:?}");
    assert_eq!(
        desk.inventory(&place).await.map(|keys| keys.len()),
        Some(2),
        "what the older one meant to make is not tracked"
    );
    desk.removed(&place, &newer.done.objects).await;
    desk.removed(&unrelated, &beside.done.objects).await;
}

async fn call_whose_channel_ends_stops_between_two_requests(desk: &Desk) {
    let place = desk.place("review");
    let (arrives, go) = hold_at(desk, place.path());
    let calling = Calling::begin(&desk.agent(), &place.apply(&place.usual(), &[])).await;
    arrives.await.expect("the first object is being applied");
    let mut ending = std::pin::pin!(calling.hang_up());
    let early = tokio::time::timeout(std::time::Duration::from_millis(100), ending.as_mut()).await;
    assert!(early.is_err(), "a request that was sent is waited for");
    go.send(()).expect("the request waits");
    assert_eq!(ending.await, CallEnd::CalledOff);
    assert!(desk.has(&place.path()).await, "it was carried out");
    assert!(!desk.has(&place.account_path("app")).await && !desk.has(&place.binding_path("ci")).await);
    desk.removed(&place, &[]).await;
    assert!(!desk.has(&place.path()).await);
}

async fn api_server_that_is_away_loses_nothing_that_was_recorded(desk: &Desk) {
    let place = desk.place("review");
    let tracked = desk.applied(&place, &place.usual(), &[]).await;
    if desk.world.fake.is_some() {
        // From each request on, in turn.
        for from in 0..12 {
            for call in [place.apply(&place.usual()[..2], &tracked), place.remove(&tracked)] {
                let desk = desk.again();
                let passed = std::sync::atomic::AtomicUsize::new(0);
                let is_late =
                    move |_: &http::Method, _: &str| passed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= from;
                desk.world.trouble.fail(usize::MAX, Fault::Refused(503), is_late);
                let heard = desk.call(&call).await;
                let errors = heard.errors();
                assert!(errors.iter().all(|(_, code)| *code == ObjectErrorCode::Unavailable), "{from}: {heard:?}");
                assert!(errors.len() == 1 || from > 8, "{from}: {heard:?}");
                desk.world.trouble.clear();
                for path in [place.path(), place.binding_path("ci"), place.account_path("app")] {
                    let name = path.rsplit('/').next().expect("a name");
                    let is_recorded = heard.done.objects.iter().any(|object| object.name == name);
                    assert!(is_recorded || !desk.has(&path).await, "{from}: {name} is forgotten: {heard:?}");
                }
                desk.applied(&place, &place.usual(), &tracked).await;
            }
        }
    }
    // What passes is asked for again, and nobody hears of it.
    for fault in [Fault::Refused(401), Fault::Refused(429), Fault::Refused(500), Fault::AnswerLost, Fault::Silence] {
        if desk.world.fake.is_none() && matches!(fault, Fault::AnswerLost | Fault::Silence) {
            continue;
        }
        desk.world.trouble.fail(2, fault, |method, _| method == "GET");
        desk.world.trouble.fail(2, fault, |method, _| method != "GET");
        let heard = desk.apply(&place, &place.usual(), &tracked).await;
        assert_eq!((heard.errors(), heard.done.objects.len()), (Vec::new(), 3), "{fault:?}: {heard:?}");
        desk.world.trouble.clear();
    }
    desk.removed(&place, &tracked).await;
}

async fn slow_call_about_no_objects_is_heard_of(desk: &Desk) {
    let place = desk.place("review");
    for call in [place.apply(&[], &[]), place.remove(&[])] {
        desk.world.trouble.fail(3, Fault::Silence, |method, path| method == "GET" && path.contains("/configmaps/"));
        let heard = desk.call(&call).await;
        assert_eq!(heard.done, Done::default(), "{heard:?}");
        assert!(heard.progress.len() > 1, "the gateway gives up one that says nothing: {heard:?}");
        assert!(heard.progress.iter().all(|said| said.step == ObjectStep::Waiting && said.object.kind == "ConfigMap"));
        desk.world.trouble.clear();
    }
}
