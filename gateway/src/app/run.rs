//! Runs a gateway: starts its tasks, serves its listeners, and drains.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::error;
use tunnel_link::drain::{Drain, DrainResult};

use super::changes::Travelling;
use super::drain::SessionsDrain;
use super::duties::{self, Work};
use super::handover::Handover;
use super::reload::{Reload, ReloadedTls};
use super::replicas::{ReplicaParts, ReplicaTasks, ReplicaWork};
use super::{App, audit, outage};
use gateway_agents::expiry;
use gateway_agents::revocation::recheck;
use gateway_agents::service::AgentService;
use gateway_edge::admin;
use gateway_edge::connection::Server;
use gateway_http::host::{HostTarget, host_in};
use gateway_net::acme::Renewal;
use gateway_net::audit::{AuditEvent, AuditRecord};
use gateway_net::listen::{Listener, Placing, RoutingHint};
use gateway_net::tls::Tls;
use gateway_net::workers::Workers;
use gateway_replicas::duties::HeldDuty;
use gateway_site::public_host::PublicHost;
use gateway_store::{Duty, wall_clock};
use gateway_workspaces::idle_stops::IdleStops;
use gateway_workspaces::kubernetes::KubernetesController;
use gateway_workspaces::lifetimes::LifetimeController;

/// Time to answer the last connections that came during a drain, once nothing else runs. Their requests may be on their way for half
/// a second, and few come so late: nothing is waited for without one.
const LATE_GRACE: Duration = Duration::from_secs(1);

/// Time limit for writing the last audit records.
const AUDIT_GRACE: Duration = Duration::from_secs(5);

/// Time limit for giving up the work that this process does for others, and its lease.
const LEAVE_GRACE: Duration = Duration::from_secs(2);

impl App {
    /// Serves until `stop`, then drains: takes nothing new, tells agents, lets running work finish up to
    /// `timeouts.drain`, also over links that break and come back meanwhile, and cuts the rest.
    pub async fn run(self, stop: CancellationToken) -> DrainResult {
        self.run_on(&Workers::none(), stop).await
    }

