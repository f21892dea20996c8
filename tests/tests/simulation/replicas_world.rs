//! One simulated world of several replicas: they, their database, agents, time and faults. A test steps it, and what holds at
//! any time is checked with each step.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway_agents::peers::Peers as _;
use gateway_agents::registry::LiveSession;
use gateway_store::wall_clock;
use tempfile::TempDir;
use tunnel_link::session::Session;
use tunnel_proto::mux::Side;
use tunnel_proto::reason::Reason;
use turmoil::{Builder, Sim};

use crate::agent::{self, AgentPlan, Balancer};
use crate::net::{GRACE, Outcome, Rolls, SOON, Shape};
use crate::replicas_host::{self, Fleet, ReplicaJob, RunningReplica};
use crate::replicas_store::{self, STORE};
use crate::shared::{Shared, Witness};
use crate::user;

/// The replicas' hosts: one that agents dial first, one at which users are, and another.
pub(crate) const R: &str = "gateway-1";
pub(crate) const E: &str = "gateway-2";
pub(crate) const OTHER: &str = "gateway-3";
pub(crate) const REPLICAS: [&str; 3] = [R, E, OTHER];

/// Time for which the product takes a replica for alive without a word of it.
pub(crate) const LEASE: Duration = gateway_replicas::lease::LEASE;

/// Bound on the time in which an agent whose replica is gone is at another, and users of all replicas reach it again.
pub(crate) const MOVED: Duration = Duration::from_secs(40);

/// Steps between two checks of what holds at any time.
const CHECK_EVERY: u32 = 8;

/// The workspaces, with a number in the database each, in this order from 1.
const WORKSPACES: [&str; 2] = ["well", "mill"];

pub(crate) struct World {
    pub(crate) sim: Sim<'static>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) rolls: Rolls,
    tokens: BTreeMap<&'static str, String>,
    /// The highest generation of each session, by its id.
    generations: BTreeMap<u64, u64>,
    backup: TempDir,
    seed: u64,
    steps: u32,
}

impl World {
    /// Makes a world with its database and replicas, and no agent.
    pub(crate) fn new(seed: u64) -> Self {
        // Leases are long, and nothing depends on milliseconds: coarse ticks save time.
        let shape = Shape { tick: Duration::from_millis(15), ..Shape::default() };
        let mut sim = Builder::new()
            .rng_seed(seed)
            .epoch(std::time::UNIX_EPOCH)
            .tick_duration(shape.tick)
            .min_message_latency(shape.latency.0)
            .max_message_latency(shape.latency.1)
            .tcp_capacity(shape.tcp_capacity)
            .simulation_duration(Duration::from_secs(86_400))
            .build();
        let fleet = Fleet::new(Shared::new(shape));
        let tokens = fleet.database.server.with(|store| async move {
            let (mut tokens, owner) = (BTreeMap::new(), "ann".parse().expect("a name"));
            for name in WORKSPACES {
                let workspace = name.parse().expect("a name");
                let new = store.create_agent_token(&workspace, &owner, wall_clock()).await.expect("the store");
                tokens.insert(name, new.token.reveal().to_owned());
            }
            tokens
        });
        let shared = fleet.clone();
        sim.host(STORE, move || replicas_store::run(shared.clone()));
        for host in REPLICAS {
            let shared = fleet.clone();
            sim.host(host, move || replicas_host::run(shared.clone(), host.to_owned()));
        }
        let backup = tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
        Self { sim, fleet, rolls: Rolls::new(seed), tokens, generations: BTreeMap::new(), backup, seed, steps: 0 }
    }

    /// Starts a host with an agent of a workspace, which dials some of the replicas. Returns what leads it there.
    pub(crate) fn agent(&mut self, host: &str, workspace: &str, via: &[&'static str]) -> Balancer {
        let balancer = Balancer::new(via);
        let plan = AgentPlan {
            host: host.to_owned(),
            via: balancer.clone(),
            workspaces: vec![(workspace.to_owned(), self.tokens[workspace].clone())],
            seed: self.rolls.next(),
        };
        let shared = self.fleet.shared.clone();
        self.sim.host(host, move || agent::run(shared.clone(), plan.clone()));
        balancer
    }

    /// Makes a world with one agent, which is connected to the first replica, and led anywhere when it dials again.
    pub(crate) fn with_agent(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.all_run();
        let balancer = world.agent("agent", "well", &[R]);
        assert_eq!(world.up("well").0, R);
        balancer.lead(&REPLICAS);
        world
    }

    /// Waits until all replicas run.
    pub(crate) fn all_run(&mut self) {
        self.until("all replicas run", SOON, |fleet| fleet.running().len() == REPLICAS.len());
    }

    pub(crate) fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    pub(crate) fn note(&self, what: &str) {
        self.fleet.shared.note_at(self.now(), "test", what);
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.step();
        }
    }

