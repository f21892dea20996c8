//! Turns an accepted socket into a served connection: finds its client, checks the limits, and does the handshake.

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

use super::{AcceptPolicy, ClientKind, Connection, PlaceBy, RoutingHint};
use crate::limits::Guest;
use crate::limits::idle::ConnectionSlot;
use crate::proxy::{HEADER_BYTES_MAX, Parsed, parse};
use crate::stream::ClientStream;
use crate::tls::Tls;
use crate::workers::Worker;
use gateway_types::Limit;

/// Number of a connection's first bytes that are read to find its host; enough for a request line and early header
/// fields.
const FIRST_BYTES: usize = 1024;

/// Longest wait for a connection's first bytes before it is served on any thread.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for a client without TLS to read why it is refused.
const PLAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// Receives one connection: finds its client, does the handshake, and serves it.
pub(super) struct Reception<S> {
    pub(super) what: &'static str,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) handshakes: Arc<Semaphore>,
    pub(super) limit: Duration,
    pub(super) policy: Arc<AcceptPolicy>,
    /// Membership of a user's connection in the crowd.
    pub(super) member: Option<Arc<ConnectionSlot>>,
    pub(super) peer: SocketAddr,
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) serve: S,
}

/// An accepted connection, before its handshake is answered.
pub(super) enum ClientHello {
    /// Nothing was read.
    Unread(TcpStream),
    /// The ClientHello of TLS was read, or none is needed.
    Read(Arrived, HandshakeState),
}

/// Client of a connection after admission.
pub(super) struct Arrived {
    client: SocketAddr,
    guest: Result<Arc<Guest>, Limit>,
}

/// State of a connection's handshake.
pub(super) enum HandshakeState {
    /// No TLS is spoken.
    Plain(TcpStream),
    /// The client sent its ClientHello.
    Tls(Box<StartHandshake<TcpStream>>),
}

impl ClientHello {
    /// Finds the thread for the connection.
    pub(super) async fn choose_worker(&self, place: &PlaceBy) -> Option<Worker> {
        match self {
            Self::Unread(_) => None,
            Self::Read(_, HandshakeState::Tls(start)) => {
                place(RoutingHint::ServerName(start.client_hello().server_name()?))
            }
            // The timer runs only for clients that connect ahead of time; others have sent something by now.
            Self::Read(_, HandshakeState::Plain(stream)) => timeout(
                FIRST_BYTES_TIMEOUT,
                poll_fn(|context| {
                    // On the stack, so that the connection does not keep it.
                    let mut bytes = [0; FIRST_BYTES];
                    let mut buffer = ReadBuf::new(&mut bytes);
                    let peeked = ready!(stream.poll_peek(context, &mut buffer));
                    Poll::Ready(peeked.ok().and_then(|_| place(RoutingHint::Bytes(buffer.filled()))))
                }),
            )
            .await
            .ok()?,
        }
    }

    fn moved(self, worker: &Worker) -> io::Result<Self> {
        Ok(match self {
            Self::Unread(stream) => Self::Unread(worker.adopt(stream)?),
            Self::Read(arrived, HandshakeState::Plain(stream)) => {
                Self::Read(arrived, HandshakeState::Plain(worker.adopt(stream)?))
            }
            Self::Read(arrived, HandshakeState::Tls(start)) => {
                let StartHandshake { accepted, io, .. } = *start;
                let start = StartHandshake::from_parts(accepted, worker.adopt(io)?);
                Self::Read(arrived, HandshakeState::Tls(Box::new(start)))
            }
        })
    }
}

