//! Choice of exchanges, as the page's address says it. Pure.

use super::exchange::{Exchange, Field, Way};
use super::form::{encoded, pairs};

/// Longest text that is searched for, in bytes.
const TEXT_BYTES_MAX: usize = 200;

/// A choice of exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Text in the address, the heads, the bodies or the messages, in small letters.
    pub(crate) text: String,
    /// The method, in capital letters; empty for any.
    pub(crate) method: String,
    /// A status, or a class of them, such as `5xx`; empty for any.
    pub(crate) status: String,
    /// The port; empty for any.
    pub(crate) port: String,
    /// Whether only those that failed are chosen.
    pub(crate) failing: bool,
}

impl Filter {
    /// Reads the query of an address. What it does not know chooses nothing out.
    #[must_use]
    pub(crate) fn read(query: &str) -> Self {
        let mut filter = Self::default();
        for (name, value) in pairs(query) {
            let value = value.trim();
            let short: String = value.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
            match &*name {
                "q" => {
                    let end = value.char_indices().map(|(at, one)| at + one.len_utf8());
                    let end = end.take_while(|end| *end <= TEXT_BYTES_MAX).last().unwrap_or_default();
                    filter.text = value.get(..end).unwrap_or_default().to_ascii_lowercase();
                }
                "method" => filter.method = short.to_ascii_uppercase(),
                "status" => filter.status = short.to_ascii_lowercase(),
                "port" => filter.port = short,
                "failing" => filter.failing = value == "1",
                _ => {}
            }
        }
        filter
    }

    /// Writes the query, which is empty for a choice of all.
    #[must_use]
    pub(crate) fn query(&self) -> String {
        let Self { text, method, status, port, failing } = self;
        let failing = if *failing { "1" } else { "" };
        let said = [("q", text.as_str()), ("method", method), ("status", status), ("port", port), ("failing", failing)];
        let said = said.into_iter().filter(|(_, value)| !value.is_empty());
        said.map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&")
    }

    /// Writes the query with its question mark, for an address.
    #[must_use]
    pub(crate) fn suffix(&self) -> String {
        let query = self.query();
        if query.is_empty() { query } else { format!("?{query}") }
    }

    /// Returns whether it chooses all.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Decides on an exchange.
    #[must_use]
    pub(crate) fn chooses(&self, exchange: &Exchange) -> bool {
        let status = exchange.response.as_ref().map(|head| head.status.to_string()).unwrap_or_default();
        let has_status = match self.status.strip_suffix("xx") {
            Some(class) => !class.is_empty() && status.starts_with(class),
            None => self.status == status,
        };
        (self.method.is_empty() || exchange.request.method.eq_ignore_ascii_case(&self.method))
            && (self.status.is_empty() || has_status)
            && (self.port.is_empty() || exchange.port.to_string() == self.port)
            && (!self.failing || exchange.has_failed())
            && (self.text.is_empty() || self.finds(exchange))
    }

    fn finds(&self, exchange: &Exchange) -> bool {
        let text = self.text.as_bytes();
        let in_fields = |fields: &[Field]| {
            fields.iter().any(|field| contains(field.name.as_bytes(), text) || contains(field.value.as_bytes(), text))
        };
        contains(exchange.request.target.as_bytes(), text)
            || in_fields(&exchange.request.fields)
            || exchange.response.as_ref().is_some_and(|head| in_fields(&head.fields))
            || [Way::Inward, Way::Outward].iter().any(|way| contains(&exchange.body(*way).bytes, text))
            || exchange.messages.iter().any(|message| contains(&message.frame.kept, text))
    }
}

/// Returns whether bytes contain a text, in letters of either case; `text` is in small ones.
fn contains(bytes: &[u8], text: &[u8]) -> bool {
    let Some(first) = text.first() else { return true };
    let begins = |byte: &u8| byte.eq_ignore_ascii_case(first);
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(begins) {
        let Some(found) = rest.get(at..at + text.len()) else { return false };
        if found.eq_ignore_ascii_case(text) {
            return true;
        }
        rest = rest.get(at + 1..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::samples;
    use super::*;

    #[test]
    fn exchanges_are_chosen_by_what_the_address_says() {
        let exchange = samples::failed();
        for query in [
            "",
            "failing=1",
            "status=500",
            "status=5xx",
            "method=post",
            "port=3000",
            "q=ORDERS",
            "q=application%2fjson",
            "q=out+of+stock",
            "q=x-forwarded&failing=1&port=3000",
            "unknown=1",
        ] {
            assert!(Filter::read(query).chooses(&exchange), "{query}");
        }
        for query in ["status=200", "status=4xx", "status=xx", "method=get", "port=300", "q=nothing-of-it"] {
            assert!(!Filter::read(query).chooses(&exchange), "{query}");
        }
        assert!(!Filter::read("failing=1").chooses(&samples::fine()));
    }

    #[test]
    fn text_is_found_wherever_it_begins() {
        for (bytes, text, found) in [("aab", "ab", true), ("AAB", "aab", true), ("aa", "aab", false), ("", "a", false)]
        {
            assert_eq!(contains(bytes.as_bytes(), text.as_bytes()), found, "{bytes} {text}");
        }
    }

    proptest! {
        #[test]
        fn address_says_the_same_again(query in any::<String>()) {
            let filter = Filter::read(&query);
            prop_assert_eq!(Filter::read(&filter.query()), filter);
        }
    }
}
