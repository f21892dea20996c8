//! Declares the keys. Each stands in the sources once, with its name, kind, default, bounds and meaning:
//!
//! ```text
//! section! {
//!     /// Bounds of handshakes.
//!     pub struct Handshakes, HANDSHAKES: HandshakeKeys below "handshakes." {
//!         /// Longest handshake.
//!         timeout: Duration = DURATION, or Duration::from_secs(10);
//!         /// Handshakes at a time.
//!         count: u32 = COUNT_32, or 64, in 1..=1000;
//!     }
//! }
//! ```
//!
//! makes the public struct with the meanings as documentation, a [`Key`] for each field in `HANDSHAKES`, the function
//! `Handshakes::read`, and the keys' lines of the reference, which has its sections in `tests/reference.rs`. Behind the
//! kind of its value, a key has the rule while no layer sets it:
//!
//! * `or VALUE`: it has this value.
//! * `follows VALUE`: the same, made of keys above it. Without a value here, the code that reads the key makes one.
//! * `optional`: it has no value; the field is an `Option`.
//! * `required`: that is a problem.
//! * `open`: it has no value, and the code that reads the key gives the field one.
//!
//! `in` has the bounds. A name that is a word of Rust is written `reference as "ref"`. A section with `also { … }` has
//! fields that are no keys, and is read by code of its own. `keys!` declares keys without a struct.
//!
//! Keys inside lists and tables with free names are declared as `list[].name` and `table.NAME.name`, and taken at an
//! entry: `reader.take(&CI_RULE.at("auth.agents.ci[0].rules[1]").workspace)`.

use std::fmt;
use std::ops::RangeInclusive;

use super::reader::{DottedKey, Reader};
use super::source::Layers;
use super::value::ValueKind;

/// One key, whose values are a `T`, and which is read as an `R`.
pub(crate) struct Key<T: 'static, R> {
    /// Its dotted name.
    pub(crate) name: DottedKey,
    /// Parser and writer of its values.
    pub(crate) kind: &'static ValueKind<T>,
    /// Returns the bounds if a value is outside of them.
    pub(crate) outside: fn(&T) -> Option<RangeInclusive<T>>,
    /// Reads it, with the rule while no layer sets it.
    pub(crate) take: fn(&mut Reader, &Self) -> R,
}

impl<T, R> Key<T, R> {
    /// Returns the value while no layer sets it.
    pub(crate) fn default(&self) -> R {
        Reader::new(Layers::default()).take(self)
    }

    /// Returns the key in an entry of its list or table.
    pub(crate) fn at(&self, entry: &str) -> Self {
        Self { name: format!("{entry}.{}", last(&self.name)).into(), ..*self }
    }

    /// Returns the name of the list or table whose entries have this key: `auth.agents.ci` for
    /// `auth.agents.ci[].issuer`.
    pub(crate) fn collection(&self) -> &str {
        let entry = self.name.rsplit_once('.').map_or("", |(entry, _)| entry);
        entry.strip_suffix("[]").or_else(|| entry.strip_suffix(".NAME")).unwrap_or(entry)
    }

    /// Returns the name of the same inside an entry of another list.
    pub(crate) fn collection_at(&self, entry: &str) -> String {
        format!("{entry}.{}", last(self.collection()))
    }
}

impl<T, R> fmt::Display for Key<T, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl<T, R> From<&Key<T, R>> for DottedKey {
    fn from(key: &Key<T, R>) -> Self {
        key.name.clone()
    }
}

/// Returns the last part of a dotted name.
pub(crate) fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// The keys of a section.
pub(crate) trait Keys {
    /// Returns the keys in an entry of their list or table.
    fn at(&self, entry: &str) -> Self;

    /// Returns the keys' lines of the reference.
    #[cfg(test)]
    fn entries() -> Vec<Entry>;
}