impl<F, S> Reception<S>
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(Connection) -> F + Send + Sync + 'static,
{
    /// Finds the client, and waits for its ClientHello, if there is to be one. A client that sends none occupies no
    /// handshake permit, and is closed when others need the room.
    pub(super) async fn client_hello(&self, stream: TcpStream) -> Option<ClientHello> {
        tokio::select! {
            biased;
            hello = self.read_client_hello(stream) => hello,
            () = poll_fn(|context| self.poll_leave(context)) => None,
        }
    }

    async fn read_client_hello(&self, mut stream: TcpStream) -> Option<ClientHello> {
        let by = Instant::now() + self.limit;
        let arrived = self.arrive(&mut stream, by).await?;
        if self.tls.is_none() || arrived.guest.is_err() {
            return Some(ClientHello::Read(arrived, HandshakeState::Plain(stream)));
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
        Some(ClientHello::Read(arrived, HandshakeState::Tls(Box::new(start))))
    }

    /// Finds the client of the connection and takes its place under the limits. `None` if no answer is to be sent.
    async fn arrive(&self, stream: &mut TcpStream, by: Instant) -> Option<Arrived> {
        let client = if self.policy.trusts(self.peer.ip()) {
            // Boxed: few connections need the header's buffer.
            let told = timeout_at(by, Box::pin(read_proxy(stream))).await.map_err(io::Error::from).flatten();
            match told {
                Ok(source) => source.unwrap_or(self.peer),
                Err(error) => {
                    debug!(listener = self.what, peer = %self.peer, %error, "a trusted proxy did not name its client");
                    return None;
                }
            }
        } else {
            self.peer
        };
        let (limits, now) = (&self.policy.limits, Instant::now().into_std());
        let arrived = match (self.policy.kind, &self.member) {
            (ClientKind::User, Some(member)) => limits.arrive(client.ip(), member.clone(), now),
            (ClientKind::Link, _) => limits.arrive_agent(client.ip(), now),
            (ClientKind::User | ClientKind::Operator, _) => {
                Ok((limits.arrive_operator(client.ip(), now), Duration::ZERO))
            }
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
                // Telling a client that speaks TLS would cost a handshake, more than it is worth.
                let is_told = self.tls.is_none() && self.policy.kind == ClientKind::User;
                is_told.then_some(Arrived { client, guest: Err(limit) })
            }
        }
    }

    fn poll_leave(&self, context: &std::task::Context<'_>) -> Poll<()> {
        self.member.as_ref().map_or(Poll::Pending, |member| member.poll_leave(context))
    }

    /// Serves the connection on another thread, or on this one without a worker.
    pub(super) fn hand_over(self, hello: ClientHello, worker: Option<Worker>, drain: &Drain) {
        let Some(worker) = worker else {
            drain.spawn(self.handshake_and_serve(hello));
            return;
        };
        match hello.moved(&worker) {
            Ok(hello) => worker.spawn(drain, self.handshake_and_serve(hello)),
            Err(error) => warn!(listener = self.what, %error, "a connection could not be handed on"),
        }
    }

    /// Does the handshake and serves.
    pub(super) async fn handshake_and_serve(self, hello: ClientHello) {
        let hello = match hello {
            ClientHello::Unread(stream) => self.client_hello(stream).await,
            hello @ ClientHello::Read(..) => Some(hello),
        };
        let (arrived, stream) = match hello {
            None | Some(ClientHello::Unread(_)) => return,
            Some(ClientHello::Read(arrived, HandshakeState::Plain(stream))) => (arrived, ClientStream::Plain(stream)),
            Some(ClientHello::Read(arrived, HandshakeState::Tls(start))) => {
                match self.handshake(&arrived, *start).await {
                    Ok(stream) => (arrived, stream),
                    Err(error) => return self.complain(&error),
                }
            }
        };
        let (Self { peer, permit, serve, .. }, Arrived { client, guest }) = (self, arrived);
        serve(Connection { stream, peer, client, guest, permit }).await;
    }

    /// Does the handshake. The wait for the other end has a time limit; the wait for a permit has none, because every
    /// handshake ends.
    async fn handshake(&self, arrived: &Arrived, start: StartHandshake<TcpStream>) -> io::Result<ClientStream> {
        let Some(tls) = &self.tls else { return Err(io::ErrorKind::Unsupported.into()) };
        // One address cannot take all permits: clients that stop within their handshake keep theirs until they are cut.
        let of_address = match (&arrived.guest, self.policy.kind) {
            (Ok(guest), ClientKind::User) => {
                Some(guest.handshake_permit().map_err(|limit| io::Error::other(limit.name()))?)
            }
            (Ok(_), ClientKind::Link | ClientKind::Operator) | (Err(_), _) => None,
        };
        let _permit = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let stream = tokio::select! {
            biased;
            stream = timeout(self.limit, start.into_stream(tls.current())) => stream??,
            () = sent_away(arrived) => return Err(io::ErrorKind::TimedOut.into()),
            () = poll_fn(|context| self.poll_leave(context)) => return Err(io::ErrorKind::TimedOut.into()),
        };
        drop(of_address);
        Ok(ClientStream::Tls(Box::new(stream)))
    }

    /// Tells a client that speaks without TLS that TLS is needed; agents get it as a gRPC error, which they log.
    async fn refuse_plain(&self, arrived: &Arrived, stream: &mut TcpStream) {
        if arrived.guest.as_ref().is_ok_and(|guest| guest.may_be_told_of(Instant::now().into_std())) {
            info!(listener = self.what, peer = %arrived.client, "a client without TLS came to a listener that has TLS");
        }
        let answer = plain_answer(self.policy.kind);
        // A client that does not read the answer sees a closed connection. Its bytes are read, or a reset could
        // overtake the answer.
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

/// Waits until the connection has to be closed for others of its address.
async fn sent_away(arrived: &Arrived) {
    match &arrived.guest {
        Ok(guest) => guest.sent_away().await,
        Err(_) => std::future::pending().await,
    }
}

/// Returns whether a client's first byte is not TLS: a handshake record begins with 22 (RFC 8446, section 5.1).
async fn is_plain(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first != [22]
}

fn plain_answer(kind: ClientKind) -> String {
    const WORDS: &str = "this listener has TLS: begin the URL with https://";
    let fields = match kind {
        ClientKind::Link => format!("content-type: application/grpc\r\ngrpc-status: 9\r\ngrpc-message: {WORDS}\r\n"),
        ClientKind::User | ClientKind::Operator => "content-type: text/plain; charset=utf-8\r\n".to_owned(),
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
        // Peeked bytes are consumed only as far as they belong to the header.
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
