//! Runs a gateway: starts its tasks, serves its listeners, and drains.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tunnel_link::drain::{Drain, DrainResult};
use tunnel_proto::reason::Reason;

use super::ci::CiParts;
use super::{App, outage};
use gateway_agents::expiry;
use gateway_agents::registry::Registry;
use gateway_agents::revocation::recheck;
use gateway_edge::admin;
use gateway_edge::connection::Server;
use gateway_http::host::{HostTarget, host_in};
use gateway_net::audit::{AuditEvent, AuditRecord};
use gateway_net::listen::{Listener, Placing, RoutingHint};
use gateway_net::workers::Workers;
use gateway_store::wall_clock;
use gateway_workspaces::kubernetes::KubernetesController;
use gateway_workspaces::lifetimes::LifetimeController;

/// Earliest redial of agents after their session was drained, so that a restart does not become a storm.
const REDIAL_AFTER: Duration = Duration::from_secs(1);

/// Time to answer the last connections that came during a drain, once nothing else runs.
const LATE_GRACE: Duration = Duration::from_millis(250);

/// Time limit for writing the last audit records.
const AUDIT_GRACE: Duration = Duration::from_secs(5);

/// Interval of checks whether requests have ended in a drain.
const QUIET_INTERVAL: Duration = Duration::from_millis(20);

impl App {
    /// Serves until `stop`, then drains: takes nothing new, tells agents, lets running work finish up to
    /// `timeouts.drain`, also over links that break and come back meanwhile, and cuts the rest.
    pub async fn run(self, stop: CancellationToken) -> DrainResult {
        self.run_on(&Workers::none(), stop).await
    }

    /// Like [`App::run`], with connections served by `workers`. Dropped, it ends all at once, as if it were killed.
    pub async fn run_on(self, workers: &Workers, stop: CancellationToken) -> DrainResult {
        let (for_users, for_agents) = self.placing(workers);
        let server = Server::new(self.edge.clone(), &self.config);
        let (writing, written) = (Drain::default(), CancellationToken::new());
        let background = Drain::default();
        // Dropping this future ends the whole gateway: nothing of it lives on beside the next one.
        let late = Drain::default();
        let _cut = (
            self.base.upstreams.cut_on_drop(),
            [&self.base.drain, &background, &writing, &late].map(Drain::cut_on_drop),
        );
        writing.spawn(self.audit_writer.run(written.clone()));
        writing.spawn(self.sign_ins.keep(written.clone()));
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
        self.ci.execute(&self.base, &self.controller.changes, &background);
        let (registry, store) = (self.base.registry.clone(), self.base.store.clone());
        let configs = &self.controller.configs;
        self.environments.execute(registry, store, configs, &self.base.drain, &background, &self.closed);
        execute(self.controller, &self.ci, &background, &self.closed);
        if let Some(replica) = self.replica {
            replica.execute(&self.base, &self.agents, &background, &self.closed, &self.replaced);
        }
        let public = self.public.clone();
        background.spawn(async move {
            // The link that was issued before anything was served.
            public.sign_in().share_links().await;
            public.greet_provider().await;
        });
        for tls in self.certificates {
            background.spawn(tls.watch(self.base.drain.draining().clone()));
        }
        if let Some(renewal) = self.renewal {
            background.spawn(renewal.run(self.base.drain.draining().clone()));
        }
        let ended = CancellationToken::new();
        let lost = &self.admin.listeners;
        let (listener, drain) = (self.listeners.public, self.base.drain.clone());
        let served = serve_users(listener, server, for_users, drain, late.clone(), ended.clone());
        background.spawn(lost.clone().serving(served, ended.clone()));
        let agents = self.agents.clone();
        let serve = move |connection| agents.serve(connection);
        // Sessions outlive their links in a drain too: agents have to be accepted for as long as there are sessions.
        let (listener, drain, closed) = (self.listeners.agents, self.base.drain.clone(), self.closed.clone());
        let served = async move { listener.run(drain, closed, for_agents, serve).await };
        background.spawn(lost.clone().serving(served, self.closed.clone()));
        if let Some(listener) = self.listeners.admin {
            background.spawn(serve_admin(listener, admin::router(self.admin.clone()), background.clone()));
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.replaced.cancelled() => {}
        }
        info!(tasks = self.base.drain.live(), "draining");
        let drained =
            drain_sessions(&self.base.registry, &self.base.drain, &self.closed, self.config.timeouts.drain).await;
        self.base.upstreams.close().await;
        ended.cancel();
        late.run(LATE_GRACE).await;
        background.run(Duration::ZERO).await;
        self.base.audit.record(AuditRecord::new(AuditEvent::GatewayStopped));
        written.cancel();
        writing.run(AUDIT_GRACE).await;
        self.base.store.close().await;
        drained
    }
}

