//! Table of the page: each figure, its target, and the way in which both are read from the measurements.

use super::book::Section;
use super::spread::{Spread, figure};

/// The gateway with a plain link.
pub const OURS: &str = "gateway";
/// The gateway with TLS 1.3 on the link, and plain users.
pub const OURS_TLS: &str = "gateway-tls";
/// The gateway with TLS for users, and a plain link.
pub const OURS_TLS_USERS: &str = "gateway-tls-users";
/// The gateway with TLS for users and on the link.
pub const OURS_TLS_BOTH: &str = "gateway-tls-both";
/// The app without anything in between.
pub const DIRECT: &str = "direct";
/// Two hops in C, the shape of any tunnel.
pub const SHAPE: &str = "nginx-nginx";
/// The same with TLS between them.
pub const SHAPE_TLS: &str = "nginx-nginx-tls";
/// Tunnels that route HTTP by host.
pub const BY_HOST: [&str; 4] = ["nginx+rathole", "frp-http", "frp-http-plain", "nginx+ssh-R"];

/// One part of a row: its measured figure and whether that reaches the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FigureLine {
    /// Name of the part.
    pub what: String,
    /// The figure with its spread.
    pub measured: String,
    /// Whether the target is met; `None` if it was not measured.
    pub met: Option<bool>,
    /// Whether there is a target for this part; others are reported for comparison, and always met.
    pub judged: bool,
}

impl FigureLine {
    fn new(what: impl Into<String>, measured: impl Into<String>, met: bool) -> Self {
        Self { what: what.into(), measured: measured.into(), met: Some(met), judged: true }
    }

    fn absent(what: impl Into<String>) -> Self {
        Self { what: what.into(), measured: "not measured".to_owned(), met: None, judged: true }
    }
}

/// One row of the table, with a section of its own on the page.
#[derive(Debug)]
pub struct ResultRow {
    /// Anchor, and key of the account.
    pub key: &'static str,
    /// Measured figure.
    pub figure: &'static str,
    /// Target in words.
    pub target: &'static str,
    /// The section of the book that holds it.
    pub section: &'static str,
    /// The loads whose raw figures belong to it.
    pub loads: &'static [&'static str],
    /// Reads the row from a section.
    pub judge: fn(&Section) -> Vec<FigureLine>,
}

/// The rows in the order of the page.
pub static ROWS: &[ResultRow] = &[
    ResultRow {
        key: "requests",
        figure: "requests/s, 128 B and 10 KiB, 64 kept-alive connections, against nginx to nginx",
        target: "≥ 1.0",
        section: "throughput",
        loads: &["keep128", "keep10k"],
        judge: |section| ratios(section, &["keep128", "keep10k"], "per_s", [OURS, SHAPE], 1.0),
    },
    ResultRow {
        key: "by-host",
        figure: "the same against the fastest tunnel that routes HTTP by host",
        target: "≥ 1.5",
        section: "throughput",
        loads: &[],
        judge: |section| ["keep128", "keep10k"].map(|load| against_fastest(section, load)).to_vec(),
    },
    ResultRow {
        key: "churn-and-websocket",
        figure: "new connection per request; WebSocket messages/s at 64; against nginx to nginx",
        target: "≥ 1.0",
        section: "throughput",
        loads: &["new128", "ws64"],
        judge: |section| ratios(section, &["new128", "ws64"], "per_s", [OURS, SHAPE], 1.0),
    },
    ResultRow {
        key: "bulk",
        figure: "download and upload, 1 and 8 streams, against nginx to nginx; with TLS on the link, against nginx to nginx over TLS",
        target: "≥ 1.0",
        section: "throughput",
        loads: &["down1", "down8", "up1", "up8"],
        judge: bulk,
    },
    ResultRow {
        key: "latency",
        figure: "added latency at concurrency 1, p50 and p99",
        target: "≤ nginx to nginx",
        section: "throughput",
        loads: &["one128"],
        judge: |section| [("p50", "p50_us"), ("p99", "p99_us")].map(|(what, key)| added(section, what, key)).to_vec(),
    },
    ResultRow {
        key: "cpu",
        figure: "CPU seconds per GiB and per 100,000 requests, gateway and agent together",
        target: "≤ nginx to nginx",
        section: "throughput",
        loads: &[],
        judge: cpu,
    },
    ResultRow {
        key: "quiet-channel",
        figure: "quiet channel beside 8 bulk transfers on 20 Mbit/s, 40 ms: added p99",
        target: "≤ 10 ms",
        section: "quiet",
        loads: &["noisy-neighbour", "noisy-neighbour-short"],
        judge: quiet,
    },
    ResultRow {
        key: "long-link",
        figure: "one download over an 80 ms link against plain TCP",
        target: "≥ 0.9 (1 % loss: ≥ 0.8)",
        section: "long-link",
        loads: &[],
        judge: long_link,
    },
    ResultRow {
        key: "cuts",
        figure: "link cut 100 times under WebSocket, download and upload",
        target: "0 bytes lost, 0 connections dropped; time to resume p99 ≤ redial + 1 round trip + 50 ms",
        section: "cuts",
        loads: &["link-cut"],
        judge: cuts,
    },
    ResultRow {
        key: "memory",
        figure: "gateway memory per idle agent, per idle WebSocket",
        target: "≤ 20 KiB, ≤ 20 KiB (with TLS of its own 40 KiB)",
        section: "memory",
        loads: &[],
        judge: memory,
    },
    ResultRow {
        key: "storm",
        figure: "10,000 agents after a gateway kill",
        target: "all back ≤ 20 s; p99 of served requests meanwhile",
        section: "storm",
        loads: &["storm"],
        judge: storm,
    },
    ResultRow {
        key: "stalled-readers",
        figure: "1,000 stalled readers",
        target: "memory ≤ budget + 32 MiB; other users' p99 unchanged (±10 %)",
        section: "stalled",
        loads: &["slow-reader"],
        judge: stalled,
    },
];

