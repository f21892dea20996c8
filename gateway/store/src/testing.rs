//! Damage for tests, here and in the crates above.

use crate::database::sql;
use crate::{EnvironmentId, Store};

impl Store {
    /// Makes an environment's row unreadable, as no version of the gateway writes it.
    ///
    /// # Panics
    /// When the store does not answer.
    #[expect(clippy::unwrap_used, reason = "for tests")]
    pub async fn spoil_environment(&self, id: EnvironmentId) {
        sql("UPDATE environments SET failures = -1 WHERE id = $1")
            .bind(i64::try_from(id.get()).unwrap())
            .execute(&self.writer)
            .await
            .unwrap();
    }
}
