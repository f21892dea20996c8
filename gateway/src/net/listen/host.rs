//! From an accepted socket to a connection that is served: for whom it is, whether there is room, and its handshake.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use tracing::{debug, info, warn};
use tunnel_link::drain::Drain;

use super::{Connection, Door, First, Kind, Place};
use crate::limits::crowd::Place as Seat;
use crate::limits::{Guest, Limit};
use crate::net::proxy::{HEADER_BYTES_MAX, Parsed, parse};
use crate::net::stream::Stream;
use crate::net::tls::Tls;
use crate::net::workers::Worker;

/// How much of the first bytes of a connection is looked at to find out where it belongs; enough for a request line and
/// the fields that come early.
const FIRST_BYTES: usize = 1024;

/// How long a connection's first bytes are waited for before it is served anywhere.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a client without TLS gets to read why it is turned away.
const PLAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// Whoever receives one connection.
pub(super) struct Host<S> {
    pub(super) what: &'static str,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) handshakes: Arc<Semaphore>,
    pub(super) limit: Duration,
    pub(super) door: Arc<Door>,
    /// The place of a user's connection among all of them.
    pub(super) seat: Option<Arc<Seat>>,
    pub(super) peer: SocketAddr,
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) serve: S,
}

/// A connection before its handshake is answered.
pub(super) enum Hello {
    /// Nothing was read.
    Unread(TcpStream),
    /// Something was, or need not be.
    Read(Arrived, Begun),
}

/// Whoever has arrived.
pub(super) struct Arrived {
    client: SocketAddr,
    guest: Result<Arc<Guest>, Limit>,
}

/// How far a connection's handshake is.
pub(super) enum Begun {
    /// There will be none.
    Plain(TcpStream),
    /// The client said its hello.
    Tls(Box<StartHandshake<TcpStream>>),
}

impl Hello {
    /// Asks where the connection belongs.
    pub(super) async fn ask(&self, place: &Place) -> Option<Worker> {
        match self {
            Self::Unread(_) => None,
            Self::Read(_, Begun::Tls(start)) => place(First::ServerName(start.client_hello().server_name()?)),
            // A timer of its own only for clients that connect ahead of time; others have sent something by now.
            Self::Read(_, Begun::Plain(stream)) => timeout(
                FIRST_BYTES_TIMEOUT,
                poll_fn(|context| {
                    // On the stack, so that no connection keeps it.
                    let mut bytes = [0; FIRST_BYTES];
                    let mut buffer = ReadBuf::new(&mut bytes);
                    let peeked = ready!(stream.poll_peek(context, &mut buffer));
                    Poll::Ready(peeked.ok().and_then(|_| place(First::Bytes(buffer.filled()))))
                }),
            )
            .await
            .ok()?,
        }
    }

    fn moved(self, worker: &Worker) -> io::Result<Self> {
        Ok(match self {
            Self::Unread(stream) => Self::Unread(worker.adopt(stream)?),
            Self::Read(arrived, Begun::Plain(stream)) => Self::Read(arrived, Begun::Plain(worker.adopt(stream)?)),
            Self::Read(arrived, Begun::Tls(start)) => {
                let StartHandshake { accepted, io, .. } = *start;
                let start = StartHandshake::from_parts(accepted, worker.adopt(io)?);
                Self::Read(arrived, Begun::Tls(Box::new(start)))
            }
        })
    }
}

