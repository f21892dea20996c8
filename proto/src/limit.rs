//! Every bound on the wire, with its unit and its reason. Relations between them are checked when compiling.

use std::time::Duration;

/// Overhead in front of a payload: HTTP/2 frame header (9), gRPC prefix (5), protobuf tags, lengths, numbers (≤ 50).
pub const FRAME_OVERHEAD_BYTES_MAX: usize = 64;

/// Largest plaintext of one TLS record (RFC 8446, section 5.1).
const TLS_RECORD_BYTES: usize = 16_384;

/// Payload of one Data frame while an interactive channel waits: with its overhead it fills one TLS record, and a
/// keystroke behind it waits a fraction of a millisecond on a slow uplink's bottleneck queue.
pub const PAYLOAD_BYTES_SHARED: usize = TLS_RECORD_BYTES - FRAME_OVERHEAD_BYTES_MAX;

/// Payload of one Data frame while only bulk waits: four TLS records, fewer frames and syscalls. Eight downloads at once
/// cost twice the processor time with 16 KiB.
pub const PAYLOAD_BYTES_ALONE: usize = 4 * TLS_RECORD_BYTES - FRAME_OVERHEAD_BYTES_MAX;

/// Largest payload that is accepted from a peer.
pub const PAYLOAD_BYTES_MAX: usize = PAYLOAD_BYTES_ALONE;

/// Largest encoded frame that is accepted from a peer. A larger one ends the session before it is stored.
pub const FRAME_BYTES_MAX: usize = 128 * 1024;

/// Payload of this length may stay a slice of the buffer that it was read into; a shorter one gets memory of its own. The
/// buffers that are read into have at most twice this length, so that what is kept is at most twice what is counted.
pub const SLICE_BYTES_MIN: usize = 32 * 1024;

/// Smallest window that a channel can have; a session's budget is divided into at least these.
pub const WINDOW_BYTES_MIN: u32 = 16 * 1024;

/// Default window of a new channel: one 256 KiB flight fills a 100 Mbit/s link of 20 ms before the first grant.
pub const WINDOW_BYTES_INITIAL: u32 = 256 * 1024;

/// Default ceiling of a window: 1 Gbit/s over 80 ms is 10 MB in flight, and credit comes back half a window at a time, so
/// half of the window has to be more than that.
pub const WINDOW_BYTES_MAX: u32 = 32 * 1024 * 1024;

/// Default bound on the sum of a session's windows and of what it keeps for a resume. Half of it is for windows that
/// grow, and the first to do so gets half of that: 32 MiB.
pub const SESSION_BUDGET_BYTES: u64 = 128 * 1024 * 1024;

/// Credit for the gateway on a new channel before any grant: a request head and a small body. It is the smallest window
/// too, because every channel has it for as long as it lives, thousands of idle ones among them; the rest of a window
/// comes with the accept.
pub const OPEN_CREDIT_BYTES: u32 = 16 * 1024;

/// Bytes that one channel may queue for sending. Two frames: one being sent, one ready.
pub const SEND_QUEUE_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_ALONE;

/// Queued bytes from which on a writer is not told of room: pieces cut to the little that a small frame left behind
/// become small frames, which leave as little again (RFC 9293, section 3.8.6.2, describes the same for TCP).
pub const SEND_QUEUE_BYTES_FULL: usize = SEND_QUEUE_BYTES_MAX - PAYLOAD_BYTES_SHARED;

/// Most bytes that a channel may queue once the session's send budget is spent: enough for a keystroke or a request
/// head.
pub const SEND_QUEUE_BYTES_MIN: usize = 16 * 1024;

/// Live channels of one session by default.
pub const CHANNELS_MAX: u32 = 4096;

/// A channel with at most this much queued counts as interactive (a keystroke, a WebSocket message, a request head).
pub const INTERACTIVE_BYTES_MAX: usize = 2 * 1024;

/// Interactive bytes that may go ahead of waiting bulk before one bulk frame gets its turn: priority never starves.
pub const INTERACTIVE_BURST_BYTES: usize = 4 * PAYLOAD_BYTES_SHARED;

