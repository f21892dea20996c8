//! Limits on the use of the gateway: counts and rates by address, user and port, in bounded memory.
//!
//! A connection finds the entry of its address once and keeps it ([`Guest`]); a credential on it finds the entries of
//! its user and port once and keeps those ([`CredentialCounters`]). A request then costs a few atomic operations on these, and no
//! look-up. A client that has signed in no longer counts against its address, so that a few strangers cannot keep out a
//! crowd behind the same address.

mod address;
mod bounds;
mod gauge;
mod guest;
pub mod idle;
mod rate;
mod table;
mod waiting;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tracing::info;

pub use self::address::AddressKey;
pub use self::gauge::{CountPermit, Gauge};
pub use self::guest::{CredentialCounters, Guest, LookupPermit, UsagePermits};
pub use self::rate::{Meter, RateLimit};

use self::bounds::Bounds;
use self::idle::{ConnectionSlot, IdleConnections};
use self::table::{Table, TableEntry};
use self::waiting::WaitingConnections;
use gateway_config::Limits;
use gateway_types::{Limit, Port, UserName, WorkspaceName};

/// Longest wait of a connection for its turn before it is refused.
pub const TURN_PATIENCE: Duration = Duration::from_secs(2);

/// Burst of a rate, in seconds' worth of it: pages load in bursts. Strangers get one second's worth: each request that
/// waits for a processor keeps users waiting.
const BURST_SECONDS: u32 = 4;
const STRANGERS_BURST_SECONDS: u32 = 1;

/// Requests above their rate that strangers are answered on one connection. Then it is closed: a refusal costs nearly
/// as much as the refused request, and a connection of HTTP/2 brings a hundred at a time.
const STRANGERS_REFUSED_MAX: u32 = 16;

/// Failures of strangers that are logged in a second; the counters have all of them.
const TOLD_PER_SECOND: u32 = 50;

/// Largest number of entries of each table. Above the default of `limits.connections`, so that an address with a
/// connection always has one; all tables together stay below some 40 MiB.
const ENTRIES_MAX: usize = 64 * 1024;

/// Concurrent look-ups of credentials for strangers of one address, and for all strangers. They bound the queue for the
/// store ahead of a user whose credential is due to be checked again.
const LOOKUPS_PER_ADDRESS: usize = 4;
const LOOKUPS_MAX: usize = 16;

/// Longest wait of a credential for its look-up.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which the clock of [`IdleConnections`] advances; a sweep for idle entries comes every `SWEEP_TICKS` of them.
const TICK: Duration = Duration::from_millis(250);
const SWEEP_TICKS: u32 = 40;

/// Label of the counter of refusals.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    limit: &'static str,
}

/// Use by one address.
#[derive(Debug)]
struct AddressUse {
    /// Connections on which no user has signed in.
    connections: Arc<Gauge>,
    /// Agents' connections without a session.
    waiting: Arc<WaitingConnections>,
    handshakes: Arc<Gauge>,
    requests: Arc<Gauge>,
    lookups: Semaphore,
    arrivals: Meter,
    asked: Meter,
    failed: Meter,
}

impl Default for AddressUse {
    fn default() -> Self {
        Self {
            connections: Arc::default(),
            waiting: Arc::default(),
            handshakes: Arc::default(),
            requests: Arc::default(),
            lookups: Semaphore::new(LOOKUPS_PER_ADDRESS),
            arrivals: Meter::default(),
            asked: Meter::default(),
            failed: Meter::default(),
        }
    }
}

/// Use by one user.
#[derive(Debug, Default)]
struct UserUse {
    requests: Arc<Gauge>,
    asked: Meter,
}

/// Use of one port of one workspace.
#[derive(Debug, Default)]
struct PortUse {
    requests: Arc<Gauge>,
}

impl TableEntry for AddressUse {
    fn is_idle(&self, now: u64) -> bool {
        let counts = [&self.connections, &self.handshakes, &self.requests];
        let meters = [&self.arrivals, &self.asked, &self.failed];
        let is_empty = counts.iter().all(|count| count.get() == 0) && self.waiting.count() == 0;
        is_empty && meters.iter().all(|meter| meter.is_idle(now))
    }
}

impl TableEntry for UserUse {
    fn is_idle(&self, now: u64) -> bool {
        self.requests.get() == 0 && self.asked.is_idle(now)
    }
}

impl TableEntry for PortUse {
    fn is_idle(&self, _: u64) -> bool {
        self.requests.get() == 0
    }
}

/// A port of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkspacePort {
    /// The workspace.
    pub workspace: WorkspaceName,
    /// Its port.
    pub port: Port,
}

/// Use of all clients, and its limits.
#[derive(Debug)]
pub struct UsageLimits {
    bounds: Bounds,
    addresses: Table<AddressKey, AddressUse>,
    /// Addresses of agents: their use does not count for users of the same address.
    agents: Table<AddressKey, AddressUse>,
    users: Table<UserName, UserUse>,
    ports: Table<WorkspacePort, PortUse>,
    idle: Arc<IdleConnections>,
    lookups: Semaphore,
    refused: Family<Label, Counter>,
    /// Rate of log lines about strangers.
    told: Meter,
    told_pace: RateLimit,
    /// Failures without a log line since their number was last logged.
    untold: AtomicU64,
    /// Start time of all [`Meter`]s.
    since: Instant,
}

