//! The way to the gateway: name, proxy, connection, TLS, transports, clock, credential.

use std::time::Duration;

use ::doctor::ask::{self, AgentsAsked, Origin};
use ::doctor::judge::front::{self, Tried};
use ::doctor::judge::{self, list};
use ::doctor::{Check, Finding, FindingId, Outcome};
use tokio::net::lookup_host;
use tokio::time::timeout;
use tunnel_link::git::{AcceptedCredential, AskError, try_credential};
use tunnel_link::grpc::{Code, ConnectError};

use super::now_ms;
use crate::Transport;
use crate::dial::{DialFailure, Gateway, Offer, with_sources};

const NAME: &str = "name of the gateway";
const PROXY: &str = "proxy";
const CONNECTION: &str = "gateway: connection";
const CERTIFICATE: &str = "gateway: certificate";
const RPC: &str = "gateway: HTTP/2";
const TRAILERS: &str = "gateway: trailers";
const CLOCK: &str = "gateway: clock";
const ACCEPTED: &str = "gateway: credential";
const VERSION: &str = "gateway: version";

/// All checks in their order.
const ALL: [&str; 9] = [NAME, PROXY, CONNECTION, CERTIFICATE, RPC, TRAILERS, CLOCK, ACCEPTED, VERSION];

/// Longest time of one step.
const STEP_TIME: Duration = Duration::from_secs(5);

/// Step of an HTTP `Date`, in milliseconds.
const DATE_STEP: i64 = 1000;

/// Leaves all checks out.
pub(super) fn left_out(why: &str) -> Vec<Check> {
    rest(NAME, why)
}

fn rest(first: &str, why: &str) -> Vec<Check> {
    ALL.iter().skip_while(|name| **name != first).map(|name| Check::skipped(*name, why)).collect()
}

/// Adds the check `name` of a finding, and leaves those behind it out.
fn ended(mut checks: Vec<Check>, name: &'static str, found: Finding) -> Vec<Check> {
    let rest = rest(name, "there is no connection to ask on");
    checks.push(Check::new(name, found));
    checks.extend(rest.into_iter().skip(1));
    checks
}

/// Goes the way of a dial, up to where a session would begin.
pub(super) async fn look(gateway: Gateway, transport: Transport, token: Option<String>) -> Vec<Check> {
    let mut checks = Vec::new();
    match gateway.proxy() {
        Some(proxy) => {
            checks.push(Check::skipped(NAME, "the proxy looks it up"));
            let wrong = match timed(gateway.try_proxy()).await {
                Ok(Some(Err(error))) => {
                    Some(Finding::new(judge::proxy(&error), format!("{proxy} {}", with_sources(&error))))
                }
                Ok(Some(Ok(())) | None) => None,
                Err(late) => Some(Finding::new(FindingId::ProxyFailed, format!("{proxy}: {late}"))),
            };
            if let Some(found) = wrong {
                return ended(checks, PROXY, found);
            }
            checks.push(Check::new(PROXY, Outcome::Passed(format!("{proxy} leads to {gateway}"))));
        }
        None => {
            match addresses(&gateway).await {
                Ok(found) => checks.push(Check::new(NAME, Outcome::Passed(found))),
                Err(why) => return ended(checks, NAME, Finding::new(FindingId::DnsHostMissing, why)),
            }
            checks.push(Check::skipped(PROXY, "the environment names none for this gateway"));
        }
    }
    let offer = if transport == Transport::Websocket { Offer::Http1 } else { Offer::Either };
    let connected = match timed(gateway.connect(offer)).await {
        Ok(Ok(connected)) => connected,
        Ok(Err(failure)) => return ended(checks, CONNECTION, judged(&failure, &gateway)),
        Err(late) => {
            return ended(checks, CONNECTION, Finding::new(FindingId::AgentsUnreachable, format!("{gateway}: {late}")));
        }
    };
    checks.push(Check::new(CONNECTION, Outcome::Passed(gateway.to_string())));
    checks.push(if gateway.is_https() {
        Check::new(CERTIFICATE, Outcome::Passed("trusted, and for this name".to_owned()))
    } else {
        Check::skipped(CERTIFICATE, "there is no TLS")
    });
    let is_http1 = connected.is_http1();
    drop(connected);
    checks.extend(transports(&gateway, transport, is_http1).await);
    checks.extend(accepted(&gateway, transport, token).await);
    checks
}

