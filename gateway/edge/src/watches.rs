//! Re-authorises requests and streams for as long as they stay open.
//!
//! An [`AccessWatch`] stands for one credential on one connection towards one port. Every request, body and stream that it let
//! through holds a [`WatchUse`]. [`Watches::in_use`] returns the watches that are used now; the task in
//! `service/access/revocation.rs` decides on each again and ends those without access. A connection that asks the same again
//! uses one watch for all its requests, so a request makes none. The audit log calls a watch an access: one record when
//! it is made, one when it ends.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned};

use super::activity::{Activities, UserActivity};
use super::address::Address;
use gateway_auth::policy::{Because, Grant};
use gateway_auth::request::{Identities, OfferedCredential};
use gateway_http::respond::Failure;
use gateway_net::audit::{Audit, AuditEvent, AuditRecord, Credential, Text, WhyEnded};
use gateway_net::limits::CredentialCounters;
use gateway_types::{Port, UserName, WorkspaceName};

/// One credential, used on one connection towards one port.
#[derive(Debug)]
pub(crate) struct AccessWatch {
    offered: OfferedCredential,
    address: Arc<Address>,
    port: Port,
    user: Option<UserName>,
    /// Quotas that its requests count in.
    counters: CredentialCounters,
    /// Place in which its user's use of the workspace is noted; `None` for an anonymous one.
    activity: Option<UserActivity>,
    uses: AtomicUsize,
    ended: CancellationToken,
    why: OnceLock<Failure>,
    /// Number among those of this process.
    number: u64,
    since: Instant,
    peer: IpAddr,
    recorded: Option<Recorded>,
}

/// An access whose begin is in the audit log, so that its end has to be there too.
#[derive(Debug)]
struct Recorded {
    audit: Audit,
    access: u64,
}

/// Access to a port of a workspace that is in use now, for the workspace's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAccess {
    /// Its number among those of this process.
    pub number: u64,
    /// The user; `None` without a sign-in.
    pub user: Option<UserName>,
    /// The port.
    pub port: Port,
    /// Time since it began.
    pub open_for: Duration,
    /// Address of the client.
    pub peer: IpAddr,
    /// Requests and streams of it under way.
    pub uses: usize,
}

/// Use of a watch by one request, body or stream under way.
#[derive(Debug)]
pub(crate) struct WatchUse(Arc<AccessWatch>);

impl WatchUse {
    fn new(watch: Arc<AccessWatch>) -> Self {
        watch.uses.fetch_add(1, Ordering::Relaxed);
        Self(watch)
    }
}

impl Clone for WatchUse {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for WatchUse {
    fn drop(&mut self) {
        self.0.uses.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for WatchUse {
    type Target = AccessWatch;

    fn deref(&self) -> &AccessWatch {
        &self.0
    }
}

impl AccessWatch {
    /// Returns the credential that was offered.
    pub(crate) fn offered(&self) -> &OfferedCredential {
        &self.offered
    }

    /// Returns the address at which it was offered.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the port that was asked for.
    pub(crate) fn port(&self) -> Port {
        self.port
    }

    /// Returns the quotas that its requests count in.
    pub(crate) fn counters(&self) -> &CredentialCounters {
        &self.counters
    }

    /// Returns the place in which its user's use of the workspace is noted.
    pub(crate) fn activity(&self) -> Option<&UserActivity> {
        self.activity.as_ref()
    }

    /// Returns whether a new decision upholds this watch: it grants access, and to the same user.
    pub(crate) fn is_upheld_by(&self, grant: &Grant) -> bool {
        grant.user() == self.user.as_ref()
    }

    /// Ends all uses of it.
    pub(crate) fn end(&self, why: Failure) {
        if self.why.set(why).is_ok() {
            self.ended.cancel();
            self.record_end(WhyEnded::Cut { code: why.code() });
        }
    }

    fn record_end(&self, why: WhyEnded) {
        let Some(Recorded { audit, access }) = &self.recorded else { return };
        let event = AuditEvent::AccessEnded {
            access: *access,
            workspace: Text::of(&self.address.name),
            port: self.port.get(),
            why,
            seconds: self.since.elapsed().as_secs(),
        };
        audit.record(AuditRecord::new(event).at_peer(self.peer));
    }

    /// Returns whether it has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns the failure that ended it, as a new request would be told.
    pub(crate) fn why(&self) -> Failure {
        self.why.get().copied().unwrap_or(Failure::SignInRequired)
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&self) -> WaitForCancellationFuture<'_> {
        self.ended.cancelled()
    }

    /// Waits until it has ended. The future borrows nothing.
    pub(crate) fn wait_owned(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }
}

impl Drop for AccessWatch {
    fn drop(&mut self) {
        if self.why.get().is_none() {
            self.record_end(WhyEnded::Closed);
        }
    }
}

/// Client of a request, for the audit log: only read when an access begins.
pub(crate) struct AccessClient<'a> {
    pub(crate) identities: &'a Identities,
    pub(crate) offered: &'a OfferedCredential,
    pub(crate) peer: IpAddr,
}

impl AccessClient<'_> {
    /// Names a browser's session on a workspace host after the session on the public host that it hangs on.
    fn credential(&self) -> Credential {
        match self.offered {
            OfferedCredential::Session(id) => match self.identities.session_of_host(id) {
                Some(name) => Credential::Session { id: Text::of(name) },
                None => Credential::None,
            },
            OfferedCredential::Token(hash) => Credential::TokenHash(*hash),
            OfferedCredential::Nothing | OfferedCredential::Refused => Credential::None,
        }
    }
}