/// Returns a load's title for readers.
#[must_use]
pub fn title(load: &str) -> &str {
    match load {
        "keep128" => "128 B, 64 kept-alive connections",
        "keep10k" => "10 KiB, 64 kept-alive connections",
        "new128" => "a new connection per request, 64 at a time",
        "one128" => "128 B, one connection",
        "down1" => "download, 1 stream",
        "down8" => "download, 8 streams",
        "up1" => "upload, 1 stream",
        "up8" => "upload, 8 streams",
        "ws64" => "WebSocket messages, 64 connections",
        "idle-agents" => "idle agents",
        "idle-websockets" => "idle WebSockets",
        "noisy-neighbour" => "quiet channel beside 8 bulk transfers",
        "noisy-neighbour-short" => "the same over a link with a queue of 2 ms",
        "storm" => "agents after a gateway kill",
        "link-cut" => "link cut again and again",
        "slow-reader" => "readers that stop reading",
        other => other,
    }
}

fn ratios(section: &Section, loads: &[&str], value: &str, pair: [&str; 2], at_least: f64) -> Vec<FigureLine> {
    loads.iter().map(|load| ratio(section, load, value, pair, at_least)).collect()
}

fn ratio(section: &Section, load: &str, value: &str, pair: [&str; 2], at_least: f64) -> FigureLine {
    let what = format!("{}, {} / {}", title(load), pair[0], pair[1]);
    let Some(spread) = section.ratio(load, value, pair) else { return FigureLine::absent(what) };
    FigureLine::new(what, spread.to_string(), spread.median >= at_least)
}

fn against_fastest(section: &Section, load: &str) -> FigureLine {
    let speed = |subject: &&str| section.spread(load, subject, "per_s").map(|spread| spread.median);
    let measured = BY_HOST.iter().filter(|subject| speed(subject).is_some());
    let fastest =
        measured.max_by(|left, right| f64::total_cmp(&speed(left).unwrap_or(0.0), &speed(right).unwrap_or(0.0)));
    match fastest {
        Some(fastest) => ratio(section, load, "per_s", [OURS, fastest], 1.5),
        None => FigureLine::absent(format!("{}: no such tunnel was here", title(load))),
    }
}

fn bulk(section: &Section) -> Vec<FigureLine> {
    let loads = ["down1", "down8", "up1", "up8"];
    let mut lines = ratios(section, &loads, "mb_s", [OURS, SHAPE], 1.0);
    lines.extend(ratios(section, &loads, "mb_s", [OURS_TLS, SHAPE_TLS], 1.0));
    lines
}

/// Compares the latency that two subjects add to the app's own. The app's share is the same for both, so it drops out
/// of the verdict; it is shown because readers ask for "added".
fn added(section: &Section, what: &str, value: &str) -> FigureLine {
    let what = format!("added {what}, µs");
    let over = |pair| section.paired("one128", value, pair, |ours, theirs| ours - theirs);
    let (Some(ours), Some(shape), Some(difference)) =
        (over([OURS, DIRECT]), over([SHAPE, DIRECT]), over([OURS, SHAPE]))
    else {
        return FigureLine::absent(what);
    };
    let measured = format!("{ours}; {SHAPE} {shape}; difference {difference}");
    FigureLine::new(what, measured, difference.median <= 0.0)
}

fn cpu(section: &Section) -> Vec<FigureLine> {
    let parts = [
        ("down1", "cpu_s_per_gib", "per GiB down"),
        ("up1", "cpu_s_per_gib", "per GiB up"),
        ("keep128", "cpu_s_per_100k", "per 100,000 requests of 128 B"),
        ("keep10k", "cpu_s_per_100k", "per 100,000 requests of 10 KiB"),
        ("new128", "cpu_s_per_100k", "per 100,000 requests on new connections"),
    ];
    let line = |(load, value, what): (&str, &str, &str)| {
        let values = [OURS, SHAPE].map(|subject| section.spread(load, subject, value));
        let (Some(ratio), [Some(ours), Some(shape)]) = (section.ratio(load, value, [OURS, SHAPE]), values) else {
            return FigureLine::absent(what);
        };
        FigureLine::new(what, format!("{ours} s; {SHAPE} {shape} s; ratio {ratio}"), ratio.median <= 1.0)
    };
    parts.map(line).to_vec()
}

