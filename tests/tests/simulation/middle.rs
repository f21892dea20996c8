//! A middle box between agents and their gateway, as load balancers and address translators are: it can be restarted,
//! forget one side of a connection, or swallow what it should carry.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use turmoil::net::TcpStream;

use crate::gateway_host::PORT;
use crate::net::GATEWAY;
use crate::shared::serve_each;

/// The box's host.
pub(crate) const MIDDLE: &str = "middle";

/// Whom a cut reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Both,
    /// The gateway's side stays open and silent.
    Agent,
    /// The agent's side stays open and silent.
    Gateway,
}

/// What a connection stops carrying, for good: a byte that was swallowed is never sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deaf {
    /// From the agent to the gateway.
    Up,
    /// From the gateway to the agent.
    Down,
    Both,
}

/// The box as the test sees it.
#[derive(Default)]
pub(crate) struct Middle {
    pipes: Mutex<Vec<Arc<Pipe>>>,
    /// Connections that come are deaf from their first byte.
    deaf_down: AtomicBool,
}

/// One connection through the box.
#[derive(Default)]
struct Pipe {
    agent: CancellationToken,
    gateway: CancellationToken,
    up_deaf: AtomicBool,
    down_deaf: AtomicBool,
    late: AtomicBool,
    /// What it has taken from the agent and does not hand on yet.
    kept: Mutex<Vec<u8>>,
    hand_on: CancellationToken,
}

impl Middle {
    fn pipes(&self) -> MutexGuard<'_, Vec<Arc<Pipe>>> {
        self.pipes.lock().unwrap()
    }

    /// Ends what it carries now.
    pub(crate) fn cut(&self, cut: Cut) {
        for pipe in self.pipes().iter() {
            if cut != Cut::Gateway {
                pipe.agent.cancel();
            }
            if cut != Cut::Agent {
                pipe.gateway.cancel();
            }
        }
    }

    /// Swallows what the connections of now should carry.
    pub(crate) fn swallow(&self, deaf: Deaf) {
        for pipe in self.pipes().iter() {
            if deaf != Deaf::Down {
                pipe.up_deaf.store(true, Ordering::Relaxed);
            }
            if deaf != Deaf::Up {
                pipe.down_deaf.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes what comes from agents and keeps it for later.
    pub(crate) fn keep(&self) {
        for pipe in self.pipes().iter() {
            pipe.late.store(true, Ordering::Relaxed);
        }
    }

    /// Hands on what it [kept](Self::keep), of connections too of which the agent's side is gone. Returns how many bytes
    /// that are.
    pub(crate) fn hand_on(&self) -> usize {
        let pipes = self.pipes();
        pipes.iter().for_each(|pipe| pipe.hand_on.cancel());
        pipes.iter().map(|pipe| pipe.kept.lock().unwrap().len()).sum()
    }

    /// Forgets connections, as a process that ends does.
    pub(crate) fn forget(&self) {
        self.pipes().clear();
    }

    /// Says whether answers on connections that come from now on are swallowed.
    pub(crate) fn swallow_answers(&self, swallow: bool) {
        self.deaf_down.store(swallow, Ordering::Relaxed);
    }
}

/// The box's process.
pub(crate) async fn run(middle: Arc<Middle>) -> turmoil::Result {
    serve_each(PORT, |agent, _| {
        let down_deaf = AtomicBool::new(middle.deaf_down.load(Ordering::Relaxed));
        let pipe = Arc::new(Pipe { down_deaf, ..Pipe::default() });
        middle.pipes().retain(|pipe| !pipe.agent.is_cancelled() || !pipe.gateway.is_cancelled());
        middle.pipes().push(pipe.clone());
        carry(agent, pipe)
    })
    .await
}

async fn carry(mut agent: TcpStream, pipe: Arc<Pipe>) {
    let Ok(mut gateway) = TcpStream::connect((GATEWAY, PORT)).await else { return };
    tokio::select! {
        biased;
        () = both(&pipe.agent, &pipe.gateway) => {}
        () = pipe.agent.cancelled() => {
            drop(agent);
            tokio::select! {
                () = pipe.gateway.cancelled() => {}
                () = hand_on(&mut gateway, &pipe) => {}
            }
        }
        () = pipe.gateway.cancelled() => {
            drop(gateway);
            pipe.agent.cancelled().await;
        }
        () = copy_both(&mut agent, &mut gateway, &pipe) => {}
    }
    pipe.agent.cancel();
    pipe.gateway.cancel();
}

async fn both(one: &CancellationToken, other: &CancellationToken) {
    one.cancelled().await;
    other.cancelled().await;
}

/// Says late what an agent said that is gone by now.
async fn hand_on(gateway: &mut TcpStream, pipe: &Pipe) {
    pipe.hand_on.cancelled().await;
    let kept = std::mem::take(&mut *pipe.kept.lock().unwrap());
    gateway.write_all(&kept).await.ok();
    std::future::pending().await
}

async fn copy_both(agent: &mut TcpStream, gateway: &mut TcpStream, pipe: &Pipe) {
    let (mut from_agent, mut to_agent) = tokio::io::split(agent);
    let (mut from_gateway, mut to_gateway) = tokio::io::split(gateway);
    tokio::join!(
        copy(&mut from_agent, &mut to_gateway, &pipe.up_deaf, Some(pipe)),
        copy(&mut from_gateway, &mut to_agent, &pipe.down_deaf, None),
    );
}

/// Carries one direction. Its end, and that it broke, are swallowed too.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    deaf: &AtomicBool,
    keeper: Option<&Pipe>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let keeper = keeper.filter(|pipe| pipe.late.load(Ordering::Relaxed));
        if keeper.is_some() || deaf.load(Ordering::Relaxed) {
            if read == 0 {
                return std::future::pending().await;
            }
            keeper.inspect(|pipe| pipe.kept.lock().unwrap().extend_from_slice(&buffer[..read]));
            continue;
        }
        if read == 0 {
            to.shutdown().await.ok();
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
