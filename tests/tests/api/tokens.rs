//! A user's own tokens: made, listed page by page, rotated with an overlap, revoked at once.

use std::time::Duration;

use e2e::stopwatch::Stopwatch;
use gateway_types::token::Token;
use serde_json::Value;

use super::support::{As, World, code};

async fn make(world: &World, who: &As, body: &str) -> (String, As) {
    let made = world.json("POST", "/tokens", who, body, 201).await;
    (made["id"].as_str().unwrap().to_owned(), As::Token(made["token"].as_str().unwrap().to_owned()))
}

#[tokio::test]
async fn token_works_until_it_is_revoked_and_then_at_once_no_more() {
    let world = World::start().await;
    let (id, token) = make(&world, &world.dev(), r#"{"kind":"user","note":"backup","expires_in":3600}"#).await;
    let who = world.json("GET", "/whoami", &token, "", 200).await;
    assert_eq!(
        (&who["user"], &who["token"]["id"], &who["token"]["note"]),
        (&"dev".into(), &id.clone().into(), &"backup".into())
    );
    world.json("DELETE", &format!("/tokens/{id}"), &world.dev(), "", 204).await;
    let refused = world.call("GET", "/whoami", &token, "").await;
    assert_eq!((refused.status(), code(&refused)), (401, "sign_in_required"), "what was remembered of it is forgotten");
    world.json("DELETE", &format!("/tokens/{id}"), &world.dev(), "", 204).await;
}

#[tokio::test]
async fn token_ends_at_its_time() {
    let world = World::start().await;
    let user = "dev".parse().unwrap();
    let now = gateway_store::wall_clock();
    let terms = gateway_store::Terms { note: None, expires_at: Some(now.later(Duration::from_secs(6))) };
    let made = world.gateway.store.create_user_token_with(&user, &terms, now).await.unwrap();
    let token = As::Token(made.token.reveal().to_owned());
    assert_eq!(world.call("GET", "/whoami", &token, "").await.status(), 200);
    let since = Stopwatch::start();
    while world.call("GET", "/whoami", &token, "").await.status() == 200 {
        assert!(since.elapsed() < Duration::from_secs(11), "its six seconds and the five that an answer may be old");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn own_tokens_and_those_of_own_agents_are_listed_without_their_text() {
    let world = World::start().await;
    world.workspace("one", "ann").await;
    world.workspace("theirs", "dev").await;
    let ann = world.user("ann").await;
    for number in 0..6 {
        make(&world, &ann, &format!(r#"{{"kind":"user","note":"n{number}"}}"#)).await;
    }
    make(&world, &ann, r#"{"kind":"agent","workspace":"one"}"#).await;
    let (mut rows, mut path) = (Vec::new(), "/tokens?limit=4".to_owned());
    loop {
        let page = world.json("GET", &path, &ann, "", 200).await;
        rows.extend(page["tokens"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/tokens?limit=4&cursor={cursor}");
    }
    let told: Vec<_> = rows.iter().map(|row| (row["kind"].as_str().unwrap(), row["workspace"].as_str())).collect();
    let users = std::iter::repeat_n(("user", None), 7);
    let expected: Vec<_> =
        std::iter::once(("agent", Some("one"))).chain(users).chain([("agent", Some("one"))]).collect();
    assert_eq!(told, expected);
    assert!(!Value::from(rows).to_string().contains("gwu_"));
    let foreign = world.call("GET", "/tokens?cursor=dzpvbmU", &ann, "").await;
    assert_eq!((foreign.status(), code(&foreign)), (422, "invalid"), "a cursor of the list of workspaces");
}

#[tokio::test]
async fn rotated_token_overlaps_with_its_successor_and_then_ends() {
    let world = World::start().await;
    let (id, old) = make(&world, &world.dev(), r#"{"kind":"user","note":"ci","expires_in":7200}"#).await;
    let rotated = world.json("POST", &format!("/tokens/{id}/rotate"), &old, r#"{"overlap":1}"#, 201).await;
    assert_eq!(rotated["replaces"], *id);
    let new = As::Token(rotated["token"].as_str().unwrap().to_owned());
    assert_eq!(world.call("GET", "/whoami", &new, "").await.status(), 200);
    let again = world.call("POST", &format!("/tokens/{id}/rotate"), &world.dev(), "{}").await;
    assert_eq!((again.status(), code(&again)), (409, "conflict"), "it has a successor already");
    let since = Stopwatch::start();
    while world.call("GET", "/whoami", &old, "").await.status() == 200 {
        assert!(since.elapsed() < Duration::from_secs(6), "the overlap and the age of an answer");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let tokens = world.json("GET", "/tokens", &new, "", 200).await;
    let row = |id: &Value| tokens["tokens"].as_array().unwrap().iter().find(|row| row["id"] == *id).unwrap().clone();
    let (gone, successor) = (row(&id.into()), row(&rotated["id"]));
    assert_eq!((&gone["state"], &gone["replaced_by"]), (&"expired".into(), &rotated["id"]));
    assert_eq!(
        (&successor["state"], &successor["note"]),
        (&"live".into(), &"ci".into()),
        "it takes over what it was for"
    );
    let long =
        world.json("POST", &format!("/tokens/{}/rotate", rotated["id"].as_str().unwrap()), &new, "{}", 201).await;
    let until: gateway_types::UnixSeconds = long["old_expires_at"].as_str().unwrap().parse().unwrap();
    let left = until.get() - gateway_store::wall_clock().get();
    assert!((595..=600).contains(&left), "ten minutes if nothing is said: {left}");
}

#[tokio::test]
async fn one_user_cannot_fill_the_store_with_tokens() {
    let world = World::start().await;
    let ann = world.user("ann").await;
    for _ in 1..gateway_store::TOKENS_LIVE_MAX {
        make(&world, &ann, r#"{"kind":"user"}"#).await;
    }
    let refused = world.call("POST", "/tokens", &ann, r#"{"kind":"user"}"#).await;
    assert_eq!((refused.status(), code(&refused)), (409, "conflict"));
    assert!(refused.text().contains("too_many_tokens"));
    make(&world, &world.dev(), r#"{"kind":"user"}"#).await;
}

#[tokio::test]
async fn body_of_a_request_for_a_token_is_read_strictly() {
    let world = World::start().await;
    world.workspace("one", "dev").await;
    for body in [
        "{}",
        r#"{"kind":"cluster"}"#,
        r#"{"kind":"agent"}"#,
        r#"{"kind":"user","workspace":"one"}"#,
        r#"{"kind":"user","user":"ann"}"#,
        r#"{"kind":"user","expires_in":59}"#,
        r#"{"kind":"user","expires_in":"30d"}"#,
        r#"{"kind":"user","expires_in":1e9}"#,
        r#"{"kind":"user","note":""}"#,
        "{\"kind\":\"user\",\"note\":\"a\\u202eb\"}",
        r#"{"kind":"agent","workspace":"NOT A NAME"}"#,
    ] {
        let answer = world.call("POST", "/tokens", &world.dev(), body).await;
        assert_eq!((answer.status(), code(&answer)), (422, "invalid"), "{body}: {}", answer.text());
    }
    assert_eq!(world.gateway.store.list_tokens().await.unwrap().len(), 2, "nothing was made");
    let large = format!(r#"{{"kind":"user","note":"{}"}}"#, "x".repeat(70_000));
    let answer = world.call("POST", "/tokens", &world.dev(), &large).await;
    assert_eq!((answer.status(), code(&answer)), (413, "too_large"));
}

#[tokio::test]
async fn token_in_the_answer_is_in_no_other_and_is_kept_as_a_hash() {
    let world = World::start().await;
    let (_, As::Token(text)) = make(&world, &world.dev(), r#"{"kind":"user"}"#).await else { unreachable!() };
    let token = Token::parse(&text).unwrap();
    assert!(world.gateway.store.token_by_hash(&token.hash()).await.unwrap().is_some());
    for path in ["/tokens", "/whoami", "/sessions"] {
        assert!(!world.call("GET", path, &As::Token(text.clone()), "").await.text().contains(&text[4..40]), "{path}");
    }
}
