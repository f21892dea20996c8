//! Deadlines of calls: as long as the caller says (gRPC over HTTP/2, `grpc-timeout`), and never beyond a bound.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::status::late;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Most digits of a timeout.
const DIGITS_MAX: usize = 8;

/// Reads the caller's timeout; an invalid one counts as none.
pub(super) fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.saturating_mul(3600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// An answer that ends at a deadline, and says so.
pub(super) struct UntilDeadline {
    body: tonic::body::Body,
    deadline: Pin<Box<Sleep>>,
    is_over: bool,
}

impl UntilDeadline {
    pub(super) fn new(body: tonic::body::Body, by: Instant) -> Self {
        Self { body, deadline: Box::pin(tokio::time::sleep_until(by)), is_over: false }
    }
}

impl Body for UntilDeadline {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        std::task::ready!(this.deadline.as_mut().poll(context));
        this.is_over = true;
        let mut trailers = HeaderMap::new();
        match late("the deadline of the call has passed").add_header(&mut trailers) {
            Ok(()) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Err(status) => Poll::Ready(Some(Err(status))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }
}

/// Writes a header of ASCII; another character becomes a question mark.
pub(super) fn ascii(text: &str) -> HeaderValue {
    let plain: String = text.chars().map(|one| if one.is_ascii_graphic() || one == ' ' { one } else { '?' }).collect();
    HeaderValue::from_str(&plain).unwrap_or(HeaderValue::from_static("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answer_that_ends_at_its_deadline_says_so_with_codes_of_both_kinds() {
        let endless = http_body_util::StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, Status>>());
        let body = UntilDeadline::new(tonic::body::Body::new(endless), Instant::now());
        let trailers = http_body_util::BodyExt::collect(body).await.unwrap().trailers().unwrap().clone();
        assert_eq!(trailers["grpc-status"], "4");
        assert_eq!(trailers["gateway-error"], "response_timeout");
    }

    #[test]
    fn timeout_is_read_as_the_protocol_writes_it() {
        let of = |text: &str| timeout_of(&[(TIMEOUT, HeaderValue::from_str(text).unwrap())].into_iter().collect());
        assert_eq!(of("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(of("2M"), Some(Duration::from_secs(120)));
        assert_eq!(of("100m"), Some(Duration::from_millis(100)));
        assert_eq!(of("99999999S"), Some(Duration::from_secs(99_999_999)));
        for text in ["", "S", "1", "1x", "-1S", "123456789S", "1 S", "é"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
