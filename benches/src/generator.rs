//! Load generator: worker threads, each with a runtime, connections and a recorder of its own.
//!
//! A worker's task per connection does one exchange after the other; nothing is spawned, locked or shared between
//! threads on the way of a request. In an open loop the worker's dispatcher queues arrivals when they are due, whatever
//! happened to those before, and free connections take them. A thread that only sleeps wakes the dispatcher, since the
//! runtime's own timers are no finer than a millisecond.

mod alarm;
mod post;
mod scheduling;
mod worker;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::client::preflight;
use crate::failure::ExchangeFailure;
use crate::load::LoadSpec;
use crate::outcome::{RunOutcome, Usage};
use crate::profile::Context;
use crate::stats::{Bytes, Collector, Window};
use crate::verdict;

pub use post::Post;
use worker::{Order, WorkerReport};

/// Delay after which a second's figures are complete: recorders flush shortly after it is over.
const TELL_AFTER: Duration = Duration::from_millis(100);

/// Least time for work begun in the measured time to end.
const GRACE_MIN: Duration = Duration::from_secs(1);

/// Time from the last open connection to the first arrival.
const RUN_UP: Duration = Duration::from_millis(20);

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Short exchanges, by rate or one after the other. An exchange that has not ended in time has failed.
    Exchanges,
    /// Long transfers, by rate or one after the other. An unfinished one in a closed loop is no failure.
    Bulk,
    /// Events that arrive by themselves: there is nothing to pace.
    Stream,
}

/// Work of a run's connections.
pub trait Work: Send + Sync + 'static {
    /// State that a connection keeps between exchanges.
    type Connection: 'static;

    /// Kind of work.
    const KIND: WorkKind;

    /// Opens a connection.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, ExchangeFailure>>;

    /// Uses one connection until `post` has nothing more to do.
    fn serve(&self, connection: Self::Connection, post: &Post) -> impl Future<Output = ()>;
}

/// Work that consists of exchanges: one thing sent, one thing back.
pub trait Exchange: Send + Sync + 'static {
    /// State that a connection keeps between exchanges.
    type Connection: 'static;

    /// Opens a connection.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, ExchangeFailure>>;

    /// Does one exchange.
    fn exchange(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<Bytes, ExchangeFailure>>;
}

/// Connection that is kept from one use to the next, and replaced once it is lost.
pub struct KeptConnection<C>(Option<C>);

impl<C> KeptConnection<C> {
    /// Keeps an open connection.
    #[must_use]
    pub const fn new(connection: C) -> Self {
        Self(Some(connection))
    }

    /// Works with the kept connection, or with the one that `connect` opens.
    ///
    /// # Errors
    /// Those of `connect` and of `work`; the connection is let go if the failure says that it is lost.
    ///
    /// # Cancel safety
    /// Dropped before its end, it drops the connection; the next use opens another.
    pub async fn exchange<T>(
        &mut self,
        connect: impl Future<Output = Result<C, ExchangeFailure>>,
        work: impl AsyncFnOnce(&mut C) -> Result<T, ExchangeFailure>,
    ) -> Result<T, ExchangeFailure> {
        let mut connection = match self.0.take() {
            Some(connection) => connection,
            None => connect.await?,
        };
        let result = work(&mut connection).await;
        if !result.as_ref().is_err_and(|failure| failure.lost) {
            self.0 = Some(connection);
        }
        result
    }
}

/// Turns an [`Exchange`] into [`Work`].
pub struct Exchanges<E>(pub E);

impl<E: Exchange> Work for Exchanges<E> {
    type Connection = E::Connection;

    const KIND: WorkKind = WorkKind::Exchanges;

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, ExchangeFailure>> {
        self.0.connect()
    }

    async fn serve(&self, connection: E::Connection, post: &Post) {
        let mut kept = KeptConnection::new(connection);
        while let Some(intended) = post.next().await {
            let sent = post.sending(intended);
            let attempt = kept.exchange(self.0.connect(), async |connection| self.0.exchange(connection).await);
            let result = match tokio::time::timeout(post.timeout(), attempt).await {
                Ok(result) => result,
                Err(_) => Err(ExchangeFailure::lost("timeout")),
            };
            post.ended(intended, sent, result).await;
        }
    }
}