    /// Lets some time pass, between `low` and `high` milliseconds.
    pub(crate) fn run_some(&mut self, low: u64, high: u64) {
        let time = self.rolls.millis(low, high);
        self.run(time);
    }

    /// Lets time pass until something holds; returns how long that took.
    pub(crate) fn until(&mut self, what: &str, limit: Duration, mut holds: impl FnMut(&Fleet) -> bool) -> Duration {
        let start = self.now();
        while !holds(&self.fleet) {
            assert!(self.now() - start <= limit, "{what}: not within {limit:?}");
            self.step();
        }
        self.now() - start
    }

    fn step(&mut self) {
        self.sim.step().expect("no host fails");
        self.steps += 1;
        if self.steps.is_multiple_of(CHECK_EVERY) {
            for witness in self.fleet.shared.sessions() {
                assert_eq!(witness.session.broken_invariant(), None, "{witness:?}");
            }
            for (host, replica) in self.fleet.running() {
                for session in replica.registry.with_relays() {
                    self.check(&host, &session);
                }
            }
        }
    }

    /// Checks a session as a replica has it.
    fn check(&mut self, host: &str, session: &LiveSession) {
        let (id, generation) = (session.id.get(), session.generation().get());
        let before = self.generations.insert(id, generation).unwrap_or_default();
        let name = session.subject.name();
        assert!(generation >= before, "{host}: the session of {name} had generation {before}, and has {generation}");
        assert_eq!(session.tunnel.broken_invariant(), None, "{host}: {session:?}");
    }

    /// Returns the replicas at which a workspace has a session with a link.
    pub(crate) fn holders(fleet: &Fleet, workspace: &str) -> Vec<(String, Arc<LiveSession>)> {
        let running = fleet.running().into_iter();
        let of = |(host, replica): (String, RunningReplica)| {
            let sessions = replica.registry.all().into_iter();
            let mut its = sessions.filter(|session| {
                session.subject.name() == workspace && !session.tunnel.is_detached() && !session.tunnel.is_ended()
            });
            its.next().map(|session| (host, session))
        };
        running.filter_map(of).collect()
    }

    /// Returns the replica that has the session which the agent has too, if all is settled.
    pub(crate) fn settled(fleet: &Fleet, workspace: &str) -> Option<(String, u64)> {
        let agent = fleet.shared.newest(workspace, Side::Agent).filter(|agent| !agent.is_down())?;
        let [(host, session)] = Self::holders(fleet, workspace).try_into().ok()?;
        let row = fleet.database.place(number_of(workspace))?;
        let (generation, owner) = (i64::try_from(session.generation().get()).ok()?, fleet.incarnation_of(&host));
        let is_its = agent.generation <= session.generation().get() && row == (generation, owner);
        is_its.then(|| (host, session.generation().get()))
    }

    /// Waits until one replica has a workspace's session, and its row; returns which, and the generation.
    pub(crate) fn up(&mut self, workspace: &str) -> (String, u64) {
        let is_settled = |fleet: &Fleet| Self::settled(fleet, workspace).is_some();
        self.until("one replica has the session", MOVED, is_settled);
        Self::settled(&self.fleet, workspace).expect("it was so just now")
    }

