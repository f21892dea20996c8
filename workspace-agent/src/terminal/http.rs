//! HTTP/1.1 server in front of terminals: the page, the list of terminals, and the switch to a terminal's own protocol.

mod access;

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use ::http::{HeaderMap, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tracing::{info, warn};

pub(crate) use self::access::{Access, is_foreign};
use super::job::{Choice, NotHeld, Phase};
use super::live::LiveTerminal;
use super::message::{SUBPROTOCOL, Size};
use super::state::{Joining, PageId, ViewerId};
use super::{NotMade, TERMINALS_MAX, Terminals, page, viewer};

/// Longest time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bound on a request's head.
const HEAD_BYTES: usize = 32 * 1024;

/// Bound on a request's body, which is a few words.
const BODY_BYTES: usize = 1024;

/// Connection that is to switch to a terminal's own protocol.
type Switch = (hyper::upgrade::OnUpgrade, Arc<LiveTerminal>, ViewerId);

/// Serves one connection.
///
/// # Errors
/// It broke, or its peer did not speak HTTP.
pub(super) async fn serve(terminals: &Terminals, io: DuplexStream) -> Result<(), hyper::Error> {
    let switch: Mutex<Option<Switch>> = Mutex::new(None);
    let service = service_fn(async |request: Request<Incoming>| {
        let mut answer = answer(terminals, request, &switch).await;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            // A new channel costs no round trip, and one that idles would keep the place of one that is needed.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok::<_, std::convert::Infallible>(answer)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES);
    let served = builder.serve_connection(TokioIo::new(io), service).with_upgrades().await;
    let Some((upgrade, live, id)) = switch.into_inner() else { return served };
    match upgrade.await {
        Ok(upgraded) => {
            let job = terminals.job().map(|job| job.changed());
            viewer::serve(TokioIo::new(upgraded), live, id, job).await;
            Ok(())
        }
        Err(error) => {
            live.change(|state| state.leave(id));
            Err(error)
        }
    }
}

/// Refusal of a request: a status, and a code for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TerminalRefusal(StatusCode, &'static str);

const NOT_FOUND: TerminalRefusal = TerminalRefusal(StatusCode::NOT_FOUND, "not_found");
const GONE: TerminalRefusal = TerminalRefusal(StatusCode::NOT_FOUND, "terminal_gone");
const ANOTHER_JOB: TerminalRefusal = TerminalRefusal(StatusCode::CONFLICT, "another_job");
const BAD_REQUEST: TerminalRefusal = TerminalRefusal(StatusCode::BAD_REQUEST, "bad_request");

async fn answer(
    terminals: &Terminals,
    request: Request<Incoming>,
    switch: &Mutex<Option<Switch>>,
) -> Response<Full<Bytes>> {
    let mut response = match route(terminals, request, switch).await {
        Ok(response) => response,
        Err(TerminalRefusal(status, code)) => json(status, &Failed { error: code }),
    };
    page::protect(response.headers_mut());
    response
}

#[derive(Serialize)]
struct Failed {
    error: &'static str,
}

async fn route(
    terminals: &Terminals,
    request: Request<Incoming>,
    switch: &Mutex<Option<Switch>>,
) -> Result<Response<Full<Bytes>>, TerminalRefusal> {
    let access = Access::read(request.headers());
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let method = request.method().clone();
    match (&method, segments.as_slice()) {
        (&Method::GET | &Method::HEAD, [""]) => Ok(page::index()),
        (&Method::GET | &Method::HEAD, ["assets", name]) => page::asset(name, request.headers()).ok_or(NOT_FOUND),
        (&Method::GET | &Method::HEAD, ["state"]) => Ok(json(StatusCode::OK, &state(terminals, &access))),
        (&Method::POST, ["terminals"]) => {
            access.may_change(request.headers())?;
            make(terminals, &access, request).await
        }
        (&Method::DELETE, ["terminals", id]) => {
            access.may_change(request.headers())?;
            let live = terminals.find(id).ok_or(GONE)?;
            live.close.cancel();
            info!(number = live.number, who = access.user(), "a terminal was closed");
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::GET, ["terminals", id, "stream"]) => {
            access.may_connect(request.headers())?;
            let live = terminals.find(id).ok_or(GONE)?;
            stream(&access, request, live, switch)
        }
        (&Method::POST, ["job"]) => {
            access.may_change(request.headers())?;
            choose(terminals, &access, request).await
        }
        (_, [""] | ["assets", _] | ["state"] | ["terminals", _, "stream"]) => Ok(not_allowed("GET, HEAD")),
        (_, ["terminals"] | ["job"]) => Ok(not_allowed("POST")),
        (_, ["terminals", _]) => Ok(not_allowed("DELETE")),
        _ => Err(NOT_FOUND),
    }
}

#[derive(Serialize)]
struct HttpState<'a> {
    instance: &'a str,
    user: Option<&'a str>,
    may_type: bool,
    terminals: Vec<TerminalRow>,
    terminals_max: usize,
    job: Option<JobRow>,
}

#[derive(Serialize)]
struct TerminalRow {
    id: String,
    number: u64,
    viewers: usize,
    ended: bool,
}

#[derive(Serialize)]
struct JobRow {
    command: String,
    phase: &'static str,
    exit_status: Option<i32>,
    until: Option<u64>,
}

fn state<'a>(terminals: &'a Terminals, access: &'a Access) -> HttpState<'a> {
    let rows = terminals.list().into_iter().map(|(id, live)| {
        let (viewers, ended) = live.look(|state| (state.viewers(), state.is_ended()));
        TerminalRow { id, number: live.number, viewers, ended }
    });
    let job = terminals.job().map(|job| {
        let state = job.state();
        let (phase, exit_status, until) = match state.phase {
            Phase::Running => ("running", None, None),
            Phase::Held { exit_status, until_unix } => ("held", Some(exit_status), Some(until_unix)),
            Phase::Ended => ("ended", None, None),
        };
        JobRow { command: state.command, phase, exit_status, until }
    });
    HttpState {
        instance: &terminals.inner.instance,
        user: access.user(),
        may_type: access.may_type(),
        terminals: rows.collect(),
        terminals_max: TERMINALS_MAX,
        job,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TerminalQuery {
    columns: u16,
    rows: u16,
}

#[derive(Serialize)]
struct CreatedTerminal {
    id: String,
}

async fn make(
    terminals: &Terminals,
    access: &Access,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, TerminalRefusal> {
    let TerminalQuery { columns, rows } = read(request).await?;
    match terminals.make(Size::within(columns, rows)) {
        Ok(id) => Ok(json(StatusCode::CREATED, &CreatedTerminal { id })),
        Err(NotMade::TooMany) => Err(TerminalRefusal(StatusCode::CONFLICT, "too_many_terminals")),
        Err(NotMade::Shell(error)) => {
            warn!(%error, who = access.user(), "a shell does not start");
            Err(TerminalRefusal(StatusCode::INTERNAL_SERVER_ERROR, "shell_failed"))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chosen {
    choice: ChoiceName,
    /// Process whose command the page showed: one job may hold several commands, one after the other.
    instance: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceName {
    Continue,
    Fail,
}

async fn choose(
    terminals: &Terminals,
    access: &Access,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, TerminalRefusal> {
    let job = terminals.job().ok_or(NOT_FOUND)?;
    let Chosen { choice, instance } = read(request).await?;
    if instance != terminals.inner.instance {
        return Err(ANOTHER_JOB);
    }
    let choice = match choice {
        ChoiceName::Continue => Choice::Continue,
        ChoiceName::Fail => Choice::Fail,
    };
    match job.choose(choice, access.user()) {
        Ok(()) => Ok(empty(StatusCode::NO_CONTENT)),
        Err(NotHeld) => Err(TerminalRefusal(StatusCode::CONFLICT, "job_not_held")),
    }
}

/// Reads a body of a few words.
async fn read<T: for<'a> Deserialize<'a>>(request: Request<Incoming>) -> Result<T, TerminalRefusal> {
    let body = Limited::new(request.into_body(), BODY_BYTES).collect();
    let body = tokio::time::timeout(BODY_TIMEOUT, body).await.map_err(|_elapsed| BAD_REQUEST)?;
    let body = body.map_err(|_too_long| BAD_REQUEST)?.to_bytes();
    serde_json::from_slice(&body).map_err(|_wrong| BAD_REQUEST)
}

/// Agrees to a terminal's own protocol (RFC 6455, section 4.2).
fn stream(
    access: &Access,
    mut request: Request<Incoming>,
    live: Arc<LiveTerminal>,
    switch: &Mutex<Option<Switch>>,
) -> Result<Response<Full<Bytes>>, TerminalRefusal> {
    let headers = request.headers();
    let has = |name: HeaderName, wanted: &str| headers.get_all(name).iter().any(|value| names(value, wanted));
    let is_handshake = has(CONNECTION, "upgrade")
        && has(UPGRADE, "websocket")
        && has(SEC_WEBSOCKET_VERSION, "13")
        && has(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_handshake).ok_or(BAD_REQUEST)?;
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| BAD_REQUEST)?;
    let joining = joining(request.uri().query().unwrap_or_default(), access.may_type()).ok_or(BAD_REQUEST)?;
    let too_many = TerminalRefusal(StatusCode::CONFLICT, "too_many_viewers");
    let id = live.change(|state| state.join(joining)).map_err(|_| too_many)?;
    *switch.lock() = Some((hyper::upgrade::on(&mut request), live, id));
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    Ok(response)
}

/// Says whether a list field names a token (RFC 9110, section 5.6.1).
fn names(value: &HeaderValue, token: &str) -> bool {
    let mut tokens = value.as_bytes().split(|byte| *byte == b',');
    tokens.any(|found| found.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Reads what a page says of itself: `page=…&from=…&columns=…&rows=…`, of which only the first has to be there.
fn joining(query: &str, may_type: bool) -> Option<Joining> {
    let (mut page, mut from, mut columns, mut rows) = (None, None, None, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "page" if value.len() == 32 => page = Some(PageId(u128::from_str_radix(value, 16).ok()?)),
            "from" => from = Some(value.parse().ok()?),
            "columns" => columns = Some(value.parse().ok()?),
            "rows" => rows = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    let window = columns.zip(rows).map(|(columns, rows)| Size::within(columns, rows));
    Some(Joining { page: page?, may_type, from, window })
}

fn json<T: Serialize>(status: StatusCode, value: &T) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn not_allowed(methods: &'static str) -> Response<Full<Bytes>> {
    let mut response = json(StatusCode::METHOD_NOT_ALLOWED, &Failed { error: "method_not_allowed" });
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// Returns the only value of a field.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_say_who_they_are_and_where_they_were() {
        let page = "0123456789abcdef0123456789abcdef";
        let read = |query: &str| {
            joining(query, true).map(|joining| (joining.page.0, joining.from, joining.window.map(|size| size.columns)))
        };
        let number = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        assert_eq!(read(&format!("page={page}")), Some((number, None, None)));
        assert_eq!(read(&format!("from=7&page={page}&rows=24&columns=80")), Some((number, Some(7), Some(80))));
        assert_eq!(read(&format!("page={page}&rows=24")), Some((number, None, None)));
        for bad in ["", "page=1", "page=+123456789abcdef0123456789abcdefx", "from=1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        for more in ["from=-1", "from=x", "columns=65536", "x=1", "rows="] {
            assert_eq!(read(&format!("page={page}&{more}")), None, "{more}");
        }
    }
}
