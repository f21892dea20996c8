//! Judges facts. Pure: times and limits are arguments.

pub mod front;

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use tunnel_link::causes;
use tunnel_link::proxy::ProxyError;

use crate::finding::{Finding, FindingId};

/// Difference of two clocks that is worth a warning: leases and one-time codes are counted in seconds.
const CLOCK_WARNING: Duration = Duration::from_secs(10);

/// Difference of two clocks from which signed tokens are refused: the leeway of their times.
const CLOCK_ERROR: Duration = Duration::from_secs(60);

/// Time before the end of a certificate by which its renewal should have come.
const RENEWAL: i64 = 14 * 24 * 3600;

/// Time of a trivial statement from which the way to a database is slow.
pub const SLOW: Duration = Duration::from_millis(50);

/// Open connections that the kernel should queue while a program is busy.
const QUEUE_MIN: u64 = 1024;

/// Free room below which a file system counts as almost full, in bytes.
const ROOM_MIN: u64 = 64 << 20;

/// Free room below which it counts as full.
const ROOM_LEAST: u64 = 1 << 20;

/// Two readings of a clock, in milliseconds since 1970: of this machine before and after the answer, and the other's in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// This machine's, before the question.
    pub before: i64,
    /// This machine's, after the answer.
    pub after: i64,
    /// The other's.
    pub other: i64,
}

impl ClockReading {
    /// Returns how far this machine is ahead of the other, at least; negative if it is behind. `resolution` is the step of the
    /// other's clock, in milliseconds.
    #[must_use]
    pub fn ahead(self, resolution: i64) -> i64 {
        let Self { before, after, other } = self;
        if before > other.saturating_add(resolution) {
            before.saturating_sub(other).saturating_sub(resolution)
        } else {
            after.saturating_sub(other).min(0)
        }
    }
}

/// Reads the time of an HTTP `Date` (RFC 9110, section 5.6.7), in milliseconds since 1970.
#[must_use]
pub fn http_date(text: &str) -> Option<i64> {
    jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp().as_millisecond())
}

/// Judges how far this machine's clock is ahead of another one, in milliseconds.
#[must_use]
pub fn clock(ahead: i64, of: &str) -> Option<Finding> {
    let off = Duration::from_millis(ahead.unsigned_abs());
    if off <= CLOCK_WARNING {
        return None;
    }
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let found = Finding::new(FindingId::ClockOff, format!("this machine is {} s {side} {of}", off.as_secs()));
    Some(if off > CLOCK_ERROR { found } else { found.warning() })
}

/// Compares the addresses of the public host with those of a host below the zone.
#[must_use]
pub fn addresses(public: &BTreeSet<IpAddr>, below: &BTreeSet<IpAddr>, zone: &str) -> Option<Finding> {
    if public.is_empty() || below.is_empty() || !public.is_disjoint(below) {
        return None;
    }
    let what = format!("*.{zone} leads to {}, the public host to {}", list(below), list(public));
    Some(Finding::new(FindingId::DnsWildcardElsewhere, what))
}

/// Writes addresses, with commas.
#[must_use]
pub fn list(addresses: &BTreeSet<IpAddr>) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Judges the end of a certificate; both times in seconds since 1970.
#[must_use]
pub fn certificate_end(not_after: i64, now: i64, of: &str) -> Option<Finding> {
    let left = not_after.saturating_sub(now);
    if left <= 0 {
        return Some(Finding::new(FindingId::CertificateExpired, format!("{of} was valid until {}", day(not_after))));
    }
    (left < RENEWAL)
        .then(|| Finding::new(FindingId::CertificateExpiresSoon, format!("{of} is valid until {}", day(not_after))))
}

/// Writes a time, in seconds since 1970.
#[must_use]
pub fn day(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| format!("second {seconds}"), |time| time.to_string())
}

