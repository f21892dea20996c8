use super::super::changes::Feed;
use super::super::each::{each, warm};
use super::super::*;
use super::*;
use gateway_types::ActualState;
use gateway_types::token::TokenKind;

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

async fn make_with(store: &Store, name: &str, owner: &str, quotas: Quotas) -> Result<ManagedWorkspace, CreateError> {
    let (name, owner) = (name.parse().unwrap(), owner.parse().unwrap());
    let project = CiProject { url: "https://git.example/a.git".to_owned(), reference: Some("main".to_owned()) };
    let value = SecretText::new("hunter2".to_owned());
    let variables = [Variable { kind: VariableKind::Env, name: "A".to_owned(), value }];
    let new = NewCi {
        name: &name,
        owner: &owner,
        provider: &"gitlab".parse().unwrap(),
        cache_key: &format!("key-of-{name}"),
        project: Some(&project),
        tags: &["large box".to_owned(), "é".to_owned()],
        devfile: "schemaVersion: 2.2.0\n",
        variables: &variables,
        ports: &[],
        quotas,
    };
    store.create_ci(&new, at(10)).await
}

async fn make(store: &Store, name: &str) -> ManagedWorkspace {
    make_with(store, name, "ann", Quotas::default()).await.unwrap()
}

async fn read(store: &Store, id: WorkspaceId) -> (Lifecycle, CiState) {
    let managed = store.managed_by_id(id).await.unwrap().unwrap();
    let Runs::Ci(state) = managed.runs else { panic!("{managed:?}") };
    (managed.lifecycle, *state)
}

/// Begins a run with a token of its own, as things are.
async fn begin(store: &Store, id: WorkspaceId, key: &str, now: i64) -> (Option<u64>, Token) {
    let token = Token::generate(TokenKind::Agent).unwrap();
    let (life, _) = read(store, id).await;
    let next = life.observe(ActualState::Starting, None, at(now));
    let new = NewCiRun { key, token: Some(&token) };
    (store.begin_run(id, life.revision, &next, &new, at(now)).await.unwrap(), token)
}

#[tokio::test]
async fn workspace_in_a_ci_system_has_nothing_of_kubernetes_and_reads_back_the_same() {
    each(async |store| {
        let made = make(store, "app").await;
        let id = made.workspace.id;
        assert_eq!(made.workspace.executor, Executor::Ci);
        assert_eq!((made.kubernetes(), made.cluster(), made.termination()), (None, None, None));
        assert_eq!(store.managed_by_id(id).await.unwrap().as_ref(), Some(&made));
        assert_eq!(store.managed(&made.workspace.name).await.unwrap().as_ref(), Some(&made));
        let part = ListPage { after: None, limit: 9 };
        assert_eq!(store.managed_of_owner(&made.workspace.owner, part).await.unwrap(), std::slice::from_ref(&made));
        assert_eq!(store.frozen(id).await.unwrap(), None);
        assert_eq!(store.devfile_of(id).await.unwrap().as_deref(), Some("schemaVersion: 2.2.0\n"));
        let variables = store.variables(id).await.unwrap();
        assert_eq!((variables.len(), variables[0].value.reveal()), (1, "hunter2"), "and no token");
        assert_eq!(store.ci_revisions(None, 9).await.unwrap(), [(id, 0)]);
        assert_eq!(store.managed_ids(None, None, 9).await.unwrap(), [id]);
    })
    .await;
}