async fn timed<T>(step: impl Future<Output = T>) -> Result<T, &'static str> {
    timeout(STEP_TIME, step).await.map_err(|_elapsed| "no answer came in time")
}

async fn addresses(gateway: &Gateway) -> Result<String, String> {
    let host = gateway.host();
    let found = timed(lookup_host((host, 443))).await.map_err(|late| format!("{host}: {late}"))?;
    let found = found.map_err(|error| format!("{host}: {error}"))?.map(|address| address.ip()).collect();
    Ok(format!("{host} has {}", list(&found)))
}

fn judged(failure: &DialFailure, gateway: &Gateway) -> Finding {
    if let DialFailure::Tls(error) = failure {
        return judge::tls(error, &gateway.to_string());
    }
    Finding::new(FindingId::AgentsUnreachable, format!("{gateway}: {}", with_sources(failure)))
}

/// Asks the agents' RPC over each transport that a link may use, reflection for trailers, and reads the clock of the answers.
async fn transports(gateway: &Gateway, transport: Transport, is_http1: bool) -> Vec<Check> {
    let (authority, scheme) = gateway.origin();
    let origin = Origin { scheme, authority };
    let asked = match transport {
        Transport::Websocket => None,
        Transport::Auto | Transport::Http2 if is_http1 => {
            Some(AgentsAsked::failed("the TLS handshake settles on HTTP/1.1"))
        }
        Transport::Auto | Transport::Http2 => Some(over_http2(gateway, &origin).await),
    };
    let is_needed = transport != Transport::Http2 && asked.as_ref().is_none_or(|asked| asked.end.is_none());
    let websocket: Option<Tried> = if is_needed {
        Some(match gateway.connect(Offer::Http1).await {
            Ok(connected) => ask::agents_websocket(connected.into_stream(), &origin).await,
            Err(failure) => Err(with_sources(&failure)),
        })
    } else {
        None
    };
    let url = gateway.to_string();
    let Some(asked) = asked else {
        let not_asked = Err("it was not asked: --transport websocket".to_owned());
        let found = front::agents(&url, websocket.as_ref().unwrap_or(&not_asked), None);
        let found = found.into_iter().collect();
        return vec![
            Check::new("gateway: WebSocket", Outcome::of(found, "the gateway asks for a credential")),
            Check::skipped(TRAILERS, "HTTP/2 is not used: --transport websocket"),
            Check::skipped(CLOCK, "HTTP/2 is not used: --transport websocket"),
        ];
    };
    let found = front::agents(&url, &asked.answer, websocket.as_ref());
    // What is answered with TLS is no gateway without it.
    let found = match found {
        Some(found) if found.id == FindingId::AgentsNotGateway && gateway.speaks_tls().await => {
            Some(Finding::new(FindingId::PlainToTlsPort, format!("{gateway} is answered with TLS")))
        }
        found => found,
    };
    let is_there = "the gateway asks for a credential";
    vec![
        Check::new(RPC, Outcome::of(found.into_iter().collect(), is_there)),
        match &asked.end {
            None => Check::skipped(TRAILERS, "no call over HTTP/2 arrives at the listener for agents"),
            Some(end) => {
                let found = front::trailers(&url, end).into_iter().collect();
                Check::new(TRAILERS, Outcome::of(found, "a call ends with its status"))
            }
        },
        match asked.clock {
            None => Check::skipped(CLOCK, "no answer has a Date"),
            Some(reading) => {
                let found = judge::clock(reading.ahead(DATE_STEP), "the gateway").into_iter().collect();
                Check::new(CLOCK, Outcome::of(found, "it agrees with this machine's"))
            }
        },
    ]
}

/// Asks over HTTP/2, again if there is no answer.
async fn over_http2(gateway: &Gateway, origin: &Origin) -> AgentsAsked {
    let mut asked = AgentsAsked::failed("it was not asked");
    for _ in 0..ask::TRIES {
        asked = match gateway.connect(Offer::Http2).await {
            Ok(connected) => ask::agents_http2(connected.into_stream(), origin, now_ms).await,
            Err(failure) => AgentsAsked::failed(&with_sources(&failure)),
        };
        if asked.is_answered() {
            break;
        }
    }
    asked
}

