//! One simulated world: a gateway, agents, time and faults. A test steps it and looks at what happened.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tunnel_link::backoff::Backoff;
use tunnel_link::session::Session;
use tunnel_proto::mux::{SessionError, Side};
use tunnel_proto::reason::Reason;
use turmoil::{Builder, Sim};

use crate::agent::{self, AgentPlan, Balancer};
use crate::gateway_host::{self, Gateway};
use crate::middle::{self, MIDDLE};
use crate::shared::{Job, Shared, Witness};

/// The only gateway's host.
pub(crate) const GATEWAY: &str = "gateway";

/// Silence after which a ping is sent. Shorter than the product's, so that simulated minutes are not needed.
pub(crate) const INTERVAL: Duration = Duration::from_secs(4);

/// Wait for an answer before a session counts as dead.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// What a partition of any moment is allowed to take to be noticed, and something for rounding to ticks.
pub(crate) const NOTICED: Duration = INTERVAL.saturating_add(TIMEOUT).saturating_add(Duration::from_millis(250));

/// Bound on what should happen soon on a healthy network.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// How long a session lives on without a link, where a test says nothing else. Longer than an agent waits for a welcome
/// that never comes.
pub(crate) const GRACE: Duration = Duration::from_secs(20);

/// Bound on what it takes both sides to give a session up that lost its link at any moment: one more round of redials
/// until the agent looks.
pub(crate) const GIVEN_UP: Duration = NOTICED.saturating_add(GRACE).saturating_add(Duration::from_secs(4));

/// Steps between two looks at the machines' invariants.
const LOOK_EVERY: u32 = 8;

/// Runs a scenario once per seed; over `SIMULATION_TIMES` times as many seeds, if that is set.
pub(crate) fn for_seeds(seeds: std::ops::Range<u64>, scenario: impl Fn(u64)) {
    let set = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match set("SIMULATION_SEED") {
        Some(seed) => scenario(seed),
        None => (seeds.start..seeds.end * set("SIMULATION_TIMES").unwrap_or(1)).for_each(scenario),
    }
}

/// Seeded choices (the mixing function of `SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Rolls(u64);

impl Rolls {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Makes choices for somebody who makes them at another time.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// Uniform in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).expect("32 bits")) / (f64::from(u32::MAX) + 1.0)
    }

    /// Uniform in `low..high`, in milliseconds.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.next() % (high - low))
    }
}

/// How a world is.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Least and most delay of a message in one direction.
    pub(crate) latency: (Duration, Duration),
    /// Segments that wait in a socket. Small makes the kernel a small buffer, large makes it no bound at all. An end of
    /// stream that meets a full buffer is lost in turmoil, so small is only for streams that do not end.
    pub(crate) tcp_capacity: usize,
    /// What time moves by; each one costs some microseconds for each host.
    pub(crate) tick: Duration,
    pub(crate) backoff: Backoff,
    /// Zero ends a session with its link.
    pub(crate) resume_grace: Duration,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            latency: (Duration::from_millis(1), Duration::from_millis(20)),
            tcp_capacity: 4_096,
            tick: Duration::from_millis(5),
            backoff: Backoff {
                first: Duration::from_millis(200),
                max: Duration::from_secs(2),
                healthy_after: Duration::from_secs(5),
                absence_max: Duration::from_secs(1),
            },
            resume_grace: GRACE,
        }
    }
}

/// The result of a user's work, once there is one.
pub(crate) struct Outcome<T>(pub(crate) Arc<Mutex<Option<T>>>);

