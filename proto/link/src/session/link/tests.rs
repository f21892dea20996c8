use std::task::Waker;

use bytes::Bytes;
use tunnel_proto::frame::Body;
use tunnel_proto::mux::{Settings, Side};
use tunnel_proto::reason::Reason;

use super::*;
use crate::channel_io::ChannelIo;
use crate::shuttle::{Count, carry, joined, settle};

const GRACE: Duration = Duration::from_secs(30);

/// Two sessions that outlive their links.
fn resumable() -> (Session, Session) {
    let session = |side| Session::new(Settings { resume_grace: Some(GRACE), ..Settings::new(side) });
    (session(Side::Gateway), session(Side::Agent))
}

/// Joins two sessions with a new link, as the handshake does.
fn mend(gateway: &Session, agent: &Session) {
    let (_, received) = gateway.resume(agent.received()).expect("the books fit");
    agent.resume(received).expect("the books fit");
}

fn write(channel: &mut ChannelIo, bytes: &'static [u8]) {
    let mut bytes = Bytes::from_static(bytes);
    assert!(channel.poll_write_bytes(&idle(), &mut bytes).is_ready());
    assert!(bytes.is_empty());
}

#[track_caller]
fn read(channel: &mut ChannelIo) -> Bytes {
    match channel.poll_bytes(&idle()) {
        Poll::Ready(Ok(Some(bytes))) => bytes,
        other @ (Poll::Ready(_) | Poll::Pending) => panic!("{other:?}"),
    }
}

