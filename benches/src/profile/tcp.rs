//! Small messages over raw byte streams, echoed: the feel of a keystroke in a terminal.

use http::Method;
use http::header::{CONNECTION, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::generator::{self, Exchange, Exchanges};
use crate::outcome::RunOutcome;
use crate::pattern::{self, Checker};
use crate::payload::Payload;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::LoadTarget;

/// One message there and back, one at a time on each stream.
struct TcpMessages {
    target: LoadTarget,
    size: usize,
    seed: u64,
}

/// Raw stream and its position in its pattern.
struct Raw {
    stream: TokioIo<Upgraded>,
    message: Vec<u8>,
    echo: Vec<u8>,
    checker: Checker,
}

impl Exchange for TcpMessages {
    type Connection = Raw;

    async fn connect(&self) -> Result<Raw, ExchangeFailure> {
        let stream = connect(&self.target).await?;
        let (message, echo) = (vec![0; self.size], vec![0; self.size]);
        Ok(Raw { stream, message, echo, checker: Checker::new(self.seed, 0) })
    }

    async fn exchange(&self, raw: &mut Raw) -> Result<Bytes, ExchangeFailure> {
        pattern::fill(self.seed, raw.checker.position(), &mut raw.message);
        let (mut read, mut write) = tokio::io::split(&mut raw.stream);
        let send = async {
            write.write_all(&raw.message).await?;
            write.flush().await
        };
        // Both at once: a message may be larger than all buffers on the way.
        let (sent, read) = tokio::join!(send, read.read_exact(&mut raw.echo));
        sent.map_err(|error| ExchangeFailure::of_io(&error))?;
        read.map_err(|error| ExchangeFailure::of_io(&error))?;
        if !raw.checker.take(&raw.echo) {
            return Err(ExchangeFailure::lost("wrong_bytes"));
        }
        Ok(Bytes { down: raw.echo.len() as u64, up: raw.message.len() as u64 })
    }
}

/// Opens a raw byte stream to the app's echo.
///
/// # Errors
/// The connection cannot be made, or the upgrade is refused.
pub async fn connect(target: &LoadTarget) -> Result<TokioIo<Upgraded>, ExchangeFailure> {
    let request = target
        .request(Method::GET, "/raw")
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "raw")
        .body(Payload::Empty)
        .map_err(|_| ExchangeFailure::lost("bad_target"))?;
    LoadClient::connect(target).await?.upgrade(request).await
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let size = usize::try_from(context.load.size)?;
    anyhow::ensure!(size > 0, "--size must be at least 1");
    let messages = TcpMessages { target: context.target.clone(), size, seed: context.load.seed };
    generator::run(context, Exchanges(messages)).await
}
