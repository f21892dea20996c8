//! Sends a request again: to the app of its port on loopback, over a connection that is recorded as every other one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use tunnel_proto::target::AppTls;

use super::exchange::Exchange;
use super::recorder::{Origin, Recorder};
use super::replay::{BadReplay, Edited, request};
use super::tee::Tee;
use super::{Inspector, Permit, REPLAYS_MAX};
use crate::app_tls;
use crate::ports::{self, Ports};

/// Longest time for an answer, with its body.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Size of a read; what is read is recorded, and dropped.
const READ_BYTES: usize = 16 * 1024;

/// A request that was not sent again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSent {
    /// The form says no request.
    #[error(transparent)]
    Bad(#[from] BadReplay),
    /// Too many are on their way.
    #[error("{REPLAYS_MAX} requests are being sent again already")]
    TooMany,
    /// No app answers on the port.
    #[error("nothing answers on port {0}")]
    NoApp(u16),
    /// The connection broke.
    #[error("the connection to the app broke: {0}")]
    Broken(#[from] io::Error),
}

/// A replay, with all that it needs.
pub(crate) struct Replay<'a> {
    /// The recorded exchange.
    pub(crate) recorded: &'a Exchange,
    /// What its owner made of it.
    pub(crate) edited: &'a Edited,
    /// The fields of the replay request.
    pub(crate) replayer: &'a HeaderMap,
    /// The ports that may be reached.
    pub(crate) ports: &'a Arc<Ports>,
}

impl Replay<'_> {
    /// Sends it, waits for the answer, and returns the number of the new exchange. An answer that takes too long is recorded as far
    /// as it came.
    ///
    /// # Errors
    /// [`NotSent`].
    ///
    /// Cancel safety: dropping it closes the connection, and the exchange ends as incomplete.
    pub(crate) async fn send(&self, inspector: &Inspector) -> Result<u64, NotSent> {
        let Self { recorded, edited, replayer, ports } = self;
        let bytes = request(recorded, edited, replayer)?;
        let _permit = Permit::take(inspector, |inner| &inner.replays, REPLAYS_MAX).ok_or(NotSent::TooMany)?;
        let Exchange { port, is_tls, id, .. } = **recorded;
        let origin = Origin { port, is_tls, replay_of: Some(id), began: Instant::now() };
        let no_app = |_| NotSent::NoApp(port);
        let stream = ports::connect(ports, port).await.map_err(no_app)?;
        let recorder = || Recorder::new(inspector.inner.log.clone(), origin, Instant::now());
        let sent = if is_tls {
            let stream = Box::pin(app_tls::connect(stream, AppTls::Http1)).await.map_err(no_app)?;
            Box::pin(converse(Tee::new(stream, recorder()), &bytes)).await?
        } else {
            converse(Tee::new(stream, recorder()), &bytes).await?
        };
        Ok(sent)
    }
}

/// Sends a request and reads its answer; returns the number of the exchange.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(mut app: Tee<S>, request: &[u8]) -> Result<u64, NotSent> {
    // The first bytes have the whole head, or the number would not be known before the answer.
    let mut id = None;
    let talk = async {
        let (mut rest, mut space) = (request, vec![0; READ_BYTES]);
        while !rest.is_empty() {
            let written = app.write(rest).await?;
            rest = rest.get(written..).unwrap_or_default();
            id = id.or(app.recorder().goes_on());
        }
        app.flush().await?;
        while app.recorder().goes_on().is_some() && app.read(&mut space).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, talk).await {
        Ok(Ok(())) => {}
        // What came before it is recorded.
        Ok(Err(error)) => return id.ok_or(NotSent::Broken(error)),
        Err(_elapsed) => app.recorder().give_up("no whole answer came within 30 s", Instant::now()),
    }
    id.ok_or_else(|| NotSent::Broken(io::ErrorKind::UnexpectedEof.into()))
}
