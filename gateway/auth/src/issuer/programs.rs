//! Tokens of programs from an issuer that only publishes keys: a CI system, and its jobs.

use serde::Deserialize;
use serde_json::Value;

use super::DISCOVERY_PATH;
use crate::jwt::{Algorithm, Claims, Expect, KeySet, Moment, TokenRefused, TokenUse};
use gateway_net::fetch::{Credentials, Fetch};
use gateway_types::Endpoint;

/// An issuer of programs' tokens, and their required audience.
#[derive(Debug)]
pub struct Programs {
    issuer: Endpoint,
    audience: Box<str>,
    keys: KeySet,
}

impl Programs {
    /// Creates an issuer with its keys at `jwks_url`, or at the address in its metadata. Nothing is fetched before it
    /// is needed.
    #[must_use]
    pub fn new(fetch: Fetch, issuer: Endpoint, jwks_url: Option<Endpoint>, audience: &str) -> Self {
        let keys = match jwks_url {
            Some(url) => KeySet::new(move || {
                let (fetch, url) = (fetch.clone(), url.clone());
                async move { get(&fetch, &url).await }
            }),
            None => keys_of(fetch, issuer.clone()),
        };
        Self { issuer, audience: audience.into(), keys }
    }

    /// Checks a token.
    ///
    /// # Errors
    ///
    /// [`TokenRefused`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn verify(&self, token: &str, now: Moment) -> Result<Claims, TokenRefused> {
        let expect = Expect {
            issuer: self.issuer.as_str(),
            audience: &self.audience,
            algorithms: Algorithm::DEFAULT,
            token_use: TokenUse::Program,
        };
        self.keys.verify(token, &expect, now).await
    }
}

/// The fields of an issuer's metadata that are used here. Issuers for programs need not have the rest.
#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

/// Returns the keys of an issuer whose metadata has their address.
#[must_use]
pub fn keys_of(fetch: Fetch, issuer: Endpoint) -> KeySet {
    KeySet::new(move || {
        let (fetch, issuer) = (fetch.clone(), issuer.clone());
        async move {
            let url = issuer.join(DISCOVERY_PATH).map_err(|error| error.to_string())?;
            let document = get(&fetch, &url).await?;
            let found = Discovered::deserialize(document).map_err(|_| format!("{url} says not where its keys are"))?;
            // OpenID Connect Discovery 1.0, section 4.3: the server that answers here must not be able to speak for
            // another issuer.
            if found.issuer != issuer.as_str() {
                return Err(format!("{url} speaks for another issuer"));
            }
            let keys =
                found.jwks_uri.parse().map_err(|error| format!("the address of the keys of {issuer}: {error}"))?;
            get(&fetch, &keys).await
        }
    })
}

async fn get(fetch: &Fetch, url: &Endpoint) -> Result<Value, String> {
    let answer = fetch.get(url, Credentials::Nothing).await.map_err(|error| error.to_string())?;
    answer.json().map_err(|error| error.to_string())
}
