//! The ports of a workspace on which something listens, as its agent reports them to a gateway that asks.
//!
//! The gateway opens a channel to [`LISTENING_PORT`], and the agent answers with one message and ends the channel. So nothing is
//! sent while it is not asked for, and no answer is older than its question.

use bytes::Bytes;
use prost::Message as _;
use thiserror::Error;

use crate::wire;

/// The port of a workspace agent's session that is no port: the question of this module. No user's address has it.
pub const LISTENING_PORT: u16 = 0;

/// Most ports that an agent says and a gateway takes; those with the lowest numbers.
pub const LISTENING_MAX: usize = 256;

/// Largest encoded message that a gateway reads, in bytes: [`LISTENING_MAX`] ports take six each today, and fields to come
/// have as much again.
pub const LISTENING_BYTES_MAX: usize = 4096;

/// The bytes are no list of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a list of listening ports that cannot be read")]
pub struct BadListening;

/// Writes the ports, the first [`LISTENING_MAX`] of them.
#[must_use]
pub fn encode(ports: impl IntoIterator<Item = u16>) -> Bytes {
    let one = |number: u16| wire::ListeningPort { number: u32::from(number) };
    let ports = ports.into_iter().take(LISTENING_MAX).map(one).collect();
    wire::Listening { ports }.encode_to_vec().into()
}

/// Reads the ports: in the order of their numbers, each once, and no more than [`LISTENING_MAX`].
///
/// # Errors
/// [`BadListening`] for bytes that are no such message, are longer than [`LISTENING_BYTES_MAX`], or name no port.
pub fn decode(bytes: &[u8]) -> Result<Vec<u16>, BadListening> {
    if bytes.len() > LISTENING_BYTES_MAX {
        return Err(BadListening);
    }
    let message = wire::Listening::decode(bytes).map_err(|_malformed| BadListening)?;
    let mut ports = Vec::with_capacity(message.ports.len().min(LISTENING_MAX));
    for port in message.ports {
        match u16::try_from(port.number) {
            Ok(number) if number > 0 => ports.push(number),
            Ok(_) | Err(_) => return Err(BadListening),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(LISTENING_MAX);
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_back_sorted_and_each_once() {
        assert_eq!(decode(&encode([8080, 22, 8080, 65535])), Ok(vec![22, 8080, 65535]));
        assert_eq!(decode(&encode([])), Ok(Vec::new()));
    }

    #[test]
    fn no_peer_makes_it_keep_more_than_the_bound() {
        let all = encode(1..=u16::MAX);
        assert!(all.len() <= LISTENING_BYTES_MAX, "{} bytes", all.len());
        assert_eq!(decode(&all).map(|ports| ports.len()), Ok(LISTENING_MAX));
        // A peer that knows no bound: two bytes for a port without a number's value beyond one byte.
        let many = [0x0a, 0x02, 0x08, 0x50].repeat(LISTENING_BYTES_MAX / 4);
        assert_eq!(decode(&many), Ok(vec![80]));
        let mut more = many.clone();
        more.extend_from_slice(&[0x0a, 0x02, 0x08, 0x50]);
        assert_eq!(decode(&more), Err(BadListening));
    }

    #[test]
    fn what_is_no_port_and_no_message_is_refused() {
        let zero = wire::Listening { ports: vec![wire::ListeningPort { number: 0 }] };
        let large = wire::Listening { ports: vec![wire::ListeningPort { number: 65_536 }] };
        for bytes in [zero.encode_to_vec(), large.encode_to_vec(), vec![0x0a, 0xff], b"HTTP/1.1 200 OK".to_vec()] {
            assert_eq!(decode(&bytes), Err(BadListening), "{bytes:?}");
        }
    }
}
