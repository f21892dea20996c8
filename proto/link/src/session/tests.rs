use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use bytes::Bytes;
use tunnel_proto::mux::Side;

use super::*;
use crate::shuttle::{Count, carry, incoming, joined, sessions, settle};

fn write(channel: &mut ChannelIo, bytes: &'static [u8]) {
    let context = Context::from_waker(Waker::noop());
    let mut bytes = Bytes::from_static(bytes);
    assert!(channel.poll_write_bytes(&context, &mut bytes).is_ready());
    assert!(bytes.is_empty());
}

fn idle(session: &Session, context: &Context<'_>) -> bool {
    session.link().poll_transmit(context, |frame| panic!("not idle: {frame:?}")).is_pending()
}

#[test]
fn write_wakes_the_link_only_if_it_was_idle() {
    let (gateway, agent) = sessions();
    let (mut here, _there) = joined(&gateway, &agent);
    let (count, waker) = Count::new();
    assert!(idle(&gateway, &Context::from_waker(&waker)));
    assert_eq!(count.get(), 0, "waiting is not a reason");
    write(&mut here, b"one");
    assert_eq!(count.get(), 1);
    write(&mut here, b"two");
    assert_eq!(count.get(), 1, "it is awake already");
    carry(&gateway, &agent);
    assert!(idle(&gateway, &Context::from_waker(&waker)));
    write(&mut here, b"three");
    assert_eq!(count.get(), 2);
}

#[test]
fn nothing_wakes_when_nothing_moves() {
    let (gateway, agent) = sessions();
    let (mut here, _there) = joined(&gateway, &agent);
    let (count, waker) = Count::new();
    let context = Context::from_waker(&waker);
    for _ in 0..100 {
        assert!(idle(&gateway, &context));
        assert!(here.poll_bytes(&context).is_pending());
        assert!(here.poll_reset(&context).is_pending());
    }
    assert_eq!(count.get(), 0);
}

#[test]
fn abandoned_completes_with_the_reset_and_is_woken_for_nothing_else() {
    let (gateway, agent) = sessions();
    let (mut here, _accepted) = gateway.open(3000).expect("opened");
    settle(&gateway, &agent);
    let incoming = incoming(&agent);
    let (count, waker) = Count::new();
    let mut context = Context::from_waker(&waker);
    let mut abandoned = std::pin::pin!(incoming.abandoned());
    for _ in 0..10 {
        assert!(abandoned.as_mut().poll(&mut context).is_pending());
    }
    write(&mut here, b"more");
    settle(&gateway, &agent);
    assert_eq!(count.get(), 0, "bytes are not its business");
    drop(here);
    settle(&gateway, &agent);
    assert_eq!(count.get(), 1);
    assert!(abandoned.as_mut().poll(&mut context).is_ready());
}

