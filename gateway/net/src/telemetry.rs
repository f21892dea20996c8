//! Logs and metrics. Labels come from enums, never from users.
//!
//! `durations` has the histograms of requests, `ends` the labels of what is over, `process` the system's facts of this process, `spans`
//! sends traces to a collector, and `text` writes the format that a scraper understands.

mod durations;
mod ends;
mod process;
mod spans;
mod text;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tracing_subscriber::EnvFilter;

use gateway_config::{Log, LogFormat};
use gateway_types::ActualState;

use self::durations::Durations;
pub use self::durations::{AnsweredBy, Dependency, Phase};
pub use self::ends::{ChangeWay, JobEnd, ReportEnd, RunEnd, TcpEnd};
pub use self::spans::{AttributeValue, Span, SpanContext, SpanCounters, SpanExporter, SpanKind, SpanQueue, SpanSource};
pub use self::text::Exposition;

/// Labels of [`Metrics::failed`]: a failure that the gateway answered itself, in the words of its answer and its log line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailureLabels {
    /// Code.
    pub code: &'static str,
    /// Which case of its code, or which limit or rule; the code again if there is only one.
    pub reason: &'static str,
    /// The side that it is of.
    pub side: &'static str,
}

/// Label of [`Metrics::answered`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    class: &'static str,
}

/// Label of [`Metrics::environment_unmet`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UnmetAnswer {
    answer: &'static str,
}

/// Label of the version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Label of [`Metrics::workspaces`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// Label of [`Metrics::tcp_ended`], [`Metrics::reported`] and [`Metrics::run_ended`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabel {
    end: &'static str,
}

/// Label of [`Metrics::intent_sent`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cycle {
    cycle: &'static str,
}

/// Label of [`Metrics::reloaded`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Label of [`Metrics::changes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WayLabel {
    way: &'static str,
}

/// Time from asking for a job to its agent's connection. Units: seconds.
#[derive(Clone, Debug)]
struct UpTimes(Histogram);

impl Default for UpTimes {
    fn default() -> Self {
        // From two seconds to half an hour, as a busy runner may take that long.
        Self(Histogram::new(exponential_buckets(2.0, 2.0, 11)))
    }
}

/// Histogram of the time that answers of other systems take. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Latency(Durations<Dependency>);

impl Latency {
    /// Counts one answer, or the lack of one.
    pub fn observe(&self, of: Dependency, took: Duration) {
        self.0.observe(of, took);
    }
}

/// Durations of one request to an app, until its answer began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTimes {
    /// See [`Phase::Queue`].
    pub queue: Duration,
    /// See [`Phase::Tunnel`].
    pub tunnel: Duration,
    /// See [`Phase::App`].
    pub app: Duration,
}

/// Counters of the edge and of the executors. Clones share them. Each possible label is there from the start, so that
/// an alert has something to compare with.
#[derive(Clone, Debug)]
pub struct Metrics {
    responses: Family<Class, Counter>,
    /// Counters of `responses`, in the order of [`CLASSES`].
    answered: [Counter; 5],
    durations: Durations<AnsweredBy>,
    phases: Durations<Phase>,
    latency: Latency,
    spans: Family<EndLabel, Counter>,
    workspaces: Family<StateLabel, Gauge<u64, AtomicU64>>,
    websockets_opened: Counter,
    websockets: Gauge<u64, AtomicU64>,
    relayed: Counter,
    failed: Family<FailureLabels, Counter>,
    audit_lost: Counter,
    audit_unstored: Counter,
    tcp_opened: Counter,
    tcp_ended: Family<EndLabel, Counter>,
    intents: Family<Cycle, Counter>,
    reports: Family<EndLabel, Counter>,
    configs_held_back: Counter,
    jobs: Family<EndLabel, Counter>,
    /// Counters of `jobs`: completed, failed.
    environment_jobs: [Counter; 2],
    environments_due: Gauge<u64, AtomicU64>,
    prerequisites: Family<UnmetAnswer, Counter>,
    /// Counters of `prerequisites`: unmet, met.
    environment_unmet: [Counter; 2],
    runs: Counter,
    run_ends: Family<EndLabel, Counter>,
    run_up: UpTimes,
    changes: Family<WayLabel, Counter>,
    reloads: Family<OutcomeLabel, Counter>,
    configured_at: Gauge<u64, AtomicU64>,
}

/// How a reload of the configuration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// All changes were taken over.
    Applied,
    /// There was nothing to change.
    Unchanged,
    /// Something was refused, and nothing was taken over.
    Refused,
}

impl ReloadOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Unchanged, Self::Refused];

    /// Returns the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

