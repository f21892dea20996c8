//! The table of defences: each hole and each trap has tests that exist, or says why it has none.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::{Kind, lex};
use super::repository::Repository;
use super::source::attribute;
use super::table::{self, Row};

/// The document.
pub(crate) const PATH: &str = "docs/defences.md";

/// Tables whose rows are numbered, and how many rows each has: the lists that they answer are closed.
const TABLES: [(&str, usize); 2] = [("holes", 33), ("traps", 37)];

/// The table of holes that were found in this gateway. It grows; its rows have a letter and a number.
const FOUND: &str = "found";

/// What a row has: its number, what could happen, what prevents it, its tests, how it stands.
const COLUMNS: usize = 5;

/// The state of a row whose subject this version does not have; a reason follows.
const ABSENT: &str = "not in this version: ";

/// The state of a row that has tests, and a part that does not; a reason follows.
const PARTLY: &str = "partly: ";

/// Its tests hold all of it. The second was also tried: without the defence its test was red.
const HELD: [&str; 2] = ["held", "held, tried"];

/// No reason is shorter than this, in bytes.
const REASON_BYTES_MIN: usize = 12;

/// Checks the document against the sources.
pub(crate) fn check(document: &str, repository: &Repository) -> Vec<String> {
    let mut names = Names { repository, of_file: BTreeMap::new() };
    let mut problems = Vec::new();
    let numbered = TABLES.map(|(table, count)| (table, Some(count)));
    for (table, count) in numbered.into_iter().chain([(FOUND, None)]) {
        let rows = match table::rows(document, table) {
            Ok(rows) => rows,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        problems.extend(match count {
            Some(count) => check_numbers(table, count, &rows),
            None => check_ids(table, &rows),
        });
        for row in &rows {
            let place = format!("{PATH}: {table}, row {}", row.first().map_or("", String::as_str));
            problems.extend(check_row(row, &mut names).into_iter().map(|problem| format!("{place}: {problem}")));
        }
    }
    problems
}

/// Checks the ids of a table that grows: a capital letter and a number, each once.
fn check_ids(table: &str, rows: &[Row]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for id in rows.iter().map(|row| row.first().map_or("", String::as_str)) {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !id.strip_prefix(|letter: char| letter.is_ascii_uppercase()).is_some_and(is_number) {
            problems.push(format!("{PATH}: {table} has a row that is no letter and number: {id:?}"));
        } else if !seen.insert(id) {
            problems.push(format!("{PATH}: {table} has row {id} twice"));
        }
    }
    problems
}

fn check_numbers(table: &str, count: usize, rows: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        let number = row.first().and_then(|number| number.parse::<usize>().ok());
        match number.filter(|number| (1..=count).contains(number)) {
            Some(number) if seen.insert(number) => {}
            Some(number) => problems.push(format!("{PATH}: {table} has row {number} twice")),
            None => problems.push(format!("{PATH}: {table} has a row that is none of 1 to {count}: {row:?}")),
        }
    }
    let missing = (1..=count).filter(|number| !seen.contains(number));
    problems.extend(missing.map(|number| format!("{PATH}: {table} has no row {number}")));
    problems
}

fn check_row(row: &Row, names: &mut Names<'_>) -> Vec<String> {
    let [_, happens, defence, tests, state] = row.as_slice() else {
        return vec![format!("has {} columns and not {COLUMNS}", row.len())];
    };
    let mut problems = Vec::new();
    if happens.is_empty() || defence.is_empty() {
        problems.push("does not say what could happen, or what prevents it".to_owned());
    }
    let tests: Vec<_> = tests.split("<br>").map(str::trim).filter(|test| !test.is_empty() && *test != "–").collect();
    for test in &tests {
        if !names.have(test) {
            problems.push(format!("there is no test {test}"));
        }
    }
    let has_reason = |prefix: &str| state.strip_prefix(prefix).is_some_and(|reason| reason.len() >= REASON_BYTES_MIN);
    let is_held = HELD.contains(&state.as_str()) || has_reason(PARTLY);
    match (tests.is_empty(), is_held, has_reason(ABSENT)) {
        (false, true, _) | (true, _, true) => {}
        (true, _, false) => problems.push("has neither a test nor a reason why not".to_owned()),
        (false, false, _) => problems.push(format!("has tests, and a state that does not fit: {state}")),
    }
    problems
}

/// The names of the tests in each file, read once.
struct Names<'r> {
    repository: &'r Repository,
    of_file: BTreeMap<String, BTreeSet<String>>,
}

impl Names<'_> {
    /// Returns whether there is a test `path::name`: a function, or the words of a check in a suite with real programs.
    fn have(&mut self, test: &str) -> bool {
        let Some((path, name)) = test.split_once("::") else {
            return false;
        };
        if !self.repository.has(path) {
            return false;
        }
        if !path.ends_with(".rs") {
            let text = self.repository.read(path);
            return text.lines().any(|line| line.contains("check") && line.contains(name));
        }
        let repository = self.repository;
        let names = self.of_file.entry(path.to_owned()).or_insert_with(|| tests_of(&repository.read(path)));
        names.contains(name)
    }
}

