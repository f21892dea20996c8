//! Resolves unquoted scalars as the YAML 1.1 parsers in Go do, which the tools of Kubernetes use, so that a template
//! means the same here. `yes` is true there, and `0755` is 493.

use serde_json::Number;

use crate::document::{Dialect, Value};

/// The YAML dialect without actions.
#[derive(Debug)]
pub(super) struct Plain;

impl Dialect for Plain {
    fn plain(&self, text: &str) -> Value {
        plain(text)
    }
}

/// Returns the value of an unquoted scalar.
pub(super) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        text if is_beyond(text) || number(text).is_some() => Value::Number(text.to_owned()),
        text => Value::Text(text.to_owned()),
    }
}

/// Returns whether a text is a number that JSON does not have.
fn is_beyond(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// Returns the number of an unquoted scalar.
pub(super) fn number(text: &str) -> Option<Number> {
    let first = text.chars().next()?;
    let text = match first {
        '.' => text.to_owned(),
        '-' | '+' | '0'..='9' => text.replace('_', ""),
        _ => return None,
    };
    whole(&text).or_else(|| fraction(&text))
}

/// Parses an integer: decimal, or with the prefix of another base; a leading zero means octal.
fn whole(text: &str) -> Option<Number> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let prefixed = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (radix, digits) = match (prefixed(["0x", "0X"]), prefixed(["0b", "0B"]), prefixed(["0o", "0O"])) {
        (Some(digits), ..) => (16, digits),
        (_, Some(digits), _) => (2, digits),
        (_, _, Some(digits)) => (8, digits),
        (None, None, None) => match digits.strip_prefix('0') {
            Some(rest) if !rest.is_empty() => (8, rest),
            Some(_) | None => (10, digits),
        },
    };
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), radix).map(Number::from);
    // Only numbers without a sign can exceed the signed range.
    let is_bare = text.starts_with(|first: char| first.is_ascii_digit());
    signed.ok().or_else(|| u64::from_str_radix(digits, radix).ok().filter(|_| is_bare).map(Number::from))
}

/// Parses digits with a point, an exponent, or more digits than an integer has.
fn fraction(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_one = is_digits(before)
        && is_digits(after)
        && !(before.is_empty() && after.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && is_digits(exponent));
    let value: f64 = text.parse().ok().filter(|_| is_one)?;
    // Go writes a number without a fraction without a point, and so it fits where an integer is asked for.
    let plain = value.to_string();
    plain.parse::<i64>().map(Number::from).ok().or_else(|| Number::from_f64(value))
}
