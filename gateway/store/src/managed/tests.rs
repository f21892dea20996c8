use super::super::database::sql;
use super::super::each::{each, each_fresh, warm};
use super::super::*;
use super::*;
use gateway_types::quota::{NEED_MAX, Quota, Usage};
use gateway_types::token::{Token, TokenKind};
use gateway_types::{ActualState, DesiredState, Port};

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

const FROZEN: &str = r#"[{"kind":"ConfigMap","metadata":{"name":"a","z":"\u0001é"}},{"n":[1,-2,3.5,true,null]}]"#;

/// A cluster, and what workspaces are made with there.
struct Ground {
    cluster: Cluster,
    version: ConfigVersion,
    needs: Needs,
    quotas: Quotas,
    template: Option<UsedTemplate>,
}

impl Ground {
    async fn new(store: &Store, cluster: &str) -> Self {
        let cluster = store.ensure_cluster(&cluster.parse().unwrap(), at(1)).await.unwrap();
        let version = store.put_cluster_config(cluster.id, "{}", at(1)).await.unwrap();
        Self { cluster, version, needs: Needs::default(), quotas: Quotas::default(), template: None }
    }

    async fn make(&self, store: &Store, name: &str, owner: &str) -> Result<ManagedWorkspace, CreateError> {
        let (name, owner) = (name.parse().unwrap(), user(owner));
        let token = Token::generate(TokenKind::Agent).unwrap();
        let new = NewManaged {
            name: &name,
            owner: &owner,
            cluster: self.cluster.id,
            config_version: self.version,
            namespace: "ws-a",
            template: self.template.as_ref(),
            devfile: "schemaVersion: 2.2.0\n",
            frozen: FROZEN,
            variables: &[variable(VariableKind::Env, "A", "hunter2"), variable(VariableKind::File, "A", "")],
            ports: &[],
            agent_token: &token,
            needs: self.needs,
            quotas: self.quotas,
        };
        store.create_managed(&new, at(10)).await
    }
}

