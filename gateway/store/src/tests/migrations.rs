//! Changes of the schema.

use super::super::database::{Pool, sql, sql_of};
use super::super::each::Fresh;
use super::super::migrate::{ADDITIVE, STEPS, SchemaVersion, migrate_to};
use super::*;

/// Brings a database to what a later program would make of it.
async fn migrate_further(store: &Store, sql: &'static str) -> Result<(), StoreError> {
    let mut later = STEPS.clone();
    later.push(SchemaVersion::new(newest() + 1, "later", sql, sql));
    migrate_to(&later, &store.writer).await
}

/// Returns the newest schema that this program knows.
fn newest() -> i64 {
    STEPS.last().unwrap().version()
}

async fn count_tables(store: &Store, name: &str) -> i64 {
    let statement = sql_of(
        "SELECT count(*) AS found FROM sqlite_schema WHERE type = 'table' AND name = $1",
        "SELECT count(*) AS found FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1",
    );
    statement.bind(name).fetch_one(&store.readers).await.unwrap().get("found").unwrap()
}

#[tokio::test]
async fn database_of_a_newer_program_is_refused_and_left_alone() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        migrate_further(&store, "CREATE TABLE later (id INTEGER)").await.unwrap();
        let refused = Store::open_with(&fresh.config).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::Newer { found, known } if (found, known) == (newest() + 1, newest())),
            "{refused:?}"
        );
        assert_eq!(count_tables(&store, "later").await, 1);
        store.close().await;
    })
    .await;
    let newer = StoreError::Newer { found: 2, known: 1 };
    insta::assert_snapshot!(newer, @"the database has schema 2, made by a newer version of this program, and this one knows up to 1: run the newer version, or use another database");
}

#[tokio::test]
async fn database_of_the_next_version_is_used_if_all_that_it_has_more_is_additive() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        let text = "ALTER TABLE workspaces ADD COLUMN later BIGINT NULL";
        let text_of_sqlite = "ALTER TABLE workspaces ADD COLUMN later INTEGER NULL";
        let mut later = STEPS.clone();
        later.push(SchemaVersion::new(newest() + 1, "later (additive)", text_of_sqlite, text));
        migrate_to(&later, &store.writer).await.unwrap();
        let before = fresh.open().await;
        conformance(&before).await;
        before.close().await;
        later.push(SchemaVersion::new(newest() + 2, "later still", "DROP TABLE shares", "DROP TABLE shares"));
        migrate_to(&later, &store.writer).await.unwrap();
        let refused = Store::open_with(&fresh.config).await.unwrap_err();
        assert!(matches!(refused, StoreError::Newer { found, .. } if found == newest() + 2), "{refused:?}");
        store.close().await;
    })
    .await;
}

/// Versions that take something away or demand something new, with what an earlier program made of them.
const NOT_ADDITIVE: [(i64, &str); 1] = [(6, "tokens got clusters as subjects; before the first release")];

/// Newest version of the schema from before versions said that they are additive.
const UNMARKED: i64 = 25;

/// Returns the part of a migration that an earlier program would trip over.
fn stumbling_block(text: &str) -> Option<String> {
    let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let words: Vec<String> =
        lines.flat_map(str::split_whitespace).map(|word| word.trim_matches([';', ',']).to_ascii_uppercase()).collect();
    let text = words.join(" ");
    for bad in ["DROP ", "RENAME ", "ALTER COLUMN", "SET NOT NULL", "ADD CONSTRAINT", "TRUNCATE "] {
        if text.contains(bad) {
            return Some(bad.to_owned());
        }
    }
    let added = text.split("ADD COLUMN ").skip(1).map(|rest| rest.split(" ALTER ").next().unwrap_or_default());
    let mut demanding = added.map(|rest| rest.split(" CREATE ").next().unwrap_or_default());
    demanding.find(|rest| rest.contains("NOT NULL") && !rest.contains("DEFAULT")).map(str::to_owned)
}

#[test]
fn each_migration_is_additive_or_listed_with_a_reason() {
    for (text, is_good) in [
        ("ALTER TABLE a ADD COLUMN b TEXT NULL; CREATE TABLE c (d TEXT NOT NULL)", true),
        ("ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT ''", true),
        ("ALTER TABLE a ADD COLUMN b TEXT NOT NULL", false),
        ("-- to drop it\nCREATE TABLE a (b TEXT)", true),
        ("alter table a rename to b", false),
        ("DROP INDEX a", false),
    ] {
        assert_eq!(stumbling_block(text).is_none(), is_good, "{text}");
    }
    for step in STEPS.iter() {
        let version = step.version();
        let blocks: Vec<_> = step.texts().into_iter().filter_map(stumbling_block).collect();
        let is_listed = NOT_ADDITIVE.iter().any(|(listed, _)| *listed == version);
        assert_eq!(is_listed, !blocks.is_empty(), "version {version}: {blocks:?}");
        if version > UNMARKED {
            assert_eq!(step.description().ends_with(ADDITIVE), !is_listed, "version {version}: its description");
        }
    }
}

