//! An issuer of tokens: its metadata and its keys. The shell around [`Metadata`] and [`KeySet`] that asks over the
//! network.

pub mod programs;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde_json::Value;

use crate::jwt::{Algorithm, Claims, Expect, KeySet, KeySetObserver, Moment, TokenRefused, TokenUse};
use crate::oidc::metadata::Metadata;
use gateway_net::fetch::{Credentials, Fetch};
use gateway_types::Endpoint;

/// Path of an issuer's metadata, after its own address (`OpenID` Connect Discovery 1.0, section 4).
pub const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";

/// One issuer. Nothing is asked before it is needed; an issuer that cannot be reached is asked again later.
#[derive(Debug)]
pub struct Issuer {
    url: Endpoint,
    metadata: Arc<ArcSwapOption<Metadata>>,
    keys: KeySet,
}

impl Issuer {
    /// Creates an issuer with its metadata at [`DISCOVERY_PATH`].
    #[must_use]
    pub fn new(fetch: Fetch, url: Endpoint) -> Self {
        let metadata = Arc::new(ArcSwapOption::empty());
        let keys = {
            let (metadata, url) = (metadata.clone(), url.clone());
            KeySet::new(move || discover(fetch.clone(), url.clone(), metadata.clone()))
        };
        Self { url, metadata, keys }
    }

    /// Returns its address, which is `iss` in its tokens.
    #[must_use]
    pub fn url(&self) -> &Endpoint {
        &self.url
    }

    /// Returns an observer of the requests for its metadata and keys.
    #[must_use]
    pub fn observer(&self) -> KeySetObserver {
        self.keys.observer()
    }

    /// Returns its metadata, fetched now if not known; `None` if it cannot be reached or its metadata is unusable,
    /// which is logged.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn metadata(&self, now: Moment) -> Option<Arc<Metadata>> {
        if let Some(known) = self.metadata.load_full() {
            return Some(known);
        }
        self.keys.refresh(now).await;
        self.metadata.load_full()
    }

    /// Checks a token of this issuer.
    ///
    /// # Errors
    ///
    /// [`TokenRefused`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn verify(
        &self,
        token: &str,
        audience: &str,
        token_use: TokenUse,
        now: Moment,
    ) -> Result<Claims, TokenRefused> {
        let expect = Expect { issuer: self.url.as_str(), audience, algorithms: Algorithm::DEFAULT, token_use };
        self.keys.verify(token, &expect, now).await
    }
}

/// Fetches the metadata and then the keys that it names. The metadata is kept if both are valid.
async fn discover(fetch: Fetch, url: Endpoint, metadata: Arc<ArcSwapOption<Metadata>>) -> Result<Value, String> {
    let at = url.join(DISCOVERY_PATH).map_err(|error| error.to_string())?;
    let document: Value = get(&fetch, &at).await?;
    let found = Metadata::parse(&document, &url).map_err(|error| error.to_string())?;
    let keys = get(&fetch, &found.keys).await?;
    metadata.store(Some(Arc::new(found)));
    Ok(keys)
}

async fn get(fetch: &Fetch, at: &Endpoint) -> Result<Value, String> {
    let answer = fetch.get(at, Credentials::Nothing).await.map_err(|error| error.to_string())?;
    answer.json().map_err(|error| error.to_string())
}
