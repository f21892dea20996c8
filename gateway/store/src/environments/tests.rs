use super::super::each::{each, warm};
use super::super::{ClusterId, Store};
use super::*;

mod ends;

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

async fn cluster(store: &Store, name: &str) -> ClusterId {
    store.ensure_cluster(&name.parse().unwrap(), at(1)).await.unwrap().id
}

async fn environment(store: &Store, slug: &str, now: i64) -> StoredEnvironment {
    let inventory = format!("environment-{slug}-7-1-{now}");
    let new = NewEnvironment {
        cluster: cluster(store, "prod").await,
        project_id: 7,
        project_path: "group/app",
        name: slug,
        slug,
        inventory: &inventory,
    };
    store.ensure_environment(&new, at(now)).await.unwrap()
}

fn wanted(environment: EnvironmentId, job: Option<u64>) -> NewPreparation<'static> {
    NewPreparation {
        environment,
        job,
        project_path: "group/app2",
        tier: Some("production"),
        url: None,
        template: "default",
        kept: KeptOnStop::No,
        identity: Some("{\"user\":\"\\u0000\"}"),
        objects: "[{\"a\":\"\\u0000\"}]",
        tracked: "[1]",
        give_up_at: at(600),
        again_after: &["agent_absent"],
        is_operators: false,
    }
}

async fn begin(store: &Store, new: &NewPreparation<'_>, now: i64) -> JobStart {
    store.begin_preparation(new, at(now)).await.unwrap().expect("the project is there")
}

async fn read(store: &Store, id: EnvironmentId) -> StoredEnvironment {
    store.environment(id).await.unwrap().unwrap()
}

async fn prepared(store: &Store, environment: &StoredEnvironment, job: u64, kept: KeptOnStop) -> Preparation {
    let new = NewPreparation { kept, ..wanted(environment.id, Some(job)) };
    let begun = begin(store, &new, 20).await.preparation;
    assert!(store.begin_apply(&begun, "[1]").await.unwrap());
    assert!(store.end_apply(&begun, "[1,2]", PreparationEnd::Completed, at(30)).await.unwrap());
    begun
}

#[tokio::test]
async fn environment_is_made_once_and_keeps_its_mark_and_the_other_names_are_other_environments() {
    each(async |store| {
        let first = environment(store, "review-a", 10).await;
        assert_eq!(
            (first.state, first.tracked.as_str(), first.is_removal_due),
            (EnvironmentState::Stopped, "[]", false)
        );
        assert_eq!(environment(store, "review-a", 11).await, first);
        let other = environment(store, "review-b", 12).await;
        assert_ne!((other.id, other.inventory.clone()), (first.id, first.inventory.clone()));
        let cluster = first.cluster;
        assert_eq!(store.environment_of(cluster, 7, "review-a").await.unwrap(), Some(first.clone()));
        assert_eq!(store.environment_of(cluster, 8, "review-a").await.unwrap(), None);
        let listed = |filter| async move {
            let found = store.environments(filter, None, 9).await.unwrap();
            found.into_iter().map(|one| one.slug).collect::<Vec<_>>()
        };
        assert_eq!(listed(EnvironmentFilter::default()).await, ["review-a", "review-b"]);
        assert_eq!(listed(EnvironmentFilter { project_id: Some(8), ..Default::default() }).await.len(), 0);
        let stopped =
            EnvironmentFilter { state: Some(EnvironmentState::Stopped), cluster: Some(cluster), ..Default::default() };
        assert_eq!(listed(stopped).await.len(), 2);
        let behind = store.environments(EnvironmentFilter::default(), Some(first.id), 9).await.unwrap();
        assert_eq!(behind.iter().map(|one| one.id).collect::<Vec<_>>(), [other.id]);
        assert_eq!(EnvironmentId::new(first.id.get()), first.id);
    })
    .await;
}

