//! One channel's trouble is no other channel's, and memory has a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel_link::channel_io::ChannelIo;
use tunnel_link::session::Session;
use tunnel_proto::limit::{PAYLOAD_BYTES_ALONE, SEND_QUEUE_BYTES_MIN, WINDOW_BYTES_MIN};
use tunnel_proto::mux::{ReplicaBudget, Settings, Side};
use tunnel_proto::reason::Reason;

use crate::apps::App;
use crate::pair::{Pair, Plan, soon, until};
use crate::wire::Wire;

/// Writes until there is no room and none comes: everything on the way to the reader who does not read is full.
pub(crate) async fn fill(session: &Session, channel: &mut ChannelIo) {
    let context = Context::from_waker(Waker::noop());
    loop {
        let mut piece = Bytes::from(vec![1; 16 * 1024]);
        while let Poll::Ready(written) = channel.poll_write_bytes(&context, &mut piece) {
            written.expect("open");
            if piece.is_empty() {
                piece = Bytes::from(vec![1; 16 * 1024]);
            }
        }
        let before = session.stats();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let after = session.stats();
        if (before.bytes_sent, before.queued_bytes) == (after.bytes_sent, after.queued_bytes)
            && channel.poll_room(&context).is_pending()
        {
            return;
        }
    }
}

#[tokio::test]
async fn stalled_reader_costs_another_channel_not_one_frame() {
    let echo = App::echo().await;
    let pair = Pair::planned(Plan { serves: false, ..Plan::new(Wire::Memory) }).await;
    let (mut stalled, _accepted) = pair.gateway.open(1).expect("opened");
    let held = soon(pair.agent.accept()).await.expect("a channel").accept();
    soon(fill(&pair.gateway, &mut stalled)).await;
    let (mut here, _accepted) = pair.gateway.open(2).expect("opened");
    let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
    let sent = pair.gateway.stats().frames.0;
    for number in 0..100_u8 {
        here.write_all(&[number]).await.expect("written");
        let mut byte = [0; 1];
        soon(there.read_exact(&mut byte)).await.expect("there");
        there.write_all(&byte).await.expect("written");
        soon(here.read_exact(&mut byte)).await.expect("back");
        assert_eq!(byte, [number]);
    }
    // A hundred keystrokes, and the credit for what came back.
    let frames = pair.gateway.stats().frames.0 - sent;
    assert!((100..=102).contains(&frames), "{frames} frames for 100 keystrokes");
    drop((stalled, held, here, there, echo));
    pair.finish().await;
}

fn small(side: Side, replica: &Arc<ReplicaBudget>) -> Settings {
    Settings { session_budget: 2 * 1024 * 1024, replica_budget: Some(replica.clone()), ..Settings::new(side) }
}

#[tokio::test]
async fn memory_stays_within_its_budget_with_many_stalled_readers_and_all_of_it_comes_back() {
    let (gateway_budget, agent_budget) = (ReplicaBudget::new(8 << 20), ReplicaBudget::new(8 << 20));
    let plan = Plan {
        gateway: small(Side::Gateway, &gateway_budget),
        // Less than the gateway's, so that it is the agent's that ends.
        agent: Settings { session_budget: 1 << 20, ..small(Side::Agent, &agent_budget) },
        serves: false,
        ..Plan::new(Wire::Memory)
    };
    let pair = Pair::planned(plan).await;
    let mut held = Vec::new();
    let check = |pair: &Pair, channels: usize| {
        for (session, budget) in [(&pair.gateway, &gateway_budget), (&pair.agent, &agent_budget)] {
            let stats = session.stats();
            assert!(stats.window_bytes <= 2 << 20, "{stats:?}");
            assert_eq!(stats.window_bytes, budget.reserved());
            let queued_max = (2 << 20) / 4 + 2 * PAYLOAD_BYTES_ALONE + channels * SEND_QUEUE_BYTES_MIN;
            assert!(stats.queued_bytes <= queued_max, "{stats:?}");
            assert_eq!(session.broken_invariant(), None);
        }
    };
    // Until the agent has no promise left to give.
    let refused = loop {
        let (mut here, accepted) = pair.gateway.open(1).expect("opened");
        let incoming = tokio::select! {
            incoming = soon(pair.agent.accept()) => incoming.expect("a channel"),
            answer = accepted => break answer,
        };
        let mut there = incoming.accept();
        soon(fill(&pair.gateway, &mut here)).await;
        soon(fill(&pair.agent, &mut there)).await;
        held.push((here, there));
        check(&pair, held.len());
    };
    assert_eq!(refused, Ok(Err(Reason::Overloaded)));
    assert!(held.len() >= 8, "only {} channels in 2 MiB", held.len());
    // Not one is lost for it: each reader gets what was sent to it.
    for (here, there) in &mut held {
        let mut bytes = vec![0; usize::try_from(WINDOW_BYTES_MIN).expect("small")];
        soon(here.read_exact(&mut bytes)).await.expect("read");
        soon(there.read_exact(&mut bytes)).await.expect("read");
    }
    check(&pair, held.len());
    drop(held);
    pair.finish().await;
    assert_eq!((gateway_budget.reserved(), agent_budget.reserved()), (0, 0));
}

#[tokio::test]
async fn link_that_takes_nothing_bounds_what_waits_for_it() {
    let pair = Pair::planned(Plan { serves: false, ..Plan::new(Wire::Memory) }).await;
    let (mut here, _accepted) = pair.gateway.open(1).expect("opened");
    let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
    pair.switch.stop();
    soon(fill(&pair.agent, &mut there)).await;
    soon(fill(&pair.gateway, &mut here)).await;
    for session in [&pair.gateway, &pair.agent] {
        assert!(session.stats().queued_bytes <= 2 * PAYLOAD_BYTES_ALONE, "{:?}", session.stats());
    }
    drop((here, there));
    pair.switch.cut();
    pair.finish().await;
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn waiting_reader_is_woken_once_for_each_thing_that_happens() {
    let pair = Pair::planned(Plan { serves: false, ..Plan::new(Wire::Memory) }).await;
    let (mut here, _accepted) = pair.gateway.open(1).expect("opened");
    let mut there = soon(pair.agent.accept()).await.expect("a channel").accept();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let context = Context::from_waker(&waker);
    assert!(there.poll_bytes(&context).is_pending());
    for _ in 0..10 {
        here.write_all(b"a").await.expect("written");
    }
    let agent = pair.agent.clone();
    until("all of it is there", || agent.stats().bytes_received == 10).await;
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    while let Poll::Ready(bytes) = there.poll_bytes(&context) {
        bytes.expect("open").expect("not the end");
    }
    drop(here);
    until("the reset is there", || count.0.load(Ordering::Relaxed) == 2).await;
    assert!(matches!(there.poll_bytes(&context), Poll::Ready(Err(_))));
    drop(there);
    pair.finish().await;
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
}
