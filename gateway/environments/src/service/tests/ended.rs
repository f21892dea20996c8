//! What a stop, a sweep, a changed configuration and an operator's word end.

use tunnel_proto::environments::{Call, OBJECTS_BYTES_MAX};

use super::super::super::request::Met;
use super::super::*;
use super::acts::{code, done, id_of, operator, reconfigure, running};
use super::stage::{Stage, entry, request, template};
use workspace_spec::cluster_config::{AccessAs, AccessEntry};
use workspace_spec::environment::facts::{EnvironmentFacts, ProjectFacts, TemplateVars};
use workspace_spec::environment::slug::environment_slug;

fn elsewhere() -> AccessEntry {
    AccessEntry { id: "group/other".to_owned(), ..entry(AccessAs::CiJob) }
}

fn info(name: &str) -> TemplateVars {
    TemplateVars {
        agent: AgentFacts { id: 999, name: "prod".to_owned(), url: "https://elsewhere.example".to_owned() },
        environment: EnvironmentFacts {
            id: 0,
            name: name.to_owned(),
            slug: environment_slug(name),
            page_url: "https://elsewhere.example".to_owned(),
            url: None,
            tier: None,
        },
        project: ProjectFacts {
            id: 42,
            slug: "group-app".to_owned(),
            path: "group/app".to_owned(),
            url: "https://git.example/group/app".to_owned(),
        },
        ci_pipeline: None,
        ci_job: None,
        user: None,
    }
}

