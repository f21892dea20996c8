//! One body of law for every kind of database, and what only files have.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::auth::token::TokenKind;
use crate::model::{UnixSeconds, UserName};

/// A directory of its own, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gateway-store-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("gateway.db")
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.file().display())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

fn workspace(name: &str) -> WorkspaceName {
    name.parse().unwrap()
}

/// What every database must do.
async fn conformance(store: &Store) {
    let (alice, bob, app) = (user("alice"), user("bob"), workspace("app"));
    assert_eq!(store.workspace(&app).await.unwrap(), None);
    assert_eq!(store.list_tokens().await.unwrap(), []);
    assert_eq!(store.token_by_hash(&[0; 32]).await.unwrap(), None);

    // The first agent token makes the workspace, a second one finds it.
    let first = store.create_agent_token(&app, &alice, at(10)).await.unwrap();
    let second = store.create_agent_token(&app, &alice, at(11)).await.unwrap();
    let made = store.workspace(&app).await.unwrap().unwrap();
    assert_eq!((made.name.as_str(), made.owner.as_str(), made.created_at), ("app", "alice", at(10)));
    assert_eq!(made.executor, Executor::External);
    assert_ne!((first.id, first.token.hash()), (second.id, second.token.hash()));

    // Somebody else's workspace is refused, and nothing is stored.
    let refused = store.create_agent_token(&app, &bob, at(12)).await;
    assert!(matches!(refused, Err(StoreError::OtherOwner(name)) if name == app));
    assert_eq!(store.list_tokens().await.unwrap().len(), 2);

    let of_bob = store.create_user_token(&bob, at(13)).await.unwrap();
    store.create_agent_token(&workspace("aaa"), &alice, at(14)).await.unwrap();
    let names = |found: Vec<Workspace>| found.iter().map(|found| found.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(store.workspaces_of(&alice).await.unwrap()), ["aaa", "app"]);
    assert_eq!(store.workspaces_of(&bob).await.unwrap(), []);

    // A token is found by its hash, with its subject.
    let found = store.token_by_hash(&first.token.hash()).await.unwrap().unwrap();
    let subject = TokenSubject::Agent { workspace_id: made.id, workspace: app.clone() };
    assert_eq!((found.id, &found.subject, found.created_at), (first.id, &subject, at(10)));
    assert_eq!((found.hint.as_str(), found.expires_at, found.revoked_at), (first.token.hint(), None, None));
    let found = store.token_by_hash(&of_bob.token.hash()).await.unwrap().unwrap();
    assert_eq!((found.subject.kind(), found.subject), (TokenKind::User, TokenSubject::User { user: bob }));

    // Revoking tells whether there is such a token; the first time counts; others are left alone.
    assert!(store.revoke_token(first.id, at(20)).await.unwrap());
    assert!(store.revoke_token(first.id, at(30)).await.unwrap());
    assert!(!store.revoke_token("t-999".parse().unwrap(), at(20)).await.unwrap());
    let found = store.token_by_hash(&first.token.hash()).await.unwrap().unwrap();
    assert_eq!((found.revoked_at, found.is_live(at(5))), (Some(at(20)), false));
    assert!(store.token_by_hash(&second.token.hash()).await.unwrap().unwrap().is_live(at(40)));

    let ids: Vec<TokenId> = store.list_tokens().await.unwrap().iter().map(|record| record.id).collect();
    assert_eq!(ids.len(), 4);
    assert_eq!(ids[..2], [first.id, second.id]);
}

#[tokio::test]
async fn database_in_memory_conforms() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    conformance(&store).await;
}

#[tokio::test]
async fn database_in_a_file_conforms_and_is_there_after_reopening() {
    let directory = TempDir::new("conforms");
    let store = Store::open(&directory.url()).await.unwrap();
    conformance(&store).await;
    store.close().await;
    let store = Store::open(&directory.url()).await.unwrap();
    assert_eq!(store.list_tokens().await.unwrap().len(), 4);
    store.close().await;
}

