//! Logs and metrics. Labels come from enums, never from users.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::{Log, LogFormat};

/// Label of [`Metrics::failed`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: &'static str,
}

/// Label of [`Metrics::tcp_ended`], [`Metrics::reported`] and [`Metrics::run_ended`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct End {
    end: &'static str,
}

/// How a raw TCP stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpEnd {
    /// Both directions finished.
    Finished,
    /// The app's connection was reset.
    App,
    /// The user's connection broke, or the user's program reset it.
    User,
    /// The session or its channel is gone.
    Lost,
    /// This replica is shutting down.
    Draining,
    /// Access ended.
    Access,
}

impl TcpEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::App => "app",
            Self::User => "user",
            Self::Lost => "lost",
            Self::Draining => "draining",
            Self::Access => "access",
        }
    }
}

/// How the preparation of an environment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// Everything is there.
    Completed,
    /// It failed for good.
    Failed,
}

/// Label of [`Metrics::intent_sent`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cycle {
    cycle: &'static str,
}

/// What came of a cluster agent's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportEnd {
    /// It is stored.
    Stored,
    /// It says what is stored already.
    Unchanged,
    /// It is about nothing of that cluster.
    Ignored,
}

impl ReportEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Unchanged => "unchanged",
            Self::Ignored => "ignored",
        }
    }
}

/// How a job that is a workspace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// It was to end.
    Done,
    /// It was to end, and was cut before its files were saved.
    Unsaved,
    /// It was to go on, or did not get that far.
    Failed,
    /// There was none: the CI system was not asked for it in the end, or did not make it.
    NotMade,
}

impl RunEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unsaved => "unsaved",
            Self::Failed => "failed",
            Self::NotMade => "not_made",
        }
    }
}

/// How long jobs took from being asked for to their agents. Units: seconds.
#[derive(Clone, Debug)]
struct UpTimes(Histogram);

impl Default for UpTimes {
    fn default() -> Self {
        // From two seconds to half an hour, which a busy runner may take.
        Self(Histogram::new(exponential_buckets(2.0, 2.0, 11)))
    }
}

/// Counters of the edge and of the executors. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    answered: [Counter; 5],
    failed: Family<Code, Counter>,
    audit_lost: Counter,
    tcp_opened: Counter,
    tcp_ended: Family<End, Counter>,
    intents: Family<Cycle, Counter>,
    reports: Family<End, Counter>,
    law_refusals: Counter,
    /// Completed, failed.
    environment_jobs: [Counter; 2],
    environments_due: Gauge<u64, AtomicU64>,
    /// Unmet, met.
    environment_unmet: [Counter; 2],
    runs: Counter,
    run_ends: Family<End, Counter>,
    run_up: UpTimes,
}