impl<F, S> Host<S>
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(Connection) -> F + Send + Sync + 'static,
{
    /// Finds out who comes, and waits for the client's hello, if there is to be one. Who has not even said that takes
    /// nobody's turn, and leaves when others need the room.
    pub(super) async fn hello(&self, stream: TcpStream) -> Option<Hello> {
        tokio::select! {
            biased;
            hello = self.hello_of(stream) => hello,
            () = poll_fn(|context| self.poll_leave(context)) => None,
        }
    }

    async fn hello_of(&self, mut stream: TcpStream) -> Option<Hello> {
        let by = Instant::now() + self.limit;
        let arrived = self.arrive(&mut stream, by).await?;
        if self.tls.is_none() || arrived.guest.is_err() {
            return Some(Hello::Read(arrived, Begun::Plain(stream)));
        }
        let is_plain_text = tokio::select! {
            biased;
            peeked = timeout_at(by, is_plain(&stream)) => matches!(peeked, Ok(true)),
            () = sent_away(&arrived) => return None,
        };
        if is_plain_text {
            self.refuse_plain(&arrived, &mut stream).await;
            return None;
        }
        let accepting = timeout_at(by, LazyConfigAcceptor::new(Acceptor::default(), stream));
        let hello = tokio::select! {
            biased;
            hello = accepting => hello,
            () = sent_away(&arrived) => return None,
        };
        let hello = hello.map_err(io::Error::from).flatten();
        let start = hello.map_err(|error| self.complain(&error)).ok()?;
        Some(Hello::Read(arrived, Begun::Tls(Box::new(start))))
    }

    /// Finds out for whom the connection is, and whether there is room for them. `None` when there is nobody to tell.
    async fn arrive(&self, stream: &mut TcpStream, by: Instant) -> Option<Arrived> {
        let client = if self.door.trusts(self.peer.ip()) {
            // Boxed: few connections need that much room.
            let told = timeout_at(by, Box::pin(read_proxy(stream))).await.map_err(io::Error::from).flatten();
            match told {
                Ok(source) => source.unwrap_or(self.peer),
                Err(error) => {
                    debug!(listener = self.what, peer = %self.peer, %error, "a trusted proxy did not say for whom it connects");
                    return None;
                }
            }
        } else {
            self.peer
        };
        let (shares, now) = (&self.door.shares, Instant::now().into_std());
        let arrived = match (self.door.kind, &self.seat) {
            (Kind::User, Some(seat)) => shares.arrive(client.ip(), seat.clone(), now),
            (Kind::Link, _) => shares.arrive_agent(client.ip(), now),
            (Kind::User | Kind::Operator, _) => Ok((shares.arrive_operator(client.ip(), now), Duration::ZERO)),
        };
        match arrived {
            Ok((guest, wait)) => {
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                Some(Arrived { client, guest: Ok(Arc::new(guest)) })
            }
            Err(limit) => {
                debug!(listener = self.what, peer = %client, limit = limit.name(), "connection refused");
                // A handshake would cost more than it is worth to say so.
                let is_told = self.tls.is_none() && self.door.kind == Kind::User;
                is_told.then_some(Arrived { client, guest: Err(limit) })
            }
        }
    }

    fn poll_leave(&self, context: &std::task::Context<'_>) -> Poll<()> {
        self.seat.as_ref().map_or(Poll::Pending, |seat| seat.poll_leave(context))
    }

    /// Serves the connection on another thread, or here if there is none.
    pub(super) fn place(self, hello: Hello, worker: Option<Worker>, drain: &Drain) {
        let Some(worker) = worker else {
            drain.spawn(self.welcome(hello));
            return;
        };
        match hello.moved(&worker) {
            Ok(hello) => worker.spawn(drain, self.welcome(hello)),
            Err(error) => warn!(listener = self.what, %error, "a connection could not be handed on"),
        }
    }

    /// Shakes hands and serves.
    pub(super) async fn welcome(self, hello: Hello) {
        let hello = match hello {
            Hello::Unread(stream) => self.hello(stream).await,
            hello @ Hello::Read(..) => Some(hello),
        };
        let (arrived, stream) = match hello {
            None | Some(Hello::Unread(_)) => return,
            Some(Hello::Read(arrived, Begun::Plain(stream))) => (arrived, Stream::Plain(stream)),
            Some(Hello::Read(arrived, Begun::Tls(start))) => match self.shake(&arrived, *start).await {
                Ok(stream) => (arrived, stream),
                Err(error) => return self.complain(&error),
            },
        };
        let (Self { peer, permit, serve, .. }, Arrived { client, guest }) = (self, arrived);
        serve(Connection { stream, peer, client, guest, permit }).await;
    }

    /// Does the work of a handshake. The wait for the other end has the limit; the wait for a turn has none, because
    /// every turn ends.
    async fn shake(&self, arrived: &Arrived, start: StartHandshake<TcpStream>) -> io::Result<Stream> {
        let Some(tls) = &self.tls else { return Err(io::ErrorKind::Unsupported.into()) };
        // One address cannot take all turns: those who stop within their handshake keep theirs until they are cut.
        let seat = match (&arrived.guest, self.door.kind) {
            (Ok(guest), Kind::User) => Some(guest.shake().map_err(|limit| io::Error::other(limit.name()))?),
            (Ok(_), Kind::Link | Kind::Operator) | (Err(_), _) => None,
        };
        let _permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let stream = tokio::select! {
            biased;
            stream = timeout(self.limit, start.into_stream(tls.current())) => stream??,
            () = sent_away(arrived) => return Err(io::ErrorKind::TimedOut.into()),
            () = poll_fn(|context| self.poll_leave(context)) => return Err(io::ErrorKind::TimedOut.into()),
        };
        drop(seat);
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// Tells a client that speaks without TLS that it has to: agents in the words of gRPC, which they put into their log.
    async fn refuse_plain(&self, arrived: &Arrived, stream: &mut TcpStream) {
        if arrived.guest.as_ref().is_ok_and(|guest| guest.may_be_told_of(Instant::now().into_std())) {
            info!(listener = self.what, peer = %arrived.client, "a client without TLS came to a listener that has TLS");
        }
        let answer = plain_answer(self.door.kind);
        // Whoever does not take it sees a closed connection, as before. What was sent is read, or a reset could overtake it.
        let told = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await?;
            let mut rest = [0; FIRST_BYTES];
            while stream.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        };
        if let Ok(Err(error)) = timeout(PLAIN_TIMEOUT, told).await {
            self.complain(&error);
        }
    }

    fn complain(&self, error: &io::Error) {
        debug!(listener = self.what, peer = %self.peer, %error, "TLS handshake failed");
    }
}

