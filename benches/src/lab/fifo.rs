//! Tunnel without a scheduler: all channels in one TCP connection, first in, first out, no credit per channel. It shows
//! the worth of the scheduler, on the same link and under the same load.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::relay::{self, LinkSpec, Relay};
use crate::target::LoadTarget;

/// Most payload of one frame.
const FRAME_BYTES: usize = 32 * 1024;

/// Frames that wait for the link, and for each channel's socket. A full queue makes the reader before it wait, and all
/// channels behind that reader with it.
const QUEUE_FRAMES: usize = 64;

/// Channel and its bytes; empty bytes are its end.
type FifoFrame = (u32, Bytes);

/// Both ends of the tunnel and the link between them; dropping it ends them.
#[derive(Debug)]
pub struct Fifo {
    users: SocketAddr,
    link: relay::Handle,
    _ends: JoinSet<io::Result<()>>,
}

impl Fifo {
    /// Starts a tunnel over a link of that kind to `app`.
    ///
    /// # Errors
    /// Its ports cannot be bound.
    pub async fn start(app: SocketAddr, spec: LinkSpec) -> io::Result<Self> {
        let users = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let links = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = users.local_addr()?;
        let link = Relay::start(links.local_addr()?, spec)?;
        let dialed = link.address();
        let mut ends = JoinSet::new();
        ends.spawn(async move {
            let (stream, _) = links.accept().await?;
            entry(users, stream).await
        });
        ends.spawn(async move { exit(TcpStream::connect(dialed).await?, app).await });
        Ok(Self { users: address, link, _ends: ends })
    }

    /// Returns the target of users' requests.
    #[must_use]
    pub fn target(&self) -> LoadTarget {
        LoadTarget::plain(self.users, &self.users.to_string())
    }

    /// Returns the link between the ends.
    #[must_use]
    pub fn link(&self) -> &relay::Handle {
        &self.link
    }
}

/// Queues of the channels' frames.
type Channels = Arc<Mutex<HashMap<u32, mpsc::Sender<Bytes>>>>;

/// One end: its link's writing side as a queue, and its channels.
struct FifoEnd {
    out: mpsc::Sender<FifoFrame>,
    channels: Channels,
    tasks: JoinSet<io::Result<()>>,
}

impl FifoEnd {
    fn new(write: OwnedWriteHalf) -> Self {
        let (out, queue) = mpsc::channel(QUEUE_FRAMES);
        let mut tasks = JoinSet::new();
        tasks.spawn(write_frames(queue, write));
        Self { out, channels: Channels::default(), tasks }
    }

    fn add(&mut self, channel: u32, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (bytes, queue) = mpsc::channel(QUEUE_FRAMES);
        self.channels.lock().insert(channel, bytes);
        let (read, write) = stream.into_split();
        self.tasks.spawn(from_socket(channel, read, self.out.clone()));
        self.tasks.spawn(to_socket(queue, write));
        Ok(())
    }

    /// Gives a frame to its channel; false if there is no such channel.
    async fn deliver(channels: &Channels, (channel, bytes): FifoFrame) -> bool {
        let Some(sender) = channels.lock().get(&channel).cloned() else { return false };
        if bytes.is_empty() {
            channels.lock().remove(&channel);
        } else if sender.send(bytes).await.is_err() {
            // Its socket is gone; further frames are dropped.
        }
        true
    }
}

async fn entry(users: TcpListener, link: TcpStream) -> io::Result<()> {
    link.set_nodelay(true)?;
    let (read, write) = link.into_split();
    let mut end = FifoEnd::new(write);
    let channels = Arc::clone(&end.channels);
    end.tasks.spawn(async move {
        let mut read = read;
        loop {
            let frame = read_frame(&mut read).await?;
            FifoEnd::deliver(&channels, frame).await;
        }
    });
    for channel in 1.. {
        let (stream, _) = users.accept().await?;
        end.add(channel, stream)?;
    }
    Ok(())
}

async fn exit(link: TcpStream, app: SocketAddr) -> io::Result<()> {
    link.set_nodelay(true)?;
    let (mut read, write) = link.into_split();
    let mut end = FifoEnd::new(write);
    let mut newest = 0;
    loop {
        let (channel, bytes) = read_frame(&mut read).await?;
        if channel > newest {
            newest = channel;
            end.add(channel, TcpStream::connect(app).await?)?;
        }
        let channels = Arc::clone(&end.channels);
        FifoEnd::deliver(&channels, (channel, bytes)).await;
    }
}

async fn write_frames(mut queue: mpsc::Receiver<FifoFrame>, mut write: OwnedWriteHalf) -> io::Result<()> {
    while let Some((channel, bytes)) = queue.recv().await {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut head = [0; 8];
        let (first, second) = head.split_at_mut(4);
        first.copy_from_slice(&channel.to_be_bytes());
        second.copy_from_slice(&length.to_be_bytes());
        write.write_all(&head).await?;
        write.write_all(&bytes).await?;
    }
    Ok(())
}

async fn read_frame(read: &mut OwnedReadHalf) -> io::Result<FifoFrame> {
    let channel = read.read_u32().await?;
    let length = usize::try_from(read.read_u32().await?).unwrap_or(usize::MAX);
    if length > FRAME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    read.read_exact(&mut bytes).await?;
    Ok((channel, Bytes::from(bytes)))
}

async fn from_socket(channel: u32, mut read: OwnedReadHalf, out: mpsc::Sender<FifoFrame>) -> io::Result<()> {
    let mut buffer = vec![0; FRAME_BYTES];
    loop {
        let length = read.read(&mut buffer).await.unwrap_or(0);
        let bytes = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
        if out.send((channel, bytes)).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

async fn to_socket(mut queue: mpsc::Receiver<Bytes>, mut write: OwnedWriteHalf) -> io::Result<()> {
    while let Some(bytes) = queue.recv().await {
        write.write_all(&bytes).await?;
    }
    write.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn fifo_carries_bytes_of_several_channels_and_their_ends() {
        let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fifo = Fifo::start(app.local_addr().unwrap(), LinkSpec::default()).await.unwrap();
        let mut apps = JoinSet::new();
        apps.spawn(async move {
            let mut echoes = JoinSet::new();
            while let Ok((mut stream, _)) = app.accept().await {
                echoes.spawn(async move {
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                });
            }
        });
        let talk = |word: Vec<u8>| {
            let users = fifo.users;
            async move {
                let mut stream = TcpStream::connect(users).await.unwrap();
                stream.write_all(&word).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut back = Vec::new();
                stream.read_to_end(&mut back).await.unwrap();
                assert_eq!(back, word);
            }
        };
        tokio::join!(talk(vec![b'a'; 200_000]), talk(b"short".to_vec()), talk(vec![b'c'; 70_000]));
    }
}
