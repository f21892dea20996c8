//! A stream that can be stopped or cut, as networks do it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// How the two ends are connected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wire {
    Memory,
    Loopback,
}

impl Wire {
    pub(crate) async fn connect(self) -> (Box<dyn Stream>, Box<dyn Stream>) {
        match self {
            Self::Memory => {
                let (one, other): (DuplexStream, DuplexStream) = tokio::io::duplex(64 * 1024);
                (Box::new(one), Box::new(other))
            }
            Self::Loopback => {
                let (one, other) = loopback().await;
                (Box::new(one), Box::new(other))
            }
        }
    }
}

/// Two ends of one TCP connection.
pub(crate) async fn loopback() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (one, (other, _)) = (one.expect("connected"), other.expect("accepted"));
    for stream in [&one, &other] {
        tunnel_link::socket::tune_link(stream).expect("tuned");
    }
    (one, other)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Flowing,
    Stopped,
    Cut,
}

/// Stops or cuts the stream that it belongs to.
#[derive(Clone)]
pub(crate) struct Switch {
    state: Arc<Mutex<(Mode, Vec<Waker>)>>,
}

impl Switch {
    pub(crate) fn new() -> Self {
        Self { state: Arc::new(Mutex::new((Mode::Flowing, Vec::new()))) }
    }

    /// Nothing moves any more and nobody is told, as with a cable that was pulled.
    pub(crate) fn stop(&self) {
        self.set(Mode::Stopped);
    }

    /// Both directions end at once, as with a process that died.
    pub(crate) fn cut(&self) {
        self.set(Mode::Cut);
    }

    fn set(&self, mode: Mode) {
        let wakers = {
            let mut state = self.state.lock();
            state.0 = mode;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Registers for a change, and says what to do instead of the call: `None` for nothing else.
    fn instead(&self, context: &Context<'_>) -> Option<Poll<io::Error>> {
        let mut state = self.state.lock();
        if !state.1.iter().any(|waker| waker.will_wake(context.waker())) {
            state.1.push(context.waker().clone());
        }
        match state.0 {
            Mode::Flowing => None,
            Mode::Stopped => Some(Poll::Pending),
            Mode::Cut => Some(Poll::Ready(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

pub(crate) struct Switched {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) switch: Switch,
}

impl AsyncRead for Switched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.switch.instead(context) {
            Some(instead) => instead.map(Err),
            None => Pin::new(&mut self.stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Switched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        match self.switch.instead(context) {
            Some(instead) => instead.map(Err),
            None => Pin::new(&mut self.stream).poll_write(context, buffer),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.switch.instead(context) {
            Some(instead) => instead.map(Err),
            None => Pin::new(&mut self.stream).poll_write_vectored(context, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.switch.instead(context) {
            Some(instead) => instead.map(Err),
            None => Pin::new(&mut self.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.switch.instead(context) {
            Some(instead) => instead.map(Err),
            None => Pin::new(&mut self.stream).poll_shutdown(context),
        }
    }
}
