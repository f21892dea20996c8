//! A client over HTTP/2 that allocates nothing for a request: one block of fields, made once, sent on stream after stream.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS with the largest windows of streams (RFC 9113, section 6.5.2), and as much for the connection.
const SETTINGS: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7F, 0xFF, 0xFF, 0xFF];
const WINDOW: [u8; 13] = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7F, 0x00, 0x00, 0x00];
const SETTINGS_ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS_TYPE: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

pub(crate) struct Http2Client {
    stream: TcpStream,
    request: Vec<u8>,
    number: u32,
    buffer: [u8; 4096],
}

impl Http2Client {
    pub(crate) async fn connect(address: SocketAddr, authority: &str, token: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.write_all(&[PREFACE, &SETTINGS, &WINDOW].concat()).await.expect("it reads");
        // GET and http by their places in the static table; the others as literals that no table keeps (RFC 7541, 6.2.2).
        let mut block = vec![0x82, 0x86];
        literal(&mut block, ":path", "/128");
        literal(&mut block, ":authority", authority);
        literal(&mut block, "gateway-authorization", &format!("Bearer {token}"));
        let length = u32::try_from(block.len()).unwrap().to_be_bytes();
        let mut request = vec![length[1], length[2], length[3], HEADERS, END_STREAM | END_HEADERS, 0, 0, 0, 0];
        request.extend(block);
        Self { stream, request, number: 1, buffer: [0; 4096] }
    }

    /// Sends a request and reads its response to the end.
    pub(crate) async fn request(&mut self) {
        let number = self.number.to_be_bytes();
        self.request[5..HEAD_BYTES].copy_from_slice(&number);
        self.stream.write_all(&self.request).await.expect("it reads");
        let mut body = 0;
        loop {
            self.stream.read_exact(&mut self.buffer[..HEAD_BYTES]).await.expect("a frame");
            let [_, high, low, kind, flags, ..] = self.buffer;
            let is_this = self.buffer[5..HEAD_BYTES] == number;
            let length = usize::from(high) << 8 | usize::from(low);
            self.stream.read_exact(&mut self.buffer[..length]).await.expect("its payload");
            assert!(!matches!(kind, RST_STREAM | GOAWAY), "{:?}", &self.buffer[..length]);
            if kind == SETTINGS_TYPE && flags & ACK == 0 {
                self.stream.write_all(&SETTINGS_ACK).await.expect("it reads");
            }
            if kind == DATA {
                body += length;
            }
            if matches!(kind, DATA | HEADERS) && is_this && flags & END_STREAM != 0 {
                break;
            }
        }
        assert_eq!(body, 128);
        self.number += 2;
    }
}

fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text"));
        block.extend(text.as_bytes());
    }
}