#[tokio::test]
async fn two_databases_in_memory_share_nothing() {
    let (one, other) = (Store::open("sqlite::memory:").await.unwrap(), Store::open("sqlite::memory:").await.unwrap());
    one.create_user_token(&user("alice"), at(1)).await.unwrap();
    assert_eq!(other.list_tokens().await.unwrap(), []);
}

#[tokio::test]
async fn file_is_private_and_has_the_pragmas() {
    let directory = TempDir::new("pragmas");
    let store = Store::open(&directory.url()).await.unwrap();
    for pool in [&store.writer, &store.readers] {
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(pool).await.unwrap();
        let keys: i64 = sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(pool).await.unwrap();
        let busy: i64 = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(pool).await.unwrap();
        assert_eq!((mode.as_str(), keys, busy), ("wal", 1, 5000));
    }
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&store.writer).await.unwrap();
    assert_eq!(synchronous, 1, "NORMAL");
    assert!(sqlx::query("DELETE FROM tokens").execute(&store.readers).await.is_err(), "readers cannot write");
    #[cfg(unix)]
    for name in ["gateway.db", "gateway.db-wal", "gateway.db-shm"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(directory.0.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_open_and_write_one_new_file_at_once_all_succeed() {
    let directory = TempDir::new("at-once");
    let mut programs = tokio::task::JoinSet::new();
    for number in 0..8 {
        let url = directory.url();
        programs.spawn(async move {
            let store = Store::open(&url).await.unwrap();
            for _ in 0..5 {
                store.create_agent_token(&workspace("app"), &user("alice"), at(number)).await.unwrap();
                assert!(!store.list_tokens().await.unwrap().is_empty());
            }
            store.close().await;
        });
    }
    while let Some(ended) = programs.join_next().await {
        ended.unwrap();
    }
    let store = Store::open(&directory.url()).await.unwrap();
    assert_eq!(store.list_tokens().await.unwrap().len(), 40);
    assert_eq!(store.workspaces_of(&user("alice")).await.unwrap().len(), 1);
    store.close().await;
}

#[tokio::test]
async fn write_that_begins_by_reading_lets_no_other_program_write_in_between() {
    let directory = TempDir::new("in-between");
    let (one, other) = (Store::open(&directory.url()).await.unwrap(), Store::open(&directory.url()).await.unwrap());
    sqlx::query("PRAGMA busy_timeout = 0").execute(&other.writer).await.unwrap();
    let mut transaction = one.writer.begin_with(sqlite::BEGIN_WRITE).await.unwrap();
    sqlx::query("SELECT id FROM tokens").fetch_all(&mut *transaction).await.unwrap();
    assert!(other.create_user_token(&user("bob"), at(1)).await.is_err(), "has to wait");
    assert_eq!(other.list_tokens().await.unwrap(), [], "reading goes on");
    sqlx::query("UPDATE tokens SET revoked_at = 1").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    other.create_user_token(&user("bob"), at(1)).await.unwrap();
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn abandoned_write_leaves_the_database_usable() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let mut transaction = store.writer.begin_with(sqlite::BEGIN_WRITE).await.unwrap();
    sqlx::query("INSERT INTO workspaces (name, owner, executor, created_at) VALUES ('app', 'x', 'external', 1)")
        .execute(&mut *transaction)
        .await
        .unwrap();
    drop(transaction);
    conformance(&store).await;
}

#[tokio::test]
async fn share_is_seen_until_it_is_taken_back_and_replaces_its_like() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let (name, ann) = ("app".parse().unwrap(), user("ann"));
    let port = crate::model::Port::new(80).unwrap();
    let share = |audience: &str, until: Option<i64>| crate::model::Share {
        port,
        audience: audience.parse().unwrap(),
        expires_at: until.map(at),
    };
    assert!(!store.share(&name, &share("public", None), &ann, at(1)).await.unwrap(), "there is no workspace yet");
    store.create_agent_token(&name, &ann, at(1)).await.unwrap();
    for audience in ["public", "user:bob", "group:devs", "signed-in"] {
        assert!(store.share(&name, &share(audience, None), &ann, at(1)).await.unwrap());
    }
    assert!(store.share(&name, &share("public", Some(10)), &ann, at(2)).await.unwrap());
    let shares = store.workspace(&name).await.unwrap().unwrap().shares;
    let expected =
        [share("group:devs", None), share("public", Some(10)), share("signed-in", None), share("user:bob", None)];
    assert_eq!(*shares, expected);
    assert_eq!(store.public_ports(at(9)).await.unwrap(), [(name.clone(), port)]);
    assert_eq!(store.public_ports(at(10)).await.unwrap(), []);
    assert!(store.unshare(&name, port, &"user:bob".parse().unwrap()).await.unwrap());
    assert!(!store.unshare(&name, port, &"user:bob".parse().unwrap()).await.unwrap());
    // What has expired goes with the next change.
    assert!(store.share(&name, &share("signed-in", None), &ann, at(10)).await.unwrap());
    let shares = store.workspace(&name).await.unwrap().unwrap().shares;
    assert_eq!(*shares, [share("group:devs", None), share("signed-in", None)]);
}

fn of_port(port: u16, audience: &str, until: Option<i64>) -> crate::model::Share {
    let port = crate::model::Port::new(port).unwrap();
    crate::model::Share { port, audience: audience.parse().unwrap(), expires_at: until.map(at) }
}

#[tokio::test]
async fn shares_are_replaced_as_a_whole_by_the_owner_only_and_what_stays_keeps_its_maker() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let (name, ann, bob) = (workspace("app"), user("ann"), user("bob"));
    store.create_agent_token(&name, &ann, at(1)).await.unwrap();
    store.share(&name, &of_port(80, "public", None), &bob, at(2)).await.unwrap();
    store.share(&name, &of_port(81, "public", Some(5)), &bob, at(2)).await.unwrap();
    let wanted = [of_port(80, "public", None), of_port(82, "user:bob", Some(90))];
    let refused = store.replace_shares((&name, &bob), &wanted, |_| true, at(10)).await.unwrap();
    assert_eq!(refused, Replaced::NoSuchWorkspace, "it is not bob's");
    let changed = store.replace_shares((&name, &ann), &wanted, |_| false, at(10)).await.unwrap();
    assert_eq!(changed, Replaced::Changed);
    let seen = |shares: &[crate::model::Share]| shares == [of_port(80, "public", None)];
    let done = store.replace_shares((&name, &ann), &wanted, seen, at(10)).await.unwrap();
    let before = vec![of_port(80, "public", None)];
    assert_eq!(done, Replaced::Done { before, after: wanted.to_vec() }, "what had expired was not there any more");
    let makers = sqlx::query_scalar::<_, String>("SELECT created_by FROM shares ORDER BY port");
    assert_eq!(makers.fetch_all(&store.readers).await.unwrap(), ["bob", "ann"]);
    assert_eq!(*store.workspace_or_none(&name).await.unwrap().unwrap().shares, wanted);
    assert_eq!(store.workspace_or_none(&workspace("absent")).await.unwrap(), None);
}

