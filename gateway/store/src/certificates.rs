//! Statements about the certificate that replicas share: one of them orders it at a time, by a claim that ends by itself.

use std::time::Duration;

use aws_lc_rs::rand;

use super::database::sql;
use super::replicas::{clocked, milliseconds};
use super::{Store, StoreError};
use gateway_types::token::NoRandomness;

/// Names the row to which the sealed certificate belongs.
pub(super) const ROW: &str = "shared certificate";

/// A process that orders certificates: a random number, as it orders before it is one of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orderer(i64);

impl Orderer {
    /// Draws a number.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0; 8];
        rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(Self(i64::from_be_bytes(bytes)))
    }
}

impl Store {
    /// Returns the contents that were put last.
    ///
    /// # Errors
    /// [`StoreError::Database`], or [`StoreError::Unsealable`] if they were sealed with another key.
    pub async fn shared_certificate(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let row = sql("SELECT sealed FROM shared_certificate WHERE id = 1").fetch_optional(&self.readers).await?;
        let sealed = row.as_ref().map(|row| row.get::<Option<&[u8]>>("sealed")).transpose()?.flatten();
        let open = |sealed| self.sealer.open(ROW, sealed).ok_or(StoreError::Unsealable { table: "shared_certificate" });
        sealed.map(open).transpose()
    }

    /// Claims the next order for a time, or goes on with a claim. `false` while another process has it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn claim_certificate(&self, orderer: Orderer, time: Duration) -> Result<bool, StoreError> {
        let claim = clocked!(
            "UPDATE shared_certificate SET orderer = $1, ends_at = $2 + ",
            " WHERE id = 1 AND (orderer = $1 OR ends_at <= ",
            ")"
        );
        Ok(claim.bind(orderer.0).bind(milliseconds(time)).execute(&self.writer).await? > 0)
    }

    /// Ends a claim and puts contents. `false` if another process has claimed the order since; then nothing is changed.
    ///
    /// # Errors
    /// [`StoreError::Database`], or [`StoreError::Randomness`].
    pub async fn put_certificate(&self, orderer: Orderer, contents: &[u8]) -> Result<bool, StoreError> {
        let sealed = self.sealer.seal(ROW, contents)?;
        let put = "UPDATE shared_certificate SET sealed = $1, orderer = 0, ends_at = 0 WHERE id = 1 AND orderer = $2";
        Ok(sql(put).bind(sealed.as_slice()).bind(orderer.0).execute(&self.writer).await? > 0)
    }

    /// Ends a claim, if it is still that process's.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn give_up_certificate(&self, orderer: Orderer) -> Result<(), StoreError> {
        let end = sql("UPDATE shared_certificate SET orderer = 0, ends_at = 0 WHERE id = 1 AND orderer = $1");
        end.bind(orderer.0).execute(&self.writer).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::each::each;

    const TIME: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn one_process_orders_at_a_time_and_one_whose_claim_was_taken_over_puts_nothing() {
        each(async |store| {
            let (first, second) = (Orderer(7), Orderer(8));
            assert_eq!(store.shared_certificate().await.unwrap(), None);
            assert!(store.claim_certificate(first, TIME).await.unwrap());
            assert!(!store.claim_certificate(second, TIME).await.unwrap());
            assert!(store.claim_certificate(first, Duration::ZERO).await.unwrap(), "it goes on with it");
            assert!(store.claim_certificate(second, TIME).await.unwrap(), "the claim of the first has ended");
            assert!(!store.put_certificate(first, b"late").await.unwrap());
            store.give_up_certificate(first).await.unwrap();
            assert!(!store.claim_certificate(first, TIME).await.unwrap(), "the second orders");
            assert!(store.put_certificate(second, b"chain and key").await.unwrap());
            assert_eq!(store.shared_certificate().await.unwrap().as_deref(), Some(&b"chain and key"[..]));
            assert!(!store.put_certificate(second, b"again").await.unwrap(), "its claim has ended");
            assert!(store.claim_certificate(first, TIME).await.unwrap());
            store.give_up_certificate(first).await.unwrap();
            assert!(store.claim_certificate(second, TIME).await.unwrap());
        })
        .await;
    }

    #[tokio::test]
    async fn key_of_the_certificate_is_not_readable_in_the_database() {
        each(async |store| {
            store.claim_certificate(Orderer(7), TIME).await.unwrap();
            store.put_certificate(Orderer(7), b"PRIVATE KEY").await.unwrap();
            let row =
                sql("SELECT sealed FROM shared_certificate").fetch_optional(&store.readers).await.unwrap().unwrap();
            let sealed: &[u8] = row.get("sealed").unwrap();
            assert!(!sealed.windows(7).any(|bytes| bytes == b"PRIVATE"));
        })
        .await;
    }
}
