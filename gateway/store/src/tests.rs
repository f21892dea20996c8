//! One body of law for every kind of database. What only files, only servers and changes of the schema have is below.

use std::time::Duration;

use super::database::sql;
use super::each::{each, each_fresh, warm};
use super::*;
use gateway_types::token::TokenKind;
use gateway_types::{ClusterName, UnixSeconds, UserName};

mod migrations;
mod postgres;
mod sqlite;

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
async fn database_conforms() {
    each(conformance).await;
}

#[tokio::test]
async fn database_is_there_after_reopening() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        conformance(&store).await;
        store.close().await;
        let store = fresh.open().await;
        assert_eq!(store.list_tokens().await.unwrap().len(), 4);
        store.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_open_and_write_one_new_database_at_once_all_succeed() {
    each_fresh(async |fresh| {
        let mut programs = tokio::task::JoinSet::new();
        for number in 0..8 {
            let config = fresh.config.clone();
            programs.spawn(async move {
                let store = Store::open_with(&config).await.unwrap();
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
        let store = fresh.open().await;
        assert_eq!(store.list_tokens().await.unwrap().len(), 40);
        assert_eq!(store.workspaces_of(&user("alice")).await.unwrap().len(), 1);
        store.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_tokens_holds_for_those_who_ask_at_once() {
    Box::pin(each_fresh(async |fresh| {
        let (one, other) = (fresh.open().await, fresh.open().await);
        let ask = async |store: &Store| match store.create_own_user_token(&user("ann"), &Terms::default(), at(1)).await
        {
            Ok(TokenCreation::Made(made)) => Some(made.id),
            Ok(TokenCreation::TooMany) => None,
            other => panic!("{other:?}"),
        };
        for _ in 1..TOKENS_LIVE_MAX {
            ask(&one).await.unwrap();
        }
        warm(&one).await;
        warm(&other).await;
        // Who wins the race is chance, so there are several.
        for _ in 0..10 {
            let asked = tokio::join!(ask(&one), ask(&other), ask(&one), ask(&other), ask(&one), ask(&other));
            let made: Vec<TokenId> =
                [asked.0, asked.1, asked.2, asked.3, asked.4, asked.5].into_iter().flatten().collect();
            assert_eq!(made.len(), 1, "one was left");
            one.revoke_token(made[0], at(1)).await.unwrap();
        }
        one.close().await;
        other.close().await;
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_write_leaves_the_database_usable() {
    each(async |store| {
        let mut transaction = store.write(About::Users).await.unwrap();
        sql("INSERT INTO workspaces (name, owner, executor, created_at) VALUES ('app', 'x', 'external', 1)")
            .execute(&mut transaction)
            .await
            .unwrap();
        drop(transaction);
        conformance(store).await;
    })
    .await;
}

/// An agent or a user who hangs up cancels the look-up that was made for them, wherever it is.
#[tokio::test]
async fn database_survives_cancelled_lookups() {
    each(async |store| {
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
        conformance(store).await;
    })
    .await;
}

#[tokio::test]
async fn share_is_seen_until_it_is_taken_back_and_replaces_its_like() {
    each(async |store| {
        let (name, ann) = ("app".parse().unwrap(), user("ann"));
        let port = gateway_types::Port::new(80).unwrap();
        let share = |audience: &str, until: Option<i64>| gateway_types::Share {
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
    })
    .await;
}

fn of_port(port: u16, audience: &str, until: Option<i64>) -> gateway_types::Share {
    let port = gateway_types::Port::new(port).unwrap();
    gateway_types::Share { port, audience: audience.parse().unwrap(), expires_at: until.map(at) }
}

#[tokio::test]
async fn shares_are_replaced_as_a_whole_by_the_owner_only_and_what_stays_keeps_its_maker() {
    each(async |store| {
        let (name, ann, bob) = (workspace("app"), user("ann"), user("bob"));
        store.create_agent_token(&name, &ann, at(1)).await.unwrap();
        store.share(&name, &of_port(80, "public", None), &bob, at(2)).await.unwrap();
        store.share(&name, &of_port(81, "public", Some(5)), &bob, at(2)).await.unwrap();
        let wanted = [of_port(80, "public", None), of_port(82, "user:bob", Some(90))];
        let refused = store.replace_shares(&name, &bob, &wanted, |_| true, at(10)).await.unwrap();
        assert_eq!(refused, ShareReplacement::NoSuchWorkspace, "it is not bob's");
        let changed = store.replace_shares(&name, &ann, &wanted, |_| false, at(10)).await.unwrap();
        assert_eq!(changed, ShareReplacement::Changed);
        let seen = |shares: &[gateway_types::Share]| shares == [of_port(80, "public", None)];
        let done = store.replace_shares(&name, &ann, &wanted, seen, at(10)).await.unwrap();
        let before = vec![of_port(80, "public", None)];
        assert_eq!(
            done,
            ShareReplacement::Done { before, after: wanted.to_vec() },
            "what had expired was not there any more"
        );
        let makers = sql("SELECT created_by FROM shares ORDER BY port").fetch_all(&store.readers).await.unwrap();
        let makers: Vec<&str> = makers.iter().map(|row| row.get("created_by").unwrap()).collect();
        assert_eq!(makers, ["bob", "ann"]);
        assert_eq!(*store.workspace_or_none(&name).await.unwrap().unwrap().shares, wanted);
        assert_eq!(store.workspace_or_none(&workspace("absent")).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn workspaces_are_listed_for_owner_named_and_group_while_it_lasts() {
    each(async |store| {
        let ann = user("ann");
        for (name, audience, until) in
            [("c", "user:bob", None), ("b", "group:devs", Some(10)), ("e", "signed-in", None), ("d", "public", None)]
        {
            store.create_agent_token(&workspace(name), &ann, at(1)).await.unwrap();
            store.share(&workspace(name), &of_port(80, audience, until), &ann, at(1)).await.unwrap();
        }
        store.create_agent_token(&workspace("a"), &user("bob"), at(1)).await.unwrap();
        let names = async |groups: &[&str], after: Option<&str>, limit, now| {
            let groups: Vec<gateway_types::GroupName> = groups.iter().map(|group| group.parse().unwrap()).collect();
            let after = after.map(workspace);
            let part = ListPage { after: after.as_ref(), limit };
            let found = store.workspaces_seen_by(&user("bob"), &groups, part, at(now)).await.unwrap();
            found.iter().map(|workspace| workspace.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["devs", "x"], None, 9, 9).await, ["a", "b", "c"]);
        assert_eq!(names(&["devs"], None, 9, 10).await, ["a", "c"], "the group's share has expired");
        assert_eq!(names(&["devs"], Some("a"), 1, 9).await, ["b"]);
        assert_eq!(names(&[], Some("c"), 9, 9).await, [""; 0]);
        assert_eq!(
            store.workspaces_seen_by(&user("eve"), &[], ListPage { after: None, limit: 9 }, at(1)).await.unwrap(),
            []
        );
    })
    .await;
}

#[tokio::test]
async fn ports_of_others_are_listed_for_the_user_and_groups_that_they_are_shared_with() {
    each(async |store| {
        let ann = user("ann");
        for (name, port, audience, until) in [
            ("b", 80, "user:bob", None),
            ("b", 22, "group:devs", Some(10)),
            ("b", 80, "group:devs", None),
            ("a", 3000, "group:devs", None),
            ("c", 80, "signed-in", None),
            ("d", 80, "public", None),
        ] {
            store.create_agent_token(&workspace(name), &ann, at(1)).await.unwrap();
            store.share(&workspace(name), &of_port(port, audience, until), &ann, at(1)).await.unwrap();
        }
        let ports = async |who: &str, groups: &[&str], now| {
            let groups: Vec<gateway_types::GroupName> = groups.iter().map(|group| group.parse().unwrap()).collect();
            let found = store.shared_with(&user(who), &groups, at(now)).await.unwrap();
            assert!(found.iter().all(|shared| shared.owner == ann));
            found.iter().map(|shared| format!("{}:{}", shared.workspace, shared.port)).collect::<Vec<_>>()
        };
        assert_eq!(ports("bob", &["devs", "x"], 9).await, ["a:3000", "b:22", "b:80"]);
        assert_eq!(ports("bob", &["devs"], 10).await, ["a:3000", "b:80"], "one has expired");
        assert_eq!(ports("bob", &[], 9).await, ["b:80"]);
        assert_eq!(ports("eve", &[], 9).await, [""; 0]);
        assert_eq!(ports("ann", &["devs"], 9).await, [""; 0], "her own are in no list of shares");
    })
    .await;
}

#[tokio::test]
async fn own_tokens_are_made_listed_rotated_and_revoked_and_nobody_elses() {
    each(async |store| {
        let (ann, bob, app) = (user("ann"), user("bob"), workspace("app"));
        store.create_agent_token(&app, &ann, at(1)).await.unwrap();
        let terms = Terms { note: "n".parse().ok(), expires_at: Some(at(100)) };
        let none = store.create_own_agent_token(&app, &bob, &terms, at(1)).await.unwrap();
        assert!(matches!(none, TokenCreation::NoSuchWorkspace), "{none:?}");
        let TokenCreation::Made(agents) = store.create_own_agent_token(&app, &ann, &terms, at(1)).await.unwrap() else {
            panic!("it is hers")
        };
        let TokenCreation::Made(own) = store.create_own_user_token(&ann, &Terms::default(), at(1)).await.unwrap()
        else {
            panic!("room")
        };
        let listed = store.tokens_of(&ann, None, 9).await.unwrap();
        assert_eq!(listed.iter().map(|token| token.id.to_string()).collect::<Vec<_>>(), ["t-1", "t-2", "t-3"]);
        assert_eq!((listed[1].note.clone(), listed[1].expires_at), (terms.note.clone(), Some(at(100))));
        assert_eq!(store.tokens_of(&ann, Some(listed[1].id), 9).await.unwrap(), listed[2..]);
        assert_eq!(store.tokens_of(&bob, None, 9).await.unwrap(), []);

        assert_eq!(store.revoke_own_token(&bob, agents.id, at(5)).await.unwrap(), None);
        let refused = store.rotate_token(Some(&bob), agents.id, Duration::ZERO, None, at(5)).await.unwrap();
        assert!(matches!(refused, TokenRotation::NoSuchToken), "{refused:?}");
        let overlap = Duration::from_secs(10);
        let rotated = store.rotate_token(Some(&ann), agents.id, overlap, None, at(50)).await.unwrap();
        let TokenRotation::Done { successor, expires_at, until, old_hash } = rotated else { panic!("{rotated:?}") };
        assert_eq!((expires_at, until, old_hash), (Some(at(149)), at(60), agents.token.hash()));
        let kept = store.token_by_hash(&successor.token.hash()).await.unwrap().unwrap();
        assert_eq!((kept.note, kept.expires_at, kept.subject), (terms.note, Some(at(149)), listed[1].subject.clone()));
        let again = store.rotate_token(Some(&ann), agents.id, overlap, None, at(51)).await.unwrap();
        assert!(matches!(again, TokenRotation::NotLive), "{again:?}");

        assert_eq!(store.revoke_own_token(&ann, own.id, at(70)).await.unwrap(), Some(own.token.hash()));
        let all = [agents.id, own.id, successor.id, listed[0].id, "t-99".parse().unwrap()];
        let ended = store.ended_tokens(&all, at(70)).await.unwrap();
        assert_eq!(ended, [(agents.id, false), (own.id, true), ("t-99".parse().unwrap(), true)]);
        assert_eq!(store.ended_tokens(&[], at(70)).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn token_of_a_cluster_speaks_for_it_alone_and_rotates_for_the_operator() {
    each(async |store| {
        let name: ClusterName = "west".parse().unwrap();
        let made = store.create_cluster_token_with(&name, &Terms::default(), at(1)).await.unwrap();
        assert_eq!(made.token.kind(), TokenKind::Cluster);
        let cluster = store.cluster(&name).await.unwrap().unwrap();
        let subject = TokenSubject::Cluster { cluster_id: cluster.id, cluster: name.clone() };
        let found = store.token_by_hash(&made.token.hash()).await.unwrap().unwrap();
        assert_eq!((found.subject, found.hint.as_str()), (subject.clone(), made.token.hint()));
        assert_eq!(store.tokens_of(&user("ann"), None, 9).await.unwrap(), [], "it is in nobody's list");
        let refused = store.rotate_token(Some(&user("ann")), made.id, Duration::ZERO, None, at(2)).await.unwrap();
        assert!(matches!(refused, TokenRotation::NoSuchToken), "{refused:?}");
        let TokenRotation::Done { successor, .. } =
            store.rotate_token(None, made.id, Duration::ZERO, None, at(2)).await.unwrap()
        else {
            panic!("the operator may")
        };
        let listed = store.list_tokens().await.unwrap();
        assert_eq!(listed.iter().map(|token| &token.subject).collect::<Vec<_>>(), [&subject, &subject]);
        assert_eq!(listed[0].replaced_by, Some(successor.id));
        assert_eq!(store.clusters().await.unwrap(), [cluster]);
    })
    .await;
}

#[tokio::test]
async fn stored_value_that_cannot_be_is_an_error_and_not_a_panic() {
    each(async |store| {
        store.create_agent_token(&workspace("app"), &user("alice"), at(1)).await.unwrap();
        sql("UPDATE workspaces SET executor = 'martian'").execute(&store.writer).await.unwrap();
        let error = store.workspace(&workspace("app")).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { table: "workspaces", column: "executor" }), "{error:?}");
    })
    .await;
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
    check(|store| async { store.managed(&workspace("a")).await.map(|found| found.is_some()) });
    check(|store| store.forget(WorkspaceId(1), at(1)));
    check(|store| async { store.workspace(&workspace("a")).await.map(|found| found.is_some()) });
}
