//! WebSockets with numbered messages; the echoes have to equal the sent messages, in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes as Buffer, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::CutPlan;
use super::tally::CutTally;
use crate::failure::ExchangeFailure;
use crate::pattern;
use crate::profile::ws;
use crate::stats::{Bytes, Recorder};
use crate::target::LoadTarget;

/// Pause after a connection was lost or refused.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Time limit for the last echoes at the end of the run.
const LAST_ECHOES: Duration = Duration::from_secs(10);

/// Most unanswered messages before the sender waits.
const UNANSWERED_MAX: usize = 100_000;

/// Message under way.
#[derive(Clone, Copy)]
struct MessageUnderWay {
    number: u64,
    sent: Instant,
}

/// A socket of the profile.
#[derive(Clone, Copy)]
struct SeededSocket {
    /// Its place in the tally.
    socket: usize,
    /// Seed of its messages.
    seed: u64,
}

/// Keeps one WebSocket busy until the run ends; a lost one is counted and opened again.
pub(super) async fn run(
    target: LoadTarget,
    plan: CutPlan,
    socket: usize,
    tally: Arc<CutTally>,
    mut recorder: Recorder,
) {
    let mut was_open = false;
    let seed = plan.seed.wrapping_add(socket as u64 + 1);
    while !tally.ended().is_cancelled() {
        let ended = one(&target, &plan, SeededSocket { socket, seed }, &tally, &mut recorder, &mut was_open).await;
        if let Err(failure) = ended
            && was_open
        {
            tally.drop_for(failure.why);
            was_open = false;
        }
        sleep(AGAIN_AFTER).await;
    }
}