/// Returns the names of the functions that a source marks as tests.
fn tests_of(source: &str) -> BTreeSet<String> {
    let tokens = lex(source);
    let mut names = BTreeSet::new();
    for start in 0..tokens.len() {
        let Some(found) = attribute(&tokens, start) else {
            continue;
        };
        let is_test = match found.inside {
            [only] => only.is("test"),
            [first, ..] => first.is("tokio") && found.inside.iter().any(|token| token.is("test")),
            [] => false,
        };
        if !is_test {
            continue;
        }
        let mut index = found.end;
        while let Some(another) = attribute(&tokens, index) {
            index = another.end;
        }
        let is_before = |index: usize| tokens.get(index).is_some_and(|token| token.is("async") || token.is("pub"));
        while is_before(index) {
            index += 1;
        }
        let name = tokens.get(index + 1).filter(|name| name.kind == Kind::Name);
        if let Some(name) = name.filter(|_| tokens.get(index).is_some_and(|token| token.is("fn"))) {
            names.insert(name.text.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::repository::Scratch;
    use super::*;

    const SOURCE: &str = "#[test]\nfn plain() {}\n#[tokio::test(flavor = \"x\")]\n#[cfg(unix)]\nasync fn slow() {}\n\
        proptest! { #[test] fn law(a in 0..1) {} }\nfn helper() {}\n// #[test] fn commented() {}\n#[cfg(test)] mod tests {}";

    #[test]
    fn tests_are_found_in_all_their_forms() {
        assert_eq!(tests_of(SOURCE).into_iter().collect::<Vec<_>>(), ["law", "plain", "slow"]);
    }

    fn document(change: impl Fn(&str, usize) -> String) -> String {
        let mut text = String::new();
        for (table, count) in TABLES {
            text.push_str(&format!("<!-- tidy: {table} -->\n| a | b | c | d | e |\n| --- | --- | --- | --- | --- |\n"));
            for number in 1..=count {
                text.push_str(&change(table, number));
            }
            text.push_str("<!-- tidy: end -->\n");
        }
        text.push_str(&format!("<!-- tidy: {FOUND} -->\n| a | b | c | d | e |\n| --- | --- | --- | --- | --- |\n"));
        for id in ["A1", "B12"] {
            text.push_str(&change(FOUND, 0).replace("| 0 |", &format!("| {id} |")));
        }
        text.push_str("<!-- tidy: end -->\n");
        text
    }

    fn good(number: usize) -> String {
        format!("| {number} | loss | care | `a/src/x.rs::plain`<br>`a/run.sh::it holds` | held, tried |\n")
    }

    #[track_caller]
    fn check_bad(line: &str, problems: usize) {
        let scratch = Scratch::new("defences", &[("a/src/x.rs", SOURCE), ("a/run.sh", "check \"it holds\" true\n")]);
        let repository = scratch.open();
        let whole =
            document(|table, number| if (table, number) == ("traps", 7) { line.to_owned() } else { good(number) });
        let found = check(&whole, &repository);
        assert_eq!(found.len(), problems, "{line}: {found:?}");
    }

    #[test]
    fn rows_that_are_missing_twice_or_hollow_are_found() {
        check_bad(&good(7), 0);
        check_bad("| 7 | loss | care | – | not in this version: nothing reconciles yet |\n", 0);
        check_bad("| 7 | loss | care | `a/src/x.rs::law` | partly: no sign-in by a provider yet |\n", 0);
        check_bad("", 1);
        check_bad(&good(8), 2);
        check_bad(&good(38), 2);
        check_bad("| 7 | loss | care | – | held |\n", 1);
        check_bad("| 7 | loss | care | – | not in this version: no |\n", 1);
        check_bad("| 7 | loss | care | `a/src/x.rs::helper` | held |\n", 1);
        check_bad("| 7 | loss | care | `a/src/x.rs::commented` | held |\n", 1);
        check_bad("| 7 | loss | care | `a/src/y.rs::plain` | held |\n", 1);
        check_bad("| 7 | loss | care | `a/run.sh::it breaks` | held |\n", 1);
        check_bad("| 7 | loss | care | `a/src/x.rs::plain` | fine |\n", 1);
        check_bad("| 7 | loss | | `a/src/x.rs::plain` | held |\n", 1);
        check_bad("| 7 | loss | care | held |\n", 1);
    }

    #[test]
    fn found_rows_have_a_letter_and_a_number_each_once() {
        let rows = |ids: &[&str]| -> Vec<Row> { ids.iter().map(|id| vec![(*id).to_owned()]).collect() };
        assert_eq!(check_ids(FOUND, &rows(&["A1", "A2", "B1", "E14"])), [""; 0]);
        for (ids, problems) in
            [(&["A1", "A1"][..], 1), (&["1"], 1), (&["a1"], 1), (&["A"], 1), (&["A1b"], 1), (&["", "AB1"], 2)]
        {
            assert_eq!(check_ids(FOUND, &rows(ids)).len(), problems, "{ids:?}");
        }
    }
}
