//! HTTP/1.1 server of the inspector's pages. All of them are for the workspace's owner, and the gateway says who that is.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{iter, once};
use http::header::{ALLOW, CONNECTION, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, LOCATION};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::DuplexStream;
use tracing::info;

use super::exchange::Exchange;
use super::filter::Filter;
use super::form::pairs;
use super::log::{Log, Record};
use super::replay::Edited;
use super::send::{NotSent, Replay};
use super::{Inspector, har, live, page};
use crate::ports::Ports;
use crate::terminal::{Access, is_foreign_page};

/// Longest time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Bound on a request's head.
const HEAD_BYTES: usize = 32 * 1024;

/// Bound on a request's body: an edited request, each of whose bytes a browser may write as three.
const BODY_BYTES: usize = 512 * 1024;

/// Body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves one connection.
///
/// # Errors
/// It broke, or its peer did not speak HTTP.
pub(super) async fn serve(inspector: &Inspector, ports: &Arc<Ports>, io: DuplexStream) -> Result<(), hyper::Error> {
    let service = service_fn(async |request: Request<Incoming>| {
        let mut answer = match route(inspector, ports, request).await {
            Ok(answer) => answer,
            Err(refusal) => refusal.answer(),
        };
        page::protect(answer.headers_mut());
        // A new channel costs no round trip, and one that idles would keep the place of one that is needed.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        Ok::<_, Infallible>(answer)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES);
    builder.serve_connection(TokioIo::new(io), service).await
}

/// Refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InspectorRefusal {
    /// The user does not own the workspace.
    NotOwner,
    /// Another page is behind the request.
    ForeignPage,
    /// No such page, or an exchange that is not kept any more.
    NotFound,
    /// Another method is needed.
    Method(&'static str),
    /// The body is no form, or too long.
    Form,
}

impl InspectorRefusal {
    fn answer(self) -> Response<Body> {
        let (status, title, text) = match self {
            Self::NotOwner => {
                (StatusCode::FORBIDDEN, "Not yours", "The requests of a workspace are for its owner alone.")
            }
            Self::ForeignPage => (StatusCode::FORBIDDEN, "Another page asked", "This was not asked for by this page."),
            Self::NotFound => {
                (StatusCode::NOT_FOUND, "Not here", "There is no such page, or the request is not kept any more.")
            }
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "Not so", "This address takes another method."),
            Self::Form => (StatusCode::BAD_REQUEST, "Not readable", "The form could not be read, or is too long."),
        };
        let mut answer = html(status, page::message(title, text));
        if let Self::Method(methods) = self {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        }
        answer
    }
}

async fn route(
    inspector: &Inspector,
    ports: &Arc<Ports>,
    request: Request<Incoming>,
) -> Result<Response<Body>, InspectorRefusal> {
    let (parts, body) = request.into_parts();
    permit(&parts)?;
    let log = &inspector.inner.log;
    let filter = Filter::read(parts.uri.query().unwrap_or_default());
    let segments: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    match segments.as_slice() {
        [""] if reads => Ok(list(log.clone(), filter).await),
        ["assets", name] if reads => page::asset(name, &parts.headers).map(full).ok_or(InspectorRefusal::NotFound),
        ["live"] if reads => Ok(follow(log, filter, &parts)),
        ["har"] if reads => Ok(archive(log.list(), filter)),
        ["exchanges", id] if reads => shown(find(log, id)?, filter, page::exchange).await,
        ["exchanges", id, "edit"] if reads => shown(find(log, id)?, filter, page::edit).await,
        ["exchanges", id, "har"] if reads => Ok(archive(vec![find(log, id)?], Filter::default())),
        ["exchanges", id, "replay"] if parts.method == Method::POST => {
            let recorded = find(log, id)?.copy();
            let edited = edited(&read(body).await?);
            let replay = Replay { recorded: &recorded, edited: &edited, replayer: &parts.headers, ports };
            Ok(match replay.send(inspector).await {
                Ok(new) => {
                    info!(id, new, who = Access::read(&parts.headers).user(), "a request was sent again");
                    see_other(&format!("/exchanges/{new}{}", filter.suffix()))
                }
                Err(error) => not_sent(&recorded, &filter, &edited, &error),
            })
        }
        ["clear"] if parts.method == Method::POST => {
            log.clear();
            info!("the recorded requests were forgotten");
            Ok(see_other("/"))
        }
        ["clear"] | ["exchanges", _, "replay"] => Err(InspectorRefusal::Method("POST")),
        [""] | ["assets", _] | ["live"] | ["har"] | ["exchanges", _] | ["exchanges", _, "edit" | "har"] => {
            Err(InspectorRefusal::Method("GET, HEAD"))
        }
        _ => Err(InspectorRefusal::NotFound),
    }
}

/// Decides whether the request may be answered. The gateway has decided that before; this check stands on its own.
fn permit(parts: &Parts) -> Result<(), InspectorRefusal> {
    if !Access::read(&parts.headers).is_owner() {
        return Err(InspectorRefusal::NotOwner);
    }
    let says = |name: &str, expected: &str| parts.headers.get(name).is_some_and(|value| value == expected);
    let is_visit =
        parts.method == Method::GET && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document");
    if is_foreign_page(&parts.headers) && !is_visit { Err(InspectorRefusal::ForeignPage) } else { Ok(()) }
}

fn find(log: &Log, id: &str) -> Result<Arc<Record>, InspectorRefusal> {
    id.parse().ok().and_then(|id| log.find(id)).ok_or(InspectorRefusal::NotFound)
}

/// Makes the list, beside the way of the bytes: it may have to search all of them.
async fn list(log: Arc<Log>, filter: Filter) -> Response<Body> {
    let made = tokio::task::spawn_blocking(move || {
        // Before the list is read: what changes meanwhile is told again.
        let seen = log.seen();
        // One copy at a time: all of them are as large as the log.
        let all = log.list();
        let chosen = all.iter().rev().map(|record| record.copy()).filter(|it| filter.chooses(it));
        let rows: Vec<String> = chosen.map(|exchange| page::row(&exchange, &filter)).collect();
        page::list(rows, &filter, seen)
    });
    html(StatusCode::OK, made.await.unwrap_or_default())
}

async fn shown(
    record: Arc<Record>,
    filter: Filter,
    make: fn(&Exchange, &Filter, u64) -> String,
) -> Result<Response<Body>, InspectorRefusal> {
    let made = tokio::task::spawn_blocking(move || {
        let seen = record.changed();
        make(&record.copy(), &filter, seen)
    });
    Ok(html(StatusCode::OK, made.await.unwrap_or_default()))
}

fn follow(log: &Arc<Log>, filter: Filter, parts: &Parts) -> Response<Body> {
    let query = parts.uri.query().unwrap_or_default();
    let number = |wanted: &str| pairs(query).find(|(name, _)| name == wanted).and_then(|(_, value)| value.parse().ok());
    // A stream that goes on says the last event that it got.
    let last = parts.headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let from = live::From { only: number("id"), seen: last.or_else(|| number("seen")) };
    let events = live::follow(log.clone(), filter, from).map(|piece| Ok(Frame::data(piece)));
    let mut answer = Response::new(StreamBody::new(events).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer
}

/// Writes the exchanges as a file, one at a time.
fn archive(records: Vec<Arc<Record>>, filter: Filter) -> Response<Body> {
    let filter = Arc::new(filter);
    let mut is_first = true;
    let entries = iter(records).then(move |record| {
        let filter = filter.clone();
        async move {
            let made = tokio::task::spawn_blocking(move || {
                let exchange = record.copy();
                filter.chooses(&exchange).then(|| har::entry(&exchange))
            });
            made.await.ok().flatten()
        }
    });
    let entries = entries.filter_map(move |entry| {
        let entry = entry.map(|entry| {
            let comma = if std::mem::take(&mut is_first) { "" } else { "," };
            format!("{comma}{entry}")
        });
        std::future::ready(entry)
    });
    let pieces =
        once(std::future::ready(har::head())).chain(entries).chain(once(std::future::ready(har::TAIL.to_owned())));
    let pieces = pieces.map(|piece| Ok(Frame::data(Bytes::from(piece))));
    let mut answer = Response::new(StreamBody::new(pieces).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"requests.har\""));
    answer
}

async fn read(body: Incoming) -> Result<Bytes, InspectorRefusal> {
    let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES).collect()).await;
    match read {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) | Err(_) => Err(InspectorRefusal::Form),
    }
}

