//! One page that shows a terminal: its WebSocket, both ways.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use super::job::JobState;
use super::live::LiveTerminal;
use super::message::{FromPage, INPUT_BYTES_MAX, MESSAGE_BYTES_MAX, ToPage};
use super::state::{Misuse, ViewerId, ViewerInput};

/// Interval at which a page hears something, so that it notices a path that is gone without a word.
const BEAT: Duration = Duration::from_secs(10);

/// Longest silence of a page: its browser answers each beat's ping.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Longest time for a page to hear why its connection ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Most bytes that a page has typed and the shell has no room for. Below it, the page's other messages are heard all
/// the same, and it types no more ahead than half of this (`AHEAD_BYTES` of `workspace-agent/assets/connection.js`).
const UNTAKEN_BYTES_MAX: usize = 128 * 1024;

/// Reason why a connection of a page ended, as the code and words of its close frame (RFC 6455, section 7.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewerEnd {
    /// It went away.
    Left,
    /// It has connected anew.
    Replaced,
    /// Its user may not type, and it did.
    ReadOnly,
    /// It said what no page says.
    BadMessage,
    /// It is silent.
    Silent,
    /// The terminal was closed.
    Closed,
}

impl ViewerEnd {
    fn close_frame(self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::Left => return None,
            Self::Replaced => (4001, "replaced"),
            Self::ReadOnly => (4003, "read_only"),
            Self::BadMessage => (4002, "bad_message"),
            Self::Silent => (4008, "silent"),
            Self::Closed => (4000, "closed"),
        };
        Some(CloseFrame { code: CloseCode::from(code), reason: Utf8Bytes::from_static(reason) })
    }
}

impl From<Misuse> for ViewerEnd {
    fn from(misuse: Misuse) -> Self {
        match misuse {
            Misuse::ReadOnly => Self::ReadOnly,
            Misuse::Numbers => Self::BadMessage,
            Misuse::Gone => Self::Replaced,
        }
    }
}

/// A page's hold on a terminal, given back when it is dropped.
struct TerminalHold {
    live: Arc<LiveTerminal>,
    id: ViewerId,
}

impl Drop for TerminalHold {
    fn drop(&mut self) {
        self.live.change(|state| state.leave(self.id));
    }
}

/// Serves a page that has joined a terminal, until either is gone.
///
/// Cancel safety: dropping it cuts the connection and takes the page out.
pub(super) async fn serve<S>(io: S, live: Arc<LiveTerminal>, id: ViewerId, job: Option<watch::Receiver<JobState>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hold = TerminalHold { live, id };
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .read_buffer_size(4 * 1024)
        .write_buffer_size(0);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (mut sink, stream) = socket.split();
    let end = tokio::select! {
        end = speak(&hold, &mut sink, job) => end,
        end = listen(&hold, stream) => end,
        () = hold.live.close.cancelled() => ViewerEnd::Closed,
    };
    drop(hold);
    if let Some(frame) = end.close_frame() {
        // A page that is gone cannot be told.
        drop(timeout(FAREWELL, sink.send(Message::Close(Some(frame)))).await);
    }
}

/// Sends the page its messages.
async fn speak<S>(
    hold: &TerminalHold,
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    mut job: Option<watch::Receiver<JobState>>,
) -> ViewerEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut news = hold.live.news();
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats.reset();
    let mut job_is_new = job.is_some();
    loop {
        loop {
            let message = match hold.live.look(|state| state.next(hold.id)) {
                ViewerInput::Message(message) => message,
                ViewerInput::Nothing => break,
                ViewerInput::Gone => return ViewerEnd::Replaced,
            };
            if sink.feed(Message::Binary(message.encode())).await.is_err() {
                return ViewerEnd::Left;
            }
        }
        if job_is_new && let Some(job) = &mut job {
            let state = job.borrow_and_update().clone();
            if sink.feed(Message::Binary(ToPage::Job(state).encode())).await.is_err() {
                return ViewerEnd::Left;
            }
            job_is_new = false;
        }
        if sink.flush().await.is_err() {
            return ViewerEnd::Left;
        }
        tokio::select! {
            _ = news.changed() => {}
            () = changed(&mut job) => job_is_new = true,
            _ = beats.tick() => {
                let pulse = [Message::Binary(ToPage::Beat.encode()), Message::Ping(Bytes::new())];
                for message in pulse {
                    if sink.feed(message).await.is_err() {
                        return ViewerEnd::Left;
                    }
                }
            }
        }
    }
}

/// Waits until the state of the job changes; for ever if there is no job, or it is over.
async fn changed(job: &mut Option<watch::Receiver<JobState>>) {
    if let Some(state) = job
        && state.changed().await.is_ok()
    {
        return;
    }
    pending().await
}

