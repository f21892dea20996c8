//! What stands between an agent and its gateway: proxies and a reverse proxy, each in this process, each counting.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use e2e::raw::Raw;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A server that lives as long as the test keeps it.
pub(crate) struct Middle {
    pub(crate) address: SocketAddr,
    /// Connections that came.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Connections that it led on.
    pub(crate) led: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Middle {
    async fn new<F>(serve: impl Fn(TcpStream, Arc<AtomicUsize>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (connections, led) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let (counted, leading) = (connections.clone(), led.clone());
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accepting on loopback");
                stream.set_nodelay(true).expect("a socket");
                counted.fetch_add(1, Ordering::Relaxed);
                serving.spawn(serve(stream, leading.clone()));
            }
        });
        Self { address, connections, led, _tasks: tasks }
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.connections.load(Ordering::Relaxed), self.led.load(Ordering::Relaxed))
    }

    /// A proxy that knows CONNECT, and wants this `Proxy-Authorization` if there is one.
    pub(crate) async fn connect_proxy(authorization: Option<&'static str>) -> Self {
        Self::new(move |stream, led| async move {
            let mut raw = Raw::new(stream);
            let Some(request) = raw.head().await else { return };
            if request.header("proxy-authorization") != authorization {
                let answer = "HTTP/1.1 407 Who\r\nproxy-authenticate: Basic realm=\"x\"\r\ncontent-length: 0\r\n\r\n";
                raw.try_send(answer).await.ok();
                return;
            }
            let target = request.start.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
            let target = target.unwrap_or_else(|| panic!("{request:?}"));
            let Ok(onward) = TcpStream::connect(target).await else { return };
            led.fetch_add(1, Ordering::Relaxed);
            raw.try_send("HTTP/1.0 200 Connection established\r\n\r\n").await.ok();
            join(raw.socket(), onward).await;
        })
        .await
    }

    /// A SOCKS5 server that wants a user and a password (RFC 1928 and 1929), and looks names up.
    pub(crate) async fn socks(user: &'static str, password: &'static str) -> Self {
        Self::new(move |mut stream, led| async move {
            let mut greeting = [0; 2];
            stream.read_exact(&mut greeting).await.expect("a greeting");
            let mut methods = vec![0; usize::from(greeting[1])];
            stream.read_exact(&mut methods).await.expect("methods");
            if !methods.contains(&2) {
                stream.write_all(&[5, 0xff]).await.ok();
                return;
            }
            stream.write_all(&[5, 2]).await.expect("written");
            assert_eq!(stream.read_u8().await.expect("a version"), 1);
            let (said_user, said_password) = (string(&mut stream).await, string(&mut stream).await);
            let right = (said_user, said_password) == (user.to_owned(), password.to_owned());
            stream.write_all(&[1, u8::from(!right)]).await.expect("written");
            if !right {
                return;
            }
            let mut request = [0; 4];
            stream.read_exact(&mut request).await.expect("a request");
            assert_eq!(request[..3], [5, 1, 0]);
            let host = match request[3] {
                1 => std::net::Ipv4Addr::from(stream.read_u32().await.expect("an address")).to_string(),
                3 => string(&mut stream).await,
                other => panic!("address type {other}"),
            };
            let port = stream.read_u16().await.expect("a port");
            let onward = TcpStream::connect((host.as_str(), port)).await.expect("the gateway listens");
            led.fetch_add(1, Ordering::Relaxed);
            stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.expect("written");
            join(&mut stream, onward).await;
        })
        .await
    }

    /// A reverse proxy that knows HTTP/1.1 and nothing newer, on both sides. `upgrades`: it lets WebSockets through.
    pub(crate) async fn http1_only(gateway: SocketAddr, upgrades: bool) -> Self {
        Self::new(move |stream, led| async move {
            http1(stream, gateway, upgrades, led).await;
        })
        .await
    }
}

async fn string(stream: &mut TcpStream) -> String {
    let length = stream.read_u8().await.expect("a length");
    let mut text = vec![0; usize::from(length)];
    stream.read_exact(&mut text).await.expect("text");
    String::from_utf8(text).expect("text")
}

async fn join(one: &mut (impl AsyncRead + AsyncWrite + Unpin), mut other: impl AsyncRead + AsyncWrite + Unpin) {
    // Who ends it, and how, is seen at the ends.
    tokio::io::copy_bidirectional(one, &mut other).await.ok();
}

/// Serves one connection as a reverse proxy of HTTP/1.1.
pub(crate) async fn http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    gateway: SocketAddr,
    upgrades: bool,
    led: Arc<AtomicUsize>,
) {
    let service = service_fn(move |request| {
        let led = led.clone();
        async move { Ok::<_, Infallible>(forward(request, gateway, upgrades, led).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    connection.with_upgrades().await.ok();
}

async fn forward(
    mut request: Request<Incoming>,
    gateway: SocketAddr,
    upgrades: bool,
    led: Arc<AtomicUsize>,
) -> Response<BoxBody<Bytes, hyper::Error>> {
    let stream = TcpStream::connect(gateway).await.expect("the gateway listens");
    stream.set_nodelay(true).expect("a socket");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
    let mut running = JoinSet::new();
    running.spawn(async move {
        connection.with_upgrades().await.ok();
    });
    if !upgrades {
        request.headers_mut().remove("upgrade");
        request.headers_mut().remove("connection");
    }
    let here = hyper::upgrade::on(&mut request);
    let Ok(mut response) = sender.send_request(request).await else {
        let nothing = Empty::new().map_err(|never| match never {}).boxed();
        return Response::builder().status(StatusCode::BAD_GATEWAY).body(nothing).unwrap();
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let there = hyper::upgrade::on(&mut response);
        led.fetch_add(1, Ordering::Relaxed);
        running.spawn(async move {
            let (Ok(here), Ok(there)) = tokio::join!(here, there) else { return };
            join(&mut TokioIo::new(here), TokioIo::new(there)).await;
        });
    }
    running.detach_all();
    response.map(BodyExt::boxed)
}
