//! Exact bytes: a client that writes what a test says and reads what comes, and apps that do the same.

use std::future::Future;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::PATIENCE;

/// An HTTP/1.1 message as it came.
#[derive(Clone, Debug)]
pub struct Message {
    /// Request or status line, without its line end.
    pub start: String,
    /// Fields in order; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, with a chunked framing taken off.
    pub body: Vec<u8>,
}

impl Message {
    /// Returns the status code of a response.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status: {self:?}"))
    }

    /// Returns a header's only value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(other, _)| other == name);
        let first = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} came twice: {self:?}");
        first
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A raw connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, unread: Vec::new() }
    }

    /// Connects from another address of this machine: all of 127.0.0.0/8 is its own.
    pub async fn connect_from(source: [u8; 4], address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from((source, 0))).expect("an address of this machine");
        let stream = socket.connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self::new(stream)
    }

    /// Wraps an accepted connection.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Returns the socket.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Writes bytes as they are.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).await.expect("the other end reads");
    }

    /// Writes bytes as they are; the other end may be gone.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        tokio::time::timeout(PATIENCE, self.stream.write_all(bytes.as_ref())).await.expect("the other end reads")
    }

    /// Ends the sending direction.
    pub async fn finish(&mut self) {
        self.stream.shutdown().await.expect("a socket");
    }

    /// Reads one message head and its body by Content-Length or chunks; `None` at the end of the stream. A message
    /// without either has no body here; see [`Raw::read_rest`].
    pub async fn message(&mut self) -> Option<Message> {
        let mut message = self.head().await?;
        let is_chunked = message.header("transfer-encoding") == Some("chunked");
        if is_chunked {
            message.body = self.chunks().await;
        } else if let Some(length) = message.header("content-length") {
            let length = length.parse().expect("a length");
            message.body = self.exactly(length).await;
        }
        Some(message)
    }

    /// Reads one message head; `None` at the end of the stream.
    pub async fn head(&mut self) -> Option<Message> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                let text = String::from_utf8_lossy(&head).into_owned();
                let mut lines = text.trim_end().split("\r\n");
                let start = lines.next().unwrap_or_default().to_owned();
                let headers = lines
                    .filter_map(|line| line.split_once(':'))
                    .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                    .collect();
                return Some(Message { start, headers, body: Vec::new() });
            }
            if !self.fill().await {
                assert!(self.unread.is_empty(), "half a head: {:?}", String::from_utf8_lossy(&self.unread));
                return None;
            }
        }
    }

    /// Reads one message head byte for byte, its empty line included; what has no end yet at the end of the stream.
    pub async fn head_bytes(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                return self.unread.drain(..end + 4).collect();
            }
            if !self.fill().await {
                return std::mem::take(&mut self.unread);
            }
        }
    }

    /// Reads exactly so many bytes.
    pub async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            assert!(self.fill().await, "the end came after {} of {length} bytes", self.unread.len());
        }
        self.unread.drain(..length).collect()
    }

    /// Reads the next bytes, whatever they are; empty at the end.
    pub async fn some(&mut self) -> Vec<u8> {
        if self.unread.is_empty() {
            self.fill().await;
        }
        std::mem::take(&mut self.unread)
    }

    /// Reads to the end of the stream. A reset counts as the end.
    pub async fn read_rest(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.unread)
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await;
            let length = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16).expect("a chunk size");
            if length == 0 {
                // Trailers, up to an empty line.
                while !self.line().await.is_empty() {}
                return body;
            }
            body.extend(self.exactly(length).await);
            assert_eq!(self.line().await, "", "a chunk ends with a line end");
        }
    }

    /// Reads one line, without its end.
    pub async fn line(&mut self) -> String {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..end + 2).collect();
                return String::from_utf8_lossy(&line[..end]).into_owned();
            }
            assert!(self.fill().await, "the end came within a line");
        }
    }

    async fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("something comes");
        let read = read.unwrap_or(0);
        self.unread.extend_from_slice(&buffer[..read]);
        read > 0
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// An app on a free port that serves each connection with the same script, in a task of its own.
#[derive(Debug)]
pub struct RawApp {
    /// Its port.
    pub port: u16,
    _tasks: JoinSet<()>,
}

impl RawApp {
    /// Starts it.
    pub async fn start<F, S>(script: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(Raw) -> F + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(script(Raw::new(stream)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, _tasks: tasks }
    }

    /// Switches to a protocol of its own, `echo`, and sends back what it gets.
    pub async fn echo() -> Self {
        Self::start(|mut raw| async move {
            raw.head().await;
            raw.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await;
            loop {
                let bytes = raw.some().await;
                if bytes.is_empty() || raw.try_send(bytes).await.is_err() {
                    return;
                }
            }
        })
        .await
    }

    /// Starts one that answers each request with 200 and the request's own head and body as text.
    pub async fn mirror() -> Self {
        Self::start(|mut raw| async move {
            while let Some(request) = raw.message().await {
                let mut text = format!("{}\n", request.start);
                for (name, value) in &request.headers {
                    text.push_str(&format!("{name}: {value}\n"));
                }
                text.push('\n');
                text.push_str(&request.text());
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
                if raw.try_send(answer).await.is_err() {
                    return;
                }
            }
        })
        .await
    }
}

/// Reads until the end and returns how many bytes came.
pub async fn drain(mut from: impl AsyncRead + Unpin) -> std::io::Result<u64> {
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await
}
