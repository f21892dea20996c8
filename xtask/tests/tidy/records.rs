//! Decision records: named by date, complete, and one page long.

use super::repository::Repository;

const FOLDER: &str = "docs/decisions/";

/// List of all records by topic.
const INDEX: &str = "docs/decisions.md";

/// What each record answers, in this order.
const SECTIONS: [&str; 5] = [
    "## Context",
    "## Decision",
    "## Alternatives, and why not",
    "## Consequences",
    "## How we will know it was wrong",
];

/// About a page.
const LINES_MAX: usize = 70;

/// Checks names and contents of all records.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let records: Vec<_> = repository.files().filter_map(|file| file.strip_prefix(FOLDER)).collect();
    if records.is_empty() {
        return vec![format!("{FOLDER} has no records")];
    }
    let mut problems = Vec::new();
    let index = repository.read(INDEX);
    for name in records {
        if !is_name(name) {
            problems.push(format!("{FOLDER}{name}: not named YYYY-MM-DD-some-words.md"));
            continue;
        }
        let text = repository.read(&format!("{FOLDER}{name}"));
        if !is_listed(&index, name, &text) {
            problems.push(format!("{FOLDER}{name}: not in {INDEX} under its title"));
        }
        problems.extend(check_text(&text).into_iter().map(|problem| format!("{FOLDER}{name}: {problem}")));
    }
    problems
}

/// Returns whether the index links to a record by its title.
fn is_listed(index: &str, name: &str, text: &str) -> bool {
    let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
    index.contains(&format!("- [{title}](decisions/{name})"))
}

fn is_name(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".md") else {
        return false;
    };
    let mut parts = stem.splitn(4, '-');
    let mut number = |digits: usize, max: u32| {
        let part = parts.next().filter(|part| part.len() == digits);
        part.and_then(|part| part.parse::<u32>().ok()).is_some_and(|number| (1..=max).contains(&number))
    };
    let is_date = number(4, 9999) && number(2, 12) && number(2, 31);
    let title = parts.next().unwrap_or_default();
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    is_date && !title.is_empty() && title.bytes().all(is_word)
}

fn check_text(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.starts_with("# ") {
        problems.push("does not begin with a title".to_owned());
    }
    let headings: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
    if headings != SECTIONS {
        problems.push(format!("has the sections {headings:?} and not {SECTIONS:?}"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        problems.push(format!("has {lines} lines; a page has {LINES_MAX}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_without_a_date_is_found() {
        assert!(is_name("2026-11-21-one-stream.md"));
        for name in [
            "one-stream.md",
            "2026-13-01-a.md",
            "2026-11-32-a.md",
            "0007-a.md",
            "2026-11-21.md",
            "2026-11-21-A.md",
            "2026-11-21-a.txt",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn record_is_listed_by_its_title_alone() {
        let index = "- [One stream](decisions/2026-11-21-one.md)\n";
        assert!(is_listed(index, "2026-11-21-one.md", "# One stream\n\n## Context\n"));
        assert!(!is_listed(index, "2026-11-21-one.md", "# Two streams\n"));
        assert!(!is_listed(index, "2026-11-21-two.md", "# One stream\n"));
    }

    #[test]
    fn record_that_leaves_a_question_out_is_found() {
        let whole = format!("# Title\n\n{}\n", SECTIONS.join("\n\ntext\n\n"));
        assert_eq!(check_text(&whole), [""; 0]);
        assert_eq!(check_text(&whole.replace(SECTIONS[4], "")).len(), 1);
        assert_eq!(check_text(&whole.replace("# Title\n", "Title\n")).len(), 1);
        assert_eq!(check_text(&format!("{whole}{}", "text\n".repeat(LINES_MAX))).len(), 1);
    }
}