    /// Like [`App::run`], with connections served by `workers`. Dropped, it ends all at once, as if it were killed.
    pub async fn run_on(mut self, workers: &Workers, stop: CancellationToken) -> DrainResult {
        let (for_users, for_agents) = self.placing(workers);
        let server = Server::new(self.edge.clone(), &self.config);
        let (writing, written) = (Drain::default(), CancellationToken::new());
        let (background, works, handover) = (Drain::default(), self.works(), self.handover());
        // Dropping this future ends the whole gateway: nothing of it lives on beside the next one.
        let (late, leaving, draining) = (Drain::default(), Drain::default(), SessionsDrain::of(&self));
        let _cut = (
            self.base.upstreams.cut_on_drop(),
            [&self.base.drain, &background, &writing, &late, &leaving].map(Drain::cut_on_drop),
        );
        self.begin(&background);
        let replica = self.replica.as_ref().map(ReplicaParts::incarnation);
        self.audit.execute(&writing, &self.base.store, replica, &written);
        writing.spawn(self.sign_ins.keep(written.clone()));
        self.spans.execute(&writing, &written);
        self.base.audit.record(AuditRecord::new(AuditEvent::GatewayStarted { version: env!("CARGO_PKG_VERSION") }));
        background.spawn(self.base.upstreams.clone().sweep(self.base.drain.clone()));
        let edge = self.edge.clone();
        background.spawn(async move { edge.access.recheck(&edge.drain).await });
        background.spawn(self.base.limits.clone().keep());
        let memory = outage::Caches { edge: self.edge.clone(), identities: self.identities.clone() };
        let (store, single) = (self.base.store.clone(), self.single.clone());
        background.spawn(outage::watch(store, single, memory, self.replaced.clone(), self.closed.clone()));
        background.spawn(expiry::watch(self.base.registry.clone(), self.identities.clone(), self.closed.clone()));
        background.spawn(recheck(self.base.registry.clone(), self.base.store.clone(), self.closed.clone()));
        self.ci.execute(&self.base, replica, &background, &self.closed);
        self.environments.execute(&self.base.store, &self.controller.configs, replica, &background, &self.closed);
        background.spawn(self.templates.watch(self.closed.clone()));
        let (changes, environments) = (self.controller.changes.clone(), self.environments.environments.clone());
        execute(self.controller, &background, &self.closed);
        match self.replica {
            Some(replica) => {
                let tasks = ReplicaTasks { background: &background, leaving: &leaving };
                let failed = self.edge.failures.failed.clone();
                let work = ReplicaWork { travelling: Travelling { changes, environments }, works, failed };
                replica.execute(&self.base, &self.agents, work, tasks, &self.closed, &self.replaced);
            }
            None => duties::execute_alone(works, &self.base.store, &background),
        }
        background.spawn(begin_sign_in(self.public.clone()));
        keep_certificates(self.tls.all(), self.renewal, &background, self.base.drain.draining());
        let (ended, handed, lost) = (CancellationToken::new(), self.succession.handed.clone(), &self.admin.listeners);
        let (listener, drain) = (self.listeners.public, self.base.drain.clone());
        let accepting = CancellationToken::new();
        let guard = accepting.clone().drop_guard();
        let served = serve_users(listener, server, for_users, drain, late.clone(), ended.clone(), guard);
        let served = until(handed.clone(), served);
        background.spawn(lost.clone().serving(served, ended.clone()));
        let (listener, drain) = (self.listeners.agents, self.base.drain.clone());
        let served = serve_agents(listener, self.agents.clone(), for_agents, drain, self.closed.clone());
        let served = until(handed.clone(), served);
        background.spawn(lost.clone().serving(served, self.closed.clone()));
        if let Some(listener) = self.listeners.admin {
            let served = serve_admin(listener, admin::router(self.admin.clone()), background.clone());
            background.spawn(until(handed, served));
        }
        self.succession.execute(handover, &background, self.base.drain.announced());
        let drained = draining.run(&stop, &self.replaced).await;
        self.base.upstreams.close().await;
        ended.cancel();
        // A connection that is accepted until then is one of the late ones.
        accepting.cancelled().await;
        late.run(LATE_GRACE).await;
        leaving.run(LEAVE_GRACE).await;
        background.run(Duration::ZERO).await;
        self.base.audit.record(AuditRecord::new(AuditEvent::GatewayStopped));
        written.cancel();
        writing.run(AUDIT_GRACE).await;
        self.base.store.close().await;
        drained
    }
}

impl App {
    /// Starts the tasks that record use, and take over a changed configuration.
    fn begin(&mut self, background: &Drain) {
        self.record_use(background);
        if let Some(reload) = self.reload() {
            background.spawn(reload.run(self.closed.clone()));
        }
    }

    /// Returns what takes over a changed configuration, if there is a source of it.
    fn reload(&mut self) -> Option<Reload> {
        self.base.metrics.configured(u64::try_from(wall_clock().get()).unwrap_or_default());
        Some(Reload {
            source: self.tls.source.take()?,
            present: self.config.clone(),
            tls: ReloadedTls { public: self.tls.public.clone(), agents: self.tls.agents.clone(), source: None },
            limits: self.base.limits.clone(),
            public: self.public.clone(),
            store: self.base.store.clone(),
            metrics: self.base.metrics.clone(),
            audit: self.base.audit.clone(),
        })
    }

    /// Returns the task that waits for a process which takes this one's place, if there may be one.
    fn handover(&self) -> Option<Handover> {
        let sockets = self.replica.as_ref()?.sockets()?.clone();
        let (single, handed) = (self.single.clone(), self.succession.handed.clone());
        match Handover::copies(&self.listeners) {
            Ok(listeners) => Some(Handover { sockets, single, listeners, handed }),
            Err(error) => {
                error!(%error, "no other process can take this one's place: its sockets cannot be copied");
                None
            }
        }
    }

