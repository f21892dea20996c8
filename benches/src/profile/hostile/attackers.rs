//! Attacks at a rate, from many addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::net::TcpSocket;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::attack::{AttackEnd, AttackKind, attack};
use crate::clock::float;
use crate::target::{BoxedStream, LoadTarget};

/// Most attacks under way at a time; further ones are not made, and are counted as unmade.
const UNDER_WAY_MAX: usize = 4096;

/// Interval at which due attacks are made together.
const LOT: Duration = Duration::from_millis(5);

/// Rate, addresses and kind of the attacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttackPlan {
    pub(super) per_second: u32,
    pub(super) addresses: u8,
    pub(super) only: Option<AttackKind>,
}

#[derive(Debug, Default)]
struct Counts {
    made: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    unmade: AtomicU64,
    connected_max: AtomicU64,
}

/// Attackers, on a thread of their own, so that they do not slow down the measurement.
pub(super) struct Attackers {
    counts: Arc<Counts>,
    began: Instant,
    stop: CancellationToken,
    thread: std::thread::JoinHandle<()>,
}

/// Result of the attacks.
pub(super) struct AttackResult {
    counts: Arc<Counts>,
    lasted: Duration,
}

impl Attackers {
    /// Starts the attackers.
    ///
    /// # Errors
    /// The target's address is none, or there is no thread.
    pub(super) fn start(target: &LoadTarget, plan: &AttackPlan) -> anyhow::Result<Self> {
        let counts = Arc::new(Counts::default());
        let stop = CancellationToken::new();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (target, plan, shared, until) = (target.clone(), *plan, Arc::clone(&counts), stop.clone());
        let run = move || runtime.block_on(all(target, plan, shared, until));
        let thread = std::thread::Builder::new().name("attackers".to_owned()).spawn(run).context("the attackers")?;
        Ok(Self { counts, began: Instant::now(), stop, thread })
    }

    /// Stops the attackers and returns the result.
    pub(super) async fn end(self) -> AttackResult {
        let lasted = self.began.elapsed();
        self.stop.cancel();
        let thread = self.thread;
        // A panicked thread has reported its panic.
        tokio::task::spawn_blocking(move || thread.join().is_ok()).await.ok();
        AttackResult { counts: self.counts, lasted }
    }
}

impl AttackResult {
    pub(super) fn per_second(&self) -> f64 {
        float(self.counts.made.load(Ordering::Relaxed)) / self.lasted.as_secs_f64().max(1e-3)
    }

    pub(super) fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }

    pub(super) fn cut(&self) -> u64 {
        self.counts.cut.load(Ordering::Relaxed)
    }

    pub(super) fn unmade(&self) -> u64 {
        self.counts.unmade.load(Ordering::Relaxed)
    }

    pub(super) fn connected_max(&self) -> u64 {
        self.counts.connected_max.load(Ordering::Relaxed)
    }
}

/// Makes attacks until they are stopped.
async fn all(target: LoadTarget, plan: AttackPlan, counts: Arc<Counts>, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    let mut chance = SmallRng::seed_from_u64(1);
    let mut lots = interval(LOT);
    lots.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let began = Instant::now();
    let mut due = 0_u64;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = lots.tick() => {}
        }
        let wanted = began.elapsed().as_millis() * u128::from(plan.per_second) / 1000;
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        for _ in due..wanted {
            while tasks.try_join_next().is_some() {}
            if tasks.len() >= UNDER_WAY_MAX {
                counts.unmade.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let kind = plan.only.unwrap_or_else(|| choose(chance.random_range(0..100)));
            let source = chance.random_range(0..plan.addresses.max(1));
            tasks.spawn(one(target.clone(), kind, source, Arc::clone(&counts)));
            counts.connected_max.fetch_max(tasks.len() as u64, Ordering::Relaxed);
        }
        due = wanted;
    }
    tasks.shutdown().await;
}

fn choose(mut roll: u32) -> AttackKind {
    for (kind, share) in AttackKind::MIX {
        if roll < share {
            return kind;
        }
        roll -= share;
    }
    AttackKind::BadHost
}

async fn one(target: LoadTarget, kind: AttackKind, source: u8, counts: Arc<Counts>) {
    let Ok(stream) = connect(&target, source).await else {
        counts.unmade.fetch_add(1, Ordering::Relaxed);
        return;
    };
    counts.made.fetch_add(1, Ordering::Relaxed);
    let count = match attack(stream, kind, &target).await {
        AttackEnd::Answered | AttackEnd::GivenUp => return,
        AttackEnd::Refused => &counts.refused,
        AttackEnd::Cut => &counts.cut,
    };
    count.fetch_add(1, Ordering::Relaxed);
}

/// Connects, on loopback from one of the attackers' addresses.
async fn connect(target: &LoadTarget, source: u8) -> io::Result<BoxedStream> {
    let loopback = target.address.parse::<SocketAddr>().ok().filter(|address| is_loopback(address.ip()));
    let (Some(address), None) = (loopback, &target.tls) else { return target.connect().await };
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::new(127, 0, 1, source.saturating_add(1)), 0).into())?;
    Ok(Box::new(socket.connect(address).await?))
}

fn is_loopback(address: IpAddr) -> bool {
    address.is_ipv4() && address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_roll_is_an_attack_in_the_shares_of_the_mix() {
        for (kind, share) in AttackKind::MIX {
            let count = (0..100).filter(|roll| choose(*roll) == kind).count();
            assert_eq!(u32::try_from(count), Ok(share), "{kind:?}");
        }
    }
}
