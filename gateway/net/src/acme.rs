//! Certificates that the gateway obtains for itself over ACME (RFC 8555) with the challenge `dns-01`: the only one that
//! proves a whole zone. A program of the operator's sets the records, see [`hook`].
//!
//! The result is files; [`Tls`](super::tls::Tls) reloads changed files anyway.

mod hook;
mod nonce;
mod renewal;
mod shared;
mod storage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use thiserror::Error;
use tracing::info;

pub use self::shared::{SharedCertificate, SharedError, SharedFuture};

use self::hook::{HookError, Published};
use self::nonce::{Nonces, again};
use self::storage::{AcmeFiles, KeptError};
use gateway_config::Acme;
use gateway_types::UnixSeconds;

/// Time limit for the authority to check the records, and to sign.
const AUTHORITY_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Reason that there is no new certificate. Each text says what to look at.
#[derive(Debug, Error)]
pub enum AcmeError {
    /// The authority refused, or cannot be reached.
    #[error("the authority {directory} {step}: {source}")]
    Authority {
        /// The authority's directory URL.
        directory: String,
        /// Request that failed.
        step: &'static str,
        /// Error of the library or the authority.
        source: instant_acme::Error,
    },
    /// The authority does not offer `dns-01` for a name.
    #[error("the authority does not take DNS records as proof for {0}")]
    NoChallenge(String),
    /// The authority did not find the records, or does not like the name.
    #[error("the authority did not accept the proof for {names}{why}; is the record that {} set visible?", hook.display())]
    NotProven {
        /// Names of the order.
        names: String,
        /// The authority's answer, after a colon.
        why: String,
        /// Program that set the records.
        hook: PathBuf,
    },
    /// The program that sets records failed.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// What gateways share cannot be read or written.
    #[error("the certificate that replicas share: {0}")]
    Shared(SharedError),
    /// Another gateway orders.
    #[error("another replica has taken the order over")]
    TakenOver,
}

/// Keeps one certificate renewed.
#[derive(Debug)]
pub struct Renewal {
    config: Acme,
    kept: AcmeFiles,
    clock: fn() -> UnixSeconds,
    /// Place of the certificate that other gateways have too.
    shared: Option<Arc<dyn SharedCertificate>>,
}

impl Renewal {
    /// Creates a renewal that reads the time from `clock`. What is `shared` is ordered by one gateway at a time.
    pub fn new(config: Acme, clock: fn() -> UnixSeconds, shared: Option<Arc<dyn SharedCertificate>>) -> Self {
        let kept = AcmeFiles::new(config.folder.clone());
        Self { config, kept, clock, shared }
    }

    /// Orders a certificate, and keeps it in the folder.
    async fn renew(&self) -> Result<(), AcmeError> {
        let names = self.config.names.join(", ");
        info!(%names, authority = %self.config.directory, "asking for a certificate");
        let mut nonces = Nonces::default();
        let account = self.account(&mut nonces).await?;
        let names: Vec<Identifier> = self.config.names.iter().cloned().map(Identifier::Dns).collect();
        let order = again!(nonces, account.new_order(&NewOrder::new(&names)));
        let mut order = order.map_err(self.authority("takes no order"))?;
        let mut published = Published::new(&self.config.dns_hook);
        let proven = self.prove(&mut order, &mut published, &mut nonces).await;
        // Also after a failure, so that no record is left behind.
        published.remove().await;
        proven?;
        let key = again!(nonces, order.finalize()).map_err(self.authority("takes no request to sign"))?;
        let chain = again!(nonces, order.poll_certificate(&patience()));
        let chain = chain.map_err(self.authority("gives no certificate"))?;
        self.kept.keep(&chain, &key)?;
        let until = self.kept.facts().map_or_else(String::new, |facts| facts.not_after.to_string());
        info!(names = %self.config.names.join(", "), %until, "there is a new certificate");
        Ok(())
    }

    async fn prove(
        &self,
        order: &mut Order,
        published: &mut Published<'_>,
        nonces: &mut Nonces,
    ) -> Result<(), AcmeError> {
        // The order keeps what it has fetched, so the loop below asks the authority for no authorization again.
        again!(nonces, fetch(order)).map_err(self.authority("does not say what to prove"))?;
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            let mut authorization = next.map_err(self.authority("does not say what to prove"))?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = authorization.identifier().to_string();
            let challenge = authorization.challenge(ChallengeType::Dns01);
            let mut challenge = challenge.ok_or_else(|| AcmeError::NoChallenge(name.clone()))?;
            let record = format!("_acme-challenge.{}", name.trim_start_matches("*."));
            published.add(record, challenge.key_authorization().dns_value()).await?;
            again!(nonces, challenge.set_ready()).map_err(self.authority("does not look at the records"))?;
        }
        let status = again!(nonces, order.poll_ready(&patience()));
        match status.map_err(self.authority("does not say whether the proof is good"))? {
            OrderStatus::Ready | OrderStatus::Valid | OrderStatus::Processing => Ok(()),
            OrderStatus::Pending | OrderStatus::Invalid => Err(self.not_proven(order).await),
        }
    }

    /// Reads from the authority why it did not accept the proof.
    async fn not_proven(&self, order: &mut Order) -> AcmeError {
        let mut said = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if let Ok(state) = authorization.refresh().await {
                said.extend(state.challenges.iter().filter_map(|challenge| challenge.error.clone()?.detail));
            }
        }
        let why = said.into_iter().next().map(|why| format!(": {why}")).unwrap_or_default();
        AcmeError::NotProven { names: self.config.names.join(", "), why, hook: self.config.dns_hook.clone() }
    }

    async fn account(&self, nonces: &mut Nonces) -> Result<Account, AcmeError> {
        let refused = self.authority("does not know us");
        if let Some(credentials) = self.kept.account(&self.config.directory)? {
            return self.builder()?.from_credentials(credentials).await.map_err(refused);
        }
        let contact = self.config.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let wanted = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let made = again!(nonces, self.builder()?.create(&wanted, self.config.directory.clone(), None));
        let (account, credentials) = made.map_err(self.authority("opens no account"))?;
        self.kept.keep_account(&self.config.directory, &credentials)?;
        Ok(account)
    }

    fn builder(&self) -> Result<AccountBuilder, AcmeError> {
        let made = match &self.config.ca_file {
            Some(path) => Account::builder_with_root(path),
            None => Account::builder(),
        };
        made.map_err(self.authority("cannot be asked"))
    }

    fn authority(&self, step: &'static str) -> impl Fn(instant_acme::Error) -> AcmeError {
        let directory = self.config.directory.clone();
        move |source| AcmeError::Authority { directory: directory.clone(), step, source }
    }
}

/// Fetches all authorizations of the order that were not fetched yet.
async fn fetch(order: &mut Order) -> Result<(), instant_acme::Error> {
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        next?;
    }
    Ok(())
}

fn patience() -> RetryPolicy {
    RetryPolicy::new().timeout(AUTHORITY_PATIENCE)
}
