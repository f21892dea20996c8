//! Bounds that can be changed while requests take their permits. Each is a word of its own, read without any order to others: a load
//! that costs what a load of a constant costs. A request that comes during a change may meet old bounds and new ones.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::rate::RateLimit;
use super::{BURST_SECONDS, STRANGERS_BURST_SECONDS};
use gateway_config::Limits;

/// A bound of a count.
#[derive(Debug)]
pub(super) struct CountBound(AtomicU32);

impl CountBound {
    fn new(count: u32) -> Self {
        Self(AtomicU32::new(count))
    }

    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, other: &Self) {
        self.0.store(other.get(), Ordering::Relaxed);
    }
}

/// A bound of a rate.
#[derive(Debug)]
pub(super) struct RateBound {
    interval: AtomicU64,
    ahead: AtomicU64,
}

impl RateBound {
    fn new(rate: RateLimit) -> Self {
        let (interval, ahead) = rate.parts();
        Self { interval: AtomicU64::new(interval), ahead: AtomicU64::new(ahead) }
    }

    pub(super) fn get(&self) -> RateLimit {
        RateLimit::of_parts(self.interval.load(Ordering::Relaxed), self.ahead.load(Ordering::Relaxed))
    }

    fn set(&self, other: &Self) {
        self.interval.store(other.interval.load(Ordering::Relaxed), Ordering::Relaxed);
        self.ahead.store(other.ahead.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Bounds of this module, each under the name of its key in `limits`.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) connections_per_address: CountBound,
    pub(super) connections_per_second_per_address: RateBound,
    pub(super) agent_connections_per_address: CountBound,
    pub(super) agent_connections_per_second_per_address: RateBound,
    pub(super) handshakes_per_address: CountBound,
    pub(super) requests_per_address: CountBound,
    pub(super) requests_per_second_per_address: RateBound,
    pub(super) failed_sign_ins_per_minute: RateBound,
    pub(super) requests_per_user: CountBound,
    pub(super) requests_per_second_per_user: RateBound,
    pub(super) requests_per_port: CountBound,
}

impl Bounds {
    pub(super) fn new(limits: &Limits) -> Self {
        let paced = |count: u32, burst: u32| {
            RateBound::new(RateLimit::new(count, Duration::from_secs(1), count.saturating_mul(burst)))
        };
        let per_second = |count| paced(count, BURST_SECONDS);
        let failed = limits.failed_sign_ins_per_minute;
        Self {
            connections_per_address: CountBound::new(limits.connections_per_address),
            connections_per_second_per_address: per_second(limits.connections_per_second_per_address),
            agent_connections_per_address: CountBound::new(limits.agent_connections_per_address),
            agent_connections_per_second_per_address: per_second(limits.agent_connections_per_second_per_address),
            handshakes_per_address: CountBound::new(limits.handshakes_per_address),
            requests_per_address: CountBound::new(limits.requests_per_address),
            requests_per_second_per_address: paced(limits.requests_per_second_per_address, STRANGERS_BURST_SECONDS),
            failed_sign_ins_per_minute: RateBound::new(RateLimit::new(failed, Duration::from_secs(60), failed)),
            requests_per_user: CountBound::new(limits.requests_per_user),
            requests_per_second_per_user: per_second(limits.requests_per_second_per_user),
            requests_per_port: CountBound::new(limits.requests_per_port),
        }
    }

    /// Takes over the bounds of another configuration.
    pub(super) fn set(&self, limits: &Limits) {
        let Self {
            connections_per_address,
            connections_per_second_per_address,
            agent_connections_per_address,
            agent_connections_per_second_per_address,
            handshakes_per_address,
            requests_per_address,
            requests_per_second_per_address,
            failed_sign_ins_per_minute,
            requests_per_user,
            requests_per_second_per_user,
            requests_per_port,
        } = Self::new(limits);
        self.connections_per_address.set(&connections_per_address);
        self.connections_per_second_per_address.set(&connections_per_second_per_address);
        self.agent_connections_per_address.set(&agent_connections_per_address);
        self.agent_connections_per_second_per_address.set(&agent_connections_per_second_per_address);
        self.handshakes_per_address.set(&handshakes_per_address);
        self.requests_per_address.set(&requests_per_address);
        self.requests_per_second_per_address.set(&requests_per_second_per_address);
        self.failed_sign_ins_per_minute.set(&failed_sign_ins_per_minute);
        self.requests_per_user.set(&requests_per_user);
        self.requests_per_second_per_user.set(&requests_per_second_per_user);
        self.requests_per_port.set(&requests_per_port);
    }
}
