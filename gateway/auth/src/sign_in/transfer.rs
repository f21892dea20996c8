//! One-time codes that carry a sign-in from the public host to one workspace host.

use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;

use crate::expiring::Expiring;
use crate::sign_in::path::ReturnPath;
use gateway_types::opaque::{Digest, Opaque};

/// Time within which a code can be redeemed.
pub const TRANSFER_AGE_MAX: Duration = Duration::from_secs(30);
/// Codes outstanding at once. Full: the oldest becomes invalid, and its browser begins again.
pub const TRANSFERS_MAX: usize = 4096;

/// Sign-in behind a code. Never sent: the URL shows the code alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The only workspace host at which the code is valid.
    pub host: Box<str>,
    /// The hash of the nonce that only the browser which began the sign-in holds, in a cookie of that host.
    pub pre: Digest,
    /// The public session that vouches.
    pub parent: Digest,
    /// Path that the browser wanted.
    pub return_to: ReturnPath,
}

/// Reason why a code was refused. The browser gets the same answer for all; the log may tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TransferRefused {
    /// Never issued, already used, or older than [`TRANSFER_AGE_MAX`].
    #[error("the code is unknown, used or expired")]
    Unknown,
    /// Presented at another host.
    #[error("the code is for another host")]
    WrongHost,
    /// Presented by a browser that did not begin this sign-in.
    #[error("the code is for another browser")]
    WrongBrowser,
}

/// The codes that were issued and not yet redeemed.
#[derive(Debug)]
pub struct Transfers {
    outstanding: Mutex<Expiring<Digest, Transfer>>,
}

impl Default for Transfers {
    fn default() -> Self {
        Self { outstanding: Mutex::new(Expiring::new(TRANSFER_AGE_MAX, TRANSFERS_MAX)) }
    }
}

impl Transfers {
    /// Makes `code` stand for `transfer` from `now` on.
    pub fn issue(&self, code: &Opaque, transfer: Transfer, now: Instant) {
        self.outstanding.lock().insert(code.digest(), transfer, now);
    }

    /// Redeems a code, shown by a browser with the nonce `pre`, if it has one. The code is used up, whatever the
    /// answer.
    ///
    /// # Errors
    ///
    /// Says which binding did not hold.
    pub fn redeem(
        &self,
        code: &Opaque,
        host: &str,
        pre: Option<&Digest>,
        now: Instant,
    ) -> Result<Transfer, TransferRefused> {
        let transfer = self.outstanding.lock().remove(&code.digest(), now).ok_or(TransferRefused::Unknown)?;
        if *transfer.host != *host {
            return Err(TransferRefused::WrongHost);
        }
        if Some(&transfer.pre) != pre {
            return Err(TransferRefused::WrongBrowser);
        }
        Ok(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "8080-app.zone";

    struct Fixture {
        transfers: Transfers,
        code: Opaque,
        transfer: Transfer,
        now: Instant,
    }

    fn fixture() -> Fixture {
        let (transfers, code, now) = (Transfers::default(), Opaque::random().unwrap(), Instant::now());
        let digest = || Opaque::random().unwrap().digest();
        let return_to = ReturnPath::parse("/a?b").unwrap();
        let transfer = Transfer { host: HOST.into(), pre: digest(), parent: digest(), return_to };
        transfers.issue(&code, transfer.clone(), now);
        Fixture { transfers, code, transfer, now }
    }

    #[test]
    fn code_is_good_once() {
        let it = fixture();
        let redeem = || it.transfers.redeem(&it.code, HOST, Some(&it.transfer.pre), it.now);
        assert_eq!(redeem(), Ok(it.transfer.clone()));
        assert_eq!(redeem(), Err(TransferRefused::Unknown));
    }

    #[test]
    fn code_ends_exactly_at_its_bound() {
        let it = fixture();
        let late = it.now + TRANSFER_AGE_MAX;
        assert_eq!(it.transfers.redeem(&it.code, HOST, Some(&it.transfer.pre), late), Err(TransferRefused::Unknown));
        let it = fixture();
        let last = it.now + TRANSFER_AGE_MAX - Duration::from_nanos(1);
        assert!(it.transfers.redeem(&it.code, HOST, Some(&it.transfer.pre), last).is_ok());
    }

    #[test]
    fn code_at_another_host_or_in_another_browser_is_refused_and_used_up() {
        for other in ["8081-app.zone", "app.zone", "8080-evil.zone", ""] {
            let it = fixture();
            let refused = it.transfers.redeem(&it.code, other, Some(&it.transfer.pre), it.now);
            assert_eq!(refused, Err(TransferRefused::WrongHost));
            let again = it.transfers.redeem(&it.code, HOST, Some(&it.transfer.pre), it.now);
            assert_eq!(again, Err(TransferRefused::Unknown));
        }
        let it = fixture();
        let stranger = Opaque::random().unwrap().digest();
        assert_eq!(it.transfers.redeem(&it.code, HOST, Some(&stranger), it.now), Err(TransferRefused::WrongBrowser));
        let again = it.transfers.redeem(&it.code, HOST, Some(&it.transfer.pre), it.now);
        assert_eq!(again, Err(TransferRefused::Unknown));
        let it = fixture();
        assert_eq!(it.transfers.redeem(&it.code, HOST, None, it.now), Err(TransferRefused::WrongBrowser));
        let again = it.transfers.redeem(&it.code, HOST, Some(&it.transfer.pre), it.now);
        assert_eq!(again, Err(TransferRefused::Unknown), "spent, though the browser had no nonce");
    }

    #[test]
    fn code_that_was_never_issued_is_unknown() {
        let it = fixture();
        let other = Opaque::random().unwrap();
        assert_eq!(it.transfers.redeem(&other, HOST, Some(&it.transfer.pre), it.now), Err(TransferRefused::Unknown));
        assert!(it.transfers.redeem(&it.code, HOST, Some(&it.transfer.pre), it.now).is_ok());
    }
}
