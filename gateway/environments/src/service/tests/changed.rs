//! What a configuration that changed means for what was asked for before, and for what was made.

use tunnel_proto::environments::Call;

use super::super::*;
use super::acts::{code, done, operator, reconfigure, running};
use super::stage::{Stage, entry, request};
use workspace_spec::cluster_config::{AccessAs, AccessEntry};
use workspace_spec::environment::slug::environment_slug;

fn default_namespace(name: &str) -> AccessEntry {
    AccessEntry { default_namespace: Some(name.to_owned()), ..entry(AccessAs::Agent) }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_asked_for_again_once_its_entry_asks_for_protected_refs() {
    let protected = AccessEntry { protected_branches_only: true, ..entry(AccessAs::Agent) };
    let stage = Stage::new().await;
    let before = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.later(1);
    reconfigure(&stage, protected).await;
    stage.later(1);
    let (_stop, _tasks) = running(&stage);
    assert_eq!(code(before.outcome().await), "config_changed");
    assert!(stage.cluster.world.lock().calls.is_empty(), "its ref may be anybody's");
    let again = stage.environments.complete(request(1, "two")).await;
    assert_eq!(again.unwrap_err().code, RefusalCode::RefNotProtected);
    let mut of_a_protected_ref = request(1, "two");
    of_a_protected_ref.job.is_ref_protected = true;
    assert_eq!(code(stage.environments.complete(of_a_protected_ref).await.unwrap().outcome().await), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_of_a_protected_ref_is_prepared_though_the_gateway_restarts_while_it_waits() {
    let protected = AccessEntry { protected_branches_only: true, ..entry(AccessAs::Agent) };
    let mut stage = Stage::with(protected).await;
    let mut asked = request(1, "two");
    asked.job.is_ref_protected = true;
    stage.environments.complete(asked.clone()).await.unwrap();
    stage.later(5);
    stage.restart().await;
    let (_stop, _tasks) = running(&stage);
    assert_eq!(code(stage.environments.complete(asked).await.unwrap().outcome().await), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_asked_for_again_once_default_namespaces_are_others_than_those_that_it_counted_on() {
    let slug = environment_slug("review/1");
    for (before, template, now, is_changed) in [
        (default_namespace("shop"), "shared", entry(AccessAs::Agent), true),
        (default_namespace("shop"), "shared", default_namespace("infra"), true),
        // What it makes is to be shared: a stop would take from others what they have in it.
        (entry(AccessAs::Agent), "two", default_namespace(&slug), true),
        (default_namespace("shop"), "shared", default_namespace("shop"), false),
        (entry(AccessAs::Agent), "two", default_namespace("shop"), false),
    ] {
        let stage = Stage::with(before).await;
        let following = stage.environments.complete(request(1, template)).await.unwrap();
        reconfigure(&stage, now.clone()).await;
        let (_stop, _tasks) = running(&stage);
        let expected = if is_changed { "config_changed" } else { "" };
        assert_eq!(code(following.outcome().await), expected, "{template} {now:?}");
        assert_eq!(stage.cluster.world.lock().calls.is_empty(), is_changed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_is_told_which_namespaces_environments_share_by_now() {
    let stage = Stage::with(default_namespace("shop")).await;
    let (_stop, _tasks) = running(&stage);
    let id = done(&stage, 1, "two").await.environment.unwrap().id;
    let slug = environment_slug("review/1");
    reconfigure(&stage, default_namespace(&slug)).await;
    stage.environments.remove(id, operator()).await.unwrap().outcome().await;
    let calls = stage.cluster.world.lock().calls.clone();
    let kept: Vec<_> = calls.iter().map(|call| call.scope().kept_namespaces.clone()).collect();
    assert_eq!(kept, [vec!["shop".to_owned()], vec![slug]]);
    assert!(matches!(calls[1], Call::Remove(_)), "{calls:?}");
}
