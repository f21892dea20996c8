//! Traces of requests: whether one has a trace, what its app is given to continue, and the spans that it leaves.
//!
//! The decision comes before any span exists, and spans are made when the answer has begun, of times that each request has anyway: a
//! request without a trace costs a count. Those that fail or are slow leave spans always, within a bound; their apps could not know.
//!
//! A browser's `traceparent` is continued for signed-in users, since their spans belong to their trace. Of other clients it is not
//! believed: such a request begins a trace of its own, with a link (W3C Trace Context, section 3.3: "restart trace").

mod sampling;
mod traceparent;

use http::{HeaderMap, HeaderValue, Method};
use tokio::time::Instant;

use self::sampling::{Bound, Ids, SpanPlace};
pub(crate) use self::traceparent::{TRACEPARENT, TRACESTATE};
use gateway_net::telemetry::{AttributeValue, PhaseTimes, Span, SpanContext, SpanKind, SpanQueue};
use gateway_types::failed_request::Side;
use gateway_types::{Port, UserName, WorkspaceName};

/// Sampled traces of signed-in users that are continued in a second, and traces of slow or failed requests.
const EACH_PER_SECOND: u32 = 100;

/// Whether and where traces go.
#[derive(Debug, Default)]
pub struct Tracer(Option<Box<Active>>);

#[derive(Debug)]
struct Active {
    queue: SpanQueue,
    /// One in so many requests; 0 for none.
    one_in: u64,
    slow: std::time::Duration,
    ids: Ids,
    continued: Bound,
    always: Bound,
}

/// The trace of one request.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    /// Number of the request, which its span ids are made of.
    count: u64,
    /// The span of the whole request.
    request: SpanContext,
    /// The span of the client.
    parent: Option<u64>,
    /// Trace of a client that is not believed.
    link: Option<SpanContext>,
}

/// Facts of a request that is over, or whose answer has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedRequest<'a> {
    pub(crate) method: Option<&'a Method>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// Phases, of a request that an app answered.
    pub(crate) phases: Option<PhaseTimes>,
    /// `direct`, or `relay` by way of another replica.
    pub(crate) way: Option<&'static str>,
    pub(crate) workspace: Option<&'a WorkspaceName>,
    pub(crate) port: Option<Port>,
    pub(crate) user: Option<&'a UserName>,
    pub(crate) status: u16,
    /// Reason and side of a failure.
    pub(crate) failure: Option<FailureTrace<'a>>,
}

/// A failure, as its spans have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureTrace<'a> {
    pub(crate) reason: &'static str,
    pub(crate) side: Side,
    /// Trace id of the answer, 32 hexadecimal digits.
    pub(crate) trace: &'a str,
}

impl FailureTrace<'_> {
    /// Returns whether it tells of trouble. A refusal by a rule, and a request that is wrong, are answers as they should be.
    fn is_trouble(&self) -> bool {
        match self.side {
            Side::App | Side::Agent | Side::Way | Side::Replica | Side::Limit => true,
            Side::Policy | Side::Client => false,
        }
    }
}

impl Tracer {
    /// Creates a tracer; `start` is a random number.
    #[must_use]
    pub fn new(queue: SpanQueue, one_in: u32, slow: std::time::Duration, start: u64) -> Self {
        let ids = Ids::new(start);
        let (continued, always) = (Bound::new(EACH_PER_SECOND), Bound::new(EACH_PER_SECOND));
        Self(Some(Box::new(Active { queue, one_in: one_in.into(), slow, ids, continued, always })))
    }

    /// Decides on the trace of a request to an app. If it has one, the app's head names the span to continue.
    pub(crate) fn begin(&self, headers: &mut HeaderMap, is_signed_in: bool, now: Instant) -> Option<Box<RequestTrace>> {
        let active = self.0.as_ref()?;
        let count = active.ids.count();
        let offered = traceparent::read(headers);
        let continues = |of: &&traceparent::TraceParent| is_signed_in && of.is_sampled;
        let is_sampled = active.ids.is_chosen(count, active.one_in)
            || offered.as_ref().is_some_and(|of| continues(&of) && active.continued.take(now.into_std()));
        if !is_sampled {
            return None;
        }
        let trace = active.trace(count, offered.map(|of| of.context), is_signed_in);
        // Of the trace that is continued; of another it would say what is not so.
        if trace.parent.is_none() {
            headers.remove(TRACESTATE);
        }
        let app = SpanContext { trace: trace.request.trace, span: active.ids.span(count, SpanPlace::App) };
        if let Ok(value) = HeaderValue::try_from(traceparent::write(&app)) {
            headers.insert(TRACEPARENT, value);
        }
        Some(Box::new(trace))
    }

