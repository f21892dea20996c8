//! Properties of a link, and their text form: `rate=20mbit,delay=20ms,jitter=1ms,loss=1%,queue=10ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Bytes that a link loses or delays as one: the payload of a full packet on an Ethernet path.
pub const PACKET_BYTES: usize = 1460;

/// Default queue before the link, as a time at the link's rate.
pub const QUEUE_DEFAULT: Duration = Duration::from_millis(10);

/// Most bytes per direction at a time on a link without a rate; bounds the relay's memory.
pub const WIRE_BYTES_MAX: usize = 64 << 20;

/// The receive window and the relay's own queue share the configured queue half and half; below this the kernel's
/// window is too small for two packets.
const SOCKET_BYTES_MIN: usize = 4 * PACKET_BYTES;

/// Largest buffer that the kernel grants without privileges on common settings (`net.core.rmem_max`).
const SOCKET_BYTES_MAX: usize = 4 << 20;

/// Properties of a link, each direction on its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Payload bits per second, shared by all connections through the link; `None` is as fast as the machine.
    pub rate_bits: Option<u64>,
    /// From the last bit in to the last bit out, one way.
    pub delay: Duration,
    /// Added to `delay`, uniformly from zero to this. Order is kept.
    pub jitter: Duration,
    /// The share of packets that are lost, 0 to 1. On a byte stream a loss is a pause: see [`super::wire`].
    pub loss: f64,
    /// Longest queue before the link, as a time at its rate.
    pub queue: Duration,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self { rate_bits: None, delay: Duration::ZERO, jitter: Duration::ZERO, loss: 0.0, queue: QUEUE_DEFAULT }
    }
}

impl LinkSpec {
    /// Returns how long `bytes` take to leave at the link's rate.
    #[must_use]
    pub fn time_of(&self, bytes: usize) -> Duration {
        let Some(rate) = self.rate_bits else { return Duration::ZERO };
        let bits = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(8);
        let nanos = bits.saturating_mul(1_000_000_000) / u128::from(rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns how many bytes leave in `time` at the link's rate; [`WIRE_BYTES_MAX`] for a link without one.
    #[must_use]
    pub fn bytes_in(&self, time: Duration) -> usize {
        let Some(rate) = self.rate_bits else { return WIRE_BYTES_MAX };
        let bytes = u128::from(rate).saturating_mul(time.as_nanos()) / 8_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX).min(WIRE_BYTES_MAX)
    }

    /// Returns the relay's own part of the queue: half of it, the other half is the kernel's receive window.
    #[must_use]
    pub fn own_queue(&self) -> Duration {
        self.queue / 2
    }

    /// Returns the most that one direction of one connection may hold: bytes on the wire, and its queue.
    #[must_use]
    pub fn held_bytes_max(&self) -> usize {
        let travelling = self.delay.saturating_add(self.jitter).saturating_add(self.queue);
        self.bytes_in(travelling).clamp(16 * PACKET_BYTES, WIRE_BYTES_MAX)
    }

    /// Returns the receive buffer of the relay's sockets; `None` leaves it to the kernel.
    #[must_use]
    pub fn receive_buffer_bytes(&self) -> Option<usize> {
        self.rate_bits?;
        // The kernel doubles the given size, and on loopback lets payload fill nearly all of that.
        Some(self.bytes_in(self.queue / 4).clamp(SOCKET_BYTES_MIN, SOCKET_BYTES_MAX))
    }

    /// Returns how long bytes wait before a full link: its own queue, and the receive window, which the kernel doubles.
    /// It is never shorter than [`SOCKET_BYTES_MIN`] allows; `None` for a link without a rate.
    #[must_use]
    pub fn full_queue(&self) -> Option<Duration> {
        Some(self.own_queue() + self.time_of(self.receive_buffer_bytes()?.saturating_mul(2)))
    }

    /// Returns the send buffer of the relay's sockets; `None` leaves it to the kernel. Two milliseconds: the sender
    /// notices a slow receiver, and a burst of one timer tick still fits.
    #[must_use]
    pub fn send_buffer_bytes(&self) -> Option<usize> {
        self.rate_bits?;
        Some(self.bytes_in(Duration::from_millis(2)).clamp(16 * 1024, SOCKET_BYTES_MAX))
    }

    /// Returns the most bytes that arrive as one: half a millisecond of the rate, so that a link does not hand over
    /// in lumps, and at least a packet.
    #[must_use]
    pub fn piece_bytes(&self) -> usize {
        self.bytes_in(Duration::from_micros(500)).clamp(PACKET_BYTES, 64 * 1024)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate_bits {
            None => formatter.write_str("rate=unlimited")?,
            Some(bits) if bits % 1_000_000_000 == 0 => write!(formatter, "rate={}gbit", bits / 1_000_000_000)?,
            Some(bits) if bits % 1_000_000 == 0 => write!(formatter, "rate={}mbit", bits / 1_000_000)?,
            Some(bits) if bits % 1_000 == 0 => write!(formatter, "rate={}kbit", bits / 1_000)?,
            Some(bits) => write!(formatter, "rate={bits}bit")?,
        }
        write!(formatter, ",delay={:?}", self.delay)?;
        if !self.jitter.is_zero() {
            write!(formatter, ",jitter={:?}", self.jitter)?;
        }
        if self.loss > 0.0 {
            write!(formatter, ",loss={}%", self.loss * 100.0)?;
        }
        if self.queue != QUEUE_DEFAULT {
            write!(formatter, ",queue={:?}", self.queue)?;
        }
        Ok(())
    }
}

/// The text describes no link.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadLink {
    /// Not a number with a unit of bits per second.
    #[error("`{0}` is not a rate such as 20mbit, 1gbit, 500kbit or unlimited")]
    Rate(String),
    /// Not a number with a unit of time.
    #[error("`{0}` is not a duration such as 20ms, 1.5s or 2m")]
    Duration(String),
    /// Not a share.
    #[error("`{0}` is not a share such as 1% or 0.01, below 100%")]
    Loss(String),
    /// Not `KEY=VALUE` with a known key.
    #[error("`{0}` is not one of rate=, delay=, jitter=, loss=, queue= (example: rate=20mbit,delay=20ms,loss=1%)")]
    Part(String),
}

