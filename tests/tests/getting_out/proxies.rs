//! Agents behind proxies.

use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use e2e::{TestAgent, TestGateway, until};
use workspace_agent::{Gateway, Transport};

use crate::middle::Middle;

/// A gateway as an agent with these variables finds it.
pub(crate) fn found(url: &str, variables: &[(&'static str, String)]) -> Gateway {
    let environment =
        |name: &'static str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    Gateway::parse(url, None).expect("an address").behind(environment, None).expect("usable proxies")
}

/// A request through the tunnel is answered by the app.
pub(crate) async fn assert_serves(gateway: &TestGateway, app: &RawApp, workspace: &str) {
    let authority = gateway.authority(workspace, app.port);
    let mut raw = Raw::connect(gateway.addresses.public).await;
    let token = &gateway.user_token;
    raw.send(format!("GET / HTTP/1.1\r\nhost: {authority}\r\ngateway-authorization: Bearer {token}\r\n\r\n")).await;
    let answer = raw.message().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{answer:?}");
}

async fn check(variable: &'static str, proxy: &str, middle: &Middle) {
    let (gateway, app) = (TestGateway::start().await, RawApp::mirror().await);
    let url = format!("http://{}", gateway.addresses.agents);
    let token = gateway.agent_token("one").await;
    let found = found(&url, &[(variable, proxy.replace("PROXY", &middle.address.to_string()))]);
    let agent = TestAgent::start(found, Transport::Auto, &token, Vec::new());
    gateway.until_connected("one").await;
    assert_serves(&gateway, &app, "one").await;
    agent.stop().await;
    assert_eq!(middle.counts(), (1, 1), "{proxy}: HTTP/2 got through at once");
    gateway.stop().await;
}

#[tokio::test]
async fn agent_gets_out_through_a_proxy_with_connect() {
    check("http_proxy", "http://PROXY", &Middle::connect_proxy(None).await).await;
    check("ALL_PROXY", "http://PROXY", &Middle::connect_proxy(None).await).await;
}

#[tokio::test]
async fn agent_gets_out_through_a_proxy_that_wants_credentials() {
    let middle = Middle::connect_proxy(Some("Basic dXNlcjpzOmNyZXQ=")).await;
    check("HTTP_PROXY", "http://user:s%3Acret@PROXY", &middle).await;
}

#[tokio::test]
async fn agent_gets_out_through_socks_with_credentials() {
    check("ALL_PROXY", "socks5h://user:s%3Acret@PROXY", &Middle::socks("user", "s:cret").await).await;
    check("all_proxy", "socks5://user:s%3Acret@PROXY", &Middle::socks("user", "s:cret").await).await;
}

#[tokio::test]
async fn proxy_is_left_aside_for_a_gateway_that_is_exempt() {
    let (gateway, middle) = (TestGateway::start().await, Middle::connect_proxy(None).await);
    let url = format!("http://{}", gateway.addresses.agents);
    let variables = [("HTTP_PROXY", format!("http://{}", middle.address)), ("NO_PROXY", "127.0.0.0/8".to_owned())];
    let token = gateway.agent_token("one").await;
    let agent = TestAgent::start(found(&url, &variables), Transport::Auto, &token, Vec::new());
    gateway.until_connected("one").await;
    agent.stop().await;
    assert_eq!(middle.counts(), (0, 0));
}

#[tokio::test]
async fn proxy_that_turns_the_agent_away_is_asked_again_and_never_passed_by() {
    let (gateway, middle) = (TestGateway::start().await, Middle::connect_proxy(Some("Basic eDp5")).await);
    let url = format!("http://{}", gateway.addresses.agents);
    let token = gateway.agent_token("one").await;
    let variables = [("HTTP_PROXY", format!("http://user:wrong@{}", middle.address))];
    let agent = TestAgent::start(found(&url, &variables), Transport::Auto, &token, Vec::new());
    until("it is asked again", || middle.counts().0 >= 2).await;
    assert_eq!(middle.counts().1, 0);
    assert!(gateway.registry.current(&"one".parse().unwrap()).is_none());
    agent.stop().await;
}

#[tokio::test]
async fn agent_behind_a_proxy_reaches_a_gateway_behind_a_balancer_without_http2() {
    let (gateway, app) = (TestGateway::start().await, RawApp::mirror().await);
    let balancer = Middle::http1_only(gateway.addresses.agents, true).await;
    let proxy = Middle::connect_proxy(None).await;
    let variables = [("HTTP_PROXY", format!("http://{}", proxy.address))];
    let token = gateway.agent_token("one").await;
    let found = found(&format!("http://{}", balancer.address), &variables);
    let agent = TestAgent::start(found, Transport::Auto, &token, Vec::new());
    tokio::time::timeout(Duration::from_secs(10), gateway.until_connected("one")).await.expect("in one attempt");
    assert_serves(&gateway, &app, "one").await;
    assert_eq!(proxy.counts(), (2, 2));
    assert_eq!(balancer.counts(), (2, 1));
    agent.stop().await;
}
