//! HTTP/1.1 connection that is driven by the task that uses it: no task per connection, no wakeups between tasks.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::failure::ExchangeFailure;
use crate::payload::Payload;
use crate::target::LoadTarget;

/// A connection that can be upgraded; the library does not export its type's name.
type UpgradableConnection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// One connection to a target.
pub struct LoadClient {
    sender: SendRequest<Payload>,
    driver: Option<UpgradableConnection>,
}

impl LoadClient {
    /// Connects.
    ///
    /// # Errors
    /// The connection cannot be made.
    pub async fn connect(target: &LoadTarget) -> Result<Self, ExchangeFailure> {
        let stream = target.connect().await.map_err(|error| ExchangeFailure::connecting(&error))?;
        let (sender, driver) =
            handshake(TokioIo::new(stream)).await.map_err(|error| ExchangeFailure::of_http(&error))?;
        Ok(Self { sender, driver: Some(Box::pin(driver.with_upgrades())) })
    }

    /// Sends a request and returns the head of its answer; read or drop the body before the next one.
    ///
    /// # Errors
    /// The connection is lost.
    ///
    /// # Cancel safety
    /// After dropping it the connection is of no use.
    pub async fn send(&mut self, request: Request<Payload>) -> Result<Response<Incoming>, ExchangeFailure> {
        let mut answer = pin!(self.sender.send_request(request));
        let driver = &mut self.driver;
        poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            drive(driver, context);
            answer.as_mut().poll(context)
        })
        .await
        .map_err(|error| ExchangeFailure::of_http(&error))
    }

    /// Waits for the next piece of a body and returns its length; none at the end.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn piece(&mut self, body: &mut Incoming) -> Result<Option<bytes::Bytes>, ExchangeFailure> {
        let driver = &mut self.driver;
        poll_fn(|context| {
            loop {
                let mut ready = Pin::new(&mut *body).poll_frame(context);
                if ready.is_pending() {
                    drive(driver, context);
                    ready = Pin::new(&mut *body).poll_frame(context);
                }
                return match ready {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(None) => Poll::Ready(Ok(None)),
                    Poll::Ready(Some(Err(error))) => Poll::Ready(Err(ExchangeFailure::of_http(&error))),
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => Poll::Ready(Ok(Some(data))),
                        // Trailers are not payload.
                        Err(_) => continue,
                    },
                };
            }
        })
        .await
    }

    /// Reads a body to its end and returns its length.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn drain(&mut self, mut body: Incoming) -> Result<u64, ExchangeFailure> {
        let mut bytes = 0;
        if body.is_end_stream() {
            return Ok(0);
        }
        while let Some(piece) = self.piece(&mut body).await? {
            bytes += piece.len() as u64;
        }
        Ok(bytes)
    }

    /// Exchanges a request for an answer of the app, and returns the length of its body.
    ///
    /// # Errors
    /// The connection is lost, or the answer is not a success.
    pub async fn exchange(&mut self, request: Request<Payload>) -> Result<u64, ExchangeFailure> {
        let answer = self.send(request).await?;
        let failure =
            (!answer.status().is_success()).then(|| ExchangeFailure::of_answer(answer.status(), answer.headers()));
        let bytes = self.drain(answer.into_body()).await?;
        failure.map_or(Ok(bytes), Err)
    }

    /// Sends a request for another protocol and returns the connection once it was granted.
    ///
    /// # Errors
    /// The connection is lost, or the upgrade was refused.
    pub async fn upgrade(mut self, request: Request<Payload>) -> Result<TokioIo<Upgraded>, ExchangeFailure> {
        let answer = self.send(request).await?;
        if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            return Err(ExchangeFailure {
                lost: true,
                ..ExchangeFailure::of_answer(answer.status(), answer.headers())
            });
        }
        let driver = &mut self.driver;
        let mut upgraded = pin!(hyper::upgrade::on(answer));
        poll_fn(|context| {
            if let Poll::Ready(upgraded) = upgraded.as_mut().poll(context) {
                return Poll::Ready(upgraded);
            }
            drive(driver, context);
            upgraded.as_mut().poll(context)
        })
        .await
        .map(TokioIo::new)
        .map_err(|error| ExchangeFailure::of_http(&error))
    }

    /// Returns whether another request can be sent.
    pub fn is_usable(&self) -> bool {
        self.driver.is_some() && !self.sender.is_closed()
    }
}

/// Asks the app for one byte, so that a wrong address, token or port is reported before a run begins.
///
/// # Errors
/// The app does not answer; the message says why and what to do.
pub async fn preflight(target: &LoadTarget, patience: Duration) -> anyhow::Result<()> {
    let ask = async {
        let request = target.request(http::Method::GET, "/bytes/1").body(Payload::Empty);
        let request = request.map_err(|_| ExchangeFailure::lost("bad_target"))?;
        let bytes = LoadClient::connect(target).await?.exchange(request).await?;
        if bytes == 1 { Ok(()) } else { Err(ExchangeFailure::lost("status_404")) }
    };
    let answered = timeout(patience, ask).await.unwrap_or(Err(ExchangeFailure::lost("timeout")));
    answered.map_err(|failure| {
        let advice = failure.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
        anyhow::anyhow!(
            "{} does not bring a request to the app ({}): {}{advice}",
            target.address,
            target.host,
            failure.why
        )
    })
}

/// Lets the connection read and write.
fn drive(driver: &mut Option<UpgradableConnection>, context: &mut Context<'_>) {
    if let Some(connection) = driver
        && connection.as_mut().poll(context).is_ready()
    {
        // The error reaches the waiting request or body.
        *driver = None;
    }
}