#[test]
fn abandoned_completes_at_once_if_the_reset_came_first() {
    let (gateway, agent) = sessions();
    let (here, _accepted) = gateway.open(3000).expect("opened");
    settle(&gateway, &agent);
    drop(here);
    settle(&gateway, &agent);
    let incoming = incoming(&agent);
    let mut abandoned = std::pin::pin!(incoming.abandoned());
    assert!(abandoned.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn abandoned_misses_no_reset_that_comes_while_it_looks() {
    for round in 0..5_000 {
        let (gateway, agent) = sessions();
        let (here, _accepted) = gateway.open(3000).expect("opened");
        settle(&gateway, &agent);
        let incoming = incoming(&agent);
        drop(here);
        let (count, waker) = Count::new();
        let start = std::sync::Barrier::new(2);
        let heard = std::thread::scope(|threads| {
            let looking = threads.spawn(|| {
                let mut abandoned = std::pin::pin!(incoming.abandoned());
                start.wait();
                abandoned.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            });
            start.wait();
            carry(&gateway, &agent);
            looking.join().expect("no panic")
        });
        assert!(heard || count.get() > 0, "a reset was missed in round {round}");
    }
}

#[test]
fn opening_wakes_who_accepts_and_the_end_does_too() {
    let (gateway, agent) = sessions();
    let (count, waker) = Count::new();
    let mut context = Context::from_waker(&waker);
    let mut accepting = Box::pin(agent.accept());
    assert!(accepting.as_mut().poll(&mut context).is_pending());
    let (_here, _accepted) = gateway.open(3000).expect("opened");
    carry(&gateway, &agent);
    assert_eq!(count.get(), 1);
    assert!(matches!(accepting.as_mut().poll(&mut context), Poll::Ready(Some(_))));
    accepting = Box::pin(agent.accept());
    assert!(accepting.as_mut().poll(&mut context).is_pending());
    agent.close(Reason::Shutdown, "over");
    assert_eq!(count.get(), 2);
    assert!(matches!(accepting.as_mut().poll(&mut context), Poll::Ready(None)));
}

/// Looks whether the session's lock is free when it is woken.
struct Looker {
    shared: Weak<SessionShared>,
    woken_unlocked: AtomicBool,
}

impl Wake for Looker {
    fn wake(self: Arc<Self>) {
        let shared = self.shared.upgrade().expect("alive");
        self.woken_unlocked.store(shared.state.try_lock().is_some(), Ordering::Relaxed);
    }
}

fn looker(session: &Session) -> (Arc<Looker>, Waker) {
    let shared = Arc::downgrade(&session.shared);
    let looker = Arc::new(Looker { shared, woken_unlocked: AtomicBool::new(false) });
    (looker.clone(), Waker::from(looker))
}

#[test]
fn nobody_is_woken_under_the_lock() {
    let (gateway, agent) = sessions();
    let (mut here, mut there) = joined(&gateway, &agent);

    let (link, waker) = looker(&gateway);
    assert!(idle(&gateway, &Context::from_waker(&waker)));
    write(&mut here, b"bytes");
    assert!(link.woken_unlocked.load(Ordering::Relaxed), "the link");

    let (reader, waker) = looker(&agent);
    assert!(there.poll_bytes(&Context::from_waker(&waker)).is_pending());
    carry(&gateway, &agent);
    assert!(reader.woken_unlocked.load(Ordering::Relaxed), "a reader");

    let (opener, waker) = looker(&gateway);
    let (_channel, mut accepted) = gateway.open(1).expect("opened");
    assert!(std::pin::Pin::new(&mut accepted).poll(&mut Context::from_waker(&waker)).is_pending());
    settle(&gateway, &agent);
    let _io = incoming(&agent).accept();
    carry(&agent, &gateway);
    assert!(opener.woken_unlocked.load(Ordering::Relaxed), "who opened");

    let (dropped, waker) = looker(&gateway);
    let (channel, mut accepted) = gateway.open(1).expect("opened");
    assert!(std::pin::Pin::new(&mut accepted).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(channel);
    assert!(dropped.woken_unlocked.load(Ordering::Relaxed), "who opened and is told that nobody will answer");

    let (ended, waker) = looker(&gateway);
    let mut said = std::pin::pin!(gateway.said());
    assert!(said.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gateway.close(Reason::Shutdown, "over");
    carry(&gateway, &agent);
    assert!(ended.woken_unlocked.load(Ordering::Relaxed), "who waits for the last word");
}

#[test]
fn last_word_that_nobody_will_ever_send_is_not_waited_for() {
    let (gateway, _agent) = sessions();
    let (count, waker) = Count::new();
    let mut context = Context::from_waker(&waker);
    let mut said = std::pin::pin!(gateway.said());
    gateway.close(Reason::Shutdown, "over");
    assert!(said.as_mut().poll(&mut context).is_pending());
    gateway.link().transmit_gone();
    assert_eq!(count.get(), 1);
    assert!(said.as_mut().poll(&mut context).is_ready());
}

fn that_outlives_its_link() -> Session {
    Session::new(Settings { resume_grace: Some(Duration::from_secs(30)), ..Settings::new(Side::Gateway) })
}

/// Takes all that a link has to say; returns whether that was all for ever.
fn exhaust(link: &LinkHold, context: &Context<'_>) -> bool {
    loop {
        match link.poll_transmit(context, |_frame| true) {
            Poll::Ready(true) => {}
            Poll::Ready(false) => return true,
            Poll::Pending => return false,
        }
    }
}

fn has_said(session: &Session) -> bool {
    std::pin::pin!(session.said()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn link_that_is_replaced_is_woken_and_has_nothing_more_to_say() {
    let session = that_outlives_its_link();
    let (count, waker) = Count::new();
    let context = Context::from_waker(&waker);
    let old = session.link();
    assert!(!exhaust(&old, &context));
    let (new, _received) = session.resume(0).expect("it lives");
    assert_eq!(count.get(), 1);
    assert!(exhaust(&old, &context));
    assert!(!exhaust(&new, &context));
    session.close(Reason::Shutdown, "");
    assert_eq!(count.get(), 2, "the new one's waker was not taken away");
}

#[test]
fn last_word_of_a_session_that_was_resumed_is_waited_for() {
    let session = that_outlives_its_link();
    let context = Context::from_waker(Waker::noop());
    let old = session.link();
    assert_eq!(old.lost(), LinkEnd::Lost);
    old.transmit_gone();
    assert!(!has_said(&session), "another link may come");
    let (new, _received) = session.resume(0).expect("it lives");
    session.close(Reason::Shutdown, "");
    assert!(!has_said(&session));
    assert!(exhaust(&new, &context));
    assert!(has_said(&session));
}
