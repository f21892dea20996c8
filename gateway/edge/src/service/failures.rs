//! Logs requests that failed: their user, target and duration. The path is left out, because paths carry secrets, and
//! so is every host that is none of this gateway's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use tokio::time::Instant;
use tracing::{debug, info};

use super::Origin;
use super::anonymous::overloaded;
use super::failed_requests::FailedRequests;
use super::refusals::{Refusal, Refusals};
use crate::address::Address;
use crate::traces::{FailureTrace, RequestTrace, TracedRequest, Tracer};
use gateway_agents::registry::SessionWay;
use gateway_auth::sign_in::event::FailedPage;
use gateway_http::respond::{self, EarlierFailure, Failure, FailureFacts, PublicLinks, Wants};
use gateway_net::limits::UsageLimits;
use gateway_net::telemetry::{AnsweredBy, FailureLabels, Metrics, PhaseTimes};
use gateway_store::wall_clock_ms;
use gateway_types::failed_request::{FailedRequest, Side};
use gateway_types::{Limit, Port, UserName};

/// Failures before this one that its page lists.
const EARLIER_MAX: usize = 5;

/// Facts known of a request by the time it fails.
#[derive(Debug)]
pub struct RequestFacts {
    /// Time at which its head was there.
    pub(super) began: Instant,
    /// Target: `None` for the public host, and while nothing is known yet.
    pub(super) address: Option<Arc<Address>>,
    /// The port that its address means.
    pub(super) port: Option<Port>,
    /// User who asked.
    pub user: Option<UserName>,
    /// Whether that is the owner of the workspace.
    pub(super) is_owner: bool,
    /// Whether the answer says where the time went.
    pub(super) is_timed: bool,
    /// Whether a person opens a page: no app can read what its answer shows.
    pub(super) is_page_visit: bool,
    /// Method of a request to a workspace.
    pub(super) method: Option<Method>,
    /// Its way to the app, once it was sent.
    pub(super) sent: Option<Sent>,
    /// Its trace, if it has one.
    pub(super) trace: Option<Box<RequestTrace>>,
}

/// A request that was sent to an app.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Time at which it was.
    pub(super) at: Instant,
    /// Round trip of the link by then.
    pub(super) round_trip: Option<Duration>,
    /// Way of its session.
    pub(super) way: SessionWay,
}

impl RequestFacts {
    /// Begins with nothing known.
    #[must_use]
    pub fn new(began: Instant) -> Self {
        Self {
            began,
            address: None,
            port: None,
            user: None,
            is_owner: false,
            is_timed: false,
            is_page_visit: false,
            method: None,
            sent: None,
            trace: None,
        }
    }

    /// Begins with the user known.
    #[must_use]
    pub fn of_user(began: Instant, user: Option<UserName>) -> Self {
        Self { user, ..Self::new(began) }
    }

    /// Returns the time at which the head was there.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Returns the parts of the time until `now`, of a request that was sent to an app.
    pub(super) fn phases(&self, now: Instant) -> Option<PhaseTimes> {
        let Sent { at, round_trip, .. } = self.sent?;
        let waited = now.saturating_duration_since(at);
        let tunnel = round_trip.unwrap_or_default().min(waited);
        Some(PhaseTimes { queue: at.saturating_duration_since(self.began), tunnel, app: waited.saturating_sub(tunnel) })
    }

    /// Describes the request for its trace, but for its failure.
    pub(super) fn traced(&self, now: Instant, status: StatusCode, phases: Option<PhaseTimes>) -> TracedRequest<'_> {
        TracedRequest {
            method: self.method.as_ref(),
            began: self.began,
            ended: now,
            phases,
            way: self.sent.map(|sent| match sent.way {
                SessionWay::Direct => "direct",
                SessionWay::Relay => "relay",
            }),
            workspace: self.address.as_ref().map(|address| &address.name),
            port: self.port,
            user: self.user.as_ref(),
            status: status.as_u16(),
            failure: None,
        }
    }

    /// Returns the side that answers a request that did not fail: only apps have addresses.
    pub(super) fn answered_by(&self) -> AnsweredBy {
        if self.address.is_some() { AnsweredBy::App } else { AnsweredBy::Gateway }
    }
}

/// A failure as the log has it.
pub struct FailureLine<'a> {
    /// Text of the line.
    pub message: &'static str,
    /// Code of the failure.
    pub code: &'static str,
    /// What exactly failed, where the code covers several cases.
    pub detail: Option<&'static str>,
    /// Status of the answer.
    pub status: StatusCode,
    /// Id that the answer names too.
    pub trace: &'a str,
    /// Explanation of the failure.
    pub why: FailureWords,
}

