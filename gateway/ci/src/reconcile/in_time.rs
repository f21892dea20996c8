//! Requests that must not be sent late, whatever happened to this process meanwhile.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep_until};

/// Carries work on until a deadline, after which none of it is done any more. Unlike a timeout it reads the clock first: of a
/// process that was paused, the work would go on for one more step before the timer is noticed, and could send a request that
/// another replica believes never to come.
pub(super) async fn only_until<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut timer) = (pin!(work), pin!(sleep_until(deadline)));
    poll_fn(|context| {
        if Instant::now() >= deadline {
            return Poll::Ready(None);
        }
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_step_of_the_work_is_taken_after_the_deadline() {
        let (deadline, mut steps) = (Instant::now() + Duration::from_secs(5), 0);
        {
            let work = poll_fn(|_| {
                steps += 1;
                if steps == 1 { Poll::Pending } else { Poll::Ready(()) }
            });
            let mut work = pin!(only_until(deadline, work));
            assert!(futures_util::poll!(work.as_mut()).is_pending());
            // Paused for longer: no timer was noticed meanwhile, and the work could go on.
            tokio::time::advance(Duration::from_secs(6)).await;
            assert_eq!(futures_util::poll!(work.as_mut()), Poll::Ready(None));
        }
        assert_eq!(steps, 1);
        assert_eq!(only_until(Instant::now() + Duration::from_secs(5), async { 7 }).await, Some(7));
        let never = only_until(Instant::now() + Duration::from_secs(5), std::future::pending::<()>());
        assert_eq!(never.await, None);
    }
}
