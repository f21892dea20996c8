//! A YAML file as a tree in which each value knows its place, so that every problem of a file is reported at once, with
//! its line.
//!
//! The bytes are untrusted. Their cost is bounded before anything is built: size, characters, depth, number of values,
//! and the copies of aliases. YAML is read as version 1.2 (core schema): `yes` and `no` are text, `0755` is a number.

mod build;
mod node;
mod problem;
mod read;
mod write;

pub use node::{Location, MapEntry, Node, Value};
pub use problem::{Problem, Problems};
pub use read::{MapFields, ValueAt, push_index, push_key, show};
pub use write::write;

/// Most levels of lists and maps in each other: more than any of our formats has, and little stack to walk.
pub const DEPTH_MAX: usize = 32;

/// Most values of a file, with those that its aliases repeat.
pub const VALUES_MAX: usize = 50_000;

/// The byte order mark; editors of one system begin files with it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Rules for text that is not quite YAML 1.2, or not quite the file.
pub trait Dialect {
    /// Returns the value of a text without quotes.
    fn plain(&self, text: &str) -> Value {
        Value::of_plain(text)
    }

    /// Returns the place in the file of a place in the text that is read.
    fn place(&self, place: Location) -> Location {
        place
    }
}

/// YAML 1.2 with its core schema.
#[derive(Debug)]
struct Core;

impl Dialect for Core {}

/// Reads a YAML file of at most `bytes_max` bytes. `None` only with a problem noted: there is no tree to go on with.
///
/// An empty file is an empty value.
pub fn parse(bytes: &[u8], bytes_max: usize, problems: &mut Problems) -> Option<Node> {
    let text = decode(bytes, bytes_max, problems)?;
    parse_text(text, bytes_max, &Core, problems)
}

/// Reads the result of [`decode`], or text made of it, in a dialect. Anchors and aliases may copy `copied_max` bytes.
/// `None` only with a problem noted.
pub fn parse_text(text: &str, copied_max: usize, dialect: &dyn Dialect, problems: &mut Problems) -> Option<Node> {
    build::build(text, copied_max, dialect, problems)
}

/// Returns the text of a file of at most `bytes_max` bytes, without a byte order mark. `None` only with a problem noted.
pub fn decode<'b>(bytes: &'b [u8], bytes_max: usize, problems: &mut Problems) -> Option<&'b str> {
    if bytes.len() > bytes_max {
        problems.add("", None, format!("the file is larger than {}", show_size(bytes_max)));
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let sound = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let place = Location::after(&String::from_utf8_lossy(sound));
            problems.add("", Some(place), "the file is not UTF-8 text");
            return None;
        }
    };
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    if let Some((at, found)) = text.char_indices().find(|(_, letter)| !is_allowed(*letter)) {
        let place = Location::after(text.get(..at).unwrap_or_default());
        problems.add("", Some(place), format!("the file holds U+{:04X}, which YAML does not allow", u32::from(found)));
        return None;
    }
    Some(text)
}

/// Returns whether YAML allows a character to stand in a file (YAML 1.2.2, section 5.1).
fn is_allowed(letter: char) -> bool {
    !letter.is_control() || matches!(letter, '\t' | '\n' | '\r' | '\u{85}')
}

fn show_size(bytes: usize) -> String {
    match bytes {
        bytes if bytes % (1024 * 1024) == 0 => format!("{} MiB", bytes / (1024 * 1024)),
        bytes => format!("{} KiB", bytes / 1024),
    }
}

#[cfg(test)]
mod tests;
