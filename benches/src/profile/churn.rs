//! A new connection for each request.

use http::header::{CONNECTION, HeaderValue};

use super::http::get;
use crate::client::Client;
use crate::failure::Failure;
use crate::generator::{self, Exchange, Exchanges};
use crate::outcome::Outcome;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::Target;

/// Connect, `GET /bytes/SIZE` with `connection: close`, read, close.
struct Connections {
    target: Target,
    path: String,
    size: u64,
}

impl Exchange for Connections {
    type Connection = ();

    async fn connect(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn exchange(&self, (): &mut ()) -> Result<Bytes, Failure> {
        let mut client = Client::connect(&self.target).await?;
        let mut request = get(&self.target, &self.path)?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let down = client.exchange(request).await?;
        if down == self.size { Ok(Bytes { down, up: 0 }) } else { Err(Failure::lost("wrong_length")) }
    }
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<Outcome> {
    let (target, size) = (context.target.clone(), context.load.size);
    generator::run(context, Exchanges(Connections { target, path: format!("/bytes/{size}"), size })).await
}
