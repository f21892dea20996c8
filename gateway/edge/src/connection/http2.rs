//! The guest of a connection, and the meter of its frames once it speaks HTTP/2.

use std::sync::Arc;

use http1_guard::{Http2End, Http2Watch};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::debug;

use crate::http2_meter::{Meter, Stop};
use gateway_net::limits::Guest;

/// Permits that a connection holds until its last byte, also once it is no longer HTTP; and its frames of HTTP/2.
#[derive(Debug)]
pub(super) struct Http2Guest {
    /// Its place in the listener.
    _permit: OwnedSemaphorePermit,
    /// Its place among those of its address.
    guest: Arc<Guest>,
    resets_per_second: u32,
    /// Counts the frames, once it is HTTP/2.
    meter: Option<Box<Meter>>,
}

impl Http2Guest {
    pub(super) fn new(guest: Arc<Guest>, permit: OwnedSemaphorePermit, resets_per_second: u32) -> Self {
        Self { _permit: permit, guest, resets_per_second, meter: None }
    }
}

impl Http2Watch for Http2Guest {
    fn begin(&mut self) {
        self.meter = Some(Box::new(Meter::new(self.resets_per_second, now())));
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Http2End> {
        let Some(meter) = &mut self.meter else { return Ok(()) };
        let metered = meter.receive(bytes, now);
        let Err(why) = metered.and_then(|()| self.guest.is_beyond().map_or(Ok(()), |limit| Err(limit.into()))) else {
            return Ok(());
        };
        match why {
            Stop::Limit(limit) => self.guest.refuse(limit),
            Stop::Malformed => debug!("pseudo field in the trailers of a request, connection closed"),
        }
        Err(Http2End { last_frame: meter.is_between_frames().then(|| meter.goaway(why).into()) })
    }

    fn send(&mut self, bytes: &[u8]) {
        if let Some(meter) = &mut self.meter {
            meter.send(bytes, now);
        }
    }
}

/// Source of the meter's time, because the meter itself is pure.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