/// Returns the limits that a refusal names, as people read them.
fn broken<T: std::fmt::Debug>(refused: Result<T, CreateError>) -> Vec<String> {
    match refused {
        Err(CreateError::OverQuota(over)) => over.broken.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn variable(kind: VariableKind, name: &str, value: &str) -> Variable {
    Variable { kind, name: name.to_owned(), value: SecretText::new(value.to_owned()) }
}

/// Brings a workspace to desired and actual states, through the store.
async fn bring(store: &Store, id: WorkspaceId, desired: DesiredState, actual: ActualState) {
    let managed = store.managed_by_id(id).await.unwrap().unwrap();
    let next = Lifecycle { desired, actual, ..managed.lifecycle.clone() };
    assert!(store.swap_lifecycle(id, managed.lifecycle.revision, &next).await.unwrap());
}

async fn end(store: &Store, id: WorkspaceId) {
    bring(store, id, DesiredState::Terminated, ActualState::Terminated).await;
}

#[tokio::test]
async fn clusters_are_made_once_and_listed_by_name() {
    each(async |store| {
        let west = store.ensure_cluster(&"west".parse().unwrap(), at(1)).await.unwrap();
        let east = store.ensure_cluster(&"east".parse().unwrap(), at(2)).await.unwrap();
        assert_eq!(store.ensure_cluster(&west.name, at(3)).await.unwrap(), west);
        assert_eq!(store.cluster(&"none".parse().unwrap()).await.unwrap(), None);
        assert_eq!(store.clusters().await.unwrap(), [east, west]);
    })
    .await;
}

#[tokio::test]
async fn configurations_have_versions_and_an_equal_one_is_no_new_one() {
    each(async |store| {
        let one = store.ensure_cluster(&"one".parse().unwrap(), at(1)).await.unwrap().id;
        let two = store.ensure_cluster(&"two".parse().unwrap(), at(1)).await.unwrap().id;
        assert_eq!(store.cluster_config(one, None).await.unwrap(), None);
        let first = store.put_cluster_config(one, r#"{"b": 1, "a": [2.5, "x"]}"#, at(1)).await.unwrap();
        assert_eq!(store.put_cluster_config(one, r#"{"a":[2.5,"x"],"b":1}"#, at(2)).await.unwrap(), first);
        let second = store.put_cluster_config(one, "{}", at(3)).await.unwrap();
        let third = store.put_cluster_config(one, r#"{"b":1,"a":[2.5,"x"]}"#, at(4)).await.unwrap();
        assert_eq!([first.get(), second.get(), third.get()], [1, 2, 3], "only the newest counts as the same");
        let text = r#"{"a":[2.5,"x"],"b":1}"#.to_owned();
        assert_eq!(store.cluster_config(one, Some(first)).await.unwrap(), Some((first, text.clone())));
        assert_eq!(store.cluster_config(one, Some(second)).await.unwrap(), Some((second, "{}".to_owned())));
        assert_eq!(store.cluster_config(one, None).await.unwrap(), Some((third, text)));
        assert_eq!(store.cluster_config(two, Some(first)).await.unwrap(), None);
        let bad = store.put_cluster_config(one, "{", at(5)).await;
        assert!(matches!(bad, Err(StoreError::NotJson { .. })), "{bad:?}");
    })
    .await;
}

#[tokio::test]
async fn default_never_takes_the_place_of_a_configuration_that_comes_at_the_same_time() {
    each(async |store| {
        for number in 0..20 {
            let cluster = store.ensure_cluster(&format!("c{number}").parse().unwrap(), at(1)).await.unwrap().id;
            let given = store.put_cluster_config(cluster, "[1]", at(2));
            let (version, default) = tokio::join!(given, store.ensure_cluster_config(cluster, "{}", at(2)));
            let (version, newest) = (version.unwrap(), store.cluster_config(cluster, None).await.unwrap());
            assert_eq!(newest, Some((version, "[1]".to_owned())));
            assert!(["{}", "[1]"].contains(&default.unwrap().1.as_str()));
            let again = store.ensure_cluster_config(cluster, "{}", at(3)).await.unwrap();
            assert_eq!(Some(again), newest);
        }
    })
    .await;
}

#[tokio::test]
async fn configuration_that_does_not_fit_is_stored_only_for_a_cluster_without_workspaces() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let cluster = ground.cluster.id;
        let put = async |config: &str, fits: bool| {
            let version = store.put_fitting_cluster_config(cluster, config, |_| fits, at(2)).await.unwrap();
            version.map(ConfigVersion::get)
        };
        assert_eq!(put("[1]", false).await, Some(2), "nobody is there");
        let ground = Ground { version: ConfigVersion::new(2), ..ground };
        let made = ground.make(store, "app", "ann").await.unwrap();
        assert_eq!(put("[2]", false).await, None);
        let newest = store.cluster_config(cluster, None).await.unwrap();
        assert_eq!(newest, Some((ConfigVersion::new(2), "[1]".to_owned())));
        assert_eq!(put("[2]", true).await, Some(3));
        assert_eq!(put("[2]", true).await, Some(3), "the same is no new one");
        bring(store, made.workspace.id, DesiredState::Terminated, ActualState::Terminating).await;
        assert_eq!(put("[3]", false).await, None, "something is left of it");
        end(store, made.workspace.id).await;
        assert_eq!(put("[3]", false).await, Some(4));
    })
    .await;
}

#[tokio::test]
async fn workspace_made_from_an_older_configuration_is_refused() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        store.put_cluster_config(ground.cluster.id, "[1]", at(2)).await.unwrap();
        let late = ground.make(store, "app", "ann").await;
        assert!(matches!(late, Err(CreateError::ConfigChanged)), "{late:?}");
        assert_eq!(store.workspaces().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn workspace_is_made_whole_and_reads_back_the_same() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let made = ground.make(store, "app", "ann").await.unwrap();
        assert_eq!(made.lifecycle, Lifecycle::new(at(10)));
        assert_eq!(
            (made.workspace.executor, made.kubernetes().unwrap().cluster_name.as_str()),
            (Executor::Kubernetes, "west")
        );
        let id = made.workspace.id;
        assert_eq!(store.managed(&made.workspace.name).await.unwrap().as_ref(), Some(&made));
        assert_eq!(store.managed_by_id(id).await.unwrap().as_ref(), Some(&made));
        assert_eq!(store.workspace(&made.workspace.name).await.unwrap().as_ref(), Some(&made.workspace));
        assert_eq!(store.frozen(id).await.unwrap().as_deref(), Some(FROZEN), "byte for byte");
        assert_eq!(store.devfile_of(id).await.unwrap().as_deref(), Some("schemaVersion: 2.2.0\n"));
        let variables = store.variables(id).await.unwrap();
        let seen: Vec<_> = variables.iter().map(|found| (found.kind, found.name.as_str())).collect();
        let expected = [(VariableKind::Env, "A"), (VariableKind::File, "A"), (VariableKind::File, AGENT_TOKEN_FILE)];
        assert_eq!(seen, expected);
        assert_eq!((variables[0].value.reveal(), variables[1].value.reveal()), ("hunter2", ""));
        let token = Token::parse(variables[2].value.reveal()).unwrap();
        let record = store.token_by_hash(&token.hash()).await.unwrap().unwrap();
        assert_eq!(record.subject, TokenSubject::Agent { workspace_id: id, workspace: made.workspace.name.clone() });
        let share = Share { port: Port::new(80).unwrap(), audience: "public".parse().unwrap(), expires_at: None };
        store.share(&made.workspace.name, &share, &user("ann"), at(11)).await.unwrap();
        assert_eq!(*store.managed_by_id(id).await.unwrap().unwrap().workspace.shares, [share]);
        assert_eq!(store.managed(&"absent".parse().unwrap()).await.unwrap(), None);
        store.create_agent_token(&"external".parse().unwrap(), &user("ann"), at(1)).await.unwrap();
        assert_eq!(store.managed(&"external".parse().unwrap()).await.unwrap(), None, "nobody manages it");
    })
    .await;
}

#[tokio::test]
async fn secrets_are_sealed_in_the_database_and_open_in_their_row_only() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let id = ground.make(store, "app", "ann").await.unwrap().workspace.id;
        let rows = sql("SELECT sealed FROM variables").fetch_all(&store.readers).await.unwrap();
        assert!(rows.iter().all(|row| {
            let sealed: &[u8] = row.get("sealed").unwrap();
            !sealed.windows(4).any(|part| part == b"gwa_" || part == b"hunt")
        }));
        sql("UPDATE variables SET sealed = (SELECT sealed FROM variables WHERE kind = 'env' AND name = 'A') \
             WHERE kind = 'file' AND name = 'A'")
        .execute(&store.writer)
        .await
        .unwrap();
        let moved = store.variables(id).await;
        assert!(matches!(moved, Err(StoreError::Unsealable { table: "variables" })), "{moved:?}");
    })
    .await;
}