/// Tries the credential, which begins no session, and compares the version of the gateway that accepts it.
async fn accepted(gateway: &Gateway, transport: Transport, token: Option<String>) -> [Check; 2] {
    let left_out = |why: &str| [ACCEPTED, VERSION].map(|name| Check::skipped(name, why));
    if token.is_none() && !gateway.shows_certificate() {
        return left_out("there is none that could be shown");
    }
    let mut tried = Err("it was not tried".to_owned());
    for _ in 0..ask::TRIES {
        tried = try_once(gateway, transport, token.as_deref()).await;
        if !matches!(tried, Ok(Err(AskError::Connect(ConnectError::Http2(_))))) {
            break;
        }
    }
    match tried {
        Ok(answer) => of_answer(answer),
        Err(why) => left_out(&why),
    }
}

/// Tries it once; the text says why there is no connection, or no answer in time.
async fn try_once(
    gateway: &Gateway,
    transport: Transport,
    token: Option<&str>,
) -> Result<Result<AcceptedCredential, AskError>, String> {
    let offer = if transport == Transport::Websocket { Offer::Http1 } else { Offer::Either };
    let connected = timed(gateway.connect(offer)).await?.map_err(|failure| with_sources(&failure))?;
    let is_http1 = connected.is_http1() || transport == Transport::Websocket;
    let (authority, scheme) = gateway.origin();
    Ok(timed(try_credential(connected.into_stream(), is_http1, authority, scheme, token)).await?)
}

/// Judges the answer.
fn of_answer(answer: Result<AcceptedCredential, AskError>) -> [Check; 2] {
    let unknown = || Check::skipped(VERSION, "a gateway says it only to an agent that it accepts");
    let error = match answer {
        Ok(AcceptedCredential { version }) => {
            let accepted = Check::new(ACCEPTED, Outcome::Passed("the gateway accepts it".to_owned()));
            let Some(version) = version else { return [accepted, Check::skipped(VERSION, "the gateway does not say")] };
            let gateway = std::iter::once(("the gateway".to_owned(), version.as_str()));
            let found = judge::versions(env!("CARGO_PKG_VERSION"), gateway);
            return [accepted, Check::new(VERSION, Outcome::of(found, format!("{version}, as this program")))];
        }
        Err(error) => error,
    };
    if let AskError::Connect(ConnectError::Refused(refused)) = &error
        && matches!(refused.code, Code::Unauthenticated | Code::PermissionDenied)
    {
        let found = Finding::new(FindingId::CredentialRefused, format!("the gateway says: {}", refused.message));
        return [Check::new(ACCEPTED, found), unknown()];
    }
    [Check::skipped(ACCEPTED, format!("there is no answer to judge: {}", with_sources(&error))), unknown()]
}

#[cfg(test)]
mod tests {
    use tunnel_link::grpc::RpcRefused;

    use super::*;

    fn outcomes(answer: Result<AcceptedCredential, AskError>) -> [Outcome; 2] {
        of_answer(answer).map(|check| check.outcome)
    }

    #[test]
    fn only_a_refusal_of_the_credential_is_a_finding() {
        let of = |code| {
            let refused = RpcRefused { code, message: "why".to_owned(), retry_after: None };
            let [accepted, _] = outcomes(Err(AskError::Connect(ConnectError::Refused(refused))));
            accepted
        };
        for code in [Code::Unauthenticated, Code::PermissionDenied] {
            let Outcome::Found(found) = of(code) else { panic!("{code:?}") };
            assert_eq!((found[0].id, found[0].what.as_str()), (FindingId::CredentialRefused, "the gateway says: why"));
        }
        for code in [Code::Unavailable, Code::NotFound, Code::ResourceExhausted] {
            assert!(matches!(of(code), Outcome::Skipped(_)), "{code:?}");
        }
        let [accepted, version] = outcomes(Err(AskError::TooOld));
        assert!(matches!((accepted, version), (Outcome::Skipped(_), Outcome::Skipped(_))));
    }

    #[test]
    fn version_of_the_gateway_is_compared_if_it_is_said() {
        let of = |version: Option<&str>| outcomes(Ok(AcceptedCredential { version: version.map(str::to_owned) }));
        let [accepted, version] = of(Some("0.0.9"));
        assert!(matches!(accepted, Outcome::Passed(_)));
        let Outcome::Found(found) = version else { panic!("{version:?}") };
        assert_eq!(found[0].id, FindingId::VersionDiffers);
        assert!(matches!(of(Some(env!("CARGO_PKG_VERSION"))), [Outcome::Passed(_), Outcome::Passed(_)]));
        assert!(matches!(of(None), [Outcome::Passed(_), Outcome::Skipped(_)]));
    }
}