#[tokio::test]
async fn workspaces_are_listed_for_owner_named_and_group_while_it_lasts() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let ann = user("ann");
    for (name, audience, until) in
        [("c", "user:bob", None), ("b", "group:devs", Some(10)), ("e", "signed-in", None), ("d", "public", None)]
    {
        store.create_agent_token(&workspace(name), &ann, at(1)).await.unwrap();
        store.share(&workspace(name), &of_port(80, audience, until), &ann, at(1)).await.unwrap();
    }
    store.create_agent_token(&workspace("a"), &user("bob"), at(1)).await.unwrap();
    let names = async |groups: &[&str], after: Option<&str>, limit, now| {
        let groups: Vec<crate::model::GroupName> = groups.iter().map(|group| group.parse().unwrap()).collect();
        let after = after.map(workspace);
        let part = Listed { after: after.as_ref(), limit };
        let found = store.workspaces_seen_by(&user("bob"), &groups, part, at(now)).await.unwrap();
        found.iter().map(|workspace| workspace.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["devs", "x"], None, 9, 9).await, ["a", "b", "c"]);
    assert_eq!(names(&["devs"], None, 9, 10).await, ["a", "c"], "the group's share has expired");
    assert_eq!(names(&["devs"], Some("a"), 1, 9).await, ["b"]);
    assert_eq!(names(&[], Some("c"), 9, 9).await, [""; 0]);
    assert_eq!(store.workspaces_seen_by(&user("eve"), &[], Listed { after: None, limit: 9 }, at(1)).await.unwrap(), []);
}