#[tokio::test]
async fn names_and_quotas_are_as_in_clusters() {
    each(async |store| {
        let one = Quotas::of_workspaces(Some(2), Some(1));
        let made = make_with(store, "one", "ann", one).await.unwrap();
        assert!(matches!(make_with(store, "one", "bob", one).await, Err(CreateError::NameTaken)));
        assert!(matches!(make_with(store, "two", "ann", one).await, Err(CreateError::OverQuota(_))));
        make_with(store, "two", "bob", one).await.unwrap();
        assert!(matches!(make_with(store, "three", "cat", one).await, Err(CreateError::OverQuota(_))));
        // What is over makes room for its own name, with all its runs and their tokens.
        assert_eq!(begin(store, made.workspace.id, "r1", 20).await.0, Some(1));
        let (life, mut state) = read(store, made.workspace.id).await;
        if let Some(run) = &mut state.run {
            run.ended_at = Some(at(21));
        }
        assert!(store.put_run(made.workspace.id, &state, at(21)).await.unwrap());
        let over = Lifecycle { desired: DesiredState::Terminated, actual: ActualState::Terminated, ..life.clone() };
        assert!(store.swap_lifecycle(made.workspace.id, life.revision, &over).await.unwrap());
        assert_eq!(store.ci_revisions(None, 9).await.unwrap().len(), 1);
        let again = make_with(store, "one", "ann", one).await.unwrap();
        assert_ne!(again.workspace.id, made.workspace.id);
        assert_eq!(store.managed_by_id(made.workspace.id).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn run_is_written_down_before_it_is_made_and_no_second_one_beside_it() {
    each(async |store| {
        let id = make(store, "app").await.workspace.id;
        let (number, token) = begin(store, id, "r1", 20).await;
        assert_eq!(number, Some(1));
        let (life, state) = read(store, id).await;
        let run = state.live().unwrap().clone();
        assert_eq!((life.actual, run.number, &*run.key, run.intent), (ActualState::Starting, 1, "r1", 1));
        assert_eq!((run.pipeline.clone(), run.intended_at), (None, at(20)));
        assert_eq!(begin(store, id, "r2", 21).await.0, None, "one lives");
        assert_eq!(store.run_token(id, 1).await.unwrap().unwrap().reveal(), token.reveal());
        let stored = store.token_by_hash(&token.hash()).await.unwrap().unwrap();
        assert_eq!((Some(stored.id), stored.revoked_at), (run.token, None));
        // It ends, and with it its token; another may begin.
        let mut ended = state.clone();
        ended.failures = 3;
        ended.retry_at = Some(at(60));
        ended.run = Some(CiRun {
            pipeline: Some("7".into()),
            child: Some("8".into()),
            web_url: Some("https://gitlab.example/7".into()),
            asked_at: Some(at(22)),
            started_at: Some(at(23)),
            up_at: Some(at(24)),
            stop_at: Some(at(25)),
            cancel_at: Some(at(26)),
            ended_at: Some(at(27)),
            failure: Some("the job\0failed".into()),
            ..run
        });
        assert!(store.put_run(id, &ended, at(27)).await.unwrap());
        let (_, mut read_back) = read(store, id).await;
        assert_eq!(read_back.run.as_ref().unwrap().failure.as_deref(), Some("the job\u{fffd}failed"));
        read_back.run.as_mut().unwrap().failure = ended.run.as_ref().unwrap().failure.clone();
        assert_eq!(read_back, ended);
        assert!(!store.put_run(id, &ended, at(28)).await.unwrap(), "what has ended stays as it is");
        assert!(store.run_token(id, 1).await.unwrap().is_none());
        assert_eq!(store.token_by_hash(&token.hash()).await.unwrap().unwrap().revoked_at, Some(at(27)));
        store.clear_failures(id).await.unwrap();
        assert_eq!(begin(store, id, "r2", 30).await.0, Some(2));
        let (_, state) = read(store, id).await;
        assert_eq!((state.failures, state.retry_at, state.run.unwrap().number), (0, None, 2));
    })
    .await;
}

/// What agents' dials are decided by is told of: whether the workspace is to run, and in which run.
#[tokio::test]
async fn change_of_what_a_workspace_is_to_be_and_of_its_run_is_told() {
    each(async |store| {
        let made = make(store, "app").await;
        let (id, of_app) = (made.workspace.id, AccessChange::Workspace(made.workspace.name));
        let mut feed = Feed::default();
        drop(store.news(&mut feed).await.unwrap());
        begin(store, id, "r1", 20).await.0.unwrap();
        assert_eq!(store.news(&mut feed).await.unwrap(), std::slice::from_ref(&of_app), "a run begins");
        let (life, mut state) = read(store, id).await;
        state.run.as_mut().unwrap().stop_at = Some(at(25));
        assert!(store.put_run(id, &state, at(25)).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), std::slice::from_ref(&of_app), "it is to stop");
        let stopped = life.request(DesiredState::Stopped, at(26)).unwrap();
        assert!(store.swap_lifecycle(id, life.revision, &stopped).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), [of_app], "the workspace is to stop");
    })
    .await;
}

#[tokio::test]
async fn run_that_was_decided_on_an_old_intent_is_not_begun() {
    each(async |store| {
        let id = make(store, "app").await.workspace.id;
        let (life, _) = read(store, id).await;
        let stopped = life.request(DesiredState::Stopped, at(15)).unwrap();
        assert!(store.swap_lifecycle(id, life.revision, &stopped).await.unwrap());
        let new = NewCiRun { key: "r1", token: None };
        assert_eq!(store.begin_run(id, life.revision, &life, &new, at(20)).await.unwrap(), None);
        assert_eq!(read(store, id).await.1.run, None);
    })
    .await;
}

#[tokio::test]
async fn pipeline_tells_its_workspace_while_its_run_is_the_current_one() {
    each(async |store| {
        let id = make(store, "app").await.workspace.id;
        let gitlab = "gitlab".parse().unwrap();
        begin(store, id, "r1", 20).await;
        let (_, mut state) = read(store, id).await;
        let run = state.run.as_mut().unwrap();
        (run.pipeline, run.child) = (Some("7".into()), Some("8".into()));
        assert!(store.put_run(id, &state, at(21)).await.unwrap());
        for pipeline in ["7", "8"] {
            let found = store.run_of_pipeline(&gitlab, pipeline).await.unwrap().unwrap();
            assert_eq!((found.workspace.as_str(), found.owner.as_str(), found.number), ("app", "ann", 1));
            assert_eq!((found.is_live, found.is_stopping, found.desired), (true, false, DesiredState::Running));
        }
        assert_eq!(store.run_of_pipeline(&gitlab, "9").await.unwrap(), None);
        assert_eq!(store.run_of_pipeline(&"other".parse().unwrap(), "7").await.unwrap(), None);
        state.run.as_mut().unwrap().stop_at = Some(at(22));
        assert!(store.put_run(id, &state, at(22)).await.unwrap());
        assert!(store.run_of_pipeline(&gitlab, "8").await.unwrap().unwrap().is_stopping);
        state.run.as_mut().unwrap().ended_at = Some(at(23));
        assert!(store.put_run(id, &state, at(23)).await.unwrap());
        assert!(!store.run_of_pipeline(&gitlab, "8").await.unwrap().unwrap().is_live);
    })
    .await;
}

#[tokio::test]
async fn pipeline_that_is_not_known_may_be_a_runs_from_the_request_until_all_its_names_are() {
    each(async |store| {
        let id = make(store, "app").await.workspace.id;
        let (gitlab, other) = ("gitlab".parse().unwrap(), "other".parse().unwrap());
        let [nothing, child, all] =
            [(false, false), (false, true), (true, true)].map(|(pipeline, child)| AwaitedRuns { pipeline, child });
        assert_eq!(store.awaited(&gitlab).await.unwrap(), nothing);
        begin(store, id, "r1", 20).await;
        assert_eq!(store.awaited(&gitlab).await.unwrap(), nothing, "nobody was asked");
        type Change = fn(&mut CiRun);
        let changes: [(Change, AwaitedRuns); 4] = [
            (|run| run.asked_at = Some(at(21)), all),
            (|run| run.pipeline = Some("7".into()), child),
            (|run| run.child = Some("8".into()), nothing),
            (|run| (run.child, run.ended_at) = (None, Some(at(22))), nothing),
        ];
        for (change, expected) in changes {
            let (_, mut state) = read(store, id).await;
            change(state.run.as_mut().unwrap());
            assert!(store.put_run(id, &state, at(21)).await.unwrap());
            assert_eq!(store.awaited(&gitlab).await.unwrap(), expected);
            assert_eq!(store.awaited(&other).await.unwrap(), nothing);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_begin_a_run_at_once_one_does() {
    each(async |store| {
        warm(store).await;
        let id = make(store, "app").await.workspace.id;
        let (life, _) = read(store, id).await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (store, life) = (store.clone(), life.clone());
            tasks.spawn(async move {
                let key = format!("r{number}");
                store.begin_run(id, life.revision, &life, &NewCiRun { key: &key, token: None }, at(20)).await.unwrap()
            });
        }
        let mut begun = 0;
        while let Some(ended) = tasks.join_next().await {
            begun += u32::from(ended.unwrap().is_some());
        }
        assert_eq!(begun, 1);
    })
    .await;
}

#[tokio::test]
async fn only_some_runs_are_remembered() {
    each(async |store| {
        let id = make(store, "app").await.workspace.id;
        for run in 1..=RUNS_KEPT + 2 {
            assert_eq!(begin(store, id, &format!("r{run}"), run).await.0, u64::try_from(run).ok());
            let (_, mut state) = read(store, id).await;
            let last = state.run.as_mut().unwrap();
            (last.pipeline, last.ended_at) = (Some(run.to_string().into()), Some(at(run)));
            assert!(store.put_run(id, &state, at(run)).await.unwrap());
        }
        let gitlab = "gitlab".parse().unwrap();
        assert_eq!(store.run_of_pipeline(&gitlab, "2").await.unwrap(), None);
        assert!(store.run_of_pipeline(&gitlab, "3").await.unwrap().is_some());
    })
    .await;
}
