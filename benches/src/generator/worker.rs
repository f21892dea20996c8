//! Worker thread: opens its connections, waits for the order, serves until the end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinSet, LocalSet, yield_now};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::post::{ArrivalQueue, ArrivalSource, Post};
use super::scheduling::wanted;
use super::{Work, WorkKind, alarm};
use crate::load::LoadSpec;
use crate::pace::Schedule;
use crate::stats::{Collector, Recorder, Window};

/// Connections that one worker opens at once.
const OPENING_MAX: usize = 64;

/// Arrivals that are dispatched before connections get their turn.
const DISPATCHED_MAX: u32 = 16;

/// Time for work under way to end when it is cut: by an interruption, or a long transfer at the end of the run.
const CUT_GRACE: Duration = Duration::from_millis(20);

/// Order to begin, with the grace for work under way and the collector of records.
#[derive(Clone)]
pub(super) struct Order {
    pub(super) begin: Instant,
    pub(super) grace: Duration,
    pub(super) collector: Collector,
}

/// Report of a worker about itself.
pub(super) struct WorkerReport {
    /// Part of the measured time that it ran or waited for a processor.
    pub(super) busy: f64,
}

pub(super) struct Worker<W> {
    pub(super) index: usize,
    pub(super) workers: usize,
    pub(super) connections: usize,
    pub(super) load: LoadSpec,
    pub(super) work: Arc<W>,
    pub(super) stop: CancellationToken,
    pub(super) open: oneshot::Sender<anyhow::Result<()>>,
    pub(super) orders: oneshot::Receiver<Order>,
}

impl<W: Work> Worker<W> {
    /// Runs the whole life of the worker on this thread.
    pub(super) fn run(self) -> anyhow::Result<WorkerReport> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, self.live())
    }

    async fn live(self) -> anyhow::Result<WorkerReport> {
        let opened = match self.stop.run_until_cancelled(self.open_all()).await {
            Some(opened) => opened,
            None => Err(anyhow::anyhow!("interrupted while connecting")),
        };
        let connections = match opened {
            Ok(connections) => connections,
            Err(error) => {
                // The receiver is gone only if the run was given up.
                drop(self.open.send(Err(error)));
                return Ok(WorkerReport { busy: 0.0 });
            }
        };
        if self.open.send(Ok(())).is_err() {
            return Ok(WorkerReport { busy: 0.0 });
        }
        let Ok(order) = self.orders.await else {
            return Ok(WorkerReport { busy: 0.0 });
        };
        let shift = Shift::new(self.index, self.workers, self.load, self.stop, order);
        shift.serve(&self.work, connections).await
    }

    async fn open_all(&self) -> anyhow::Result<Vec<W::Connection>> {
        let mut connections = Vec::with_capacity(self.connections);
        let mut opening = JoinSet::new();
        for started in 0..self.connections + OPENING_MAX {
            if started < self.connections {
                let (work, patience) = (Arc::clone(&self.work), self.load.timeout);
                opening.spawn_local(async move { timeout(patience, work.connect()).await });
            }
            if started >= OPENING_MAX || started >= self.connections {
                let Some(opened) = opening.join_next().await else { break };
                let opened = opened.context("opening a connection")?;
                let connection = opened.map_err(|_| anyhow::anyhow!("a connection did not open in time"))?;
                connections.push(connection.map_err(|failure| {
                    let advice = failure.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
                    anyhow::anyhow!("a connection cannot be opened: {}{advice}", failure.why)
                })?);
            }
        }
        Ok(connections)
    }
}

/// A worker from the order on.
struct Shift {
    index: usize,
    workers: usize,
    load: LoadSpec,
    stop: CancellationToken,
    order: Order,
    window: Window,
    recorder: Rc<RefCell<Recorder>>,
}

impl Shift {
    fn new(index: usize, workers: usize, load: LoadSpec, stop: CancellationToken, order: Order) -> Self {
        let window = order.collector.window();
        let recorder = Rc::new(RefCell::new(order.collector.recorder()));
        Self { index, workers, load, stop, order, window, recorder }
    }

    async fn serve<W: Work>(self, work: &Arc<W>, connections: Vec<W::Connection>) -> anyhow::Result<WorkerReport> {
        let rate = if W::KIND == WorkKind::Stream { None } else { self.load.rate.per_second() };
        let queue = rate.map(|rate| {
            let schedule = Schedule::new(self.load.arrivals, rate, self.load.seed, self.index, self.workers);
            (Rc::new(ArrivalQueue::new()), schedule)
        });
        let source = queue.as_ref().map_or(ArrivalSource::Own, |(queue, _)| ArrivalSource::Queue(Rc::clone(queue)));
        let mut posts = Vec::new();
        let mut serving = JoinSet::new();
        for (number, connection) in connections.into_iter().enumerate() {
            let post = Rc::new(self.post(number, source.clone()));
            posts.push(Rc::clone(&post));
            let (work, begin) = (Arc::clone(work), self.order.begin);
            serving.spawn_local(async move {
                sleep_until(begin).await;
                work.serve(connection, &post).await;
            });
        }
        let busy = Rc::new(Cell::new(0.0));
        let mut beside = JoinSet::new();
        beside.spawn_local(tick(Rc::clone(&self.recorder), self.window));
        beside.spawn_local(measure(Rc::clone(&busy), self.window, self.stop.clone()));
        if let Some((queue, schedule)) = &queue {
            self.dispatch(queue, schedule.clone()).await?;
            queue.close();
        } else {
            self.stop.run_until_cancelled(sleep_until(self.window.end)).await;
        }
        let queue = queue.map(|(queue, _)| queue);
        self.wind_up(&mut serving, queue, &posts, W::KIND).await;
        self.recorder.borrow_mut().flush();
        Ok(WorkerReport { busy: busy.get() })
    }

