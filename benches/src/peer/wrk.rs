//! Program wrk as the generator, to compare the lab's own with it.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::compare::Work;
use super::program::{Invocation, PeerProgram, Programs};
use crate::profile::ProfileName;
use crate::target::{LoadTarget, TOKEN_HEADER};
use crate::units::ArrivalRate;

/// wrk itself.
pub const PROGRAMS: Programs = Programs(&[PeerProgram { name: "wrk", version: "-v", source: "Debian package wrk" }]);

/// Report of wrk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WrkReport {
    /// Measured time.
    pub seconds: f64,
    /// Answers.
    pub requests: f64,
    /// Failed connections, reads and writes, timeouts, and statuses that are no success.
    pub errors: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// Returns whether wrk can make this load: requests in a closed loop.
#[must_use]
pub fn can(work: &Work) -> bool {
    let known = matches!(work.profile, ProfileName::Http | ProfileName::Churn);
    known && work.load.rate == ArrivalRate::Max && PROGRAMS.missing().is_none()
}

/// Runs wrk against a target.
///
/// # Errors
/// Fails if wrk is not here, fails, or prints no figures.
pub async fn run(work: &Work, target: &LoadTarget, lasts: Duration, place: &Path) -> anyhow::Result<WrkReport> {
    let script = place.join("wrk.lua");
    write_script(&script, target, work.profile == ProfileName::Churn)?;
    let connections = work.load.connections;
    let output = Invocation::new("wrk")
        .arg(format!("-t{}", connections.min(work.load.workers.max(1))))
        .arg(format!("-c{connections}"))
        .arg(format!("-d{}s", lasts.as_secs().max(1)))
        .args(["--timeout", "10s", "-s"])
        .arg(script)
        .arg(format!("{}://{}/bytes/{}", target.scheme.as_str(), target.address, work.load.size))
        .output(place);
    let output = tokio::time::timeout(lasts + Duration::from_secs(30), output).await.context("wrk does not end")??;
    parse(&output).with_context(|| format!("wrk printed no figures: {}", output.trim()))
}

/// Writes the headers into the script and not on the command line, which all users of the machine can read.
fn write_script(path: &Path, target: &LoadTarget, closes: bool) -> anyhow::Result<()> {
    let mut text = format!("wrk.headers[\"Host\"] = \"{}\"\n", target.host);
    if let Some(token) = &target.token {
        text.push_str(&format!("wrk.headers[\"{TOKEN_HEADER}\"] = \"Bearer {token}\"\n"));
    }
    if closes {
        text.push_str("wrk.headers[\"Connection\"] = \"close\"\n");
    }
    text.push_str(
        "function done(summary, latency)\n  local failed = 0\n  \
         for _, count in pairs(summary.errors) do failed = failed + count end\n  \
         print(string.format(\"LOADLAB %d %d %d %d %d\", summary.duration, summary.requests, failed,\n    \
         latency:percentile(50), latency:percentile(99)))\nend\n",
    );
    let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn parse(output: &str) -> Option<WrkReport> {
    let line = output.lines().find_map(|line| line.strip_prefix("LOADLAB "))?;
    let mut numbers = line.split_whitespace().map_while(|number| number.parse::<f64>().ok());
    let (micros, requests, errors) = (numbers.next()?, numbers.next()?, numbers.next()?);
    Some(WrkReport { seconds: micros / 1e6, requests, errors, p50_us: numbers.next()?, p99_us: numbers.next()? })
        .filter(|run| run.seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_printed_line() {
        let run = parse("Running 2s test\nLOADLAB 2000000 50000 3 800 2100\n").unwrap();
        assert_eq!(run, WrkReport { seconds: 2.0, requests: 50_000.0, errors: 3.0, p50_us: 800.0, p99_us: 2100.0 });
        assert_eq!(parse("LOADLAB 2000000 50000\n"), None);
    }

    #[test]
    fn token_is_in_a_file_that_only_its_owner_reads() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wrk.lua");
        let mut target = LoadTarget::plain("127.0.0.1:1".parse().unwrap(), "a.test");
        target.token = Some("secret".to_owned());
        write_script(&path, &target, true).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("Bearer secret") && text.contains("close"), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
