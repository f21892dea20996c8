//! Faults at set times: `cut@5s`, `stall@10s+2s`, `half-open@20s`, `close@30s`, `cut@5s/10s`.

use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep_until};

use super::Handle;
use super::spec::{BadLink, parse_duration};

/// Default length of a stall.
const STALL_DEFAULT: Duration = Duration::from_secs(1);

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToxicKind {
    /// Connections are reset.
    Cut,
    /// Connections are ended in order.
    Close,
    /// Connections are forgotten by the path.
    HalfOpen,
    /// The link stands still for a while.
    Stall {
        /// Length of the stall.
        lasts: Duration,
    },
}

/// Fault with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toxic {
    /// Kind of the fault.
    pub kind: ToxicKind,
    /// Time of the first one, from the start.
    pub at: Duration,
    /// Interval between two; `None` for a single one.
    pub every: Option<Duration>,
}

/// The text describes no fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadToxic {
    /// Not `KIND@TIME`.
    #[error(
        "`{0}` is not KIND@TIME with KIND one of cut, close, half-open, stall (examples: cut@5s, stall@10s+2s, cut@5s/10s)"
    )]
    Shape(String),
    /// A time in it is wrong.
    #[error(transparent)]
    Time(#[from] BadLink),
    /// Only a stall lasts.
    #[error("`{0}`: only a stall has a length")]
    Length(String),
    /// It would repeat without a pause.
    #[error("`{0}`: the interval is zero or not longer than the stall")]
    Interval(String),
}

impl FromStr for Toxic {
    type Err = BadToxic;

    fn from_str(text: &str) -> Result<Self, BadToxic> {
        let shape = || BadToxic::Shape(text.to_owned());
        let (kind, times) = text.split_once('@').ok_or_else(shape)?;
        let (times, every) = match times.split_once('/') {
            Some((times, every)) => (times, Some(parse_duration(every)?)),
            None => (times, None),
        };
        let (at, lasts) = match times.split_once('+') {
            Some((at, lasts)) => (parse_duration(at)?, Some(parse_duration(lasts)?)),
            None => (parse_duration(times)?, None),
        };
        let kind = match kind {
            "cut" => ToxicKind::Cut,
            "close" => ToxicKind::Close,
            "half-open" => ToxicKind::HalfOpen,
            "stall" => ToxicKind::Stall { lasts: lasts.unwrap_or(STALL_DEFAULT) },
            _ => return Err(shape()),
        };
        let length = match kind {
            ToxicKind::Stall { lasts } => lasts,
            ToxicKind::Cut | ToxicKind::Close | ToxicKind::HalfOpen if lasts.is_some() => {
                return Err(BadToxic::Length(text.to_owned()));
            }
            ToxicKind::Cut | ToxicKind::Close | ToxicKind::HalfOpen => Duration::ZERO,
        };
        if every.is_some_and(|every| every <= length) {
            return Err(BadToxic::Interval(text.to_owned()));
        }
        Ok(Self { kind, at, every })
    }
}

impl Toxic {
    /// Causes the fault at its times.
    ///
    /// # Cancel safety
    /// Dropped during a stall, it leaves the link standing still.
    pub async fn play(self, link: &Handle, start: Instant) {
        let mut at = start + self.at;
        loop {
            sleep_until(at).await;
            strike(self.kind, link).await;
            let Some(every) = self.every else { return };
            at += every;
        }
    }
}

/// Causes a fault now and waits until it is over.
///
/// # Cancel safety
/// Dropped during a stall, it leaves the link standing still.
pub async fn strike(kind: ToxicKind, link: &Handle) {
    match kind {
        ToxicKind::Cut => link.cut(),
        ToxicKind::Close => link.close(),
        ToxicKind::HalfOpen => link.half_open(),
        ToxicKind::Stall { lasts } => {
            link.stall();
            tokio::time::sleep(lasts).await;
            link.resume();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toxics_are_read_with_their_times() {
        let s = Duration::from_secs;
        for (text, kind, at, every) in [
            ("cut@5s", ToxicKind::Cut, s(5), None),
            ("half-open@1m", ToxicKind::HalfOpen, s(60), None),
            ("stall@10s+2s/30s", ToxicKind::Stall { lasts: s(2) }, s(10), Some(s(30))),
            ("stall@3s", ToxicKind::Stall { lasts: s(1) }, s(3), None),
            ("close@0/10s", ToxicKind::Close, s(0), Some(s(10))),
        ] {
            assert_eq!(text.parse(), Ok(Toxic { kind, at, every }), "{text}");
        }
    }

    #[test]
    fn toxics_that_cannot_be_are_refused() {
        for text in ["", "cut", "cut@", "melt@5s", "cut@5s+1s", "cut@5s/0s", "stall@1s+2s/2s", "stall@5"] {
            assert!(text.parse::<Toxic>().is_err(), "{text}");
        }
    }
}