/// Names of the classes of a status code, in order.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// A WebSocket that is open.
#[derive(Debug)]
pub struct OpenWebSocket(Gauge<u64, AtomicU64>);

impl Drop for OpenWebSocket {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let (responses, jobs) = (Family::<Class, Counter>::default(), Family::<EndLabel, Counter>::default());
        let prerequisites = Family::<UnmetAnswer, Counter>::default();
        let metrics = Self {
            answered: CLASSES.map(|class| responses.get_or_create_owned(&Class { class })),
            environment_jobs: ["completed", "failed"].map(|end| jobs.get_or_create_owned(&EndLabel { end })),
            environment_unmet: ["unmet", "met"]
                .map(|answer| prerequisites.get_or_create_owned(&UnmetAnswer { answer })),
            responses,
            jobs,
            prerequisites,
            durations: Durations::default(),
            phases: Durations::default(),
            latency: Latency::default(),
            spans: Family::default(),
            workspaces: Family::default(),
            websockets_opened: Counter::default(),
            websockets: Gauge::default(),
            relayed: Counter::default(),
            failed: Family::default(),
            audit_lost: Counter::default(),
            audit_unstored: Counter::default(),
            tcp_opened: Counter::default(),
            tcp_ended: Family::default(),
            intents: Family::default(),
            reports: Family::default(),
            configs_held_back: Counter::default(),
            environments_due: Gauge::default(),
            runs: Counter::default(),
            run_ends: Family::default(),
            run_up: UpTimes::default(),
            changes: Family::default(),
            reloads: Family::default(),
            configured_at: Gauge::default(),
        };
        for outcome in ReloadOutcome::ALL {
            drop(metrics.reloads.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }));
        }
        for way in ChangeWay::ALL {
            drop(metrics.changes.get_or_create(&WayLabel { way: way.as_str() }));
        }
        drop(metrics.span_counters());
        metrics.workspaces("external", 0);
        for state in ActualState::ALL {
            metrics.workspaces(state.as_str(), 0);
        }
        for end in TcpEnd::ALL {
            drop(metrics.tcp_ended.get_or_create(&EndLabel { end: end.as_str() }));
        }
        for end in ReportEnd::ALL {
            drop(metrics.reports.get_or_create(&EndLabel { end: end.as_str() }));
        }
        for end in RunEnd::ALL {
            drop(metrics.run_ends.get_or_create(&EndLabel { end: end.as_str() }));
        }
        for cycle in ["full", "partial"] {
            drop(metrics.intents.get_or_create(&Cycle { cycle }));
        }
        metrics
    }
}

impl Metrics {
    /// Creates the counters of these failures from the start.
    pub fn expect_failures(&self, failures: impl IntoIterator<Item = FailureLabels>) {
        for labels in failures {
            drop(self.failed.get_or_create(&labels));
        }
    }

    /// Notes the time at which the configuration in force was read, in seconds since 1970.
    pub fn configured(&self, at: u64) {
        self.configured_at.set(at);
    }