#[tokio::test]
async fn migration_that_fails_changes_nothing() {
    each(async |store| {
        let failed = migrate_further(store, "CREATE TABLE half (id INTEGER); SELECT no_such_function()").await;
        assert!(matches!(failed, Err(StoreError::Migrate(_))), "{failed:?}");
        assert_eq!(count_tables(store, "half").await, 0);
        conformance(store).await;
    })
    .await;
}

#[tokio::test]
async fn migration_that_was_edited_after_release_is_refused() {
    each(async |store| {
        let mut edited = STEPS.clone();
        let text = "CREATE TABLE other (id INTEGER)";
        edited[0] = SchemaVersion::new(1, "workspaces and tokens", text, text);
        let refused = migrate_to(&edited, &store.writer).await;
        assert!(matches!(refused, Err(StoreError::Migrate(_))), "{refused:?}");
    })
    .await;
}

/// Makes a database as the program before managed workspaces left it.
async fn before_lifecycles(fresh: &Fresh) -> Pool {
    let writer = Pool::new(Store::connect(&fresh.config).await.unwrap().0, Availability::default());
    migrate_to(&STEPS[..5], &writer).await.unwrap();
    sql("INSERT INTO workspaces (id, name, owner, executor, created_at) VALUES (7, 'app', 'ann', 'external', 1)")
        .execute(&writer)
        .await
        .unwrap();
    let agent = (Some(7_i64), None);
    for (id, kind, (workspace, owner), hint, ends, note) in [
        (3_i64, "agent", agent, "abcd", None, Some("n")),
        (4, "agent", agent, "efgh", Some((90, 80)), None),
        (5, "user", (None, Some("ann")), "ijkl", None, None),
    ] {
        let hash = [u8::try_from(id).unwrap(); 32];
        let statement = "INSERT INTO tokens (id, kind, workspace_id, user_name, hash, hint, created_at, expires_at, \
             revoked_at, note) VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9)";
        let statement = sql(statement).bind(id).bind(kind).bind(workspace).bind(owner).bind(hash.as_slice()).bind(hint);
        let (expires_at, revoked_at): (Option<i64>, Option<i64>) = ends.unzip();
        statement.bind(expires_at).bind(revoked_at).bind(note).execute(&writer).await.unwrap();
    }
    sql("UPDATE tokens SET replaced_by = 7 - id WHERE kind = 'agent'").execute(&writer).await.unwrap();
    writer
}

#[tokio::test]
async fn tokens_of_a_database_from_before_clusters_stay_as_they_were() {
    each_fresh(async |fresh| {
        before_lifecycles(fresh).await.close().await;
        let store = fresh.open().await;
        let tokens = store.list_tokens().await.unwrap();
        let seen: Vec<_> = tokens.iter().map(|token| (token.id.to_string(), token.hint.as_str())).collect();
        assert_eq!(seen, [("t-3".into(), "abcd"), ("t-4".into(), "efgh"), ("t-5".into(), "ijkl")]);
        assert_eq!((tokens[0].replaced_by, tokens[1].replaced_by), (Some(tokens[1].id), Some(tokens[0].id)));
        assert_eq!((tokens[1].expires_at, tokens[1].revoked_at), (Some(at(90)), Some(at(80))));
        assert_eq!(tokens[0].note.as_ref().map(Note::as_str), Some("n"));
        for (number, token) in (3..).zip(&tokens) {
            assert_eq!(store.token_by_hash(&[number; 32]).await.unwrap().as_ref(), Some(token));
        }
        // Rows still point to each other, and clusters can have tokens now.
        assert!(sql("UPDATE tokens SET replaced_by = 99 WHERE id = 3").execute(&store.writer).await.is_err());
        store.create_cluster_token_with(&"west".parse().unwrap(), &Terms::default(), at(9)).await.unwrap();
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn workspaces_of_a_database_from_before_templates_were_made_from_none() {
    each_fresh(async |fresh| {
        let writer = Pool::new(Store::connect(&fresh.config).await.unwrap().0, Availability::default());
        let before = STEPS.iter().position(|step| step.version() == 25).unwrap();
        migrate_to(&STEPS[..before], &writer).await.unwrap();
        for statement in [
            "INSERT INTO workspaces (id, name, owner, executor, created_at) VALUES (7, 'app', 'ann', 'kubernetes', 1)",
            "INSERT INTO lifecycles (workspace_id, desired, actual, generation, desired_at, actual_at, revision) \
             VALUES (7, 'Running', 'Running', 1, 1, 1, 1)",
            "INSERT INTO clusters (id, name, created_at) VALUES (3, 'one', 1)",
            "INSERT INTO cluster_configs (cluster_id, version, config, created_at) VALUES (3, 1, '{}', 1)",
            "INSERT INTO kubernetes_workspaces (workspace_id, cluster_id, config_version, namespace) VALUES (7, 3, 1, 'ws-app')",
        ] {
            sql(statement).execute(&writer).await.unwrap();
        }
        writer.close().await;
        let store = fresh.open().await;
        let found = store.managed(&"app".parse().unwrap()).await.unwrap().unwrap();
        let state = found.kubernetes().unwrap();
        assert_eq!((state.namespace.as_str(), &state.template), ("ws-app", &None));
        store.close().await;
    })
    .await;
}
