//! A gateway that shuts down in good order.

use std::sync::Arc;
use std::time::Duration;

use tunnel_link::channel_io::ChannelError;
use tunnel_link::drain::DrainResult;
use tunnel_link::session::DrainRequest;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;

use crate::gateway_host::{Gateway, RETRY_AFTER};
use crate::net::{GATEWAY, Net, SOON, for_seeds};
use crate::user;

pub(crate) const REQUEST: DrainRequest =
    DrainRequest { deadline: Duration::from_secs(5), redial_after: Duration::from_secs(1), moves: false };

/// What `gateway::app` does at its end: tell agents, wait for channels, close sessions, cut the rest.
pub(crate) async fn drain(gateway: Arc<Gateway>) -> DrainResult {
    let deadline = tokio::time::Instant::now() + REQUEST.deadline;
    for session in gateway.registry.all() {
        session.tunnel.drain(REQUEST.deadline, REQUEST.redial_after);
    }
    let closing = async {
        let busy = || gateway.registry.all().iter().any(|session| session.tunnel.stats().channels_live > 0);
        while busy() && tokio::time::Instant::now() < deadline - Duration::from_millis(100) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for session in gateway.registry.all() {
            session.tunnel.close(Reason::Shutdown, "the gateway is shutting down");
        }
    };
    tokio::join!(gateway.drain.run(REQUEST.deadline), closing).0
}

#[test]
fn drain_lets_transfers_finish_and_tells_agents_why_it_ends() {
    for_seeds(0..8, |seed| {
        let mut net = Net::new(seed);
        net.agent("one", &["well", "mill"]);
        net.agent("two", &["ford"]);
        let before = ["well", "mill", "ford"].map(|name| net.up(name, 0));
        let transfer = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
        let into = net.rolls.millis(10, 200);
        net.run(into);
        assert!(!transfer.is_there());
        let drained = net.on_gateway(drain);
        let moved = net.wait("the transfer", SOON, &transfer);
        assert!(moved.is_ok_and(|(bytes, took)| bytes > 1_000_000 && took >= Duration::from_secs(2)), "{moved:?}");
        assert_eq!(net.wait("the drain", SOON, &drained), DrainResult::Clean);
        net.run(Duration::from_millis(100));
        for witness in net.shared.sessions() {
            let end = witness.end.clone().map(|(_, error)| error);
            assert!(matches!(end, Some(SessionError::Closed { reason: Reason::Shutdown, .. })), "{witness:?}");
            if witness.side == Side::Agent {
                assert_eq!(witness.session.drain_request(), Some(REQUEST));
            }
        }
        // Not back before it was asked to be, turned away while the gateway is going, and back with a new one.
        net.run(RETRY_AFTER);
        for name in ["well", "mill", "ford"] {
            let ended = net.shared.newest(name, Side::Agent).expect("a session").end.expect("it ended").0;
            let mut dials = net.shared.dials().into_iter().filter(|dial| dial.workspace == name);
            let redialed = dials.find(|dial| dial.at > ended).expect("it redials").at;
            assert!(redialed - ended >= REQUEST.redial_after, "{name}");
        }
        assert!(net.shared.log().iter().any(|line| line.contains("refused: this gateway is shutting down")));
        assert!(net.shared.gateway().registry.is_empty());
        net.crash(GATEWAY);
        net.bounce(GATEWAY);
        for (name, before) in ["well", "mill", "ford"].into_iter().zip(before) {
            net.up(name, before);
        }
        net.finish();
    });
}

#[test]
fn drain_ends_in_its_time_though_an_agent_has_gone_silent() {
    for_seeds(0..8, |seed| {
        let mut net = Net::new(seed);
        net.agent("one", &["well"]);
        net.agent("two", &["mill"]);
        let before = net.up("well", 0);
        net.up("mill", 0);
        let stuck = net.user("well", user::chatter);
        let into = net.rolls.millis(10, 200);
        net.run(into);
        net.sim.partition(GATEWAY, "one");
        let drained = net.on_gateway(drain);
        // Whether the silent one is cut or runs out by itself depends on when it was last heard.
        let limit = REQUEST.deadline + Duration::from_millis(100);
        net.wait("the drain", limit, &drained);
        let fault = net.wait("the user hears of it", SOON, &stuck);
        assert_eq!(fault, ChannelError::Reset(Reason::SessionLost));
        assert!(net.shared.gateway().registry.is_empty());
        net.crash(GATEWAY);
        net.sim.repair(GATEWAY, "one");
        net.bounce(GATEWAY);
        net.up("well", before);
        net.finish();
    });
}