#[tokio::test]
async fn own_tokens_are_made_listed_rotated_and_revoked_and_nobody_elses() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let (ann, bob, app) = (user("ann"), user("bob"), workspace("app"));
    store.create_agent_token(&app, &ann, at(1)).await.unwrap();
    let terms = Terms { note: "n".parse().ok(), expires_at: Some(at(100)) };
    let none = store.create_own_agent_token(&app, &bob, &terms, at(1)).await.unwrap();
    assert!(matches!(none, Created::NoSuchWorkspace), "{none:?}");
    let Created::Made(agents) = store.create_own_agent_token(&app, &ann, &terms, at(1)).await.unwrap() else {
        panic!("it is hers")
    };
    let Created::Made(own) = store.create_own_user_token(&ann, &Terms::default(), at(1)).await.unwrap() else {
        panic!("room")
    };
    let listed = store.tokens_of(&ann, None, 9).await.unwrap();
    assert_eq!(listed.iter().map(|token| token.id.to_string()).collect::<Vec<_>>(), ["t-1", "t-2", "t-3"]);
    assert_eq!((listed[1].note.clone(), listed[1].expires_at), (terms.note.clone(), Some(at(100))));
    assert_eq!(store.tokens_of(&ann, Some(listed[1].id), 9).await.unwrap(), listed[2..]);
    assert_eq!(store.tokens_of(&bob, None, 9).await.unwrap(), []);

    assert_eq!(store.revoke_own_token(&bob, agents.id, at(5)).await.unwrap(), None);
    let refused = store.rotate_token(Some(&bob), agents.id, (Duration::ZERO, None), at(5)).await.unwrap();
    assert!(matches!(refused, Rotated::NoSuchToken), "{refused:?}");
    let overlap = (Duration::from_secs(10), None);
    let rotated = store.rotate_token(Some(&ann), agents.id, overlap, at(50)).await.unwrap();
    let Rotated::Done { successor, expires_at, until, old_hash } = rotated else { panic!("{rotated:?}") };
    assert_eq!((expires_at, until, old_hash), (Some(at(149)), at(60), agents.token.hash()));
    let kept = store.token_by_hash(&successor.token.hash()).await.unwrap().unwrap();
    assert_eq!((kept.note, kept.expires_at, kept.subject), (terms.note, Some(at(149)), listed[1].subject.clone()));
    let again = store.rotate_token(Some(&ann), agents.id, overlap, at(51)).await.unwrap();
    assert!(matches!(again, Rotated::NotLive), "{again:?}");

    assert_eq!(store.revoke_own_token(&ann, own.id, at(70)).await.unwrap(), Some(own.token.hash()));
    let all = [agents.id, own.id, successor.id, listed[0].id, "t-99".parse().unwrap()];
    let ended = store.ended_tokens(&all, at(70)).await.unwrap();
    assert_eq!(ended, [(agents.id, false), (own.id, true), ("t-99".parse().unwrap(), true)]);
    assert_eq!(store.ended_tokens(&[], at(70)).await.unwrap(), []);
}

/// Brings a database to what a later program would make of it.
async fn migrate_further(store: &Store, sql: &'static str) -> Result<(), StoreError> {
    let mut later = sqlite::MIGRATIONS.clone();
    later.push(sqlite::migration(newest() + 1, "later", sql));
    sqlite::migrate_to(&later, &store.writer).await
}

/// Returns the newest schema that this program knows.
fn newest() -> i64 {
    sqlite::MIGRATIONS.last().expect("there are migrations").version
}