    fn post(&self, number: usize, source: ArrivalSource) -> Post {
        Post {
            index: number * self.workers + self.index,
            source,
            recorder: Rc::clone(&self.recorder),
            window: self.window,
            timeout: self.load.timeout,
            stop: self.stop.clone(),
            free_since: Cell::new(self.order.begin),
            under_way: Cell::new(None),
        }
    }

    /// Puts arrivals into the queue when they are due.
    async fn dispatch(&self, queue: &ArrivalQueue, schedule: Schedule) -> anyhow::Result<()> {
        let wake = Arc::new(Notify::new());
        let (begin, end) = (self.order.begin, self.window.end);
        alarm::start(schedule.clone(), begin, end, Arc::clone(&wake), self.stop.clone())
            .context("starting a thread")?;
        let mut at_once = 0;
        for offset in schedule {
            let due = begin + offset;
            if due >= end || self.stop.is_cancelled() {
                break;
            }
            while Instant::now() < due {
                at_once = 0;
                if self.stop.run_until_cancelled(wake.notified()).await.is_none() {
                    return Ok(());
                }
            }
            // A dispatcher that is behind must not keep connections from working.
            at_once += 1;
            if at_once >= DISPATCHED_MAX {
                at_once = 0;
                yield_now().await;
            }
            self.recorder.borrow_mut().offered(due);
            queue.push(due);
        }
        self.stop.run_until_cancelled(sleep_until(end)).await;
        Ok(())
    }

    /// Lets begun work end within the grace; unfinished work is counted as such.
    async fn wind_up(
        &self,
        serving: &mut JoinSet<()>,
        queue: Option<Rc<ArrivalQueue>>,
        posts: &[Rc<Post>],
        kind: WorkKind,
    ) {
        // A long transfer without a pace is cut at the end; that says nothing about it.
        let is_cut = self.stop.is_cancelled() || (kind == WorkKind::Bulk && queue.is_none());
        let mut left = Vec::new();
        if let Some(queue) = queue.as_ref().filter(|_| is_cut) {
            left.extend(queue.take_all());
        }
        let grace = if is_cut { CUT_GRACE } else { self.order.grace };
        let until = Instant::now() + grace;
        while let Ok(Some(_)) = timeout_at(until, serving.join_next()).await {}
        serving.shutdown().await;
        if let Some(queue) = queue {
            left.extend(queue.take_all());
        }
        left.extend(posts.iter().filter_map(|post| post.under_way.take()));
        let (now, mut recorder) = (Instant::now(), self.recorder.borrow_mut());
        for intended in left {
            if is_cut {
                recorder.withdrawn(intended);
            } else {
                recorder.failed(intended, now, "unfinished");
            }
        }
    }
}

/// Flushes the recorder once a second, also when nothing ends.
async fn tick(recorder: Rc<RefCell<Recorder>>, window: Window) {
    for second in 1.. {
        sleep_until(window.begin + Duration::from_secs(second)).await;
        recorder.borrow_mut().tick(Instant::now());
    }
}

/// Measures in which part of the measured time this thread wanted a processor.
async fn measure(busy: Rc<Cell<f64>>, window: Window, stop: CancellationToken) {
    sleep_until(window.begin).await;
    let before = wanted();
    // The delay of this task was work of the thread.
    let late = Instant::now().saturating_duration_since(window.begin);
    loop {
        // Kept up to date, for a run that is interrupted.
        let until = (Instant::now() + Duration::from_millis(250)).min(window.end);
        let is_stopped = stop.run_until_cancelled(sleep_until(until)).await.is_none();
        let now = Instant::now();
        if let (Some(before), Some(after)) = (before, wanted()) {
            let wall = now.saturating_duration_since(window.begin).as_secs_f64();
            let wanted = late + after.saturating_sub(before);
            busy.set(if wall > 0.0 { (wanted.as_secs_f64() / wall).min(1.0) } else { 0.0 });
        }
        if is_stopped || now >= window.end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn thread_that_worked_through_the_whole_window_was_busy() {
        let (busy, begin) = (Rc::new(Cell::new(0.0)), Instant::now());
        let window = Window { begin: begin + Duration::from_millis(1), end: begin + Duration::from_millis(20) };
        let work = async {
            // The watch waits for the window already, and is not let in before its end.
            yield_now().await;
            while Instant::now() < window.end + Duration::from_millis(5) {
                std::hint::spin_loop();
            }
        };
        tokio::join!(measure(busy.clone(), window, CancellationToken::new()), work);
        assert!(busy.get() > 0.9, "{}", busy.get());
    }
}