impl FromStr for LinkSpec {
    type Err = BadLink;

    fn from_str(text: &str) -> Result<Self, BadLink> {
        let mut spec = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("rate", value)) => spec.rate_bits = parse_rate(value)?,
                Some(("delay", value)) => spec.delay = parse_duration(value)?,
                Some(("jitter", value)) => spec.jitter = parse_duration(value)?,
                Some(("loss", value)) => spec.loss = parse_loss(value)?,
                Some(("queue", value)) => spec.queue = parse_duration(value)?,
                Some(_) | None => return Err(BadLink::Part(part.to_owned())),
            }
        }
        Ok(spec)
    }
}

/// Reads a rate in bits per second; `None` for `unlimited`.
///
/// # Errors
/// [`BadLink::Rate`] for all but a positive number with `bit`, `kbit`, `mbit` or `gbit`.
pub fn parse_rate(text: &str) -> Result<Option<u64>, BadLink> {
    if text == "unlimited" {
        return Ok(None);
    }
    let bad = || BadLink::Rate(text.to_owned());
    let (number, unit) = split_unit(text);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(bad()),
    };
    let bits = number.parse::<f64>().map_err(|_| bad())? * scale;
    if !(8.0..=1e12).contains(&bits) {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be from 8 to 1e12")]
    let bits = bits.round() as u64;
    Ok(Some(bits))
}

/// Reads a duration: a number with `us`, `ms`, `s` or `m`.
///
/// # Errors
/// [`BadLink::Duration`] for all else.
pub fn parse_duration(text: &str) -> Result<Duration, BadLink> {
    let bad = || BadLink::Duration(text.to_owned());
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "" if number == "0" => 1.0,
        _ => return Err(bad()),
    };
    let seconds = number.parse::<f64>().map_err(|_| bad())? * scale;
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// Reads a share: `1%` or `0.01`.
///
/// # Errors
/// [`BadLink::Loss`] for all that is not from 0 up to, but not, 1.
pub fn parse_loss(text: &str) -> Result<f64, BadLink> {
    let bad = || BadLink::Loss(text.to_owned());
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map_err(|_| bad())? / 100.0,
        None => text.parse::<f64>().map_err(|_| bad())?,
    };
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err(bad()) }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_reads_back_what_it_prints() {
        for text in [
            "rate=20mbit,delay=20ms",
            "rate=1gbit,delay=40ms,jitter=2ms,loss=1%,queue=5ms",
            "rate=unlimited,delay=0ns",
            "rate=1500kbit,delay=1.5s",
        ] {
            let spec: LinkSpec = text.replace("0ns", "0").parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn link_of_nonsense_is_refused_by_name() {
        assert_eq!("rate=20".parse::<LinkSpec>(), Err(BadLink::Rate("20".to_owned())));
        assert_eq!("rate=0mbit".parse::<LinkSpec>(), Err(BadLink::Rate("0mbit".to_owned())));
        assert_eq!("delay=20".parse::<LinkSpec>(), Err(BadLink::Duration("20".to_owned())));
        assert_eq!("delay=-1s".parse::<LinkSpec>(), Err(BadLink::Duration("-1s".to_owned())));
        assert_eq!("loss=100%".parse::<LinkSpec>(), Err(BadLink::Loss("100%".to_owned())));
        assert_eq!("speed=1".parse::<LinkSpec>(), Err(BadLink::Part("speed=1".to_owned())));
        assert_eq!("20mbit".parse::<LinkSpec>(), Err(BadLink::Part("20mbit".to_owned())));
    }

    #[test]
    fn bytes_and_time_agree_with_the_rate() {
        let spec: LinkSpec = "rate=20mbit,delay=40ms".parse().unwrap();
        assert_eq!(spec.time_of(2_500_000), Duration::from_secs(1));
        assert_eq!(spec.bytes_in(Duration::from_millis(10)), 25_000);
        assert_eq!(spec.held_bytes_max(), 125_000);
        assert_eq!(spec.receive_buffer_bytes(), Some(6_250));
        assert_eq!(spec.piece_bytes(), PACKET_BYTES);
        assert_eq!(spec.full_queue(), Some(spec.queue));
        let short = LinkSpec { queue: Duration::from_millis(2), ..spec };
        let window = Duration::from_micros(4_672);
        assert_eq!(short.full_queue(), Some(Duration::from_millis(1) + window), "four packets, twice");
        let unlimited = LinkSpec::default();
        assert_eq!(unlimited.full_queue(), None);
        assert_eq!(unlimited.time_of(1 << 30), Duration::ZERO);
        assert_eq!(unlimited.receive_buffer_bytes(), None);
    }
}