/// Waits until a connection has to go.
async fn sent_away(arrived: &Arrived) {
    match &arrived.guest {
        Ok(guest) => guest.sent_away().await,
        Err(_) => std::future::pending().await,
    }
}

/// Tells whether what a client says first is no TLS: a record with a handshake begins with 22 (RFC 8446, section 5.1).
async fn is_plain(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first != [22]
}

fn plain_answer(kind: Kind) -> String {
    const WORDS: &str = "this listener has TLS: begin the URL with https://";
    let fields = match kind {
        Kind::Link => format!("content-type: application/grpc\r\ngrpc-status: 9\r\ngrpc-message: {WORDS}\r\n"),
        Kind::User | Kind::Operator => "content-type: text/plain; charset=utf-8\r\n".to_owned(),
    };
    let length = WORDS.len() + 1;
    format!(
        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ngateway-error: tls_required\r\n{fields}content-length: {length}\r\n\r\n{WORDS}\n"
    )
}

/// Reads a PROXY protocol header, and not a byte more.
async fn read_proxy(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut header = [0; HEADER_BYTES_MAX];
    let mut read = 0;
    loop {
        let room = header.get_mut(read..).unwrap_or_default();
        let peeked = stream.peek(room).await?;
        if peeked == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = read + peeked;
        let parsed = parse(header.get(..end).unwrap_or_default());
        // What was peeked is read only as far as it belongs to the header.
        let (end, source) = match parsed.map_err(io::Error::other)? {
            Parsed::Partial => (end, None),
            Parsed::Whole { length, source } => (length, Some(source)),
        };
        stream.read_exact(header.get_mut(read..end).unwrap_or_default()).await?;
        if let Some(source) = source {
            return Ok(source);
        }
        read = end;
    }
}
