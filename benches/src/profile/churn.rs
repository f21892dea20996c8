//! A new connection for each request.

use http::header::{CONNECTION, HeaderValue};

use super::http::get;
use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::generator::{self, Exchange, Exchanges};
use crate::outcome::RunOutcome;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::LoadTarget;

/// Connect, `GET /bytes/SIZE` with `connection: close`, read, close.
struct Connections {
    target: LoadTarget,
    path: String,
    size: u64,
}

impl Exchange for Connections {
    type Connection = ();

    async fn connect(&self) -> Result<(), ExchangeFailure> {
        Ok(())
    }

    async fn exchange(&self, (): &mut ()) -> Result<Bytes, ExchangeFailure> {
        let mut client = LoadClient::connect(&self.target).await?;
        let mut request = get(&self.target, &self.path)?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let down = client.exchange(request).await?;
        if down == self.size { Ok(Bytes { down, up: 0 }) } else { Err(ExchangeFailure::lost("wrong_length")) }
    }
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let (target, size) = (context.target.clone(), context.load.size);
    generator::run(context, Exchanges(Connections { target, path: format!("/bytes/{size}"), size })).await
}