#[tokio::test]
async fn name_is_taken_unless_its_workspace_is_over_and_ones_own() {
    each(async |store| {
        let (ground, elsewhere) = (Ground::new(store, "west").await, Ground::new(store, "east").await);
        let first = ground.make(store, "app", "ann").await.unwrap();
        store.create_agent_token(&"external".parse().unwrap(), &user("ann"), at(1)).await.unwrap();
        for (name, owner) in [("app", "ann"), ("app", "bob"), ("external", "ann")] {
            let taken = elsewhere.make(store, name, owner).await;
            assert!(matches!(taken, Err(CreateError::NameTaken)), "{name} {owner} {taken:?}");
        }
        bring(store, first.workspace.id, DesiredState::Terminated, ActualState::Terminating).await;
        assert!(matches!(ground.make(store, "app", "ann").await, Err(CreateError::NameTaken)), "not over yet");
        let share = Share { port: Port::new(80).unwrap(), audience: "public".parse().unwrap(), expires_at: None };
        store.share(&first.workspace.name, &share, &user("ann"), at(11)).await.unwrap();
        end(store, first.workspace.id).await;
        assert!(matches!(ground.make(store, "app", "bob").await, Err(CreateError::NameTaken)), "it was ann's");
        let second = elsewhere.make(store, "app", "ann").await.unwrap();
        assert_ne!(second.workspace.id, first.workspace.id);
        assert_eq!(store.managed_by_id(first.workspace.id).await.unwrap(), None);
        assert_eq!(store.frozen(first.workspace.id).await.unwrap(), None);
        assert_eq!(store.variables(first.workspace.id).await.unwrap(), []);
        assert_eq!(store.managed(&second.workspace.name).await.unwrap(), Some(second), "without the old one's shares");
        let tokens = store.list_tokens().await.unwrap();
        assert_eq!(tokens.len(), 2, "the old one's are gone: {tokens:?}");
    })
    .await;
}