impl<T> Outcome<T> {
    pub(crate) fn is_there(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

pub(crate) struct Net {
    pub(crate) sim: Sim<'static>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) rolls: Rolls,
    seed: u64,
    steps: u32,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self::shaped(seed, &Shape::default())
    }

    pub(crate) fn shaped(seed: u64, shape: &Shape) -> Self {
        let mut sim = Builder::new()
            .rng_seed(seed)
            .epoch(std::time::UNIX_EPOCH)
            .tick_duration(shape.tick)
            .min_message_latency(shape.latency.0)
            .max_message_latency(shape.latency.1)
            .tcp_capacity(shape.tcp_capacity)
            .simulation_duration(Duration::from_secs(86_400))
            .build();
        let shared = Shared::new(shape.clone());
        let for_gateway = shared.clone();
        sim.host(GATEWAY, move || gateway_host::run(for_gateway.clone()));
        Self { sim, shared, rolls: Rolls::new(seed), seed, steps: 0 }
    }

    /// Starts a host with an agent for each workspace, and with the apps behind them.
    pub(crate) fn agent(&mut self, host: &str, workspaces: &[&str]) {
        self.agent_via(GATEWAY, host, workspaces);
    }

    fn agent_via(&mut self, via: &'static str, host: &str, workspaces: &[&str]) {
        let plan = AgentPlan {
            host: host.to_owned(),
            via: Balancer::new(&[via]),
            workspaces: workspaces.iter().map(|&name| (name.to_owned(), name.to_owned())).collect(),
            seed: self.rolls.next(),
        };
        let shared = self.shared.clone();
        self.sim.host(host, move || agent::run(shared.clone(), plan.clone()));
    }

    /// The usual world: the gateway and one agent, connected.
    pub(crate) fn with_agent(seed: u64) -> Self {
        Self::with_agent_shaped(seed, &Shape::default())
    }

    pub(crate) fn with_agent_shaped(seed: u64, shape: &Shape) -> Self {
        let mut net = Self::shaped(seed, shape);
        net.agent("agent", &["well"]);
        net.up("well", 0);
        net
    }

    /// Puts a box before the gateway. Call it once, before [`Net::agent_behind_middle`].
    pub(crate) fn middle(&mut self) {
        let middle = self.shared.middle.clone();
        self.sim.host(MIDDLE, move || middle::run(middle.clone()));
    }

    /// Starts a host like [`Net::agent`], whose agents reach the gateway only through the box.
    pub(crate) fn agent_behind_middle(&mut self, host: &str, workspaces: &[&str]) {
        self.agent_via(MIDDLE, host, workspaces);
    }

    pub(crate) fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    pub(crate) fn note(&self, what: &str) {
        self.shared.note_at(self.now(), "test", what);
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.step();
        }
    }

    /// Lets time pass until something holds; returns how long that took.
    pub(crate) fn until(&mut self, what: &str, limit: Duration, mut holds: impl FnMut(&Shared) -> bool) -> Duration {
        let start = self.now();
        while !holds(&self.shared) {
            assert!(self.now() - start <= limit, "{what}: not within {limit:?}");
            self.step();
        }
        self.now() - start
    }

    fn step(&mut self) {
        self.sim.step().expect("no host fails");
        self.steps += 1;
        if self.steps.is_multiple_of(LOOK_EVERY) {
            for witness in self.shared.sessions() {
                assert_eq!(witness.session.broken_invariant(), None, "{witness:?}");
            }
        }
    }

    /// Waits until both sides have a session of the workspace that is newer than `after`, on a link; returns its
    /// generation.
    pub(crate) fn up(&mut self, workspace: &str, after: u64) -> u64 {
        let current = |shared: &Shared| {
            let name = workspace.parse().expect("a name");
            let session = shared.gateway().registry.current(&name)?;
            let current = session.generation().get();
            let agent = shared.newest(workspace, Side::Agent)?;
            let up = !agent.is_down() && !session.tunnel.is_detached() && !session.tunnel.is_ended();
            (up && current > after && agent.generation == current && agent.end.is_none()).then_some(current)
        };
        // The gateway itself may only be starting.
        self.run(Duration::from_millis(10));
        self.until("the agent is connected", 2 * SOON, |shared| current(shared).is_some());
        current(&self.shared).expect("it was there just now")
    }

    /// Returns how many links the workspace's newest session had, as the gateway and as the agent counts.
    pub(crate) fn links(&self, workspace: &str) -> [u64; 2] {
        [Side::Gateway, Side::Agent].map(|side| {
            let newest = self.shared.newest(workspace, side).expect("a session");
            newest.session.stats().links
        })
    }

    /// Returns why one side's end of a session ended, if it did.
    pub(crate) fn ends_of(&self, generation: u64, side: Side) -> Option<SessionError> {
        let sessions = self.shared.sessions();
        let witness = sessions.into_iter().find(|end| end.generation == generation && end.side == side);
        witness.expect("there was such a session").end.map(|(_, error)| error)
    }