#[tokio::test]
async fn preparation_is_written_down_before_it_begins_and_its_end_is_the_environments() {
    each(async |store| {
        let known = environment(store, "review-a", 10).await;
        let begun = begin(store, &wanted(known.id, Some(5)), 20).await;
        assert!(begun.is_new);
        let now = read(store, known.id).await;
        assert_eq!(
            (now.state, now.since, now.project_path.as_str()),
            (EnvironmentState::Available, at(20), "group/app2")
        );
        assert_eq!((now.tracked.as_str(), now.template), ("[]", None), "nothing was asked of the cluster");
        assert_eq!(store.environments_due().await.unwrap(), [known.id]);
        assert_eq!(store.next_preparation(known.id).await.unwrap().as_ref(), Some(&begun.preparation));
        assert_eq!(begun.preparation.objects, "[{\"a\":\"\\u0000\"}]");
        assert!(store.begin_apply(&begun.preparation, "[1]").await.unwrap());
        assert_eq!(read(store, known.id).await.tracked, "[1]", "before the cluster is asked");
        let tries = Tries {
            failures: 2,
            failure: Some(("agent_absent".to_owned(), "not\0there".to_owned())),
            retry_at: Some(at(25)),
        };
        store.note_tries(known.id, &tries).await.unwrap();
        let noted = read(store, known.id).await.tries;
        assert_eq!(noted.failure.unwrap().1, "not\u{fffd}there");
        assert_eq!((noted.failures, noted.retry_at), (2, Some(at(25))));
        assert!(store.end_apply(&begun.preparation, "[1,2]", PreparationEnd::Completed, at(30)).await.unwrap());
        assert!(!store.end_apply(&begun.preparation, "[1,2]", PreparationEnd::Completed, at(31)).await.unwrap());
        let now = read(store, known.id).await;
        assert_eq!(
            (now.tracked.as_str(), now.template.as_deref(), now.tries),
            ("[1,2]", Some("default"), Tries::default())
        );
        assert_eq!(now.identity.as_deref(), Some("{\"user\":\"\\u0000\"}"));
        let ended = store.preparation(begun.preparation.id).await.unwrap().unwrap();
        assert_eq!((ended.status, ended.finished_at), (PreparationStatus::Completed, Some(at(30))));
        assert_eq!((ended.objects.as_str(), ended.tracked.as_str()), ("[]", "[1,2]"));
        assert_eq!(store.prepared_jobs(9).await.unwrap(), [(known.cluster, 5)]);
        assert_eq!(store.environments_due().await.unwrap(), []);
        assert_eq!(store.last_preparation(known.id).await.unwrap(), Some(ended));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_ask_for_one_job_at_once_one_begins_it() {
    each(async |store| {
        warm(store).await;
        let known = environment(store, "review-a", 10).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (store, id) = (store.clone(), known.id);
            tasks.spawn(async move { begin(&store, &wanted(id, Some(5)), 20).await });
        }
        let mut begun = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            begun.push(ended.unwrap());
        }
        assert_eq!(begun.iter().filter(|one| one.is_new).count(), 1);
        assert!(begun.iter().all(|one| one.preparation.id == begun[0].preparation.id));
        // What operators ask for is asked for each time.
        let first = begin(store, &wanted(known.id, None), 20).await;
        let second = begin(store, &wanted(known.id, None), 20).await;
        assert!(first.is_new && second.is_new && first.preparation.id < second.preparation.id);
    })
    .await;
}

#[tokio::test]
async fn job_that_failed_for_a_moment_begins_anew_and_one_that_failed_for_good_does_not() {
    each(async |store| {
        let known = environment(store, "review-a", 10).await;
        for (code, is_anew) in [("agent_absent", true), ("objects_failed", false)] {
            let begun = begin(store, &wanted(known.id, Some(5)), 20).await.preparation;
            let end = PreparationEnd::Failed { code, message: "no", errors: "[3]" };
            assert!(store.give_up(&begun, end, at(21)).await.unwrap());
            let ended = store.preparation(begun.id).await.unwrap().unwrap();
            assert_eq!(ended.failure, Some((code.to_owned(), "no".to_owned())));
            assert_eq!(ended.errors.as_deref(), Some("[3]"));
            let again = begin(store, &wanted(known.id, Some(5)), 22).await;
            assert_eq!(again.is_new, is_anew, "{code}");
            if is_anew {
                assert_eq!(store.preparation(begun.id).await.unwrap(), None);
                let end = PreparationEnd::Failed { code, message: "no", errors: "[3]" };
                store.give_up(&again.preparation, end, at(22)).await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn stop_has_what_is_recorded_removed_unless_it_is_kept_and_a_request_to_stop_has_not() {
    each(async |store| {
        for (slug, kept) in [("gone", KeptOnStop::No), ("kept", KeptOnStop::Yes)] {
            let known = environment(store, slug, 10).await;
            prepared(store, &known, 5, kept).await;
            let asked = store.set_environment_state(known.id, EnvironmentState::Stopping, None, at(40)).await;
            let asked = asked.unwrap().unwrap().environment;
            assert_eq!((asked.state, asked.is_removal_due), (EnvironmentState::Stopping, false));
            let waiting = begin(store, &wanted(known.id, Some(6)), 41).await.preparation;
            let stopped =
                store.set_environment_state(known.id, EnvironmentState::Stopped, Some("project_deleted"), at(42));
            let stopped = stopped.await.unwrap().unwrap().environment;
            assert_eq!((stopped.state, stopped.since), (EnvironmentState::Stopped, at(42)));
            assert_eq!(
                (stopped.is_removal_due, stopped.reason.as_deref()),
                (kept == KeptOnStop::No, Some("project_deleted"))
            );
            let ended = store.preparation(waiting.id).await.unwrap().unwrap();
            assert_eq!(ended.failure.unwrap().0, "environment_stopped");
            assert!(!store.begin_apply(&waiting, "[9]").await.unwrap());
            assert_eq!(store.prepared_jobs(9).await.unwrap(), [], "what was prepared is so no more");
            let stopped = store.stopped_jobs(at(42)).await.unwrap();
            let stopped: std::collections::BTreeSet<u64> = stopped.into_iter().map(|(_, job)| job).collect();
            assert_eq!(stopped.into_iter().collect::<Vec<_>>(), [5, 6]);
            assert_eq!(store.stopped_jobs(at(43)).await.unwrap(), []);
            let again = begin(store, &wanted(known.id, Some(5)), 42).await;
            assert_eq!((again.is_new, again.preparation.failure.unwrap().0.as_str()), (false, "environment_stopped"));
            assert_eq!(read(store, known.id).await.tracked, "[1,2]");
            let revived = store.set_environment_state(known.id, EnvironmentState::Available, None, at(43)).await;
            assert_eq!(revived.unwrap().unwrap().environment.state, EnvironmentState::Stopped);
            // Whoever says so loses what is kept too.
            let removed = store.remove_environment(known.id, None, at(44)).await.unwrap().unwrap();
            assert!(removed.is_removal_due);
            store.note_left(known.id, "[2]", Some("[\"b\"]")).await.unwrap();
            assert_eq!(read(store, known.id).await.blockers.as_deref(), Some("[\"b\"]"));
            store.end_removal(known.id, None).await.unwrap();
            let gone = read(store, known.id).await;
            assert_eq!((gone.tracked.as_str(), gone.is_removal_due, gone.blockers), ("[]", false, None));
            let nothing = store.remove_environment(known.id, None, at(45)).await.unwrap().unwrap();
            assert!(!nothing.is_removal_due, "nothing is recorded");
        }
        let none = store.set_environment_state(EnvironmentId::new(999), EnvironmentState::Stopped, None, at(1)).await;
        assert_eq!(none.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn environment_that_comes_back_is_removed_first_and_a_stop_during_an_apply_is_not_lost() {
    each(async |store| {
        let known = environment(store, "review-a", 10).await;
        prepared(store, &known, 5, KeptOnStop::No).await;
        store.set_environment_state(known.id, EnvironmentState::Stopped, None, at(40)).await.unwrap();
        let again = begin(store, &wanted(known.id, Some(6)), 41).await.preparation;
        let now = read(store, known.id).await;
        assert_eq!((now.state, now.is_removal_due), (EnvironmentState::Available, true));
        assert!(!store.begin_apply(&again, "[1]").await.unwrap(), "what was there goes first");
        store.end_removal(known.id, None).await.unwrap();
        assert!(store.begin_apply(&again, "[1]").await.unwrap());
        // Stopped while the cluster is at it.
        store.set_environment_state(known.id, EnvironmentState::Stopped, None, at(50)).await.unwrap();
        assert!(!store.end_apply(&again, "[1,2]", PreparationEnd::Completed, at(51)).await.unwrap());
        let now = read(store, known.id).await;
        assert_eq!((now.state, now.is_removal_due, now.tracked.as_str()), (EnvironmentState::Stopped, true, "[1,2]"));
        assert_eq!(store.environments_due().await.unwrap(), [known.id]);
    })
    .await;
}

#[tokio::test]
async fn nothing_begins_for_a_project_that_is_no_more_until_an_operator_has_something_prepared_for_it() {
    each(async |store| {
        let known = environment(store, "review-a", 10).await;
        let other = environment(store, "review-b", 10).await;
        prepared(store, &known, 5, KeptOnStop::No).await;
        begin(store, &wanted(other.id, Some(6)), 20).await;
        store.put_project_gone(8, at(30)).await.unwrap();
        assert_eq!(store.environments_to_sweep(9).await.unwrap(), [], "another project is no more");
        for _ in 0..2 {
            store.put_project_gone(7, at(31)).await.unwrap();
        }
        assert_eq!(store.environments_to_sweep(9).await.unwrap(), [known.id, other.id]);
        for job in [Some(5), Some(7), None] {
            assert_eq!(store.begin_preparation(&wanted(known.id, job), at(32)).await.unwrap(), None, "{job:?}");
        }
        for id in [known.id, other.id] {
            store.set_environment_state(id, EnvironmentState::Stopped, Some("project_deleted"), at(33)).await.unwrap();
        }
        assert_eq!(store.environments_to_sweep(9).await.unwrap(), []);
        let told = NewPreparation { is_operators: true, ..wanted(known.id, None) };
        assert!(begin(store, &told, 34).await.is_new);
        assert!(begin(store, &wanted(known.id, Some(8)), 35).await.is_new, "it is there again");
        assert_eq!(store.environments_to_sweep(9).await.unwrap(), []);
        store.put_project_gone(7, at(36)).await.unwrap();
        store.forget_environments(at(37)).await.unwrap();
        assert!(begin(store, &wanted(known.id, Some(9)), 38).await.is_new, "no token of a job is good for that long");
    })
    .await;
}

#[tokio::test]
async fn environment_is_forgotten_with_its_jobs_and_without_a_word_only_if_nothing_of_it_may_be_there() {
    each(async |store| {
        let known = environment(store, "review-a", 10).await;
        let begun = prepared(store, &known, 5, KeptOnStop::No).await;
        assert!(!store.forget_free_environment(known.id).await.unwrap(), "it is available");
        store.set_environment_state(known.id, EnvironmentState::Stopped, None, at(40)).await.unwrap();
        assert!(!store.forget_free_environment(known.id).await.unwrap(), "something is recorded");
        store.end_removal(known.id, None).await.unwrap();
        let waiting = begin(store, &wanted(known.id, Some(6)), 41).await.preparation;
        assert!(!store.forget_free_environment(known.id).await.unwrap(), "something waits");
        store.set_environment_state(known.id, EnvironmentState::Stopped, None, at(42)).await.unwrap();
        assert!(store.forget_free_environment(known.id).await.unwrap());
        for gone in [begun, waiting] {
            assert_eq!(store.preparation(gone.id).await.unwrap(), None);
        }
        let anew = environment(store, "review-a", 43).await;
        assert_ne!((anew.id, &anew.inventory), (known.id, &known.inventory));
        prepared(store, &anew, 5, KeptOnStop::Yes).await;
        let forgotten = store.forget_environment(anew.id).await.unwrap().unwrap();
        assert_eq!(forgotten.environment.tracked, "[1,2]");
        assert_eq!(store.environment(anew.id).await.unwrap(), None);
        assert_eq!(store.forget_environment(anew.id).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn what_ended_long_ago_is_forgotten_and_what_is_recorded_never() {
    each(async |store| {
        let (gone, there) = (environment(store, "gone", 10).await, environment(store, "there", 10).await);
        for known in [&gone, &there] {
            prepared(store, known, 5, KeptOnStop::Yes).await;
            store.set_environment_state(known.id, EnvironmentState::Stopped, None, at(40)).await.unwrap();
        }
        store.end_removal(gone.id, None).await.unwrap();
        assert_eq!(store.forget_environments(at(30)).await.unwrap(), 0);
        assert_eq!(store.forget_environments(at(41)).await.unwrap(), 3, "two jobs and an environment");
        assert_eq!(store.environment(gone.id).await.unwrap(), None);
        assert_eq!(read(store, there.id).await.tracked, "[1,2]");
    })
    .await;
}

#[tokio::test]
async fn template_is_kept_as_it_was_written_until_it_is_forgotten() {
    each(async |store| {
        let (one, other) = (cluster(store, "one").await, cluster(store, "other").await);
        for text in ["objects: []\n", "# é\nobjects:\t[]\n"] {
            store.put_environment_template(one, "default", text).await.unwrap();
        }
        store.put_environment_template(one, "b", "x").await.unwrap();
        let kept = store.environment_templates(one).await.unwrap();
        assert_eq!(kept, [("b".to_owned(), "x".to_owned()), ("default".to_owned(), "# é\nobjects:\t[]\n".to_owned())]);
        assert_eq!(store.environment_templates(other).await.unwrap(), []);
        assert!(store.forget_environment_template(one, "b").await.unwrap());
        assert!(!store.forget_environment_template(one, "b").await.unwrap());
    })
    .await;
}
