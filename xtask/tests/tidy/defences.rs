//! The document of defences: each hole and each trap has tests that exist, or a reason for having none.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::{Kind, lex};
use super::repository::Repository;
use super::source::attribute;

/// The document.
pub(crate) const PATH: &str = "docs/defences.md";

/// Parts whose sections are numbered, and how many sections each has: the lists that they answer are closed.
const NUMBERED: [(&str, usize); 2] = [("holes", 33), ("traps", 37)];

/// The part with the holes that were found in this gateway. It grows; its sections have a letter and a number.
const FOUND: &str = "found";

/// The state of a section whose subject this version does not have; a reason follows.
const ABSENT: &str = "not in this version: ";

/// The state of a section that has tests, and a part that does not; a reason follows.
const PARTLY: &str = "partly: ";

/// The states of a section whose tests hold all of it. The second was also tried: without the defence its test was red.
const HELD: [&str; 2] = ["held", "held, tried"];

/// No reason is shorter than this, in bytes.
const REASON_BYTES_MIN: usize = 12;

/// One section: `### ID: TITLE`, the three lines below it and its list of tests.
#[derive(Debug, Default)]
struct Section<'d> {
    id: &'d str,
    title: &'d str,
    threat: Option<&'d str>,
    defence: Option<&'d str>,
    state: Option<&'d str>,
    tests: Vec<&'d str>,
    /// Lines that have no meaning in a section, or have it twice.
    stray: Vec<&'d str>,
}

impl<'d> Section<'d> {
    fn new(heading: &'d str) -> Self {
        let (id, title) = heading.split_once(": ").unwrap_or((heading, ""));
        Self { id, title: title.trim(), ..Self::default() }
    }

    fn read_line(&mut self, line: &'d str) {
        if line.is_empty() || line == "Tests:" {
            return;
        }
        let Some(item) = line.strip_prefix("- ") else {
            self.stray.push(line);
            return;
        };
        if let Some(test) = item.strip_prefix('`').and_then(|test| test.strip_suffix('`')) {
            self.tests.push(test);
            return;
        }
        let (field, text) = match item.split_once(": ") {
            Some(("Threat", text)) => (&mut self.threat, text),
            Some(("Defence", text)) => (&mut self.defence, text),
            Some(("State", text)) => (&mut self.state, text),
            _ => return self.stray.push(line),
        };
        if field.replace(text.strip_suffix('.').unwrap_or(text)).is_some() {
            self.stray.push(line);
        }
    }

    fn problems(&self, names: &mut Names<'_>) -> Vec<String> {
        let mut problems: Vec<_> =
            self.stray.iter().map(|line| format!("has a line that does not fit: {line}")).collect();
        if self.title.is_empty() {
            problems.push("has no title".to_owned());
        }
        if [self.threat, self.defence].iter().any(|text| text.is_none_or(str::is_empty)) {
            problems.push("does not say what the threat is, or what the defence".to_owned());
        }
        let missing = self.tests.iter().filter(|test| !names.have(test));
        problems.extend(missing.map(|test| format!("there is no test {test}")));
        let state = self.state.unwrap_or_default();
        let has_reason =
            |prefix: &str| state.strip_prefix(prefix).is_some_and(|reason| reason.len() >= REASON_BYTES_MIN);
        let is_held = HELD.contains(&state) || has_reason(PARTLY);
        match (self.tests.is_empty(), is_held, has_reason(ABSENT)) {
            (false, true, _) | (true, _, true) => {}
            (true, _, false) => problems.push("has neither a test nor a reason why not".to_owned()),
            (false, false, _) => problems.push(format!("has tests, and a state that does not fit: {state}")),
        }
        problems
    }
}

/// Checks the document against the sources.
pub(crate) fn check(document: &str, repository: &Repository) -> Vec<String> {
    let mut names = Names { repository, of_file: BTreeMap::new() };
    let mut problems = Vec::new();
    let numbered = NUMBERED.map(|(part, count)| (part, Some(count)));
    for (part, count) in numbered.into_iter().chain([(FOUND, None)]) {
        let sections = match sections(document, part) {
            Ok(sections) => sections,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let ids: Vec<_> = sections.iter().map(|section| section.id).collect();
        problems.extend(match count {
            Some(count) => check_numbers(part, count, &ids),
            None => check_ids(part, &ids),
        });
        for section in &sections {
            let found = section.problems(&mut names).into_iter();
            problems.extend(found.map(|problem| format!("{PATH}: {part}, section {}: {problem}", section.id)));
        }
    }
    problems
}

/// Returns the sections between the marks of a part.
///
/// # Errors
/// Says which mark is missing, or that there is no section.
fn sections<'d>(document: &'d str, part: &str) -> Result<Vec<Section<'d>>, String> {
    let begin = format!("<!-- tidy: {part} -->");
    let (_, after) = document.split_once(&begin).ok_or_else(|| format!("there is no `{begin}`"))?;
    let (inside, _) = after.split_once("<!-- tidy: end -->").ok_or_else(|| format!("the part `{part}` has no end"))?;
    let mut sections: Vec<Section<'d>> = Vec::new();
    for line in inside.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix("### ") {
            sections.push(Section::new(heading));
        } else if let Some(section) = sections.last_mut() {
            section.read_line(line);
        } else if !line.is_empty() {
            return Err(format!("the part `{part}` begins with a line of no section: {line}"));
        }
    }
    if sections.is_empty() {
        return Err(format!("the part `{part}` has no sections"));
    }
    Ok(sections)
}

