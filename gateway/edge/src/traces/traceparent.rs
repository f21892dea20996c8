//! The field `traceparent` (W3C Trace Context, section 3.2). Pure.

use http::{HeaderMap, HeaderName};

use gateway_net::telemetry::SpanContext;

/// Names trace and span that a request is part of.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What tracing systems add for themselves.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of the field in version 00.
const LENGTH: usize = 55;

/// A valid `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) context: SpanContext,
    /// Whether its sender keeps its spans.
    pub(super) is_sampled: bool,
}

/// Reads the field; `None` where there is none, several, or an invalid one, which counts as none (section 3.2.2.5).
pub(super) fn read(headers: &HeaderMap) -> Option<TraceParent> {
    let mut fields = headers.get_all(TRACEPARENT).iter();
    let field = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    parse(field.as_bytes())
}

/// Parses a value. A later version may have more behind what is known of it (section 4.3).
fn parse(text: &[u8]) -> Option<TraceParent> {
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split(|byte| *byte == b'-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let version = u8::try_from(hex(version, 2)?).ok()?;
    let is_whole = match version {
        0 => rest.is_empty(),
        0xff => false,
        1..=0xfe => rest.is_empty() || rest.starts_with(b"-"),
    };
    let context = SpanContext { trace: hex(trace, 32)?, span: u64::try_from(hex(span, 16)?).ok()? };
    let flags = hex(flags, 2)?;
    let is_valid = is_whole && parts.next().is_none() && context.trace != 0 && context.span != 0;
    is_valid.then_some(TraceParent { context, is_sampled: flags & 1 == 1 })
}

/// Reads lower-case hexadecimal digits, exactly so many.
fn hex(text: &[u8], length: usize) -> Option<u128> {
    let is_hex = text.len() == length && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// Writes the value for a span whose trace is kept.
pub(super) fn write(context: &SpanContext) -> String {
    format!("00-{:032x}-{:016x}-01", context.trace, context.span)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn valid_values_are_read() {
        let context = SpanContext { trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, span: 0x00f0_67aa_0ba9_02b7 };
        let read = TraceParent { context, is_sampled: true };
        assert_eq!(parse(VALID.as_bytes()), Some(read));
        assert_eq!(write(&context), VALID);
        let unsampled = VALID.replace("-01", "-00");
        assert_eq!(parse(unsampled.as_bytes()), Some(TraceParent { is_sampled: false, ..read }));
        // Other flags are none of ours, and a later version may say more.
        assert_eq!(parse(VALID.replace("-01", "-ff").as_bytes()), Some(read));
        assert_eq!(parse(VALID.replacen("00-", "cc-", 1).as_bytes()), Some(read));
        assert_eq!(parse(format!("{}-more", VALID.replacen("00-", "cc-", 1)).as_bytes()), Some(read));
    }

    #[test]
    fn invalid_values_count_as_none() {
        for invalid in [
            "",
            "00",
            &VALID.replacen("00-", "ff-", 1),
            &format!("{VALID}-more"),
            &format!("{}more", VALID.replacen("00-", "cc-", 1)),
            &VALID.to_uppercase(),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALID.replace("-01", "-+1"),
            &VALID.replace('-', "_"),
        ] {
            assert_eq!(parse(invalid.as_bytes()), None, "{invalid}");
        }
        let mut twice = HeaderMap::new();
        twice.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(read(&twice).is_some());
        twice.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert_eq!(read(&twice), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read(trace in 1_u128.., span in 1_u64..) {
            let context = SpanContext { trace, span };
            prop_assert_eq!(parse(write(&context).as_bytes()), Some(TraceParent { context, is_sampled: true }));
        }
    }
}
