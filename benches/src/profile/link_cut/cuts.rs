//! Breaks of the link: their kinds and times, and the time until everything moves again.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use super::CutPlan;
use super::tally::CutTally;
use crate::lab::Lab;
use crate::profile::Context;
use crate::relay::{Handle, ToxicKind, toxic};

/// Interval at which the cutter checks for movement.
const LOOK: Duration = Duration::from_millis(1);

/// Breaks per half-open one: each half-open break costs the time that keepalive needs to notice it.
const HALF_OPEN_PER: usize = 50;

/// Kind of a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakKind {
    Reset,
    Close,
    Stall,
    HalfOpen,
}

impl BreakKind {
    pub(super) const ALL: [Self; 4] = [Self::Reset, Self::Close, Self::Stall, Self::HalfOpen];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Close => "close",
            Self::Stall => "stall",
            Self::HalfOpen => "half-open",
        }
    }

    /// Tells whether neither side is told of the break.
    pub(super) const fn is_silent(self) -> bool {
        match self {
            Self::HalfOpen => true,
            Self::Reset | Self::Close | Self::Stall => false,
        }
    }
}

/// Kinds of breaks in a run.
#[derive(Clone, Debug)]
pub(super) struct Kinds(Vec<BreakKind>);

impl Default for Kinds {
    fn default() -> Self {
        Self(BreakKind::ALL.to_vec())
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = |word: &str| {
            let known = BreakKind::ALL.into_iter().find(|kind| kind.as_str() == word.trim());
            known.ok_or_else(|| format!("`{word}` is not one of reset, close, stall, half-open"))
        };
        text.split(',').map(kind).collect::<Result<_, _>>().map(Self)
    }
}

impl Kinds {
    /// Draws the kind of a break. Half-open ones come at fixed places, the first in the first fifty.
    fn draw(&self, number: usize, random: &mut SmallRng) -> BreakKind {
        let silent = self.0.contains(&BreakKind::HalfOpen);
        let loud: Vec<BreakKind> = self.0.iter().copied().filter(|kind| !kind.is_silent()).collect();
        match loud.choose(random) {
            Some(kind) if !silent || number % HALF_OPEN_PER != HALF_OPEN_PER / 2 => *kind,
            Some(_) | None => BreakKind::HalfOpen,
        }
    }
}

/// A break and its consequences.
#[derive(Clone, Copy, Debug)]
pub(super) struct BreakRecord {
    pub(super) kind: BreakKind,
    /// Time until the agent had dialed again.
    pub(super) redialed_after: Option<Duration>,
    /// Time until the first echo; `None` if there was none in time.
    pub(super) resumed_after: Option<Duration>,
}

/// Cutter of the link.
pub(super) struct Cutter<'a> {
    pub(super) lab: &'a Arc<Lab>,
    pub(super) tally: &'a CutTally,
    pub(super) plan: CutPlan,
    pub(super) kinds: Kinds,
}

impl Cutter<'_> {
    /// Breaks the link as often as planned, or until the run is stopped.
    pub(super) async fn run(&self, context: &Context) -> Vec<BreakRecord> {
        let mut breaks = Vec::new();
        let Some(link) = self.lab.link() else { return breaks };
        let mut random = SmallRng::seed_from_u64(self.plan.seed);
        let all = async {
            // Nothing is broken before everything has moved once.
            self.moved_since(Instant::now()).await;
            for number in 0..self.plan.cuts {
                let kind = self.kinds.draw(number, &mut random);
                sleep(Duration::from_millis(random.random_range(100..600))).await;
                let broken = self.break_once(kind, link, &mut random).await;
                let words = broken.resumed_after.map_or("nothing came back".to_owned(), |after| format!("{after:.0?}"));
                context.live.phase(&format!("break {} of {}, {}: {words}", number + 1, self.plan.cuts, kind.as_str()));
                breaks.push(broken);
            }
        };
        // A stopped run reports the breaks so far.
        context.stop.run_until_cancelled(all).await.unwrap_or(());
        link.resume();
        breaks
    }

    async fn break_once(&self, kind: BreakKind, link: &Handle, random: &mut SmallRng) -> BreakRecord {
        let dialed = link.accepted();
        match kind {
            BreakKind::Reset => link.cut(),
            BreakKind::Close => link.close(),
            BreakKind::HalfOpen => link.half_open(),
            BreakKind::Stall => {
                let lasts = Duration::from_millis(random.random_range(100..1500));
                toxic::strike(ToxicKind::Stall { lasts }, link).await;
            }
        }
        let broken_at = Instant::now();
        self.tally.mark(broken_at);
        let mut redialed_after = None;
        while broken_at.elapsed() < self.plan.patience {
            if redialed_after.is_none() && link.accepted() > dialed {
                redialed_after = Some(broken_at.elapsed());
            }
            if self.tally.first_after_mark().is_some() && self.tally.all_moved_since(broken_at) {
                break;
            }
            sleep(LOOK).await;
        }
        let resumed_after = self.tally.first_after_mark().map(|at| at - broken_at);
        if redialed_after.is_none() && kind != BreakKind::Stall {
            redialed_after = resumed_after;
        }
        BreakRecord { kind, redialed_after, resumed_after }
    }

    async fn moved_since(&self, since: Instant) {
        while !self.tally.all_moved_since(since) && since.elapsed() < self.plan.patience {
            sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_breaks_are_rare_and_never_absent_from_a_hundred() {
        let mut random = SmallRng::seed_from_u64(1);
        let kinds: Vec<BreakKind> = (0..100).map(|number| Kinds::default().draw(number, &mut random)).collect();
        let count = |kind| kinds.iter().filter(|drawn| **drawn == kind).count();
        assert_eq!(count(BreakKind::HalfOpen), 2);
        assert!(BreakKind::ALL.into_iter().all(|kind| count(kind) > 0), "{kinds:?}");
    }

    #[test]
    fn only_kinds_that_were_named_happen() {
        let mut random = SmallRng::seed_from_u64(1);
        let only: Kinds = "half-open".parse().unwrap();
        assert!((0..100).all(|number| only.draw(number, &mut random) == BreakKind::HalfOpen));
        let loud: Kinds = "reset, close".parse().unwrap();
        assert!((0..100).all(|number| matches!(loud.draw(number, &mut random), BreakKind::Reset | BreakKind::Close)));
        assert!("melt".parse::<Kinds>().is_err());
    }
}
