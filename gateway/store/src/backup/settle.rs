//! What a database that was brought back says of processes and sign-ins was true when the backup was made.

use super::super::database::{About, sql, sql_of};
use super::super::{Store, StoreError};

/// Distance of the first generation and replica after a restoration from the last ones of the backup: more than can have been
/// given out since.
const STEP: i64 = 1_000_000_000;

impl Store {
    /// Settles a database that was brought back: ends all sign-ins of browsers, as a sign-out since the backup must not be undone;
    /// frees the places of agents and duties, whose processes are gone; and sees to it that no number which agents may have seen
    /// since is given out again. Returns how many sign-ins ended.
    ///
    /// # Errors
    /// [`StoreError::Database`]; then nothing is changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, it does everything or nothing.
    pub async fn settle_restored(&self) -> Result<u64, StoreError> {
        let mut transaction = self.write(About::Replicas).await?;
        // First: triggers write down ends of sessions for replicas that live.
        sql("DELETE FROM replicas").execute(&mut transaction).await?;
        let ended = sql("DELETE FROM browser_sessions").execute(&mut transaction).await?;
        sql("DELETE FROM device_sign_ins").execute(&mut transaction).await?;
        sql("DELETE FROM sign_in_steps").execute(&mut transaction).await?;
        sql("DELETE FROM sign_in_guesses").execute(&mut transaction).await?;
        sql("UPDATE duties SET owner = NULL").execute(&mut transaction).await?;
        sql_of(
            "UPDATE session_floor SET generation = \
             max(generation, (SELECT coalesce(max(generation), 0) FROM sessions)) + $1 WHERE id = 1",
            "UPDATE session_floor SET generation = \
             greatest(generation, (SELECT coalesce(max(generation), 0) FROM sessions)) + $1 WHERE id = 1",
        )
        .bind(STEP)
        .execute(&mut transaction)
        .await?;
        sql("DELETE FROM sessions").execute(&mut transaction).await?;
        sql_of(
            "UPDATE sqlite_sequence SET seq = seq + $1 WHERE name = 'replicas'",
            "SELECT setval(pg_get_serial_sequence('replicas', 'id'), nextval(pg_get_serial_sequence('replicas', 'id')) + $1)",
        )
        .bind(STEP)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(ended)
    }
}