/// Checks the ids of a part that grows: a capital letter and a number, each once.
fn check_ids(part: &str, ids: &[&str]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut problems = Vec::new();
    for id in ids {
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !id.strip_prefix(|letter: char| letter.is_ascii_uppercase()).is_some_and(is_number) {
            problems.push(format!("{PATH}: {part} has a section that is no letter and number: {id:?}"));
        } else if !known.insert(id) {
            problems.push(format!("{PATH}: {part} has section {id} twice"));
        }
    }
    problems
}

fn check_numbers(part: &str, count: usize, ids: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut known = BTreeSet::new();
    for id in ids {
        match id.parse::<usize>().ok().filter(|number| (1..=count).contains(number)) {
            Some(number) if known.insert(number) => {}
            Some(number) => problems.push(format!("{PATH}: {part} has section {number} twice")),
            None => problems.push(format!("{PATH}: {part} has a section that is none of 1 to {count}: {id:?}")),
        }
    }
    let missing = (1..=count).filter(|number| !known.contains(number));
    problems.extend(missing.map(|number| format!("{PATH}: {part} has no section {number}")));
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

    /// Returns a document of good sections, but for one: trap 7.
    fn document(trap_7: &str) -> String {
        let mut text = String::new();
        for (part, count) in NUMBERED {
            let section = |number: usize| {
                if (part, number) == ("traps", 7) { trap_7.to_owned() } else { good(&number.to_string()) }
            };
            let sections: String = (1..=count).map(section).collect();
            text.push_str(&format!("<!-- tidy: {part} -->\n{sections}<!-- tidy: end -->\n"));
        }
        let found = good("A1") + &good("B12");
        text + &format!("<!-- tidy: {FOUND} -->\n{found}<!-- tidy: end -->\n")
    }

    fn good(id: &str) -> String {
        section(id, "held, tried", &["a/src/x.rs::plain", "a/run.sh::it holds"])
    }

    fn section(id: &str, state: &str, tests: &[&str]) -> String {
        let tests: String = tests.iter().map(|test| format!("- `{test}`\n")).collect();
        format!("### {id}: Title\n\n- Threat: loss.\n- Defence: care.\n- State: {state}.\n\nTests:\n\n{tests}\n")
    }

    #[track_caller]
    fn check_bad(section: &str, problems: usize) {
        let scratch = Scratch::new("defences", &[("a/src/x.rs", SOURCE), ("a/run.sh", "check \"it holds\" true\n")]);
        let found = check(&document(section), &scratch.open());
        assert_eq!(found.len(), problems, "{section}: {found:?}");
    }

    #[test]
    fn sections_that_are_missing_twice_or_hollow_are_found() {
        let plain = "a/src/x.rs::plain";
        check_bad(&good("7"), 0);
        check_bad(&section("7", "not in this version: nothing reconciles yet", &[]), 0);
        check_bad(&section("7", "partly: no sign-in by a provider yet", &["a/src/x.rs::law"]), 0);
        check_bad("", 1);
        check_bad(&good("8"), 2);
        check_bad(&good("38"), 2);
        check_bad(&section("7", "held", &[]), 1);
        check_bad(&section("7", "not in this version: no", &[]), 1);
        check_bad(&section("7", "held", &["a/src/x.rs::helper"]), 1);
        check_bad(&section("7", "held", &["a/src/x.rs::commented"]), 1);
        check_bad(&section("7", "held", &["a/src/y.rs::plain"]), 1);
        check_bad(&section("7", "held", &["a/run.sh::it breaks"]), 1);
        check_bad(&section("7", "fine", &[plain]), 1);
        check_bad(&good("7").replace("- Defence: care.\n", ""), 1);
        check_bad(&good("7").replace("care", ""), 1);
        check_bad(&good("7").replace(": Title", ""), 1);
        check_bad(&good("7").replace("- State: held, tried.\n", ""), 1);
    }

    #[test]
    fn lines_that_no_section_has_are_found() {
        check_bad(&good("7").replace("- Threat: loss.", "- Threat: loss.\n- Threat: loss."), 1);
        check_bad(&good("7").replace("Tests:", "Tests and more:"), 1);
        check_bad(&good("7").replace("- `a/run.sh::it holds`", "- a/run.sh::it holds"), 1);
        assert!(sections("<!-- tidy: x -->\ntext\n### 1: a\n<!-- tidy: end -->", "x").is_err());
        assert!(sections("<!-- tidy: x -->\n<!-- tidy: end -->", "x").is_err());
        assert!(sections("<!-- tidy: x -->\n### 1: a\n", "x").is_err());
        assert!(sections("### 1: a\n", "x").is_err());
    }

    #[test]
    fn found_sections_have_a_letter_and_a_number_each_once() {
        assert_eq!(check_ids(FOUND, &["A1", "A2", "B1", "E14"]), [""; 0]);
        for (ids, problems) in
            [(&["A1", "A1"][..], 1), (&["1"], 1), (&["a1"], 1), (&["A"], 1), (&["A1b"], 1), (&["", "AB1"], 2)]
        {
            assert_eq!(check_ids(FOUND, ids).len(), problems, "{ids:?}");
        }
    }
}
