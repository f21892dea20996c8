//! When it is known of a job that it is prepared.

use std::pin::pin;
use std::task::{Context, Wake, Waker};

use tokio::sync::Notify;

use super::super::super::request::Met;
use super::super::*;
use super::acts::{Polled, begun, operator};
use super::stage::{Stage, entry, request};
use workspace_spec::cluster_config::AccessAs;

/// Told when a future that waits is to be polled again.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

async fn is_stored(stage: &Stage, id: EnvironmentId) -> bool {
    stage.store.last_preparation(id).await.unwrap().unwrap().status == PreparationStatus::Completed
}

fn is_known(stage: &Stage, job: u64) -> bool {
    stage.environments.unmet(&request(job, "two")) == Unmet::Met(Met::Completed)
}

#[tokio::test]
async fn job_that_is_stored_as_prepared_is_known_to_be_so_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // In a file, it can be read while it is written.
    let url = format!("sqlite://{}", folder.path().join("gateway.db").display());
    let stage = Stage::on(Store::open(&url).await.unwrap(), entry(AccessAs::Agent)).await;
    stage.cluster.world.lock().is_prompt = true;
    let asked = stage.environments.complete(request(1, "two")).await.unwrap();
    let id = EnvironmentId::new(asked.environment().unwrap());
    let (woken, stop) = (Arc::new(Woken::default()), CancellationToken::new());
    let waker = Waker::from(woken.clone());
    let mut visit = pin!(stage.environments.inner.reconcile(id, true, &stop, &stop));
    while visit.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        // What it waits for has happened, and it has not taken that in.
        woken.0.notified().await;
        assert!(!is_stored(&stage, id).await || is_known(&stage, 1), "stored, and still to be made");
    }
    assert!(is_known(&stage, 1));
}

#[tokio::test]
async fn job_is_known_as_prepared_only_if_that_is_stored_wherever_its_preparation_breaks_off() {
    let stage = Stage::new().await;
    stage.cluster.world.lock().is_prompt = true;
    let stop = CancellationToken::new();
    for times in 1.. {
        let job = u64::try_from(times).unwrap();
        let asked = stage.environments.complete(request(job, "two")).await.unwrap();
        let id = EnvironmentId::new(asked.environment().unwrap());
        let visit = || stage.environments.inner.reconcile(id, true, &stop, &stop);
        let visited = Polled::new(visit(), times).await;
        assert!(!is_known(&stage, job) || is_stored(&stage, id).await, "after {times}");
        if visited.is_some() {
            return assert!(is_known(&stage, job) && times > 1);
        }
        visit().await;
        assert!(is_stored(&stage, id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_environment_is_stopped_while_it_is_made_is_not_known_as_prepared() {
    let stage = Stage::new().await;
    let (_stop, _tasks) = begun(&stage);
    let asked = stage.environments.complete(request(1, "two")).await.unwrap();
    stage.cluster.began.notified().await;
    stage.environments.set_state(asked.environment().unwrap(), DesiredEnvironment::Stopped, operator()).await.unwrap();
    stage.cluster.answer(usize::MAX, None);
    // The agent is to remove it, so what it said before is taken in.
    stage.cluster.began.notified().await;
    assert!(!is_known(&stage, 1));
}
