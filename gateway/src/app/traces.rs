//! Opens the way of traces to their collector.

use tokio_util::sync::CancellationToken;
use tunnel_link::drain::Drain;

use super::StartError;
use super::assemble::random_start;
use gateway_config::Config;
use gateway_edge::traces::Tracer;
use gateway_net::fetch::{Fetch, Trust};
use gateway_net::telemetry::{Metrics, SpanExporter, SpanSource};

/// The tracer of requests, and the task that sends their spans, not begun yet.
#[derive(Debug, Default)]
pub(super) struct TraceParts {
    pub(super) tracer: Tracer,
    pub(super) spans: SpanTask,
}

/// The task that sends spans, if there is a collector.
#[derive(Debug, Default)]
pub(super) struct SpanTask(Option<SpanExporter>);

impl SpanTask {
    /// Begins to send spans; ends soon after `written`.
    pub(super) fn execute(self, writing: &Drain, written: &CancellationToken) {
        if let Some(exporter) = self.0 {
            writing.spawn(exporter.run(written.clone()));
        }
    }
}

/// Creates both. Without a collector in the configuration no request is traced.
///
/// # Errors
/// [`StartError::Traces`] names the file of authorities that cannot be used.
pub(super) fn open(config: &Config, metrics: &Metrics) -> Result<TraceParts, StartError> {
    let settings = &config.traces;
    let Some(collector) = settings.collector.clone() else { return Ok(TraceParts::default()) };
    let trust = settings.ca_file.clone().map_or(Trust::System, Trust::SystemAnd);
    let fetch = Fetch::new(&trust).map_err(StartError::Traces)?;
    let source = SpanSource { instance: instance(config) };
    let (queue, exporter) = SpanExporter::new(fetch, collector, source, metrics.span_counters());
    let tracer = Tracer::new(queue, settings.one_in, settings.slow, random_start()?);
    Ok(TraceParts { tracer, spans: SpanTask(Some(exporter)) })
}

/// Returns the name of this process among those of its service: host and port for users.
fn instance(config: &Config) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{host}:{}", config.listen.public.port())
}