#[tokio::test]
async fn quotas_count_what_is_not_to_be_terminated_and_refusals_leave_nothing() {
    each(async |store| {
        let mut ground = Ground::new(store, "west").await;
        let elsewhere = Ground::new(store, "east").await;
        elsewhere.make(store, "other", "ann").await.unwrap();
        ground.quotas = Quotas::of_workspaces(Some(2), Some(1));
        let first = ground.make(store, "one", "ann").await.unwrap();
        assert_eq!(
            broken(ground.make(store, "two", "ann").await),
            ["you have 1 workspaces of 1 there, and this needs 1 workspaces more"]
        );
        ground.make(store, "two", "bob").await.unwrap();
        let full = ground.make(store, "three", "eve").await;
        assert_eq!(broken(full).len(), 1);
        assert_eq!(store.workspace(&"three".parse().unwrap()).await.unwrap(), None);
        assert_eq!(store.list_tokens().await.unwrap().len(), 3);
        bring(store, first.workspace.id, DesiredState::Terminated, ActualState::Terminating).await;
        ground.make(store, "three", "ann").await.unwrap();
        ground.quotas = Quotas::of_workspaces(Some(0), None);
        assert_eq!(broken(ground.make(store, "four", "ann").await).len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_and_name_hold_for_those_who_come_at_once() {
    each_fresh(async |fresh| {
        let (one, other) = (fresh.open().await, fresh.open().await);
        warm(&one).await;
        warm(&other).await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..10 {
            let store = if number % 2 == 0 { one.clone() } else { other.clone() };
            tasks.spawn(async move {
                let mut ground = Ground::new(&store, "west").await;
                ground.quotas = Quotas::of_workspaces(Some(3), None);
                ground.make(&store, &format!("w{number}"), "ann").await
            });
            let store = one.clone();
            tasks.spawn(async move {
                let ground = Ground::new(&store, &format!("cluster-{number}")).await;
                ground.make(&store, "same", "ann").await
            });
        }
        let (mut made, mut same) = (0, 0);
        while let Some(ended) = tasks.join_next().await {
            match ended.unwrap() {
                Ok(managed) if managed.workspace.name.as_str() == "same" => same += 1,
                Ok(_) => made += 1,
                Err(CreateError::NameTaken | CreateError::OverQuota(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!((made, same), (3, 1));
        one.close().await;
        other.close().await;
    })
    .await;
}

#[tokio::test]
async fn needs_are_added_up_by_owner_and_count_while_they_are_wanted() {
    each(async |store| {
        let mut ground = Ground::new(store, "west").await;
        ground.needs = Needs { cpu_millis: 100, memory_bytes: 7, storage_bytes: 1 << 40 };
        let first = ground.make(store, "one", "ann").await.unwrap();
        ground.make(store, "two", "ann").await.unwrap();
        let last = ground.make(store, "three", "bob").await.unwrap();
        Ground::new(store, "east").await.make(store, "other", "ann").await.unwrap();
        bring(store, first.workspace.id, DesiredState::Stopped, ActualState::Stopping).await;
        bring(store, last.workspace.id, DesiredState::RestartRequested, ActualState::Running).await;
        let (ann, eve) = (user("ann"), user("eve"));
        let usage = |workspaces, running| Usage {
            workspaces,
            running,
            cpu_millis: 100 * running,
            memory_bytes: 7 * running,
            storage_bytes: workspaces << 40,
        };
        let found = store.cluster_usage(ground.cluster.id, &ann).await.unwrap();
        assert_eq!(found, ClusterUsage { cluster: usage(3, 2), user: usage(2, 1) });
        let found = store.cluster_usage(ground.cluster.id, &eve).await.unwrap();
        assert_eq!(found, ClusterUsage { cluster: usage(3, 2), user: Usage::default() });
        let records = store.recorded_in(ground.cluster.id).await.unwrap();
        assert_eq!(records.len(), 3);
        end(store, last.workspace.id).await;
        let found = store.cluster_usage(ground.cluster.id, &ann).await.unwrap();
        assert_eq!(found.cluster, usage(2, 1));
        assert_eq!(store.recorded_in(ground.cluster.id).await.unwrap().len(), 2, "nothing is left of it");
        // As many of the largest ones as a cluster has still add up.
        ground.needs = Needs { cpu_millis: NEED_MAX, memory_bytes: NEED_MAX, storage_bytes: NEED_MAX };
        ground.make(store, "large", "ann").await.unwrap();
        ground.make(store, "larger", "ann").await.unwrap();
        let found = store.cluster_usage(ground.cluster.id, &ann).await.unwrap();
        assert_eq!(found.cluster.memory_bytes, 7 + 2 * NEED_MAX);
    })
    .await;
}

#[tokio::test]
async fn workspace_of_an_earlier_version_is_measured_once() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let made = ground.make(store, "one", "ann").await.unwrap();
        assert_eq!(store.unmeasured(ground.cluster.id, 9).await.unwrap(), []);
        sql("UPDATE kubernetes_workspaces SET cpu_millis = NULL, memory_bytes = NULL, storage_bytes = NULL")
            .execute(&store.writer)
            .await
            .unwrap();
        let found = store.cluster_usage(ground.cluster.id, &user("ann")).await.unwrap();
        assert_eq!(found.user, Usage { workspaces: 1, running: 1, ..Usage::default() });
        let unmeasured = store.unmeasured(ground.cluster.id, 9).await.unwrap();
        assert_eq!(unmeasured, [(made.workspace.id, FROZEN.to_owned())]);
        let needs = Needs { cpu_millis: 1, memory_bytes: 2, storage_bytes: 3 };
        store.measure(made.workspace.id, &needs).await.unwrap();
        assert_eq!(store.unmeasured(ground.cluster.id, 9).await.unwrap(), []);
        let found = store.cluster_usage(ground.cluster.id, &user("ann")).await.unwrap();
        assert_eq!((found.user.cpu_millis, found.user.memory_bytes, found.user.storage_bytes), (1, 2, 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_starts_that_come_at_once_only_as_many_pass_as_there_is_room() {
    each_fresh(async |fresh| {
        let (one, other) = (fresh.open().await, fresh.open().await);
        warm(&one).await;
        warm(&other).await;
        let mut ground = Ground::new(&one, "west").await;
        ground.needs = Needs { cpu_millis: 400, memory_bytes: 1, storage_bytes: 1 };
        let mut tasks = tokio::task::JoinSet::new();
        let quota = Quota { cpu_millis: Some(1000), ..Quota::default() };
        let quotas = Quotas { user: quota, ..Quotas::default() };
        let (cluster, config_version) = (ground.cluster.id, ground.version);
        for number in 0..6 {
            let made = ground.make(&one, &format!("w{number}"), "ann").await.unwrap();
            bring(&one, made.workspace.id, DesiredState::Stopped, ActualState::Stopped).await;
            let store = if number % 2 == 0 { one.clone() } else { other.clone() };
            tasks.spawn(async move {
                let owner = user("ann");
                let within = StartWithin { cluster, config_version, owner: &owner, quotas };
                let found = store.managed_by_id(made.workspace.id).await.unwrap().unwrap();
                let next = found.lifecycle.request(DesiredState::Running, at(20)).unwrap();
                store.start_within(made.workspace.id, found.lifecycle.revision, &next, &within).await
            });
        }
        let mut started = 0;
        while let Some(ended) = tasks.join_next().await {
            match ended.unwrap() {
                Ok(is_written) => started += usize::from(is_written),
                refused @ Err(CreateError::OverQuota(_)) => assert_eq!(broken(refused).len(), 1),
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(started, 2);
        let found = one.cluster_usage(cluster, &user("ann")).await.unwrap();
        assert_eq!((found.user.running, found.user.cpu_millis), (2, 800));
        let owner = user("ann");
        let stale = ConfigVersion(ground.version.0 + 1);
        let within = StartWithin { cluster, config_version: stale, owner: &owner, quotas: Quotas::default() };
        let made = one.managed(&"w0".parse().unwrap()).await.unwrap().unwrap();
        let result = one.start_within(made.workspace.id, made.lifecycle.revision, &made.lifecycle, &within).await;
        assert!(matches!(result, Err(CreateError::ConfigChanged)), "{result:?}");
        one.close().await;
        other.close().await;
    })
    .await;
}

#[tokio::test]
async fn lifecycle_is_written_by_who_read_the_stored_one_and_nobody_else() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let made = ground.make(store, "app", "ann").await.unwrap();
        let id = made.workspace.id;
        let stop = Lifecycle {
            desired: DesiredState::Stopped,
            generation: 2,
            desired_at: at(20),
            reason: Some("idle\0".into()),
            ..made.lifecycle.clone()
        };
        assert!(store.swap_lifecycle(id, made.lifecycle.revision, &stop).await.unwrap());
        let run = Lifecycle { desired: DesiredState::Running, ..stop.clone() };
        assert!(!store.swap_lifecycle(id, made.lifecycle.revision, &run).await.unwrap(), "read before the stop");
        let stored = store.managed_by_id(id).await.unwrap().unwrap().lifecycle;
        let expected =
            Lifecycle { revision: made.lifecycle.revision + 1, reason: Some("idle\u{fffd}".into()), ..stop.clone() };
        assert_eq!(stored, expected);

        let seen = Lifecycle { actual: ActualState::Stopped, actual_at: at(30), reason: None, ..stored.clone() };
        let observed = Observation {
            applied_generation: 2,
            deployment_version: Some("12\u{0}3".to_owned()),
            termination: Some("[]".to_owned()),
            start: Some(r#"{"steps": ["node"], "done": 1}"#.to_owned()),
            reported_at: Some(at(31)),
        };
        assert!(!store.swap_report(id, made.lifecycle.revision, &seen, &observed).await.unwrap());
        assert_eq!(store.managed_by_id(id).await.unwrap().unwrap().runs, made.runs, "nothing of it counts");
        assert!(store.swap_report(id, stored.revision, &seen, &observed).await.unwrap());
        let now = store.managed_by_id(id).await.unwrap().unwrap();
        assert_eq!(now.lifecycle, Lifecycle { revision: stored.revision + 1, ..seen });
        assert_eq!(
            (now.kubernetes().unwrap().applied_generation, now.kubernetes().unwrap().reported_at),
            (2, Some(at(31)))
        );
        assert_eq!(now.kubernetes().unwrap().deployment_version.as_deref(), Some("12\u{fffd}3"));
        assert_eq!(now.kubernetes().unwrap().termination.as_deref(), Some("[]"));
        assert_eq!(now.start_progress().unwrap().done, 1);
        assert!(!store.swap_lifecycle("w-999".parse().unwrap(), 0, &stop).await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_read_the_same_lifecycle_one_writes() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let made = ground.make(store, "app", "ann").await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..12 {
            let (store, life, id) = (store.clone(), made.lifecycle.clone(), made.workspace.id);
            tasks.spawn(async move {
                let observed = Observation { applied_generation: number, ..Observation::default() };
                store.swap_report(id, life.revision, &life, &observed).await.unwrap()
            });
        }
        let mut written = 0;
        while let Some(ended) = tasks.join_next().await {
            written += u32::from(ended.unwrap());
        }
        assert_eq!(written, 1);
    })
    .await;
}

#[tokio::test]
async fn lists_have_what_is_alive_what_is_unsettled_and_what_is_ones_own() {
    each(async |store| {
        let (west, east) = (Ground::new(store, "west").await, Ground::new(store, "east").await);
        let mut ids = Vec::new();
        for (ground, name, owner) in
            [(&west, "c", "ann"), (&west, "b", "bob"), (&east, "a", "ann"), (&west, "d", "ann"), (&west, "e", "ann")]
        {
            ids.push(ground.make(store, name, owner).await.unwrap().workspace.id);
        }
        let names =
            |found: Vec<ManagedWorkspace>| found.iter().map(|one| one.workspace.name.to_string()).collect::<Vec<_>>();
        end(store, ids[3]).await;
        let alive = async |cluster, after, limit| store.managed_ids(cluster, after, limit).await.unwrap();
        assert_eq!(alive(None, None, 9).await, [ids[0], ids[1], ids[2], ids[4]]);
        assert_eq!(alive(None, Some(ids[0]), 2).await, [ids[1], ids[2]]);
        assert_eq!(alive(Some(west.cluster.id), None, 9).await, [ids[0], ids[1], ids[4]]);
        assert_eq!(alive(Some(west.cluster.id), Some(ids[0]), 9).await, [ids[1], ids[4]]);
        let part = ListPage { after: None, limit: 9 };
        assert_eq!(names(store.managed_of_owner(&user("ann"), part).await.unwrap()), ["a", "c", "d", "e"]);
        let after = "c".parse().unwrap();
        let part = ListPage { after: Some(&after), limit: 1 };
        assert_eq!(names(store.managed_of_owner(&user("ann"), part).await.unwrap()), ["d"]);

        let unsettled = async |limit| store.unsettled(west.cluster.id, limit).await.unwrap();
        assert_eq!(unsettled(9).await, [ids[0], ids[1], ids[4]]);
        for id in [ids[0], ids[1]] {
            let life = store.managed_by_id(id).await.unwrap().unwrap().lifecycle;
            let observed = Observation { applied_generation: life.generation, ..Observation::default() };
            assert!(store.swap_report(id, life.revision, &life, &observed).await.unwrap());
        }
        assert_eq!(unsettled(9).await, [ids[4]]);
        bring(store, ids[1], DesiredState::Terminated, ActualState::Terminating).await;
        assert_eq!(unsettled(9).await, [ids[1], ids[4]], "applied, and not gone yet");
        assert_eq!(unsettled(1).await, [ids[1]]);
    })
    .await;
}

#[tokio::test]
async fn workspace_is_forgotten_only_when_it_is_over() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let made = ground.make(store, "app", "ann").await.unwrap();
        let id = made.workspace.id;
        assert!(!store.forget(id, at(9)).await.unwrap());
        bring(store, id, DesiredState::Terminated, ActualState::Terminating).await;
        assert!(!store.forget(id, at(9)).await.unwrap());
        store.create_own_agent_token(&made.workspace.name, &user("ann"), &Terms::default(), at(5)).await.unwrap();
        end(store, id).await;
        assert!(store.forget(id, at(9)).await.unwrap());
        assert!(!store.forget(id, at(9)).await.unwrap());
        assert_eq!(store.workspaces().await.unwrap(), []);
        assert_eq!(store.list_tokens().await.unwrap(), []);
        for table in ["lifecycles", "kubernetes_workspaces", "kubernetes_frozen", "devfiles", "variables"] {
            let statement = format!("SELECT count(*) AS rows_left FROM {table}").leak();
            let left: i64 = sql(statement).fetch_one(&store.readers).await.unwrap().get("rows_left").unwrap();
            assert_eq!(left, 0, "{table}");
        }
    })
    .await;
}

#[tokio::test]
async fn objects_that_the_database_would_change_are_refused() {
    each(async |store| {
        let ground = Ground::new(store, "west").await;
        let (name, owner) = ("app".parse().unwrap(), user("ann"));
        let token = Token::generate(TokenKind::Agent).unwrap();
        let new = NewManaged {
            name: &name,
            owner: &owner,
            cluster: ground.cluster.id,
            config_version: ground.version,
            namespace: "ws",
            template: None,
            devfile: "",
            frozen: "[1e15]",
            variables: &[],
            ports: &[],
            agent_token: &token,
            needs: Needs::default(),
            quotas: Quotas::default(),
        };
        // PostgreSQL writes it without the exponent, SQLite keeps it; nobody gets back what they did not give.
        match store.create_managed(&new, at(1)).await {
            Ok(made) => {
                let kept = store.frozen(made.workspace.id).await.unwrap().unwrap();
                assert_eq!(kept, canonical_json(new.frozen).unwrap());
            }
            Err(CreateError::Store(StoreError::Altered { table: "kubernetes_frozen", .. })) => {
                assert_eq!(store.workspaces().await.unwrap(), []);
            }
            Err(other) => panic!("{other:?}"),
        }
        let not_json = store.create_managed(&NewManaged { frozen: "[", ..new }, at(1)).await;
        assert!(matches!(not_json, Err(CreateError::Store(StoreError::NotJson { .. }))), "{not_json:?}");
    })
    .await;
}

#[tokio::test]
async fn template_and_its_values_come_back_with_the_workspace_and_its_list() {
    each(async |store| {
        let mut ground = Ground::new(store, "west").await;
        let hostile = "'; DROP TABLE x; -- \" \\ {{a}}\n\u{1b}\u{feff}ä";
        let parameters = [("a", hostile), ("empty", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let used = UsedTemplate { name: "node".to_owned(), parameters: parameters.into() };
        ground.template = Some(used.clone());
        let made = ground.make(store, "app", "ann").await.unwrap();
        ground.template = Some(UsedTemplate { name: "bare".to_owned(), parameters: BTreeMap::new() });
        let bare = ground.make(store, "bare", "ann").await.unwrap();
        ground.template = None;
        let plain = ground.make(store, "plain", "ann").await.unwrap();
        let of = |managed: &ManagedWorkspace| managed.kubernetes().unwrap().template.clone();
        assert_eq!((of(&made), of(&plain)), (Some(used.clone()), None));
        let found = store.managed_by_id(made.workspace.id).await.unwrap().unwrap();
        assert_eq!(of(&found), Some(used));
        assert_eq!(
            of(&store.managed_by_id(bare.workspace.id).await.unwrap().unwrap()).unwrap().parameters,
            BTreeMap::new()
        );
        let list = store.managed_of_owner(&user("ann"), ListPage { after: None, limit: 9 }).await.unwrap();
        let names: Vec<_> = list.iter().map(|managed| of(managed).map(|template| template.name)).collect();
        assert_eq!(names, [Some("node".to_owned()), Some("bare".to_owned()), None]);
    })
    .await;
}
