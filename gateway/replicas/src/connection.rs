//! The calling half of what replicas say to each other: connections that are made when they are needed, and calls on them.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use std::time::Duration;

use bytes::Bytes;
use gateway_net::host_sockets;
use gateway_net::peers::{PeerRefused, PeerTls};
use gateway_types::failed_request::FailedRequest;
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Response, Uri};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tower_service::Service;
use tracing::debug;
use tunnel_link::grpc::{Chunk, ReceiveError};

use crate::lane_body::{HopBody, LaneBody};
use crate::service::CARRY_LANE;
use crate::wire::peers_client::PeersClient;
use crate::wire::{
    Announcement, Displaced, FailedRequestQuery, Introduction, LaneWish, SessionPlace, SessionQuery, WantedLane,
    WorkspaceQuery,
};

/// Time limit for a connection to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for which a connection is not tried again after it failed.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// Time limit for an answer, and for the description of a carried agent.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval of pings, and the wait for an answer: a replica that is gone is noticed within five seconds.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(2);
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes that one lane may have waiting here on their way to its agent, whatever the other replica does: a little more than is
/// granted to it (`tunnel_link::lane_window`), which is what counts.
const LANE_WINDOW_BYTES: u32 = 64 * 1024;

/// Largest frame of HTTP/2 between replicas: a chunk of bulk in one.
pub(crate) const FRAME_BYTES: u32 = 64 * 1024;

/// Bytes that all lanes of a connection may have on the way: as many as HTTP/2 allows (RFC 9113, section 6.9.1), because the
/// window of each lane bounds it, and lanes whose agents are slow must not take the connection from the others.
const CONNECTION_WINDOW_BYTES: u32 = u32::MAX >> 1;

