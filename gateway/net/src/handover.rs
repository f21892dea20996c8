//! Hands the listening sockets and the lock of a running gateway to the one that takes its place, over a socket of their host.
//!
//! The new process asks with its version of this protocol; the old one answers with a line and the descriptors (unix(7),
//! `SCM_RIGHTS`), or with a line that says why not. Both accept connections until the new one says that it serves. Until then its end
//! changes nothing at the old one.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The first line of each direction.
const ASK: &str = "replace 1\n";
const HANDED: &str = "sockets 1\n";

/// The line of a new process that serves.
const SERVING: &str = "serving\n";

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 512;

/// Most descriptors: the lock and the listeners.
const DESCRIPTORS_MAX: usize = 8;

/// Time limit of a line that is due at once.
const LINE_TIME: Duration = Duration::from_secs(5);

/// Time limit of the new process to serve. It may have to bring the database to its version.
const START_TIME: Duration = Duration::from_mins(10);

/// Reason why a gateway does not hand over.
#[derive(Debug, Error)]
pub enum NoHandover {
    /// It refused, with its reason.
    #[error("the gateway that runs does not hand over: {0}")]
    Refused(String),
    /// It said something else than this protocol.
    #[error("the gateway that runs does not speak this version of the handover")]
    Unknown,
    /// The connection failed.
    #[error("the gateway that runs cannot be reached: {0}")]
    Io(#[from] io::Error),
    /// It said nothing.
    #[error("the gateway that runs did not answer")]
    Late,
}

/// Descriptors that an old process handed over.
#[derive(Debug)]
pub struct HandedOver {
    /// Lock of the database, still held.
    pub lock: File,
    /// Listening sockets.
    pub listeners: Vec<TcpListener>,
    /// The old process.
    pub predecessor: Predecessor,
}

/// An old process that waits until this one serves. Dropped, it goes on.
#[derive(Debug)]
pub struct Predecessor(UnixStream);

impl HandedOver {
    /// Asks a running gateway to hand over.
    ///
    /// # Errors
    /// [`NoHandover`].
    ///
    /// # Cancel safety
    /// Dropped, the running gateway goes on.
    pub async fn ask(mut old: UnixStream) -> Result<Self, NoHandover> {
        old.write_all(ASK.as_bytes()).await?;
        let (line, mut descriptors) =
            timeout(LINE_TIME, receive(&old)).await.map_err(|_elapsed| NoHandover::Late)??;
        if line != HANDED {
            let reason = line.strip_prefix("refused: ").ok_or(NoHandover::Unknown)?;
            return Err(NoHandover::Refused(reason.trim_end().to_owned()));
        }
        if descriptors.is_empty() {
            return Err(NoHandover::Unknown);
        }
        let lock = File::from(descriptors.remove(0));
        let listeners = descriptors.into_iter().map(TcpListener::from).collect();
        Ok(Self { lock, listeners, predecessor: Predecessor(old) })
    }
}

impl Predecessor {
    /// Says that this process serves: the old one accepts nothing from then on.
    ///
    /// # Errors
    /// The system's: the old process is gone, and this one serves all the same.
    ///
    /// # Cancel safety
    /// Dropped, the old process may know.
    pub async fn serving(mut self) -> io::Result<()> {
        self.0.write_all(SERVING.as_bytes()).await
    }
}

/// A new process that asks for the place of this one.
#[derive(Debug)]
pub struct Successor(UnixStream);

impl Successor {
    /// Reads what the process at the other end of a connection wants. `None` if that is something else.
    ///
    /// # Cancel safety
    /// Dropped, it loses the connection.
    pub async fn meet(stream: UnixStream) -> Option<Self> {
        let mut met = Self(stream);
        let asked = timeout(LINE_TIME, met.line()).await.ok()?.ok()?;
        (asked == ASK).then_some(met)
    }

    /// Refuses, with the reason for the operator.
    ///
    /// # Cancel safety
    /// Dropped, the other process may have no answer.
    pub async fn refuse(mut self, reason: &str) {
        // It may be gone.
        self.0.write_all(format!("refused: {reason}\n").as_bytes()).await.unwrap_or_default();
    }

    /// Hands over, and waits until the new process serves. `false` if it ended first.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Cancel safety
    /// Dropped, the new process may have the descriptors, and learns nothing of that.
    pub async fn hand_over(mut self, lock: BorrowedFd<'_>, listeners: &[OwnedFd]) -> io::Result<bool> {
        let descriptors: Vec<_> = std::iter::once(lock).chain(listeners.iter().map(AsFd::as_fd)).collect();
        send(&self.0, HANDED, &descriptors).await?;
        let said = timeout(START_TIME, self.line()).await.map_err(io::Error::from)?;
        Ok(said.is_ok_and(|line| line == SERVING))
    }