/// The watch that a connection used last.
pub(crate) type LastWatch = Mutex<Option<Arc<AccessWatch>>>;

/// All watches.
#[derive(Debug, Default)]
pub struct Watches {
    all: Mutex<Vec<Weak<AccessWatch>>>,
    audit: Audit,
    activities: Arc<Activities>,
    numbers: AtomicU64,
}

impl Watches {
    /// Creates an empty set that records its accesses in `audit`, and notes what counts as use in `activities`.
    pub fn new(audit: Audit, activities: Arc<Activities>) -> Self {
        Self { all: Mutex::default(), audit, activities, numbers: AtomicU64::new(1) }
    }

    /// Returns the last use of all workspaces.
    #[must_use]
    pub fn activities(&self) -> &Arc<Activities> {
        &self.activities
    }

    /// Returns the watch for a new grant: the connection's last one if that is for the same, else a new one with a
    /// `counters` of its own.
    pub(crate) fn watch(
        &self,
        last: &LastWatch,
        asking: &AccessClient<'_>,
        address: &Arc<Address>,
        grant: &Grant,
        counters: impl FnOnce() -> CredentialCounters,
    ) -> WatchUse {
        let mut last = last.lock();
        let same = |watch: &&Arc<AccessWatch>| {
            watch.offered == *asking.offered
                && Arc::ptr_eq(&watch.address, address)
                && watch.port == grant.port()
                && watch.is_upheld_by(grant)
                && !watch.is_ended()
        };
        if let Some(watch) = last.as_ref().filter(same) {
            return WatchUse::new(watch.clone());
        }
        let watch = Arc::new(AccessWatch {
            offered: *asking.offered,
            address: address.clone(),
            port: grant.port(),
            user: grant.user().cloned(),
            counters: counters(),
            activity: grant.user().map(|user| self.activities.of(&address.name, user)),
            uses: AtomicUsize::new(0),
            ended: CancellationToken::new(),
            why: OnceLock::new(),
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            since: Instant::now(),
            peer: asking.peer,
            recorded: self.audit.wants_accesses().then(|| self.record_begin(asking, address, grant)),
        });
        let first_use = WatchUse::new(watch.clone());
        self.all.lock().push(Arc::downgrade(&watch));
        *last = Some(watch);
        first_use
    }

    fn record_begin(&self, asking: &AccessClient<'_>, address: &Address, grant: &Grant) -> Recorded {
        let access = self.audit.access_number();
        let event = AuditEvent::AccessOpened {
            access,
            user: grant.user().map(Text::of),
            workspace: Text::of(&address.name),
            port: grant.port().get(),
            because: match grant.because() {
                Because::Owner => Text::new("owner"),
                Because::Shared(audience) => Text::of(audience),
            },
        };
        let peer = asking.peer;
        self.audit.record(AuditRecord::new(event).at_peer(peer).with(asking.credential()));
        Recorded { audit: self.audit.clone(), access }
    }

    /// Returns what is open at a workspace now, the oldest first, here and not at other replicas.
    #[must_use]
    pub fn open_at(&self, workspace: &WorkspaceName) -> Vec<OpenAccess> {
        let open = self.in_use().into_iter().filter(|watch| watch.address.name == *workspace && !watch.is_ended());
        let mut open: Vec<_> = open
            .map(|watch| OpenAccess {
                number: watch.number,
                user: watch.user.clone(),
                port: watch.port,
                open_for: watch.since.elapsed(),
                peer: watch.peer,
                uses: watch.uses.load(Ordering::Relaxed),
            })
            .collect();
        open.sort_by_key(|access| access.number);
        open
    }

    /// Ends one access to a workspace, with everything that it has open. Its user may come again, as long as they are allowed to.
    /// Returns whether there is such an access.
    pub fn end_one(&self, workspace: &WorkspaceName, number: u64) -> bool {
        let found = self.in_use().into_iter().find(|watch| watch.number == number && watch.address.name == *workspace);
        found.is_some_and(|watch| {
            watch.end(Failure::SessionLost);
            true
        })
    }

