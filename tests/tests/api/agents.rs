//! Tokens of agents that end while their agents are connected.

use std::time::Duration;

use e2e::stopwatch::Stopwatch;
use gateway_store::{Terms, wall_clock};
use gateway_types::UnixSeconds;
use workspace_agent::DialEnded;

use super::support::World;

/// Within this a token that ended has ended its session.
const CUT_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test]
async fn revoked_token_ends_the_live_session_and_its_agent_says_why() {
    let world = World::start().await;
    let mut agent = world.gateway.agent("one").await;
    let other = world.gateway.agent("two").await;
    let tokens = world.json("GET", "/tokens", &world.dev(), "", 200).await;
    let id = tokens["tokens"].as_array().unwrap().iter().find(|row| row["workspace"] == "one").unwrap()["id"].clone();
    let since = Stopwatch::start();
    world.json("DELETE", &format!("/tokens/{}", id.as_str().unwrap()), &world.dev(), "", 204).await;
    let ended = agent.ended().await;
    assert!(since.elapsed() < CUT_WITHIN, "{:?}", since.elapsed());
    assert!(matches!(&ended, Err(DialEnded::Revoked { message }) if message.contains("revoked")), "{ended:?}");
    world.gateway.until_gone("one").await;
    assert!(world.gateway.registry.current(&"two".parse().unwrap()).is_some(), "another token's session goes on");
    other.stop().await;
    let record = world.audited("agent_ended", 2).await;
    assert_eq!((&record[0]["workspace"], &record[0]["credential"]["id"]), (&"one".into(), &id));
    assert!(record[0]["reason"].as_str().unwrap().contains("revoked"), "{record:?}");
}

#[tokio::test]
async fn token_that_expires_ends_the_live_session() {
    let world = World::start().await;
    let (name, owner) = ("one".parse().unwrap(), "dev".parse().unwrap());
    let ends = wall_clock().later(Duration::from_secs(6));
    let terms = Terms { note: None, expires_at: Some(ends) };
    let made = world.gateway.store.create_agent_token_with(&name, &owner, &terms, wall_clock()).await.unwrap();
    let mut agent = world.gateway.start_agent(made.token.reveal(), Vec::new());
    world.gateway.until_connected("one").await;
    e2e::until_second(ends).await;
    let since = Stopwatch::start();
    let ended = agent.ended().await;
    assert!(since.elapsed() < CUT_WITHIN, "{:?}", since.elapsed());
    assert!(ended.is_err(), "it cannot come back with the same token: {ended:?}");
    world.gateway.until_gone("one").await;
}

#[tokio::test]
async fn rotated_token_lets_the_agent_go_on_with_the_new_one() {
    let world = World::start().await;
    let old = world.gateway.agent("one").await;
    let tokens = world.json("GET", "/tokens", &world.dev(), "", 200).await;
    let id = tokens["tokens"].as_array().unwrap().iter().find(|row| row["workspace"] == "one").unwrap()["id"].clone();
    let path = format!("/tokens/{}/rotate", id.as_str().unwrap());
    let rotated = world.json("POST", &path, &world.dev(), r#"{"overlap":10}"#, 201).await;
    let overlap_ends: UnixSeconds = rotated["old_expires_at"].as_str().unwrap().parse().unwrap();
    let token = rotated["token"].as_str().unwrap().to_owned();
    assert!(world.gateway.registry.current(&"one".parse().unwrap()).is_some(), "the overlap lets it stay");
    // As an agent does that finds another token in its file when it dials next.
    let before = world.gateway.registry.current(&"one".parse().unwrap()).expect("connected");
    old.kill();
    e2e::until("the loss of its link is noticed", || before.tunnel.is_detached()).await;
    let new = world.gateway.start_agent(&token, Vec::new());
    world.gateway.until_connected("one").await;
    e2e::until_second(overlap_ends).await;
    tokio::time::sleep(CUT_WITHIN).await;
    let session = world.gateway.registry.current(&"one".parse().unwrap()).expect("the new token's session lives on");
    assert!(session.id != before.id && !session.tunnel.is_ended());
    new.stop().await;
}
