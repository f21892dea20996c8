//! Reads the parts of operators' queries that lists have in common.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use crate::problem::{Mistake, ProblemRow};

/// Longest text that is searched for, in characters.
const PART_CHARS_MAX: usize = 200;

/// Filters of a query, and what is wrong with them.
pub(super) struct Filters {
    values: BTreeMap<&'static str, String>,
    mistakes: Vec<Mistake>,
}

impl Filters {
    /// Takes the values that a query gave.
    pub(super) fn new(values: BTreeMap<&'static str, String>) -> Self {
        Self { values, mistakes: Vec::new() }
    }

    /// Reads a text that is searched for, in lower case; empty if there is none.
    pub(super) fn part(&mut self, name: &'static str) -> String {
        self.text(name).to_lowercase()
    }

    /// Reads a text as it is; empty if there is none.
    pub(super) fn text(&mut self, name: &'static str) -> String {
        let Some(text) = self.values.get(name) else { return String::new() };
        let wrong = if text.chars().count() > PART_CHARS_MAX {
            format!("is longer than {PART_CHARS_MAX} characters")
        } else if text.chars().any(char::is_control) {
            "has control characters".to_owned()
        } else {
            return text.clone();
        };
        self.object(name, wrong);
        String::new()
    }

    /// Reads a value of a type; an empty one is none, as a form sends it.
    pub(super) fn value<T>(&mut self, name: &'static str) -> Option<T>
    where
        T: FromStr<Err: Display>,
    {
        let text = self.values.get(name).filter(|text| !text.is_empty())?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                let wrong = error.to_string();
                self.object(name, wrong);
                None
            }
        }
    }

    /// Reads one of some words; an empty one is none.
    pub(super) fn word<T: Copy>(&mut self, name: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.values.get(name).filter(|text| !text.is_empty())?;
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.object(name, format!("has to be one of {}", known.join(", ")));
        }
        found
    }

    /// Notes a mistake.
    pub(super) fn object(&mut self, name: &'static str, detail: String) {
        self.mistakes.push(Mistake { pointer: format!("?{name}"), detail });
    }

    /// Complains of all mistakes together.
    ///
    /// # Errors
    /// `invalid` with each of them.
    pub(super) fn finish(self) -> Result<(), ProblemRow> {
        if self.mistakes.is_empty() { Ok(()) } else { Err(ProblemRow::invalid(self.mistakes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(name: &'static str, value: &str) -> Filters {
        Filters::new(BTreeMap::from([(name, value.to_owned())]))
    }

    #[test]
    fn text_is_any_but_a_long_one_or_one_that_no_name_can_have() {
        for (text, expected) in [("", ""), ("%' OR 1", "%' or 1"), ("ANN", "ann"), ("\u{1f980}", "\u{1f980}")] {
            let mut filters = filters("q", text);
            assert_eq!(filters.part("q"), expected);
            assert!(filters.finish().is_ok());
        }
        for text in ["\0", "a\nb", "\u{1b}[31m", &"x".repeat(201)] {
            let mut filters = filters("q", text);
            assert_eq!(filters.part("q"), "");
            assert!(filters.finish().is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_are_known_ones_and_empty_is_none() {
        let words = [("disabled", true), ("enabled", false)];
        for (text, expected) in [("disabled", Some(true)), ("Enabled", Some(false)), ("", None)] {
            let mut filters = filters("state", text);
            assert_eq!(filters.word("state", &words), expected);
            assert!(filters.finish().is_ok());
        }
        let mut filters = filters("state", "x");
        assert_eq!(filters.word("state", &words), None);
        assert!(filters.finish().is_err());
    }
}
