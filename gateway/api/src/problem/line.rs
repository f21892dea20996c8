//! Writes a problem as the text of a gRPC status, which travels in a header: as much as there is room for.

use std::fmt;

use http::StatusCode;

use super::{FaultLocation, ProblemRow};

/// Longest text of a status, in bytes as it is sent: some clients take 8 KiB of headers, and fail on more with words of
/// their own.
pub(crate) const WORDS_BYTES_MAX: usize = 4 * 1024;

/// Longest line of it. Faults are shortened where they are found; their paths, which may be deep, are not.
const LINE_BYTES_MAX: usize = 1024;

/// Room for the words that say how much more there is.
const MORE_BYTES: usize = 64;

impl ProblemRow {
    /// Returns code, status and words, with a line for each fault, as a gRPC status can carry them.
    pub(crate) fn in_a_line(&self) -> (&'static str, StatusCode, String) {
        let mut words = self.refused.words().1.to_owned();
        if let Some((name, value)) = self.refused.detail() {
            words.push_str(&format!(" ({name}: {value})"));
        }
        let mistakes = self.mistakes.iter().map(|mistake| format!("{}: {}", mistake.pointer, mistake.detail));
        let lines: Vec<String> = mistakes.chain(self.places.iter().map(FaultLocation::to_string)).collect();
        (self.refused.code(), self.refused.status(), with_lines(words, &lines))
    }
}

impl fmt::Display for FaultLocation {
    /// Writes the rule, its place, and the fault.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, path, line, column, message } = self;
        let line = line.map(|line| format!("line {line}"));
        let column = column.map(|column| format!("column {column}"));
        let path = Some(path.clone()).filter(|path| !path.is_empty());
        let place = [line, column, path].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let before: Vec<&str> = [code, place.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
        if !before.is_empty() {
            write!(formatter, "{}: ", before.join(" "))?;
        }
        formatter.write_str(message)
    }
}

/// Adds lines for as long as there is room, and says how many more there are.
fn with_lines(mut words: String, lines: &[String]) -> String {
    let mut room = WORDS_BYTES_MAX.saturating_sub(MORE_BYTES).saturating_sub(sent_bytes(&words));
    for (index, line) in lines.iter().enumerate() {
        let line = format!("\n{}", cut(line, LINE_BYTES_MAX));
        let Some(left) = room.checked_sub(sent_bytes(&line)) else {
            words.push_str(&format!("\nand {} more", lines.len().saturating_sub(index)));
            break;
        };
        room = left;
        words.push_str(&line);
    }
    words
}

/// Cuts a text off so that it has at most `bytes_max` bytes when it is sent.
pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    const END: &str = "...";
    if sent_bytes(text) <= bytes_max {
        return text.to_owned();
    }
    let mut room = bytes_max.saturating_sub(sent_bytes(END));
    let fits = |one: &char| match room.checked_sub(sent_bytes(one.encode_utf8(&mut [0; 4]))) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    let mut kept: String = text.chars().take_while(fits).collect();
    kept.push_str(END);
    kept
}

/// Counts the bytes of a text in a header: each byte that is not allowed there takes three (gRPC over HTTP/2,
/// `grpc-message`).
fn sent_bytes(text: &str) -> usize {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,:;/()'*+=!|~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { 1 } else { 3 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{ApiProblem, Mistake};
    use gateway_environments::refusal::RefusalCode;
    use workspace_spec::document;

    fn problem(path: &str, place: Option<(u32, u32)>, message: &str) -> document::Problem {
        let (line, column) = place.unzip();
        document::Problem { path: path.to_owned(), line, column, message: message.to_owned() }
    }

    #[test]
    fn mistake_in_a_template_is_told_with_line_and_column() {
        let wrong = vec![
            problem("", Some((3, 5)), "unknown variable .nope"),
            problem("objects[0].kind", Some((4, 1)), "is missing"),
            problem("", None, "and 3 more problems"),
        ];
        let (code, _, words) = ProblemRow::template(wrong).in_a_line();
        assert_eq!(code, RefusalCode::TemplateInvalid.as_str());
        let lines: Vec<&str> = words.lines().skip(1).collect();
        let expected = [
            "line 3, column 5: unknown variable .nope",
            "line 4, column 1, objects[0].kind: is missing",
            "and 3 more problems",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn rule_and_object_come_before_what_is_wrong() {
        let place = |code, path: &str| FaultLocation {
            code,
            path: path.to_owned(),
            line: None,
            column: None,
            message: "no".to_owned(),
        };
        assert_eq!(place("kind_not_allowed", "Secret a/b").to_string(), "kind_not_allowed Secret a/b: no");
        assert_eq!(place("too_large", "").to_string(), "too_large: no");
        let mistake = Mistake { pointer: "/info".to_owned(), detail: "is missing".to_owned() };
        let (code, _, words) = ProblemRow::invalid(vec![mistake]).in_a_line();
        assert!(code == ApiProblem::Invalid.code() && words.ends_with("\n/info: is missing"), "{words}");
    }

    #[test]
    fn words_of_a_status_have_a_bound_however_much_is_wrong() {
        for (count, message) in [(100, "x".repeat(400)), (100, "\u{fffd}".repeat(100)), (2, "/".repeat(100_000))] {
            let wrong = vec![problem(&"a.".repeat(2_000), Some((1, 1)), &message); count];
            let (_, _, words) = ProblemRow::template(wrong).in_a_line();
            let status = tonic::Status::invalid_argument(words.clone()).into_http::<()>();
            let sent = status.headers()["grpc-message"].len();
            assert!(sent <= WORDS_BYTES_MAX && sent > WORDS_BYTES_MAX / 4, "{sent}: {words}");
            assert!(words.contains("line 1, column 1, a.a."), "{words}");
        }
        let wrong = vec![problem("", Some((1, 1)), &"x".repeat(400)); 50];
        let (_, _, words) = ProblemRow::template(wrong).in_a_line();
        let told = words.lines().filter(|line| line.starts_with("line ")).count();
        assert!(told > 1 && words.ends_with(&format!("\nand {} more", 50 - told)), "{words}");
    }

    #[test]
    fn text_that_fits_is_not_cut_and_one_that_does_not_is_between_characters() {
        assert_eq!(cut("as it is", 100), "as it is");
        assert_eq!(cut("", 0), "");
        for bytes_max in 0..40 {
            let text = cut("a\u{e9}\u{1f600}b c\u{e9}\u{1f600}b c", bytes_max);
            assert!(sent_bytes(&text) <= bytes_max.max(3) && text.ends_with("..."), "{bytes_max}: {text}");
        }
    }
}
