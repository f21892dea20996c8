//! The way of users: the public URL, through whatever is in front of it.

use std::sync::Arc;

use doctor::ask::{self, Silence};
use doctor::judge::front;
use doctor::{Check, Finding, FindingId, Outcome};

use crate::way::{Steps, Way, bare, certificate, is_of_certificate};
use crate::{Installation, SILENCE, names};

const CONNECTION: &str = "public URL: connection";
const CERTIFICATE: &str = "public URL: certificate";
const ZONE: &str = "hosts of workspaces: certificate";
const ANSWER: &str = "hosts of workspaces: answer";
const UPGRADE: &str = "hosts of workspaces: WebSocket";
const IDLE: &str = "public URL: silence";

/// Protocols of browsers, best first.
const BROWSERS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The protocol of WebSockets.
const HTTP1: &[&[u8]] = &[b"http/1.1"];

/// Goes the way.
pub(crate) async fn look(it: Arc<Installation>) -> Vec<Check> {
    let host = bare(it.config.public_url.host());
    if let Err(why) = names::addresses(host).await {
        return STEPS.left_out(CONNECTION, &format!("{host} has no address here: {why}"));
    }
    match Way::new(&it.config.public_url, FindingId::PublicUnreachable, &it) {
        Ok(way) => follow(&it, &way, host).await,
        Err(found) => STEPS.broken(CONNECTION, found),
    }
}

const STEPS: Steps = Steps(&[CONNECTION, CERTIFICATE, ZONE, ANSWER, UPGRADE, IDLE]);

async fn follow(it: &Installation, way: &Way, host: &str) -> Vec<Check> {
    let connected = match way.connect(host, BROWSERS).await {
        Ok(connected) => connected,
        Err(found) if is_of_certificate(&found) => {
            let mut checks = vec![Check::new(CONNECTION, Outcome::Passed(way.shown()))];
            checks.extend(STEPS.broken(CERTIFICATE, found));
            return checks;
        }
        Err(found) => return STEPS.broken(CONNECTION, found),
    };
    let mut checks = vec![Check::new(CONNECTION, Outcome::Passed(way.shown()))];
    checks.push(certificate(CERTIFICATE, &connected, &format!("the certificate of {}", way.shown())));
    drop(connected.stream);
    let below = format!("{}.{}", names::made_up(), it.config.zone);
    match way.connect(&below, HTTP1).await {
        Err(found) if way.is_https() => {
            checks.extend(STEPS.broken(ZONE, found));
            return checks;
        }
        Err(found) => {
            checks.push(Check::skipped(ZONE, "there is no TLS"));
            checks.extend(STEPS.broken(ANSWER, found));
            return checks;
        }
        Ok(connected) => {
            checks.push(certificate(ZONE, &connected, &format!("the certificate for {below}")));
            checks.extend(answers(it, way, &below, connected.stream).await);
        }
    }
    checks
}

/// Visits a page of a workspace that is not there, without and with an upgrade; then is silent, if that was asked for.
async fn answers(it: &Installation, way: &Way, below: &str, stream: ask::Stream) -> Vec<Check> {
    let origin = way.origin(below);
    let url = format!("{}://{}", origin.scheme, origin.authority);
    let visited = ask::visit(stream, &origin).await;
    let fault = match &visited {
        Ok(head) => front::visit(&url, head),
        Err(why) => Some(Finding::new(FindingId::PublicNotGateway, format!("{url}: {why}"))),
    };
    let fault = match fault {
        Some(_) if !way.is_https() && way.speaks_tls(it).await => {
            Some(Finding::new(FindingId::PlainToTlsPort, format!("{} is answered with TLS", way.shown())))
        }
        fault => fault,
    };
    if let Some(found) = fault {
        let mut checks = vec![Check::new(ANSWER, found)];
        checks.extend(STEPS.left_out(UPGRADE, "there is no gateway to ask"));
        return checks;
    }
    let mut checks =
        vec![Check::new(ANSWER, Outcome::Passed("the gateway answers, and asks for a sign-in".to_owned()))];
    checks.push(match way.connect(below, HTTP1).await {
        Err(found) => Check::new(UPGRADE, found),
        Ok(connected) => {
            let found = match ask::visit_upgrading(connected.stream, &origin).await {
                Ok(head) => front::websocket(&url, &head),
                Err(why) => Some(Finding::new(FindingId::FrontWithoutWebsocket, format!("{url}: {why}"))),
            };
            Check::new(UPGRADE, Outcome::of(found.into_iter().collect(), "a request for one arrives at the gateway"))
        }
    });
    checks.push(silence(it, way).await);
    checks
}

async fn silence(it: &Installation, way: &Way) -> Check {
    if !it.args.slow {
        return Check::skipped(IDLE, format!("it takes {} s: ask for it with --slow", SILENCE.as_secs()));
    }
    let host = it.config.public_url.host();
    let connected = match way.connect(bare(host), BROWSERS).await {
        Ok(connected) => connected,
        Err(found) => return Check::new(IDLE, found),
    };
    let silent = ask::silence(connected.stream, connected.is_http2, &way.own_origin(), SILENCE).await;
    match silent {
        Silence::Held => {
            Check::new(IDLE, Outcome::Passed(format!("a stream may be silent for {} s", SILENCE.as_secs())))
        }
        Silence::NoCall(why) => Check::skipped(IDLE, format!("no stream comes up to be silent on: {why}")),
        Silence::Cut(why) => {
            let what = format!("{}: a stream broke within {} s of silence: {why}", way.shown(), SILENCE.as_secs());
            Check::new(IDLE, Finding::new(FindingId::FrontCutsIdle, what))
        }
    }
}
