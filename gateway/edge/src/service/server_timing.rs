//! The field `Server-Timing` (W3C Server Timing), by which a workspace's owner sees in the browser's own tools where the time of a
//! request went. Other users get none: it tells how the app and the way to it fare. Nor do programs, which do not read it: it would be
//! one request's fiftieth part.

use std::cell::RefCell;
use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue};

use gateway_net::telemetry::PhaseTimes;

/// The field.
pub(super) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A field that browsers send with each request (Fetch Metadata, section 2.2), and programs do not.
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Bytes that hold any value.
const LENGTH_MAX: usize = 112;

/// Bytes that values of one thread are cut from, so that most need no allocation: they are gone with the heads of their answers.
const SHARED_BYTES: usize = 4096;

thread_local! {
    static TEXT: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(SHARED_BYTES));
}

/// Returns whether a browser asks.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.contains_key(SEC_FETCH_MODE)
}

/// Writes the durations, in milliseconds with a place after the point. HTTP/2 is told not to keep the value in its table, where it would
/// push out what is sent again.
pub(super) fn of(phases: &PhaseTimes) -> HeaderValue {
    let text = TEXT.with_borrow_mut(|text| {
        // Takes back what no answer has any more, before it allocates.
        text.reserve(LENGTH_MAX);
        for (name, took) in [("queue;dur=", phases.queue), (", tunnel;dur=", phases.tunnel), (", app;dur=", phases.app)]
        {
            text.extend_from_slice(name.as_bytes());
            write(text, took);
        }
        text.split().freeze()
    });
    // Digits and fixed words.
    let mut value = HeaderValue::from_maybe_shared(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// Writes a duration. Each answer to an owner has three of them: this is a third of the formatter's work.
fn write(text: &mut BytesMut, took: Duration) {
    let mut digits = [b'0'; 24];
    let mut left = took.as_micros() / 100;
    let mut place = digits.len();
    // At least one digit before the point and one after it.
    while left > 0 || place > digits.len() - 3 {
        place -= 1;
        if let Some(digit) = digits.get_mut(place) {
            if place == 22 {
                *digit = b'.';
                continue;
            }
            *digit = b'0' + u8::try_from(left % 10).unwrap_or_default();
        }
        left /= 10;
        if place == 0 {
            break;
        }
    }
    text.extend_from_slice(digits.get(place..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_in_milliseconds() {
        let phases = |micros: [u64; 3]| {
            let [queue, tunnel, app] = micros.map(Duration::from_micros);
            of(&PhaseTimes { queue, tunnel, app })
        };
        assert_eq!(phases([0, 99, 100]), "queue;dur=0.0, tunnel;dur=0.0, app;dur=0.1");
        assert_eq!(phases([1_250, 40_000, 12_345_678]), "queue;dur=1.2, tunnel;dur=40.0, app;dur=12345.6");
        let longest = phases([u64::MAX; 3]);
        assert!(longest.len() <= LENGTH_MAX, "{longest:?}");
    }
}
