//! Keys of the issuers of agents' tokens.

use serde_json::Value;

pub(super) use gateway_auth::issuer::programs::keys_of as of_issuer;
use gateway_auth::jwt::KeySet;
use gateway_net::fetch::{Credentials, Fetch};
use gateway_types::Endpoint;
use gateway_types::Secret;

use super::review::TokenFile;

/// Returns the keys at a known address. A cluster serves its keys to known clients only, so `token_file` may
/// authenticate the request.
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

async fn get(fetch: &Fetch, url: &Endpoint, token: Option<&Secret>) -> Result<Value, String> {
    let credentials = token.map_or(Credentials::Nothing, Credentials::Bearer);
    let answer = fetch.get(url, credentials).await.map_err(|error| error.to_string())?;
    answer.json().map_err(|error| error.to_string())
}
