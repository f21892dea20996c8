//! Judges answers that came through a front: a balancer, a reverse proxy, or nothing at all between. Pure.

use http::{HeaderMap, StatusCode};
use tunnel_link::grpc::{Code, MISDIALED, RpcRefused, is_grpc, refusal};

use crate::finding::{Finding, FindingId};

/// Header field of every answer that the gateway itself makes for a failed request.
const GATEWAY_ERROR: &str = "gateway-error";

/// Path below which the gateway's own pages are, on each of its hosts.
const OWN_PATHS: &str = "/.gateway/";

/// Head of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Status.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
}

/// Answer of a gateway's listener for agents to a call without a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentsAnswer {
    /// It asks for a credential: the agents' listener.
    AgentsListener,
    /// The listener for users.
    UsersListener(String),
    /// Refused for another reason: the agents' listener as well.
    Refused(RpcRefused),
    /// No gateway's answer.
    Other(StatusCode),
}

/// Reads the answer to a call of the agents' RPC without a credential.
#[must_use]
pub fn agents_answer(head: &Head) -> AgentsAnswer {
    match refusal(&head.headers).filter(|_| is_grpc(&head.headers)) {
        Some(refused) if refused.code == Code::Unauthenticated => AgentsAnswer::AgentsListener,
        Some(refused) if refused.message.starts_with(MISDIALED) => AgentsAnswer::UsersListener(refused.message),
        Some(refused) => AgentsAnswer::Refused(refused),
        None => AgentsAnswer::Other(head.status),
    }
}

/// How the agents' RPC went over one transport: the answer, or why there was none.
pub type Tried = Result<AgentsAnswer, String>;

/// Judges how the agents' RPC went over HTTP/2, and in a WebSocket where that was tried after it.
#[must_use]
pub fn agents(url: &str, http2: &Tried, websocket: Option<&Tried>) -> Option<Finding> {
    let is_gateway = |tried: &Tried| matches!(tried, Ok(AgentsAnswer::AgentsListener | AgentsAnswer::Refused(_)));
    for tried in [Some(http2), websocket].into_iter().flatten() {
        if let Ok(AgentsAnswer::UsersListener(said)) = tried {
            return Some(Finding::new(FindingId::AgentsWrongListener, format!("{url} answers: {said}")));
        }
    }
    if is_gateway(http2) {
        return None;
    }
    let said = |tried: &Tried| match tried {
        Ok(AgentsAnswer::Other(status)) => format!("the answer is HTTP {}", status.as_u16()),
        Ok(AgentsAnswer::AgentsListener | AgentsAnswer::UsersListener(_) | AgentsAnswer::Refused(_)) => {
            "the gateway answers".to_owned()
        }
        Err(why) => format!("there is no answer: {why}"),
    };
    let over = format!("{url}: over HTTP/2 {}", said(http2));
    match websocket {
        Some(websocket) if is_gateway(websocket) => {
            let found = Finding::new(FindingId::FrontWithoutHttp2, format!("{over}; a WebSocket passes"));
            Some(found.warning())
        }
        Some(websocket) => {
            // Without any word of a gateway, this is likely something else.
            Some(Finding::new(FindingId::AgentsNotGateway, format!("{over}; for a WebSocket {}", said(websocket))))
        }
        None => Some(Finding::new(FindingId::FrontWithoutHttp2, over)),
    }
}

/// End of a call that is answered with a message and trailers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The status is in the trailers.
    Trailers,
    /// The answer ended without trailers.
    None,
    /// The stream broke off instead; the reason.
    Broken(String),
    /// The call itself was refused, or its answer is no gRPC.
    Refused(StatusCode),
}

/// Judges the end of such a call.
#[must_use]
pub fn trailers(url: &str, end: &CallEnd) -> Option<Finding> {
    let what = match end {
        CallEnd::Trailers => return None,
        CallEnd::None => "an answer ends without its trailers".to_owned(),
        CallEnd::Broken(why) => format!("an answer breaks off where its trailers are due: {why}"),
        CallEnd::Refused(status) => format!("a call is answered with HTTP {} and no gRPC status", status.as_u16()),
    };
    Some(Finding::new(FindingId::FrontWithoutTrailers, format!("{url}: {what}")))
}

/// Returns whether an answer is one that the gateway makes for a browser without a sign-in.
#[must_use]
pub fn is_gateways(head: &Head) -> bool {
    head.headers.contains_key(GATEWAY_ERROR) || is_sign_in(head)
}

/// Returns whether an answer leads a browser to sign in.
fn is_sign_in(head: &Head) -> bool {
    let location = head.headers.get(http::header::LOCATION).and_then(|value| value.to_str().ok());
    head.status.is_redirection() && location.is_some_and(|location| location.contains(OWN_PATHS))
}

/// Judges the answer to a visit of a workspace's page without a sign-in.
#[must_use]
pub fn visit(url: &str, head: &Head) -> Option<Finding> {
    if is_gateways(head) {
        return None;
    }
    let location = head.headers.get(http::header::LOCATION).and_then(|value| value.to_str().ok());
    let to = location.map(|location| format!(", to {location}")).unwrap_or_default();
    let what = format!("{url} answers with HTTP {}{to}, and not as a gateway", head.status.as_u16());
    Some(Finding::new(FindingId::PublicNotGateway, what))
}