/// Names of the classes of a status code, in order.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Metrics {
    /// Counts a response of an app.
    pub(crate) fn answered(&self, status: StatusCode) {
        // No lock and no look-up per request: one counter per class.
        if let Some(counter) = self.answered.get(usize::from(status.as_u16() / 100).saturating_sub(1)) {
            counter.inc();
        }
    }

    /// Counts a failure that the gateway answered itself.
    pub(crate) fn failed(&self, code: &'static str) {
        self.failed.get_or_create(&Code { code }).inc();
    }

    /// Returns the counter of what should be in the audit log and is not.
    pub(crate) fn audit_lost(&self) -> Counter {
        self.audit_lost.clone()
    }

    /// Counts a raw TCP stream that was opened.
    pub(crate) fn tcp_opened(&self) {
        self.tcp_opened.inc();
    }

    /// Counts a raw TCP stream that is over.
    pub(crate) fn tcp_ended(&self, end: TcpEnd) {
        self.tcp_ended.get_or_create(&End { end: end.as_str() }).inc();
    }

    /// Counts an intent that a cluster agent was told, with or without secrets.
    pub(crate) fn intent_sent(&self, is_full: bool) {
        self.intents.get_or_create(&Cycle { cycle: if is_full { "full" } else { "partial" } }).inc();
    }

    /// Counts a report of a cluster agent.
    pub(crate) fn reported(&self, end: ReportEnd) {
        self.reports.get_or_create(&End { end: end.as_str() }).inc();
    }

    /// Counts a config that was not sent because it would have made a cluster agent delete what is needed.
    pub(crate) fn law_refused(&self) {
        self.law_refusals.inc();
    }

    /// Counts the preparation of an environment that ended.
    pub(crate) fn environment_job(&self, end: JobEnd) {
        let [completed, failed] = &self.environment_jobs;
        match end {
            JobEnd::Completed => completed.inc(),
            JobEnd::Failed => failed.inc(),
        };
    }

    /// Notes of how many environments something is to be made or removed.
    pub(crate) fn environments_due(&self, count: usize) {
        self.environments_due.set(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Counts an answer to the question whether a job needs something first.
    pub(crate) fn environment_unmet(&self, is_unmet: bool) {
        // One counter per answer: no lock and no look-up.
        let [unmet, met] = &self.environment_unmet;
        if is_unmet {
            unmet.inc()
        } else {
            met.inc()
        };
    }

    /// Counts a job that a CI system is asked for.
    pub(crate) fn run_began(&self) {
        self.runs.inc();
    }

    /// Notes after what time a job's agent came.
    pub(crate) fn run_up(&self, after: Duration) {
        self.run_up.0.observe(after.as_secs_f64());
    }

    /// Counts a job that is over.
    pub(crate) fn run_ended(&self, end: RunEnd) {
        self.run_ends.get_or_create(&End { end: end.as_str() }).inc();
    }

    /// Registers the counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        for (class, counter) in CLASSES.into_iter().zip(&self.answered) {
            let labelled = registry.sub_registry_with_label(("class".into(), class.into()));
            labelled.register("gateway_responses", "Responses of apps, by class of status", counter.clone());
        }
        for (end, counter) in ["completed", "failed"].into_iter().zip(&self.environment_jobs) {
            let labelled = registry.sub_registry_with_label(("end".into(), end.into()));
            labelled.register(
                "gateway_environment_jobs",
                "Preparations of environments, by how they ended",
                counter.clone(),
            );
        }
        for (answer, counter) in ["unmet", "met"].into_iter().zip(&self.environment_unmet) {
            let labelled = registry.sub_registry_with_label(("answer".into(), answer.into()));
            let help = "Answers whether a job's environment has to be prepared first";
            labelled.register("gateway_environment_prerequisites", help, counter.clone());
        }
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
        let law = "Configs held back because they would have made a cluster agent delete what is needed: each is a bug";
        registry.register("gateway_law_refusals", law, self.law_refusals.clone());
        registry.register("gateway_ci_runs", "Jobs that CI systems were asked for", self.runs.clone());
        registry.register("gateway_ci_runs_ended", "Such jobs that are over, by how they ended", self.run_ends.clone());
        let up = "Time from asking for such a job until its agent was there";
        registry.register_with_unit("gateway_ci_run_up", up, Unit::Seconds, self.run_up.0.clone());
        registry.register("gateway_failures", "Requests that the gateway answered with a failure", self.failed.clone());
        registry.register("gateway_audit_lost", "Records missing from the audit log", self.audit_lost.clone());
    }
}

/// A number that is read when it is asked for.
pub(crate) fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge<u64, AtomicU64> {
    let gauge = Gauge::<u64, AtomicU64>::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// Starts logging to standard error. `GATEWAY_LOG` overrides the level with a filter such as `gateway::edge=debug`.
pub fn start_logging(log: &Log) {
    let filter = EnvFilter::try_from_env("GATEWAY_LOG").unwrap_or_else(|_| {
        // The HTTP libraries tell about every hiccup of every peer.
        EnvFilter::new(format!("{},h2=off,hyper=off,sqlx=warn", log.level))
    });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(BoxMakeWriter::new(std::io::stderr));
    // A second start, as in tests, keeps the first.
    match log.format {
        LogFormat::Text => builder.try_init().ok(),
        LogFormat::Json => builder.json().try_init().ok(),
    };
}

/// Panics since the start, in any thread.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts every panic from now on, and says in the log where it was. A panic ends its task and nothing else, so without
/// this nobody might notice. What it said is left to the hook that was there before.
pub fn watch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(%place, "a task panicked: this is a bug");
        before(panic);
    }));
}

/// Returns how many panics there were since [`watch_panics`].
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_counted_and_ends_its_own_thread_only() {
        watch_panics();
        let before = panics();
        let ended = std::thread::spawn(|| panic!("on purpose")).join();
        assert!(ended.is_err());
        assert_eq!(panics(), before + 1);
    }
}
