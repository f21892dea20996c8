//! Request over HTTP/1.1 after which the connection may switch: to a WebSocket (RFC 6455), or to a way through a proxy
//! (RFC 9110, section 9.3.6).

use std::pin::pin;

use bytes::Bytes;
use http::{Method, Request, StatusCode, response};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bound on the head of an answer; HTTP/1.1 ends with an error above it.
const HEAD_BYTES: usize = 16 * 1024;

/// Result of the request.
#[derive(Debug)]
pub enum SwitchAnswer {
    /// The connection switched. Bytes right behind the answer are read from the stream first.
    Switched(response::Parts, TokioIo<Upgraded>),
    /// The connection did not switch, and is closed.
    Refused(response::Parts),
}

/// Sends a request and waits for the head of its answer.
///
/// # Errors
/// When the other side does not speak HTTP/1.1, or closes without an answer.
///
/// Cancel safety: dropping it closes the connection.
pub async fn ask<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<SwitchAnswer, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connects = request.method() == Method::CONNECT;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES).handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let mut connection = pin!(connection.with_upgrades());
    let mut answer = pin!(sender.send_request(request));
    let (response, ended) = tokio::select! {
        biased;
        response = answer.as_mut() => (response?, false),
        result = connection.as_mut() => {
            result?;
            // HTTP/1.1 ends with the answer that switches.
            (answer.await?, true)
        }
    };
    // Nothing more is asked, so a connection that does not switch after all ends instead of waiting.
    drop(sender);
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS && !(connects && status.is_success()) {
        return Ok(SwitchAnswer::Refused(response.into_parts().0));
    }
    let (parts, body) = response.into_parts();
    let switched = hyper::upgrade::on(response::Response::from_parts(parts.clone(), body));
    if !ended {
        connection.await?;
    }
    Ok(SwitchAnswer::Switched(parts, TokioIo::new(switched.await?)))
}
