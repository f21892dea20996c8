//! Spans on their way to a collector: a bounded queue that never makes a request wait, and the one task that sends what is in it, as
//! OTLP over HTTP in JSON (OTLP 1.x, section "OTLP/HTTP"; `trace.proto`).
//!
//! A span is made when its request is over, of times that the request has anyway: before that, there is none.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::fetch::{Credentials, Fetch};
use gateway_types::Endpoint;

/// Spans that wait to be sent. Those without room are counted and lost.
const QUEUE_MAX: usize = 4 * 1024;

/// Spans of one request to the collector.
const BATCH_MAX: usize = 512;

/// Time in which a batch gathers.
const GATHER_TIME: Duration = Duration::from_secs(1);

/// Pause after a batch that the collector did not take: the next one would fare no better.
const PAUSE: Duration = Duration::from_secs(5);

/// Longest wait for the last spans at the end of the process.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Trace and span: the context that the next service continues (W3C Trace Context, section 3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// Trace, not 0.
    pub trace: u128,
    /// Span, not 0.
    pub span: u64,
}

/// Side of a call that a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Inside of this process.
    Internal,
    /// A request that was received.
    Server,
    /// A request that was sent.
    Client,
}

impl SpanKind {
    /// Returns its number (`trace.proto`, `Span.SpanKind`).
    fn number(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Server => 2,
            Self::Client => 3,
        }
    }
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
}

/// One span, over.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its trace and its own id.
    pub context: SpanContext,
    /// Id of the span that it is part of.
    pub parent: Option<u64>,
    /// A trace that it was asked to continue and does not.
    pub link: Option<SpanContext>,
    /// Name, one of few.
    pub name: &'static str,
    /// Side.
    pub kind: SpanKind,
    /// Begin, in the clock that never goes back.
    pub began: Instant,
    /// End, in the same clock.
    pub ended: Instant,
    /// Whether it failed.
    pub is_failed: bool,
    /// Attributes, by their keys.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// The end of the queue that requests use. Clones share the queue.
#[derive(Clone, Debug)]
pub struct SpanQueue {
    queue: Sender<Span>,
    lost: Counter,
}

impl SpanQueue {
    /// Hands a span over; never waits.
    pub fn put(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.lost.inc();
        }
    }
}

/// Counters of spans.
#[derive(Clone, Debug)]
pub struct SpanCounters {
    /// Spans that the collector took.
    pub sent: Counter,
    /// Spans without room in the queue, or that the collector did not take.
    pub lost: Counter,
}

/// The process, as each of its spans names it.
#[derive(Clone, Debug)]
pub struct SpanSource {
    /// Name of this process among those of its service.
    pub instance: String,
}

/// Sends spans to a collector.
#[derive(Debug)]
pub struct SpanExporter {
    waiting: Receiver<Span>,
    fetch: Fetch,
    collector: Endpoint,
    source: SpanSource,
    counters: SpanCounters,
}

impl SpanExporter {
    /// Creates the queue and its exporter, which does nothing until it is run.
    #[must_use]
    pub fn new(fetch: Fetch, collector: Endpoint, source: SpanSource, counters: SpanCounters) -> (SpanQueue, Self) {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let queue = SpanQueue { queue, lost: counters.lost.clone() };
        (queue, Self { waiting, fetch, collector, source, counters })
    }

    /// Sends spans until `ended`; then those that wait, for a moment.
    ///
    /// Cancel safety: dropped, the spans that wait are lost.
    pub async fn run(mut self, ended: CancellationToken) {
        let mut fails = false;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                count = self.waiting.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                () = ended.cancelled() => break,
            }
            let full_at = Instant::now() + GATHER_TIME;
            while batch.len() < BATCH_MAX && !ended.is_cancelled() {
                let room = BATCH_MAX - batch.len();
                match tokio::time::timeout_at(full_at, self.waiting.recv_many(&mut batch, room)).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
            }
            let is_sent = self.send(&batch, &mut fails).await;
            if !is_sent {
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = ended.cancelled() => break,
                }
            }
        }
        let mut batch = Vec::new();
        while let Ok(span) = self.waiting.try_recv() {
            batch.push(span);
        }
        if !batch.is_empty() {
            drop(tokio::time::timeout(LAST_PATIENCE, self.send(&batch, &mut fails)).await);
        }
    }

    /// Sends a batch, once: what a collector does not take is counted and lost. The log has the first of several failures.
    async fn send(&self, batch: &[Span], fails: &mut bool) -> bool {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        #[expect(clippy::disallowed_methods, reason = "spans have times of the wall clock, and decide nothing by them")]
        let wall = SystemTime::now();
        let body = ExportRequest::new(batch, &self.source, Instant::now(), wall);
        let answer = self.fetch.post_json(&self.collector, &body, Credentials::Nothing).await;
        let why = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("status {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        match &why {
            None => {
                self.counters.sent.inc_by(count);
                if *fails {
                    info!(collector = %self.collector.origin(), "the collector of traces takes spans again");
                }
            }
            Some(why) => {
                self.counters.lost.inc_by(count);
                if !*fails {
                    warn!(collector = %self.collector.origin(), %why, "the collector of traces does not take spans");
                }
            }
        }
        *fails = why.is_some();
        why.is_none()
    }
}