/// Reason why a replica could not be asked, or what it answered.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The address has no host or port.
    #[error("the address of the replica cannot be used")]
    Address,
    /// It could not be reached a moment ago.
    #[error("the replica could not be reached a moment ago")]
    FailedBefore,
    /// It could not be reached.
    #[error("the replica cannot be reached")]
    Connect(#[source] std::io::Error),
    /// It did not prove to be a replica, or did not accept that this is one.
    #[error("the replica was refused: {0}")]
    Tls(#[from] PeerRefused),
    /// HTTP/2 failed.
    #[error("the connection to the replica broke")]
    Http2(#[from] hyper::Error),
    /// Another process start answers at that address.
    #[error("replica {found} answers at the address of replica {wanted}")]
    Another {
        /// The replica that was dialed.
        wanted: u64,
        /// The one that answered.
        found: u64,
    },
    /// It refused.
    #[error("the replica refused: {0}")]
    Refused(#[from] Status),
    /// It did not answer in time.
    #[error("the replica did not answer in time")]
    TimedOut,
}

/// Way to other replicas.
#[derive(Clone, Debug)]
pub enum PeerNetwork {
    /// To ports of any host, whose replicas prove their role.
    Tls(Arc<PeerTls>),
    /// To sockets of this host.
    Host,
}

/// A network of a test's making.
#[cfg(feature = "testing")]
pub trait PeerDialer: fmt::Debug + Send + Sync + 'static {
    /// Connects to a replica at its address.
    fn dial<'a>(&'a self, url: &'a str) -> PeerDial<'a>;
}

/// A connection on its way.
#[cfg(feature = "testing")]
pub type PeerDial<'a> = Pin<Box<dyn Future<Output = std::io::Result<Box<dyn PeerStream>>> + Send + 'a>>;

/// A connection of it.
#[cfg(feature = "testing")]
pub trait PeerStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

#[cfg(feature = "testing")]
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> PeerStream for T {}

/// Authority in the requests to processes of this host: nothing is decided by it.
const HOST_AUTHORITY: Authority = Authority::from_static("replica");

/// Connections to other replicas: for each one for calls, and some for lanes.
#[derive(Debug)]
pub struct PeerConnections {
    network: PeerNetwork,
    /// In the place of the network.
    #[cfg(feature = "testing")]
    dialer: Option<Box<dyn PeerDialer>>,
    own: u64,
    peers: Mutex<HashMap<u64, Arc<PeerConnection>>>,
    /// Drive connections.
    tasks: Mutex<JoinSet<()>>,
}

/// Most connections for lanes to one replica: one for each thread, because each is driven by one, and a replica has many others.
const LANE_CONNECTIONS_MAX: usize = 8;

/// A replica, and the connections to it while there are some.
pub struct PeerConnection {
    replica: u64,
    url: String,
    calls: PeerPlace,
    /// Lanes take turns.
    lanes: Box<[PeerPlace]>,
    next_lane: AtomicUsize,
}

/// Place of one connection; all that ask for it wait for one try.
type PeerPlace = tokio::sync::Mutex<PeerSender>;

/// State of the connection to a replica.
#[derive(Default)]
enum PeerSender {
    /// It was not tried yet.
    #[default]
    Unused,
    /// It is up, or was.
    Up(Sender),
    /// It could not be made at that time.
    Failed(Instant),
}

#[derive(Clone)]
struct Sender {
    requests: SendRequest<PeerBody>,
    authority: Authority,
}

impl PeerConnections {
    /// Makes it for this process start.
    #[must_use]
    pub fn new(network: PeerNetwork, own: u64) -> Self {
        Self {
            network,
            #[cfg(feature = "testing")]
            dialer: None,
            own,
            peers: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Makes it for this process start on a network of a test's making.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn simulated(dialer: Box<dyn PeerDialer>, own: u64) -> Self {
        Self { dialer: Some(dialer), ..Self::new(PeerNetwork::Host, own) }
    }

    /// Returns the connection to a replica at its address; it is made by the first call. A number may have another address after a
    /// backup of the store was restored, which knows less of the numbers that were given out.
    #[must_use]
    pub fn to(&self, replica: u64, url: &str) -> Arc<PeerConnection> {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(&replica).filter(|peer| peer.url == url) {
            return peer.clone();
        }
        let made = Arc::new(PeerConnection::new(replica, url));
        peers.insert(replica, made.clone());
        made
    }

    /// Forgets replicas that are not among those that live.
    pub fn keep_only(&self, lives: impl Fn(u64) -> bool) {
        self.peers.lock().retain(|replica, _| lives(*replica));
    }

    /// Asks a replica to have an agent add a relay lane, or to carry a hop lane for it. `None` if the session is not there.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Dropped, the agent may have been asked.
    pub async fn want_lane(&self, peer: &PeerConnection, wish: LaneWish) -> Result<Option<WantedLane>, PeerError> {
        let mut client = self.client(peer).await?;
        match in_time(client.want_lane(wish)).await? {
            Ok(wanted) => Ok(Some(wanted.into_inner())),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Asks a replica whether it has a session that may be resumed.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn has_session(&self, peer: &PeerConnection, query: SessionQuery) -> Result<bool, PeerError> {
        let mut client = self.client(peer).await?;
        match in_time(client.has_session(query)).await? {
            Ok(_done) => Ok(true),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(false),
            Err(status) => Err(status.into()),
        }
    }

    /// Asks a replica which session of a workspace is there. `None`: none with a link is.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn find_session(
        &self,
        peer: &PeerConnection,
        query: WorkspaceQuery,
    ) -> Result<Option<SessionPlace>, PeerError> {
        let mut client = self.client(peer).await?;
        match in_time(client.find_session(query)).await? {
            Ok(place) => Ok(Some(place.into_inner())),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Asks a replica for a failed request that it answered.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn explain(&self, peer: &PeerConnection, trace: String) -> Result<Option<FailedRequest>, PeerError> {
        let mut client = self.client(peer).await?;
        match in_time(client.explain(FailedRequestQuery { trace_id: trace })).await? {
            // One of a later version that has more to say is not shown, rather than shown in part.
            Ok(explained) => Ok(serde_json::from_slice(&explained.into_inner().failed).ok()),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            // An earlier version does not know the call.
            Err(status) if status.code() == tonic::Code::Unimplemented => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Tells a replica that a newer session of an agent is elsewhere.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Dropped, the replica may have been told.
    pub async fn displace(&self, peer: &PeerConnection, displaced: Displaced) -> Result<(), PeerError> {
        let mut client = self.client(peer).await?;
        in_time(client.displace(displaced)).await??;
        Ok(())
    }

    /// Announces changes to a replica.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Dropped, the replica may have them.
    pub async fn announce(&self, peer: &PeerConnection, announcement: Announcement) -> Result<(), PeerError> {
        let mut client = self.client(peer).await?;
        in_time(client.announce(announcement)).await??;
        Ok(())
    }

    /// Carries a lane to the replica at which it ends. Returns that replica's answer.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Dropped, it ends the lane's stream.
    pub async fn carry(&self, peer: &PeerConnection, lane: LaneBody) -> Result<Response<Incoming>, PeerError> {
        self.begin_lane(peer, PeerBody::Lane(lane)).await
    }

    /// Begins a hop lane at the replica at which it ends. Returns that replica's answer.
    ///
    /// # Errors
    /// [`PeerError`].
    ///
    /// # Cancel safety
    /// Dropped, it ends the lane's stream.
    pub async fn hop(&self, peer: &PeerConnection, lane: HopBody) -> Result<Response<Incoming>, PeerError> {
        self.begin_lane(peer, PeerBody::Hop(lane)).await
    }

    async fn begin_lane(&self, peer: &PeerConnection, lane: PeerBody) -> Result<Response<Incoming>, PeerError> {
        let mut sender = self.sender(peer, peer.lane_place()).await?;
        let mut request = Request::new(lane);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = sender.uri(CARRY_LANE)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        Ok(in_time(sender.requests.send_request(request)).await??)
    }

    async fn client(&self, peer: &PeerConnection) -> Result<PeersClient<Calls>, PeerError> {
        let sender = self.sender(peer, &peer.calls).await?;
        let origin = sender.uri("/")?;
        Ok(PeersClient::with_origin(Calls(sender.requests), origin))
    }

    /// Returns the connection of a replica at a place, and makes it if there is none or it is broken.
    async fn sender(&self, peer: &PeerConnection, place: &PeerPlace) -> Result<Sender, PeerError> {
        let mut current = place.lock().await;
        match &*current {
            PeerSender::Up(sender) if !sender.requests.is_closed() => return Ok(sender.clone()),
            // After a lost host all that ask would wait for one each.
            PeerSender::Failed(at) if at.elapsed() < RETRY_TIME => return Err(PeerError::FailedBefore),
            PeerSender::Unused | PeerSender::Up(_) | PeerSender::Failed(_) => {}
        }
        // A caller that gives up while it tries leaves a failure too.
        *current = PeerSender::Failed(Instant::now());
        let made = timeout(CONNECT_TIMEOUT, self.connect(peer)).await.map_err(|_elapsed| PeerError::TimedOut);
        let made = made.flatten();
        *current = match &made {
            Ok(sender) => PeerSender::Up(sender.clone()),
            Err(_) => PeerSender::Failed(Instant::now()),
        };
        made
    }

    async fn connect(&self, peer: &PeerConnection) -> Result<Sender, PeerError> {
        #[cfg(feature = "testing")]
        if let Some(dialer) = &self.dialer {
            let stream = dialer.dial(&peer.url).await.map_err(PeerError::Connect)?;
            return self.meet(stream, HOST_AUTHORITY, peer.replica).await;
        }
        let tls = match &self.network {
            PeerNetwork::Tls(tls) => tls,
            PeerNetwork::Host => {
                let stream = host_sockets::dial(&peer.url).await.ok_or(PeerError::Address)?;
                return self.meet(stream.map_err(PeerError::Connect)?, HOST_AUTHORITY, peer.replica).await;
            }
        };
        let url: Uri = peer.url.parse().map_err(|_| PeerError::Address)?;
        let authority = url.authority().cloned().ok_or(PeerError::Address)?;
        let port = authority.port_u16().ok_or(PeerError::Address)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await.map_err(PeerError::Connect)?;
        stream.set_nodelay(true).map_err(PeerError::Connect)?;
        self.meet(tls.connect(stream).await?, authority, peer.replica).await
    }

    /// Begins HTTP/2 with the replica at the other end, and checks which it is.
    async fn meet(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        authority: Authority,
        replica: u64,
    ) -> Result<Sender, PeerError> {
        let (requests, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(LANE_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await?;
        // Ends with the last handle and stream of the connection, or when that breaks.
        let driven = async move {
            let result = connection.await;
            debug!(replica, ?result, "the connection to a replica ended");
        };
        {
            let mut tasks = self.tasks.lock();
            while tasks.try_join_next().is_some() {}
            drop(tasks.spawn(driven));
        }
        let sender = Sender { requests, authority };
        let mut client = PeersClient::with_origin(Calls(sender.requests.clone()), sender.uri("/")?);
        let own = Introduction { replica: self.own, version: env!("CARGO_PKG_VERSION").to_owned() };
        let met = client.meet(own).await?.into_inner();
        if met.replica != replica {
            return Err(PeerError::Another { wanted: replica, found: met.replica });
        }
        Ok(sender)
    }
}

impl PeerConnection {
    fn new(replica: u64, url: &str) -> Self {
        let threads = available_parallelism().map_or(1, NonZeroUsize::get);
        let lanes = (0..threads.min(LANE_CONNECTIONS_MAX)).map(|_| PeerPlace::default()).collect();
        Self { replica, url: url.to_owned(), calls: PeerPlace::default(), lanes, next_lane: AtomicUsize::new(0) }
    }

    /// Returns the place of the connection for the next lane.
    fn lane_place(&self) -> &PeerPlace {
        let turn = self.next_lane.fetch_add(1, Ordering::Relaxed);
        self.lanes.get(turn % self.lanes.len().max(1)).unwrap_or(&self.calls)
    }
}

impl Sender {
    fn uri(&self, path: &'static str) -> Result<Uri, PeerError> {
        let uri = Uri::builder().scheme(Scheme::HTTPS).authority(self.authority.clone()).path_and_query(path);
        uri.build().map_err(|_| PeerError::Address)
    }
}

impl fmt::Debug for PeerConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PeerConnection").field("replica", &self.replica).finish_non_exhaustive()
    }
}

async fn in_time<T>(call: impl Future<Output = T>) -> Result<T, PeerError> {
    timeout(CALL_TIMEOUT, call).await.map_err(|_elapsed| PeerError::TimedOut)
}

/// The generated client's way to a connection.
#[derive(Clone)]
struct Calls(SendRequest<PeerBody>);

impl Service<Request<tonic::body::Body>> for Calls {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request.map(PeerBody::Call)))
    }
}

/// A request's body to another replica.
enum PeerBody {
    /// Message of a call.
    Call(tonic::body::Body),
    /// A lane of an agent.
    Lane(LaneBody),
    /// A lane that this replica serves.
    Hop(HopBody),
}

/// Reason why a body could not be sent.
#[derive(Debug, Error)]
enum BodyError {
    #[error(transparent)]
    Call(#[from] Status),
    #[error(transparent)]
    Lane(#[from] ReceiveError),
}

impl Body for PeerBody {
    type Data = Chunk;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, BodyError>>> {
        match self.get_mut() {
            Self::Call(body) => Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| Ok(chunk(frame?)))),
            Self::Lane(body) => Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| Ok(frame?))),
            Self::Hop(body) => {
                Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
            }
        }
    }
}

fn chunk(frame: Frame<Bytes>) -> Frame<Chunk> {
    frame.map_data(Chunk::from)
}