/// Explanation of a failure, in fixed words.
#[derive(Clone, Copy, Debug)]
pub struct FailureWords {
    /// The side that it is of.
    pub side: Side,
    /// What happened, in a sentence.
    pub what: &'static str,
    /// What to do about it.
    pub to_do: &'static str,
}

impl From<Failure> for FailureWords {
    fn from(failure: Failure) -> Self {
        Self { side: failure.side(), what: failure.public_text(), to_do: failure.hint() }
    }
}

impl FailureLine<'_> {
    /// Returns its reason: the detail, or the code where that covers one case.
    fn reason(&self) -> &'static str {
        self.detail.unwrap_or(self.code)
    }

    /// Returns the labels under which it is counted.
    #[must_use]
    pub fn labels(&self) -> FailureLabels {
        FailureLabels { code: self.code, reason: self.reason(), side: self.why.side.as_str() }
    }
}

/// Returns the labels under which a failure is counted.
fn labels(failure: Failure) -> FailureLabels {
    FailureLine::of(failure, "").labels()
}

/// Limits of workspace hosts without a key, as [`Failure::Overloaded`] names them.
const LIMITS_WITHOUT_KEY: [&str; 5] =
    ["tunnel.channels_per_session", "tunnel.session_budget", "tunnel.unacknowledged", "agent", "store"];

/// Returns the labels of all failures but those of ambiguous requests, whose rules are many: an alert has something to compare
/// with from the start.
pub fn expected_failures() -> impl Iterator<Item = FailureLabels> {
    let limits = Limit::ALL.map(Limit::name).into_iter().chain(LIMITS_WITHOUT_KEY);
    let overloaded = limits.map(|limit| Failure::Overloaded { limit });
    Failure::CASES.into_iter().chain(overloaded).map(labels)
}

impl<'a> FailureLine<'a> {
    pub(super) fn of(failure: Failure, trace: &'a str) -> Self {
        let (code, detail, status) = (failure.code(), failure.detail(), failure.status());
        Self { message: "request failed", code, detail, status, trace, why: failure.into() }
    }
}

/// Makes ids that a user can quote and an operator can find. They are no secrets: a random start and a count.
#[derive(Debug)]
pub struct Traces {
    start: u64,
    count: AtomicU64,
}

