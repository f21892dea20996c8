//! Attacks of each kind: the bytes that are sent, and the time that the attacker holds on.

use std::str::FromStr;
use std::time::Duration;

use gateway_types::token::{Token, TokenKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use crate::target::{BoxedStream, LoadTarget};

/// Longest that one attack lasts.
const HOLD: Duration = Duration::from_secs(20);

/// Longest wait for an answer in attacks that do not hold on.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two bytes of a slow head.
const TRICKLE: Duration = Duration::from_secs(1);

/// Bytes of a head that is too large.
const HUGE_BYTES: usize = 100 * 1024;

/// Streams of one rapid reset, and frames of one flood.
const RESETS: u32 = 100;
const LIGHT_FRAMES: usize = 20_000;

const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttackKind {
    /// A host that is no workspace.
    BadHost,
    /// A token that does not exist.
    BadToken,
    /// A head that two parsers read in two ways.
    Smuggling,
    /// A WebSocket from a foreign page.
    WrongOrigin,
    /// A WebSocket without a token.
    Upgrade,
    /// A head that never ends.
    HugeHead,
    /// A head that arrives byte by byte.
    SlowHead,
    /// A connection without any bytes.
    Silent,
    /// Streams that are reset as soon as they are open.
    RapidReset,
    /// Frames of HTTP/2 that carry nothing.
    LightFrames,
    /// Bytes that are no HTTP.
    Garbage,
}

impl AttackKind {
    /// Share of each kind, of a hundred: most need a connection for an instant, some hold on to theirs.
    pub(super) const MIX: [(Self, u32); 11] = [
        (Self::BadHost, 15),
        (Self::BadToken, 15),
        (Self::Smuggling, 15),
        (Self::WrongOrigin, 10),
        (Self::Upgrade, 15),
        (Self::HugeHead, 5),
        (Self::SlowHead, 10),
        (Self::Silent, 5),
        (Self::RapidReset, 4),
        (Self::LightFrames, 1),
        (Self::Garbage, 5),
    ];

    /// Returns the name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::BadHost => "bad-host",
            Self::BadToken => "bad-token",
            Self::Smuggling => "smuggling",
            Self::WrongOrigin => "wrong-origin",
            Self::Upgrade => "upgrade",
            Self::HugeHead => "huge-head",
            Self::SlowHead => "slow-head",
            Self::Silent => "silent",
            Self::RapidReset => "rapid-reset",
            Self::LightFrames => "light-frames",
            Self::Garbage => "garbage",
        }
    }
}

impl FromStr for AttackKind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::MIX.into_iter().map(|(kind, _)| kind).find(|kind| kind.as_str() == text);
        found.ok_or_else(|| {
            let names = Self::MIX.map(|(kind, _)| kind.as_str()).join(", ");
            anyhow::anyhow!("--set only={text}: it is one of {names}")
        })
    }
}

/// End of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttackEnd {
    /// With an answer.
    Answered,
    /// With an answer that names a limit.
    Refused,
    /// The gateway closed the connection.
    Cut,
    /// The attacker gave up.
    GivenUp,
}

/// Does one attack on a connection.
pub(super) async fn attack(mut stream: BoxedStream, kind: AttackKind, target: &LoadTarget) -> AttackEnd {
    let by = Instant::now() + if kind.holds_on() { HOLD } else { PATIENCE };
    let attack = async {
        let first = bytes(kind, target);
        // A gateway at its limit closes before all of it is written; its answer can be read all the same.
        if stream.write_all(&first).await.is_ok() {
            stream.flush().await.ok();
        }
        if kind == AttackKind::SlowHead {
            return trickle(&mut stream).await;
        }
        read(&mut stream).await
    };
    timeout_at(by, attack).await.unwrap_or(AttackEnd::GivenUp)
}

impl AttackKind {
    /// Returns whether the attack is to hold a connection.
    fn holds_on(self) -> bool {
        match self {
            Self::SlowHead | Self::Silent => true,
            Self::BadHost
            | Self::BadToken
            | Self::Smuggling
            | Self::WrongOrigin
            | Self::Upgrade
            | Self::HugeHead
            | Self::RapidReset
            | Self::LightFrames
            | Self::Garbage => false,
        }
    }
}

/// Writes a byte at intervals, until the other end closes.
async fn trickle(stream: &mut BoxedStream) -> AttackEnd {
    loop {
        sleep(TRICKLE).await;
        if stream.write_all(b"x").await.is_err() {
            return AttackEnd::Cut;
        }
    }
}

