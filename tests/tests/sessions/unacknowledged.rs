//! Agents that acknowledge nothing: what is kept for them is bounded, and beyond that they get no more requests.

use e2e::raw::Raw;
use e2e::scripted::hello;
use tunnel_proto::frame::Body;
use tunnel_proto::hello::Hello;
use tunnel_proto::reason::Reason;
use tunnel_proto::version::FEATURE_RESUME;

use crate::raw_agent::{RawAgent, Stage};

const KIB: u64 = 1024;

/// What payload may take of what is kept, and what opens may take beside it: half of a session's budget, and a quarter.
const SESSION_BUDGET: u64 = 4 * 1024 * KIB;
const KEPT_MAX: u64 = SESSION_BUDGET / 2 + SESSION_BUDGET / 8;

#[tokio::test]
async fn what_nobody_acknowledges_is_charged_and_beyond_its_bound_refused_by_name() {
    let stage = Stage::new(|config| {
        config.tunnel.window_initial = 64 * KIB;
        config.tunnel.window_max = 64 * KIB;
        config.tunnel.session_budget = SESSION_BUDGET;
    })
    .await;
    let token = stage.gateway.agent_token("one").await;
    let hello = Hello { features: vec![FEATURE_RESUME.into()], ..hello() };
    let mut agent = RawAgent::dial(&stage.gateway, &token, hello).await;
    agent.welcome().await;
    stage.gateway.until_connected("one").await;
    let session = stage.gateway.registry.current(&"one".parse().unwrap()).expect("attached");

    let large = "x".repeat(50_000);
    let request = stage.get("one", 4000).replacen("\r\n\r\n", &format!("\r\nx-large: {large}\r\n\r\n"), 1);
    let mut user = Raw::connect(stage.gateway.addresses.public).await;
    // Each open keeps more than two KiB.
    let requests_max = KEPT_MAX / (2 * KIB);
    let mut refusal = None;
    for _ in 0..requests_max {
        user.send(&request).await;
        let answered = {
            let mut answering = std::pin::pin!(user.message());
            loop {
                tokio::select! {
                    answer = &mut answering => break answer.expect("an answer"),
                    body = agent.heard() => if let Some(Body::Open(open)) = body {
                        agent.say(Body::Reset { channel: open.channel, reason: Reason::PortClosed }).await;
                    },
                }
            }
        };
        assert_eq!(session.tunnel.broken_invariant(), None);
        let kept = session.tunnel.stats().replay_bytes;
        assert!(kept <= KEPT_MAX, "{kept} bytes are kept");
        if answered.header("gateway-error") == Some("overloaded") {
            refusal = Some(answered);
            break;
        }
        assert_eq!(answered.header("gateway-error"), Some("port_closed"));
    }
    let refusal = refusal.expect("refused at last");
    assert_eq!(refusal.status(), 503);
    assert!(refusal.text().contains("tunnel.unacknowledged"), "{}", refusal.text());

    // Who acknowledges gets on.
    let acknowledged = agent.received;
    let frame = tunnel_proto::frame::Frame { sequence: 0, acknowledged, body: Body::Acknowledge };
    agent.send_frame(frame).await;
    e2e::until("nothing is kept any more", || session.tunnel.stats().replay_bytes == 0).await;
    let mut user = stage.asking("one", 4000).await;
    let channel = agent.opened().await;
    agent.say(Body::Reset { channel, reason: Reason::PortClosed }).await;
    assert_eq!(user.message().await.expect("an answer").header("gateway-error"), Some("port_closed"));
    agent.say(Body::Close { reason: Reason::Shutdown, detail: String::new() }).await;
    e2e::until("the session is gone", || session.tunnel.is_ended()).await;
    stage.finish().await;
}
