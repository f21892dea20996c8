//! Comments and documents read as plain English: comments begin with a noun or a verb, and both name the party in question.

use super::repository::{Repository, is_generated};

/// First words of a comment that leaves its subject out.
const OPENERS: [&str; 9] = ["What", "Who", "Whose", "Whom", "Which", "Where", "When", "How", "Why"];

/// Pronouns in place of a caller, user, owner, peer or task.
const PRONOUNS: [&str; 4] = ["whoever", "whom", "somebody", "nobody"];

/// Documents outside of `docs/` that hold the rule too.
const DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"];

/// Largest share of comment blocks that begin with one of [`OPENERS`], in percent: texts of `--help` ask questions.
const OPENERS_PERCENT_MAX: usize = 3;

/// Checks the comments of all sources but tests and generated code.
pub(crate) fn check(repository: &Repository) -> Vec<String> {
    let (mut blocks, mut openers) = (0, 0);
    let mut problems = Vec::new();
    let own = |path: &&str| path.ends_with(".rs") && !path.contains("tests") && !is_generated(path);
    for path in repository.files().filter(own) {
        let source = repository.read(path);
        problems.extend(check_pronouns(path, &source));
        let counted = count(&source);
        blocks += counted.0;
        openers += counted.1;
    }
    assert!(blocks > 1000, "the comments were not found: {blocks}");
    if openers * 100 > blocks * OPENERS_PERCENT_MAX {
        let max = OPENERS_PERCENT_MAX;
        problems.push(format!("{openers} of {blocks} comments begin with What, Who, How …: more than {max} %"));
    }
    problems
}

/// Checks the documents for [`PRONOUNS`], outside of code and link targets.
pub(crate) fn check_documents(repository: &Repository) -> Vec<String> {
    let own = |path: &&str| path.ends_with(".md") && (path.starts_with("docs/") || DOCUMENTS.contains(path));
    let documents: Vec<_> = repository.files().filter(own).collect();
    assert!(documents.len() > DOCUMENTS.len(), "the documents were not found: {documents:?}");
    let problems = documents.into_iter().map(|path| check_prose(path, &repository.read(path)));
    problems.flatten().collect()
}

fn check_prose(path: &str, text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            problems.extend(pronoun(path, number, &prose(line)));
        }
    }
    problems
}

/// Returns a line of a document without inline code and link targets.
fn prose(line: &str) -> String {
    let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |prose, part| prose + " " + part.split_once(')').map_or(part, |(_, behind)| behind))
}

/// Fewest lines of documentation at the beginning of a crate: a map of its modules.
const MAP_LINES_MIN: usize = 10;

/// Checks that all crates begin with a map; fuzz targets are no crates of the workspace.
pub(crate) fn check_maps(repository: &Repository) -> Vec<String> {
    let own = |path: &&str| path.ends_with("src/lib.rs") && !path.contains("/fuzz/");
    let maps = repository.files().filter(own).map(|path| (path, map_lines(&repository.read(path))));
    let short = maps.filter(|(_, lines)| *lines < MAP_LINES_MIN);
    short.map(|(path, lines)| format!("{path}: a map of {lines} lines is too short to find a module by")).collect()
}

fn map_lines(source: &str) -> usize {
    source.lines().take_while(|line| line.starts_with("//!")).count()
}

fn check_pronouns(path: &str, source: &str) -> Vec<String> {
    let comments = source.lines().enumerate().filter_map(|(number, line)| Some((number, comment(line)?)));
    let mut problems = Vec::new();
    for (number, text) in comments {
        problems.extend(pronoun(path, number, text));
    }
    problems
}

/// Reports the first of [`PRONOUNS`] in a line.
fn pronoun(path: &str, number: usize, text: &str) -> Option<String> {
    let mut words = text.split(|letter: char| !letter.is_ascii_alphabetic());
    let word = words.find(|word| PRONOUNS.contains(&word.to_ascii_lowercase().as_str()))?;
    Some(format!("{path}:{}: `{word}`: name the party", number + 1))
}

/// Returns the number of comment blocks, and of those that begin with one of [`OPENERS`].
fn count(source: &str) -> (usize, usize) {
    let (mut blocks, mut openers) = (0, 0);
    let mut is_within = false;
    for line in source.lines() {
        let text = comment(line);
        if let Some(text) = text.filter(|text| !is_within && !text.is_empty()) {
            blocks += 1;
            let first = text.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
            openers += usize::from(OPENERS.contains(&first));
        }
        is_within = text.is_some();
    }
    (blocks, openers)
}

/// Returns the text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pronouns_are_found_in_comments_alone() {
        let source = "/// For whoever asks.\nlet a = \"whoever\"; // whom\n    // The one to Whom.\n// wholesome";
        let found = check_pronouns("a.rs", source);
        assert_eq!(found, ["a.rs:1: `whoever`: name the party", "a.rs:3: `Whom`: name the party"]);
    }

    #[test]
    fn pronouns_are_found_in_documents_outside_of_code_and_links() {
        let text =
            "# Nobody\n\n`nobody` and [a page](nobody.md), (somebody's)\n```\nnobody\n```\n[Whom](a.md) it concerns\n";
        let found = check_prose("a.md", text);
        let at = ["a.md:1: `Nobody`", "a.md:3: `somebody`", "a.md:7: `Whom`"];
        assert_eq!(found, at.map(|at| format!("{at}: name the party")));
    }

    #[test]
    fn blocks_are_counted_by_their_first_words() {
        let source =
            "//! What.\n//! Who.\n\n/// Whatever.\nfn f() {\n    // How it is.\n    // The end.\n}\n// Ends.\n//\n";
        assert_eq!(count(source), (4, 2));
    }
}
