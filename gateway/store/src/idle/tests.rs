use super::super::each::each;
use super::super::*;
use super::*;
use gateway_types::{ActivityKind, DesiredState};

const NOW: UnixSeconds = UnixSeconds::new(1_000);

async fn made(store: &Store, name: &str) -> ManagedWorkspace {
    let key = format!("cache of {name}");
    let new = NewCi {
        name: &name.parse().unwrap(),
        owner: &"ann".parse().unwrap(),
        provider: &"lab".parse().unwrap(),
        cache_key: &key,
        project: None,
        tags: &[],
        devfile: "",
        variables: &[],
        ports: &[],
        quotas: Quotas::default(),
    };
    store.create_ci(&new, NOW).await.unwrap()
}

fn used(name: &str, at: i64) -> WorkspaceActivity {
    let activity = Activity { at: UnixSeconds::new(at), kind: ActivityKind::Terminal, user: "ann".parse().ok() };
    WorkspaceActivity { workspace: name.parse().unwrap(), activity }
}

async fn idle(store: &Store, id: WorkspaceId) -> IdleRecord {
    store.managed_by_id(id).await.unwrap().unwrap().idle
}

#[tokio::test]
async fn newest_activity_of_all_replicas_is_kept() {
    each(async |store| {
        let id = made(store, "app").await.workspace.id;
        store.create_external(&"outside".parse().unwrap(), &"ann".parse().unwrap(), None, &[], NOW).await.unwrap();
        assert_eq!(idle(store, id).await, IdleRecord::default());
        store.note_activity(vec![used("outside", 1), used("app", 1_100), used("nothing", 1)]).await.unwrap();
        assert_eq!(idle(store, id).await.last, Some(used("app", 1_100).activity));
        let revision = idle(store, id).await.revision;
        store.note_activity(vec![used("app", 1_099)]).await.unwrap();
        assert_eq!(idle(store, id).await.last, Some(used("app", 1_100).activity));
        assert_eq!(idle(store, id).await.revision, revision, "nothing was written");
        let busy = Activity { at: UnixSeconds::new(1_200), kind: ActivityKind::Busy, user: None };
        let seen = WorkspaceActivity { workspace: "app".parse().unwrap(), activity: busy.clone() };
        store.note_activity(vec![seen]).await.unwrap();
        assert_eq!(idle(store, id).await.last, Some(busy));
    })
    .await;
}

#[tokio::test]
async fn limits_and_the_longest_keep_are_stored() {
    each(async |store| {
        let id = made(store, "app").await.workspace.id;
        for wanted in [IdleLimit::After(Duration::from_mins(30)), IdleLimit::Off, IdleLimit::Inherited] {
            store.want_idle_limit(id, wanted).await.unwrap();
            assert_eq!(idle(store, id).await.wanted, wanted);
        }
        store.put_idle_limit(id, Some(Duration::from_mins(5))).await.unwrap();
        let limited = store.limited_by_use().await.unwrap();
        assert_eq!(limited.iter().map(ToString::to_string).collect::<Vec<_>>(), ["app"]);
        store.keep_awake(id, UnixSeconds::new(5_000)).await.unwrap();
        store.keep_awake(id, UnixSeconds::new(4_000)).await.unwrap();
        let found = idle(store, id).await;
        assert_eq!((found.limit, found.kept_until), (Some(Duration::from_mins(5)), Some(UnixSeconds::new(5_000))));
        let listed = store.managed_of_owner(&"ann".parse().unwrap(), ListPage { after: None, limit: 9 }).await.unwrap();
        assert_eq!(listed[0].idle, found);
    })
    .await;
}

#[tokio::test]
async fn stop_is_carried_out_on_what_it_was_decided_on_and_on_nothing_else() {
    each(async |store| {
        let id = made(store, "app").await.workspace.id;
        store.note_activity(vec![used("app", 1_100)]).await.unwrap();
        let found = store.managed_by_id(id).await.unwrap().unwrap();
        let next = found.lifecycle.request(DesiredState::Stopped, UnixSeconds::new(3_000)).unwrap();
        // A key is pressed between the decision and the stop.
        store.note_activity(vec![used("app", 2_999)]).await.unwrap();
        assert!(!store.stop_idle(id, &found.idle, found.lifecycle.revision, &next).await.unwrap());
        let mut present = store.managed_by_id(id).await.unwrap().unwrap();
        assert_eq!(present.lifecycle, found.lifecycle);
        // Its owner asks for something else.
        assert!(store.swap_lifecycle(id, found.lifecycle.revision, &found.lifecycle).await.unwrap());
        assert!(!store.stop_idle(id, &present.idle, found.lifecycle.revision, &next).await.unwrap());
        assert_eq!(idle(store, id).await.stopped_generation, None, "all or nothing");
        present = store.managed_by_id(id).await.unwrap().unwrap();
        assert!(store.stop_idle(id, &present.idle, present.lifecycle.revision, &next).await.unwrap());
        let stopped = store.managed_by_id(id).await.unwrap().unwrap();
        assert_eq!(stopped.lifecycle.desired, DesiredState::Stopped);
        assert!(stopped.idle.stop_reason(&stopped.lifecycle).unwrap().contains("terminal input by ann"));
    })
    .await;
}
