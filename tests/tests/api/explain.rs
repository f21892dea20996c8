//! Failed requests, explained by the trace ids of their answers: to which users, and by any replica.

use std::time::Duration;

use e2e::fleet::Fleet;
use e2e::raw::{Message, Raw};
use e2e::stopwatch::Stopwatch;
use e2e::{PATIENCE, TestGateway};
use gateway_store::AuditFilter;
use serde_json::Value;
use tunnel_proto::hello::{AppProtocol, HostMode, Port};

use super::support::{As, World, code};

/// Asks for a port of a workspace with a token, and returns the refusal.
async fn fail(gateway: &TestGateway, workspace: &str, port: u16, token: &str) -> Message {
    let host = gateway.authority(workspace, port);
    let mut client = Raw::connect(gateway.addresses.public).await;
    let credential = format!("gateway-authorization: Bearer {token}\r\n");
    client.send(format!("GET /secret-path?secret=1 HTTP/1.1\r\nhost: {host}\r\n{credential}\r\n")).await;
    let answer = client.message().await.expect("an answer");
    assert!(answer.header("gateway-error").is_some(), "{answer:?}");
    answer
}

fn trace(answer: &Message) -> String {
    answer.header("gateway-trace").expect("a trace id").to_owned()
}

fn token(caller: &As) -> &str {
    match caller {
        As::Token(token) => token,
        As::Cookie(..) | As::Nobody => panic!("no token"),
    }
}

#[tokio::test]
async fn failure_is_explained_to_user_owner_and_operator_and_to_no_other() {
    let world = World::start().await;
    world.workspace("annas", "ann").await;
    let (ann, eve) = (world.user("ann").await, world.user("eve").await);
    let failed = fail(&world.gateway, "annas", 3000, token(&ann)).await;
    let path = format!("/failures/{}", trace(&failed));
    let found = world.json("GET", &path, &ann, "", 200).await;
    assert_eq!(
        (&found["code"], &found["side"], &found["status"]),
        (&"agent_absent".into(), &"agent".into(), &503.into())
    );
    assert_eq!((&found["workspace"], &found["port"], &found["user"]), (&"annas".into(), &3000.into(), &"ann".into()));
    assert_eq!(found["trace_id"], trace(&failed));
    // The words are those that the answer had.
    let problem: Value = serde_json::from_str(&failed.text()).unwrap();
    assert_eq!((&found["what"], &found["to_do"]), (&problem["detail"], &problem["hint"]));
    assert!(!found.to_string().contains("secret"), "nothing of the request is kept: {found}");
    assert_eq!(world.json("GET", &path, &world.dev(), "", 200).await, found, "an operator");
    let refused = world.call("GET", &path, &eve, "").await;
    assert_eq!((refused.status(), code(&refused)), (404, "not_found"));
    // What she asks for in vain is hers to know of, and the owner's.
    let hers = format!("/failures/{}", trace(&fail(&world.gateway, "annas", 3000, token(&eve)).await));
    let found = world.json("GET", &hers, &eve, "", 200).await;
    assert_eq!((&found["code"], &found["side"]), (&"no_such_host".into(), &"policy".into()));
    assert_eq!(world.json("GET", &hers, &ann, "", 200).await["user"], "eve");
    assert_eq!(world.call("GET", &hers, &world.user("bob").await, "").await.status(), 404);
    // What a refusal says does not tell whether an agent is there, and which port is its default.
    let named = Port { number: 3000, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let _agent = world.gateway.agent_with("devs", vec![named]).await;
    let explained = async |workspace: &str| {
        let host = format!("{workspace}.localhost:{}", world.gateway.addresses.public.port());
        let mut client = Raw::connect(world.gateway.addresses.public).await;
        client
            .send(format!("GET / HTTP/1.1\r\nhost: {host}\r\ngateway-authorization: Bearer {}\r\n\r\n", token(&eve)))
            .await;
        let refused = client.message().await.expect("an answer");
        let mut found = world.json("GET", &format!("/failures/{}", trace(&refused)), &eve, "", 200).await;
        for own in ["trace_id", "at", "workspace", "took_milliseconds"] {
            found[own].take();
        }
        found
    };
    assert_eq!(explained("devs").await, explained("none-such").await);
    // The next owner is not told of what was before.
    let (bob, before) = (world.user("bob").await, trace(&fail(&world.gateway, "annas", 3000, token(&eve)).await));
    let handed = world.call("POST", "/workspaces/annas/hand-over", &ann, r#"{"to":"bob"}"#).await;
    assert_eq!(handed.status(), 204, "{}", handed.text());
    let filter = AuditFilter { event: "workspace_handed_over", limit: 1, ..AuditFilter::default() };
    let stopwatch = Stopwatch::start();
    while world.gateway.store.audit_records(&filter).await.unwrap().records.is_empty() {
        assert!(stopwatch.elapsed() < PATIENCE, "it is not recorded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.call("GET", &format!("/failures/{before}"), &bob, "").await.status(), 404);
    for none in ["", "0", &"0".repeat(32), &"g".repeat(32), "../whoami", &"0".repeat(33)] {
        assert_eq!(world.call("GET", &format!("/failures/{none}"), &ann, "").await.status(), 404, "{none}");
    }
}

#[tokio::test]
async fn request_that_the_api_refused_is_explained_to_who_asked() {
    let world = World::start().await;
    let ann = world.user("ann").await;
    let refused = world.call("PATCH", "/whoami", &ann, "").await;
    let found = world.json("GET", &format!("/failures/{}", trace(&refused)), &ann, "", 200).await;
    assert_eq!((&found["code"], &found["side"]), (&code(&refused).into(), &"client".into()));
    assert_eq!((&found["workspace"], &found["user"]), (&Value::Null, &"ann".into()));
}

#[tokio::test]
async fn replica_that_is_asked_finds_what_another_one_answered() {
    let fleet = Fleet::default();
    let (first, second) = (fleet.replica().await, fleet.replica().await);
    let failed = trace(&fail(&first, "none-such", 3000, &first.user_token).await);
    let stopwatch = Stopwatch::start();
    let ask = async |gateway: &TestGateway, trace: &str| {
        let (public, token) = (gateway.addresses.public, &gateway.user_token);
        let mut client = Raw::connect(public).await;
        let credential = format!("authorization: Bearer {token}\r\n");
        let host = format!("localhost:{}", public.port());
        client.send(format!("GET /api/v1/failures/{trace} HTTP/1.1\r\nhost: {host}\r\n{credential}\r\n")).await;
        client.message().await.expect("an answer")
    };
    // A replica knows one that came later from the next renewal of its lease on.
    let found = loop {
        let found = ask(&second, &failed).await;
        if found.status() == 200 {
            break found;
        }
        assert_eq!(found.status(), 404, "{found:?}");
        assert!(stopwatch.elapsed() < PATIENCE, "it is not found");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let found: Value = serde_json::from_str(&found.text()).unwrap();
    assert_eq!((&found["code"], &found["trace_id"]), (&"no_such_host".into(), &failed.into()));
    let unknown = ask(&second, &"0".repeat(32)).await;
    assert_eq!(unknown.status(), 404, "{unknown:?}");
}