#[tokio::test]
async fn database_of_a_newer_program_is_refused_and_left_alone() {
    let directory = TempDir::new("newer");
    let store = Store::open(&directory.url()).await.unwrap();
    migrate_further(&store, "CREATE TABLE later (id INTEGER) STRICT").await.unwrap();
    let refused = Store::open(&directory.url()).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { found, known } if (found, known) == (newest() + 1, newest())),
        "{refused:?}"
    );
    let newer = StoreError::Newer { found: 2, known: 1 };
    insta::assert_snapshot!(newer, @"the database has schema 2, made by a newer version of this program, and this one knows up to 1: run the newer version, or use another database");
    assert_eq!(count_tables(&store, "later").await, 1);
    store.close().await;
}

#[tokio::test]
async fn migration_that_fails_changes_nothing() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let failed = migrate_further(&store, "CREATE TABLE half (id INTEGER) STRICT; SELECT no_such_function()").await;
    assert!(matches!(failed, Err(StoreError::Migrate(_))), "{failed:?}");
    assert_eq!(count_tables(&store, "half").await, 0);
    conformance(&store).await;
}

#[tokio::test]
async fn migration_that_was_edited_after_release_is_refused() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let mut edited = sqlite::MIGRATIONS.clone();
    edited[0] = sqlite::migration(1, "workspaces and tokens", "CREATE TABLE other (id INTEGER) STRICT");
    let refused = sqlite::migrate_to(&edited, &store.writer).await;
    assert!(matches!(refused, Err(StoreError::Migrate(_))), "{refused:?}");
}

/// An agent or a user who hangs up cancels the look-up that was made for them, wherever it is.
#[tokio::test]
async fn database_in_memory_survives_cancelled_lookups() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    for polls in 0..200 {
        let mut lookup = std::pin::pin!(store.token_by_hash(&[0; 32]));
        for _ in 0..polls % 20 {
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            if lookup.as_mut().poll(context).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(count_tables(&store, "workspaces").await, 1);
    conformance(&store).await;
}

async fn count_tables(store: &Store, name: &str) -> i64 {
    let statement = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?";
    sqlx::query_scalar(statement).bind(name).fetch_one(&store.readers).await.unwrap()
}

#[tokio::test]
async fn stored_value_that_cannot_be_is_an_error_and_not_a_panic() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    store.create_agent_token(&workspace("app"), &user("alice"), at(1)).await.unwrap();
    sqlx::query("UPDATE workspaces SET executor = 'martian'").execute(&store.writer).await.unwrap();
    let error = store.workspace(&workspace("app")).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { table: "workspaces", column: "executor" }), "{error:?}");
}

#[tokio::test]
async fn open_says_which_file_or_url_is_wrong() {
    let error = Store::open("sqlite:///no/such/directory/gateway.db").await.unwrap_err();
    assert_eq!(error.to_string(), "cannot open the database /no/such/directory/gateway.db");
    assert!(matches!(Store::open("postgres://h/db").await, Err(StoreError::Url(BadStoreUrl::Scheme))));
    let directory = TempDir::new("not-a-database");
    std::fs::write(directory.file(), "this is a text file, and not a short one: it has more than a header").unwrap();
    assert!(matches!(Store::open(&directory.url()).await, Err(StoreError::Open { .. })));
}

#[test]
fn futures_can_move_between_threads() {
    fn check<T: Send>(_: impl FnOnce(&'static Store) -> T) {}
    check(|_| Store::open("sqlite::memory:"));
    check(|store| store.token_by_hash(&[0; 32]));
    check(|store| store.list_tokens());
    check(|store| store.revoke_token(TokenId(1), at(0)));
    check(|store| async { store.create_user_token(&user("a"), at(0)).await.map(|made| made.id) });
    check(|store| async { store.create_agent_token(&workspace("a"), &user("a"), at(0)).await.map(|made| made.id) });
    check(|store| async { store.workspaces_of(&user("a")).await.map(|found| found.len()) });
    check(|store| async { store.workspace(&workspace("a")).await.map(|found| found.is_some()) });
}