    /// Counts a reload of the configuration; a good one at that time.
    pub fn reloaded(&self, outcome: ReloadOutcome, at: u64) {
        self.reloads.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).inc();
        if outcome != ReloadOutcome::Refused {
            self.configured(at);
        }
    }

    /// Counts the time until the answer to a request began.
    pub fn took(&self, by: AnsweredBy, took: Duration) {
        self.durations.observe(by, took);
    }

    /// Counts the phases of a request that an app answered.
    pub fn phases(&self, times: &PhaseTimes) {
        self.phases.observe(Phase::Queue, times.queue);
        self.phases.observe(Phase::Tunnel, times.tunnel);
        self.phases.observe(Phase::App, times.app);
    }

    /// Returns the same counters, with the histogram of answers of other systems shared.
    #[must_use]
    pub fn sharing(self, latency: Latency) -> Self {
        Self { latency, ..self }
    }

    /// Returns the histogram of answers of other systems.
    #[must_use]
    pub fn latency(&self) -> Latency {
        self.latency.clone()
    }

    /// Returns the counters of spans.
    #[must_use]
    pub fn span_counters(&self) -> SpanCounters {
        let counter = |end| self.spans.get_or_create_owned(&EndLabel { end });
        SpanCounters { sent: counter("sent"), lost: counter("lost") }
    }

    /// Sets the number of workspaces in a state.
    pub fn workspaces(&self, state: &'static str, count: u64) {
        self.workspaces.get_or_create(&StateLabel { state }).set(count);
    }

    /// Counts a WebSocket as open until the returned guard is dropped.
    pub fn websocket(&self) -> OpenWebSocket {
        self.websockets_opened.inc();
        self.websockets.inc();
        OpenWebSocket(self.websockets.clone())
    }

    /// Counts a response of an app.
    pub fn answered(&self, status: StatusCode) {
        // No lock and no look-up per request: one counter per class.
        if let Some(counter) = self.answered.get(usize::from(status.as_u16() / 100).saturating_sub(1)) {
            counter.inc();
        }
    }

    /// Counts a request that goes over a relay lane, by way of another replica.
    pub fn relayed(&self) {
        self.relayed.inc();
    }

    /// Counts a failure that the gateway answered itself.
    pub fn failed(&self, labels: &FailureLabels) {
        self.failed.get_or_create(labels).inc();
    }

    /// Returns the counter of records lost to the audit log.
    pub fn audit_lost(&self) -> Counter {
        self.audit_lost.clone()
    }

    /// Returns the counter of audit records that are missing from the database.
    pub fn audit_unstored(&self) -> Counter {
        self.audit_unstored.clone()
    }

    /// Counts a raw TCP stream that was opened.
    pub fn tcp_opened(&self) {
        self.tcp_opened.inc();
    }

    /// Counts a raw TCP stream that is over.
    pub fn tcp_ended(&self, end: TcpEnd) {
        self.tcp_ended.get_or_create(&EndLabel { end: end.as_str() }).inc();
    }

    /// Counts an intent that was sent to a cluster agent, with or without secrets.
    pub fn intent_sent(&self, is_full: bool) {
        self.intents.get_or_create(&Cycle { cycle: if is_full { "full" } else { "partial" } }).inc();
    }

    /// Counts a report of a cluster agent.
    pub fn reported(&self, end: ReportEnd) {
        self.reports.get_or_create(&EndLabel { end: end.as_str() }).inc();
    }

    /// Counts a config that was held back because it would have made a cluster agent delete what is needed.
    pub fn config_held_back(&self) {
        self.configs_held_back.inc();
    }

    /// Counts the end of an environment's preparation.
    pub fn environment_job(&self, end: JobEnd) {
        let [completed, failed] = &self.environment_jobs;
        match end {
            JobEnd::Completed => completed.inc(),
            JobEnd::Failed => failed.inc(),
        };
    }

    /// Sets the number of environments that have something to be made or removed.
    pub fn environments_due(&self, count: usize) {
        self.environments_due.set(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Counts an answer to the question whether something has to be made before a job runs.
    pub fn environment_unmet(&self, is_unmet: bool) {
        // One counter per answer: no lock and no look-up.
        let [unmet, met] = &self.environment_unmet;
        if is_unmet {
            unmet.inc()
        } else {
            met.inc()
        };
    }

    /// Counts a job that a CI system is asked for.
    pub fn run_began(&self) {
        self.runs.inc();
    }

    /// Records the time until a job's agent connected.
    pub fn run_up(&self, after: Duration) {
        self.run_up.0.observe(after.as_secs_f64());
    }

    /// Counts the end of a job.
    pub fn run_ended(&self, end: RunEnd) {
        self.run_ends.get_or_create(&EndLabel { end: end.as_str() }).inc();
    }

    /// Counts changes that travel between replicas.
    pub fn changes(&self, way: ChangeWay, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.changes.get_or_create(&WayLabel { way: way.as_str() }).inc_by(count);
    }

    /// Returns how many changes took that way.
    #[must_use]
    pub fn changes_counted(&self, way: ChangeWay) -> u64 {
        self.changes.get_or_create(&WayLabel { way: way.as_str() }).get()
    }

    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        process::register(registry);
        let build = Family::<Build, Gauge<u64, AtomicU64>>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("gateway_build_info", "The version of this program", build);
        let help = "Reloads of the configuration; of a refused one nothing was taken over";
        registry.register("gateway_reloads", help, self.reloads.clone());
        let help = "Time at which the configuration in force was read, at the start or by the last good reload";
        registry.register_with_unit("gateway_configured_timestamp", help, Unit::Seconds, self.configured_at.clone());
        registry.register("gateway_responses", "Responses of apps, by class of status", self.responses.clone());
        let help = "Requests and streams that went by way of another replica, where their agent is";
        registry.register("gateway_relayed_requests", help, self.relayed.clone());
        let took = "Time from the head of a request to the head of its answer";
        registry.register_with_unit("gateway_request_duration", took, Unit::Seconds, self.durations.clone());
        let phases = "Parts of the time from the head of a request to the head of an app's answer";
        registry.register_with_unit("gateway_request_phase", phases, Unit::Seconds, self.phases.clone());
        let latency = "Time that the answers of other systems took";
        registry.register_with_unit("gateway_dependency", latency, Unit::Seconds, self.latency.0.clone());
        let workspaces = "Workspaces of the database, by actual state, as last counted; `external` have no executor";
        registry.register("gateway_workspaces", workspaces, self.workspaces.clone());
        registry.register("gateway_spans", "Spans of traces, by what became of them", self.spans.clone());
        let opened = self.websockets_opened.clone();
        registry.register("gateway_websockets_opened", "WebSockets that were opened", opened);
        registry.register("gateway_websockets", "WebSockets that are open", self.websockets.clone());
        registry.register(
            "gateway_environment_jobs",
            "Preparations of environments, by how they ended",
            self.jobs.clone(),
        );
        let help = "Answers whether a job's environment has to be prepared first";
        registry.register("gateway_environment_prerequisites", help, self.prerequisites.clone());
        registry.register(
            "gateway_environments_due",
            "Environments of which something is to be made or removed",
            self.environments_due.clone(),
        );
        registry.register("gateway_tcp_opened", "Raw TCP streams that were opened", self.tcp_opened.clone());
        registry.register(
            "gateway_tcp_ended",
            "Raw TCP streams that are over, by how they ended",
            self.tcp_ended.clone(),
        );
        registry.register("gateway_intents", "Intents that cluster agents were told", self.intents.clone());
        registry.register(
            "gateway_cluster_reports",
            "Reports of cluster agents, by what came of them",
            self.reports.clone(),
        );
        let held_back =
            "Configs held back because they would have made a cluster agent delete what is needed: each is a bug";
        registry.register("gateway_configs_held_back", held_back, self.configs_held_back.clone());
        registry.register("gateway_ci_runs", "Jobs that CI systems were asked for", self.runs.clone());
        registry.register("gateway_ci_runs_ended", "Such jobs that are over, by how they ended", self.run_ends.clone());
        let up = "Time from asking for such a job until its agent was there";
        registry.register_with_unit("gateway_ci_run_up", up, Unit::Seconds, self.run_up.0.clone());
        let travelled = "Changes of workspaces and environments between replicas, by their way";
        registry.register("gateway_replica_changes", travelled, self.changes.clone());
        registry.register("gateway_failures", "Requests that the gateway answered with a failure", self.failed.clone());
        registry.register("gateway_audit_lost", "Records missing from the audit log", self.audit_lost.clone());
        let unstored = "Audit records missing from the database, where they can be searched";
        registry.register("gateway_audit_unstored", unstored, self.audit_unstored.clone());
        let lost = ConstCounter::new(program_log::stderr().lost());
        registry.register("gateway_log_lost_lines", "Lines missing from the log", lost);
    }
}

