//! A client and an app that allocate nothing for a request or message.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Body of a response, and payload of a message, in bytes.
const BODY_BYTES: usize = 128;
/// Longest head, in bytes.
const BUFFER_BYTES: usize = 2048;

pub(crate) const HANDSHAKE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                                    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const ACCEPTED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                          sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const RESPONSE_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 128\r\n\r\n";

/// First byte of a client without HTTP, and the app's answer to it.
pub(crate) const RAW_HELLO: &[u8] = b"!";
pub(crate) const RAW_ANSWER: u8 = b'?';

/// A masked binary message of a client (RFC 6455, section 5.2), with a mask of zeros.
const fn client_message() -> [u8; 8 + BODY_BYTES] {
    let mut frame = [b'x'; 8 + BODY_BYTES];
    (frame[0], frame[1], frame[2], frame[3]) = (0x82, 0x80 | 126, 0, 128);
    (frame[4], frame[5], frame[6], frame[7]) = (0, 0, 0, 0);
    frame
}

/// An unmasked one of an app.
const fn app_message() -> [u8; 4 + BODY_BYTES] {
    let mut frame = [b'x'; 4 + BODY_BYTES];
    (frame[0], frame[1], frame[2], frame[3]) = (0x82, 126, 0, 128);
    frame
}

/// A client over HTTP/1.1.
pub(crate) struct FixedClient {
    stream: TcpStream,
    buffer: [u8; BUFFER_BYTES],
}

impl FixedClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, buffer: [0; BUFFER_BYTES] }
    }

    /// Sends a request and reads its response to the end.
    pub(crate) async fn request(&mut self, head: &[u8]) {
        self.stream.write_all(head).await.expect("it reads");
        let (end, mut read) = read_head(&mut self.stream, &mut self.buffer).await.expect("a response");
        assert!(self.buffer.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&self.buffer[..end]));
        while read < end + BODY_BYTES {
            let count = self.stream.read(&mut self.buffer[read..]).await.expect("a body");
            assert!(count > 0, "the body breaks off");
            read += count;
        }
        assert_eq!(read, end + BODY_BYTES);
    }

    /// Opens a WebSocket.
    pub(crate) async fn upgrade(&mut self, head: &[u8]) {
        self.stream.write_all(head).await.expect("it reads");
        let (end, read) = read_head(&mut self.stream, &mut self.buffer).await.expect("a response");
        assert!(self.buffer.starts_with(b"HTTP/1.1 101"), "{:?}", String::from_utf8_lossy(&self.buffer[..end]));
        assert_eq!(read, end);
    }

    /// Sends a message and reads the answer.
    pub(crate) async fn message(&mut self) {
        const MESSAGE: [u8; 8 + BODY_BYTES] = client_message();
        self.stream.write_all(&MESSAGE).await.expect("it reads");
        let answer = &mut self.buffer[..4 + BODY_BYTES];
        self.stream.read_exact(answer).await.expect("an answer");
        assert_eq!(answer, app_message());
    }
}

/// Reads up to the end of a head at least; returns its end and the bytes read. `None` at the end of the stream.
async fn read_head(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<(usize, usize)> {
    let mut read = 0;
    loop {
        let count = stream.read(&mut buffer[read..]).await.unwrap_or_default();
        if count == 0 {
            return None;
        }
        read += count;
        if let Some(end) = buffer[..read].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            return Some((end + 4, read));
        }
        if buffer[..read] == *RAW_HELLO {
            return Some((read, read));
        }
    }
}

/// An app that answers requests with 128 bytes, WebSocket messages with one, and a byte without HTTP with one.
pub(crate) struct App {
    pub(crate) port: u16,
    _tasks: JoinSet<()>,
}

impl App {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a socket");
                connections.spawn(serve(stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, _tasks: tasks }
    }
}

async fn serve(mut stream: TcpStream) {
    let mut buffer = [0; BUFFER_BYTES];
    while let Some((end, _)) = read_head(&mut stream, &mut buffer).await {
        let head = &buffer[..end];
        if head == RAW_HELLO {
            if stream.write_all(&[RAW_ANSWER]).await.is_err() {
                return;
            }
        } else if head.windows(9).any(|bytes| bytes.eq_ignore_ascii_case(b"websocket")) {
            if stream.write_all(ACCEPTED).await.is_err() {
                return;
            }
            while stream.read_exact(&mut buffer[..8 + BODY_BYTES]).await.is_ok() {
                if stream.write_all(&app_message()).await.is_err() {
                    return;
                }
            }
            return;
        } else {
            let mut response = [b'x'; RESPONSE_HEAD.len() + BODY_BYTES];
            response[..RESPONSE_HEAD.len()].copy_from_slice(RESPONSE_HEAD);
            if stream.write_all(&response).await.is_err() {
                return;
            }
        }
    }
}
