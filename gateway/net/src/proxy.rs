//! Client address from a load balancer: the PROXY protocol, versions 1 and 2, as in HAProxy's `proxy-protocol.txt`.
//!
//! Nothing in the header proves anything, so it is read only from addresses that the operator trusts, and from those it
//! has to come first: guessing would let any client choose an address. Pure; `net::listen` brings the bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// First bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// First bytes of version 1.
const WORD: &[u8; 6] = b"PROXY ";

/// Longest header of version 1, its line end included.
const LINE_BYTES_MAX: usize = 107;

/// Bytes of version 2 before its addresses.
const FIXED_BYTES: usize = 16;

/// Longest accepted header, in bytes: addresses, and extensions of balancers.
pub(super) const HEADER_BYTES_MAX: usize = 1024;

/// Result of parsing the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Beginning of a header: all bytes belong to it, and more have to come.
    Partial,
    /// A complete header.
    Whole {
        /// Its length.
        length: usize,
        /// Client's address; `None` if the balancer speaks for itself, or does not know.
        source: Option<SocketAddr>,
    },
}

/// The bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no PROXY protocol header came from a trusted proxy")]
pub(super) struct NoHeader;

/// Reads the header that `bytes` begin with.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, NoHeader> {
    if begins(bytes, SIGNATURE) {
        return version_2(bytes);
    }
    if begins(bytes, WORD) {
        return version_1(bytes);
    }
    Err(NoHeader)
}

/// Returns whether the bytes begin with `what`, or could do so once more of them have come.
fn begins(bytes: &[u8], what: &[u8]) -> bool {
    let common = bytes.len().min(what.len());
    bytes.get(..common) == what.get(..common)
}

fn version_1(bytes: &[u8]) -> Result<Parsed, NoHeader> {
    let line = bytes.get(..bytes.len().min(LINE_BYTES_MAX)).unwrap_or_default();
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LINE_BYTES_MAX { Ok(Parsed::Partial) } else { Err(NoHeader) };
    };
    let text = line.get(WORD.len()..end).and_then(|text| std::str::from_utf8(text).ok()).ok_or(NoHeader)?;
    let length = end + 2;
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        // The rest of the line is to be ignored.
        ["UNKNOWN", ..] => Ok(Parsed::Whole { length, source: None }),
        [family @ ("TCP4" | "TCP6"), source, target, source_port, target_port] => {
            let is_v4 = *family == "TCP4";
            let address = |text: &str| text.parse::<IpAddr>().ok().filter(|address| address.is_ipv4() == is_v4);
            let (source, target) = (address(source), address(target));
            let (source_port, target_port) = (port(source_port), port(target_port));
            let source = source.zip(source_port).filter(|_| target.is_some() && target_port.is_some());
            let source = source.map(SocketAddr::from).ok_or(NoHeader)?;
            Ok(Parsed::Whole { length, source: Some(source) })
        }
        _ => Err(NoHeader),
    }
}

/// Reads a port: digits, without a sign or a leading zero.
fn port(text: &str) -> Option<u16> {
    let is_plain = text == "0" || (text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

fn version_2(bytes: &[u8]) -> Result<Parsed, NoHeader> {
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return Ok(Parsed::Partial) };
    let [.., command, family, high, low] = *fixed;
    let length = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > HEADER_BYTES_MAX {
        return Err(NoHeader);
    }
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(NoHeader),
    };
    let Some(addresses) = bytes.get(FIXED_BYTES..length) else { return Ok(Parsed::Partial) };
    let source = match family {
        _ if is_local => None,
        0x11 => Some(source_v4(addresses).ok_or(NoHeader)?),
        0x21 => Some(source_v6(addresses).ok_or(NoHeader)?),
        // Datagrams, local sockets and unknown families: nothing that a limit could count.
        _ => None,
    };
    Ok(Parsed::Whole { length, source })
}

/// Reads the source from source, target, source's port and target's port.
fn source_v4(addresses: &[u8]) -> Option<SocketAddr> {
    let [a, b, c, d, _, _, _, _, high, low, _, _] = *addresses.first_chunk::<12>()?;
    Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
}

fn source_v6(addresses: &[u8]) -> Option<SocketAddr> {
    let source = *addresses.first_chunk::<16>()?;
    let [high, low, _, _] = *addresses.get(32..36)?.first_chunk::<4>()?;
    Some((Ipv6Addr::from(source), u16::from_be_bytes([high, low])).into())
}

#[cfg(test)]
mod tests;