/// The body of a request to the collector (`trace_service.proto`, `ExportTraceServiceRequest`).
#[derive(Debug, Serialize)]
struct ExportRequest(Value);

impl ExportRequest {
    /// Makes the body; `now` and `wall` are the same moment in both clocks.
    fn new(batch: &[Span], source: &SpanSource, now: Instant, wall: SystemTime) -> Self {
        let wall_ns = wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let at = |time: Instant| {
            let ago = now.saturating_duration_since(time).as_nanos();
            // 64-bit numbers are texts in JSON (ProtoJSON).
            wall_ns.saturating_sub(ago).to_string()
        };
        let spans: Vec<Value> = batch.iter().map(|span| row(span, &at)).collect();
        let resource = attributes(&[
            ("service.name", AttributeValue::Text("workspace-gateway".to_owned())),
            ("service.version", AttributeValue::Text(env!("CARGO_PKG_VERSION").to_owned())),
            ("service.instance.id", AttributeValue::Text(source.instance.clone())),
        ]);
        Self(json!({
            "resourceSpans": [{
                "resource": { "attributes": resource },
                "scopeSpans": [{ "scope": { "name": "gateway" }, "spans": spans }],
            }],
        }))
    }
}

fn row(span: &Span, at: &impl Fn(Instant) -> String) -> Value {
    let Span { context, parent, link, name, kind, began, ended, is_failed, attributes: described } = span;
    let mut row = json!({
        "traceId": format!("{:032x}", context.trace),
        "spanId": format!("{:016x}", context.span),
        "name": name,
        "kind": kind.number(),
        "startTimeUnixNano": at(*began),
        "endTimeUnixNano": at(*ended),
        "attributes": attributes(described),
    });
    let Some(members) = row.as_object_mut() else { return row };
    if let Some(parent) = parent {
        members.insert("parentSpanId".to_owned(), format!("{parent:016x}").into());
    }
    if let Some(link) = link {
        let link = json!([{ "traceId": format!("{:032x}", link.trace), "spanId": format!("{:016x}", link.span) }]);
        members.insert("links".to_owned(), link);
    }
    if *is_failed {
        members.insert("status".to_owned(), json!({ "code": 2 }));
    }
    row
}

fn attributes(of: &[(&'static str, AttributeValue)]) -> Vec<Value> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => json!({ "stringValue": text }),
        AttributeValue::Number(number) => json!({ "intValue": number.to_string() }),
    };
    of.iter().map(|(key, of)| json!({ "key": key, "value": value(of) })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(now: Instant) -> Span {
        Span {
            context: SpanContext { trace: 0xabc, span: 0x12 },
            parent: Some(0x34),
            link: None,
            name: "request",
            kind: SpanKind::Server,
            began: now.checked_sub(Duration::from_millis(1500)).unwrap(),
            ended: now,
            is_failed: true,
            attributes: vec![("http.response.status_code", AttributeValue::Number(502))],
        }
    }

    #[tokio::test]
    async fn body_is_what_a_collector_reads() {
        let now = Instant::now();
        let wall = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let source = SpanSource { instance: "a".to_owned() };
        let mut linked = span(now);
        linked.link = Some(SpanContext { trace: 0xdef, span: 0x56 });
        (linked.parent, linked.is_failed) = (None, false);
        let ExportRequest(body) = ExportRequest::new(&[span(now), linked], &source, now, wall);
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(
            spans[0],
            json!({
                "traceId": "00000000000000000000000000000abc",
                "spanId": "0000000000000012",
                "parentSpanId": "0000000000000034",
                "name": "request",
                "kind": 2,
                "startTimeUnixNano": "1699999998500000000",
                "endTimeUnixNano": "1700000000000000000",
                "attributes": [{ "key": "http.response.status_code", "value": { "intValue": "502" } }],
                "status": { "code": 2 },
            })
        );
        assert_eq!(spans[1]["links"][0]["traceId"], "00000000000000000000000000000def");
        assert_eq!((&spans[1]["parentSpanId"], &spans[1]["status"]), (&Value::Null, &Value::Null));
        let resource = &body["resourceSpans"][0]["resource"]["attributes"];
        assert_eq!(resource[2], json!({ "key": "service.instance.id", "value": { "stringValue": "a" } }));
    }

    #[tokio::test]
    async fn span_without_room_is_counted_and_nothing_waits() {
        let counters = SpanCounters { sent: Counter::default(), lost: Counter::default() };
        let fetch = Fetch::new(&crate::fetch::Trust::System).unwrap();
        let collector = "http://127.0.0.1:9/v1/traces".parse().unwrap();
        let (queue, _exporter) =
            SpanExporter::new(fetch, collector, SpanSource { instance: String::new() }, counters.clone());
        for _ in 0..QUEUE_MAX + 3 {
            queue.put(span(Instant::now()));
        }
        assert_eq!(counters.lost.get(), 3);
    }
}
