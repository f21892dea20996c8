use super::super::each::{each, each_fresh};
use super::super::{About, NewEnvironment, NewReplica};
use super::*;
use gateway_types::UnixSeconds;

const NOW: UnixSeconds = UnixSeconds::new(1000);

fn row(number: i64) -> (i64, ChangedRow) {
    (number, ChangedRow::Environment(EnvironmentId(number)))
}

fn named(numbers: &[i64]) -> ChangedRows {
    ChangedRows::Some(numbers.iter().map(|number| row(*number).1).collect())
}

fn rows(numbers: &[i64]) -> Vec<(i64, ChangedRow)> {
    numbers.iter().map(|number| row(*number)).collect()
}

#[test]
fn row_is_returned_once_and_one_that_commits_late_is_not_missed() {
    let (mut position, began) = (LogPosition::default(), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    assert_eq!(position.take(rows(&[3, 1]), true, at(0)), named(&[1, 3]));
    assert_eq!(position.floor, 1, "the second is missing: what is behind it is read again");
    assert_eq!(position.take(rows(&[3, 2]), true, at(1)), named(&[2]));
    assert_eq!((position.floor, position.above.len()), (3, 0), "nothing is missing, and nothing remembered");
    assert_eq!(position.take(rows(&[5]), true, at(2)), named(&[5]));
    assert_eq!(position.floor, 3);
    assert_eq!(position.take(rows(&[6, 5]), true, at(2) + GAP_TIME), named(&[6]));
    assert_eq!(position.floor, 6, "the number was never used: it is given up");
}

#[test]
fn subject_that_changed_often_is_named_once() {
    let mut position = LogPosition::default();
    let often = vec![(1, row(7).1), (2, row(7).1), (3, row(8).1)];
    assert_eq!(position.take(often, true, Instant::now()), named(&[7, 8]));
}

#[test]
fn more_than_can_be_read_at_once_may_be_anything_and_is_so_once_more_for_those_that_commit_late() {
    let (mut position, began) = (LogPosition::default(), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    assert_eq!(position.take(rows(&[50, 49]), false, at(0)), ChangedRows::Everything);
    assert_eq!(position.floor, 50);
    assert_eq!(position.take(rows(&[51]), true, at(1)), named(&[51]));
    assert_eq!(position.take(rows(&[52]), true, at(0) + GAP_TIME), ChangedRows::Everything);
    assert_eq!(position.take(rows(&[53]), true, at(1) + GAP_TIME), named(&[53]));
}

async fn replica(store: &Store, lease: Duration) {
    let new = NewReplica { peer_url: "https://a:1", version: "1", zone: "z.test", public_url: "https://z.test", lease };
    store.add_replica(&new).await.unwrap().unwrap();
}

async fn environment(store: &Store, slug: &str) -> EnvironmentId {
    let cluster = store.ensure_cluster(&"one".parse().unwrap(), NOW).await.unwrap().id;
    let (project_path, name, inventory) = ("a/b", slug, slug);
    let new = NewEnvironment { cluster, project_id: 1, project_path, name, slug, inventory };
    store.ensure_environment(&new, NOW).await.unwrap().id
}

async fn workspace(store: &Store, name: &str) -> WorkspaceId {
    let statement = sql(
        "INSERT INTO workspaces (name, owner, executor, created_at) VALUES ($1, 'ann', 'kubernetes', 1) RETURNING id",
    );
    let id: i64 = statement.bind(name).fetch_one(&store.writer).await.unwrap().get("id").unwrap();
    sql("INSERT INTO lifecycles (workspace_id, desired, actual, generation, desired_at, actual_at, revision) \
         VALUES ($1, 'Running', 'CreationRequested', 1, 1, 1, 1)")
    .bind(id)
    .execute(&store.writer)
    .await
    .unwrap();
    WorkspaceId(id)
}

#[tokio::test]
async fn database_records_what_changed_while_a_replica_lives_and_nothing_without_one() {
    each(async |store| {
        let shown = environment(store, "shown").await;
        let mut reader = store.changed_rows();
        assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(vec![]));
        replica(store, Duration::ZERO).await;
        workspace(store, "alone").await;
        store.stop_environment(shown, None, NOW).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(vec![]), "no replica lives");

        replica(store, Duration::from_secs(60)).await;
        let app = workspace(store, "app").await;
        let cluster = store.ensure_cluster(&"one".parse().unwrap(), NOW).await.unwrap().id;
        let version = store.put_cluster_config(cluster, "{}", NOW).await.unwrap();
        sql("INSERT INTO kubernetes_workspaces (workspace_id, cluster_id, config_version, namespace) VALUES ($1, $2, $3, 'a')")
            .bind(app.0)
            .bind(cluster.0)
            .bind(version.get())
            .execute(&store.writer)
            .await
            .unwrap();
        let of_app = ChangedRow::Workspace { workspace: app, cluster: Some(cluster) };
        assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(vec![of_app]));
        assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(vec![]), "it was read");
        for _ in 0..3 {
            let update = sql("UPDATE lifecycles SET revision = revision + 1 WHERE workspace_id = $1").bind(app.0);
            update.execute(&store.writer).await.unwrap();
        }
        store.stop_environment(shown, None, NOW).await.unwrap();
        let both = vec![of_app, ChangedRow::Environment(shown)];
        assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(both));
        store.forget_environment(shown).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(vec![ChangedRow::Environment(shown)]));
    })
    .await;
}

