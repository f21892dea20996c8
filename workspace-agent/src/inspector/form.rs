//! Forms and queries as browsers write them (WHATWG URL, section 5). Pure.

use std::borrow::Cow;

/// Decodes a name or a value.
#[must_use]
pub(crate) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let (byte, taken) = match (first, digit(0).zip(digit(1))) {
            (b'%', Some((high, low))) => (u8::try_from(high * 16 + low).unwrap_or_default(), 2),
            (b'+', _) => (b' ', 0),
            (_, _) => (*first, 0),
        };
        bytes.push(byte);
        rest = behind.get(taken..).unwrap_or_default();
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns names and values.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

/// Encodes a value for a query.
#[must_use]
pub(crate) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => text.push(char::from(byte)),
            b' ' => text.push('+'),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_code_stays_as_it_is() {
        for (text, expected) in
            [("a+b", "a b"), ("%41%4", "A%4"), ("%zz%", "%zz%"), ("%C3%A9", "é"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(decoded(text), expected);
        }
    }

    proptest! {
        #[test]
        fn values_come_back(value in any::<String>()) {
            let text = format!("a=1&b={}", encoded(&value));
            let read: Vec<_> = pairs(&text).map(|(_, value)| value.into_owned()).collect();
            prop_assert_eq!(read, vec!["1".to_owned(), value]);
        }
    }
}
