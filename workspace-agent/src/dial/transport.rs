//! Choice of the transport of a link: which to try first, when to try the other, which one worked. Pure.

use tunnel_link::grpc::{ConnectError, Via};

use super::DialFailure;

/// Transports that an agent may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// HTTP/2, and a WebSocket where HTTP/2 cannot pass.
    #[default]
    Auto,
    /// HTTP/2 only.
    Http2,
    /// A WebSocket only.
    Websocket,
}

/// Transports to try in one dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportPlan {
    /// Transport to try first.
    pub first: Via,
    /// Transport to try if the first cannot pass.
    pub then: Option<Via>,
}

/// Failures in a row after which the transport that worked last is not relied upon any more: a gateway that restarts,
/// or a balancer without one behind it, says nothing about the network.
const FAILURES_MAX: u32 = 3;

/// Links inside a WebSocket after which HTTP/2 is tried again: networks change.
const LINKS_PER_TRIAL: u32 = 8;

/// Experience of earlier dials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DialHistory {
    worked: Option<Via>,
    failures: u32,
    /// Links inside a WebSocket since HTTP/2 was tried.
    links: u32,
}

impl DialHistory {
    /// Decides what to try next.
    #[must_use]
    pub fn plan(&self, transport: Transport) -> TransportPlan {
        let only = |first| TransportPlan { first, then: None };
        match (transport, self.worked) {
            (Transport::Http2, _) => only(Via::Http2),
            (Transport::Websocket, _) => only(Via::WebSocket),
            (Transport::Auto, Some(Via::Http2)) if self.failures < FAILURES_MAX => only(Via::Http2),
            (Transport::Auto, Some(Via::WebSocket)) if self.failures < FAILURES_MAX && self.links < LINKS_PER_TRIAL => {
                only(Via::WebSocket)
            }
            (Transport::Auto, _) => TransportPlan { first: Via::Http2, then: Some(Via::WebSocket) },
        }
    }

    /// Learns that a dial ended with a link, or without one.
    pub fn learn(&mut self, plan: TransportPlan, worked: Option<Via>) {
        match worked {
            None => self.failures = self.failures.saturating_add(1),
            Some(via) => {
                let tried_http2 = plan.first == Via::Http2;
                self.links = if tried_http2 { 1 } else { self.links.saturating_add(1) };
                (self.worked, self.failures) = (Some(via), 0);
            }
        }
    }
}

/// Returns whether a failure says that HTTP/2 cannot pass on this way. A gateway's own refusal never does.
#[must_use]
pub fn cannot_pass(failure: &DialFailure) -> bool {
    match failure {
        DialFailure::Rpc(error) => match error {
            ConnectError::Http2(_)
            | ConnectError::NotGateway { .. }
            | ConnectError::NoWelcome
            | ConnectError::Welcome(_) => true,
            ConnectError::Http1(_)
            | ConnectError::Upgrade(_)
            | ConnectError::Refused(_)
            | ConnectError::Argument(_) => false,
        },
        // A proxy that wants the whole request before it passes any of it on.
        DialFailure::WelcomeTimedOut => true,
        // A server that knows no protocol of those that were offered says so in the handshake.
        DialFailure::Tls(error) => is_no_protocol(error),
        DialFailure::Connect(_)
        | DialFailure::ConnectTimedOut
        | DialFailure::Proxy { .. }
        | DialFailure::Neither { .. }
        | DialFailure::Drained { .. }
        | DialFailure::LinkLost
        | DialFailure::Certificate(_)
        | DialFailure::Session(_) => false,
    }
}

fn is_no_protocol(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)))
}

#[cfg(test)]
mod tests {
    use tunnel_link::grpc::{Code, RpcRefused};

    use super::*;

    const BOTH: TransportPlan = TransportPlan { first: Via::Http2, then: Some(Via::WebSocket) };
    const HTTP2: TransportPlan = TransportPlan { first: Via::Http2, then: None };
    const WEBSOCKET: TransportPlan = TransportPlan { first: Via::WebSocket, then: None };

    fn after(lessons: &[Option<Via>]) -> TransportPlan {
        let mut memory = DialHistory::default();
        for worked in lessons {
            let plan = memory.plan(Transport::Auto);
            memory.learn(plan, *worked);
        }
        memory.plan(Transport::Auto)
    }

    #[test]
    fn what_worked_is_tried_alone_until_it_fails_again_and_again() {
        assert_eq!(after(&[]), BOTH);
        assert_eq!(after(&[None, None]), BOTH);
        for (via, plan) in [(Via::Http2, HTTP2), (Via::WebSocket, WEBSOCKET)] {
            assert_eq!(after(&[None, Some(via)]), plan);
            assert_eq!(after(&[Some(via), None, None]), plan);
            assert_eq!(after(&[Some(via), None, None, None]), BOTH);
            assert_eq!(after(&[Some(via), None, None, Some(via), None]), plan);
        }
    }

    #[test]
    fn http2_is_tried_again_now_and_then_and_taken_when_it_passes() {
        let mut plans = Vec::new();
        let mut memory = DialHistory::default();
        for _ in 0..24 {
            let plan = memory.plan(Transport::Auto);
            plans.push(plan == BOTH);
            memory.learn(plan, Some(Via::WebSocket));
        }
        let trials: Vec<_> = plans.iter().enumerate().filter(|(_, both)| **both).map(|(index, _)| index).collect();
        assert_eq!(trials, [0, 8, 16]);
        assert_eq!(after(&[Some(Via::WebSocket), None, None, None, Some(Via::Http2)]), HTTP2);
    }

    #[test]
    fn named_transport_is_the_only_one() {
        let mut memory = DialHistory::default();
        memory.learn(BOTH, Some(Via::WebSocket));
        assert_eq!(memory.plan(Transport::Http2), HTTP2);
        assert_eq!(DialHistory::default().plan(Transport::Websocket), WEBSOCKET);
    }

    #[test]
    fn only_what_stands_between_is_a_reason_for_a_websocket() {
        let not_gateway = |status| DialFailure::Rpc(ConnectError::NotGateway { status });
        for failure in [not_gateway(502), not_gateway(426), not_gateway(403), DialFailure::WelcomeTimedOut] {
            assert!(cannot_pass(&failure), "{failure}");
        }
        assert!(cannot_pass(&DialFailure::Rpc(ConnectError::NoWelcome)));
        let alert = |alert| DialFailure::Tls(std::io::Error::other(rustls::Error::AlertReceived(alert)));
        assert!(cannot_pass(&alert(rustls::AlertDescription::NoApplicationProtocol)));
        assert!(!cannot_pass(&alert(rustls::AlertDescription::UnknownCA)));
        for code in [Code::Unavailable, Code::Unauthenticated, Code::ResourceExhausted, Code::DeadlineExceeded] {
            let refused = RpcRefused { code, message: "no".into(), retry_after: None };
            assert!(!cannot_pass(&DialFailure::Rpc(ConnectError::Refused(refused))), "{code:?}");
        }
        assert!(!cannot_pass(&DialFailure::Connect(std::io::ErrorKind::ConnectionRefused.into())));
        assert!(!cannot_pass(&DialFailure::ConnectTimedOut));
    }
}
