//! Answers agents that dialed the listener for users with the right port, in words that they put into their own log.
//! Pure.

use http::request::Parts;
use http::{HeaderMap, Response};
use tunnel_link::grpc::{self, Code, RpcRefused};
use tunnel_link::websocket;

use gateway_net::telemetry::FailureLabels;

/// Labels under which these requests are counted.
pub(crate) const LABELS: FailureLabels =
    FailureLabels { code: "wrong_listener", reason: "wrong_listener", side: "client" };

/// Tells whether a request is an agent's, over HTTP/2 or for a WebSocket.
pub(crate) fn is_agents(parts: &Parts) -> bool {
    parts.uri.path() == grpc::PATH && (grpc::is_grpc(&parts.headers) || asks_for_link(&parts.headers))
}

fn asks_for_link(headers: &HeaderMap) -> bool {
    let protocol = headers.get(http::header::SEC_WEBSOCKET_PROTOCOL);
    protocol.is_some_and(|protocol| protocol.as_bytes() == websocket::PROTOCOL.as_bytes())
}

/// Answers such a request. Only a person can help, so the agent does not dial again.
pub(crate) fn answer<B: Default>(parts: &Parts, agents_port: u16) -> Response<B> {
    let refused = RpcRefused { code: Code::FailedPrecondition, message: words(agents_port), retry_after: None };
    if asks_for_link(&parts.headers) {
        return websocket::refuse_response(&refused);
    }
    grpc::refuse_response(&refused)
}

/// Says which port is right.
pub(crate) fn words(agents_port: u16) -> String {
    format!("{}; agents dial listen.agents, here port {agents_port}", grpc::MISDIALED)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;

    use super::*;

    fn parts(path: &str, field: (&str, &str)) -> Parts {
        Request::post(path).header(field.0, field.1).body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_an_agent_is_told_where_agents_dial() {
        let grpc = ("content-type", "application/grpc");
        let link = ("sec-websocket-protocol", websocket::PROTOCOL);
        for (path, field, expected) in [
            (grpc::PATH, grpc, true),
            (grpc::PATH, link, true),
            (grpc::PATH, ("content-type", "text/plain"), false),
            (grpc::PATH, ("sec-websocket-protocol", "chat"), false),
            ("/", grpc, false),
        ] {
            assert_eq!(is_agents(&parts(path, field)), expected, "{path} {field:?}");
        }
        for field in [grpc, link] {
            let response: Response<Bytes> = answer(&parts(grpc::PATH, field), 8081);
            assert!(response.headers()["grpc-message"].to_str().unwrap().ends_with("port 8081"), "{response:?}");
            assert_eq!(response.headers()["grpc-status"], "9");
        }
    }
}
