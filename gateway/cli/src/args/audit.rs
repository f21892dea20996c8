//! Flags of `gateway audit`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::Output;
use crate::credentials::Remote;
use gateway_config::parse_duration;
use gateway_types::UnixSeconds;

const AUDIT_EXAMPLES: &str = "\
Examples:
  gateway audit search --workspace app --since 2h
  gateway audit search --actor ann --event user_changed -o json

For operators: over the API (gateway login; auth.admins, auth.admin_group), or on the database on the gateway's own machine.";

const SEARCH_EXAMPLES: &str = "\
Examples:
  gateway audit search                                   the last 50 records of all replicas
  gateway audit search 198.51.100.7 --since 1d           any part of a record: an address, a trace id, a name
  gateway audit search --actor ann --event shares_changed
  gateway audit search --workspace app --since 2026-11-01T00:00:00Z --until 2026-11-08T00:00:00Z --limit 1000 -o json

Records are kept in the database for audit.keep_days; older ones, and by default those of accesses, are in the file audit.path alone.";

/// Flags of `gateway audit`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AUDIT_EXAMPLES)]
pub struct AuditArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: AuditCommand,
}

/// Subcommands of `gateway audit`.
#[derive(Clone, Debug, Subcommand)]
pub enum AuditCommand {
    /// Find records of the audit log of all replicas, the newest first.
    #[command(after_help = SEARCH_EXAMPLES)]
    Search(SearchAuditArgs),
}

/// Flags of `gateway audit search`.
#[derive(Clone, Debug, Args)]
pub struct SearchAuditArgs {
    /// Part of a record, no pattern; upper and lower case are the same.
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// Only what this user did, or `operator/UID`, `job/PROJECT#NUMBER`, `hook`.
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Only about this workspace.
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    /// Only of this name, such as `user_changed`.
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
    /// Not earlier: a time (RFC 3339), or how long ago, such as `2h` or `7d`.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<AuditTime>,
    /// Earlier than that.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<AuditTime>,
    /// Most records.
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Shape of what is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// The gateway.
    #[command(flatten)]
    pub remote: Remote,
}

/// A time in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditTime {
    /// A time.
    At(UnixSeconds),
    /// So long ago.
    Ago(Duration),
}

impl AuditTime {
    /// Returns the time.
    #[must_use]
    pub fn at(self, now: UnixSeconds) -> UnixSeconds {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => {
                UnixSeconds::new(now.get().saturating_sub(i64::try_from(ago.as_secs()).unwrap_or(i64::MAX)))
            }
        }
    }
}

fn parse_time(text: &str) -> Result<AuditTime, String> {
    if let Ok(time) = text.parse() {
        return Ok(AuditTime::At(time));
    }
    let wrong = |_| "a time such as 2026-11-01T00:00:00Z, or how long ago: 30m, 2h, 7d".to_owned();
    parse_duration(text).map(AuditTime::Ago).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_time_or_how_long_ago() {
        let now = UnixSeconds::new(1_000_000);
        let read = |text: &str| parse_time(text).map(|time| time.at(now).get());
        assert_eq!(read("1970-01-01T00:00:07Z"), Ok(7));
        assert_eq!(
            [read("30s"), read("5m"), read("2h"), read("1d")],
            [Ok(999_970), Ok(999_700), Ok(992_800), Ok(913_600)]
        );
        for text in ["", "h", "2", "2w", "-2h", "99999999999999999999d", "\u{fffd}"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
