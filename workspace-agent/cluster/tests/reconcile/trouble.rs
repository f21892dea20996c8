//! Trouble between an agent and an API server, real or not: refusals, silence, and an agent that is killed at a chosen
//! request.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use agent_cluster::kube::client::Body;
use agent_cluster::kube::{self, Client};
use http::{Method, Request, Response};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Which requests.
pub(crate) type Which = Box<dyn Fn(&Method, &str) -> bool + Send>;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered with this code, and not carried out.
    Refused(u16),
    /// It is never answered, and not carried out.
    Silence,
    /// It is carried out, and never answered.
    AnswerLost,
}

/// What somebody else does while a request is on its way.
type Meanwhile = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request that was sent, and as whom.
type Sent = (Method, String, Option<String>);

#[derive(Default)]
struct Plan {
    faults: Vec<(Which, usize, Fault)>,
    meanwhile: Vec<(Which, Meanwhile)>,
    /// Counts down writes; at zero the agent is killed, before the write or after it.
    kill: Option<(usize, bool)>,
}

/// What stands between.
#[derive(Clone, Default)]
pub(crate) struct Trouble {
    plan: Arc<Mutex<Plan>>,
    pub(crate) killed: CancellationToken,
    log: Arc<Mutex<Vec<Sent>>>,
    busy: Arc<AtomicUsize>,
    pub(crate) busiest: Arc<AtomicUsize>,
}

impl Trouble {
    /// Has requests fail, so many times.
    pub(crate) fn fail(&self, times: usize, fault: Fault, which: impl Fn(&Method, &str) -> bool + Send + 'static) {
        self.plan.lock().expect("the plan").faults.push((Box::new(which), times, fault));
    }

    /// Ends all trouble.
    pub(crate) fn clear(&self) {
        *self.plan.lock().expect("the plan") = Plan::default();
    }

    /// Has somebody else do something before a request arrives, once.
    pub(crate) fn meanwhile(
        &self,
        which: impl Fn(&Method, &str) -> bool + Send + 'static,
        other: impl Future<Output = ()> + Send + 'static,
    ) {
        self.plan.lock().expect("the plan").meanwhile.push((Box::new(which), Box::pin(other)));
    }

    /// Returns all requests that were sent, each with the user as whom, and forgets them.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.log.lock().expect("the log"))
    }

    /// Has the agent killed at a write, counted from 0.
    pub(crate) fn kill_at(&self, write: usize, is_after: bool) {
        self.plan.lock().expect("the plan").kill = Some((write, is_after));
    }

    /// Returns the writes that were sent, and forgets them.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.sent().into_iter().filter(|(method, path, _)| is_write(method, path));
        writes.map(|(method, path, _)| format!("{method} {path}")).collect()
    }

    pub(crate) fn wrap(&self, inner: Client) -> Client {
        Client::new(Between { inner, trouble: self.clone() }, "default")
    }

    fn other(&self, method: &Method, path: &str) -> Option<Meanwhile> {
        let mut plan = self.plan.lock().expect("the plan");
        let found = plan.meanwhile.iter().position(|(which, _)| which(method, path))?;
        Some(plan.meanwhile.remove(found).1)
    }

    fn fault(&self, method: &Method, path: &str) -> Option<Fault> {
        let mut plan = self.plan.lock().expect("the plan");
        let found = plan.faults.iter_mut().find(|(which, times, _)| *times > 0 && which(method, path))?;
        found.1 -= 1;
        Some(found.2)
    }

    /// Returns whether the agent is killed here, and if so whether after the write.
    fn kill(&self, method: &Method, path: &str) -> Option<bool> {
        let mut plan = self.plan.lock().expect("the plan");
        let (left, is_after) = plan.kill.as_mut().filter(|_| is_write(method, path))?;
        if *left == 0 {
            let is_after = *is_after;
            plan.kill = None;
            return Some(is_after);
        }
        *left -= 1;
        None
    }
}

fn is_write(method: &Method, path: &str) -> bool {
    *method != Method::GET && !path.contains("/leases")
}

struct Between {
    inner: Client,
    trouble: Trouble,
}

struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl tower_service::Service<Request<Body>> for Between {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (trouble, inner) = (self.trouble.clone(), self.inner.clone());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Box::pin(async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let _busy = (!is_watch).then(|| {
                let busy = trouble.busy.fetch_add(1, Ordering::Relaxed) + 1;
                trouble.busiest.fetch_max(busy, Ordering::Relaxed);
                Busy(trouble.busy.clone())
            });
            let user = request.headers().get("impersonate-user").and_then(|user| user.to_str().ok()).map(str::to_owned);
            trouble.log.lock().expect("the log").push((method.clone(), path.clone(), user));
            // Another task may run here, as with any request.
            tokio::task::yield_now().await;
            if let Some(other) = trouble.other(&method, &path) {
                other.await;
            }
            let kill = trouble.kill(&method, &path);
            if kill != Some(false) {
                match trouble.fault(&method, &path) {
                    None => {
                        let answer = inner.send(request).await;
                        if kill.is_none() {
                            return answer;
                        }
                    }
                    Some(Fault::Refused(code)) => return Ok(refused(code)),
                    Some(Fault::AnswerLost) => drop(inner.send(request).await),
                    Some(Fault::Silence) => {}
                }
            }
            if kill.is_some() {
                trouble.killed.cancel();
            }
            std::future::pending().await
        })
    }
}

fn refused(code: u16) -> Response<Body> {
    let details: Value = json!({"retryAfterSeconds": u64::from(code == 429)});
    let text = json!({"kind": "Status", "message": "trouble was asked for", "code": code, "details": details});
    let body = Body::from(text.to_string().into_bytes());
    Response::builder().status(code).body(body).expect("an answer")
}
