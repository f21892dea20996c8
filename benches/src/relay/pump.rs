//! One connection through the link: reads at the link's pace, writes when bytes arrive.
//!
//! Bytes that are not on the wire must not pile up here either: the receive buffers are half of the configured queue,
//! and a direction that is full stops reading, so that the sender's own kernel feels the link.

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::alarm::{Alarm, GRAIN};
use super::spec::LinkSpec;
use super::wire::{DelayLine, DelayedWire, Rolls};
use super::{Control, Counters};

/// Most bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// Most bytes of one turn, however fast the link.
const TURN_BYTES_MAX: usize = 512 * 1024;

/// Longest turn, as a time at the link's rate: the others' turns come soon.
const TURN: Duration = Duration::from_millis(1);

/// Time for which a closed or swallowed connection is kept to drain what the sides still send.
const LINGER: Duration = Duration::from_secs(60);

/// One direction of the link, shared by its connections.
#[derive(Debug)]
pub(super) struct LinkDirection {
    /// Turn to put bytes on the wire. Fair, so that connections share the rate evenly.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<PumpState>,
    alarm: Alarm,
}

#[derive(Debug)]
struct PumpState {
    wire: DelayedWire,
    rng: SmallRng,
    /// Buffer for reads before they are copied into pieces of their own size.
    scratch: Vec<u8>,
}

impl LinkDirection {
    pub(super) fn start(rng: SmallRng) -> io::Result<Self> {
        let state = PumpState { wire: DelayedWire::default(), rng, scratch: vec![0; READ_BYTES] };
        Ok(Self { turn: tokio::sync::Mutex::new(()), state: Mutex::new(state), alarm: Alarm::start()? })
    }
}

/// The sockets of one direction.
#[derive(Clone, Copy)]
pub(super) struct StreamPair<'a> {
    pub(super) from: &'a TcpStream,
    pub(super) to: &'a TcpStream,
}

/// One direction of one connection.
pub(super) struct ConnectionDirection<'a> {
    pub(super) from: &'a TcpStream,
    pub(super) to: &'a TcpStream,
    pub(super) side: &'a LinkDirection,
    pub(super) control: watch::Receiver<Control>,
    pub(super) counters: &'a Counters,
    line: Mutex<DelayLine>,
    /// Rings when the line got its first piece.
    pushed: Notify,
    /// Rings when the line got shorter.
    taken: Notify,
}

impl<'a> ConnectionDirection<'a> {
    pub(super) fn new(
        StreamPair { from, to }: StreamPair<'a>,
        side: &'a LinkDirection,
        control: watch::Receiver<Control>,
        counters: &'a Counters,
    ) -> Self {
        let (line, pushed, taken) = (Mutex::default(), Notify::new(), Notify::new());
        Self { from, to, side, control, counters, line, pushed, taken }
    }

    /// Carries bytes until the end of the stream was delivered.
    pub(super) async fn carry(&self) -> io::Result<()> {
        tokio::try_join!(self.take_in(), self.hand_over()).map(|_| ())
    }

    fn spec(&self) -> LinkSpec {
        self.control.borrow().spec
    }

    /// Waits until the link no longer stands still.
    async fn running(&self) {
        if self.control.borrow().stalled {
            // An error means that the relay is gone, and this connection with it.
            drop(self.control.clone().wait_for(|control| !control.stalled).await);
        }
    }

    async fn take_in(&self) -> io::Result<()> {
        loop {
            self.running().await;
            while self.line.lock().held_bytes() >= self.spec().held_bytes_max() {
                self.taken.notified().await;
            }
            self.from.readable().await?;
            let _turn = self.side.turn.lock().await;
            let spec = self.spec();
            let room_from = self.side.state.lock().wire.room_from(&spec, Instant::now());
            self.side.alarm.sleep_until(room_from).await;
            // Bytes stay with their sender while the link stands still.
            if self.control.borrow().stalled {
                continue;
            }
            if self.fill(&spec)? {
                return Ok(());
            }
        }
    }

    /// Puts as many bytes on the wire as it has room for; true at the end of the stream.
    fn fill(&self, spec: &LinkSpec) -> io::Result<bool> {
        let mut turn_bytes = spec.bytes_in(TURN).clamp(spec.piece_bytes(), TURN_BYTES_MAX);
        let PumpState { wire, rng, scratch } = &mut *self.side.state.lock();
        loop {
            let now = Instant::now();
            let room = wire.room_bytes(spec, now).min(turn_bytes);
            let Some(space) = scratch.get_mut(..room.min(READ_BYTES)).filter(|space| !space.is_empty()) else {
                return Ok(false);
            };
            let read = match self.from.try_read(space) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            let mut line = self.line.lock();
            let mut roll = || Rolls { loss: rng.random(), jitter: rng.random() };
            if read == 0 {
                line.push_end(wire.accept(spec, now, 0, roll()));
                self.pushed.notify_one();
                return Ok(true);
            }
            for piece in space.get(..read).unwrap_or_default().chunks(spec.piece_bytes()) {
                line.push(wire.accept(spec, now, piece.len(), roll()), Bytes::copy_from_slice(piece));
            }
            self.pushed.notify_one();
            turn_bytes = turn_bytes.saturating_sub(read);
        }
    }

    async fn hand_over(&self) -> io::Result<()> {
        loop {
            let Some(arrives) = self.line.lock().next_arrival() else {
                self.pushed.notified().await;
                continue;
            };
            self.side.alarm.sleep_until(arrives).await;
            self.running().await;
            if self.line.lock().is_at_end() {
                return SockRef::from(self.to).shutdown(std::net::Shutdown::Write);
            }
            self.to.writable().await?;
            self.write()?;
        }
    }

    /// Writes arrived bytes, as far as the receiver takes them.
    fn write(&self) -> io::Result<()> {
        let mut line = self.line.lock();
        let mut slices = [IoSlice::new(&[]); 32];
        let count = line.arrived(Instant::now() + GRAIN, &mut slices);
        let ready = slices.get(..count).unwrap_or_default();
        if ready.is_empty() {
            return Ok(());
        }
        match self.to.try_write_vectored(ready) {
            Ok(written) => {
                line.advance(written);
                self.counters.add(written);
                self.taken.notify_one();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Reads and drops all bytes of `from`, until its end.
async fn swallow(from: &TcpStream) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if from.readable().await.is_err() {
            return;
        }
        match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Keeps both sides open and drops their bytes, like a path that forgot the connection: neither side hears of the other
/// again, not even of its end.
pub(super) async fn swallow_both(left: &TcpStream, right: &TcpStream) {
    tokio::join!(swallow(left), swallow(right));
}

/// Ends both sides in order (FIN), dropping the bytes on the wire. Reads on for a while: closing a socket with unread
/// bytes would be a reset.
pub(super) async fn finish_both(left: &TcpStream, right: &TcpStream) {
    for stream in [left, right] {
        // It fails if that side is gone already, which is the wanted result.
        drop(SockRef::from(stream).shutdown(std::net::Shutdown::Write));
    }
    drop(timeout(LINGER, swallow_both(left, right)).await);
}

/// Makes dropping the sockets a reset (RST).
pub(super) fn reset_on_drop(left: &TcpStream, right: &TcpStream) {
    for stream in [left, right] {
        drop(SockRef::from(stream).set_linger(Some(Duration::ZERO)));
    }
}
