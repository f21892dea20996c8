use std::time::Duration;

use super::*;
use crate::each::{Fresh, each_fresh};
use crate::{KeyFileChange, Orderer, SealedAgent, SealedGeneration, SessionKey, WorkspaceId, change_key_file};
use gateway_types::UnixSeconds;
use gateway_types::opaque::Digest;
use gateway_types::sign_in_rows::NewStep;

const SEALED_AT: SealedGeneration = SealedGeneration { generation: 9, at: UnixSeconds::new(1_800_000_000) };
const OF: SealedAgent<'_> = SealedAgent { key: SessionKey::Workspace(WorkspaceId(7)), credential: "t-3", instance: 5 };

/// Stores a value in each sealed column, as rows of the tables themselves.
async fn fill(store: &Store, count: i64) {
    let keys = store.sealer.keys();
    for number in 1..=count {
        let statement =
            sql("INSERT INTO workspaces (id, name, owner, executor, created_at) VALUES ($1, $2, 'ann', 'external', 1)");
        statement.bind(number).bind(format!("w{number}")).execute(&store.writer).await.unwrap();
        let sealed = keys.seal(&format!("variables {number} env NAME"), b"value").unwrap();
        let statement = sql("INSERT INTO variables (workspace_id, kind, name, sealed) VALUES ($1, 'env', 'NAME', $2)");
        statement.bind(number).bind(sealed.as_slice()).execute(&store.writer).await.unwrap();
        let sealed = keys.seal(&format!("ci_runs {number} 1"), b"token").unwrap();
        let statement = sql("INSERT INTO ci_runs (workspace_id, number, run_key, intent, intended_at, token_sealed) \
             VALUES ($1, 1, $2, 1, 1, $3)");
        let statement = statement.bind(number).bind(format!("k{number}")).bind(sealed.as_slice());
        statement.execute(&store.writer).await.unwrap();
    }
    let secret = keys.seal("git_credentials secret git.example.com ann", b"secret").unwrap();
    let access = keys.seal("git_credentials access git.example.com ann", b"access").unwrap();
    sql("INSERT INTO git_credentials (owner, host, kind, user_name, secret_sealed, access_sealed, version, access_until, \
         access_ends, refreshing_until, created_at) VALUES ('ann', 'git.example.com', 'oauth', 'a', $1, $2, 1, 0, 0, 0, 1)")
    .bind(secret.as_slice())
    .bind(access.as_slice())
    .execute(&store.writer)
    .await
    .unwrap();
    let orderer = Orderer::random().unwrap();
    store.claim_certificate(orderer, Duration::from_secs(60)).await.unwrap();
    store.put_certificate(orderer, b"chain").await.unwrap();
    store.add_sign_in_steps(&StepKind::ALL.map(step)).await.unwrap();
}

fn step(kind: StepKind) -> NewStep {
    let id = Digest::of(kind.as_str().as_bytes());
    NewStep { kind, id, contents: b"step".to_vec(), age_max: Duration::from_secs(600) }
}

/// Values that [`fill`] stores beside those of workspaces.
const OTHERS: u64 = 2 + 1 + 4;

async fn reload(store: &Store) -> Result<KeyChange, StoreError> {
    Ok(store.exchange_keys(store.read_keys().await?))
}

fn key_file(fresh: &Fresh) -> std::path::PathBuf {
    fresh.config.key_file().unwrap()
}

#[tokio::test]
async fn key_is_exchanged_while_two_gateways_run_and_nothing_is_lost() {
    each_fresh(async |fresh| {
        let (one, other) = (fresh.open().await, fresh.open().await);
        let workspaces = i64::from(BATCH) + 3;
        fill(&one, workspaces).await;
        let all = 2 * u64::try_from(workspaces).unwrap() + OTHERS;
        let old = one.key_ids()[0];
        assert_eq!(one.sealed_counts().await.unwrap(), SealedCounts { by_key: vec![(old, all + 1)], by_none: vec![] });
        let (seal, proof) = (one.seal_generation(&OF, SEALED_AT), one.prove_sign_in(b"text"));

        // All open it before any seals with it.
        let ids = change_key_file(&key_file(fresh), KeyFileChange::Add).unwrap();
        let new = ids[1];
        for store in [&one, &other] {
            assert_eq!(reload(store).await.unwrap(), KeyChange { keys: vec![old, new], added: 1, removed: 0 });
        }
        assert_eq!(change_key_file(&key_file(fresh), KeyFileChange::Promote).unwrap(), [new, old]);
        reload(&one).await.unwrap();
        // The other one has not yet, and each takes what the other makes.
        assert_eq!(other.sealed_generation(&OF, &one.seal_generation(&OF, SEALED_AT)), Some(SEALED_AT));
        assert_eq!(one.sealed_generation(&OF, &other.seal_generation(&OF, SEALED_AT)), Some(SEALED_AT));
        assert!(other.proves_sign_in(b"text", &one.prove_sign_in(b"text")));
        assert!(one.proves_sign_in(b"text", &other.prove_sign_in(b"text")) && one.proves_sign_in(b"text", &proof));
        reload(&other).await.unwrap();

        let mut reports = Vec::new();
        let done = one.reseal(|progress| reports.push(progress)).await.unwrap();
        assert_eq!(done, ResealProgress { seen: all, resealed: all, lost: 0 });
        assert!(reports.len() > 7 && reports.windows(2).all(|two| two[0].seen < two[1].seen), "{reports:?}");
        assert_eq!(one.reseal(|_| ()).await.unwrap(), ResealProgress { seen: all, resealed: 0, lost: 0 });

        assert_eq!(change_key_file(&key_file(fresh), KeyFileChange::DropOthers).unwrap(), [new]);
        for store in [&one, &other] {
            assert_eq!(reload(store).await.unwrap(), KeyChange { keys: vec![new], added: 0, removed: 1 });
        }
        let third = fresh.open().await;
        for store in [&one, &other, &third] {
            assert_eq!(
                store.sealed_counts().await.unwrap(),
                SealedCounts { by_key: vec![(new, all + 1)], by_none: vec![] }
            );
            assert_eq!(store.shared_certificate().await.unwrap().as_deref(), Some(b"chain".as_slice()));
            assert_eq!(store.variables(WorkspaceId(1)).await.unwrap()[0].value.reveal(), "value");
            assert_eq!(store.sealed_generation(&OF, &seal), None, "the old key is gone");
        }
        for kind in StepKind::ALL {
            let step = step(kind);
            assert_eq!(third.take_sign_in_step(kind, &step.id).await.unwrap(), Some(step.contents));
        }
        for store in [one, other, third] {
            store.close().await;
        }
    })
    .await;
}

