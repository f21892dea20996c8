//! What an end leaves: nothing of the life before, nothing that is half forgotten, and no row that holds up others.

use super::*;

async fn set(store: &Store, id: EnvironmentId, state: EnvironmentState, now: i64) -> StateSet {
    store.set_environment_state(id, state, None, at(now)).await.unwrap().unwrap()
}

#[tokio::test]
async fn next_life_of_an_environment_that_was_removed_ends_as_its_own_template_says() {
    each(async |store| {
        for (slug, before, after) in
            [("kept-before", KeptOnStop::Yes, KeptOnStop::No), ("kept-after", KeptOnStop::No, KeptOnStop::Yes)]
        {
            let known = environment(store, slug, 10).await;
            prepared(store, &known, 5, before).await;
            store.remove_environment(known.id, None, at(40)).await.unwrap();
            store.end_removal(known.id, None).await.unwrap();
            let gone = read(store, known.id).await;
            assert_eq!((gone.template, gone.identity, gone.kept), (None, None, KeptOnStop::No), "{slug}");
            // Its next job is stopped before it is through.
            let next = NewPreparation { kept: after, identity: Some("{\"b\":1}"), ..wanted(known.id, Some(6)) };
            let next = begin(store, &next, 50).await.preparation;
            assert!(store.begin_apply(&next, "[1]").await.unwrap());
            let stopped = set(store, known.id, EnvironmentState::Stopped, 51).await.environment;
            assert_eq!((stopped.kept, stopped.is_removal_due), (after, after == KeptOnStop::No), "{slug}");
            assert_eq!(stopped.identity.as_deref(), Some("{\"b\":1}"), "{slug}");
        }
    })
    .await;
}

#[tokio::test]
async fn state_that_an_environment_has_already_or_cannot_have_any_more_is_no_change() {
    use EnvironmentState::{Available, Stopped, Stopping};
    each(async |store| {
        let known = environment(store, "review-a", 10).await;
        prepared(store, &known, 5, KeptOnStop::No).await;
        let wishes = [
            (Available, Available, false),
            (Stopping, Stopping, true),
            (Stopping, Stopping, false),
            (Available, Available, true),
            (Stopped, Stopped, true),
            (Stopped, Stopped, false),
            (Available, Stopped, false),
            (Stopping, Stopped, false),
        ];
        for (now, (wish, state, is_changed)) in (40..).zip(wishes) {
            let set = set(store, known.id, wish, now).await;
            assert_eq!((set.environment.state, set.is_changed), (state, is_changed), "{wish:?} at {now}");
        }
        assert_eq!(read(store, known.id).await.since, at(44));
    })
    .await;
}

#[tokio::test]
async fn forgotten_environment_is_told_with_the_jobs_that_were_prepared_in_it() {
    each(async |store| {
        let known = environment(store, "review-a", 10).await;
        let begun = prepared(store, &known, 5, KeptOnStop::No).await;
        begin(store, &wanted(known.id, Some(6)), 31).await;
        begin(store, &wanted(known.id, None), 32).await;
        let other = environment(store, "review-b", 10).await;
        prepared(store, &other, 7, KeptOnStop::No).await;
        let forgotten = store.forget_environment(known.id).await.unwrap().unwrap();
        assert_eq!(
            (forgotten.environment.state, forgotten.environment.is_removal_due),
            (EnvironmentState::Available, false)
        );
        assert_eq!(forgotten.prepared, [(known.cluster, 5)]);
        assert_eq!(store.preparation(begun.id).await.unwrap(), None);
        assert_eq!(store.prepared_jobs(9).await.unwrap(), [(other.cluster, 7)]);
    })
    .await;
}

#[tokio::test]
async fn environment_that_cannot_be_read_is_stopped_with_its_project_and_hides_no_other() {
    each(async |store| {
        let (bad, good) = (environment(store, "bad", 10).await, environment(store, "good", 10).await);
        for known in [&bad, &good] {
            prepared(store, known, 5, KeptOnStop::No).await;
        }
        store.spoil_environment(bad.id).await;
        assert!(store.environment(bad.id).await.is_err());
        store.put_project_gone(7, at(31)).await.unwrap();
        assert_eq!(store.environments_of_project(7).await.unwrap(), [bad.id, good.id]);
        assert_eq!(store.environments_of_project(8).await.unwrap(), []);
        for id in [bad.id, good.id] {
            store.stop_environment(id, Some("project_deleted"), at(40)).await.unwrap();
        }
        assert_eq!(store.environments_to_sweep(9).await.unwrap(), []);
        // By the statement that stops it, it can be read again.
        for id in [bad.id, good.id] {
            let stopped = read(store, id).await;
            assert_eq!((stopped.state, stopped.is_removal_due), (EnvironmentState::Stopped, true));
            assert_eq!(stopped.reason.as_deref(), Some("project_deleted"));
        }
        store.stop_environment(EnvironmentId::new(999), None, at(41)).await.unwrap();
    })
    .await;
}