    /// Returns the background work that one process does for all that share the database.
    fn works(&self) -> Vec<Work> {
        let (base, closed) = (&self.base, &self.closed);
        let KubernetesController { changes, configs, .. } = &*self.controller;
        let replica = self.replica.as_ref().map(ReplicaParts::incarnation);
        let (ci, of_timers) = (self.ci.clone(), changes.clone());
        let (record_interval, audit) = (self.config.idle.record_interval, base.audit.clone());
        let begin = Box::new(move |held: HeldDuty| -> BoxFuture<'static, ()> {
            let HeldDuty { store, ending, lost } = held;
            let timers = LifetimeController::new(store, of_timers.clone(), Arc::new(wall_clock));
            let timers = ci.limit(timers, IdleStops::new(record_interval, audit.clone()));
            Box::pin(async move { lost.run_until_cancelled(timers.run(ending)).await.unwrap_or_default() })
        });
        let timers = Work { duty: Duty::Timers, begin, ending: closed.clone(), stop: closed.clone() };
        let environments = self.environments.work(base.registry.clone(), configs.clone(), &base.drain, closed);
        let records = audit::sweep_work(&self.config.audit, closed);
        [Some(timers), Some(environments), Some(records), self.ci.work(base, changes, replica)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Chooses the worker of each connection: users go to the thread of the agent that they ask for.
    fn placing(&self, workers: &Workers) -> (Placing, Placing) {
        if !workers.are_several() {
            return (Placing::Here, Placing::Here);
        }
        let (edge, registry, of) = (self.edge.clone(), self.base.registry.clone(), workers.clone());
        let place = move |first: RoutingHint<'_>| {
            let host = match first {
                RoutingHint::ServerName(name) => name,
                RoutingHint::Bytes(head) => host_in(head)?,
            };
            match edge.hosts.rules.parse(host) {
                Ok(HostTarget::Workspace { name, .. }) => of.of(registry.current(&name)?.peer()),
                Ok(HostTarget::Public | HostTarget::Paths) | Err(_) => None,
            }
        };
        (Placing::ByRequest(workers.clone(), Arc::new(place)), Placing::ByPeer(workers.clone()))
    }
}

/// Starts the tasks that take over new certificates, and get them.
fn keep_certificates(
    certificates: Vec<Arc<Tls>>,
    renewal: Option<Renewal>,
    background: &Drain,
    draining: &CancellationToken,
) {
    for tls in certificates {
        background.spawn(tls.watch(draining.clone()));
    }
    if let Some(renewal) = renewal {
        background.spawn(renewal.run(draining.clone()));
    }
}

/// Accepts users' connections until the gateway ends. During a drain, each gets an answer that says so: a refused
/// connection would look like a fault, and say nothing of when to come back. The guard goes when no more are accepted.
async fn serve_users(
    listener: Listener,
    server: Server,
    placing: Placing,
    drain: Drain,
    late: Drain,
    ended: CancellationToken,
    _accepting: DropGuard,
) {
    let serve = move |connection| server.serve(connection);
    let draining = drain.draining().clone();
    listener.run(drain, draining, placing, serve.clone()).await;
    // The drain does not wait for these: they are answered at once.
    listener.run(late, ended, Placing::Here, serve).await;
}

/// Accepts agents until all sessions are closed. These outlive their links in a drain too: agents have to be accepted for as long as
/// there are sessions.
async fn serve_agents(
    listener: Listener,
    agents: Arc<AgentService>,
    placing: Placing,
    drain: Drain,
    closed: CancellationToken,
) {
    let serve = move |connection| agents.serve(connection);
    listener.run(drain, closed, placing, serve).await;
}

/// Shares the link that was issued before anything was served, and learns what the identity provider is like.
async fn begin_sign_in(public: Arc<PublicHost>) {
    public.sign_in().share_links().await;
    public.greet_provider().await;
}

/// Serves a listener until another process serves it. Connections go on.
async fn until(handed: CancellationToken, served: impl Future<Output = ()>) {
    handed.run_until_cancelled(served).await.unwrap_or_default();
}

/// Serves the operator's pages for as long as the other tasks run.
async fn serve_admin(listener: Listener, router: axum::Router, background: Drain) {
    let serve = move |connection| admin::serve(router.clone(), connection);
    let stopped = background.draining().clone();
    listener.run(background, stopped, Placing::Here, serve).await;
}

/// Starts the tasks that reconcile the clusters whose agents are here.
fn execute(controller: Arc<KubernetesController>, background: &Drain, closed: &CancellationToken) {
    background.spawn(controller.configs.clone().watch(controller.store.clone(), closed.clone()));
    background.spawn(controller.run(closed.clone()));
}
