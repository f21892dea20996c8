//! Who gets in, and what the others are told.

use std::time::Duration;

use bytes::Bytes;
use e2e::scripted::hello;
use gateway_store::wall_clock;
use tunnel_proto::frame::{Body, Frame};
use tunnel_proto::hello::{Hello, Role};
use tunnel_proto::version::VersionRange;

use crate::raw_agent::{RawAgent, Stage, prefixed};

/// Status codes of gRPC.
const INVALID_ARGUMENT: u16 = 3;
const DEADLINE_EXCEEDED: u16 = 4;
const RESOURCE_EXHAUSTED: u16 = 8;
const FAILED_PRECONDITION: u16 = 9;
const UNAUTHENTICATED: u16 = 16;

#[tokio::test]
async fn credentials_that_are_not_a_live_agents_are_refused() {
    let stage = Stage::new(|_| {}).await;
    let gateway = &stage.gateway;
    let (name, owner) = ("one".parse().unwrap(), "dev".parse().unwrap());
    let revoked = gateway.store.create_agent_token(&name, &owner, wall_clock()).await.unwrap();
    assert!(gateway.store.revoke_token(revoked.id, wall_clock()).await.unwrap());
    let good = gateway.agent_token("one").await;
    let other = e2e::TestGateway::start().await;
    let unknown = other.agent_token("one").await;
    for (told, authorization, message) in [
        ("none", None, "no bearer token"),
        ("another scheme", Some(format!("Basic {good}")), "no bearer token"),
        ("damaged", Some(format!("Bearer {good}x")), "damaged"),
        ("empty", Some("Bearer ".to_owned()), "damaged"),
        ("a user's", Some(format!("Bearer {}", gateway.user_token)), "not an agent's"),
        ("revoked", Some(format!("Bearer {}", revoked.token.reveal())), "revoked"),
        ("of another gateway", Some(format!("Bearer {unknown}")), "not known"),
    ] {
        let mut agent = RawAgent::open(gateway, authorization.as_deref()).await;
        agent.say(Body::Hello(Box::new(hello()))).await;
        let (status, said) = agent.refusal().await;
        assert_eq!(status, UNAUTHENTICATED, "{told}");
        assert!(said.contains(message), "{told}: {said}");
        // Nothing of the credential is repeated.
        assert!(!said.contains(&good[..12]) && !said.contains("gwa_"), "{told}: {said}");
        assert!(gateway.registry.current(&name).is_none(), "{told}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn hello_that_is_late_wrong_or_missing_is_refused_by_name() {
    let stage = Stage::new(|config| config.timeouts.agent_hello = Duration::from_secs(2)).await;
    let gateway = &stage.gateway;
    let token = gateway.agent_token("one").await;
    let bearer = format!("Bearer {token}");

    let silent = RawAgent::open(gateway, Some(&bearer)).await;
    let (status, said) = silent.refusal().await;
    assert_eq!(status, DEADLINE_EXCEEDED, "{said}");

    // Half of one is none.
    let mut halting = RawAgent::open(gateway, Some(&bearer)).await;
    halting.send(Bytes::from_static(&[0, 0, 0, 0, 9, 1])).await;
    assert_eq!(halting.refusal().await.0, DEADLINE_EXCEEDED);
    stage.finish().await;

    // The others are not late, however slow the machine is.
    let stage = Stage::new(|_| {}).await;
    let gateway = &stage.gateway;
    let token = gateway.agent_token("one").await;
    let bearer = format!("Bearer {token}");

    let from_the_future = Hello { versions: VersionRange { min: 70, max: 72 }, ..hello() };
    let (status, said) = RawAgent::dial(gateway, &token, from_the_future).await.refusal().await;
    assert_eq!(status, FAILED_PRECONDITION);
    assert!(said.contains("70 to 72") && said.contains("this gateway speaks 1"), "{said}");

    let cluster = Hello { role: Role::Cluster, ..hello() };
    assert_eq!(RawAgent::dial(gateway, &token, cluster).await.refusal().await.0, FAILED_PRECONDITION);

    let mut pinging = RawAgent::open(gateway, Some(&bearer)).await;
    pinging.say(Body::Ping { token: 1 }).await;
    assert_eq!(pinging.refusal().await.0, INVALID_ARGUMENT);

    for bytes in [
        prefixed(&[0xff; 40]),
        // Announced far above the limit; nothing is waited for, and nothing is allocated.
        Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]),
        // Compression was not agreed on.
        Bytes::from_static(&[1, 0, 0, 0, 1, 0]),
        prefixed(&[]),
    ] {
        let mut agent = RawAgent::open(gateway, Some(&bearer)).await;
        agent.send(bytes.clone()).await;
        let (status, said) = agent.refusal().await;
        assert_eq!(status, INVALID_ARGUMENT, "{bytes:?}: {said}");
    }

    let too_much = Hello { features: vec!["x".repeat(1000)], ..hello() };
    assert_eq!(RawAgent::dial(gateway, &token, too_much).await.refusal().await.0, INVALID_ARGUMENT);

    let mut gone = RawAgent::open(gateway, Some(&bearer)).await;
    gone.finish();
    assert_eq!(gone.refusal().await.0, INVALID_ARGUMENT);
    assert!(gateway.registry.current(&"one".parse().unwrap()).is_none());
    stage.finish().await;
}

#[tokio::test]
async fn sessions_above_the_limit_are_refused_by_its_name_and_an_agent_may_still_replace_its_own() {
    // The bystander and one more.
    let stage = Stage::new(|config| config.limits.sessions = 2).await;
    let gateway = &stage.gateway;
    let _one = RawAgent::attach(gateway, "one").await;
    let token = gateway.agent_token("two").await;
    let (status, said) = RawAgent::dial(gateway, &token, hello()).await.refusal().await;
    assert_eq!((status, said.contains("limits.sessions")), (RESOURCE_EXHAUSTED, true), "{said}");
    let _again = RawAgent::attach(gateway, "one").await;
    stage.finish().await;
}

#[tokio::test]
async fn hello_with_extra_frames_behind_it_is_one_session() {
    let stage = Stage::new(|_| {}).await;
    let token = stage.gateway.agent_token("one").await;
    let mut agent = RawAgent::open(&stage.gateway, Some(&format!("Bearer {token}"))).await;
    let mut bytes = Vec::new();
    for body in [Body::Hello(Box::new(hello())), Body::Ping { token: 7 }] {
        bytes.extend(crate::raw_agent::message(Frame { sequence: 0, acknowledged: 0, body }));
    }
    agent.send(bytes.into()).await;
    assert!(matches!(agent.next().await.expect("a frame").body, Body::Welcome(_)));
    while agent.next().await.expect("a frame").body != (Body::Pong { token: 7 }) {}
    stage.finish().await;
}
