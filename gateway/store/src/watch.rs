//! Watches whether the store answers: one task polls it every second while it does, and every 250 ms while it does not.
//! The same query fetches the changes of access rights.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::changes::Feed;
use super::database::{cause, is_outage};
use super::{AccessChange, SingleError, SingleGateway, Store};
use gateway_net::availability::ANSWER_TIME_MAX;

/// Poll interval while the store answers.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Poll interval while the store is away.
const AWAY_INTERVAL: Duration = Duration::from_millis(250);

/// Time limit for a new connection to a store that may be back: it has several queries to answer then. A query during
/// its return gets no answer; access revoked meanwhile is cut within 5 s all the same, because agents are checked every
/// 2 s.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(2500);

/// Interval of deleting changes that no gateway reads any more.
const CLEAR_INTERVAL: Duration = Duration::from_secs(60);

/// Interval of trial writes to a store that could not be written.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// Outcome of one poll.
enum PollOutcome {
    /// It answers.
    Here,
    /// It answers, and another gateway serves it.
    Taken(SingleError),
    /// It does not answer.
    Nothing(String),
}

impl Store {
    /// Watches until `stop` whether the store answers, and reports changes of access rights to `changed`. From now on
    /// the store can count as away: statements then fail at once.
    ///
    /// # Errors
    /// [`SingleError::Taken`] as soon as another gateway serves this database: the caller has to end the process. The
    /// store stays away then, so that this process does not write to it beside the other one.
    pub async fn watch(
        &self,
        single: &SingleGateway,
        stop: CancellationToken,
        mut changed: impl FnMut(&AccessChange) + Send,
    ) -> Result<(), SingleError> {
        self.availability.watched();
        let (mut feed, mut was_away) = (Feed::default(), false);
        let (mut clear_at, mut write_at) = (Instant::now() + CLEAR_INTERVAL, Instant::now());
        loop {
            let is_away = self.availability.outage().is_some();
            if is_away && !was_away {
                self.lost("a statement was not answered");
            }
            let began = Instant::now();
            let asked = self.ask(single, &mut feed, &mut changed, is_away);
            let Some(answer) = stop.run_until_cancelled(asked).await else { return Ok(()) };
            was_away = is_away;
            match answer {
                PollOutcome::Here => {
                    if let Some(outage) = self.availability.answered(Instant::now()) {
                        was_away = false;
                        let seconds = outage.since.elapsed().as_secs();
                        info!(seconds, "the store is back");
                    }
                    self.tidy(&mut feed, &mut clear_at, &mut write_at).await;
                }
                PollOutcome::Taken(error) => {
                    self.availability.failed(began);
                    return Err(error);
                }
                PollOutcome::Nothing(why) => {
                    if self.availability.failed(began) {
                        was_away = true;
                        self.lost(&why);
                    }
                    // The abandoned poll may hold a connection of the pool for as long as no answer comes.
                    self.readers.renew();
                }
            }
            let pause = if was_away { AWAY_INTERVAL } else { ASK_INTERVAL };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
                () = self.availability.lost(), if !was_away => {}
            }
        }
    }

    /// Logs that the store is away, and replaces the connections to it.
    fn lost(&self, why: &str) {
        warn!(%why, "the store is away: known users and agents go on, anything never looked up is refused");
        self.readers.renew();
    }

    /// Polls once, and reports the changes: those during an outage before it counts as over, so that access revoked
    /// meanwhile is not granted from a cache.
    async fn ask(
        &self,
        single: &SingleGateway,
        feed: &mut Feed,
        changed: &mut (impl FnMut(&AccessChange) + Send),
        is_away: bool,
    ) -> PollOutcome {
        let patience = if is_away { CONNECT_TIME_MAX } else { ANSWER_TIME_MAX };
        let asked = async {
            if let Err(error) = single.confirm(&self.readers, is_away).await? {
                return Ok(PollOutcome::Taken(error));
            }
            self.news(feed).await?.iter().for_each(&mut *changed);
            Ok(PollOutcome::Here)
        };
        match judge(timeout(patience, asked).await) {
            PollOutcome::Here if is_away => {}
            answer @ (PollOutcome::Here | PollOutcome::Taken(_) | PollOutcome::Nothing(_)) => return answer,
        }
        // The store is back once it answers as quickly as requests need it.
        let again = async {
            self.news(feed).await?.iter().for_each(&mut *changed);
            Ok(PollOutcome::Here)
        };
        judge(timeout(ANSWER_TIME_MAX, again).await)
    }

    /// Does periodic work: deletes old changes, tries to write.
    async fn tidy(&self, feed: &mut Feed, clear_at: &mut Instant, write_at: &mut Instant) {
        let now = Instant::now();
        if now >= *clear_at {
            *clear_at = now + CLEAR_INTERVAL;
            if let Err(error) = self.clear_news(feed).await {
                debug!(%error, "old changes are not cleared away");
            }
        }
        if self.availability.unwritable_since().is_some() && now >= *write_at {
            *write_at = now + WRITE_INTERVAL;
            match self.try_to_write().await {
                Ok(()) => info!("the store can be written again"),
                Err(error) => debug!(%error, "the store cannot be written"),
            }
        }
    }
}

/// Judges the store by a poll. Any reply of the store itself is an answer, also an error.
fn judge(asked: Result<Result<PollOutcome, sqlx::Error>, tokio::time::error::Elapsed>) -> PollOutcome {
    match asked {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if is_outage(&error) => PollOutcome::Nothing(cause(&error).to_string()),
        Ok(Err(error)) => {
            warn!(why = %cause(&error), "cannot read the latest changes of access from the store");
            PollOutcome::Here
        }
        Err(_elapsed) => PollOutcome::Nothing("it does not answer in time".to_owned()),
    }
}

#[cfg(test)]
mod tests;