impl Traces {
    /// Creates the source of ids from a random number.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self { start, count: AtomicU64::new(0) }
    }

    fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // An odd factor permutes the numbers, so that neighbours do not look alike.
        format!("{:016x}{:016x}", self.start, count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Counts, logs and answers failures, for the workspace hosts and the public host alike.
#[derive(Debug)]
pub struct Failures {
    /// Counters.
    pub metrics: Metrics,
    /// Limits by address, which bound the log lines of one.
    pub limits: Arc<UsageLimits>,
    /// Ids of failures.
    pub traces: Traces,
    /// The last of them.
    pub refusals: Arc<Refusals>,
    /// The last of them, by their trace ids.
    pub failed: Arc<FailedRequests>,
    /// Addresses to which their pages lead.
    pub links: PublicLinks,
    /// Traces of requests.
    pub tracer: Tracer,
}

impl Failures {
    /// Returns the next trace id.
    #[must_use]
    pub fn trace(&self) -> String {
        self.traces.next()
    }

    /// Returns the counters.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Writes one line about a request that failed, and keeps it for operators; strangers' are bounded in number.
    pub fn log(&self, line: &FailureLine<'_>, known: &RequestFacts, origin: &Origin) {
        let FailureLine { message, code, detail, status, trace, why } = line;
        let now = Instant::now();
        let host = known.address.as_ref().map(|address| &*address.host);
        let workspace = known.address.as_ref().map(|address| tracing::field::display(&address.name));
        let port = known.port.map(Port::get);
        let user = known.user.as_ref().map(UserName::as_str);
        let took_ms = u64::try_from(now.saturating_duration_since(known.began).as_millis()).unwrap_or(u64::MAX);
        let (status, peer) = (status.as_u16(), origin.peer);
        let (side, reason) = (why.side.as_str(), line.reason());
        if origin.guest.may_be_told_of(now.into_std()) {
            let at_ms = wall_clock_ms();
            self.refusals.note(Refusal {
                at_ms,
                code,
                detail: *detail,
                user: known.user.clone(),
                workspace: known.address.as_ref().map(|address| address.name.clone()),
                peer: Some(peer),
                trace: (*trace).to_owned(),
                count: 1,
            });
            self.failed.note(FailedRequest {
                trace_id: (*trace).to_owned(),
                at_ms,
                code: (*code).to_owned(),
                detail: detail.map(str::to_owned),
                side: why.side,
                what: why.what.to_owned(),
                to_do: why.to_do.to_owned(),
                status,
                took_ms,
                user: user.map(str::to_owned),
                workspace: known.address.as_ref().map(|address| address.name.to_string()),
                port,
                address: Some(peer.to_canonical().to_string()),
            });
            let failure = Some(FailureTrace { reason, side: why.side, trace });
            let describe = || TracedRequest { failure, ..known.traced(now, line.status, known.phases(now)) };
            self.tracer.end(known.trace.as_deref(), describe);
            info!(code, reason, side, status, host, workspace, port, user, took_ms, trace, %peer, "{message}");
        } else {
            debug!(code, reason, side, status, host, workspace, port, user, took_ms, trace, %peer, "{message}");
        }
    }

    /// Counts and logs a failure, and makes its answer.
    pub(super) fn answer(
        &self,
        failure: Failure,
        form: Form,
        known: &RequestFacts,
        origin: &Origin,
    ) -> Response<Bytes> {
        let trace = self.traces.next();
        self.metrics.failed(&labels(failure));
        if let Failure::Overloaded { limit } = failure {
            self.limits.refused(limit);
        }
        self.metrics.took(AnsweredBy::Gateway, known.began.elapsed());
        self.log(&FailureLine::of(failure, &trace), known, origin);
        let mut response = respond::response(failure, form.wants, &self.links, &trace, form.is_head);
        if known.is_owner && known.is_page_visit && form.wants == Wants::Html && !form.is_head {
            self.list_earlier(&mut response, &trace, known);
        }
        response
    }

    /// Lists on the page of an owner the failures before this one. Only the owner's own: what others met before may be of an
    /// owner before this one.
    fn list_earlier(&self, response: &mut Response<Bytes>, trace: &str, known: &RequestFacts) {
        let (Some(address), Some(user)) = (&known.address, &known.user) else { return };
        let now_ms = wall_clock_ms();
        // This one is among them.
        let last = self.failed.last(address.name.as_str(), user.as_str(), EARLIER_MAX + 1, now_ms);
        let earlier: Vec<EarlierFailure<'_>> = last
            .iter()
            .filter(|failed| failed.trace_id != trace)
            .take(EARLIER_MAX)
            .map(|failed| EarlierFailure {
                seconds_ago: now_ms.saturating_sub(failed.at_ms) / 1000,
                status: failed.status,
                reason: failed.detail.as_deref().unwrap_or(&failed.code),
                side: failed.side,
                port: failed.port,
                trace: &failed.trace_id,
            })
            .collect();
        respond::list_earlier(response, &earlier);
    }

    /// Counts and logs a page of the sign-in that reports a failure, and gives it a trace id as every other failure has.
    #[must_use]
    pub fn of_page(&self, mut response: Response<Bytes>, known: &RequestFacts, origin: &Origin) -> Response<Bytes> {
        let Some(FailedPage { code, reason, side, text }) = response.extensions().get().copied() else {
            return response;
        };
        let (trace, status) = (self.traces.next(), response.status());
        let why = FailureWords { side, what: text, to_do: "Do as the page says, or open the address again." };
        let detail = (reason != code).then_some(reason);
        let line = FailureLine { message: "sign-in page reports a failure", code, detail, status, trace: &trace, why };
        self.metrics.failed(&line.labels());
        self.log(&line, known, origin);
        respond::add_facts(&mut response, &FailureFacts { code, reason, side, trace: &trace });
        response
    }

    /// Counts and logs the failure of a request that is not looked into, and makes its answer.
    pub(crate) fn answer_unread(&self, failure: Failure, form: Form, origin: &Origin) -> Response<Bytes> {
        self.answer(failure, form, &RequestFacts::new(Instant::now()), origin)
    }

    /// Counts a request that failed before its user was looked up; returns the failure to answer with.
    pub(crate) fn of_stranger(failure: Failure, origin: &Origin) -> Failure {
        match origin.guest.ask(Instant::now().into_std()) {
            Ok(()) => failure,
            // The end of such a request is not to be trusted either.
            Err(_) if failure.closes_connection() => failure,
            Err(limit) => overloaded(limit),
        }
    }

    /// Makes the answer for a connection that is refused.
    pub(crate) fn turned_away(&self, limit: Limit) -> Response<Bytes> {
        let (failure, trace) = (overloaded(limit), self.traces.next());
        self.metrics.failed(&labels(failure));
        self.refusals.note(Refusal {
            at_ms: wall_clock_ms(),
            code: failure.code(),
            detail: failure.detail(),
            user: None,
            workspace: None,
            peer: None,
            trace: trace.clone(),
            count: 1,
        });
        respond::response(failure, Wants::Json, &self.links, &trace, false)
    }
}

/// Form of the answer to a failure.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// A page or a problem document.
    pub(crate) wants: Wants,
    /// Without a body, because the method is HEAD.
    pub(crate) is_head: bool,
}