/// Input that a page has typed and the shell has not taken yet.
#[derive(Debug, Default)]
struct Untaken {
    /// Number of bytes that the page typed before these.
    offset: u64,
    bytes: BytesMut,
}

impl Untaken {
    /// Adds input that was typed after `offset` bytes. Bytes that are there already are not added again.
    fn add(&mut self, offset: u64, bytes: &Bytes) -> Result<(), Misuse> {
        if self.bytes.is_empty() {
            self.offset = offset;
        }
        let end = self.offset.checked_add(self.bytes.len() as u64);
        let known = end.and_then(|end| end.checked_sub(offset)).ok_or(Misuse::Numbers)?;
        let new = usize::try_from(known).ok().and_then(|known| bytes.get(known..)).unwrap_or_default();
        self.bytes.extend_from_slice(new);
        Ok(())
    }

    /// Takes the first piece of it, and returns how many bytes were typed before that.
    fn take(&mut self) -> (u64, Bytes) {
        let offset = self.offset;
        let piece = self.bytes.split_to(self.bytes.len().min(INPUT_BYTES_MAX)).freeze();
        self.offset = self.offset.saturating_add(piece.len() as u64);
        (offset, piece)
    }
}

/// Takes the page's messages. Its input waits for room; its other messages do not wait behind that.
async fn listen(
    hold: &TerminalHold,
    mut stream: impl Stream<Item = tungstenite::Result<Message>> + Unpin,
) -> ViewerEnd {
    let mut untaken = Untaken::default();
    let mut silent_at = Instant::now() + SILENCE_MAX;
    loop {
        let heard = tokio::select! {
            heard = timeout_at(silent_at, stream.next()), if untaken.bytes.len() < UNTAKEN_BYTES_MAX => heard,
            // Room first: what counts as taken is handed on, whatever becomes of this connection.
            room = hold.live.inputs().reserve(), if !untaken.bytes.is_empty() => {
                let (offset, bytes) = untaken.take();
                let Ok(room) = room else { continue };
                match hold.live.change(|state| state.typed(hold.id, offset, bytes)) {
                    Ok(new) if new.is_empty() => {}
                    Ok(new) => room.send(new),
                    Err(misuse) => return misuse.into(),
                }
                // While there was no room for its input, the page may not have been listened to.
                silent_at = silent_at.max(Instant::now() + BEAT);
                continue;
            }
        };
        silent_at = Instant::now() + SILENCE_MAX;
        let message = match heard {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(tungstenite::Error::Capacity(_) | tungstenite::Error::Protocol(_)))) => {
                return ViewerEnd::BadMessage;
            }
            Ok(Some(Err(_)) | None) => return ViewerEnd::Left,
            Err(_elapsed) => return ViewerEnd::Silent,
        };
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return ViewerEnd::Left,
            Message::Text(_) | Message::Frame(_) => return ViewerEnd::BadMessage,
        };
        let Ok(said) = FromPage::decode(bytes) else { return ViewerEnd::BadMessage };
        if let Err(misuse) = heed(hold, &mut untaken, said) {
            return misuse.into();
        }
    }
}

fn heed(hold: &TerminalHold, untaken: &mut Untaken, said: FromPage) -> Result<(), Misuse> {
    match said {
        FromPage::Input { offset, bytes } => {
            // A user who may not type is refused without waiting for room.
            hold.live.look(|state| state.may_type(hold.id))?;
            untaken.add(offset, &bytes)
        }
        FromPage::Size(size) => {
            hold.live.change(|state| state.resized(hold.id, size));
            Ok(())
        }
        FromPage::Shown(before) => hold.live.change(|state| state.shown(hold.id, before)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_waits_in_one_piece_and_only_once() {
        let mut untaken = Untaken::default();
        let mut add = |offset, text: &'static str| untaken.add(offset, &Bytes::from_static(text.as_bytes()));
        assert_eq!(add(7, "abc"), Ok(()), "where it begins is for the terminal to judge");
        assert_eq!((add(8, "bcd"), add(7, "ab"), add(11, "e")), (Ok(()), Ok(()), Ok(())), "some of it again");
        assert_eq!(add(13, "g"), Err(Misuse::Numbers), "a gap");
        assert_eq!(untaken.take(), (7, Bytes::from_static(b"abcde")));
        assert_eq!(untaken.add(20, &Bytes::from(vec![b'x'; INPUT_BYTES_MAX + 1])), Ok(()));
        assert_eq!((untaken.take().0, untaken.take()), (20, (20 + INPUT_BYTES_MAX as u64, Bytes::from_static(b"x"))));
        assert_eq!(untaken.add(u64::MAX, &Bytes::from_static(b"x")), Ok(()));
        assert_eq!(untaken.add(u64::MAX, &Bytes::from_static(b"x")), Err(Misuse::Numbers), "no page types so much");
    }
}
