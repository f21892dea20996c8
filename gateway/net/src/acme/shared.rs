//! One certificate for several gateways: one of them orders it at a time, and all serve what was ordered last.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Interval at which a gateway reads what the others have ordered.
pub(super) const READ_INTERVAL: Duration = Duration::from_secs(60);

/// Interval at which the gateway that orders says that it still does.
pub(super) const CLAIM_INTERVAL: Duration = Duration::from_secs(20);

/// Interval at which a gateway without a certificate asks whether another one has ordered it.
pub(super) const WAIT_INTERVAL: Duration = Duration::from_secs(1);

/// Reason why the shared certificate cannot be read or written.
pub type SharedError = Box<dyn Error + Send + Sync>;

/// Future of a [`SharedCertificate`].
pub type SharedFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SharedError>> + Send + 'a>>;

/// Place where gateways share a certificate. What is put there holds its key: it has to be sealed.
pub trait SharedCertificate: fmt::Debug + Send + Sync {
    /// Returns what was put there last.
    fn read(&self) -> SharedFuture<'_, Option<Vec<u8>>>;

    /// Claims the next order for this gateway, or goes on with its claim. `false` while another gateway orders. A claim ends by
    /// itself after three times [`CLAIM_INTERVAL`].
    fn claim(&self) -> SharedFuture<'_, bool>;

    /// Ends the claim of this gateway, and puts something there. `false` if another gateway has claimed the order since.
    fn put<'a>(&'a self, contents: &'a [u8]) -> SharedFuture<'a, bool>;

    /// Ends the claim of this gateway.
    fn give_up(&self) -> SharedFuture<'_, ()>;
}

/// What gateways share.
#[derive(Deserialize, Serialize)]
pub(super) struct Contents {
    /// Authority of the account.
    pub(super) directory: String,
    /// File of the account.
    pub(super) account: Option<String>,
    /// Chain of certificates, as PEM.
    pub(super) chain: String,
    /// Key of the first one, as PEM.
    pub(super) key: String,
}

impl Contents {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, SharedError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, SharedError> {
        Ok(serde_json::to_vec(self)?)
    }
}
