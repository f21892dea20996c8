//! Apps behind an agent, on loopback ports that the kernel chooses, and bytes whose every position can be checked.

use std::future::Future;
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Serves each connection with one future, until it is dropped.
pub(crate) struct App {
    pub(crate) port: u16,
    _tasks: JoinSet<()>,
}

impl App {
    pub(crate) async fn new<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accepting on loopback");
                connections.spawn(serve(stream));
            }
        });
        Self { port, _tasks: tasks }
    }

    /// Sends back what it gets, and ends when its peer does.
    pub(crate) async fn echo() -> Self {
        Self::new(|mut stream| async move {
            let (mut reader, mut writer) = stream.split();
            // A client that goes away in the middle is not this app's fault.
            tokio::io::copy(&mut reader, &mut writer).await.ok();
            writer.shutdown().await.ok();
        })
        .await
    }

    /// Accepts, and then neither reads nor writes nor closes.
    pub(crate) async fn stalled() -> Self {
        Self::new(|stream| async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await
    }
}

/// A port on which nothing listens, and which nobody else is given meanwhile.
pub(crate) fn closed_port() -> (u16, TcpSocket) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    (socket.local_addr().expect("bound").port(), socket)
}

/// Closing this socket sends a reset instead of an end.
pub(crate) fn abort(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).expect("linger");
}

/// The period is prime, so that no lost, repeated or moved piece of any usual size fits again.
const PERIOD: usize = 1_000_003;

static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 1_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..PERIOD).map(|_| next()).collect()
});

/// An endless text of which every position can be checked. Each seed begins elsewhere in it.
pub(crate) struct Pattern {
    start: usize,
}

impl Pattern {
    pub(crate) fn new(seed: usize) -> Self {
        Self { start: seed * 7_919 }
    }

    pub(crate) fn at(&self, position: usize, length: usize) -> &'static [u8] {
        let start = (self.start + position) % PERIOD;
        &TEXT[start..PERIOD.min(start + length)]
    }

    pub(crate) async fn write(&self, writer: &mut (impl AsyncWriteExt + Unpin), total: usize) {
        let mut position = 0;
        while position < total {
            // Odd sizes, so that pieces do not line up with frames.
            let piece = self.at(position, 49_999.min(total - position));
            writer.write_all(piece).await.expect("writing");
            position += piece.len();
        }
    }

    /// Reads to the end and returns how much that was.
    pub(crate) async fn check(&self, reader: &mut (impl AsyncReadExt + Unpin)) -> usize {
        let mut buffer = vec![0; 128 * 1024];
        let mut position = 0;
        loop {
            let read = reader.read(&mut buffer).await.expect("reading");
            if read == 0 {
                return position;
            }
            let mut rest = &buffer[..read];
            while !rest.is_empty() {
                let expected = self.at(position, rest.len());
                assert!(rest.starts_with(expected), "wrong bytes after {position}");
                position += expected.len();
                rest = &rest[expected.len()..];
            }
        }
    }
}
