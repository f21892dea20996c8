//! The keys of issuers whose tokens agents come with.

use serde::Deserialize;
use serde_json::Value;

use crate::auth::jwt::KeySet;
use crate::config::Secret;
use crate::model::Endpoint;
use crate::net::fetch::{Credentials, Fetch};

use super::review::TokenFile;

/// Where an issuer says where its keys are, after its own address (OpenID Connect Discovery 1.0, section 4).
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// The part of that document that counts here. Issuers for programs need not have the rest.
#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

/// Returns the keys at a known address. A cluster's are for those it knows, so `token_file` may say who asks.
pub(super) fn at(fetch: Fetch, url: Endpoint, token_file: Option<TokenFile>) -> KeySet {
    KeySet::new(move || {
        let (fetch, url, token_file) = (fetch.clone(), url.clone(), token_file.clone());
        async move {
            let token = match &token_file {
                Some(file) => Some(file.read().await?),
                None => None,
            };
            get(&fetch, &url, token.as_ref()).await
        }
    })
}

/// Returns the keys of an issuer that says itself where they are.
pub(super) fn of_issuer(fetch: Fetch, issuer: Endpoint) -> KeySet {
    KeySet::new(move || {
        let (fetch, issuer) = (fetch.clone(), issuer.clone());
        async move {
            let url = issuer.join(DISCOVERY_PATH).map_err(|error| error.to_string())?;
            let document = get(&fetch, &url, None).await?;
            let found = Discovered::deserialize(document).map_err(|_| format!("{url} says not where its keys are"))?;
            // Section 4.3: whoever answers here must not be able to speak for another issuer.
            if found.issuer != issuer.as_str() {
                return Err(format!("{url} speaks for another issuer"));
            }
            let keys =
                found.jwks_uri.parse().map_err(|error| format!("the address of the keys of {issuer}: {error}"))?;
            get(&fetch, &keys, None).await
        }
    })
}

async fn get(fetch: &Fetch, url: &Endpoint, token: Option<&Secret>) -> Result<Value, String> {
    let credentials = token.map_or(Credentials::Nothing, Credentials::Bearer);
    let answer = fetch.get(url, credentials).await.map_err(|error| error.to_string())?;
    answer.json().map_err(|error| error.to_string())
}
