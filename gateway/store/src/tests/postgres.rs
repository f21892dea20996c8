//! What servers are about: connections that break, and programs on several machines. Each of these holds for a file too, as far as a
//! file has it; on a server it is checked where tests are given one.

use super::*;

#[tokio::test]
async fn broken_connections_are_replaced_before_anybody_notices() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        let made = store.create_user_token(&user("ann"), at(1)).await.unwrap();
        for _ in 0..3 {
            fresh.disturb().await;
            assert!(store.token_by_hash(&made.token.hash()).await.unwrap().is_some());
            fresh.disturb().await;
            store.share(&workspace("absent"), &of_port(80, "public", None), &user("ann"), at(1)).await.unwrap();
        }
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn write_that_breaks_off_in_the_middle_is_undone_and_the_next_one_is_good() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        let mut transaction = store.write(About::Users).await.unwrap();
        sql("INSERT INTO workspaces (name, owner, executor, created_at) VALUES ('app', 'x', 'external', 1)")
            .execute(&mut transaction)
            .await
            .unwrap();
        if fresh.is_on_server() {
            fresh.disturb().await;
            assert!(transaction.commit().await.is_err());
        } else {
            // Nothing is between a program and its file: it breaks off by itself.
            drop(transaction);
        }
        conformance(&store).await;
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn write_about_the_same_waits_and_on_a_server_one_about_something_else_does_not() {
    each_fresh(async |fresh| {
        let (one, other) = (fresh.open().await, fresh.open().await);
        let held = one.write(About::Workspace("app")).await.unwrap();
        if fresh.is_on_server() {
            other.write(About::Workspace("app2")).await.unwrap();
            other.write(About::Users).await.unwrap();
            other.write(About::Nothing).await.unwrap();
        }
        {
            let mut waiting = std::pin::pin!(other.write(About::Workspace("app")));
            let soon = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
            assert!(soon.is_err(), "it has to wait");
            held.commit().await.unwrap();
            waiting.await.unwrap();
        }
        one.close().await;
        other.close().await;
    })
    .await;
}

#[tokio::test]
async fn names_are_listed_byte_by_byte_whatever_the_servers_order_is() {
    each(async |store| {
        for name in ["b-1", "ab", "a-c", "b1", "aa"] {
            store.create_agent_token(&workspace(name), &user("Zoe"), at(1)).await.unwrap();
        }
        let names: Vec<String> = store.workspaces().await.unwrap().iter().map(|found| found.name.to_string()).collect();
        assert_eq!(names, ["a-c", "aa", "ab", "b-1", "b1"]);
    })
    .await;
}

#[tokio::test]
async fn database_that_cannot_be_opened_is_named_and_nobody_sees_a_password() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        let mut password = "no password".to_owned();
        let absent = match &fresh.config.url {
            StoreUrl::Postgres(url) => {
                let mut whole: url::Url = url.reveal().parse().unwrap();
                whole.password().unwrap_or("no password").clone_into(&mut password);
                assert!(!format!("{store:?} {url} {url:?} {:?}", fresh.config).contains(&password));
                whole.set_path("/no_such_database");
                whole.to_string()
            }
            StoreUrl::SqliteFile(_) | StoreUrl::SqliteMemory => {
                format!("sqlite://{}/no_such_database/gateway.db", fresh.folder().display())
            }
        };
        store.close().await;
        let error = Store::open(&absent).await.unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(told.contains("no_such_database"), "{told}");
        assert!(!told.contains(&password));
        if fresh.is_on_server() {
            assert!(matches!(error, StoreError::Connect { .. }), "{told}");
        }
    })
    .await;
}
