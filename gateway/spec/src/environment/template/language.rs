//! Scans the template language: text with actions in double braces (Go documentation, "text/template"), of which
//! variables, comments and trim markers are supported.

use super::mask;
use super::scalar;
use super::variable::{Variable, known};
use crate::document::{Dialect, Location, Problems, Value, show};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// Characters that trim markers trim, and that may stand around a variable.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// A variable at one place of the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) variable: Variable,
    /// Place of its opening braces.
    pub(super) place: Location,
}

/// A template whose actions were replaced by characters.
#[derive(Debug)]
pub(super) struct Scanned {
    /// Text for the YAML parser.
    pub(super) text: String,
    pub(super) actions: Vec<Action>,
    /// Characters of invalid actions, each with a problem noted already.
    pub(super) wrong: Vec<char>,
    places: OutputMap,
}

/// Scans the actions of a template. `None` only with a problem noted: there is no text to go on with.
pub(super) fn scan(text: &str, problems: &mut Problems) -> Option<Scanned> {
    if let Some(at) = mask::find(text) {
        let message = "the file holds a private-use character of U+F0000 to U+FFFFD, which is not allowed here";
        problems.add("", Some(Cursor::default().go(text, at)), message);
        return None;
    }
    let (out, cursor) = (String::with_capacity(text.len()), Cursor::default());
    let (pieces, actions, wrong) = (Vec::new(), Vec::new(), Vec::new());
    let mut scan = Scan { text, out, pieces, actions, wrong, cursor, problems };
    let mut begin = 0;
    while let Some(open) = scan.find(begin, OPEN) {
        begin = scan.action(begin, open)?;
    }
    scan.copy(begin, text.len());
    let places = OutputMap::new(text, &scan.out, &scan.pieces);
    Some(Scanned { text: scan.out, actions: scan.actions, wrong: scan.wrong, places })
}

/// Converts byte offsets in ascending order to places, so that a file full of actions is read once.
#[derive(Debug)]
struct Cursor {
    at: usize,
    place: Location,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { at: 0, place: Location::START }
    }
}

impl Cursor {
    /// Advances to a byte of the text, and returns its place.
    fn go(&mut self, text: &str, to: usize) -> Location {
        for letter in text.get(self.at..to).unwrap_or_default().chars() {
            self.place = match letter {
                '\n' => Location { line: self.place.line.saturating_add(1), column: 1 },
                _ => Location { column: self.place.column.saturating_add(1), ..self.place },
            };
        }
        self.at = to.max(self.at);
        self.place
    }
}

struct Scan<'t, 'p> {
    text: &'t str,
    out: String,
    /// Begins of pieces in the output and in the template, both in bytes.
    pieces: Vec<(usize, usize)>,
    actions: Vec<Action>,
    wrong: Vec<char>,
    cursor: Cursor,
    problems: &'p mut Problems,
}

impl Scan<'_, '_> {
    fn rest(&self, begin: usize) -> &str {
        self.text.get(begin..).unwrap_or_default()
    }

    /// Finds a text at or after a place.
    fn find(&self, begin: usize, what: &str) -> Option<usize> {
        self.rest(begin).find(what).map(|at| begin + at)
    }

    fn object(&mut self, open: usize, message: impl Into<String>) {
        let place = self.cursor.go(self.text, open);
        self.problems.add("", Some(place), message);
    }

    /// Copies text to the output.
    fn copy(&mut self, begin: usize, end: usize) {
        self.pieces.push((self.out.len(), begin));
        self.out.push_str(self.text.get(begin..end).unwrap_or_default());
    }