/// Reads the form of an edited request.
fn edited(form: &[u8]) -> Edited {
    let mut edited = Edited::default();
    for (name, value) in pairs(&String::from_utf8_lossy(form)) {
        match &*name {
            "method" => edited.method = value.into_owned(),
            "target" => edited.target = value.into_owned(),
            "headers" => edited.fields = value.into_owned(),
            "body" => edited.body = value.into_owned(),
            _ => {}
        }
    }
    edited
}

fn not_sent(recorded: &Exchange, filter: &Filter, edited: &Edited, error: &NotSent) -> Response<Body> {
    let status = match error {
        NotSent::Bad(_) => StatusCode::UNPROCESSABLE_ENTITY,
        NotSent::TooMany => StatusCode::TOO_MANY_REQUESTS,
        NotSent::NoApp(_) | NotSent::Broken(_) => StatusCode::BAD_GATEWAY,
    };
    html(status, page::edit_again(recorded, filter, edited, &error.to_string()))
}

fn html(status: StatusCode, text: String) -> Response<Body> {
    let mut answer = Response::new(Full::from(text).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

fn see_other(address: &str) -> Response<Body> {
    let mut answer = Response::new(Full::default().boxed_unsync());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(address) = HeaderValue::from_str(address) {
        answer.headers_mut().insert(LOCATION, address);
    }
    answer
}

fn full(answer: Response<Full<Bytes>>) -> Response<Body> {
    answer.map(BodyExt::boxed_unsync)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::*;

    fn parts(method: Method, fields: &[(&'static str, &'static str)]) -> Parts {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = method;
        let pairs = fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        parts.headers = pairs.collect::<HeaderMap>();
        parts
    }

    #[test]
    fn owner_alone_is_answered_and_no_other_page_asks_in_their_name() {
        let (owner, host) = (("gateway-access", "owner"), ("host", "60003-one.zone"));
        let asked = |method, fields: &[_]| permit(&parts(method, fields));
        assert_eq!(asked(Method::GET, &[owner, host]), Ok(()));
        for fields in [&[host][..], &[host, ("gateway-access", "shared")], &[host, ("gateway-user", "dev")]] {
            assert_eq!(asked(Method::GET, fields), Err(InspectorRefusal::NotOwner), "{fields:?}");
        }
        let visit = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"), ("sec-fetch-site", "same-site")];
        assert_eq!(asked(Method::GET, &[&[owner, host][..], &visit].concat()), Ok(()));
        let foreign = Err(InspectorRefusal::ForeignPage);
        assert_eq!(asked(Method::POST, &[&[owner, host][..], &visit].concat()), foreign);
        let framed = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe"), ("sec-fetch-site", "same-site")];
        assert_eq!(asked(Method::GET, &[&[owner, host][..], &framed].concat()), foreign);
        assert_eq!(asked(Method::GET, &[owner, host, ("sec-fetch-site", "same-site")]), foreign);
        assert_eq!(asked(Method::POST, &[owner, host, ("origin", "https://3000-one.zone")]), foreign);
        assert_eq!(asked(Method::POST, &[owner, host, ("origin", "https://60003-one.zone")]), Ok(()));
    }

    #[test]
    fn form_is_read_as_browsers_write_it() {
        let read = edited(b"method=POST&target=%2Fa%3Fb%3D1&headers=a%3A+1%0D%0Ab%3A+2&body=%7B%7D&x=1");
        let expected = Edited {
            method: "POST".to_owned(),
            target: "/a?b=1".to_owned(),
            fields: "a: 1\r\nb: 2".to_owned(),
            body: "{}".to_owned(),
        };
        assert_eq!(read, expected);
    }
}