    /// Reads a line. Whatever comes behind it is no part of the protocol, and read with it.
    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") && line.len() < LINE_BYTES_MAX {
            if self.0.read_buf(&mut line).await? == 0 {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

/// Sends a line with descriptors. The line is shorter than any socket's buffer, so it goes as one.
async fn send(stream: &UnixStream, line: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let send = || {
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(descriptors));
        Ok(sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut rights, SendFlags::NOSIGNAL)?)
    };
    let sent = stream.async_io(Interest::WRITABLE, send).await?;
    if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a line, and the descriptors that came with it.
async fn receive(stream: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    let (mut line, mut descriptors) = ([0; LINE_BYTES_MAX], Vec::new());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let receive = || {
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(stream, &mut [IoSliceMut::new(&mut line)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        Ok(received.bytes)
    };
    let bytes = stream.async_io(Interest::READABLE, receive).await?;
    if bytes == 0 {
        // It ended, or is handing over to another one.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.get(..bytes).unwrap_or_default();
    Ok((String::from_utf8_lossy(line).into_owned(), descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn listener() -> TcpListener {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")
    }

    async fn met() -> (UnixStream, Successor) {
        let (new, old) = UnixStream::pair().expect("a pair");
        let mut new = new;
        new.write_all(ASK.as_bytes()).await.expect("sent");
        (new, Successor::meet(old).await.expect("the protocol"))
    }

    #[tokio::test]
    async fn listener_and_lock_go_to_the_new_process_and_the_old_one_learns_that_it_serves() {
        let (new, old) = UnixStream::pair().expect("a pair");
        let file = tempfile::tempfile().expect("a file");
        file.try_lock().expect("free");
        let (listener, address) = {
            let listener = listener();
            let address = listener.local_addr().expect("bound");
            (listener, address)
        };
        let hand = async {
            let successor = Successor::meet(old).await.expect("the protocol");
            successor.hand_over(file.as_fd(), &[listener.into()]).await.expect("handed over")
        };
        let take = async {
            let handed = HandedOver::ask(new).await.expect("handed over");
            assert_eq!(handed.listeners[0].local_addr().expect("bound"), address);
            let (lock, listener) =
                (handed.lock.try_clone().expect("a copy"), handed.listeners[0].try_clone().expect("one"));
            handed.predecessor.serving().await.expect("said");
            (lock, listener)
        };
        let (serves, (_lock, listener)) = tokio::join!(hand, take);
        assert!(serves);
        let client = std::net::TcpStream::connect(address).expect("it listens");
        assert_eq!(listener.accept().expect("accepted").1, client.local_addr().expect("bound"));
    }

    #[tokio::test]
    async fn new_process_that_ends_before_it_serves_is_noticed() {
        let (new, successor) = met().await;
        let file = tempfile::tempfile().expect("a file");
        let ends = async {
            receive(&new).await.expect("the descriptors");
            drop(new);
        };
        let listeners = [OwnedFd::from(listener())];
        let (handed, ()) = tokio::join!(successor.hand_over(file.as_fd(), &listeners), ends);
        assert!(!handed.expect("sent"));
    }

    /// One that ends, or that hands over to another process meanwhile.
    #[tokio::test]
    async fn process_that_ends_without_an_answer_is_none_of_another_protocol() {
        let (new, old) = UnixStream::pair().expect("a pair");
        let end = async { drop(Successor::meet(old).await.expect("the protocol")) };
        let (asked, ()) = tokio::join!(HandedOver::ask(new), end);
        assert!(matches!(asked, Err(NoHandover::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof));
    }

    #[tokio::test]
    async fn refusal_says_why_and_another_protocol_is_named() {
        let (new, old) = UnixStream::pair().expect("a pair");
        let refuse = async { Successor::meet(old).await.expect("the protocol").refuse("three are live").await };
        let (asked, ()) = tokio::join!(HandedOver::ask(new), refuse);
        assert_eq!(asked.expect_err("refused").to_string(), "the gateway that runs does not hand over: three are live");
        for said in ["HTTP/1.1 400 Bad Request\r\n", HANDED] {
            let (new, mut old) = UnixStream::pair().expect("a pair");
            old.write_all(said.as_bytes()).await.expect("sent");
            assert!(matches!(HandedOver::ask(new).await, Err(NoHandover::Unknown)));
        }
        let (mut stranger, old) = UnixStream::pair().expect("a pair");
        stranger.write_all(&[b'x'; 2 * LINE_BYTES_MAX]).await.expect("sent");
        assert!(Successor::meet(old).await.is_none());
    }
}