impl App {
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
                Ok(HostTarget::Public) | Err(_) => None,
            }
        };
        (Placing::ByRequest(workers.clone(), Arc::new(place)), Placing::ByPeer(workers.clone()))
    }
}

/// Accepts users' connections until the gateway ends. During a drain, each gets an answer that says so: a refused
/// connection would look like a fault, and say nothing of when to come back.
async fn serve_users(
    listener: Listener,
    server: Server,
    placing: Placing,
    drain: Drain,
    late: Drain,
    ended: CancellationToken,
) {
    let serve = move |connection| server.serve(connection);
    let draining = drain.draining().clone();
    listener.run(drain, draining, placing, serve.clone()).await;
    // The drain does not wait for these: they are answered at once.
    listener.run(late, ended, Placing::Here, serve).await;
}

/// Serves the operator's pages for as long as the other tasks run.
async fn serve_admin(listener: Listener, router: axum::Router, background: Drain) {
    let serve = move |connection| admin::serve(router.clone(), connection);
    let stopped = background.draining().clone();
    listener.run(background, stopped, Placing::Here, serve).await;
}

/// Starts the tasks that reconcile workspaces.
fn execute(controller: Arc<KubernetesController>, ci: &CiParts, background: &Drain, closed: &CancellationToken) {
    background.spawn(controller.configs.clone().watch(controller.store.clone(), closed.clone()));
    let timers = LifetimeController::new(controller.store.clone(), controller.changes.clone(), Arc::new(wall_clock));
    background.spawn(ci.limit(timers).run(closed.clone()));
    background.spawn(controller.run(closed.clone()));
}

/// Tells agents that the gateway drains, and ends requests, streams and sessions.
async fn drain_sessions(
    registry: &Registry,
    drain: &Drain,
    closed: &CancellationToken,
    deadline: Duration,
) -> DrainResult {
    for session in &registry.with_relays() {
        session.tunnel.drain(deadline, REDIAL_AFTER);
    }
    // Requests and streams first; sessions carry them, and are closed when these are through or time is up.
    let (drained, cut) = tokio::join!(drain.run(deadline), close_when_quiet(registry, closed, deadline));
    let drained = match drained {
        DrainResult::Clean if cut == 0 => DrainResult::Clean,
        DrainResult::Clean => DrainResult::Cut(cut),
        DrainResult::Cut(tasks) => DrainResult::Cut(tasks.max(cut)),
    };
    if let DrainResult::Cut(tasks) = drained {
        warn!(tasks, "cut what did not finish in time");
    }
    drained
}

/// Closes sessions once no request uses them any more, so that a drain takes no longer than its work, and then stops
/// accepting agents. Returns how many requests and streams were cut because the time was up.
async fn close_when_quiet(registry: &Registry, closed: &CancellationToken, deadline: Duration) -> usize {
    let by = Instant::now() + deadline.saturating_sub(2 * QUIET_INTERVAL);
    while registry.with_relays().iter().any(|session| session.in_flight() > 0) && Instant::now() < by {
        tokio::time::sleep(QUIET_INTERVAL).await;
    }
    let mut cut = 0;
    for session in registry.with_relays() {
        cut += session.in_flight();
        session.tunnel.close(Reason::Shutdown, "the gateway is shutting down");
    }
    closed.cancel();
    cut
}
