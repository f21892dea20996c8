//! Server-sent events at an interval.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::clock::{micros, unix_time};

/// Longest padding of an event.
const PADDING_BYTES_MAX: usize = 1 << 20;

/// Endless body: an event at each tick, with its number and the time at which it was made.
#[derive(Debug)]
pub(super) struct EndlessEvents {
    ticks: Interval,
    sequence: u64,
    padding: String,
}

impl EndlessEvents {
    /// Makes one event at each interval `every`, each with `size` bytes of padding.
    pub(super) fn new(every: Duration, size: usize) -> Self {
        let mut ticks = interval(every);
        // A late event does not delay the next ones: the rate stays the requested one.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let padding =
            if size == 0 { String::new() } else { format!(": {}\n", "x".repeat(size.min(PADDING_BYTES_MAX))) };
        Self { ticks, sequence: 0, padding }
    }
}

impl Body for EndlessEvents {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.ticks.poll_tick(context));
        let sequence = self.sequence;
        self.sequence += 1;
        let sent_us = micros(unix_time());
        let padding = &self.padding;
        let text = format!("id: {sequence}\ndata: {{\"sequence\":{sequence},\"sent_us\":{sent_us}}}\n{padding}\n");
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}
