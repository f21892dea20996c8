//! A connection with its limits: it keeps handles to its counters, so that its requests look nothing up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::SemaphorePermit;
use tracing::debug;

use super::gauge::CountPermit;
use super::idle::{BusyGuard, ConnectionSlot};
use super::waiting::Member;
use super::{AddressUse, PortUse, UsageLimits, UserUse};
use gateway_types::Limit;

/// A connection and the address that it comes from.
#[derive(Debug)]
pub struct Guest {
    limits: Arc<UsageLimits>,
    address: Arc<AddressUse>,
    /// Counts against the address until a user signs in.
    permit: Mutex<Option<CountPermit>>,
    /// Counts an agent's connection until a session comes up.
    waiting: Mutex<Option<Member>>,
    is_proven: AtomicBool,
    /// Requests that were above the rate of strangers.
    refused: AtomicU32,
    member: Option<Arc<ConnectionSlot>>,
}

impl Guest {
    pub(super) fn new(
        limits: Arc<UsageLimits>,
        address: Arc<AddressUse>,
        permit: Option<CountPermit>,
        member: Option<Arc<ConnectionSlot>>,
    ) -> Self {
        Self {
            limits,
            address,
            permit: Mutex::new(permit),
            waiting: Mutex::new(None),
            is_proven: AtomicBool::new(false),
            refused: AtomicU32::new(0),
            member,
        }
    }

    /// Creates the guest of an agent's connection, which waits until a session comes up.
    pub(super) fn agent(limits: Arc<UsageLimits>, address: Arc<AddressUse>, waiting: Member) -> Self {
        Self { waiting: Mutex::new(Some(waiting)), ..Self::new(limits, address, None, None) }
    }

    /// Waits until the connection has to be closed, because too many of its address have no session.
    ///
    /// Cancel safety: safe.
    pub async fn sent_away(&self) {
        let sent_away = self.waiting.lock().as_ref().map(|member| member.sent_away().clone());
        match sent_away {
            Some(sent_away) => sent_away.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Takes a permit for a TLS handshake.
    ///
    /// # Errors
    /// The limit that is reached; it is counted.
    pub fn handshake_permit(&self) -> Result<CountPermit, Limit> {
        let permit = self.address.handshakes.take(self.limits.bounds.handshakes_per_address.get());
        permit.ok_or_else(|| self.limits.refuse(Limit::HandshakesPerAddress))
    }

    /// Marks the connection as that of a signed-in user: it no longer counts as a stranger's.
    pub fn prove(&self) {
        // Called for each request; already true for all but the first.
        if !self.is_proven.load(Ordering::Relaxed) && !self.is_proven.swap(true, Ordering::Relaxed) {
            drop(self.permit.lock().take());
            drop(self.waiting.lock().take());
            if let Some(member) = &self.member {
                member.prove();
            }
        }
    }

    /// Counts a request without a known user.
    ///
    /// # Errors
    /// The limit that is reached. A connection on which a user has signed in meets none.
    pub fn ask(&self, now: Instant) -> Result<(), Limit> {
        if self.is_proven.load(Ordering::Relaxed) {
            return Ok(());
        }
        let taken = self.address.asked.take(
            self.limits.bounds.requests_per_second_per_address.get(),
            self.limits.nanos(now),
            0,
        );
        taken.map(drop).map_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            Limit::RequestsPerSecondPerAddress
        })
    }

    /// Returns the limit that the connection keeps exceeding, if any.
    #[must_use]
    pub fn is_beyond(&self) -> Option<Limit> {
        let is_beyond = self.refused.load(Ordering::Relaxed) > super::STRANGERS_REFUSED_MAX;
        (is_beyond && !self.is_proven.load(Ordering::Relaxed)).then_some(Limit::RequestsPerSecondPerAddress)
    }