fn at_most(section: &Section, load: &str, what: &str, value: &str, limit: f64) -> FigureLine {
    match section.spread(load, OURS, value) {
        Some(spread) => FigureLine::new(what, spread.to_string(), spread.median <= limit),
        None => FigureLine::absent(what),
    }
}

/// Reads the quiet channel's figures. The link's own queue is part of the added time, for each subject alike; the second
/// load has a shorter one.
fn quiet(section: &Section) -> Vec<FigureLine> {
    let with_queue = |load: &str, line: FigureLine| match section.spread(load, OURS, "link_queue_ms") {
        Some(queue) => {
            FigureLine { measured: format!("{}; up to {queue} of it in the link's queue", line.measured), ..line }
        }
        None => line,
    };
    let added = at_most(section, "noisy-neighbour", "added p99, ms", "added_p99_ms", 10.0);
    let what = "the same with a shorter queue before the link, ms (for comparison)";
    let short = reported(section, "noisy-neighbour-short", what, "added_p99_ms");
    vec![
        with_queue("noisy-neighbour", added),
        with_queue("noisy-neighbour-short", short),
        reported(section, "noisy-neighbour", "the same without a scheduler, ms (for comparison)", "fifo_added_p99_ms"),
    ]
}

/// A figure that has no target.
fn reported(section: &Section, load: &str, what: &str, value: &str) -> FigureLine {
    FigureLine { judged: false, ..at_most(section, load, what, value, f64::INFINITY) }
}

/// The loads of the section are named after their links, such as `100mbit` and `100mbit, 1 % loss`.
fn long_link(section: &Section) -> Vec<FigureLine> {
    let loads = section.loads();
    if loads.is_empty() {
        return vec![FigureLine::absent("download")];
    }
    let line =
        |load: &&str| ratio(section, load, "mb_s", [OURS, DIRECT], if load.contains("loss") { 0.8 } else { 0.9 });
    loads.iter().map(line).collect()
}

fn cuts(section: &Section) -> Vec<FigureLine> {
    let none = |what: &str, value: &str| {
        let of = |subject| section.spread("link-cut", subject, value).map(|spread| spread.max);
        let worst = [OURS, OURS_TLS].into_iter().filter_map(of).reduce(f64::max);
        worst.map_or_else(|| FigureLine::absent(what), |worst| FigureLine::new(what, figure(worst), worst <= 0.0))
    };
    let mut lines = vec![
        none("bytes lost, repeated or out of order", "bytes_wrong"),
        none("connections dropped", "connections_dropped"),
    ];
    let value = |key| section.spread("link-cut", OURS, key);
    let what = "time to resume p99, ms";
    lines.push(match (value("resume_p99_ms"), value("resume_allowed_ms")) {
        (Some(spread), Some(allowed)) => {
            let measured = format!("{spread}; allowed {}", figure(allowed.median));
            FigureLine::new(what, measured, spread.median <= allowed.median)
        }
        _ => FigureLine::absent(what),
    });
    lines
}

fn memory(section: &Section) -> Vec<FigureLine> {
    let line = |(load, subject, what, limit): (&str, &str, &str, f64)| {
        let Some(spread) = section.spread(load, subject, "gateway_kib_each") else { return FigureLine::absent(what) };
        FigureLine::new(what, format!("{spread} KiB"), spread.median <= limit)
    };
    [
        ("idle-agents", OURS, "per idle agent", 20.0),
        ("idle-agents", OURS_TLS, "per idle agent with TLS", 40.0),
        ("idle-websockets", OURS, "per idle WebSocket", 20.0),
        ("idle-websockets", OURS_TLS, "per idle WebSocket, TLS on the link", 20.0),
        ("idle-websockets", OURS_TLS_BOTH, "per idle WebSocket, TLS for users and on the link", 40.0),
    ]
    .map(line)
    .to_vec()
}

fn storm(section: &Section) -> Vec<FigureLine> {
    vec![
        at_most(section, "storm", "all back, s", "all_back_s", 20.0),
        reported(section, "storm", "p99 of served requests meanwhile, ms (reported)", "served_p99_ms"),
    ]
}

fn stalled(section: &Section) -> Vec<FigureLine> {
    let change = section.spread("slow-reader", OURS, "p99_change");
    let unchanged = |spread: Spread| {
        let percent = |part: f64| figure(part * 100.0);
        let measured = format!("{} % ({}–{})", percent(spread.median), percent(spread.min), percent(spread.max));
        FigureLine::new("change of other users' p99", measured, spread.median.abs() <= 0.10)
    };
    vec![
        at_most(section, "slow-reader", "memory over the budget, MiB", "over_budget_mib", 32.0),
        change.map_or_else(|| FigureLine::absent("change of other users' p99"), unchanged),
    ]
}

#[cfg(test)]
mod tests;
