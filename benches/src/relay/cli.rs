//! The command `loadlab relay`.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::spec::{BadLink, parse_duration, parse_loss, parse_rate};
use super::{Handle, LinkSpec, Relay, Toxic, check};

/// A link with delay, rate and faults between any two TCP programs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  An agent behind a 20 Mbit/s path with a 40 ms round trip:
    loadlab relay --listen 127.0.0.1:9081 --to gateway.example.com:8081 --rate 20mbit --delay 20ms
    workspace-agent run --gateway http://127.0.0.1:9081 --token-file token

  The same, reset every ten seconds, and once standing still for five:
    loadlab relay --listen 127.0.0.1:9081 --to gateway.example.com:8081 --rate 20mbit --delay 20ms \\
      --toxic cut@10s/10s --toxic stall@25s+5s

  Measure what such a link really is on this machine:
    loadlab relay --check --rate 1gbit --delay 40ms

Faults: cut (RST to both sides), close (FIN to both sides), half-open (the path forgets the connections), stall (the
link stands still). KIND@TIME, +LENGTH for a stall, /INTERVAL to repeat.
The rate is of payload, per direction, for all connections together. Loss is a pause of one retransmission: to see
congestion control, lose real packets.

Exit status: 0 stopped by a signal, 1 failed, 2 wrong usage.")]
pub struct RelayArgs {
    /// Address to listen on; port 0 picks a free one, which is printed.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// Address to connect to: HOST:PORT.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "check")]
    pub to: Option<String>,

    /// Payload bits per second, such as 20mbit; as fast as the machine if not given.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<BitRate>,

    /// One way, such as 20ms.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_duration)]
    pub delay: Duration,

    /// Added to the delay, from zero to this.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_duration)]
    pub jitter: Duration,

    /// Share of packets lost, such as 1%.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_loss)]
    pub loss: f64,

    /// Bound on the queue before the link, as a time at its rate.
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = parse_duration)]
    pub queue: Duration,

    /// A fault at a time. Repeatable.
    #[arg(long = "toxic", value_name = "KIND@TIME")]
    pub toxics: Vec<Toxic>,

    /// Measure the link instead: rate, round trips, how long bytes wait.
    #[arg(long, conflicts_with_all = ["to", "toxics"])]
    pub check: bool,
}

/// Payload bits per second; `None` is unlimited.
#[derive(Clone, Copy, Debug)]
pub struct BitRate(pub Option<u64>);

fn rate(text: &str) -> Result<BitRate, BadLink> {
    parse_rate(text).map(BitRate)
}

impl RelayArgs {
    /// Returns the link's properties.
    #[must_use]
    pub fn spec(&self) -> LinkSpec {
        LinkSpec {
            rate_bits: self.rate.and_then(|BitRate(bits)| bits),
            delay: self.delay,
            jitter: self.jitter,
            loss: self.loss,
            queue: self.queue,
        }
    }
}

/// Runs `loadlab relay` until `stop`.
///
/// # Errors
/// The address cannot be resolved or bound, or a check finds a link that is not what it should be.
pub async fn run(arguments: RelayArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let spec = arguments.spec();
    if arguments.check {
        return match stop.run_until_cancelled(check(spec, Duration::from_secs(5))).await {
            Some(checked) => report(&spec, &checked?),
            None => Ok(()),
        };
    }
    let Some(to) = arguments.to else { bail!("--to is missing") };
    let address = tokio::net::lookup_host(&to).await.with_context(|| format!("--to {to}"))?.next();
    let address = address.with_context(|| format!("--to {to}: the name has no address"))?;
    let listen = arguments.listen;
    let link = Relay::bind(listen, address, spec).with_context(|| format!("--listen {listen}"))?;
    program_log::stdout().say(link.address());
    program_log::stderr().say(format_args!("relay {} -> {to} ({spec})", link.address()));
    let start = Instant::now();
    let toxics = join_all(arguments.toxics.iter().map(|toxic| toxic.play(&link, start)));
    tokio::select! {
        () = stop.cancelled() => {}
        () = async { tokio::join!(toxics, progress(&link)).1 } => {}
    }
    Ok(())
}

/// Shows the traffic, once a second, on a terminal.
async fn progress(link: &Handle) {
    if !io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut before = link.bytes();
    loop {
        ticks.tick().await;
        let now = link.bytes();
        let mbit = |now: u64, before: u64| now.saturating_sub(before) / 125_000;
        let (up, down) = (mbit(now.0, before.0), mbit(now.1, before.1));
        let live = link.connections();
        let line = format!("\r{live} connections, up {up} Mbit/s, down {down} Mbit/s   ");
        program_log::stderr().push(line.as_bytes());
        before = now;
    }
}

fn report(spec: &LinkSpec, checked: &super::LinkMeasurement) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mbit = |bits: f64| bits / 1e6;
    writeln!(out, "{spec}")?;
    writeln!(out, "  down            {:9.2} Mbit/s", mbit(checked.down_bits))?;
    writeln!(out, "  up              {:9.2} Mbit/s", mbit(checked.up_bits))?;
    writeln!(out, "  round trip idle {:9.2} ms p50, {:.2} ms p99", checked.idle_p50_ms, checked.idle_p99_ms)?;
    writeln!(out, "  round trip busy {:9.2} ms p50, {:.2} ms p99", checked.busy_p50_ms, checked.busy_p99_ms)?;
    writeln!(out, "  bytes waited    {:9.2} ms p50, {:.2} ms p99", checked.waited_p50_ms, checked.waited_p99_ms)?;
    writeln!(out, "  processors      {:9.2} (relay, sender and receiver)", checked.processors)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate in bits per second")]
    let short = spec.rate_bits.filter(|bits| checked.down_bits.min(checked.up_bits) < 0.95 * *bits as f64);
    match short {
        Some(bits) => bail!("the link carried less than 0.95 of {} Mbit/s", bits / 1_000_000),
        None => Ok(()),
    }
}
