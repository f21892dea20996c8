//! Searches for sessions of other replicas: one at a time for a workspace or cluster, none again for a moment after one without a
//! result, and so many a second in all. A flood of requests for agents that are away costs the store no more than that.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_agents::peers::FoundSession;
use gateway_agents::registry::Subject;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Time for which a workspace or cluster without a session is not searched again.
const SETTLED_TIME: Duration = Duration::from_secs(1);

/// Most searches a second, as many at once.
const SEARCHES_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(199);

/// Most questions to all other replicas a second, while the store is away.
const QUESTIONS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);

/// Number of searches that are remembered, from which the old ones are removed.
const SEARCHES_KEPT: usize = 1_024;

/// All searches of this replica. Bounded by [`SEARCHES_PER_SECOND`] and [`SETTLED_TIME`].
#[derive(Debug)]
pub(crate) struct Searches {
    searches: Mutex<HashMap<Subject, Search>>,
    turns: DefaultDirectRateLimiter,
    questions: DefaultDirectRateLimiter,
}

#[derive(Debug)]
enum Search {
    /// Under way; the channel closes at its end.
    UnderWay(watch::Receiver<()>),
    /// Over without a session.
    Settled { until: Instant, is_unreachable: bool },
}

/// What a caller has to do for a workspace or cluster.
#[derive(Debug)]
pub(crate) enum SearchTurn {
    /// Search, and settle.
    First(FirstSearch),
    /// Wait for the search of another caller: the channel closes at its end.
    UnderWay(watch::Receiver<()>),
    /// Nothing: it was searched a moment ago, or too much is searched.
    Settled(FoundSession),
}

/// Search that is under way. Dropped, it ends without a result, and the next caller searches.
#[derive(Debug)]
pub(crate) struct FirstSearch {
    searches: Arc<Searches>,
    subject: Subject,
    _ends: watch::Sender<()>,
}

impl Searches {
    /// Makes an empty one.
    pub(crate) fn new() -> Arc<Self> {
        let turns = RateLimiter::direct(Quota::per_second(SEARCHES_PER_SECOND));
        let questions = RateLimiter::direct(Quota::per_second(QUESTIONS_PER_SECOND));
        Arc::new(Self { searches: Mutex::default(), turns, questions })
    }

    /// Returns whether all other replicas may be asked now.
    pub(crate) fn may_question(&self) -> bool {
        self.questions.check().is_ok()
    }

    /// Begins a search, unless there is one.
    pub(crate) fn begin(self: &Arc<Self>, subject: &Subject, now: Instant) -> SearchTurn {
        let mut searches = self.searches.lock();
        if let Some(search) = searches.get(subject).filter(|search| search.is_of_use(now)) {
            return match search {
                Search::UnderWay(search) => SearchTurn::UnderWay(search.clone()),
                Search::Settled { is_unreachable: true, .. } => SearchTurn::Settled(FoundSession::Unreachable),
                Search::Settled { is_unreachable: false, .. } => SearchTurn::Settled(FoundSession::Absent),
            };
        }
        if self.turns.check().is_err() {
            return SearchTurn::Settled(FoundSession::Absent);
        }
        if searches.len() >= SEARCHES_KEPT && searches.len() == searches.capacity() {
            searches.retain(|_, search| search.is_of_use(now));
        }
        let (ends, under_way) = watch::channel(());
        searches.insert(subject.clone(), Search::UnderWay(under_way));
        SearchTurn::First(FirstSearch { searches: self.clone(), subject: subject.clone(), _ends: ends })
    }
}

impl FirstSearch {
    /// Ends the search with its result.
    pub(crate) fn settle(self, found: &FoundSession, now: Instant) {
        let mut searches = self.searches.searches.lock();
        let is_unreachable = match found {
            // The registry has it from here on.
            FoundSession::Lane(_) => {
                searches.remove(&self.subject);
                return;
            }
            FoundSession::Absent => false,
            FoundSession::Unreachable => true,
        };
        searches.insert(self.subject.clone(), Search::Settled { until: now + SETTLED_TIME, is_unreachable });
    }
}

impl Search {
    fn is_of_use(&self, now: Instant) -> bool {
        match self {
            Self::UnderWay(search) => search.has_changed().is_ok(),
            Self::Settled { until, .. } => *until > now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Subject {
        Subject::Workspace(format!("w{number}").parse().expect("a name"))
    }

    fn first(searches: &Arc<Searches>, number: usize, now: Instant) -> FirstSearch {
        match searches.begin(&name(number), now) {
            SearchTurn::First(search) => search,
            other @ (SearchTurn::UnderWay(_) | SearchTurn::Settled(_)) => panic!("not the first: {other:?}"),
        }
    }

    #[test]
    fn one_caller_searches_and_the_others_have_its_result() {
        let (searches, now) = (Searches::new(), tokio::time::Instant::now().into_std());
        let search = first(&searches, 1, now);
        let SearchTurn::UnderWay(waits) = searches.begin(&name(1), now) else { panic!("it is under way") };
        search.settle(&FoundSession::Unreachable, now);
        assert!(waits.has_changed().is_err(), "it is over");
        let settled = searches.begin(&name(1), now);
        assert!(matches!(settled, SearchTurn::Settled(FoundSession::Unreachable)), "{settled:?}");
        let later = now + SETTLED_TIME;
        first(&searches, 1, later).settle(&FoundSession::Absent, later);
        let settled = searches.begin(&name(1), later);
        assert!(matches!(settled, SearchTurn::Settled(FoundSession::Absent)), "{settled:?}");
    }

    #[test]
    fn search_whose_caller_left_is_begun_again() {
        let (searches, now) = (Searches::new(), tokio::time::Instant::now().into_std());
        drop(first(&searches, 1, now));
        drop(first(&searches, 1, now));
    }

    #[test]
    fn questions_to_all_replicas_have_a_bound_of_their_own() {
        let (searches, began) = (Searches::new(), tokio::time::Instant::now());
        let asked = (0..10_000).filter(|_| searches.may_question()).count();
        let most = 50 + 50 * (usize::try_from(began.elapsed().as_secs()).expect("short") + 1);
        assert!((50..=most).contains(&asked), "{asked}");
    }

    /// A flood for agents that are away reads the store no more than this (a peer's outage began with such a flood).
    #[test]
    fn flood_for_absent_workspaces_has_a_bound_and_is_forgotten() {
        let (searches, now) = (Searches::new(), tokio::time::Instant::now().into_std());
        let mut begun = 0;
        for number in 0..100_000 {
            if let SearchTurn::First(search) = searches.begin(&name(number), now) {
                search.settle(&FoundSession::Absent, now);
                begun += 1;
            }
        }
        // The limiter's own clock went on meanwhile.
        let most = 200 + 200 * (now.elapsed().as_secs() + 1);
        assert!((200..=most).contains(&begun), "{begun}");
        assert!(searches.searches.lock().len() <= usize::try_from(begun).expect("few"));
    }
}