    /// Does something on a replica's host.
    pub(crate) fn on<T, F>(&self, host: &str, work: impl FnOnce(RunningReplica) -> F + Send + 'static) -> Outcome<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Debug + Send + 'static,
    {
        let outcome = Arc::new(Mutex::new(None));
        let (slot, shared, who) = (outcome.clone(), self.fleet.shared.clone(), format!("user at {host}"));
        let job: ReplicaJob = Box::new(move |replica| {
            Box::pin(async move {
                let result = work(replica).await;
                shared.note(&who, format_args!("{result:?}"));
                *slot.lock().unwrap() = Some(result);
            })
        });
        let replica = self.fleet.replica(host).expect("it runs");
        assert!(replica.jobs.try_send(job).is_ok(), "the replica takes work");
        Outcome(outcome)
    }

    /// Lets a user come to a replica, who does something with a workspace's session as soon as there is one.
    pub(crate) fn user<T, F>(
        &self,
        host: &str,
        workspace: &str,
        work: impl FnOnce(Session) -> F + Send + 'static,
    ) -> Outcome<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Debug + Send + 'static,
    {
        let workspace = workspace.to_owned();
        self.on(host, move |replica| async move {
            loop {
                match replica.session(&workspace).await {
                    Ok(session) => return work(session.tunnel.clone()).await,
                    Err(_why) => tokio::time::sleep(Duration::from_millis(250)).await,
                }
            }
        })
    }

    /// Waits for the result of a user's work.
    pub(crate) fn wait<T>(&mut self, what: &str, limit: Duration, outcome: &Outcome<T>) -> T {
        self.until(what, limit, |_| outcome.is_there());
        outcome.0.lock().unwrap().take().expect("it was there just now")
    }

    /// Expects that users of all replicas that run reach a workspace.
    pub(crate) fn all_reach(&mut self, workspace: &str) {
        let running: Vec<_> = self.fleet.running().into_iter().map(|(host, _)| host).collect();
        let echoes: Vec<_> =
            running.iter().map(|host| self.user(host, workspace, |session| user::echo(session, 50_000))).collect();
        for (host, echo) in running.iter().zip(&echoes) {
            let moved = self.wait(&format!("an echo at {host}"), MOVED, echo);
            assert_eq!(moved.map(|moved| moved.0), Ok(50_000), "{host}");
        }
    }

    /// Lets a user of a replica move bytes for some time, on one channel.
    pub(crate) fn traffic(&self, host: &str, workspace: &str, time: Duration) -> Outcome<user::Moved> {
        self.user(host, workspace, move |session| user::trickle(session, time))
    }

    /// Waits for the end of such traffic, of which nothing may be lost.
    pub(crate) fn moved_all(&mut self, traffic: &Outcome<user::Moved>, time: Duration) {
        let moved = self.wait("the traffic goes on to its end", time + MOVED, traffic);
        assert!(moved.as_ref().is_ok_and(|(bytes, _)| *bytes > 10_000), "{moved:?}");
    }

    /// Ends every process of a host at once. What it had open is closed, as a kernel does it.
    pub(crate) fn crash(&mut self, host: &str) {
        self.note(&format!("{host} crashes"));
        self.sim.crash(host);
        self.fleet.crashed(host);
        for witness in self.fleet.shared.sessions() {
            if witness.host == host {
                witness.session.close(Reason::SessionLost, "the process is gone");
            }
        }
    }

    pub(crate) fn bounce(&mut self, host: &str) {
        self.note(&format!("{host} starts again"));
        self.sim.bounce(host);
    }

    /// Does something to the links between a host and all others.
    pub(crate) fn with_links(&mut self, host: &str, others: &[&str], change: impl Fn(&Sim<'static>, &str, &str)) {
        for other in others.iter().filter(|other| **other != host) {
            change(&self.sim, host, other);
        }
    }

    /// Copies the database.
    pub(crate) fn back_up(&self) {
        self.note("a backup is made");
        self.fleet.database.server.save(&self.backup.path().join("backup")).expect("a copy");
    }

    /// Puts the copy in the place of the database, whose clients lose their connections.
    pub(crate) fn restore(&mut self) {
        self.crash(STORE);
        self.note("the backup is restored");
        self.fleet.database.server.restore(&self.backup.path().join("backup")).expect("the copy");
        self.fleet.database.forget_rows();
        self.bounce(STORE);
    }

    /// Returns how many sessions of a replica wait for their places.
    pub(crate) fn waiting(&self, host: &str) -> usize {
        self.fleet.replica(host).map_or(0, |replica| replica.replica.provisional())
    }

    /// Returns the agents' sessions that have ended.
    pub(crate) fn ended(&self) -> Vec<Witness> {
        let sessions = self.fleet.shared.sessions().into_iter();
        sessions.filter(|witness| witness.end.is_some()).collect()
    }

    /// Expects that no agent's session has ended.
    #[track_caller]
    pub(crate) fn none_ended(&self) {
        assert!(self.ended().is_empty(), "{:?}", self.ended());
    }

    /// Shuts the agents down, and checks that nothing is left of any session, anywhere. The network has to be whole again.
    pub(crate) fn finish(mut self) {
        self.note("the end");
        self.fleet.shared.stop.cancel();
        self.until("every session ended", SOON + GRACE, |fleet| {
            let is_empty = |replica: &RunningReplica| replica.registry.with_relays().is_empty();
            fleet.shared.sessions().iter().all(|witness| witness.session.is_ended())
                && fleet.running().iter().all(|(_, replica)| is_empty(replica))
        });
        self.until("every place is given back", SOON, |fleet| fleet.database.owned() == 0);
        self.run(Duration::from_secs(2));
        for (host, replica) in self.fleet.running() {
            assert_eq!(replica.budget.reserved(), 0, "{host}");
        }
        assert!(self.fleet.shared.jobs.load(Ordering::Relaxed) == 0);
    }
}

/// Returns the number that a workspace has in the database.
pub(crate) fn number_of(workspace: &str) -> i64 {
    let place = WORKSPACES.iter().position(|name| *name == workspace).expect("one of them");
    i64::try_from(place).expect("few") + 1
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.fleet.shared.log();
            let tail = log.get(log.len().saturating_sub(60)..).unwrap_or_default().join("\n");
            let seed = self.seed;
            // Nothing better can be done with an error here.
            writeln!(std::io::stderr().lock(), "SIMULATION_SEED={seed}\n{tail}").ok();
        }
    }
}
