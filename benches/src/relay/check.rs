//! Checks that a link has its properties, on this machine, today: rate, round trip, and the age of bytes on arrival
//! while a sender keeps the link full.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::{LinkSpec, Relay};

/// Bytes of one echo.
const ECHO_BYTES: usize = 64;

/// First bytes of a connection, which name its purpose.
const ECHO: u8 = b'e';
const FLOOD: u8 = b'f';
const SINK: u8 = b's';

/// Measured properties of a link.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LinkMeasurement {
    /// Bits per second from the listening to the dialing side.
    pub down_bits: f64,
    /// Bits per second from the dialing to the listening side.
    pub up_bits: f64,
    /// Round trip on the idle link, median, in milliseconds.
    pub idle_p50_ms: f64,
    /// Round trip on the idle link, 99th percentile, in milliseconds.
    pub idle_p99_ms: f64,
    /// Round trip of another connection while one downloads, median, in milliseconds.
    pub busy_p50_ms: f64,
    /// Round trip of another connection while one downloads, 99th percentile, in milliseconds.
    pub busy_p99_ms: f64,
    /// Time of a saturating sender's bytes beyond the delay, median, in milliseconds.
    pub waited_p50_ms: f64,
    /// Time of a saturating sender's bytes beyond the delay, 99th percentile, in milliseconds.
    pub waited_p99_ms: f64,
    /// Processor seconds of this process per second of transfer: relay, sender and receiver together.
    pub processors: f64,
}

/// Measures a link of that kind, about three times `lasts` long.
///
/// # Errors
/// Sockets of this machine fail.
pub async fn check(spec: LinkSpec, lasts: Duration) -> io::Result<LinkMeasurement> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let origin = Instant::now();
    let link = Relay::start(listener.local_addr()?, spec)?;
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(serve(listener, spec, origin));
    let address = link.address();
    let idle = echoes(address, Instant::now() + lasts).await?;
    let (cpu, since) = (cpu_seconds(), Instant::now());
    let until = since + lasts + spec.delay * 4;
    let (flood, busy) = tokio::try_join!(flood(address, spec, origin, until), echoes(address, until))?;
    let processors = (cpu_seconds() - cpu) / since.elapsed().as_secs_f64();
    let up_bits = upload(address, spec, lasts).await?;
    let quantile = |histogram: &Histogram<u64>, q| milliseconds(histogram.value_at_quantile(q));
    Ok(LinkMeasurement {
        down_bits: flood.bits,
        up_bits,
        idle_p50_ms: quantile(&idle, 0.5),
        idle_p99_ms: quantile(&idle, 0.99),
        busy_p50_ms: quantile(&busy, 0.5),
        busy_p99_ms: quantile(&busy, 0.99),
        waited_p50_ms: quantile(&flood.waited, 0.5),
        waited_p99_ms: quantile(&flood.waited, 0.99),
        processors,
    })
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of minutes fit")]
fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "a measurement of seconds")]
fn bits(bytes: u64, took: Duration) -> f64 {
    bytes as f64 * 8.0 / took.as_secs_f64().max(1e-9)
}

fn cpu_seconds() -> f64 {
    crate::lab::usage::cpu_seconds(std::process::id()).unwrap_or(0.0)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000, 3).map_err(io::Error::other)
}

/// Bytes that the flood stamps as one: a quarter of a millisecond.
fn block_bytes(spec: &LinkSpec) -> usize {
    spec.bytes_in(Duration::from_micros(250)).clamp(512, 16 * 1024)
}

async fn serve(listener: TcpListener, spec: LinkSpec, origin: Instant) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(stream, spec, origin));
    }
}

async fn answer(mut stream: TcpStream, spec: LinkSpec, origin: Instant) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match stream.read_u8().await? {
        FLOOD => {
            let mut block = vec![0; block_bytes(&spec)];
            // The wait in the sender's own kernel is not the link's.
            #[cfg(target_os = "linux")]
            SockRef::from(&stream).set_tcp_notsent_lowat(1)?;
            loop {
                stream.writable().await?;
                let now = u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                if let Some(head) = block.first_chunk_mut::<8>() {
                    *head = now.to_be_bytes();
                }
                // A block that the kernel does not take now gets a new stamp: its wait is not the link's.
                let written = match stream.try_write(&block) {
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error),
                };
                stream.write_all(block.get(written..).unwrap_or_default()).await?;
            }
        }
        SINK => {
            let mut buffer = vec![0; 256 * 1024];
            while stream.read(&mut buffer).await? > 0 {}
            Ok(())
        }
        _ => {
            let mut buffer = [0; ECHO_BYTES];
            loop {
                stream.read_exact(&mut buffer).await?;
                stream.write_all(&buffer).await?;
            }
        }
    }
}

async fn connect(address: SocketAddr, purpose: u8) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_u8(purpose).await?;
    Ok(stream)
}

async fn echoes(address: SocketAddr, until: Instant) -> io::Result<Histogram<u64>> {
    let (mut histogram, mut buffer) = (histogram()?, [0; ECHO_BYTES]);
    let mut stream = connect(address, ECHO).await?;
    // The first echo also waits for the connection.
    stream.write_all(&buffer).await?;
    stream.read_exact(&mut buffer).await?;
    loop {
        let sent = Instant::now();
        stream.write_all(&buffer).await?;
        match timeout_at(until, stream.read_exact(&mut buffer)).await {
            Ok(read) => drop(read?),
            Err(_elapsed) => return Ok(histogram),
        }
        histogram.saturating_record(micros(sent.elapsed()));
    }
}

struct Flood {
    bits: f64,
    waited: Histogram<u64>,
}

async fn flood(address: SocketAddr, spec: LinkSpec, origin: Instant, until: Instant) -> io::Result<Flood> {
    let mut stream = connect(address, FLOOD).await?;
    let (mut block, mut waited) = (vec![0; block_bytes(&spec)], histogram()?);
    stream.read_exact(&mut block).await?;
    let (since, mut bytes) = (Instant::now(), 0_u64);
    // Reading ends at a deadline, and the bytes are divided by the time of the last one: only seen bytes are counted.
    let mut last = since;
    while let Ok(read) = timeout_at(until, stream.read_exact(&mut block)).await {
        read?;
        last = Instant::now();
        bytes += u64::try_from(block.len()).unwrap_or(0);
        let stamp = block.first_chunk::<8>().map_or(0, |head| u64::from_be_bytes(*head));
        let age = last.duration_since(origin).saturating_sub(Duration::from_nanos(stamp));
        waited.saturating_record(micros(age.saturating_sub(spec.delay)));
    }
    Ok(Flood { bits: bits(bytes, last - since), waited })
}

async fn upload(address: SocketAddr, spec: LinkSpec, lasts: Duration) -> io::Result<f64> {
    let mut stream = connect(address, SINK).await?;
    tokio::time::sleep(spec.delay * 2).await;
    let block = vec![0; 64 * 1024];
    let (mut since, mut bytes) = (Instant::now(), 0_u64);
    // The wire and the buffers before it fill up first.
    let (warm, until) = (since + lasts / 4, since + lasts + lasts / 4);
    let mut warming = true;
    while let Ok(written) = timeout_at(until, stream.write(&block)).await {
        if warming && Instant::now() >= warm {
            (warming, since, bytes) = (false, Instant::now(), 0);
        }
        bytes += u64::try_from(written?).unwrap_or(0);
    }
    Ok(bits(bytes, since.elapsed()))
}
