//! Values with places.

/// A place in a file, both counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The line.
    pub line: u32,
    /// The character in the line.
    pub column: u32,
}

impl Location {
    /// The beginning of a file.
    pub const START: Self = Self { line: 1, column: 1 };

    /// Returns the place behind a text that begins a file.
    #[must_use]
    pub fn after(text: &str) -> Self {
        let lines = text.bytes().filter(|byte| *byte == b'\n').count();
        let last = text.rsplit('\n').next().unwrap_or_default();
        Self::new(lines + 1, last.chars().count() + 1)
    }

    /// Makes a place; one that is too far away to be counted is as far as can be.
    #[must_use]
    pub fn new(line: usize, column: usize) -> Self {
        let bounded = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: bounded(line), column: bounded(column) }
    }
}

/// A value and where it begins. A value that an alias repeats keeps the place where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Place at which it begins.
    pub place: Location,
    /// The value.
    pub value: Value,
}

/// A value without its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number in the sense of YAML, as it was written.
    Number(String),
    /// Text, with escapes and folded lines resolved.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file. No key is there twice.
    Map(Vec<MapEntry>),
}

/// One key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// The key.
    pub key: String,
    /// Place of the key.
    pub place: Location,
    /// Value of the key.
    pub node: Node,
}

impl Value {
    /// Returns the value of a text without quotes (YAML 1.2.2, section 10.3.2).
    pub(super) fn of_plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "true" | "True" | "TRUE" => Self::Bool(true),
            "false" | "False" | "FALSE" => Self::Bool(false),
            _ if is_number(text) => Self::Number(text.to_owned()),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// Returns the name of its kind, for the sentence "must be text, not …".
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

fn is_number(text: &str) -> bool {
    let all = |text: &str, is_one: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(is_one);
    if let Some(octal) = text.strip_prefix("0o") {
        return all(octal, |byte| matches!(byte, b'0'..=b'7'));
    }
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return all(hexadecimal, u8::is_ascii_hexdigit);
    }
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return true;
    }
    let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let only_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    only_digits(whole)
        && only_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| all(exponent, u8::is_ascii_digit))
}
