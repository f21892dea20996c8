//! Apps behind the agents, on simulated loopback, and bytes of which every position can be checked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use turmoil::net::{TcpListener, TcpStream};

use crate::net::Rolls;
use crate::shared::Shared;

/// Sends back what it gets.
pub(crate) const ECHO: u16 = 7;
/// Reads to the end, then answers with how much it was.
pub(crate) const SINK: u16 = 9;
/// Is told how much to send, sends it and finishes, and reads on to the end.
pub(crate) const SOURCE: u16 = 19;
/// Reads a little, seldom.
pub(crate) const SLOW: u16 = 29;
/// Is told how many milliseconds to wait, and goes away then, whatever comes.
pub(crate) const FICKLE: u16 = 39;
/// Nothing listens there.
pub(crate) const CLOSED: u16 = 1;

/// What the slow app reads at once, and how long it waits after that.
pub(crate) const SLOW_READ: (usize, Duration) = (8 * 1024, Duration::from_millis(100));

/// The period is prime, so that no lost, repeated or moved piece of a usual size fits again.
const PERIOD: usize = 65_521;

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut rolls = Rolls::new(1);
        (0..PERIOD).map(|_| rolls.next().to_le_bytes()[3]).collect()
    })
}

/// Returns the next bytes of the pattern, at most `max`: an odd number, so that pieces do not line up with frames.
pub(crate) fn piece(position: usize, max: usize) -> &'static [u8] {
    let start = position % PERIOD;
    &pattern()[start..PERIOD.min(start + max.min(49_999))]
}

/// Writes so many bytes of the pattern.
pub(crate) async fn write_pattern(writer: &mut (impl AsyncWriteExt + Unpin), total: usize) -> std::io::Result<()> {
    let mut position = 0;
    while position < total {
        let piece = piece(position, total - position);
        writer.write_all(piece).await?;
        position += piece.len();
    }
    Ok(())
}

/// Reads to the end and returns how much that was. Panics at a byte that is not the one that is due.
pub(crate) async fn check_pattern(reader: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<usize> {
    let mut buffer = vec![0; 64 * 1024];
    let mut position = 0;
    loop {
        let read = reader.read(&mut buffer).await?;
        if read == 0 {
            return Ok(position);
        }
        check_at(position, &buffer[..read]);
        position += read;
    }
}

/// Checks bytes that belong at a position of the pattern.
pub(crate) fn check_at(mut position: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let start = position % PERIOD;
        let length = bytes.len().min(PERIOD - start);
        let (now, rest) = bytes.split_at(length);
        assert!(now == &pattern()[start..start + length], "wrong bytes after {position}");
        position += length;
        bytes = rest;
    }
}

/// Starts every app of a host.
pub(crate) async fn start(tasks: &mut JoinSet<()>, shared: &Arc<Shared>) -> std::io::Result<()> {
    for port in [ECHO, SINK, SOURCE, SLOW, FICKLE] {
        let listener = TcpListener::bind(("0.0.0.0", port)).await?;
        tasks.spawn(serve(listener, port, shared.clone()));
    }
    Ok(())
}

async fn serve(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(done) = connections.join_next(), if !connections.is_empty() => done.expect("apps do not fail"),
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("accepting on loopback");
                let shared = shared.clone();
                connections.spawn(async move {
                    let served = match port {
                        ECHO => echo(stream).await,
                        SINK => sink(stream, &shared).await,
                        SOURCE => source(stream, &shared).await,
                        FICKLE => fickle(stream).await,
                        _ => slow(stream).await,
                    };
                    // A client that goes away in the middle is not an app's fault.
                    served.ok();
                });
            }
        }
    }
}

async fn echo(stream: TcpStream) -> std::io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

async fn sink(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let read = check_pattern(&mut stream).await?;
    shared.took(read);
    stream.write_all(&(read as u64).to_be_bytes()).await?;
    stream.shutdown().await
}

async fn source(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let total = usize::try_from(stream.read_u64().await?).expect("64 bits");
    write_pattern(&mut stream, total).await?;
    stream.shutdown().await?;
    shared.took(check_pattern(&mut stream).await?);
    Ok(())
}

async fn fickle(mut stream: TcpStream) -> std::io::Result<()> {
    let wait = Duration::from_millis(stream.read_u64().await?);
    tokio::time::sleep(wait).await;
    // What nobody read makes its kernel say that bytes were lost.
    Ok(())
}

async fn slow(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; SLOW_READ.0];
    let mut position = 0;
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        check_at(position, &buffer[..read]);
        position += read;
        tokio::time::sleep(SLOW_READ.1).await;
    }
}