#[tokio::test]
async fn change_of_a_transaction_that_commits_after_a_later_one_is_read() {
    each_fresh(async |fresh| {
        let (store, beside) = (fresh.open().await, fresh.open().await);
        replica(&store, Duration::from_secs(60)).await;
        let (slow, quick) = (environment(&store, "slow").await, environment(&store, "quick").await);
        let mut reader = store.changed_rows();
        reader.next().await.unwrap();
        let mut transaction = beside.write(About::Nothing).await.unwrap();
        let update = sql("UPDATE environments SET revision = revision + 1 WHERE id = $1").bind(slow.0);
        update.execute(&mut transaction).await.unwrap();
        if fresh.is_on_server() {
            store.stop_environment(quick, None, NOW).await.unwrap();
            assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(vec![ChangedRow::Environment(quick)]));
            transaction.commit().await.unwrap();
        } else {
            // One writer at a time.
            transaction.commit().await.unwrap();
            store.stop_environment(quick, None, NOW).await.unwrap();
        }
        let ChangedRows::Some(read) = reader.next().await.unwrap() else { panic!("these are few") };
        assert!(read.contains(&ChangedRow::Environment(slow)), "{read:?}");
        for store in [store, beside] {
            store.close().await;
        }
    })
    .await;
}

#[tokio::test]
async fn old_rows_are_cleared_and_the_newest_are_kept() {
    each(async |store| {
        replica(store, Duration::from_secs(60)).await;
        let shown = environment(store, "shown").await;
        let mut reader = store.changed_rows();
        reader.next().await.unwrap();
        let (changed, kept) = (10, 4);
        for _ in 0..changed {
            let update = sql("UPDATE environments SET revision = revision + 1 WHERE id = $1").bind(shown.0);
            update.execute(&store.writer).await.unwrap();
        }
        reader.next().await.unwrap();
        reader.clear().await.unwrap();
        let count = async || -> i64 {
            let statement = sql("SELECT count(*) AS count FROM changed_rows");
            statement.fetch_one(&store.readers).await.unwrap().get("count").unwrap()
        };
        assert_eq!(count().await, changed, "these are few");
        reader.clear_but(kept).await.unwrap();
        assert_eq!(count().await, kept);
        // A number is not used again: the reader's position stays true.
        store.stop_environment(shown, None, NOW).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), ChangedRows::Some(vec![ChangedRow::Environment(shown)]));
    })
    .await;
}