async fn one(
    target: &LoadTarget,
    plan: &CutPlan,
    seeded: SeededSocket,
    tally: &CutTally,
    recorder: &mut Recorder,
    is_open: &mut bool,
) -> Result<(), ExchangeFailure> {
    let connected = timeout(plan.patience, ws::connect(target)).await;
    let (mut write, mut read) = connected.unwrap_or(Err(ExchangeFailure::lost("timeout")))?.split();
    *is_open = true;
    let under_way = Mutex::new(VecDeque::<MessageUnderWay>::new());
    let send = async {
        let mut ticks = interval(plan.every);
        for number in 0.. {
            ticks.tick().await;
            while under_way.lock().len() >= UNANSWERED_MAX {
                ticks.tick().await;
            }
            under_way.lock().push_back(MessageUnderWay { number, sent: Instant::now() });
            write.send(Message::Binary(message(seeded.seed, number, plan.message_bytes))).await.map_err(|_| lost())?;
        }
        Ok(())
    };
    let receive = async {
        loop {
            let message = read.next().await.ok_or(lost())?.map_err(|_| lost())?;
            match message {
                Message::Binary(echo) => take(&echo, &under_way, seeded, plan, tally, recorder),
                Message::Close(_) => return Err(ExchangeFailure::lost("websocket_closed")),
                Message::Text(_) | Message::Frame(_) => tally.change(1),
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    };
    let mut receive = std::pin::pin!(receive);
    let ended: Result<(), ExchangeFailure> = tokio::select! {
        ended = send => ended,
        ended = &mut receive => ended,
        () = tally.ended().cancelled() => {
            // Messages under way may still come back; the sender is quiet.
            let home = async {
                while !under_way.lock().is_empty() {
                    sleep(AGAIN_AFTER).await;
                }
            };
            tokio::select! {
                ended = &mut receive => ended,
                home = timeout(LAST_ECHOES, home) => home.map_err(|_elapsed| ExchangeFailure::lost("timeout")),
            }
        }
    };
    let left = under_way.lock().len() as u64;
    tally.lose(left * plan.message_bytes as u64);
    ended
}

const fn lost() -> ExchangeFailure {
    ExchangeFailure::lost("websocket_lost")
}

/// Compares an echo with the sent message.
fn take(
    echo: &Buffer,
    under_way: &Mutex<VecDeque<MessageUnderWay>>,
    SeededSocket { socket, seed }: SeededSocket,
    plan: &CutPlan,
    tally: &CutTally,
    recorder: &mut Recorder,
) {
    let now = Instant::now();
    let size = plan.message_bytes as u64;
    let number = echo.first_chunk().map_or(u64::MAX, |head| u64::from_be_bytes(*head));
    if *echo != message(seed, number, plan.message_bytes) {
        tally.change(size);
        return;
    }
    let mut under_way = under_way.lock();
    // Numbers rise: one that is not among those under way came before.
    if under_way.front().is_none_or(|first| number < first.number) {
        tally.repeat(size);
        return;
    }
    while let Some(MessageUnderWay { number: first, sent }) = under_way.pop_front() {
        if first < number {
            tally.lose(size);
            continue;
        }
        recorder.offered(sent);
        recorder.ok(sent, sent, now, Bytes { down: size, up: size });
        tally.echoed(socket, sent, now);
        return;
    }
}

/// Makes a message: its number, and bytes that belong to that number.
fn message(seed: u64, number: u64, bytes: usize) -> Buffer {
    let mut message = BytesMut::zeroed(bytes.max(8));
    let (head, rest) = message.split_at_mut(8);
    head.copy_from_slice(&number.to_be_bytes());
    pattern::fill(seed.wrapping_add(number), 0, rest);
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Collector, Window};

    fn plan() -> CutPlan {
        CutPlan {
            cuts: 1,
            sockets: 1,
            every: Duration::from_millis(10),
            message_bytes: 32,
            transfer_bytes_per_s: 1,
            seed: 7,
            patience: Duration::from_secs(1),
        }
    }

    /// Echoes `numbers` of five messages and returns bytes lost, repeated, changed, in messages.
    #[track_caller]
    fn echo(numbers: &[u64], expected: (u64, u64, u64)) {
        let (tally, plan, now) = (CutTally::new(1), plan(), Instant::now());
        let collector = Collector::new(Window { begin: now, end: now + Duration::from_secs(60) });
        let under_way = Mutex::new((0..5).map(|number| MessageUnderWay { number, sent: now }).collect());
        let mut recorder = collector.recorder();
        for number in numbers {
            take(
                &message(7, *number, 32),
                &under_way,
                SeededSocket { socket: 0, seed: 7 },
                &plan,
                &tally,
                &mut recorder,
            );
        }
        let messages = |bytes: u64| bytes / 32;
        let found = (messages(tally.lost_bytes()), messages(tally.repeated_bytes()), messages(tally.changed_bytes()));
        assert_eq!(found, expected, "{numbers:?}");
    }

    #[tokio::test]
    async fn echoes_in_order_are_right_and_each_fault_is_counted() {
        echo(&[0, 1, 2, 3, 4], (0, 0, 0));
        echo(&[0, 2, 3, 4], (1, 0, 0));
        echo(&[0, 1, 1, 2], (0, 1, 0));
        // Out of order: the late one was counted as lost when the later one came.
        echo(&[0, 2, 1, 3], (1, 1, 0));
    }

    #[tokio::test]
    async fn changed_message_is_counted() {
        let (tally, plan, now) = (CutTally::new(1), plan(), Instant::now());
        let collector = Collector::new(Window { begin: now, end: now + Duration::from_secs(60) });
        let under_way = Mutex::new(VecDeque::from([MessageUnderWay { number: 0, sent: now }]));
        let mut bytes = BytesMut::from(&message(7, 0, 32)[..]);
        bytes[20] ^= 1;
        take(
            &bytes.freeze(),
            &under_way,
            SeededSocket { socket: 0, seed: 7 },
            &plan,
            &tally,
            &mut collector.recorder(),
        );
        assert_eq!(tally.changed_bytes(), 32);
    }
}
