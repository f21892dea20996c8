//! The way of agents: their URL, through whatever is in front of it.

use std::sync::Arc;

use doctor::ask::{self, AgentsAsked};
use doctor::judge::front;
use doctor::{Check, Finding, FindingId, Outcome};

use crate::way::{Steps, Way, bare, certificate};
use crate::{Installation, names, now_ms};
use gateway_types::PublicUrl;
use gateway_workspaces::addresses::Addresses;

const CONNECTION: &str = "URL for agents: connection";
const CERTIFICATE: &str = "URL for agents: certificate";
const RPC: &str = "URL for agents: HTTP/2";
const TRAILERS: &str = "URL for agents: trailers";

const STEPS: Steps = Steps(&[CONNECTION, CERTIFICATE, RPC, TRAILERS]);

const HTTP2: &[&[u8]] = &[b"h2"];
const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];
const HTTP1: &[&[u8]] = &[b"http/1.1"];

/// Returns the URL for agents: the one that was given, or the one that definitions of workspaces get.
pub(crate) fn url(it: &Installation) -> Option<PublicUrl> {
    if let Some(given) = &it.args.agents_url {
        return Some(given.clone());
    }
    if let Some(configured) = &it.config.ci.agents_url {
        return configured.parse().ok();
    }
    let port = it.config.listen.agents.port();
    if port == 0 { None } else { Addresses::of(&it.config, port).agents_url.parse().ok() }
}

/// Goes the way.
pub(crate) async fn look(it: Arc<Installation>) -> Vec<Check> {
    let Some(url) = url(&it) else {
        return STEPS.left_out(CONNECTION, "no URL is known: name it with --agents-url");
    };
    let host = bare(url.host());
    if let Err(why) = names::addresses(host).await {
        let found = Finding::new(FindingId::DnsHostMissing, format!("{host}: {why}"));
        let is_told = host == bare(it.config.public_url.host());
        return if is_told {
            STEPS.left_out(CONNECTION, &format!("{host} has no address here: {why}"))
        } else {
            STEPS.broken(CONNECTION, found)
        };
    }
    match Way::new(&url, FindingId::AgentsUnreachable, &it) {
        Ok(way) => follow(&it, &way, host).await,
        Err(found) => STEPS.broken(CONNECTION, found),
    }
}

async fn follow(it: &Installation, way: &Way, host: &str) -> Vec<Check> {
    let connected = match way.connect(host, BOTH).await {
        Ok(connected) => connected,
        Err(found) => return STEPS.broken(CONNECTION, found),
    };
    let mut checks = vec![Check::new(CONNECTION, Outcome::Passed(way.shown()))];
    checks.push(certificate(CERTIFICATE, &connected, &format!("the certificate of {}", way.shown())));
    let asks_for_certificates = it.config.tls.agents.as_ref().and_then(|files| files.client_ca.as_ref());
    if asks_for_certificates.is_some_and(|authorities| authorities.required) {
        checks.extend(STEPS.left_out(RPC, "tls.agents.client_ca.required: only an agent's certificate is answered"));
        return checks;
    }
    drop(connected);
    checks.extend(rpc(it, way, host).await);
    checks
}

/// Asks the agents' RPC over HTTP/2, and in a WebSocket if that gets no answer.
async fn rpc(it: &Installation, way: &Way, host: &str) -> Vec<Check> {
    let origin = way.own_origin();
    let AgentsAsked { answer, end, .. } = over_http2(way, host).await;
    let websocket = if end.is_some() {
        None
    } else {
        Some(match way.connect(host, HTTP1).await {
            Ok(connected) => ask::agents_websocket(connected.stream, &origin).await,
            Err(found) => Err(found.what),
        })
    };
    let found = match front::agents(&way.shown(), &answer, websocket.as_ref()) {
        Some(found) if found.id == FindingId::AgentsNotGateway && !way.is_https() && way.speaks_tls(it).await => {
            Some(Finding::new(FindingId::PlainToTlsPort, format!("{} is answered with TLS", way.shown())))
        }
        found => found,
    };
    let is_there = "the gateway asks for an agent's credential";
    let mut checks = vec![Check::new(RPC, Outcome::of(found.into_iter().collect(), is_there))];
    checks.push(match &end {
        None => Check::skipped(TRAILERS, "no call over HTTP/2 arrives at the listener for agents"),
        Some(end) => {
            let found = front::trailers(&way.shown(), end).into_iter().collect();
            Check::new(TRAILERS, Outcome::of(found, "a call ends with its status"))
        }
    });
    checks
}

/// Asks over HTTP/2, again if there is no answer.
async fn over_http2(way: &Way, host: &str) -> AgentsAsked {
    let mut asked = AgentsAsked::failed("it was not asked");
    for _ in 0..ask::TRIES {
        asked = match way.connect(host, HTTP2).await {
            Ok(connected) => ask::agents_http2(connected.stream, &way.own_origin(), now_ms).await,
            Err(found) => AgentsAsked::failed(&found.what),
        };
        if asked.is_answered() {
            break;
        }
    }
    asked
}