/// Judges a handshake, or a verification, that failed. `of` names the certificate or its place.
#[must_use]
pub fn tls(error: &(dyn Error + 'static), of: &str) -> Finding {
    let id = match causes::tls_error(error) {
        Some(rustls::Error::InvalidMessage(_)) => FindingId::TlsToPlainPort,
        Some(rustls::Error::InvalidCertificate(wrong)) => certificate_fault(wrong),
        // A server without TLS, or one that closes.
        None if is_no_answer(error) => FindingId::TlsToPlainPort,
        Some(_) | None => FindingId::TlsFailed,
    };
    Finding::new(id, format!("{of}: {}", causes::one_line(error)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library adds kinds, which are all about trust")]
fn certificate_fault(wrong: &CertificateError) -> FindingId {
    match wrong {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => FindingId::CertificateExpired,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            FindingId::CertificateWrongName
        }
        _ => FindingId::CertificateUntrusted,
    }
}

/// Judges why a proxy does not lead to its target.
#[must_use]
pub fn proxy(error: &ProxyError) -> FindingId {
    match error {
        ProxyError::Unauthenticated { .. } | ProxyError::Credentials { .. } | ProxyError::Scheme { .. } => {
            FindingId::ProxyWantsPassword
        }
        ProxyError::Connect(_)
        | ProxyError::TimedOut
        | ProxyError::Tls(_)
        | ProxyError::Forbidden { .. }
        | ProxyError::Unreachable { .. }
        | ProxyError::NotProxy(..)
        | ProxyError::Name { .. } => FindingId::ProxyFailed,
    }
}

/// Returns whether the other side asks for a client's certificate, which is not an agent's fault.
#[must_use]
pub fn wants_client_certificate(error: &(dyn Error + 'static)) -> bool {
    matches!(causes::tls_error(error), Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)))
}

/// Returns whether a connection ended where a handshake was due.
fn is_no_answer(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
        }
        next = error.source();
    }
    false
}

/// Judges a failed attempt to write at a place. `of` names the key and the place.
#[must_use]
pub fn unwritable(error: &io::Error, of: &str) -> Finding {
    let kind = error.kind();
    let id = if kind == io::ErrorKind::ReadOnlyFilesystem {
        FindingId::DiskReadOnly
    } else if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        FindingId::DiskFull
    } else {
        // Not there, not allowed, no folder, a fault of the disk.
        FindingId::DiskNotWritable
    };
    Finding::new(id, format!("{of}: {error}"))
}

/// Judges the room that is left on a file system, in bytes.
#[must_use]
pub fn room(free: u64, of: &str) -> Option<Finding> {
    let found = Finding::new(FindingId::DiskFull, format!("{of}: {} MiB are free", free >> 20));
    (free < ROOM_MIN).then(|| if free < ROOM_LEAST { found } else { found.warning() })
}

/// Judges the time of a trivial statement.
#[must_use]
pub fn latency(took: Duration) -> Option<Finding> {
    let what = || format!("a statement that does nothing takes {} ms", took.as_millis());
    (took > SLOW).then(|| Finding::new(FindingId::StoreSlow, what()))
}

/// Judges `net.core.somaxconn`.
#[must_use]
pub fn somaxconn(queue: u64) -> Option<Finding> {
    (queue < QUEUE_MIN).then(|| Finding::new(FindingId::SomaxconnLow, format!("net.core.somaxconn is {queue}")))
}

/// Compares versions of programs with this one. `of` names each.
#[must_use]
pub fn versions<'a>(own: &str, others: impl Iterator<Item = (String, &'a str)>) -> Vec<Finding> {
    let differing = others.filter(|(_, version)| *version != own);
    differing
        .map(|(of, version)| {
            Finding::new(FindingId::VersionDiffers, format!("{of} is version {version}, this program {own}"))
        })
        .collect()
}

/// Most names in one finding; a person reads no more.
const NAMED_MAX: usize = 5;

/// Finds agents of another version, by name.
#[must_use]
pub fn agents(own: &str, agents: &[(String, String)]) -> Option<Finding> {
    let other: Vec<_> = agents.iter().filter(|(_, version)| version != own).collect();
    let named: Vec<_> = other.iter().take(NAMED_MAX).map(|(name, version)| format!("{name} ({version})")).collect();
    let more = other.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = || format!("{} of {} agents: {}{more}", other.len(), agents.len(), named.join(", "));
    (!other.is_empty()).then(|| Finding::new(FindingId::AgentsOld, what()))
}

#[cfg(test)]
mod tests;
