//! What only a server has: connections that break, and programs on several machines.

use sqlx::PgConnection;

use super::super::each::Fresh;
use super::*;

/// Breaks all connections of that name and returns how many there were.
async fn break_connections(beside: &mut PgConnection, name: &str) -> i64 {
    let statement = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()";
    sqlx::query_scalar(statement).bind(name).fetch_one(beside).await.unwrap()
}

#[tokio::test]
async fn broken_connections_are_replaced_before_anybody_notices() {
    let Some(fresh) = Fresh::on_server().await else { return };
    let store = fresh.open().await;
    let made = store.create_user_token(&user("ann"), at(1)).await.unwrap();
    let (mut beside, name) = fresh.beside().await;
    for _ in 0..3 {
        assert!(break_connections(&mut beside, name).await > 0);
        assert!(store.token_by_hash(&made.token.hash()).await.unwrap().is_some());
        assert!(break_connections(&mut beside, name).await > 0);
        store.share(&workspace("absent"), &of_port(80, "public", None), &user("ann"), at(1)).await.unwrap();
    }
    store.close().await;
    fresh.remove().await;
}

#[tokio::test]
async fn connection_that_breaks_in_the_middle_of_a_write_undoes_it_and_the_next_one_is_good() {
    let Some(fresh) = Fresh::on_server().await else { return };
    let store = fresh.open().await;
    let (mut beside, name) = fresh.beside().await;
    let mut transaction = store.write(About::Users).await.unwrap();
    sql("INSERT INTO workspaces (name, owner, executor, created_at) VALUES ('app', 'x', 'external', 1)")
        .execute(&mut transaction)
        .await
        .unwrap();
    assert!(break_connections(&mut beside, name).await > 0);
    assert!(transaction.commit().await.is_err());
    conformance(&store).await;
    store.close().await;
    fresh.remove().await;
}

#[tokio::test]
async fn write_about_the_same_waits_and_about_something_else_does_not() {
    let Some(fresh) = Fresh::on_server().await else { return };
    let (one, other) = (fresh.open().await, fresh.open().await);
    let held = one.write(About::Workspace("app")).await.unwrap();
    other.write(About::Workspace("app2")).await.unwrap();
    other.write(About::Users).await.unwrap();
    other.write(About::Nothing).await.unwrap();
    {
        let mut waiting = std::pin::pin!(other.write(About::Workspace("app")));
        let soon = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
        assert!(soon.is_err(), "it has to wait");
        held.commit().await.unwrap();
        waiting.await.unwrap();
    }
    one.close().await;
    other.close().await;
    fresh.remove().await;
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
async fn server_that_does_not_let_us_in_says_why_and_nobody_sees_the_password() {
    let Some(fresh) = Fresh::on_server().await else { return };
    let StoreUrl::Postgres(url) = &fresh.config.url else { panic!("it is PostgreSQL's") };
    let mut whole: url::Url = url.reveal().parse().unwrap();
    let password = whole.password().unwrap_or("no password").to_owned();
    let store = fresh.open().await;
    assert!(!format!("{store:?} {url} {url:?} {:?}", fresh.config).contains(&password));
    store.close().await;
    whole.set_path("/no_such_database");
    let error = Store::open(whole.as_str()).await.unwrap_err();
    let told = format!("{error} {error:?}");
    assert!(matches!(error, StoreError::Connect { .. }) && told.contains("no_such_database"), "{told}");
    assert!(!told.contains(&password));
    fresh.remove().await;
}
