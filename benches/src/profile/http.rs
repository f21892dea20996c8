//! Requests over kept-alive connections.

use http::{Method, Request};

use crate::client::Client;
use crate::failure::Failure;
use crate::generator::{self, Exchange, Exchanges};
use crate::outcome::Outcome;
use crate::payload::Payload;
use crate::profile::Context;
use crate::stats::Bytes;
use crate::target::Target;

/// `GET /bytes/SIZE`, one at a time on each connection.
struct Requests {
    target: Target,
    path: String,
    size: u64,
}

impl Exchange for Requests {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.target).await
    }

    async fn exchange(&self, client: &mut Client) -> Result<Bytes, Failure> {
        let down = client.exchange(get(&self.target, &self.path)?).await?;
        if down == self.size { Ok(Bytes { down, up: 0 }) } else { Err(Failure::kept("wrong_length")) }
    }
}

/// Makes a request without a body.
///
/// # Errors
/// The target's host or token cannot stand in a header.
pub(super) fn get(target: &Target, path: &str) -> Result<Request<Payload>, Failure> {
    target.request(Method::GET, path).body(Payload::Empty).map_err(|_| Failure::lost("bad_target"))
}

/// Runs the profile.
///
/// # Errors
/// It could not be run at all.
pub async fn run(context: &Context) -> anyhow::Result<Outcome> {
    let (target, size) = (context.target.clone(), context.load.size);
    generator::run(context, Exchanges(Requests { target, path: format!("/bytes/{size}"), size })).await
}
