//! Requests over kept-alive connections.

use http::{Method, Request};

use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::generator::{self, Exchange, Exchanges};
use crate::outcome::RunOutcome;
use crate::payload::Payload;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::LoadTarget;

/// `GET /bytes/SIZE`, one at a time on each connection.
struct Requests {
    target: LoadTarget,
    path: String,
    size: u64,
}

impl Exchange for Requests {
    type Connection = LoadClient;

    async fn connect(&self) -> Result<LoadClient, ExchangeFailure> {
        LoadClient::connect(&self.target).await
    }

    async fn exchange(&self, client: &mut LoadClient) -> Result<Bytes, ExchangeFailure> {
        let down = client.exchange(get(&self.target, &self.path)?).await?;
        if down == self.size { Ok(Bytes { down, up: 0 }) } else { Err(ExchangeFailure::kept("wrong_length")) }
    }
}

/// Makes a request without a body.
///
/// # Errors
/// The target's host or token cannot stand in a header.
pub(super) fn get(target: &LoadTarget, path: &str) -> Result<Request<Payload>, ExchangeFailure> {
    target.request(Method::GET, path).body(Payload::Empty).map_err(|_| ExchangeFailure::lost("bad_target"))
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<RunOutcome> {
    let (target, size) = (context.target.clone(), context.load.size);
    generator::run(context, Exchanges(Requests { target, path: format!("/bytes/{size}"), size })).await
}