/// Runs work with the context's load, and returns its outcome.
///
/// # Errors
/// The connections cannot be opened at all.
pub async fn run<W: Work>(context: &Context, work: W) -> anyhow::Result<RunOutcome> {
    let Some(ready) = context.stop.run_until_cancelled(preflight(&context.target, context.load.timeout)).await else {
        anyhow::bail!("interrupted before anything was measured");
    };
    ready?;
    let mut crew = Crew::start(context, work).await?;
    let begin = Instant::now() + RUN_UP;
    let window_begin = begin + context.load.warm_up;
    let window = Window { begin: window_begin, end: window_begin + context.load.duration };
    let collector = Collector::new(window);
    let grace = context.load.slo.p99.unwrap_or_default().max(GRACE_MIN);
    crew.begin(&Order { begin, grace, collector: collector.clone() })?;

    let watched = watch(context, &collector).await;
    let busy = crew.finish().await?;

    let mut outcome = context.outcome(collector.finish(watched.ended));
    outcome.generator_busy = busy;
    outcome.usage = watched.usage;
    outcome.verdict = verdict::judge(&outcome);
    Ok(outcome)
}

/// Result of watching the measured time.
struct Watched {
    ended: Instant,
    usage: Option<Usage>,
}

/// Reports each second, until the measured time is over or the run is stopped.
async fn watch(context: &Context, collector: &Collector) -> Watched {
    let (window, stop) = (collector.window(), &context.stop);
    context.live.phase("warm-up");
    if stop.run_until_cancelled(sleep_until(window.begin)).await.is_none() {
        return Watched { ended: window.begin, usage: None };
    }
    let measuring = context.trees.as_ref().map(|trees| (trees, trees.begin()));
    let telling = async {
        for second in 0.. {
            sleep_until(window.begin + Duration::from_secs(second + 1) + TELL_AFTER).await;
            context.live.second(&context.load, &collector.second(second));
        }
    };
    let mut telling = std::pin::pin!(telling);
    tokio::select! {
        () = sleep_until(window.end) => {}
        () = stop.cancelled() => {}
        () = &mut telling => {}
    }
    let ended = Instant::now();
    let usage = measuring.map(|(trees, reading)| trees.since(reading));
    // The last second is reported a little later, while work under way ends.
    tokio::select! {
        () = sleep_until(window.end + TELL_AFTER * 2) => {}
        () = stop.cancelled() => {}
        () = &mut telling => {}
    }
    Watched { ended, usage }
}

/// The worker threads of a run.
struct Crew {
    orders: Vec<oneshot::Sender<Order>>,
    reports: mpsc::Receiver<anyhow::Result<WorkerReport>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Cancelled when the crew is dropped, so that no thread outlives a failed start.
    stop: CancellationToken,
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Crew {
    /// Starts the threads and waits until their connections are open.
    async fn start<W: Work>(context: &Context, work: W) -> anyhow::Result<Self> {
        let load: &LoadSpec = &context.load;
        let connections = load.connections.max(1);
        let workers = load.workers.clamp(1, connections);
        let work = Arc::new(work);
        let (told, reports) = mpsc::channel(workers);
        let mut crew = Self { orders: Vec::new(), reports, threads: Vec::new(), stop: context.stop.child_token() };
        let mut opened = Vec::new();
        for index in 0..workers {
            let (order, orders) = oneshot::channel();
            let (open, is_open) = oneshot::channel();
            let task = worker::Worker {
                index,
                workers,
                // The first workers take the remainder of the division.
                connections: connections / workers + usize::from(index < connections % workers),
                load: load.clone(),
                work: Arc::clone(&work),
                stop: crew.stop.clone(),
                open,
                orders,
            };
            let told = told.clone();
            let thread = std::thread::Builder::new().name(format!("load-{index}")).spawn(move || {
                // The receiver is gone only if the run was given up.
                drop(told.blocking_send(task.run()));
            });
            crew.threads.push(thread.context("starting a worker thread")?);
            crew.orders.push(order);
            opened.push(is_open);
        }
        context.live.phase("connecting");
        for is_open in opened {
            is_open.await.context("a worker ended early")??;
        }
        Ok(crew)
    }

    /// Gives the order to begin.
    fn begin(&mut self, order: &Order) -> anyhow::Result<()> {
        for sender in self.orders.drain(..) {
            if sender.send(order.clone()).is_err() {
                anyhow::bail!("a worker ended early");
            }
        }
        Ok(())
    }

    /// Waits for all workers; returns how busy the busiest was.
    async fn finish(mut self) -> anyhow::Result<f64> {
        let mut busy = 0.0_f64;
        while !self.threads.is_empty() {
            let report = self.reports.recv().await.context("a worker ended early")??;
            busy = busy.max(report.busy);
            if let Some(thread) = self.threads.pop() {
                // Each report is a thread's last act; which one is joined first does not matter.
                drop(tokio::task::spawn_blocking(move || thread.join()).await);
            }
        }
        Ok(busy)
    }
}

#[cfg(test)]
mod tests;
