//! A call that is silent for a while, and then goes on.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::HOST;
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tunnel_link::causes;

use super::{ANSWER_TIME, LIST_SERVICES, Origin, REFLECTION, Stream, addressed, driven, insert};

/// Result of a silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The call went on after it.
    Held,
    /// The call broke in it; the reason.
    Cut(String),
    /// No call came up; the reason.
    NoCall(String),
}

/// Begins a call that says nothing, waits for as long as `time`, then asks, and waits for the answer. `is_http2` is what the
/// handshake settled on.
///
/// Cancel safety: safe.
pub async fn silence(stream: Stream, is_http2: bool, origin: &Origin, time: Duration) -> Silence {
    let (speak, spoken) = oneshot::channel::<()>();
    let message = async move {
        // A dropped sender ends the silence too.
        spoken.await.unwrap_or_default();
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(LIST_SERVICES)))
    };
    let body = StreamBody::new(stream::once(Box::pin(message)));
    let request = addressed(Request::new(body), origin, REFLECTION);
    let begun = if is_http2 {
        over_http2(stream, request, time, speak).await
    } else {
        over_http1(stream, request, origin, time, speak).await
    };
    begun.unwrap_or_else(Silence::NoCall)
}

async fn over_http2<B>(
    stream: Stream,
    request: Request<B>,
    time: Duration,
    speak: oneshot::Sender<()>,
) -> Result<Silence, String>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let builder = http2::Builder::new(TokioExecutor::new());
    let shaken = timeout(ANSWER_TIME, builder.handshake(TokioIo::new(stream))).await;
    let shaken = shaken.map_err(|_elapsed| "no answer came in time".to_owned())?;
    let (mut sender, connection) = shaken.map_err(|error| causes::one_line(&error))?;
    driven(connection, async { hold(sender.send_request(request), time, speak).await }).await?
}

async fn over_http1<B>(
    stream: Stream,
    mut request: Request<B>,
    origin: &Origin,
    time: Duration,
    speak: oneshot::Sender<()>,
) -> Result<Silence, String>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| causes::one_line(&error))?;
    *request.uri_mut() = Uri::from(PathAndQuery::from_static(REFLECTION));
    insert(request.headers_mut(), HOST, origin.authority.as_str());
    driven(connection, async { hold(sender.send_request(request), time, speak).await }).await?
}

/// Waits for the head, then for as long as the silence is to be, then for the answer.
async fn hold(
    answer: impl Future<Output = Result<Response<Incoming>, hyper::Error>>,
    time: Duration,
    speak: oneshot::Sender<()>,
) -> Result<Silence, String> {
    let head = timeout(ANSWER_TIME, answer).await;
    let response = head.map_err(|_elapsed| "the front passes a request on only when it is whole".to_owned())?;
    let response = response.map_err(|error| causes::one_line(&error))?;
    if !response.status().is_success() {
        return Err(format!("a call is answered with HTTP {}", response.status().as_u16()));
    }
    let mut body = response.into_body();
    let cut = |frame: Option<Result<Frame<Bytes>, hyper::Error>>| match frame {
        Some(Err(error)) => causes::one_line(&error),
        Some(Ok(_)) | None => "the answer ended".to_owned(),
    };
    if let Ok(early) = timeout(time, body.frame()).await {
        return Ok(Silence::Cut(cut(early)));
    }
    // The call waits for that.
    speak.send(()).map_err(|()| "the call is over".to_owned())?;
    match timeout(ANSWER_TIME, body.frame()).await {
        Ok(Some(Ok(frame))) if frame.is_data() => Ok(Silence::Held),
        Ok(other) => Ok(Silence::Cut(cut(other))),
        Err(_elapsed) => Ok(Silence::Cut("nothing comes back any more".to_owned())),
    }
}