#[tokio::test]
async fn key_that_still_seals_something_is_not_given_up() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        fill(&store, 1).await;
        for change in [KeyFileChange::Add, KeyFileChange::Promote] {
            change_key_file(&key_file(fresh), change).unwrap();
            reload(&store).await.unwrap();
        }
        let before = std::fs::read(key_file(fresh)).unwrap();
        change_key_file(&key_file(fresh), KeyFileChange::DropOthers).unwrap();
        // The known text says so, for a process that starts and one that runs.
        assert!(matches!(reload(&store).await, Err(StoreError::KeyWrong { .. })));
        assert!(matches!(Store::open_with(&fresh.config).await, Err(StoreError::KeyWrong { .. })));
        assert_eq!(store.key_ids().len(), 2);
        std::fs::write(key_file(fresh), &before).unwrap();
        store.reseal(|_| ()).await.unwrap();
        // A gateway that was not asked to read its keys again seals one more value with the old one.
        let old = store.key_ids()[1];
        let sealed = {
            std::fs::write(key_file(fresh), &before).unwrap();
            change_key_file(&key_file(fresh), KeyFileChange::Promote).unwrap();
            let late = fresh.open().await;
            assert_eq!(late.key_ids()[0], old);
            let sealed = late.sealer.keys().seal("variables 1 env NAME", b"late").unwrap();
            late.close().await;
            sealed
        };
        sql("UPDATE variables SET sealed = $1").bind(sealed.as_slice()).execute(&store.writer).await.unwrap();
        std::fs::write(key_file(fresh), &before).unwrap();
        change_key_file(&key_file(fresh), KeyFileChange::DropOthers).unwrap();
        let refused = reload(&store).await;
        assert!(matches!(refused, Err(StoreError::KeyNeeded { count: 1, .. })), "{refused:?}");
        assert_eq!(store.variables(WorkspaceId(1)).await.unwrap()[0].value.reveal(), "late");
        std::fs::write(key_file(fresh), &before).unwrap();
        assert_eq!(store.reseal(|_| ()).await.unwrap().resealed, 1);
        change_key_file(&key_file(fresh), KeyFileChange::DropOthers).unwrap();
        reload(&store).await.unwrap();
        // One that read its keys in no step of an exchange still seals with the key that is dropped.
        for change in [KeyFileChange::Add, KeyFileChange::Promote] {
            change_key_file(&key_file(fresh), change).unwrap();
        }
        let other = fresh.open().await;
        other.reseal(|_| ()).await.unwrap();
        other.close().await;
        change_key_file(&key_file(fresh), KeyFileChange::DropOthers).unwrap();
        let refused = reload(&store).await;
        assert!(matches!(refused, Err(StoreError::KeySeals { .. })), "{refused:?}");
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn value_that_no_key_opens_is_counted_and_left_alone() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        fill(&store, 1).await;
        sql("UPDATE variables SET sealed = $1").bind([1_u8; 40].as_slice()).execute(&store.writer).await.unwrap();
        assert_eq!(store.sealed_counts().await.unwrap().by_none, [("variables", 1)]);
        assert_eq!(store.reseal(|_| ()).await.unwrap(), ResealProgress { seen: 2 + OTHERS, resealed: 0, lost: 1 });
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn each_sealed_column_of_the_schema_is_sealed_anew() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let statement = "SELECT tables.name AS found, columns.name AS sealed_column FROM sqlite_schema AS tables \
         JOIN pragma_table_info(tables.name) AS columns WHERE columns.name LIKE '%sealed' ORDER BY 1, 2";
    let rows = sql(statement).fetch_all(&store.readers).await.unwrap();
    let mut known: Vec<_> = SEALED
        .iter()
        .map(|column| {
            let set = column.update.split(" SET ").nth(1).unwrap().split(' ').next().unwrap();
            format!("{}.{set}", column.table)
        })
        .chain(["seals.sealed".to_owned()])
        .collect();
    known.sort();
    let found: Vec<_> = rows
        .iter()
        .map(|row| format!("{}.{}", row.get::<&str>("found").unwrap(), row.get::<&str>("sealed_column").unwrap()))
        .collect();
    assert_eq!(found, known);
}

#[test]
fn file_that_is_changed_keeps_its_rights_and_refuses_a_ninth_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.key");
    assert!(matches!(change_key_file(&path, KeyFileChange::Add), Err(StoreError::KeyMissing { .. })));
    std::fs::write(&path, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n").unwrap();
    let link = folder.path().join("link.key");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for count in 2..=8 {
        assert_eq!(change_key_file(&link, KeyFileChange::Add).unwrap().len(), count);
    }
    assert!(matches!(change_key_file(&path, KeyFileChange::Add), Err(StoreError::KeyFile { .. })));
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
