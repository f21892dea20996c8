//! When a certificate is ordered, and by which of several gateways.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::shared::{CLAIM_INTERVAL, Contents, READ_INTERVAL, SharedCertificate, WAIT_INTERVAL};
use super::{AcmeError, Renewal, storage};
use crate::tls::certificates::Facts;
use gateway_types::UnixSeconds;

/// Longest interval between two checks whether a renewal is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// First back-off after a failure. Authorities count failures, so it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(15 * 60);
/// Longest back-off after a failure.
const RETRY_MAX: Duration = Duration::from_secs(12 * 60 * 60);

impl Renewal {
    /// Gets a certificate unless a usable one is there, or waits until another gateway has. Takes as long as the authority does.
    ///
    /// # Errors
    /// [`AcmeError`].
    pub async fn ensure(&self) -> Result<(), AcmeError> {
        if self.is_usable() {
            return Ok(());
        }
        let Some(shared) = &self.shared else { return self.renew().await };
        let mut is_told = false;
        loop {
            self.take_over(&**shared).await?;
            if self.is_usable() {
                return Ok(());
            }
            if shared.claim().await.map_err(AcmeError::Shared)? {
                return self.order(&**shared).await;
            }
            if !std::mem::replace(&mut is_told, true) {
                info!("another replica asks for the certificate: waiting for it");
            }
            tokio::time::sleep(WAIT_INTERVAL).await;
        }
    }

    /// Renews in time, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut retry = RETRY_MIN;
        let mut wait = self.look_interval();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.look_interval();
            match self.renew_in_time().await {
                Ok(true) => retry = RETRY_MIN,
                Ok(false) => {}
                Err(error) => {
                    warn!(%error, retry_seconds = retry.as_secs(), "the certificate was not renewed");
                    wait = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Orders a certificate if that is due. Returns whether it did.
    async fn renew_in_time(&self) -> Result<bool, AcmeError> {
        let Some(shared) = &self.shared else {
            return if self.is_due() { self.renew().await.map(|()| true) } else { Ok(false) };
        };
        if let Err(error) = self.take_over(&**shared).await {
            // Without the store nothing can be claimed either. What is there serves on; its end is far, or the next look comes soon.
            warn!(%error, "the certificate of the other replicas cannot be read");
            return Ok(false);
        }
        if !self.is_due() || !shared.claim().await.map_err(AcmeError::Shared)? {
            return Ok(false);
        }
        self.order(&**shared).await.map(|()| true)
    }

    /// Orders a certificate for all, by this gateway's claim.
    async fn order(&self, shared: &dyn SharedCertificate) -> Result<(), AcmeError> {
        let claim_is_lost = async {
            loop {
                tokio::time::sleep(CLAIM_INTERVAL).await;
                if let Ok(false) = shared.claim().await {
                    return;
                }
            }
        };
        let ordered = tokio::select! {
            ordered = self.renew() => ordered,
            () = claim_is_lost => Err(AcmeError::TakenOver),
        };
        if let Err(error) = ordered {
            // The next one need not wait for the claim's end.
            shared.give_up().await.ok();
            return Err(error);
        }
        self.share(shared).await
    }

    /// Puts the certificate of the folder where the others read it.
    async fn share(&self, shared: &dyn SharedCertificate) -> Result<(), AcmeError> {
        let (chain, key) = self.kept.pair()?;
        let contents =
            Contents { directory: self.config.directory.clone(), account: self.kept.account_file()?, chain, key };
        let put = async { shared.put(&contents.to_bytes()?).await };
        if !put.await.map_err(AcmeError::Shared)? {
            warn!("another replica has ordered a certificate meanwhile: its one counts");
        }
        Ok(())
    }

    /// Takes the certificate that others have ordered, if it is newer than the one that is here; the other way round, gives them this
    /// one.
    async fn take_over(&self, shared: &dyn SharedCertificate) -> Result<(), AcmeError> {
        let bytes = shared.read().await.map_err(AcmeError::Shared)?;
        let contents = bytes.map(|bytes| Contents::read(&bytes)).transpose().map_err(AcmeError::Shared)?;
        let contents = contents.filter(|contents| contents.directory == self.config.directory);
        let until = |facts: Option<Facts>| {
            facts.filter(|facts| storage::covers(&facts.names, &self.config.names)).map(|facts| facts.not_after)
        };
        let theirs = until(contents.as_ref().and_then(|contents| storage::facts_in(&contents.chain)));
        let ours = until(self.kept.facts());
        match contents {
            Some(contents) if theirs > ours => {
                if let Some(account) = &contents.account {
                    self.kept.write_account(account)?;
                }
                self.kept.keep(&contents.chain, &contents.key)?;
                info!("took the certificate that another replica has ordered");
            }
            Some(_) | None => {
                if ours > theirs && self.is_usable() && shared.claim().await.map_err(AcmeError::Shared)? {
                    self.share(shared).await?;
                }
            }
        }
        Ok(())
    }

    fn look_interval(&self) -> Duration {
        let longest = if self.shared.is_some() { READ_INTERVAL } else { LOOK_INTERVAL };
        self.kept.facts().map_or(longest, |facts| storage::look_interval(&facts).min(longest))
    }

    fn now(&self) -> UnixSeconds {
        (self.clock)()
    }

    fn is_usable(&self) -> bool {
        let facts = self.kept.facts();
        facts.is_some_and(|facts| facts.not_after > self.now() && storage::covers(&facts.names, &self.config.names))
    }

    fn is_due(&self) -> bool {
        let facts = self.kept.facts();
        facts.is_none_or(|facts| {
            storage::is_due(&facts, self.now()) || !storage::covers(&facts.names, &self.config.names)
        })
    }
}
