//! The gateway's own certificate over ACME: alone it orders for itself, and replicas share one by the store.

use std::sync::Arc;
use std::time::Duration;

use gateway_config::{Config, Directory};
use gateway_net::acme::{Renewal, SharedCertificate, SharedFuture};
use gateway_store::{Orderer, Store, wall_clock};

use super::StartError;

/// Time for which a claim of the next order counts without a word of the process that has it.
const CLAIM_TIME: Duration = Duration::from_secs(60);

/// The store, as the place of the certificate that replicas share.
#[derive(Debug)]
struct StoredCertificate {
    store: Store,
    orderer: Orderer,
}

impl SharedCertificate for StoredCertificate {
    fn read(&self) -> SharedFuture<'_, Option<Vec<u8>>> {
        Box::pin(async { Ok(self.store.shared_certificate().await?) })
    }

    fn claim(&self) -> SharedFuture<'_, bool> {
        Box::pin(async { Ok(self.store.claim_certificate(self.orderer, CLAIM_TIME).await?) })
    }

    fn put<'a>(&'a self, contents: &'a [u8]) -> SharedFuture<'a, bool> {
        Box::pin(async { Ok(self.store.put_certificate(self.orderer, contents).await?) })
    }

    fn give_up(&self) -> SharedFuture<'_, ()> {
        Box::pin(async { Ok(self.store.give_up_certificate(self.orderer).await?) })
    }
}

/// A certificate that is there, how it is renewed, and the store if that had to be opened for it.
#[derive(Default)]
pub(super) struct OwnCertificate {
    pub(super) renewal: Option<Renewal>,
    store: Option<Store>,
}

impl OwnCertificate {
    /// Gets the gateway's own certificate if it is configured to.
    pub(super) async fn ensure(config: &Config) -> Result<Self, StartError> {
        let Some(acme) = config.tls.acme.clone() else { return Ok(Self::default()) };
        let (store, shared): (_, Option<Arc<dyn SharedCertificate>>) = match &config.directory {
            // Processes of one host share the files.
            Directory::Memory | Directory::Host(_) => (None, None),
            Directory::Store(_) => {
                let (store, orderer) = (Store::open_with(&config.store).await?, Orderer::random()?);
                (Some(store.clone()), Some(Arc::new(StoredCertificate { store, orderer })))
            }
        };
        let renewal = Renewal::new(acme, wall_clock, shared);
        renewal.ensure().await?;
        Ok(Self { renewal: Some(renewal), store })
    }

    /// Returns the renewal, and the store: the one that was opened for it, or else a fresh one.
    pub(super) async fn with_store(self, config: &Config) -> Result<(Option<Renewal>, Store), StartError> {
        let store = match self.store {
            Some(store) => store,
            None => Store::open_with(&config.store).await?,
        };
        Ok((self.renewal, store))
    }
}