    /// Scans the text from `begin` and the action after it; returns where the rest begins. `None` if the action has no
    /// end.
    fn action(&mut self, begin: usize, open: usize) -> Option<usize> {
        let mut inside = open + OPEN.len();
        let mut end = open;
        if self.rest(inside).strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES)) {
            inside += 2;
            let before = self.text.get(begin..open).unwrap_or_default();
            end = begin + before.trim_end_matches(SPACES).len();
        }
        self.copy(begin, end);
        let (close, trims) = match self.rest(inside).starts_with("/*") {
            true => self.comment(open, inside)?,
            false => self.variable(open, inside)?,
        };
        let after = self.rest(close);
        let trimmed = if trims { after.len() - after.trim_start_matches(SPACES).len() } else { 0 };
        Some(close + trimmed)
    }

    /// Scans a comment; returns where it ends, and whether it trims what follows.
    fn comment(&mut self, open: usize, inside: usize) -> Option<(usize, bool)> {
        let Some(end) = self.find(inside + 2, "*/") else {
            self.object(open, "the comment has no end: a comment is {{/* … */}}");
            return None;
        };
        let end = end + 2;
        let rest = self.rest(end);
        if rest.starts_with(CLOSE) {
            return Some((end + CLOSE.len(), false));
        }
        if rest.strip_prefix(SPACES).is_some_and(|rest| rest.starts_with("-}}")) {
            return Some((end + 2 + CLOSE.len(), true));
        }
        self.object(open, "the comment must end right before the braces: {{/* … */}} or {{/* … */ -}}");
        // Go on after it, to find further problems.
        self.find(end, CLOSE).map(|close| (close + CLOSE.len(), false))
    }

    /// Scans a variable; returns where it ends, and whether it trims what follows.
    fn variable(&mut self, open: usize, inside: usize) -> Option<(usize, bool)> {
        let Some(close) = self.find(inside, CLOSE) else {
            self.object(open, "the action has no end: }} is missing");
            return None;
        };
        let written = self.text.get(inside..close).unwrap_or_default();
        let trimmed = written.strip_suffix('-').filter(|before| before.ends_with(SPACES));
        let expression = trimmed.unwrap_or(written).trim_matches(SPACES);
        let found = Variable::find(expression);
        if found.is_none() {
            let message = wrong(expression);
            self.object(open, message);
        }
        // An invalid action stands for some text: the template is refused, but further problems are still found.
        let action = Action { variable: found.unwrap_or(Variable::AgentName), place: self.cursor.go(self.text, open) };
        match mask::of(self.actions.len()) {
            Some(letter) => {
                self.pieces.push((self.out.len(), open));
                self.out.push(letter);
                self.wrong.extend(found.is_none().then_some(letter));
                self.actions.push(action);
            }
            None => self.object(open, "there are too many actions"),
        }
        Some((close + CLOSE.len(), trimmed.is_some()))
    }
}

/// Returns the problem of an action that is no variable.
fn wrong(expression: &str) -> String {
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
    if expression.is_empty() {
        return "the action is empty".to_owned();
    }
    if expression.starts_with('.') && expression.chars().all(is_name) {
        return format!("unknown variable {}; known are {}", show(expression), known());
    }
    let message =
        "is not supported: only variables such as {{ .environment.slug }}, comments {{/* … */}} and the trim markers";
    format!("the action {} {message} {{{{- and -}}}} are", show(expression))
}

/// Maps places of the output to places of the template.
#[derive(Debug)]
struct OutputMap {
    /// Begins of lines, in characters.
    out_lines: Vec<usize>,
    lines: Vec<usize>,
    /// Begins of pieces in the output and in the template, in characters.
    pieces: Vec<(usize, usize)>,
}

impl OutputMap {
    fn new(text: &str, out: &str, pieces: &[(usize, usize)]) -> Self {
        let froms = in_characters(text, pieces.iter().map(|(_, from)| *from));
        let begins = in_characters(out, pieces.iter().map(|(begin, _)| *begin));
        Self { out_lines: line_begins(out), lines: line_begins(text), pieces: begins.into_iter().zip(froms).collect() }
    }

    fn find(&self, place: Location) -> Location {
        let line = usize::try_from(place.line).unwrap_or(usize::MAX).saturating_sub(1);
        let column = usize::try_from(place.column).unwrap_or(usize::MAX).saturating_sub(1);
        let begin = self.out_lines.get(line).or(self.out_lines.last()).copied().unwrap_or(0);
        let at = begin.saturating_add(column);
        let piece = self.pieces.partition_point(|(begin, _)| *begin <= at).checked_sub(1);
        let (begin, from) = piece.and_then(|piece| self.pieces.get(piece)).copied().unwrap_or((0, 0));
        let at = from.saturating_add(at - begin);
        let line = self.lines.partition_point(|begin| *begin <= at).max(1);
        let begin = self.lines.get(line - 1).copied().unwrap_or(0);
        Location::new(line, at.saturating_sub(begin) + 1)
    }
}

/// Returns the begins of lines, in characters.
fn line_begins(text: &str) -> Vec<usize> {
    let ends = text.chars().enumerate().filter(|(_, letter)| *letter == '\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).collect()
}

/// Converts ascending byte offsets to character offsets.
fn in_characters(text: &str, bytes: impl Iterator<Item = usize>) -> Vec<usize> {
    let (mut at, mut count) = (0, 0);
    bytes
        .map(|byte| {
            count += text.get(at..byte).unwrap_or_default().chars().count();
            at = byte;
            count
        })
        .collect()
}

impl Dialect for Scanned {
    fn plain(&self, text: &str) -> Value {
        if !text.contains(mask::is_mask) {
            return scalar::plain(text);
        }
        // A number whatever the facts are: digits and numeric variables only.
        let is_number = |letter: char| match mask::action(letter, &self.actions) {
            Some(action) => action.variable.is_number(),
            None => letter.is_ascii_digit(),
        };
        if text.chars().all(is_number) { Value::Number(text.to_owned()) } else { Value::Text(text.to_owned()) }
    }

    fn place(&self, place: Location) -> Location {
        self.places.find(place)
    }
}