fn idle() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Everything that a link may send now, and whether it has come to its end.
fn outgoing(link: &LinkHold, context: &Context<'_>) -> (Vec<Frame>, bool) {
    let mut frames = Vec::new();
    loop {
        let polled = link.poll_transmit(context, |frame| {
            frames.push(frame);
            true
        });
        match polled {
            Poll::Ready(true) => {}
            Poll::Ready(false) => return (frames, true),
            Poll::Pending => return (frames, false),
        }
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

#[test]
fn stale_link_carries_nothing_in_either_direction() {
    let (gateway, agent) = resumable();
    let (mut here, mut there) = joined(&gateway, &agent);
    let stale = agent.link();
    write(&mut here, b"once");
    let (frames, _) = outgoing(&gateway.link(), &idle());
    mend(&gateway, &agent);

    let mut late = frames.into_iter();
    assert_eq!(stale.handle_frames(|| late.next().map(Ok)), Ok(Taken::Ignored));
    let mut wrong = [Err(SessionError::Exhausted)].into_iter();
    assert_eq!(stale.handle_frames(|| wrong.next()), Ok(Taken::Ignored), "its faults are nobody's");
    assert!(there.poll_bytes(&idle()).is_pending(), "it arrives with the new link");
    assert_eq!(stale.poll_timeout(), None);
    assert_eq!(stale.handle_timeout(), Ok(()));
    assert_eq!(outgoing(&stale, &idle()), (Vec::new(), true));
    assert_eq!(stale.lost(), LinkEnd::Replaced);
    assert_eq!(stale.fail(SessionError::Exhausted), LinkEnd::Replaced);
    assert!(!agent.is_detached() && !agent.is_ended());

    settle(&gateway, &agent);
    assert_eq!(read(&mut there), "once");
    assert!(there.poll_bytes(&idle()).is_pending(), "and only once");
    assert_eq!((gateway.broken_invariant(), agent.broken_invariant()), (None, None));
}

#[test]
fn link_that_waits_for_something_to_say_hears_that_it_is_lost_or_replaced() {
    let (gateway, agent) = resumable();
    drop(joined(&gateway, &agent));
    settle(&gateway, &agent);
    let (count, waker) = Count::new();
    let context = Context::from_waker(&waker);
    let first = gateway.link();
    assert_eq!(outgoing(&first, &context), (Vec::new(), false));
    mend(&gateway, &agent);
    assert_eq!(count.get(), 1, "taken over while it was up");
    assert_eq!(outgoing(&first, &context), (Vec::new(), true));

    settle(&gateway, &agent);
    let second = gateway.link();
    assert_eq!(outgoing(&second, &context), (Vec::new(), false));
    assert_eq!(second.lost(), LinkEnd::Lost);
    assert_eq!(count.get(), 2, "lost");
    assert_eq!(outgoing(&second, &context), (Vec::new(), true));
}

#[test]
fn stale_link_that_goes_away_takes_no_waker_and_mutes_nobody() {
    let (gateway, agent) = resumable();
    let (mut here, _there) = joined(&gateway, &agent);
    let stale = gateway.link();
    mend(&gateway, &agent);
    settle(&gateway, &agent);
    let (count, waker) = Count::new();
    assert_eq!(outgoing(&gateway.link(), &Context::from_waker(&waker)), (Vec::new(), false));
    stale.transmit_gone();
    write(&mut here, b"more");
    assert_eq!(count.get(), 1, "the new link still sends");
    gateway.close(Reason::Shutdown, "over");
    assert!(!gateway.shared.said.is_cancelled(), "and still has a last word to say");
    carry(&gateway, &agent);
    assert!(gateway.shared.said.is_cancelled());
}

#[test]
fn session_without_a_link_has_neither_ended_nor_said_its_last_word() {
    let (gateway, agent) = resumable();
    let (mut here, mut there) = joined(&gateway, &agent);
    // The two halves of a link go in either order.
    gateway.link().transmit_gone();
    assert_eq!(gateway.link().lost(), LinkEnd::Lost);
    assert_eq!(gateway.link().lost(), LinkEnd::Lost, "twice is once");
    assert_eq!(agent.link().lost(), LinkEnd::Lost);
    agent.link().transmit_gone();
    assert!(!agent.is_ended() && !agent.shared.said.is_cancelled());
    assert!(gateway.is_detached() && agent.is_detached());
    assert!(!gateway.is_ended() && !gateway.shared.said.is_cancelled());
    assert_eq!(gateway.end(), None);
    write(&mut here, b"meanwhile");
    assert!(here.poll_bytes(&idle()).is_pending() && there.poll_bytes(&idle()).is_pending());
    mend(&gateway, &agent);
    assert!(!gateway.is_detached() && !agent.is_detached());
    settle(&gateway, &agent);
    assert_eq!(read(&mut there), "meanwhile");
    // A link is mute for itself only.
    gateway.close(Reason::Shutdown, "over");
    assert!(!gateway.shared.said.is_cancelled());
}

#[test]
fn session_that_is_closed_without_a_link_is_over_at_once_and_for_good() {
    let (gateway, agent) = resumable();
    let (mut here, _there) = joined(&gateway, &agent);
    let link = gateway.link();
    assert_eq!(link.lost(), LinkEnd::Lost);
    let (count, waker) = Count::new();
    assert!(here.poll_bytes(&Context::from_waker(&waker)).is_pending());
    gateway.close(Reason::Displaced, "another one");
    assert!(gateway.is_ended() && gateway.shared.said.is_cancelled() && !gateway.is_detached());
    assert_eq!(count.get(), 1, "who read hears of it");
    let closed = SessionError::Closed { reason: Reason::Displaced, detail: "another one".into() };
    assert_eq!(link.lost(), LinkEnd::Over(closed.clone()));
    assert_eq!(gateway.resume(0).err(), Some(SessionError::Ended));
    assert_eq!(gateway.end(), Some(closed), "the first reason counts");
}

#[test]
fn books_that_do_not_fit_end_the_session_and_everybody_hears_of_it() {
    for (wrong, detached) in [(0, false), (0, true), (u64::MAX, false), (u64::MAX, true)] {
        let (gateway, agent) = resumable();
        let (mut here, _there) = joined(&gateway, &agent);
        assert!(gateway.stats().frames.1 > 0, "something was acknowledged");
        let link = gateway.link();
        let (count, waker) = Count::new();
        let context = Context::from_waker(&waker);
        assert!(outgoing(&link, &context).1 || here.poll_bytes(&context).is_pending());
        if detached {
            assert_eq!(link.lost(), LinkEnd::Lost);
        }
        let error = gateway.resume(wrong).expect_err("made up");
        assert!(matches!(error, SessionError::Acknowledged { acknowledged, .. } if acknowledged == wrong));
        assert_eq!(gateway.end().as_ref(), Some(&error));
        assert!(gateway.is_ended() && gateway.shared.said.is_cancelled() && !gateway.is_detached());
        assert!(count.get() > 0);
        assert_eq!(link.lost(), LinkEnd::Over(error), "no other link took over");
        assert_eq!(outgoing(&link, &context), (Vec::new(), true));
        let stats = gateway.stats();
        assert_eq!((stats.replay_bytes, stats.window_bytes, stats.queued_bytes), (0, 0, 0));
    }
}

#[test]
fn session_that_was_not_to_outlive_its_link_is_not_resumed() {
    let (gateway, agent) = crate::shuttle::sessions();
    drop(joined(&gateway, &agent));
    assert_eq!(gateway.resume(0).err(), Some(SessionError::Ended));
    assert!(gateway.is_ended() && gateway.shared.said.is_cancelled());
    assert_eq!(agent.link().lost(), LinkEnd::Over(SessionError::Ended));
}

#[test]
fn peer_is_heard_on_each_link_anew() {
    let (gateway, agent) = resumable();
    assert!(!gateway.was_heard());
    settle(&gateway, &agent);
    assert!(gateway.was_heard());
    mend(&gateway, &agent);
    assert!(!gateway.was_heard());
    let mut broken = [Err(SessionError::Exhausted)].into_iter();
    assert!(gateway.link().handle_frames(|| broken.next()).is_err());
    assert!(!gateway.was_heard(), "noise is no word");
    settle(&agent, &gateway);
    assert!(gateway.was_heard());
}

#[test]
fn drain_request_that_nobody_has_heard_reaches_the_next_link() {
    let (gateway, agent) = resumable();
    assert_eq!(gateway.link().lost(), LinkEnd::Lost);
    gateway.drain(Duration::from_secs(5), Duration::from_secs(1));
    mend(&gateway, &agent);
    let (frames, _) = outgoing(&gateway.link(), &idle());
    assert!(frames.iter().any(|frame| matches!(frame.body, Body::Drain { .. })), "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn grace_that_runs_out_ends_the_session_by_its_name() {
    let (gateway, agent) = resumable();
    let (mut here, _there) = joined(&gateway, &agent);
    let started = tokio::time::Instant::now();
    let link = gateway.link();
    assert_eq!(link.lost(), LinkEnd::Lost);
    let mut waiting = Box::pin(link.await_next());
    assert!(poll(waiting.as_mut(), Waker::noop()).is_pending());
    tokio::time::advance(GRACE / 2).await;
    assert!(poll(waiting.as_mut(), Waker::noop()).is_pending());
    assert_eq!(waiting.await, LinkEnd::Over(SessionError::LinkLost));
    assert!((GRACE..GRACE + Duration::from_millis(10)).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert!(gateway.is_ended() && gateway.shared.said.is_cancelled() && !gateway.is_detached());
    assert_eq!(gateway.end(), Some(SessionError::LinkLost));
    assert!(matches!(here.poll_bytes(&idle()), Poll::Ready(Err(_))));
    assert_eq!(gateway.resume(0).err(), Some(SessionError::Ended), "too late");
    assert_eq!(gateway.end(), Some(SessionError::LinkLost));
}

#[tokio::test(start_paused = true)]
async fn link_that_is_lost_again_gets_its_grace_anew_and_the_one_before_hears_no_more() {
    let (gateway, agent) = resumable();
    let first = gateway.link();
    assert_eq!(first.lost(), LinkEnd::Lost);
    let mut of_first = Box::pin(first.await_next());
    let (count, waker) = Count::new();
    assert!(poll(of_first.as_mut(), &waker).is_pending());
    tokio::time::advance(GRACE - Duration::from_millis(1)).await;
    mend(&gateway, &agent);
    let second = gateway.link();
    assert_eq!(second.lost(), LinkEnd::Lost);
    assert_eq!(count.get(), 1);
    assert_eq!(poll(of_first.as_mut(), &waker), Poll::Ready(LinkEnd::Replaced));
    let mut of_second = Box::pin(second.await_next());
    assert!(poll(of_second.as_mut(), Waker::noop()).is_pending());
    tokio::time::advance(GRACE - Duration::from_millis(1)).await;
    assert!(poll(of_second.as_mut(), Waker::noop()).is_pending(), "the first one's time is nobody's any more");
    assert_eq!(of_second.await, LinkEnd::Over(SessionError::LinkLost));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_next_link_ends_with_a_close() {
    let (gateway, _agent) = resumable();
    let link = gateway.link();
    assert_eq!(link.lost(), LinkEnd::Lost);
    let mut waiting = Box::pin(link.await_next());
    let (count, waker) = Count::new();
    assert!(poll(waiting.as_mut(), &waker).is_pending());
    gateway.close(Reason::Revoked, "enough");
    assert_eq!(count.get(), 1);
    let closed = SessionError::Closed { reason: Reason::Revoked, detail: "enough".into() };
    assert_eq!(poll(waiting.as_mut(), &waker), Poll::Ready(LinkEnd::Over(closed)));
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_a_link_no_longer_than_its_patience() {
    let patience = Duration::from_secs(3);
    let (gateway, agent) = resumable();
    assert!(gateway.attached(Duration::ZERO).await, "it is there");
    assert_eq!(gateway.link().lost(), LinkEnd::Lost);
    let started = tokio::time::Instant::now();
    assert!(!gateway.attached(patience).await);
    assert_eq!(started.elapsed(), patience);

    let mut waiting = Box::pin(gateway.attached(patience));
    let (count, waker) = Count::new();
    assert!(poll(waiting.as_mut(), &waker).is_pending());
    mend(&gateway, &agent);
    assert_eq!((count.get(), poll(waiting.as_mut(), &waker)), (1, Poll::Ready(true)));

    assert_eq!(gateway.link().lost(), LinkEnd::Lost);
    let mut waiting = Box::pin(gateway.attached(patience));
    let (count, waker) = Count::new();
    assert!(poll(waiting.as_mut(), &waker).is_pending());
    gateway.close(Reason::Shutdown, "over");
    assert_eq!((count.get(), poll(waiting.as_mut(), &waker)), (1, Poll::Ready(false)));
}
