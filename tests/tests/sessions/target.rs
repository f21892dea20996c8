//! The agent decides about each channel too, and does not take its gateway's word for where it may go.

use e2e::raw::RawApp;
use e2e::{PATIENCE, TestGateway};
use tunnel_proto::hello::{AppProtocol, HostMode, Port};
use tunnel_proto::reason::Reason;

/// Row 18: access is asked for each channel, at both ends. Here the gateway's own check is left out.
#[tokio::test]
async fn agent_reaches_no_port_that_it_does_not_expose_even_if_its_gateway_asks() {
    let gateway = TestGateway::start().await;
    let (open, shut) = (RawApp::echo().await, RawApp::start(|_| async { panic!("reached") }).await);
    let exposed = Port { number: open.port, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false };
    let _agent = gateway.agent_with("one", vec![exposed]).await;
    let session = gateway.registry.current(&"one".parse().unwrap()).expect("a session");
    for (port, expected) in [
        (shut.port, Err(Reason::PortNotAllowed)),
        (gateway.addresses.agents.port(), Err(Reason::PortNotAllowed)),
        (gateway.addresses.admin.expect("on").port(), Err(Reason::PortNotAllowed)),
        (open.port, Ok(())),
    ] {
        let (_channel, answered) = session.tunnel.open(port).expect("room for a channel");
        let answered = tokio::time::timeout(PATIENCE, answered).await.expect("an answer").expect("the session lives");
        assert_eq!(answered, expected, "{port}");
    }
}