fn brought(text: &str) -> ObjectSource {
    ObjectSource::Template(Arc::new(Template::parse(&"mine".parse().unwrap(), text.as_bytes()).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_environment_was_stopped_is_prepared_no_more_and_hears_so() {
    let mut stage = Stage::new().await;
    let (stop, mut tasks) = running(&stage);
    for (job, is_removed) in [(1, false), (2, true)] {
        let id = id_of(&stage, job).await;
        assert_eq!(stage.environments.unmet(&request(job, "two")), Unmet::Met(Met::Completed));
        match is_removed {
            true => drop(stage.environments.remove(id, operator()).await.unwrap()),
            false => drop(stage.environments.set_state(id, DesiredEnvironment::Stopped, operator()).await.unwrap()),
        }
        assert_eq!(stage.environments.unmet(&request(job, "two")), Unmet::Unmet, "its objects go");
        stage.environments.follow(id).outcome().await;
        assert!(stage.cluster.world.lock().objects.is_empty());
        let calls = stage.cluster.world.lock().calls.len();
        assert_eq!(code(done(&stage, job, "two").await), "environment_stopped");
        assert_eq!(stage.cluster.world.lock().calls.len(), calls, "a stop is final for what was asked before");
    }
    // Another process stopped it. This one looks when it is told to: by itself it would do so every few seconds.
    let id = id_of(&stage, 3).await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    let (store, now) = (&stage.store, stage.environments.inner.now());
    store.set_environment_state(EnvironmentId::new(id), EnvironmentState::Stopped, None, now).await.unwrap();
    assert_eq!(stage.environments.unmet(&request(3, "two")), Unmet::Met(Met::Completed));
    stage.later(5);
    stage.environments.inner.finish_stops().await;
    assert_eq!(stage.environments.unmet(&request(3, "two")), Unmet::Unmet);
    stage.restart().await;
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Unmet);
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_that_broke_off_after_its_first_word_is_finished_and_no_job_of_the_project_revives_anything() {
    let stage = Stage::new().await;
    let (stop, mut tasks) = running(&stage);
    let id = id_of(&stage, 1).await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    stage.store.put_project_gone(42, stage.environments.inner.now()).await.unwrap();
    for job in [1, 2] {
        // A job that was prepared before hears it once the environment is stopped.
        let asked = stage.environments.complete(request(job, "two")).await;
        assert!(job == 1 || asked.unwrap_err().code == RefusalCode::ProjectDeleted);
    }
    let (_stop, _tasks) = running(&stage);
    let mut following = stage.environments.follow(id);
    let stopped = loop {
        let found = stage.environments.get(id).await.unwrap();
        if found.state == EnvironmentState::Stopped && !found.is_removal_due {
            break found;
        }
        tokio::time::timeout(std::time::Duration::from_millis(200), following.next()).await.ok();
    };
    assert_eq!((stopped.reason.as_deref(), stopped.objects.len()), (Some("project_deleted"), 0));
    let refused = stage.environments.complete(request(3, "two")).await.unwrap_err();
    assert_eq!(refused.code, RefusalCode::ProjectDeleted);
    // Not even one of which a CI system tells that is an operator, and tells again until it is heard.
    let refused = stage
        .environments
        .complete_by(stage.environments.judge(request(4, "two")).unwrap(), operator())
        .await
        .unwrap_err();
    assert_eq!(refused.code, RefusalCode::ProjectDeleted);
    // An operator knows better.
    let agent: ClusterName = "prod".parse().unwrap();
    let told = stage.environments.ensure(&agent, brought(&template(&["a"], "on_stop")), info("review/1"), operator());
    assert_eq!(told.await.unwrap().outcome().await.environment.unwrap().objects.len(), 2);
    assert_eq!(code(done(&stage, 5, "two").await), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_of_which_nothing_can_be_read_keeps_no_other_from_being_swept() {
    let stage = Stage::new().await;
    let mut ids = Vec::new();
    for (job, name) in [(1, "review/1"), (2, "review/2"), (3, "review/3")] {
        let mut asked = request(job, "two");
        asked.job.environment = Some(name.to_owned());
        let asked = stage.environments.complete(asked).await.unwrap();
        ids.push(EnvironmentId::new(asked.environment().unwrap()));
    }
    stage.store.spoil_environment(ids[0]).await;
    assert_eq!(stage.environments.sweep(42, By::Hook).await, Ok(3));
    for id in ids {
        assert_eq!(stage.store.environment(id).await.unwrap().unwrap().state, EnvironmentState::Stopped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_in_an_environment_whose_record_cannot_be_read_is_given_up_in_time() {
    let stage = Stage::new().await;
    let asked = stage.environments.complete(request(1, "two")).await.unwrap();
    let id = EnvironmentId::new(asked.environment().unwrap());
    stage.store.note_left(id, "not JSON", None).await.unwrap();
    let stop = CancellationToken::new();
    for (later, is_due) in [(599, true), (1, false)] {
        stage.later(later);
        stage.environments.inner.reconcile(id, true, &stop, &stop).await;
        assert_eq!(!stage.store.environments_due().await.unwrap().is_empty(), is_due);
    }
    assert_eq!(code(asked.outcome().await), "objects_failed");
    assert_eq!(stage.cluster.world.lock().calls.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_environment_becomes_available_by_a_job_alone_and_whoever_says_it_is_told_so() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let id = id_of(&stage, 1).await;
    stage.environments.set_state(id, DesiredEnvironment::Stopping, operator()).await.unwrap();
    let available = stage.environments.set_state(id, DesiredEnvironment::Available, operator()).await.unwrap();
    assert_eq!(available.state, EnvironmentState::Available);
    stage.environments.set_state(id, DesiredEnvironment::Stopped, operator()).await.unwrap();
    let refused = stage.environments.set_state(id, DesiredEnvironment::Available, operator()).await.unwrap_err();
    assert_eq!(refused.code, RefusalCode::EnvironmentStopped);
    for wanted in [DesiredEnvironment::Stopping, DesiredEnvironment::Stopped] {
        let same = stage.environments.set_state(id, wanted, operator()).await.unwrap();
        assert_eq!(same.state, EnvironmentState::Stopped, "{wanted:?}");
    }
    assert_eq!(code(done(&stage, 2, "two").await), "");
}

#[tokio::test]
async fn only_jobs_that_start_or_stop_their_environment_say_what_becomes_of_it() {
    let stage = Stage::new().await;
    let agent: ClusterName = "prod".parse().unwrap();
    let may = |action: Option<&str>| {
        let job = crate::request::JobFacts { action: action.map(str::to_owned), ..request(1, "two").job };
        stage.environments.may(&agent, &job).map_err(|refusal| refusal.code)
    };
    for action in [None, Some("start"), Some("stop")] {
        assert_eq!(may(action), Ok(()), "{action:?}");
    }
    for action in ["access", "verify", "prepare", "Stop", "anything"] {
        assert_eq!(may(Some(action)), Err(RefusalCode::ActionNotAllowed), "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_that_changes_while_a_job_is_asked_for_never_has_it_made_as_the_agent() {
    let stage = Stage::with(entry(AccessAs::CiJob)).await;
    let asked = request(1, "two");
    let AccessVerdict::AllowedCluster(let_through) = stage.environments.inner.access.verdict(&asked) else {
        panic!("it may")
    };
    // The entry goes while what is asked for is written down: what let the job through counts.
    reconfigure(&stage, elsewhere()).await;
    let following = stage.environments.prepare_job(&let_through, &asked, asked.job.by().into()).await.unwrap();
    let id = EnvironmentId::new(following.environment().unwrap());
    let waiting = stage.store.next_preparation(id).await.unwrap().unwrap();
    assert!(waiting.identity.unwrap().contains("gitlab:ci_job:1"));
    // And when its turn has come, nothing counts any more.
    let (_stop, _tasks) = running(&stage);
    let failure = following.outcome().await.failure.unwrap();
    assert_eq!(failure.code, "config_changed");
    assert!(failure.message.contains("names neither the project"), "{failure:?}");
    assert_eq!(stage.cluster.world.lock().calls.len(), 0);
    // A mistake that was mended is held against no job.
    reconfigure(&stage, entry(AccessAs::CiJob)).await;
    assert_eq!(code(done(&stage, 1, "two").await), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_was_to_be_made_as_the_agent_is_asked_for_again_once_jobs_act_as_themselves() {
    let stage = Stage::new().await;
    let following = stage.environments.complete(request(1, "two")).await.unwrap();
    reconfigure(&stage, entry(AccessAs::CiJob)).await;
    let (_stop, _tasks) = running(&stage);
    assert_eq!(code(following.outcome().await), "config_changed");
    assert_eq!(code(done(&stage, 1, "two").await), "");
    let calls = stage.cluster.world.lock().calls.clone();
    let users: Vec<_> = calls.iter().map(|call| call.scope().identity.as_ref().map(|one| one.user.clone())).collect();
    assert_eq!(users, [Some("gitlab:ci_job:1".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_acts_as_the_configuration_says_it_now_and_as_before_if_it_says_nothing() {
    for (before, now, user) in [
        (AccessAs::CiJob, entry(AccessAs::CiJob), Some("gitlab:ci_job:1")),
        (AccessAs::CiJob, entry(AccessAs::Agent), None),
        (AccessAs::CiJob, elsewhere(), Some("gitlab:ci_job:1")),
        // What the agent made it removes itself: there is no job to act for.
        (AccessAs::Agent, entry(AccessAs::CiJob), None),
    ] {
        let stage = Stage::with(entry(before)).await;
        let (_stop, _tasks) = running(&stage);
        let id = id_of(&stage, 1).await;
        reconfigure(&stage, now.clone()).await;
        stage.environments.remove(id, operator()).await.unwrap().outcome().await;
        let Some(Call::Remove(removed)) = stage.cluster.world.lock().calls.last().cloned() else {
            panic!("not removed")
        };
        assert_eq!(removed.scope.identity.as_ref().map(|one| one.user.as_str()), user, "{now:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_environment_is_told_with_its_objects_and_is_another_one_when_it_comes_back() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let id = id_of(&stage, 1).await;
    let before = stage.store.environment(EnvironmentId::new(id)).await.unwrap().unwrap().inventory;
    stage.cluster.world.lock().is_absent = true;
    let waiting = stage.environments.complete(request(2, "three")).await.unwrap();
    let forgotten = stage.environments.forget(id, operator()).await.unwrap();
    let names: Vec<&str> = forgotten.objects.iter().map(|object| object.name.as_str()).collect();
    assert!(names.contains(&"a") && forgotten.objects.len() >= 2, "{names:?}");
    assert_eq!(code(waiting.outcome().await), "no_such_environment");
    assert_eq!(stage.environments.get(id).await.unwrap_err().code, RefusalCode::NoSuchEnvironment);
    assert_eq!(stage.environments.forget(id, operator()).await.unwrap_err().code, RefusalCode::NoSuchEnvironment);
    assert_eq!(stage.environments.unmet(&request(1, "two")), Unmet::Unmet);
    {
        let mut world = stage.cluster.world.lock();
        (world.is_absent, world.objects) = (false, Default::default());
    }
    let anew = id_of(&stage, 1).await;
    assert_ne!(stage.store.environment(EnvironmentId::new(anew)).await.unwrap().unwrap().inventory, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_word_of_an_operator_is_rendered_with_the_numbers_that_the_gateway_knows() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = running(&stage);
    let text = "objects:\n  - apiVersion: v1\n    kind: Namespace\n    metadata: {name: \"e-{{ .environment.id }}-{{ .agent.id }}\"}\n";
    let agent: ClusterName = "prod".parse().unwrap();
    let following = stage.environments.ensure(&agent, brought(text), info("review/1"), operator()).await.unwrap();
    let made = following.outcome().await.environment.unwrap();
    let known = stage.environments.agent(&agent).unwrap().id;
    assert_eq!(made.objects[0].name, format!("e-{}-{known}", made.id));
    assert!(made.id != 0 && known != 999);
}

#[tokio::test]
async fn objects_that_no_agent_takes_in_one_call_are_refused_before_anything_is_written_down() {
    let stage = Stage::new().await;
    let accounts: Vec<String> = (0..99).map(|number| format!("a{number}")).collect();
    let accounts: Vec<&str> = accounts.iter().map(String::as_str).collect();
    let mut info = info("review/1");
    info.project.path = "\"".repeat(1024);
    info.environment.name = "\"".repeat(255);
    info.environment.url = Some(format!("https://a.example/{}", "x".repeat(2000)));
    info.project.url = format!("https://a.example/{}", "x".repeat(2000));
    let text = template(&accounts, "on_stop");
    let source = brought(&text.replace("{name: a", "{annotations: {u: '{{ .environment.url }}'}, name: a"));
    let refused = stage.environments.ensure(&"prod".parse().unwrap(), source, info, operator()).await.unwrap_err();
    assert_eq!((refused.code, refused.problems[0].code), (RefusalCode::ObjectsRefused, "too_large"));
    assert!(refused.problems[0].message.contains(&OBJECTS_BYTES_MAX.to_string()), "{refused:?}");
    assert_eq!(stage.store.environments_due().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn slug_of_an_environment_of_which_nothing_is_left_is_free_for_another_name() {
    let stage = Stage::with(AccessEntry { environments: Vec::new(), ..entry(AccessAs::Agent) }).await;
    let (_stop, _tasks) = running(&stage);
    let id = id_of(&stage, 1).await;
    let before = stage.store.environment(EnvironmentId::new(id)).await.unwrap().unwrap();
    let mut looks_alike = request(2, "one");
    looks_alike.job.environment = Some(environment_slug("review/1"));
    let refused = stage.environments.complete(looks_alike.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.problems[0].place.as_str()), (RefusalCode::FactsInvalid, "environment.name"));
    stage.environments.remove(id, operator()).await.unwrap().outcome().await;
    let made = stage.environments.complete(looks_alike).await.unwrap().outcome().await.environment.unwrap();
    assert_eq!((made.slug.as_str(), made.objects.len()), (before.slug.as_str(), 1));
    assert_ne!(made.id, id);
    let after = stage.store.environment(EnvironmentId::new(made.id)).await.unwrap().unwrap();
    assert_ne!(after.inventory, before.inventory);
    assert_eq!(stage.environments.complete(request(3, "two")).await.unwrap_err().code, RefusalCode::FactsInvalid);
}

#[tokio::test]
async fn change_has_its_place_in_the_audit_log_before_it_is_made() {
    let stage = Stage::new().await;
    let id = stage.environments.complete(request(1, "two")).await.unwrap().environment().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = gateway_config::AuditLog {
        path: Some(path.clone()),
        rotate_bytes: 1 << 30,
        keep: 1,
        keep_days: 0,
        keep_access_days: 0,
    };
    let token_ids: gateway_net::audit::TokenIds = Box::new(|_| Box::pin(async { None }));
    let (audit, writer) = Audit::open(&log, || 0, token_ids, Default::default()).unwrap();
    let on_record = async || OnRecord::new(operator(), audit.slot().await.unwrap());
    let (stop, remove, forget) = (on_record().await, on_record().await, on_record().await);
    let sweep = OnRecord::new(By::Hook, audit.slot().await.unwrap());
    // Others fill the queue meanwhile.
    for _ in 0..20_000 {
        audit.record(AuditRecord::new(AuditEvent::GatewayStopped));
    }
    stage.environments.set_state(id, DesiredEnvironment::Stopping, stop).await.unwrap();
    stage.environments.remove(id, remove).await.unwrap();
    stage.environments.forget(id, forget).await.unwrap();
    stage.environments.sweep(42, sweep).await.unwrap();
    let stopped = CancellationToken::new();
    stopped.cancel();
    writer.run(stopped).await;
    let written = std::fs::read_to_string(path).unwrap();
    for event in ["environment_changed", "environment_forgotten", "environments_swept", r#""how":"removed""#] {
        assert!(written.contains(event), "{event}");
    }
}
