//! Hand-written parts of the page, kept when the page is written again.

use std::collections::BTreeMap;

const OPEN: &str = "<!-- account: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";

/// The texts written by hand, by the key of their row.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Accounts(BTreeMap<String, String>);

/// Failure to tell a page's hand-written parts apart.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadAccounts {
    /// Writing the page again would lose what follows.
    #[error("line {0}: the account has no `{END}`; add it, or its text would be lost")]
    NoEnd(usize),
    /// Only one of the two could be kept.
    #[error("line {line}: there are two accounts with the key {key:?}")]
    Twice {
        /// Line at which the second one begins.
        line: usize,
        /// Their key.
        key: String,
    },
}

impl Accounts {
    /// Collects the accounts of a page.
    ///
    /// # Errors
    /// Refuses a page from which a text would be lost.
    pub fn read(page: &str) -> Result<Self, BadAccounts> {
        let mut found = BTreeMap::new();
        let mut open: Option<(usize, String, Vec<&str>)> = None;
        for (number, line) in (1..).zip(page.lines()) {
            let begins = line.trim().strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE));
            match (&mut open, begins) {
                (Some((start, ..)), Some(_)) => return Err(BadAccounts::NoEnd(*start)),
                (None, Some(key)) => {
                    if found.contains_key(key) {
                        return Err(BadAccounts::Twice { line: number, key: key.to_owned() });
                    }
                    open = Some((number, key.to_owned(), Vec::new()));
                }
                (Some(_), None) if line.trim() == END => {
                    if let Some((_, key, lines)) = open.take() {
                        found.insert(key, lines.join("\n").trim().to_owned());
                    }
                }
                (Some((_, _, lines)), None) => lines.push(line),
                (None, None) => {}
            }
        }
        match open {
            Some((start, ..)) => Err(BadAccounts::NoEnd(start)),
            None => Ok(Self(found)),
        }
    }

    /// Returns the text of a row; empty if none was written.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Returns a row's text between its markers.
    #[must_use]
    pub fn marked(&self, key: &str) -> String {
        let text = self.text(key);
        let gap = if text.is_empty() { "" } else { "\n" };
        format!("{OPEN}{key}{CLOSE}\n{text}{gap}{END}\n")
    }

    /// Returns the accounts that no row of the page asks for, so that they are not lost when a row is renamed.
    pub fn others<'a>(&'a self, keys: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str).filter(|key| !keys.contains(key) && !self.text(key).is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_markers_survives_writing() {
        let page = "# Page\n<!-- account: cpu -->\n\nTwo\nlines. | a table |\n\n<!-- end -->\nrest\n";
        let accounts = Accounts::read(page).unwrap();
        assert_eq!(accounts.text("cpu"), "Two\nlines. | a table |");
        let again = Accounts::read(&accounts.marked("cpu")).unwrap();
        assert_eq!(again, accounts);
        assert_eq!(accounts.others(&["latency"]).collect::<Vec<_>>(), ["cpu"]);
    }

    #[test]
    fn empty_account_stays_a_place_to_write() {
        let marked = Accounts::default().marked("cpu");
        assert_eq!(marked, "<!-- account: cpu -->\n<!-- end -->\n");
        assert_eq!(Accounts::read(&marked).unwrap().text("cpu"), "");
    }

    #[test]
    fn page_from_which_text_would_be_lost_is_refused() {
        let open = "\n<!-- account: cpu -->\ntext\n";
        assert_eq!(Accounts::read(open), Err(BadAccounts::NoEnd(2)));
        let nested = "<!-- account: a -->\n<!-- account: b -->\n<!-- end -->\n";
        assert_eq!(Accounts::read(nested), Err(BadAccounts::NoEnd(1)));
        let twice = "<!-- account: a -->\n<!-- end -->\n<!-- account: a -->\n<!-- end -->\n";
        assert_eq!(Accounts::read(twice), Err(BadAccounts::Twice { line: 3, key: "a".to_owned() }));
    }
}
