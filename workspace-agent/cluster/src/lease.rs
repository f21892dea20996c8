//! Leader election by a Lease (Kubernetes, "Leases"): one cluster agent leads, others stand by.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::api::CancelableApi;
use crate::election::{Action, Election, LEASE_DURATION, LeaseRecord, REQUEST_TIMEOUT, RETRY_PERIOD};
use crate::retry::ApiError;

/// Longest time for work to end once this process leads no more: less than what is left of the Lease's duration after
/// the deadline.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time for work to end when it was asked to, while the Lease is held.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A Lease, and the candidate for it.
#[derive(Clone)]
pub struct Lease {
    /// Client of the cluster.
    pub client: Client,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Identity of the candidate, different for each process.
    pub identity: String,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, name, identity, client: _ } = self;
        formatter
            .debug_struct("Lease")
            .field("namespace", namespace)
            .field("name", name)
            .field("identity", identity)
            .finish()
    }
}

/// Does work while this process leads, and stands by otherwise. Work gets a token: once that is cancelled, it has
/// [`END_TIMEOUT`] to end before it is dropped. A lost Lease is acquired again, and the work begun anew.
///
/// Returns what the work returned when it ended by itself; `None` after `stop`.
pub async fn lead<T, W, F>(lease: &Lease, stop: &CancellationToken, mut work: W) -> Option<T>
where
    W: FnMut(CancellationToken) -> F,
    F: Future<Output = T>,
{
    let mut candidate = Candidate::new(lease);
    loop {
        stop.run_until_cancelled(candidate.acquire()).await?;
        info!(lease = lease.name, namespace = lease.namespace, identity = lease.identity, "leading");
        let end = CancellationToken::new();
        let mut working = std::pin::pin!(work(end.clone()));
        tokio::select! {
            done = working.as_mut() => {
                candidate.release().await;
                return Some(done);
            }
            () = stop.cancelled() => {
                end.cancel();
                // Not polled any more after this: nothing of the work runs once the Lease is given back.
                let done = tokio::time::timeout(STOP_TIMEOUT, working).await.ok();
                candidate.release().await;
                return done;
            }
            () = candidate.keep() => {
                warn!(lease = lease.name, "the lease was lost, everything stops until it is held again");
                end.cancel();
                if let Ok(done) = tokio::time::timeout(END_TIMEOUT, working).await {
                    drop(done);
                }
            }
        }
    }
}

struct Candidate<'a> {
    lease: &'a Lease,
    api: CancelableApi,
    election: Election,
    started: Instant,
    /// Leader that was logged last.
    leader: Option<String>,
    /// Number of requests that failed in a row.
    failures: u32,
}

impl<'a> Candidate<'a> {
    fn new(lease: &'a Lease) -> Self {
        Self {
            lease,
            api: CancelableApi::new(lease.client.clone(), crate::FIELD_MANAGER),
            election: Election::new(lease.identity.clone()),
            started: Instant::now(),
            leader: None,
            failures: 0,
        }
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.lease.namespace)
    }

    /// Waits until this candidate leads.
    async fn acquire(&mut self) {
        loop {
            self.attempt().await;
            if self.election.leads(self.started.elapsed()) {
                self.leader = None;
                return;
            }
            // Spread: two candidates that see the same end must not write in the same moment for ever.
            let wait = RETRY_PERIOD.mul_f64(0.75 + rand::random::<f64>() / 2.0);
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews until this candidate leads no more.
    async fn keep(&mut self) {
        while let Some(until) = self.election.leads_until() {
            let deadline = self.started + until;
            let renewed = async {
                tokio::time::sleep(RETRY_PERIOD).await;
                self.attempt().await;
            };
            if tokio::time::timeout_at(deadline, renewed).await.is_err() {
                break;
            }
        }
        self.election.lost();
    }

    /// Reads the Lease, and writes it if that is due.
    async fn attempt(&mut self) {
        match self.read_and_write().await {
            Ok(()) => self.failures = 0,
            Err(ApiError::Conflict(_)) => debug!(lease = self.lease.name, "another agent wrote the lease"),
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                // Log only once in a while: it is tried every other second.
                if self.failures.is_power_of_two() {
                    warn!(%error, lease = self.lease.name, namespace = self.lease.namespace, "the lease cannot be used");
                }
            }
        }
    }

    async fn read_and_write(&mut self) -> Result<(), ApiError> {
        let path = format!("{}/{}", self.collection(), self.lease.name);
        let live = self.api.get_once(&path, REQUEST_TIMEOUT).await?;
        let record = live.as_ref().map(read);
        let now = self.started.elapsed();
        match self.election.found(record, now) {
            Action::StandBy { leader } => {
                if self.leader.as_ref() != Some(&leader) {
                    info!(leader, lease = self.lease.name, "standing by: another cluster agent leads");
                    self.leader = Some(leader);
                }
                Ok(())
            }
            Action::Write { transitions } => {
                let written = self.write(live.as_ref(), &self.lease.identity, LEASE_DURATION, transitions);
                let (path, is_new) = if live.is_some() { (path, false) } else { (self.collection(), true) };
                self.api.write_once(&path, &written, is_new, REQUEST_TIMEOUT).await?;
                self.election.written(now);
                Ok(())
            }
        }
    }

    /// Gives the Lease back, so that another need not wait for its end.
    async fn release(&mut self) {
        self.election.lost();
        let path = format!("{}/{}", self.collection(), self.lease.name);
        let Ok(Some(live)) = self.api.get_once(&path, REQUEST_TIMEOUT).await else { return };
        let record = read(&live);
        if record.holder != self.lease.identity {
            return;
        }
        let written = self.write(Some(&live), "", Duration::from_secs(1), record.transitions);
        match self.api.write_once(&path, &written, false, REQUEST_TIMEOUT).await {
            Ok(_) => info!(lease = self.lease.name, "the lease was given back"),
            Err(error) => {
                debug!(%error, lease = self.lease.name, "the lease could not be given back, it ends by itself")
            }
        }
    }

    fn write(&self, live: Option<&Value>, holder: &str, duration: Duration, transitions: i64) -> Value {
        let now = Timestamp::now();
        let now = format!("{now:.6}");
        let before = live.map(read).unwrap_or_default();
        let acquired = live.and_then(|live| live.pointer("/spec/acquireTime")).cloned();
        let acquired = acquired.filter(|_| before.holder == holder).unwrap_or_else(|| json!(now));
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": duration.as_secs(), "acquireTime": acquired,
            "renewTime": now, "leaseTransitions": transitions});
        let Lease { namespace, name, .. } = self.lease;
        let mut written = live.cloned().unwrap_or_else(|| {
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name, "namespace": namespace}})
        });
        if let Some(object) = written.as_object_mut() {
            object.insert("spec".to_owned(), spec);
        }
        written
    }
}

fn read(live: &Value) -> LeaseRecord {
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let seconds = u64::try_from(number("/spec/leaseDurationSeconds")).unwrap_or_default();
    LeaseRecord {
        holder: text("/spec/holderIdentity"),
        renewed: text("/spec/renewTime"),
        duration: Duration::from_secs(seconds),
        transitions: number("/spec/leaseTransitions"),
    }
}