/// Declares keys without a struct.
macro_rules! keys {
    ($KEYS:ident: $Keys:ident below $below:literal { $(
        $(#[doc = $meaning:literal])+
        $key:ident $(as $name:literal)?: $T:ty = $kind:expr, $absent:ident $($default:expr)? $(, in $range:expr)?;
    )+ }) => {
        /// Keys of a section.
        pub(crate) struct $Keys { $(
            $(#[doc = $meaning])+
            pub(crate) $key: $crate::keys::Key<$T, $crate::keys::keys!(@read_as $absent $T)>,
        )+ }

        /// The section's keys.
        pub(crate) static $KEYS: $Keys = $Keys { $(
            $key: $crate::keys::Key {
                name: std::borrow::Cow::Borrowed(concat!($below, $crate::keys::keys!(@name $key $($name)?))),
                kind: &$kind,
                outside: $crate::keys::keys!(@outside $($range)?),
                take: $crate::keys::keys!(@take $absent $($default)?),
            },
        )+ };

        impl $crate::keys::Keys for $Keys {
            fn at(&self, entry: &str) -> Self {
                Self { $($key: self.$key.at(entry)),+ }
            }

            #[cfg(test)]
            fn entries() -> Vec<$crate::keys::Entry> {
                vec![$($crate::keys::Entry::new(&$KEYS.$key.name, &[$($meaning),+])),+]
            }
        }
    };
    (@name $key:ident) => { stringify!($key) };
    (@name $key:ident $name:literal) => { $name };
    (@outside) => { |_| None };
    (@outside $range:expr) => { |value| Some($range).filter(|range| !range.contains(value)) };
    (@read_as or $T:ty) => { $T };
    (@read_as follows $T:ty) => { () };
    (@read_as $other:ident $T:ty) => { Option<$T> };
    (@take or $default:expr) => { |reader, key| reader.take_or(key, $default) };
    (@take follows $($default:expr)?) => { |_, _| () };
    (@take required) => { $crate::reader::Reader::take_required };
    (@take $optional_or_open:ident) => { $crate::reader::Reader::take_optional };
}

/// Declares a section: its struct, its keys, and the function that reads it.
macro_rules! section {
    ($(#[$about:meta])* pub struct $Section:ident, $KEYS:ident: $Keys:ident below $below:literal { $(
        $(#[doc = $meaning:literal])+
        $key:ident: $T:ty = $kind:expr, $absent:ident $($default:expr)? $(, in $range:expr)?;
    )+ }) => {
        $crate::keys::section! {
            $(#[$about])* pub struct $Section, $KEYS: $Keys below $below { $(
                $(#[doc = $meaning])+
                $key: $T = $kind, $absent $($default)? $(, in $range)?;
            )+ } also {}
        }

        impl $Section {
            /// Reads the keys.
            pub(crate) fn read(reader: &mut $crate::reader::Reader) -> Self {
                $(let $key = $crate::keys::section!(@take reader, &$KEYS.$key, $absent $($default)?);)+
                Self { $($key),+ }
            }
        }
    };
    ($(#[$about:meta])* pub struct $Section:ident, $KEYS:ident: $Keys:ident below $below:literal { $(
        $(#[doc = $meaning:literal])+
        $key:ident $(as $name:literal)?: $T:ty = $kind:expr, $absent:ident $($default:expr)? $(, in $range:expr)?;
    )+ } also { $($(#[$about_other:meta])+ $other:ident: $Other:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $Section {
            $($(#[doc = $meaning])+ pub $key: $crate::keys::section!(@field $absent $T),)+
            $($(#[$about_other])+ pub $other: $Other,)*
        }

        $crate::keys::keys! { $KEYS: $Keys below $below { $(
            $(#[doc = $meaning])+
            $key $(as $name)?: $T = $kind, $absent $($default)? $(, in $range)?;
        )+ } }
    };
    (@field optional $T:ty) => { Option<$T> };
    (@field $absent:ident $T:ty) => { $T };
    (@take $reader:ident, $key:expr, follows $default:expr) => { $reader.take_or($key, $default) };
    (@take $reader:ident, $key:expr, $absent:ident $($default:expr)?) => { $reader.take($key) };
}

pub(crate) use {keys, section};

/// A key's line of the reference.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Entry {
    /// The dotted name, as it is declared.
    pub(crate) key: String,
    /// The meaning, on one line.
    pub(crate) meaning: String,
}

#[cfg(test)]
impl Entry {
    /// Makes the line from the lines of a documentation.
    pub(crate) fn new(key: &DottedKey, lines: &[&str]) -> Self {
        let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
        Self { key: key.to_string(), meaning: lines.join(" ") }
    }
}