    /// Returns the watches that are used now, and forgets those whose connection and streams are gone.
    pub(crate) fn in_use(&self) -> Vec<Arc<AccessWatch>> {
        let mut in_use = Vec::new();
        self.all.lock().retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            if watch.uses.load(Ordering::Relaxed) > 0 {
                in_use.push(watch);
            }
            true
        });
        in_use
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use gateway_auth::browser::{BrowserSessions, Lifetimes};
    use gateway_auth::policy::{Decision, Exposure, Purpose, RequestShape, RequestSource, Target, decide};
    use gateway_config::Config;
    use gateway_net::limits::{UsageLimits, WorkspacePort};
    use gateway_types::principal::{Principal, Via};
    use gateway_types::{Scheme, UnixSeconds};

    fn address() -> Arc<Address> {
        let peer = std::net::Ipv4Addr::LOCALHOST.into();
        let name = "app".parse().unwrap();
        Arc::new(Address::new("80-app.zone", name, Port::new(80), "80-app.zone".into(), Scheme::Http, peer))
    }

    fn grant() -> Grant {
        let ann = Principal { user: "ann".parse().unwrap(), via: Via::ApiToken, groups: Arc::default() };
        let workspace = "app".parse().unwrap();
        let record = Some(Exposure { owner: &ann.user, ports: None, shares: &[] });
        let target = Target { workspace: &workspace, port: Port::new(80).unwrap(), record };
        let shape = RequestShape { purpose: Purpose::Read, source: RequestSource::Unstated };
        let Decision::Allow(grant) = decide(Some(&ann), &target, shape, UnixSeconds::new(0)) else { panic!("refused") };
        grant
    }

    fn identities() -> Identities {
        Identities::new(Arc::new(BrowserSessions::new(Instant::now(), Lifetimes::default())))
    }

    fn asking<'a>(identities: &'a Identities, offered: &'a OfferedCredential) -> AccessClient<'a> {
        AccessClient { identities, offered, peer: [127, 0, 0, 1].into() }
    }

    fn counters() -> CredentialCounters {
        let now = Instant::now().into_std();
        let limits = UsageLimits::new(&Config::default().limits, now);
        let guest = Arc::new(limits.arrive_operator(IpAddr::from([127, 0, 0, 1]), now));
        let port = WorkspacePort { workspace: "one".parse().expect("a name"), port: Port::new(80).expect("a port") };
        limits.counters(&guest, None, &port, now)
    }

    #[test]
    fn owner_sees_what_is_open_and_ends_one() {
        let (watches, address, last, identities) = (Watches::default(), address(), LastWatch::default(), identities());
        let used =
            watches.watch(&last, &asking(&identities, &OfferedCredential::Nothing), &address, &grant(), counters);
        let app = "app".parse().unwrap();
        let open = watches.open_at(&app);
        let told: Vec<_> =
            open.iter().map(|one| (one.user.as_ref().map(UserName::as_str), one.port.get(), one.uses)).collect();
        assert_eq!(told, [(Some("ann"), 80, 1)]);
        assert_eq!(watches.open_at(&"other".parse().unwrap()), []);
        assert!(!watches.end_one(&"other".parse().unwrap(), open[0].number), "of another workspace");
        assert!(watches.end_one(&app, open[0].number) && used.is_ended());
        assert_eq!(watches.open_at(&app), []);
    }

    #[test]
    fn watch_of_a_connection_that_is_gone_is_forgotten() {
        let (watches, address, identities) = (Watches::default(), address(), identities());
        for _ in 0..100 {
            let last = LastWatch::default();
            drop(watches.watch(&last, &asking(&identities, &OfferedCredential::Nothing), &address, &grant(), counters));
            assert_eq!(watches.in_use().len(), 0, "nothing is under way");
            assert_eq!(watches.all.lock().len(), 1, "the connection lives, and may ask again");
            drop(last);
            assert_eq!(watches.in_use().len(), 0);
            assert_eq!(watches.all.lock().len(), 0, "the connection is gone");
        }
    }

    #[test]
    fn watch_serves_one_credential_only() {
        let (watches, address, last, identities) = (Watches::default(), address(), LastWatch::default(), identities());
        let first = watches.watch(
            &last,
            &asking(&identities, &OfferedCredential::Token([1; 32])),
            &address,
            &grant(),
            counters,
        );
        let same = watches.watch(
            &last,
            &asking(&identities, &OfferedCredential::Token([1; 32])),
            &address,
            &grant(),
            counters,
        );
        let other = watches.watch(
            &last,
            &asking(&identities, &OfferedCredential::Token([2; 32])),
            &address,
            &grant(),
            counters,
        );
        assert!(Arc::ptr_eq(&first.0, &same.0) && !Arc::ptr_eq(&first.0, &other.0));
        first.end(Failure::SignInRequired);
        assert!(same.is_ended() && !other.is_ended());
    }
}