    /// Leaves the spans of a request, if it has a trace, or failed, or was slow. It is described only where there is a collector.
    pub(crate) fn end<'a>(&self, trace: Option<&RequestTrace>, describe: impl FnOnce() -> TracedRequest<'a>) {
        let Some(active) = &self.0 else { return };
        let request = &describe();
        if let Some(trace) = trace {
            return active.leave(trace, request);
        }
        let is_slow = request.ended.saturating_duration_since(request.began) >= active.slow;
        if (is_slow || request.failure.is_some_and(|failure| failure.is_trouble()))
            && active.always.take(request.ended.into_std())
        {
            let mut trace = active.trace(active.ids.count(), None, false);
            // The trace id of the answer is the trace's own: one number leads to page, log and spans.
            if let Some(id) = request.failure.and_then(|failure| u128::from_str_radix(failure.trace, 16).ok()) {
                trace.request.trace = id;
            }
            active.leave(&trace, request);
        }
    }
}

impl Active {
    fn trace(&self, count: u64, offered: Option<SpanContext>, is_signed_in: bool) -> RequestTrace {
        let (continued, link) = if is_signed_in { (offered, None) } else { (None, offered) };
        let trace = continued.map_or_else(|| self.ids.trace(count), |of| of.trace);
        let request = SpanContext { trace, span: self.ids.span(count, SpanPlace::Request) };
        RequestTrace { count, request, parent: continued.map(|of| of.span), link }
    }

    fn leave(&self, trace: &RequestTrace, request: &TracedRequest<'_>) {
        let TracedRequest { began, ended, phases, .. } = *request;
        let child = |name, kind, id: u64, parent: u64| Span {
            context: SpanContext { trace: trace.request.trace, span: id },
            parent: Some(parent),
            link: None,
            name,
            kind,
            began,
            ended,
            is_failed: false,
            attributes: Vec::new(),
        };
        let own = trace.request.span;
        if let Some(PhaseTimes { queue, tunnel, .. }) = phases {
            let id = |place| self.ids.span(trace.count, place);
            let sent = began + queue;
            let half = tunnel / 2;
            self.queue.put(Span {
                began,
                ended: sent,
                ..child("queue", SpanKind::Internal, id(SpanPlace::Queue), own)
            });
            let mut way = Span { began: sent, ended, ..child("tunnel", SpanKind::Client, id(SpanPlace::Tunnel), own) };
            way.attributes.extend(request.way.map(|way| ("gateway.way", AttributeValue::Text(way.to_owned()))));
            self.queue.put(way);
            let app = child("app", SpanKind::Client, id(SpanPlace::App), id(SpanPlace::Tunnel));
            self.queue.put(Span { began: sent + half, ended: ended.checked_sub(half).unwrap_or(ended), ..app });
        }
        self.queue.put(Span {
            context: trace.request,
            parent: trace.parent,
            link: trace.link,
            name: "request",
            kind: SpanKind::Server,
            began,
            ended,
            is_failed: request.failure.is_some(),
            attributes: attributes(request),
        });
    }
}

/// Returns the name of a method; one word for all that are not known, which may be of any length (OpenTelemetry's conventions for HTTP).
fn known_method(method: &Method) -> &str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
    ];
    if known.contains(method) { method.as_str() } else { "_OTHER" }
}

/// Describes a request, without its path and fields: these carry secrets.
fn attributes(request: &TracedRequest<'_>) -> Vec<(&'static str, AttributeValue)> {
    let text = |value: String| AttributeValue::Text(value);
    let mut found = vec![("http.response.status_code", AttributeValue::Number(request.status.into()))];
    found.extend(request.method.map(|method| ("http.request.method", text(known_method(method).to_owned()))));
    found.extend(request.workspace.map(|name| ("gateway.workspace", text(name.to_string()))));
    found.extend(request.port.map(|port| ("gateway.port", AttributeValue::Number(port.get().into()))));
    found.extend(request.user.map(|user| ("user.id", text(user.to_string()))));
    if let Some(FailureTrace { reason, side, trace }) = request.failure {
        found.push(("error.type", text(reason.to_owned())));
        found.push(("gateway.side", text(side.as_str().to_owned())));
        found.push(("gateway.trace", text(trace.to_owned())));
    }
    found
}