/// Judges the answer to the same visit that asks for a WebSocket. To a browser's visit the gateway answers with the way to sign in; to
/// an upgrade, which no browser shows, with a refusal: so the answer says which of the two has reached it.
#[must_use]
pub fn websocket(url: &str, head: &Head) -> Option<Finding> {
    let what = if is_sign_in(head) {
        "the request for a WebSocket arrives at the gateway without its Upgrade".to_owned()
    } else if is_gateways(head) || head.status == StatusCode::SWITCHING_PROTOCOLS {
        return None;
    } else {
        format!("a request for a WebSocket is answered with HTTP {}, and not by the gateway", head.status.as_u16())
    };
    Some(Finding::new(FindingId::FrontWithoutWebsocket, format!("{url}: {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, fields: &[(&'static str, &'static str)]) -> Head {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        Head { status: StatusCode::from_u16(status).unwrap(), headers }
    }

    fn id(found: Option<Finding>) -> Option<(FindingId, &'static str)> {
        found.map(|found| (found.id, found.severity.as_str()))
    }

    const GRPC: (&str, &str) = ("content-type", "application/grpc");

    #[test]
    fn answers_to_a_call_without_a_credential_say_which_listener_it_is() {
        let asked = agents_answer(&head(200, &[GRPC, ("grpc-status", "16"), ("grpc-message", "no")]));
        assert_eq!(asked, AgentsAnswer::AgentsListener);
        let users = "this is the gateway's listener for users; agents dial listen.agents, here port 8081";
        let misdialed = agents_answer(&head(200, &[GRPC, ("grpc-status", "9"), ("grpc-message", users)]));
        assert_eq!(misdialed, AgentsAnswer::UsersListener(users.to_owned()));
        let drained = agents_answer(&head(200, &[GRPC, ("grpc-status", "14")]));
        assert!(matches!(drained, AgentsAnswer::Refused(_)), "{drained:?}");
        // A proxy's own page, which copies a field.
        let other = agents_answer(&head(502, &[("grpc-status", "16")]));
        assert_eq!(other, AgentsAnswer::Other(StatusCode::BAD_GATEWAY));
    }

    #[test]
    fn front_is_judged_by_what_passes_and_by_what_is_left() {
        let listener = || Ok(AgentsAnswer::AgentsListener);
        let other = |status| Ok(AgentsAnswer::Other(StatusCode::from_u16(status).unwrap()));
        let users = || Ok(AgentsAnswer::UsersListener("users".to_owned()));
        let broken = || Err("no HTTP/2".to_owned());
        let rows: [(Tried, Option<Tried>, _); 8] = [
            (listener(), None, None),
            (users(), None, Some((FindingId::AgentsWrongListener, "error"))),
            (broken(), Some(users()), Some((FindingId::AgentsWrongListener, "error"))),
            (broken(), Some(listener()), Some((FindingId::FrontWithoutHttp2, "warning"))),
            (other(426), Some(listener()), Some((FindingId::FrontWithoutHttp2, "warning"))),
            (broken(), Some(other(404)), Some((FindingId::AgentsNotGateway, "error"))),
            (other(404), Some(broken()), Some((FindingId::AgentsNotGateway, "error"))),
            (broken(), None, Some((FindingId::FrontWithoutHttp2, "error"))),
        ];
        for (http2, websocket, expected) in rows {
            assert_eq!(id(agents("http://a", &http2, websocket.as_ref())), expected, "{http2:?} {websocket:?}");
        }
    }

    #[test]
    fn trailers_are_there_or_missed() {
        assert_eq!(trailers("u", &CallEnd::Trailers), None);
        for end in [CallEnd::None, CallEnd::Broken("reset".to_owned()), CallEnd::Refused(StatusCode::OK)] {
            assert_eq!(id(trailers("u", &end)), Some((FindingId::FrontWithoutTrailers, "error")), "{end:?}");
        }
    }

    #[test]
    fn upgrade_is_told_from_a_visit_by_the_gateways_answer() {
        let sign_in = head(302, &[("location", "https://gw.example/.gateway/authorize?x=y")]);
        let refused = head(401, &[("gateway-error", "sign_in_required")]);
        assert_eq!((visit("u", &sign_in), visit("u", &refused), websocket("u", &refused)), (None, None, None));
        assert_eq!(id(websocket("u", &sign_in)), Some((FindingId::FrontWithoutWebsocket, "error")));
        for other in [head(200, &[]), head(400, &[]), head(301, &[("location", "https://elsewhere.example/")])] {
            assert_eq!(id(visit("u", &other)), Some((FindingId::PublicNotGateway, "error")), "{other:?}");
            assert_eq!(id(websocket("u", &other)), Some((FindingId::FrontWithoutWebsocket, "error")), "{other:?}");
        }
    }
}
