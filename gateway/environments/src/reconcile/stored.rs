//! Stores the result of a call although the store fails at first.

use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::STORE_PAUSE;
use gateway_store::{EnvironmentId, StoreError};

/// Stores the result of a call, and tries again after a pause if the store fails. Without that, the next reconcile would
/// have to ask the cluster once more; in a drain there is no next one, and the job would wait for another process.
///
/// # Errors
/// Errors that a repetition does not change; any error once the gateway stops.
pub(super) async fn until_stored<T, F>(
    id: EnvironmentId,
    stop: &CancellationToken,
    mut store: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    loop {
        let error = match store().await {
            Err(error @ (StoreError::Away | StoreError::Database(_))) => error,
            result => return result,
        };
        warn!(environment = %id, %error, "the result of a call cannot be stored yet");
        tokio::select! {
            () = stop.cancelled() => return Err(error),
            () = tokio::time::sleep(STORE_PAUSE) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn result_is_stored_once_the_store_answers_again() {
        let (began, tries, stop) = (Instant::now(), Cell::new(0), CancellationToken::new());
        let stored = until_stored(EnvironmentId::new(1), &stop, async || {
            tries.update(|tries| tries + 1);
            if tries.get() < 3 { Err(StoreError::Away) } else { Ok("stored") }
        });
        assert_eq!(stored.await.expect("stored"), "stored");
        assert_eq!((tries.get(), began.elapsed()), (3, 2 * STORE_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn error_that_stays_and_a_stop_end_the_tries() {
        let corrupt = async || Err::<(), _>(StoreError::Corrupt { table: "environments", column: "tracked" });
        let stop = CancellationToken::new();
        assert!(matches!(until_stored(EnvironmentId::new(1), &stop, corrupt).await, Err(StoreError::Corrupt { .. })));
        let (began, away) = (Instant::now(), async || Err::<(), _>(StoreError::Away));
        let (stored, ()) = tokio::join!(until_stored(EnvironmentId::new(1), &stop, away), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stop.cancel();
        });
        assert!(matches!(stored, Err(StoreError::Away)));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}