    /// Lets somebody on the gateway's host do something with the workspace's current session.
    pub(crate) fn user<T, F>(&self, workspace: &str, work: impl FnOnce(Session) -> F + Send + 'static) -> Outcome<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Debug + Send + 'static,
    {
        let name = workspace.parse().expect("a name");
        let session = self.shared.gateway().registry.current(&name).expect("a session").tunnel.clone();
        let shared = self.shared.clone();
        let who = format!("user of {workspace}");
        self.on_gateway(move |_| async move {
            let result = work(session).await;
            shared.note(&who, format_args!("{result:?}"));
            result
        })
    }

    /// Does something on the gateway's host.
    pub(crate) fn on_gateway<T, F>(&self, work: impl FnOnce(Arc<Gateway>) -> F + Send + 'static) -> Outcome<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let outcome = Arc::new(Mutex::new(None));
        let slot = outcome.clone();
        let shared = self.shared.clone();
        shared.jobs.fetch_add(1, Ordering::Relaxed);
        let job: Job = Box::new(move |gateway| {
            Box::pin(async move {
                let result = work(gateway).await;
                shared.jobs.fetch_sub(1, Ordering::Relaxed);
                *slot.lock().unwrap() = Some(result);
            })
        });
        assert!(self.shared.gateway().jobs.try_send(job).is_ok(), "the gateway takes work");
        Outcome(outcome)
    }

    /// Waits for the result of a user's work.
    pub(crate) fn wait<T>(&mut self, what: &str, limit: Duration, outcome: &Outcome<T>) -> T {
        self.until(what, limit, |_| outcome.is_there());
        outcome.0.lock().unwrap().take().expect("it was there just now")
    }

    /// Ends every process of a host at once. What it had open is closed, as a kernel does it.
    pub(crate) fn crash(&mut self, host: &str) {
        self.note(&format!("{host} crashes"));
        self.sim.crash(host);
        // The memory of a process goes with it; here it is still there to be looked at.
        for witness in self.shared.sessions() {
            if witness.host == host {
                witness.session.close(Reason::SessionLost, "the process is gone");
            }
        }
    }

    pub(crate) fn bounce(&mut self, host: &str) {
        self.note(&format!("{host} starts again"));
        self.sim.bounce(host);
    }

    /// Shuts the agents down and checks that they say so, and that nothing is left of any session on either side.
    /// The network has to be whole again.
    pub(crate) fn finish(mut self) {
        self.note("the end");
        let began = self.now();
        // An agent that still waits for its welcome has no session to end, and one that waits for another link may not get
        // there in time.
        let up = |side| {
            let sessions = self.shared.sessions().into_iter();
            let up = sessions.filter(|end| end.side == side && !end.is_down());
            up.map(|end| end.generation).collect::<BTreeSet<_>>()
        };
        let known: BTreeSet<_> = up(Side::Agent).intersection(&up(Side::Gateway)).copied().collect();
        self.shared.stop.cancel();
        let grace = self.shared.world.resume_grace;
        self.until("every session ended", SOON + grace, |shared| {
            shared.sessions().iter().all(|witness| witness.session.is_ended())
        });
        self.until("every user is through", SOON, |shared| shared.jobs.load(Ordering::Relaxed) == 0);
        // What is released by tasks that end after their session.
        self.run(Duration::from_secs(2));
        for witness in self.shared.sessions() {
            check_empty(&witness);
            if let (Side::Gateway, Some((at, end))) = (witness.side, &witness.end)
                && *at > began
                && known.contains(&witness.generation)
            {
                let said = matches!(end, SessionError::Closed { reason: Reason::Shutdown, .. });
                assert!(said, "{}: {end:?}", witness.workspace);
            }
        }
        let gateway = self.shared.gateway();
        assert!(gateway.registry.is_empty(), "{:?}", gateway.registry);
        assert_eq!(gateway.budget.reserved(), 0);
    }
}

fn check_empty(witness: &Witness) {
    // Channels that nobody took any more.
    while let Some(Some(incoming)) = witness.session.accept().now_or_never() {
        drop(incoming);
    }
    let stats = witness.session.stats();
    let left = (stats.channels_live, stats.window_bytes, stats.queued_bytes, stats.replay_bytes);
    assert_eq!(left, (0, 0, 0, 0), "{witness:?}");
    assert_eq!(witness.session.broken_invariant(), None, "{witness:?}");
}

impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.shared.log();
            let tail = log.get(log.len().saturating_sub(60)..).unwrap_or_default().join("\n");
            let seed = self.seed;
            // Nothing better can be done with an error here.
            writeln!(std::io::stderr().lock(), "SIMULATION_SEED={seed}\n{tail}").ok();
        }
    }
}
