//! What is asked, and what is answered.

use tokio::task::JoinSet;
use tunnel_proto::environments::{Call, Done, ObjectError, ObjectErrorCode, ObjectRef};

use super::super::super::request::Met;
use super::super::*;
use super::acts::{Crowd, begun, done, of_environment, running};
use super::stage::{Stage, entry, request};
use crate::cluster_permits::CLUSTER_CALLS_MAX;
use workspace_spec::cluster_config::AccessAs;
use workspace_spec::environment::template::Deletion;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_that_complete_one_job_at_once_make_one_call_and_all_hear_its_end() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let mut asking = JoinSet::new();
    for _ in 0..50 {
        let environments = stage.environments.clone();
        asking.spawn(async move { environments.complete(request(1, "two")).await.unwrap().outcome().await });
    }
    while let Some(ended) = asking.join_next().await {
        let environment = ended.unwrap().environment.unwrap();
        assert_eq!(environment.objects.len(), 2, "{environment:?}");
        assert_eq!((environment.template.as_deref(), environment.deletion), (Some("two"), Deletion::OnStop));
    }
    assert_eq!(stage.cluster.world.lock().calls.len(), 1);
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Met(Met::Completed));
    assert_eq!(stage.environments.unmet(&request(2, "two")), Unmet::Unmet);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_one_environment_take_turns_in_the_order_in_which_they_asked() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = begun(&stage);
    let first = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.cluster.began.notified().await;
    let mut second = stage.environments.complete(request(2, "three")).await.unwrap();
    assert_eq!(second.next().await, Some(EnvironmentEvent::Waiting { why: "queued" }));
    // Room for a mistake; one that comes later is told at the end of the test.
    let quiet = tokio::time::timeout(std::time::Duration::from_millis(300), stage.cluster.began.notified()).await;
    assert!(quiet.is_err(), "two calls of one environment at a time");
    stage.cluster.answer(usize::MAX, None);
    assert_eq!(first.outcome().await.failure, None);
    stage.cluster.began.notified().await;
    stage.cluster.answer(usize::MAX, None);
    assert_eq!(second.outcome().await.environment.unwrap().objects.len(), 3);
    assert_eq!(stage.cluster.world.lock().calls.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_template_shrank_has_the_rest_pruned_and_a_stop_removes_what_is_recorded() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let first = done(&stage, 1, "two").await.environment.unwrap();
    let second = done(&stage, 2, "three").await.environment.unwrap();
    assert_eq!((first.id, second.objects.len()), (second.id, 3));
    let by = By::User("ann".parse().unwrap());
    stage.environments.set_state(first.id, DesiredEnvironment::Stopping, by.clone()).await.unwrap();
    assert_eq!(stage.environments.follow(first.id).outcome().await.environment.unwrap().objects.len(), 3);
    stage.environments.set_state(first.id, DesiredEnvironment::Stopped, by).await.unwrap();
    let end = stage.environments.follow(first.id).outcome().await;
    assert_eq!((end.failure, end.environment.unwrap().objects.len()), (None, 0));
    assert!(stage.cluster.world.lock().objects.is_empty());
    // Made again, with what is its own.
    assert_eq!(done(&stage, 3, "one").await.environment.unwrap().objects.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn template_that_keeps_its_objects_keeps_them_and_an_operator_removes_them() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let by = By::User("ann".parse().unwrap());
    let id = done(&stage, 1, "kept").await.environment.unwrap().id;
    stage.environments.set_state(id, DesiredEnvironment::Stopped, by.clone()).await.unwrap();
    assert_eq!(stage.environments.follow(id).outcome().await.environment.unwrap().objects.len(), 2);
    assert_eq!(stage.cluster.world.lock().objects.len(), 2);
    let end = stage.environments.remove(id, by).await.unwrap().outcome().await;
    assert!(end.environment.unwrap().objects.is_empty() && stage.cluster.world.lock().objects.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn environments_of_a_project_that_is_gone_are_swept_and_those_of_others_stay() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let id = done(&stage, 1, "two").await.environment.unwrap().id;
    let mut other = request(2, "one");
    (other.job.environment, other.job.project_id) = (Some("production".to_owned()), 43);
    let other = stage.environments.complete(other).await.unwrap().outcome().await.environment.unwrap();
    assert_eq!(stage.environments.sweep(42, By::Hook).await, Ok(1));
    let swept = stage.environments.follow(id).outcome().await.environment.unwrap();
    assert_eq!((swept.reason.as_deref(), swept.objects.len()), (Some("project_deleted"), 0));
    assert_eq!(stage.environments.get(other.id).await.unwrap().objects.len(), 1);
    assert_eq!(stage.environments.sweep(44, By::Hook).await, Ok(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_that_restarts_in_the_middle_goes_on_without_being_asked_again() {
    let mut stage = Stage::new().await;
    let (stop, mut tasks) = begun(&stage);
    let following = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.cluster.began.notified().await;
    stage.cluster.work(1);
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    drop(following);
    stage.restart().await;
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Unmet);
    stage.cluster.world.lock().is_prompt = true;
    let stop = CancellationToken::new();
    tasks.spawn(stage.run(&stop));
    assert_eq!(done(&stage, 1, "two").await.environment.unwrap().objects.len(), 2);
    let calls = stage.cluster.world.lock().calls.clone();
    assert_eq!(calls.len(), 2);
    let Call::Apply(again) = &calls[1] else { panic!("{calls:?}") };
    assert_eq!(again.tracked.len(), 2, "what may have been made before is recorded");
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    stage.restart().await;
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Met(Met::Completed), "it is remembered");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_stays_away_is_named_when_the_jobs_time_is_over_and_the_job_may_ask_again() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    stage.cluster.world.lock().is_absent = true;
    let mut following = stage.environments.complete(request(1, "two")).await.unwrap();
    let Some(EnvironmentEvent::Retrying { code, .. }) = following.next().await else { panic!("no word of it") };
    assert_eq!(code, "agent_absent");
    stage.later(600);
    let failure = following.outcome().await.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.errors.len()), ("agent_absent", 0));
    stage.cluster.world.lock().is_absent = false;
    assert_eq!(done(&stage, 1, "two").await.failure, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_waited_for_an_agent_that_stays_away_all_hear_that_it_does() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    stage.cluster.world.lock().is_absent = true;
    let mut first = stage.environments.complete(request(1, "two")).await.unwrap();
    let second = stage.environments.complete(request(2, "two")).await.unwrap();
    let third = stage.environments.complete(request(3, "two")).await.unwrap();
    assert_eq!(retrying(&mut first).await, "agent_absent");
    stage.later(600);
    for following in [first, second, third] {
        assert_eq!(following.outcome().await.failure.unwrap().code, "agent_absent");
    }
}

/// Waits for a try that failed, and returns why.
async fn retrying(following: &mut ProgressStream) -> String {
    loop {
        match following.next().await {
            Some(EnvironmentEvent::Retrying { code, .. }) => return code,
            Some(EnvironmentEvent::Object(_) | EnvironmentEvent::Waiting { .. }) => {}
            other @ (Some(EnvironmentEvent::Done(_)) | None) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_has_no_more_calls_at_a_time_than_it_takes_and_jobs_do_not_wait_for_removals() {
    let stage = Stage::new().await;
    let crowd = Crowd::new(&stage).await;
    let by = By::User("ann".parse().unwrap());
    let mut ends = Vec::new();
    for id in &crowd.made {
        ends.push(stage.environments.remove(*id, by.clone()).await.unwrap());
    }
    crowd.until(&stage, CLUSTER_CALLS_MAX).await;
    let mut job = stage.environments.complete(of_environment(30, "production")).await.unwrap();
    while job.next().await != Some(EnvironmentEvent::Waiting { why: "queued" }) {}
    let next = crowd.next_call(&stage).await;
    assert!(matches!(next, Some(Call::Apply(_))), "a job waits for removals");
    crowd.gate.add_permits(100);
    assert_eq!(job.outcome().await.failure, None);
    for end in ends {
        assert!(end.outcome().await.environment.unwrap().objects.is_empty());
    }
    assert_eq!(stage.cluster.world.lock().most_at_once, CLUSTER_CALLS_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_says_nothing_of_the_objects_completes_no_job() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = begun(&stage);
    let mut following = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.cluster.began.notified().await;
    stage.cluster.answer(0, Some(Ok(Done::default())));
    assert_eq!(retrying(&mut following).await, "call_timeout");
    stage.later(2);
    stage.cluster.began.notified().await;
    stage.cluster.answer(usize::MAX, None);
    assert_eq!(following.outcome().await.environment.unwrap().objects.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_was_taken_from_the_environment_stays_and_its_removal_says_so() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let made = done(&stage, 1, "two").await.environment.unwrap();
    let slug = workspace_spec::environment::slug::environment_slug("review/1");
    let name = ("ServiceAccount".to_owned(), slug.clone(), "a".to_owned());
    stage.cluster.world.lock().objects.insert(name.clone(), "somebody".to_owned());
    let by = By::User("ann".parse().unwrap());
    let end = stage.environments.remove(made.id, by).await.unwrap().outcome().await;
    let after = end.environment.unwrap();
    assert_eq!((end.failure, after.objects.len(), after.is_removal_due), (None, 0, false));
    let left: Vec<_> = after.left.iter().map(|left| (left.object.as_str(), left.message.as_str())).collect();
    let object = format!("ServiceAccount {slug}/a");
    assert_eq!(left, [(object.as_str(), "it is not of this environment")]);
    assert_eq!(stage.cluster.world.lock().objects.get(&name).map(String::as_str), Some("somebody"));
}

#[tokio::test(flavor = "multi_thread")]
async fn object_of_somebody_else_fails_the_job_with_its_name_and_stays() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let slug = workspace_spec::environment::slug::environment_slug("review/1");
    let name = ("ServiceAccount".to_owned(), slug, "a".to_owned());
    stage.cluster.world.lock().objects.insert(name.clone(), "somebody".to_owned());
    let end = done(&stage, 1, "two").await;
    let failure = end.failure.unwrap();
    assert_eq!(failure.code, "objects_failed");
    assert_eq!(failure.errors[0].code, "not_owned");
    assert_eq!(failure.errors[0].object.as_ref().unwrap().name, "a");
    assert_eq!(
        done(&stage, 1, "two").await.failure.unwrap().code,
        "objects_failed",
        "and asking again changes nothing"
    );
    assert_eq!(stage.cluster.world.lock().calls.len(), 1);
    let id = end.environment.unwrap().id;
    stage.environments.remove(id, By::User("ann".parse().unwrap())).await.unwrap().outcome().await;
    assert_eq!(stage.cluster.world.lock().objects.get(&name).map(String::as_str), Some("somebody"));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_moment_that_last_fail_the_job_with_every_object() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = begun(&stage);
    let mut following = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.cluster.began.notified().await;
    let objects = stage.cluster.work(usize::MAX).unwrap().objects;
    let error = |object: ObjectRef| ObjectError {
        object: Some(object),
        code: ObjectErrorCode::Conflict,
        message: "it is still being deleted".to_owned(),
    };
    let errors = objects.into_iter().map(error).collect();
    stage.cluster.answer(usize::MAX, Some(Ok(Done { errors, ..Done::default() })));
    assert_eq!(retrying(&mut following).await, "objects_failed");
    stage.later(2);
    // And where nobody answers in the end, too.
    stage.cluster.began.notified().await;
    stage.cluster.answer(0, Some(Err(super::super::super::call::CallError::Lost)));
    assert_eq!(retrying(&mut following).await, "agent_absent");
    stage.later(600);
    let failure = following.outcome().await.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.errors.len()), ("agent_absent", 2));
    assert_eq!(failure.errors[1].code, "conflict");
}

#[tokio::test]
async fn unmet_answers_without_a_store_and_without_an_agent() {
    let stage = Stage::new().await;
    stage.store.close().await;
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Unmet);
    let met = |change: &dyn Fn(&mut JobRequest)| {
        let mut request = request(1, "two");
        change(&mut request);
        stage.environments.unmet(&request)
    };
    assert_eq!(met(&|request| request.is_disabled = true), Unmet::Met(Met::Disabled));
    assert_eq!(met(&|request| request.job.environment = None), Unmet::Met(Met::NoEnvironment));
    assert_eq!(met(&|request| request.job.action = Some("stop".to_owned())), Unmet::Met(Met::NotAStart));
    assert_eq!(met(&|request| request.job.action = Some("start".to_owned())), Unmet::Unmet);
    for change in REFUSED {
        assert_eq!(met(&change.1), Unmet::Met(Met::NotEnabled), "{}", change.0);
    }
    let refused = stage.environments.complete(request(1, "two")).await.unwrap_err();
    assert_eq!(refused.code, RefusalCode::StoreUnavailable);
}

type Change = fn(&mut JobRequest);

const REFUSED: [(RefusalCode, Change); 3] = [
    (RefusalCode::NoSuchAgent, |request| request.agent = "other".parse().unwrap()),
    (RefusalCode::ProjectNotAllowed, |request| request.job.project_path = "group/other".to_owned()),
    (RefusalCode::EnvironmentNotAllowed, |request| request.job.environment = Some("staging".to_owned())),
];

#[tokio::test]
async fn what_may_not_be_is_refused_by_name_and_nothing_is_written_down_to_be_done() {
    let stage = Stage::new().await;
    for (code, change) in REFUSED {
        let mut request = request(1, "two");
        change(&mut request);
        assert_eq!(stage.environments.complete(request).await.unwrap_err().code, code);
    }
    let none = stage.environments.complete(request(1, "nothing")).await.unwrap_err();
    assert_eq!(none.code, RefusalCode::NoSuchTemplate);
    let mut bad = request(1, "two");
    bad.url = Some("javascript:x".to_owned());
    let refused = stage.environments.complete(bad).await.unwrap_err();
    assert_eq!((refused.code, refused.problems[0].place.as_str()), (RefusalCode::FactsInvalid, "environment.url"));
    assert_eq!(stage.store.environments_due().await.unwrap(), []);
    let off = Stage::with(workspace_spec::cluster_config::AccessEntry {
        resource_management: false,
        ..entry(AccessAs::Agent)
    });
    assert_eq!(off.await.environments.complete(request(1, "two")).await.unwrap_err().code, RefusalCode::NotEnabled);
    let protected = Stage::with(workspace_spec::cluster_config::AccessEntry {
        protected_branches_only: true,
        ..entry(AccessAs::Agent)
    });
    let protected = protected.await;
    assert_eq!(
        protected.environments.complete(request(1, "two")).await.unwrap_err().code,
        RefusalCode::RefNotProtected
    );
    let mut stops = request(1, "two");
    stops.job.action = Some("stop".to_owned());
    let nothing = stage.environments.complete(stops).await.unwrap().outcome().await;
    assert_eq!(nothing, PreparationOutcome::nothing(Met::NotAStart));
}

#[tokio::test(flavor = "multi_thread")]
async fn job_acts_as_itself_where_the_configuration_says_so_and_is_removed_as_the_last_one() {
    let stage = Stage::with(entry(AccessAs::CiJob)).await;
    let (_stop, _tasks) = running(&stage);
    let id = done(&stage, 1, "two").await.environment.unwrap().id;
    done(&stage, 2, "two").await;
    stage.environments.remove(id, By::Hook).await.unwrap().outcome().await;
    let calls = stage.cluster.world.lock().calls.clone();
    let users: Vec<_> = calls.iter().map(|call| call.scope().identity.clone().unwrap().user).collect();
    assert_eq!(users, ["gitlab:ci_job:1", "gitlab:ci_job:2", "gitlab:ci_job:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_is_found_by_its_name_and_listed_by_what_it_is() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let made = *done(&stage, 1, "two").await.environment.unwrap();
    let agent: ClusterName = "prod".parse().unwrap();
    assert_eq!(stage.environments.find(&agent, 42, "review/1").await.unwrap(), made);
    assert_eq!(made.page_url, format!("https://gw.example/api/v1/environments/{}", made.id));
    assert_eq!(stage.environments.find(&agent, 42, "review-1").await.unwrap_err().code, RefusalCode::NoSuchEnvironment);
    let filter = Filter { agent: Some(agent), project_id: Some(42), state: Some(DesiredEnvironment::Available) };
    assert_eq!(stage.environments.list(&filter, None, 9).await.unwrap(), std::slice::from_ref(&made));
    assert_eq!(stage.environments.list(&filter, Some(made.id), 9).await.unwrap(), []);
    let none = Filter { state: Some(DesiredEnvironment::Stopped), ..filter };
    assert_eq!(stage.environments.list(&none, None, 9).await.unwrap(), []);
}
