//! Prober: requests to workspaces whose agents are back, at a fixed rate, from a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::LoadClient;
use crate::failure::ExchangeFailure;
use crate::fleet::Fleet;
use crate::load::LoadSpec;
use crate::pace::Schedule;
use crate::payload::Payload;
use crate::stats::{Bytes, Collector, Recorder};
use crate::target::LoadTarget;

/// Most arrivals that wait for a connection; with more, the prober itself is late.
const QUEUE: usize = 1024;

/// Requests per second in place of a closed loop: a prober has a rate.
const RATE_DEFAULT: f64 = 200.0;

/// Requests of the prober, and their targets.
pub(super) struct Order {
    pub(super) fleet: Arc<Fleet>,
    /// The target of each agent's workspace, in the fleet's order.
    pub(super) targets: Arc<[LoadTarget]>,
    pub(super) load: LoadSpec,
    pub(super) collector: Collector,
    /// Only agents whose session came up after this are asked.
    pub(super) since: Instant,
}

/// A running prober.
pub(super) struct Prober {
    stop: CancellationToken,
    ended: oneshot::Receiver<anyhow::Result<()>>,
}

impl Prober {
    /// Starts its thread.
    pub(super) fn start(order: Order) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let (told, ended) = oneshot::channel();
        let run = {
            let stop = stop.clone();
            move || {
                let result = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let result = result.context("a runtime for the prober").map(|runtime| {
                    LocalSet::new().block_on(&runtime, probe(order, stop));
                });
                // The receiver is gone only if the run was given up.
                told.send(result).unwrap_or_default();
            }
        };
        std::thread::Builder::new().name("prober".to_owned()).spawn(run).context("starting the prober")?;
        Ok(Self { stop, ended })
    }

    /// Ends the prober after the requests under way.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        (&mut self.ended).await.context("the prober ended early")?
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// One request that is due.
struct DueRequest {
    intended: Instant,
    agent: usize,
}

async fn probe(order: Order, stop: CancellationToken) {
    let order = std::rc::Rc::new(order);
    let (sender, receiver) = mpsc::channel(QUEUE);
    let receiver = std::rc::Rc::new(tokio::sync::Mutex::new(receiver));
    let mut connections = tokio::task::JoinSet::new();
    for _ in 0..order.load.connections.max(1) {
        connections.spawn_local(serve(order.clone(), receiver.clone()));
    }
    pace(&order, &sender, &stop).await;
    drop(sender);
    while connections.join_next().await.is_some() {}
}

/// Hands out due requests until it is stopped.
async fn pace(order: &Order, sender: &mpsc::Sender<DueRequest>, stop: &CancellationToken) {
    let load = &order.load;
    let begin = Instant::now();
    let mut random = SmallRng::seed_from_u64(load.seed);
    let mut recorder = order.collector.recorder();
    let rate = load.rate.per_second().unwrap_or(RATE_DEFAULT);
    for offset in Schedule::new(load.arrivals, rate, load.seed, 0, 1) {
        let intended = begin + offset;
        if stop.run_until_cancelled(sleep_until(intended)).await.is_none() {
            return;
        }
        // No agent is back: there is nothing to ask for yet.
        let Some(agent) = choose(order, random.random_range(0..order.targets.len().max(1))) else { continue };
        recorder.offered(intended);
        if sender.send(DueRequest { intended, agent }).await.is_err() {
            return;
        }
    }
}

/// Finds the first agent from `first` on that is back.
fn choose(order: &Order, first: usize) -> Option<usize> {
    let count = order.targets.len();
    (0..count).map(|step| (first + step) % count).find(|agent| order.fleet.is_up_since(*agent, order.since))
}

/// One connection: asks one after the other.
async fn serve(order: std::rc::Rc<Order>, due: std::rc::Rc<tokio::sync::Mutex<mpsc::Receiver<DueRequest>>>) {
    let mut recorder = order.collector.recorder();
    let mut kept = None;
    loop {
        let free = Instant::now();
        let next = due.lock().await.recv().await;
        let Some(DueRequest { intended, agent }) = next else { return };
        let Some(target) = order.targets.get(agent) else { continue };
        let sent = Instant::now();
        // A wait for answers on every connection is not the prober's fault.
        recorder.late(intended, sent.saturating_duration_since(intended.max(free)));
        let asked = timeout(order.load.timeout, ask(&mut kept, target, order.load.size)).await;
        record(&mut recorder, intended, sent, asked.unwrap_or(Err(ExchangeFailure::lost("timeout"))), &mut kept);
    }
}

fn record(
    recorder: &mut Recorder,
    intended: Instant,
    sent: Instant,
    result: Result<u64, ExchangeFailure>,
    kept: &mut Option<LoadClient>,
) {
    let now = Instant::now();
    match result {
        Ok(down) => recorder.ok(intended, sent, now, Bytes { down, up: 0 }),
        Err(failure) => {
            if failure.lost {
                *kept = None;
            }
            recorder.failed(intended, now, failure.why);
        }
    }
}

async fn ask(kept: &mut Option<LoadClient>, target: &LoadTarget, size: u64) -> Result<u64, ExchangeFailure> {
    let request = target.request(Method::GET, &format!("/bytes/{size}")).body(Payload::Empty);
    let request = request.map_err(|_| ExchangeFailure::lost("bad_target"))?;
    if let Some(client) = kept.as_mut()
        && client.is_usable()
    {
        return client.exchange(request).await;
    }
    let client = kept.insert(LoadClient::connect(target).await?);
    client.exchange(request).await
}

/// Time that the prober goes on after all agents are back, so that the end of the storm is measured too.
pub(super) const GO_ON: Duration = Duration::from_secs(1);