/// Grants in one Credit frame: 64 of them stay under a kilobyte.
pub const GRANTS_PER_FRAME_MAX: usize = 64;

/// Numbered frames that may be received before an acknowledgement goes out on its own.
pub const ACKNOWLEDGE_FRAMES_MAX: u64 = 64;

/// Payload bytes that may be received before an acknowledgement goes out on its own: the sender keeps what is not
/// acknowledged, so this is memory at the other end. A sender that is short of memory asks with a ping instead.
pub const ACKNOWLEDGE_BYTES_MAX: u64 = 256 * 1024;

/// Longest time that a received frame stays unacknowledged when nothing else is sent.
pub const ACKNOWLEDGE_DELAY: Duration = Duration::from_millis(500);

/// Cost of a sent frame besides its payload for as long as it is kept for a resume: its place in the queue and the
/// bookkeeping of its bytes.
pub const REPLAY_FRAME_BYTES: usize = 128;

/// Kept frames are charged to the budget in steps of this size.
pub const REPLAY_STEP_BYTES: u64 = 256 * 1024;

/// Bytes that a session may keep without asking the budget, so that it always makes progress, however short memory is.
pub const REPLAY_BYTES_FREE: usize = 2 * PAYLOAD_BYTES_ALONE;

/// Default bound on the payload that a session keeps for a resume, on all of its lanes together: 1 Gbit/s over 80 ms,
/// twice, and the lag of acknowledgements.
pub const REPLAY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Fraction of the bound on kept payload that is left beyond it for frames which open and end channels, so that uploads
/// to a slow peer do not keep new requests out.
pub const REPLAY_CONTROL_DIVISOR: u64 = 4;

/// Default time for which a session without a link is kept.
pub const RESUME_GRACE: Duration = Duration::from_secs(30);

/// Longest wait for a gateway's answer to a Hello, which may be lost without a sound, while a session waits for a link:
/// several attempts have to fit into the grace. A gateway that lets agents wait for their turn does so for less.
pub const RESUME_ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

/// Open frames that may wait for the link, so that a session without one does not collect requests for ever.
pub const OPENS_QUEUED_MAX: usize = 8 * 1024;

/// Interval at which the round trip is measured while bytes flow.
pub const PING_INTERVAL_BUSY: Duration = Duration::from_secs(1);

/// Names and texts in Hello: each at most this long.
pub const TEXT_BYTES_MAX: usize = 128;

/// Longest address in a handshake message, in bytes: a scheme, the longest host name (RFC 1035, section 2.3.4), a port.
pub const URL_BYTES_MAX: usize = 512;

/// Lanes of one session.
pub const LANES_MAX: u32 = 16;

/// Longest ticket of a relay lane, in bytes.
pub const TICKET_BYTES_MAX: usize = 64;

/// Longest seal of a generation, in bytes: more than one has now, so that later ones may say more.
pub const SEAL_BYTES_MAX: usize = 512;

/// Ports in one Hello.
pub const PORTS_MAX: usize = 256;

/// Features in one Hello.
pub const FEATURES_MAX: usize = 32;

/// Control frames that may wait for the link. Honest peers stay far below; one that provokes answers and does not
/// collect them loses its session here instead of filling memory.
pub const CONTROL_QUEUED_MAX: usize = 64 * 1024;

const _: () = assert!(PAYLOAD_BYTES_MAX + FRAME_OVERHEAD_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(WINDOW_BYTES_MIN <= OPEN_CREDIT_BYTES);
const _: () = assert!(OPEN_CREDIT_BYTES <= WINDOW_BYTES_INITIAL);
const _: () = assert!(WINDOW_BYTES_INITIAL <= WINDOW_BYTES_MAX);
const _: () = assert!(4 * RESUME_ANSWER_TIMEOUT.as_millis() < RESUME_GRACE.as_millis());
const _: () = assert!(INTERACTIVE_BYTES_MAX < PAYLOAD_BYTES_SHARED);