impl UsageLimits {
    /// Creates empty tables.
    #[must_use]
    pub fn new(limits: &Limits, now: Instant) -> Arc<Self> {
        let refused = Family::<Label, Counter>::default();
        // Created at the start, so that an alert has something to compare with.
        for limit in Limit::ALL {
            drop(refused.get_or_create(&Label { limit: limit.name() }));
        }
        Arc::new(Self {
            bounds: Bounds::new(limits),
            addresses: Table::new(ENTRIES_MAX),
            agents: Table::new(ENTRIES_MAX),
            users: Table::new(ENTRIES_MAX),
            ports: Table::new(ENTRIES_MAX),
            idle: Arc::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            refused,
            told: Meter::default(),
            untold: AtomicU64::new(0),
            told_pace: RateLimit::new(TOLD_PER_SECOND, Duration::from_secs(1), TOLD_PER_SECOND * BURST_SECONDS),
            since: now,
        })
    }

    /// Takes over the limits of another configuration. What was admitted stays; the next one meets them.
    pub fn change(&self, limits: &Limits) {
        self.bounds.set(limits);
    }

    /// Returns the connections of users.
    #[must_use]
    pub fn idle(&self) -> &Arc<IdleConnections> {
        &self.idle
    }

    /// Admits a user's connection from an address. Returns also how long it has to wait for its turn.
    ///
    /// # Errors
    /// The limit that is reached; it is counted.
    pub fn arrive(
        self: &Arc<Self>,
        from: IpAddr,
        member: Arc<ConnectionSlot>,
        now: Instant,
    ) -> Result<(Guest, Duration), Limit> {
        let entry = self.addresses.get(&AddressKey::of(from), self.nanos(now));
        let permit = entry.connections.take(self.bounds.connections_per_address.get());
        let permit = permit.ok_or_else(|| self.refuse(Limit::ConnectionsPerAddress))?;
        let wait = self.turn(
            &entry,
            self.bounds.connections_per_second_per_address.get(),
            now,
            Limit::ConnectionsPerSecondPerAddress,
        )?;
        Ok((Guest::new(self.clone(), entry, Some(permit), Some(member)), wait))
    }

    /// Admits an agent's connection from an address. Thousands of agents may share one: once a session is up,
    /// [`Guest::prove`] makes the connection count no longer. If too many have none, the oldest of them is closed,
    /// which counts as refused.
    ///
    /// # Errors
    /// The limit that is reached; it is counted.
    pub fn arrive_agent(self: &Arc<Self>, from: IpAddr, now: Instant) -> Result<(Guest, Duration), Limit> {
        let entry = self.agents.get(&AddressKey::of(from), self.nanos(now));
        let wait = self.turn(
            &entry,
            self.bounds.agent_connections_per_second_per_address.get(),
            now,
            Limit::AgentConnectionsPerSecondPerAddress,
        )?;
        let (member, is_crowded) = entry.waiting.enter(self.bounds.agent_connections_per_address.get());
        if is_crowded {
            self.refused(Limit::AgentConnectionsPerAddress.name());
        }
        Ok((Guest::agent(self.clone(), entry, member), wait))
    }

    /// Admits an operator's connection, without any limit.
    #[must_use]
    pub fn arrive_operator(self: &Arc<Self>, from: IpAddr, now: Instant) -> Guest {
        Guest::new(self.clone(), self.addresses.get(&AddressKey::of(from), self.nanos(now)), None, None)
    }

    /// Asks up to `wanted` idle connections of users to leave; those asked count as refused.
    pub fn shed(&self, wanted: usize) {
        for _ in 0..self.idle.shed(wanted) {
            self.refused(Limit::Connections.name());
        }
    }

    fn turn(&self, entry: &AddressUse, pace: RateLimit, now: Instant, limit: Limit) -> Result<Duration, Limit> {
        let patience = u64::try_from(TURN_PATIENCE.as_nanos()).unwrap_or(u64::MAX);
        let turn = entry.arrivals.take(pace, self.nanos(now), patience);
        turn.map(Duration::from_nanos).map_err(|_| self.refuse(limit))
    }

    /// Finds the counters of a user's requests, or without a user of its address', and of those to a port.
    #[must_use]
    pub fn counters(
        self: &Arc<Self>,
        guest: &Arc<Guest>,
        user: Option<&UserName>,
        port: &WorkspacePort,
        now: Instant,
    ) -> CredentialCounters {
        let nanos = self.nanos(now);
        let user = user.map(|user| self.users.get(user, nanos));
        let port = self.ports.get(port, nanos);
        CredentialCounters::new(guest.clone(), user, port)
    }

    /// Counts a refusal by a limit.
    pub fn refused(&self, limit: &'static str) {
        self.refused.get_or_create(&Label { limit }).inc();
    }

    fn refuse(&self, limit: Limit) -> Limit {
        self.refused(limit.name());
        limit
    }

    /// Drops idle entries. Must be called regularly, to free what a crowd left behind.
    pub fn sweep(&self, now: Instant) {
        let now = self.nanos(now);
        self.addresses.sweep(now);
        self.agents.sweep(now);
        self.users.sweep(now);
        self.ports.sweep(now);
    }

    /// Sweeps the tables and advances the crowd's clock, for as long as it is polled.
    pub async fn keep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut count = 0_u32;
        loop {
            ticks.tick().await;
            self.idle.tick();
            count = count.wrapping_add(1);
            if count.is_multiple_of(SWEEP_TICKS) {
                self.sweep(tokio::time::Instant::now().into_std());
                let failures = self.take_untold();
                if failures > 0 {
                    info!(failures, "more failed requests of anonymous clients, without lines of their own");
                }
            }
        }
    }

    /// Returns the number of strangers' failures without a log line since the last call.
    fn take_untold(&self) -> u64 {
        self.untold.swap(0, Ordering::Relaxed)
    }

    /// Returns how many addresses are remembered.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.addresses.len() + self.agents.len()
    }

    /// Registers the counter of refusals.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Requests and connections that were refused because a limit was reached";
        registry.register("gateway_limits_reached", help, self.refused.clone());
    }

    fn nanos(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