/// Reads to the end, or in HTTP/1 to the beginning of an answer.
async fn read(stream: &mut BoxedStream) -> AttackEnd {
    let mut buffer = vec![0; 4096];
    let mut is_answered = false;
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return if is_answered { AttackEnd::Answered } else { AttackEnd::Cut },
            Ok(read) => {
                let text = buffer.get(..read).unwrap_or_default();
                if text.starts_with(b"HTTP/1.1 503") {
                    return AttackEnd::Refused;
                }
                if text.starts_with(b"HTTP/1.1") {
                    return AttackEnd::Answered;
                }
                // HTTP/2: read on, so that the attacker does not stall the connection.
                is_answered = true;
            }
        }
    }
}

/// Makes the first bytes of an attack.
fn bytes(kind: AttackKind, target: &LoadTarget) -> Vec<u8> {
    let host = &target.host;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    match kind {
        AttackKind::BadHost => b"GET / HTTP/1.1\r\nhost: nobody.example.com\r\n\r\n".to_vec(),
        AttackKind::BadToken => {
            let token = Token::generate(TokenKind::User).map(|token| token.reveal().to_owned()).unwrap_or_default();
            format!("GET / HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n").into_bytes()
        }
        AttackKind::Smuggling => {
            let inner = format!("GET /smuggled HTTP/1.1\r\nhost: {host}\r\n\r\n");
            format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}")
                .into_bytes()
        }
        AttackKind::WrongOrigin => {
            format!("GET /ws HTTP/1.1\r\nhost: {host}\r\norigin: https://evil.example\r\ncookie: __Host-gateway=guess\r\n{upgrade}\r\n")
                .into_bytes()
        }
        AttackKind::Upgrade => format!("GET /ws HTTP/1.1\r\nhost: {host}\r\n{upgrade}\r\n").into_bytes(),
        AttackKind::HugeHead => {
            format!("GET / HTTP/1.1\r\nhost: {host}\r\ncookie: {}\r\n\r\n", "x".repeat(HUGE_BYTES)).into_bytes()
        }
        AttackKind::SlowHead => format!("GET / HTTP/1.1\r\nhost: {host}\r\nx: ").into_bytes(),
        AttackKind::Silent => Vec::new(),
        AttackKind::RapidReset => {
            let resets = (0..RESETS).flat_map(|number| {
                let stream = (2 * number + 1).to_be_bytes();
                let head = block(host);
                let length = u8::try_from(head.len()).unwrap_or_default();
                let open = [&[0, 0, length, 1, 5], &stream[..], &head].concat();
                let reset = [&[0, 0, 4, 3, 0], &stream[..], &[0, 0, 0, 8]].concat();
                [open, reset].concat()
            });
            H2_PREFACE.iter().copied().chain(resets).collect()
        }
        AttackKind::LightFrames => {
            let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
            [H2_PREFACE, &ping.repeat(LIGHT_FRAMES)].concat()
        }
        AttackKind::Garbage => vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
    }
}

/// Makes the head of a request: GET, `/` and `http` from the static table, the host as it is (RFC 7541, section 6.2.2).
fn block(host: &str) -> Vec<u8> {
    let host = host.as_bytes();
    let host = host.get(..host.len().min(100)).unwrap_or_default();
    let mut block = vec![0x82, 0x84, 0x86, 0x01, u8::try_from(host.len()).unwrap_or_default()];
    block.extend_from_slice(host);
    block
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn mix_is_of_a_hundred_and_every_kind_has_a_name_of_its_own() {
        assert_eq!(AttackKind::MIX.iter().map(|(_, share)| share).sum::<u32>(), 100);
        for (kind, _) in AttackKind::MIX {
            assert_eq!(kind.as_str().parse::<AttackKind>().unwrap(), kind);
        }
        assert!("nice".parse::<AttackKind>().is_err());
    }

    #[test]
    fn attacks_are_not_empty_but_for_the_silent_one() {
        let address: SocketAddr = ([127, 0, 0, 1], 1).into();
        let target = LoadTarget::plain(address, "1-one.localhost:1");
        for (kind, _) in AttackKind::MIX {
            assert_eq!(bytes(kind, &target).is_empty(), kind == AttackKind::Silent, "{kind:?}");
        }
        assert!(bytes(AttackKind::HugeHead, &target).len() > 64 * 1024);
    }
}