    /// Counts a wrong credential or code.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn fail(&self, now: Instant) -> Result<(), Limit> {
        let taken =
            self.address.failed.take(self.limits.bounds.failed_sign_ins_per_minute.get(), self.limits.nanos(now), 0);
        taken.map(drop).map_err(|_| Limit::FailedSignIns)
    }

    /// Counts a refusal of the connection itself, and logs it for the operator.
    pub fn refuse(&self, limit: Limit) {
        debug!(limit = limit.name(), "connection closed");
        self.limits.refuse(limit);
    }

    /// Returns whether a failure of the connection is worth a line in the log. Too many failures of strangers are not:
    /// they are counted, and only their number is logged.
    pub fn may_be_told_of(&self, now: Instant) -> bool {
        let is_free = || self.limits.told.take(self.limits.told_pace, self.limits.nanos(now), 0).is_ok();
        let may = self.is_proven.load(Ordering::Relaxed) || is_free();
        if !may {
            self.limits.untold.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// Returns whether the address has sent so many wrong credentials that another one would be too many.
    #[must_use]
    pub fn has_failed_often(&self, now: Instant) -> bool {
        self.address.failed.is_over(self.limits.bounds.failed_sign_ins_per_minute.get(), self.limits.nanos(now))
    }

    /// Waits for a permit to look up a credential, among those of the address and then among all.
    ///
    /// # Errors
    /// The limit that is reached: no permit came in time.
    ///
    /// Cancel safety: safe.
    pub async fn look_up(&self) -> Result<LookupPermit<'_>, Limit> {
        let turn = async {
            // The semaphores are never closed.
            Some(LookupPermit {
                _own: self.address.lookups.acquire().await.ok()?,
                _all: self.limits.lookups.acquire().await.ok()?,
            })
        };
        let turn = tokio::time::timeout(super::LOOKUP_PATIENCE, turn).await;
        turn.ok().flatten().ok_or(Limit::Lookups)
    }

    /// Waits until the connection has to make room for others. One task at a time may wait.
    pub fn poll_leave(&self, context: &Context<'_>) -> Poll<()> {
        self.member.as_ref().map_or(Poll::Pending, |member| member.poll_leave(context))
    }

    /// Returns whether the connection has to make room for others.
    #[must_use]
    pub fn must_leave(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.must_leave())
    }
}

/// Permit for one look-up, until it is dropped.
#[derive(Debug)]
pub struct LookupPermit<'a> {
    _own: SemaphorePermit<'a>,
    _all: SemaphorePermit<'a>,
}

/// Counters for the requests of one credential on one connection to one port.
#[derive(Debug)]
pub struct CredentialCounters {
    guest: Arc<Guest>,
    /// Absent if no sign-in is required: then the address counts.
    user: Option<Arc<UserUse>>,
    port: Arc<PortUse>,
}

/// Permits that one request holds until its last byte.
#[derive(Debug)]
pub struct UsagePermits {
    _sender: CountPermit,
    _port: CountPermit,
    _stay: Option<BusyGuard>,
}

impl CredentialCounters {
    pub(super) fn new(guest: Arc<Guest>, user: Option<Arc<UserUse>>, port: Arc<PortUse>) -> Self {
        Self { guest, user, port }
    }

    /// Takes the permits for one request.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn take(&self, now: Instant) -> Result<UsagePermits, Limit> {
        let Self { guest, user, port } = self;
        let Guest { limits, address, member, .. } = &**guest;
        let bounds = &limits.bounds;
        let sender = match user {
            Some(user) => {
                let taken = user.asked.take(bounds.requests_per_second_per_user.get(), limits.nanos(now), 0);
                taken.map_err(|_| Limit::RequestsPerSecondPerUser)?;
                user.requests.take(bounds.requests_per_user.get()).ok_or(Limit::RequestsPerUser)?
            }
            None => address.requests.take(bounds.requests_per_address.get()).ok_or(Limit::RequestsPerAddress)?,
        };
        let port = port.requests.take(bounds.requests_per_port.get()).ok_or(Limit::RequestsPerPort)?;
        Ok(UsagePermits { _sender: sender, _port: port, _stay: member.as_ref().map(|member| member.stay()) })
    }
}
