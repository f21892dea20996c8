//! Background work that one replica does for all of them. A replica takes a duty whose owner's lease is over, does the work behind
//! a fence of the store, and gives the duty up once it drains and the work under way has ended.
//!
//! The work stops at once when the duty is lost: another has it, a write found another owner, or the lease that was known of last
//! is over by this machine's clock, also while the store is away.

mod plan;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use gateway_store::{Duty, Fence, Incarnation, Store};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::plan::{DutyPlan, DutyStep};

/// Interval at which free duties are found: a small part of a lease, which is the rest of the time that work may stand still.
const TICK: Duration = Duration::from_secs(3);

/// A duty that this process has, for as long as it has it.
#[derive(Clone, Debug)]
pub struct HeldDuty {
    /// The store, whose writes fail once another replica has the duty.
    pub store: Store,
    /// Cancelled when nothing new is to be begun. Work under way may end.
    pub ending: CancellationToken,
    /// Cancelled when everything has to stop at once, also what is under way.
    pub lost: CancellationToken,
}

/// The work of a duty: begun each time that this process gets the duty. It ends soon after `ending`, and at once after `lost`.
pub type DutyWork = Box<dyn Fn(HeldDuty) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The tokens of a duty whose work runs.
#[derive(Debug)]
struct Hold {
    ending: CancellationToken,
    lost: CancellationToken,
}

/// Takes duties, and has their work done.
pub struct DutyKeeper {
    store: Store,
    replica: Incarnation,
    works: BTreeMap<Duty, DutyWork>,
    plan: DutyPlan,
    holds: BTreeMap<Duty, Hold>,
    tasks: JoinSet<()>,
    duties: HashMap<Id, Duty>,
    /// Time until which the lease is known to live.
    until: Instant,
}

impl fmt::Debug for DutyKeeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DutyKeeper")
            .field("replica", &self.replica)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// Tokens of the process that the keeper runs in.
#[derive(Clone, Debug)]
pub struct KeeperStops {
    /// The process takes nothing new.
    pub draining: CancellationToken,
    /// The process ends.
    pub closed: CancellationToken,
    /// The lease is over.
    pub lost: CancellationToken,
}

impl DutyKeeper {
    /// Makes the keeper of the duties that there is work for.
    #[must_use]
    pub fn new(store: Store, replica: Incarnation, works: BTreeMap<Duty, DutyWork>) -> Self {
        let plan = DutyPlan::new(replica, works.keys().copied());
        let (holds, tasks, duties) = (BTreeMap::new(), JoinSet::new(), HashMap::new());
        Self { store, replica, works, plan, holds, tasks, duties, until: Instant::now() }
    }

    /// Takes duties and has their work done, until the process drains and all work has ended. Dropped, it ends all work at once.
    pub async fn run(mut self, stops: KeeperStops) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_draining = false;
        while !is_draining || !self.tasks.is_empty() {
            tokio::select! {
                biased;
                () = stops.lost.cancelled() => break,
                () = stops.closed.cancelled() => break,
                () = stops.draining.cancelled(), if !is_draining => {
                    is_draining = true;
                    self.plan.drain();
                    self.holds.values().for_each(|hold| hold.ending.cancel());
                }
                Some(ended) = self.tasks.join_next_with_id() => {
                    // Includes a panic: the duty is free for this replica too.
                    self.ended(ended.map_or_else(|error| error.id(), |(id, ())| id)).await;
                }
                () = tokio::time::sleep_until(self.until), if !self.holds.is_empty() => {
                    warn!("the lease of this replica is not known to live: it stops the work that it does for all");
                    self.lose_all();
                }
                _ = ticks.tick() => self.tick().await,
            }
        }
        self.lose_all();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.ended(ended.map_or_else(|error| error.id(), |(id, ())| id)).await;
        }
    }

    async fn tick(&mut self) {
        // Read before the question, so that the lease never seems to live longer than it does.
        let asked = Instant::now();
        let found = match self.store.duties(self.replica).await {
            Ok(found) => found,
            Err(error) => return debug!(%error, "the owners of duties cannot be read"),
        };
        self.until = asked + found.lease;
        for step in self.plan.decide(&found) {
            match step {
                DutyStep::Lose(duty) => self.lose(duty),
                DutyStep::Begin(duty) => self.begin(duty),
                DutyStep::GiveUp(duty) => self.give_up(duty).await,
                DutyStep::Take(duty) => match self.store.take_duty(duty, self.replica).await {
                    Ok(true) => self.begin(duty),
                    Ok(false) => {}
                    Err(error) => debug!(duty = duty.as_str(), %error, "a duty cannot be taken"),
                },
            }
        }
    }

    fn begin(&mut self, duty: Duty) {
        let Some(work) = self.works.get(&duty) else { return };
        info!(duty = duty.as_str(), "this replica does this work for all from now on");
        let hold = Hold { ending: CancellationToken::new(), lost: CancellationToken::new() };
        let store = self.store.fenced(Fence::of_duty(duty, self.replica, hold.lost.clone()));
        let (ending, lost) = (hold.ending.clone(), hold.lost.clone());
        let mut work = work(HeldDuty { store, ending: ending.clone(), lost: lost.clone() });
        let task = self.tasks.spawn(async move {
            tokio::select! {
                () = &mut work => return,
                () = lost.cancelled() => ending.cancel(),
            }
            work.await;
        });
        self.duties.insert(task.id(), duty);
        self.holds.insert(duty, hold);
        self.plan.begun(duty);
    }

    fn lose(&self, duty: Duty) {
        let Some(hold) = self.holds.get(&duty) else { return };
        if !hold.lost.is_cancelled() {
            warn!(duty = duty.as_str(), "another replica may do this work by now: it stops here");
        }
        hold.lost.cancel();
    }

    fn lose_all(&mut self) {
        self.holds.values().for_each(|hold| hold.lost.cancel());
        // Nothing more is to be noticed about this lease.
        self.until = Instant::now() + TICK;
    }

    /// Notes that the work of a duty has ended, and gives the duty up.
    async fn ended(&mut self, task: Id) {
        let Some(duty) = self.duties.remove(&task) else { return };
        self.holds.remove(&duty);
        self.plan.ended(duty);
        self.give_up(duty).await;
    }

    async fn give_up(&self, duty: Duty) {
        match self.store.give_duty_up(duty, self.replica).await {
            Ok(()) => info!(duty = duty.as_str(), "this replica does this work for all no longer"),
            // Free once the lease is over.
            Err(error) => debug!(duty = duty.as_str(), %error, "a duty cannot be given up"),
        }
    }
}

#[cfg(test)]
mod tests;
