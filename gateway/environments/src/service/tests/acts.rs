//! What tests do with a stage again and again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tunnel_proto::environments::Call;

use super::super::*;
use super::stage::{Stage, configure, request};
use workspace_spec::cluster_config::AccessEntry;

pub(super) fn operator() -> By {
    By::User("olga".parse().unwrap())
}

pub(super) fn code(outcome: PreparationOutcome) -> String {
    outcome.failure.map(|failure| failure.code).unwrap_or_default()
}

/// A job with the template `one` in another environment.
pub(super) fn of_environment(job: u64, name: &str) -> JobRequest {
    let mut request = request(job, "one");
    request.job.environment = Some(name.to_owned());
    request
}

/// Has what is due carried out from now on, by an agent that answers when the test says so.
pub(super) fn begun(stage: &Stage) -> (CancellationToken, JoinSet<()>) {
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(stage.run(&stop));
    (stop, tasks)
}

/// Has what is due carried out from now on, by an agent that answers at once.
pub(super) fn running(stage: &Stage) -> (CancellationToken, JoinSet<()>) {
    stage.cluster.world.lock().is_prompt = true;
    begun(stage)
}

pub(super) async fn done(stage: &Stage, job: u64, template: &str) -> PreparationOutcome {
    stage.environments.complete(request(job, template)).await.unwrap().outcome().await
}

pub(super) async fn id_of(stage: &Stage, job: u64) -> u64 {
    done(stage, job, "two").await.environment.unwrap().id
}

/// Has another configuration in force.
pub(super) async fn reconfigure(stage: &Stage, entry: AccessEntry) {
    configure(&stage.store, entry).await;
    stage.environments.inner.access.read(&stage.store, stage.environments.inner.now()).await.unwrap();
}

/// Polls a future so many times, which is then dropped by whoever asked.
pub(super) struct Polled<F> {
    future: Pin<Box<F>>,
    times: usize,
}

impl<F: Future> Polled<F> {
    pub(super) fn new(future: F, times: usize) -> Self {
        Self { future: Box::pin(future), times }
    }
}

impl<F: Future> Future for Polled<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.times == 0 {
            return Poll::Ready(None);
        }
        self.times -= 1;
        self.future.as_mut().poll(context).map(Some)
    }
}

/// More environments, called `review/0` and so on, than an agent takes calls at a time, and that agent.
pub(super) struct Crowd {
    pub(super) made: Vec<u64>,
    /// Each call takes a permit before it is answered.
    pub(super) gate: Arc<Semaphore>,
    _running: (CancellationToken, JoinSet<()>),
}

impl Crowd {
    /// Makes them. From then on the agent answers nothing.
    pub(super) async fn new(stage: &Stage) -> Self {
        let gate = Arc::new(Semaphore::new(usize::MAX >> 4));
        stage.cluster.world.lock().crowd = Some(gate.clone());
        let running = begun(stage);
        let mut made = Vec::new();
        for number in 0..20 {
            let of = of_environment(number, &format!("review/{number}"));
            let following = stage.environments.complete(of).await.unwrap();
            made.push(following.outcome().await.environment.unwrap().id);
        }
        gate.forget_permits(usize::MAX);
        Self { made, gate, _running: running }
    }

    /// Waits until the agent has so many calls.
    pub(super) async fn until(&self, stage: &Stage, calls: usize) {
        while stage.cluster.world.lock().at_once < calls {
            stage.cluster.began.notified().await;
        }
    }

    /// Has the agent answer one call, and returns the one that comes in its place.
    pub(super) async fn next_call(&self, stage: &Stage) -> Option<Call> {
        stage.cluster.world.lock().calls.clear();
        self.gate.add_permits(1);
        while stage.cluster.world.lock().calls.is_empty() {
            stage.cluster.began.notified().await;
        }
        stage.cluster.world.lock().calls.first().cloned()
    }
}
