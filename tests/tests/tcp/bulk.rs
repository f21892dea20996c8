//! Much at once: every byte counted and checked, and little held for those who do not take theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use e2e::raw::{Raw, RawApp};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::support::{World, soon};

const MUCH: usize = 100 * 1024 * 1024;

/// What may be under way for somebody who does not read: windows, and the kernel's buffers on the way.
const HELD_MAX: usize = 24 * 1024 * 1024;

/// A running sum that depends on every byte and its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    length: usize,
    sum: u64,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        for word in bytes.chunks(8) {
            let mut all = [0; 8];
            all[..word.len()].copy_from_slice(word);
            self.sum = self.sum.rotate_left(5) ^ u64::from_le_bytes(all).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

/// Pieces of a whole number of words, so that a sum does not depend on how reads cut them: they are gathered first.
const PIECE: usize = 64 * 1024;

fn piece(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(word).take(PIECE / 8).flatten().collect()
}

async fn pour(mut to: impl AsyncWrite + Unpin) -> Sum {
    let mut sum = Sum::default();
    for number in 0..MUCH / PIECE {
        let piece = piece(number);
        sum.add(&piece);
        to.write_all(&piece).await.expect("the stream lives");
    }
    to.shutdown().await.expect("it is open");
    sum
}

async fn collect(mut from: impl AsyncRead + Unpin) -> Sum {
    let mut sum = Sum::default();
    let mut piece = vec![0; PIECE];
    while sum.length < MUCH {
        from.read_exact(&mut piece).await.expect("the stream lives");
        sum.add(&piece);
    }
    assert_eq!(from.read(&mut piece).await.expect("an end"), 0);
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_mebibytes_arrive_whole_both_ways_at_once() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw| async move {
        let (reader, writer) = raw.socket().split();
        let (heard, said) = tokio::join!(collect(reader), pour(writer));
        assert_eq!(heard, said);
    })
    .await;
    let mut user = world.open(app.port).await;
    let (reader, writer) = tokio::io::split(&mut user.stream);
    let both = async { tokio::join!(collect(reader), pour(writer)) };
    let (heard, said) = tokio::time::timeout(Duration::from_secs(120), both).await.expect("it does not hang");
    assert_eq!(heard, said);
    let copied = user.ended().await.expect("a good end");
    assert_eq!((copied.inward, copied.outward), (MUCH as u64, MUCH as u64));
    world.gateway.assert_empty().await;
}

// Row 24: who does not read holds up the app, and fills no memory.
#[tokio::test]
async fn user_who_does_not_read_holds_up_the_app_alone() {
    let world = World::start().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let app = RawApp::start(move |mut raw| {
        let sent = counter.clone();
        async move {
            let piece = piece(0);
            while raw.socket().write_all(&piece).await.is_ok() {
                sent.fetch_add(piece.len(), Ordering::SeqCst);
            }
        }
    })
    .await;
    let echo = super::streams::echo().await;
    let mut stalled = world.open(app.port).await;
    until_still(&sent).await;
    let held = sent.load(Ordering::SeqCst);
    assert!(held > 0 && held < HELD_MAX, "{held}");
    // Others do not feel it.
    let mut other = world.open(echo.port).await;
    other.say("still here").await;
    assert_eq!(other.hear(10).await, b"still here");
    // And it goes on as soon as they read.
    for _ in 0..100 {
        stalled.hear(PIECE).await;
    }
    drop((stalled, other));
    world.gateway.assert_empty().await;
}

#[tokio::test]
async fn app_that_does_not_read_holds_up_its_user_alone() {
    let world = World::start().await;
    let app = RawApp::start(|mut raw: Raw| async move {
        raw.socket().readable().await.ok();
        std::future::pending().await
    })
    .await;
    let mut user = world.open(app.port).await;
    let mut sent = 0;
    let piece = piece(0);
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), user.stream.write_all(&piece)).await {
        written.expect("the stream lives");
        sent += piece.len();
        assert!(sent < HELD_MAX, "nothing holds it back");
    }
    assert!(sent > 0);
    user.kill();
    drop(app);
    world.gateway.assert_empty().await;
}

/// Waits until a count stands still.
async fn until_still(count: &AtomicUsize) {
    let waiting = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = count.load(Ordering::SeqCst);
            if now == before && now > 0 {
                return;
            }
            before = now;
        }
    };
    soon(waiting).await;
}
