use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::database::sql;
use crate::each::{Fresh, each_fresh};
use crate::migrate::{STEPS, SchemaVersion, migrate_to};
use crate::{Incarnation, NewReplica, SessionClaim, SessionKey, SingleGateway, Store, WorkspaceId};
use gateway_types::UserName;
use gateway_types::sign_in_rows::KeptSession;

const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

async fn back_up(fresh: &Fresh, name: &str) -> PathBuf {
    let to = fresh.folder().join(name);
    backup(&fresh.config, &to, WithKeys::Yes, "0.1.0", NOW).await.unwrap();
    to
}

/// Returns the configuration of another machine.
fn elsewhere(folder: &Path) -> StoreConfig {
    StoreConfig::at(StoreUrl::SqliteFile(folder.join("restored.db")))
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn backup_brings_back_what_there_was_and_the_key_of_its_secrets() {
    let fresh = Fresh::file();
    let store = fresh.open().await;
    let token = store.create_user_token(&user("alice"), NOW).await.unwrap();
    let orderer = crate::Orderer::random().unwrap();
    store.claim_certificate(orderer, std::time::Duration::from_secs(60)).await.unwrap();
    store.put_certificate(orderer, b"a secret").await.unwrap();
    // While the store is open, as a gateway has it.
    let file = back_up(&fresh, "one.backup").await;
    let after = store.create_user_token(&user("bob"), NOW).await.unwrap();
    store.close().await;
    #[cfg(unix)]
    assert_eq!(mode(&file), 0o600);
    assert!(names(fresh.folder()).iter().all(|name| !name.contains("part")), "{:?}", names(fresh.folder()));
    let head = check(&file).unwrap();
    assert_eq!((head.schema, head.made_at), (Some(STEPS.last().unwrap().version()), NOW.get()));

    let folder = tempfile::tempdir().unwrap();
    let config = elsewhere(folder.path());
    let restored = restore(&config, &file, Replacing::Refused).await.unwrap();
    assert_eq!((restored.head, restored.aside), (head, Vec::new()));
    assert_eq!(names(folder.path()), ["gateway.key", "restored.db", "restored.db.lock"]);
    #[cfg(unix)]
    for name in ["gateway.key", "restored.db"] {
        assert_eq!(mode(&folder.path().join(name)), 0o600, "{name}");
    }
    let store = Store::open_with(&config).await.unwrap();
    assert!(store.token_by_hash(&token.token.hash()).await.unwrap().is_some());
    assert_eq!(store.shared_certificate().await.unwrap().as_deref(), Some(b"a secret".as_slice()));
    assert!(store.token_by_hash(&after.token.hash()).await.unwrap().is_none(), "it came after the backup");
    store.close().await;
    fresh.remove().await;
}

#[tokio::test]
async fn log_that_a_lost_database_left_behind_is_no_part_of_the_restored_one() {
    let fresh = Fresh::file();
    let store = fresh.open().await;
    let file = back_up(&fresh, "one.backup").await;
    let after = store.create_user_token(&user("bob"), NOW).await.unwrap();
    let log = fresh.folder().join("gateway.db-wal");
    let folder = tempfile::tempdir().unwrap();
    let config = elsewhere(folder.path());
    fs::copy(&log, folder.path().join("restored.db-wal")).unwrap();
    fs::write(folder.path().join("restored.db-journal"), "what was before").unwrap();
    store.close().await;
    restore(&config, &file, Replacing::Refused).await.unwrap();
    for name in ["restored.db-wal", "restored.db-journal"] {
        assert!(!folder.path().join(name).exists(), "{name}");
        assert!(folder.path().join(format!("{name}.before-restore-1")).exists(), "{name} is kept");
    }
    let store = Store::open_with(&config).await.unwrap();
    assert!(store.token_by_hash(&after.token.hash()).await.unwrap().is_none(), "it came after the backup");
    store.close().await;
    fresh.remove().await;
}

#[tokio::test]
async fn backup_is_one_moment_of_a_database_that_is_written_all_the_time() {
    let fresh = Fresh::file();
    let store = fresh.open().await;
    sql("CREATE TABLE pairs (one INTEGER, other INTEGER)").execute(&store.writer).await.unwrap();
    let (is_over, writing) = (Arc::new(AtomicBool::new(false)), store.clone());
    let mut tasks = tokio::task::JoinSet::new();
    let stop = is_over.clone();
    tasks.spawn(async move {
        let mut count = 0_i64;
        while !stop.load(Ordering::Relaxed) || count == 0 {
            count += 1;
            let mut transaction = writing.write(crate::database::About::Nothing).await.unwrap();
            for statement in ["INSERT INTO pairs (one) VALUES ($1)", "UPDATE pairs SET other = $1 WHERE one = $1"] {
                sql(statement).bind(count).execute(&mut transaction).await.unwrap();
            }
            transaction.commit().await.unwrap();
        }
        count
    });
    let mut files = Vec::new();
    for number in 0..3 {
        files.push(back_up(&fresh, &format!("{number}.backup")).await);
    }
    is_over.store(true, Ordering::Relaxed);
    let written = tasks.join_next().await.unwrap().unwrap();
    for file in files {
        let folder = tempfile::tempdir().unwrap();
        let config = elsewhere(folder.path());
        restore(&config, &file, Replacing::Refused).await.unwrap();
        let copy = Store::open_with(&config).await.unwrap();
        let row = sql("SELECT count(*) AS rows, coalesce(max(one), 0) AS last, count(other) AS others FROM pairs");
        let row = row.fetch_one(&copy.readers).await.unwrap();
        let [rows, last, others]: [i64; 3] = ["rows", "last", "others"].map(|column| row.get(column).unwrap());
        assert!(rows == last && rows == others && rows <= written, "{rows} {last} {others} {written}");
        copy.close().await;
    }
    store.close().await;
    fresh.remove().await;
}

#[tokio::test]
async fn nothing_is_written_over_and_a_database_in_use_is_not_restored() {
    let fresh = Fresh::file();
    let store = fresh.open().await;
    store.create_user_token(&user("alice"), NOW).await.unwrap();
    let file = back_up(&fresh, "one.backup").await;
    let again = backup(&fresh.config, &file, WithKeys::Yes, "0.1.0", NOW).await;
    assert!(matches!(again, Err(BackupError::Exists { .. })), "{again:?}");
    let present = restore(&fresh.config, &file, Replacing::Refused).await;
    assert!(matches!(present, Err(BackupError::Present { .. })), "{present:?}");
    // A command has it open.
    let in_use = restore(&fresh.config, &file, Replacing::Allowed).await;
    assert!(matches!(in_use, Err(BackupError::InUse { .. })), "{in_use:?}");
    store.create_user_token(&user("bob"), NOW).await.unwrap();
    store.close().await;
    // A gateway serves it.
    let gateway = SingleGateway::take(&fresh.config, std::time::Duration::ZERO).await.unwrap();
    let in_use = restore(&fresh.config, &file, Replacing::Allowed).await;
    assert!(matches!(in_use, Err(BackupError::InUse { .. })), "{in_use:?}");
    drop(gateway);
    let restored = restore(&fresh.config, &file, Replacing::Allowed).await.unwrap();
    assert_eq!(restored.aside, [fresh.folder().join("gateway.db.before-restore-1")]);
    let store = fresh.open().await;
    assert_eq!(store.list_tokens().await.unwrap().len(), 1);
    store.close().await;
    // What was put aside is whole.
    fs::rename(&restored.aside[0], fresh.folder().join("gateway.db")).unwrap();
    let store = fresh.open().await;
    assert_eq!(store.list_tokens().await.unwrap().len(), 2);
    store.close().await;
    assert!(names(fresh.folder()).iter().all(|name| !name.contains("part")), "{:?}", names(fresh.folder()));
    fresh.remove().await;
}

#[tokio::test]
async fn foreign_cut_and_changed_files_leave_no_trace() {
    let fresh = Fresh::file();
    fresh.open().await.close().await;
    let file = back_up(&fresh, "one.backup").await;
    let whole = fs::read(&file).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    let database = fs::read(fresh.folder().join("gateway.db")).unwrap();
    for (contents, expected) in
        [(&whole[..whole.len() - 1], "cut off"), (&changed, "damaged"), (&database, "no backup of a gateway")]
    {
        let folder = tempfile::tempdir().unwrap();
        let bad = folder.path().join("bad.backup");
        fs::write(&bad, contents).unwrap();
        let error = restore(&elsewhere(folder.path()), &bad, Replacing::Refused).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(names(folder.path()), ["bad.backup", "restored.db.lock"]);
    }
    fresh.remove().await;
}

#[tokio::test]
async fn newer_schema_is_neither_restored_nor_replaced() {
    let (fresh, older) = (Fresh::file(), Fresh::file());
    older.open().await.close().await;
    let old_file = back_up(&older, "old.backup").await;
    let store = fresh.open().await;
    let mut later = STEPS.clone();
    let version = later.last().unwrap().version() + 1;
    later.push(SchemaVersion::new(version, "later", "CREATE TABLE later (id INTEGER)", ""));
    migrate_to(&later, &store.writer).await.unwrap();
    store.close().await;
    let file = back_up(&fresh, "new.backup").await;
    let folder = tempfile::tempdir().unwrap();
    let refused = restore(&elsewhere(folder.path()), &file, Replacing::Refused).await;
    assert!(matches!(refused, Err(BackupError::Store(StoreError::Newer { .. }))), "{refused:?}");
    assert_eq!(names(folder.path()), ["restored.db.lock"]);
    let refused = restore(&fresh.config, &old_file, Replacing::Allowed).await;
    assert!(matches!(refused, Err(BackupError::PresentIsNewer { .. })), "{refused:?}");
    fresh.remove().await;
    older.remove().await;
}

#[tokio::test]
async fn backup_without_its_key_needs_the_key_that_is_kept_elsewhere() {
    let fresh = Fresh::file();
    fresh.open().await.close().await;
    let file = fresh.folder().join("keyless.backup");
    backup(&fresh.config, &file, WithKeys::No, "0.1.0", NOW).await.unwrap();
    let key = fs::read(fresh.folder().join("gateway.key")).unwrap();
    let contents = fs::read(&file).unwrap();
    assert!(!contents.windows(40).any(|part| part == &key[..40]), "the key is in it");
    let folder = tempfile::tempdir().unwrap();
    let refused = restore(&elsewhere(folder.path()), &file, Replacing::Refused).await;
    assert!(matches!(refused, Err(BackupError::Store(StoreError::KeyMissing { .. }))), "{refused:?}");
    let other = Fresh::file();
    other.open().await.close().await;
    fs::copy(other.folder().join("gateway.key"), folder.path().join("gateway.key")).unwrap();
    let refused = restore(&elsewhere(folder.path()), &file, Replacing::Refused).await;
    assert!(matches!(refused, Err(BackupError::Store(StoreError::KeyWrong { .. }))), "{refused:?}");
    assert_eq!(names(folder.path()), ["gateway.key", "restored.db.lock"]);
    fs::write(folder.path().join("gateway.key"), key).unwrap();
    restore(&elsewhere(folder.path()), &file, Replacing::Refused).await.unwrap();
    fresh.remove().await;
    other.remove().await;
}

async fn join(store: &Store) -> Incarnation {
    let new = NewReplica {
        peer_url: "https://one.example:1",
        version: "0.1.0",
        zone: "localhost",
        public_url: "http://localhost",
        lease: std::time::Duration::from_secs(60),
    };
    store.add_replica(&new).await.unwrap().unwrap()
}

fn session() -> KeptSession {
    KeptSession {
        id: gateway_types::opaque::Digest::from_bytes([7; 32]),
        user: user("ann"),
        of: None,
        provider: None,
        peer: "2001:db8::1".parse().unwrap(),
        opened_at: NOW,
        used_at: NOW,
    }
}

#[tokio::test]
async fn restored_database_gives_out_no_number_again_and_has_no_sign_ins() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        let owner = join(&store).await;
        let claim =
            SessionClaim { key: SessionKey::Workspace(WorkspaceId(7)), instance: 3, known: None, is_late: false };
        let claimed = store.claim_sessions(owner, &[claim]).await.unwrap().unwrap();
        let crate::ClaimResult::Owned { generation: before, .. } = claimed[0] else { panic!("{claimed:?}") };
        let begun = gateway_types::sign_in_rows::SessionChange::Begun(Box::new(session()));
        store.keep_browser_sessions(None, &[begun]).await.unwrap();
        assert_eq!(store.settle_restored().await.unwrap(), 1);
        assert_eq!(store.replicas().await.unwrap(), []);
        let next = join(&store).await;
        assert!(next.get() > owner.get() + 1_000_000, "{next} {owner}");
        // An agent whose seal does not open, and which has seen generations after the backup.
        let claimed = store.claim_sessions(next, &[claim]).await.unwrap().unwrap();
        let crate::ClaimResult::Owned { generation, .. } = claimed[0] else { panic!("{claimed:?}") };
        assert!(generation > before + 1_000_000, "{generation}");
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn backup_has_the_database_of_a_file_and_of_a_server_only_the_keys_which_come_back() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        let file = back_up(fresh, "keys.backup").await;
        assert_eq!(check(&file).unwrap().schema.is_none(), fresh.is_on_server());
        if !fresh.is_on_server() {
            store.close().await;
            return;
        }
        let key = fs::read(fresh.folder().join("gateway.key")).unwrap();
        fs::remove_file(fresh.folder().join("gateway.key")).unwrap();
        let replica = join(&store).await;
        let used = restore(&fresh.config, &file, Replacing::Refused).await;
        assert!(matches!(used, Err(BackupError::InUse { .. })), "{used:?}");
        store.end_replica(replica).await.unwrap();
        restore(&fresh.config, &file, Replacing::Refused).await.unwrap();
        assert_eq!(fs::read(fresh.folder().join("gateway.key")).unwrap(), key);
        store.close().await;
    })
    .await;
}