/// Label of [`bytes()`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByteDirection {
    direction: &'static str,
}

/// Registers the bytes of all sessions, by direction.
pub fn bytes(registry: &mut Registry, counts: [(&'static str, u64); 2]) {
    let bytes = Family::<ByteDirection, Counter>::default();
    for (direction, count) in counts {
        bytes.get_or_create(&ByteDirection { direction }).inc_by(count);
    }
    registry.register_with_unit("gateway_tunnel", "Payload of all sessions", Unit::Bytes, bytes);
}

/// Registers the agents that lost their link, by when they were back.
pub fn agent_returns(registry: &mut Registry, counts: [(&'static str, u64); 3]) {
    let returns = Family::<EndLabel, Counter>::default();
    for (end, count) in counts {
        returns.get_or_create(&EndLabel { end }).inc_by(count);
    }
    let help = "Agents that lost their link: back within 10 seconds, later, or never while their session was kept";
    registry.register("gateway_agent_returns", help, returns);
}

/// Gauge that is set when metrics are requested.
pub fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge<u64, AtomicU64> {
    let gauge = Gauge::<u64, AtomicU64>::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// Starts logging to standard error, without ever waiting for its reader. `GATEWAY_LOG` overrides the level with a
/// filter such as `gateway::edge=debug`.
pub fn start_logging(log: &Log) {
    let filter = EnvFilter::try_from_env("GATEWAY_LOG").unwrap_or_else(|_| {
        // The HTTP libraries log every hiccup of every peer.
        EnvFilter::new(format!("{},h2=off,hyper=off,sqlx=warn", log.level))
    });
    let lines = program_log::stderr();
    lines.set_form(match log.format {
        LogFormat::Text => program_log::Form::Text,
        LogFormat::Json => program_log::Form::Json,
    });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(program_log::wants_colours())
        // The library would write them to standard error itself, and panic if it cannot.
        .log_internal_errors(false)
        .with_writer(lines.writer());
    // A second call, as in tests, keeps the first logger.
    match log.format {
        LogFormat::Text => builder.try_init().ok(),
        LogFormat::Json => builder.json().try_init().ok(),
    };
}
