//! Makes output of CI systems fit to be shown.

/// Characters that end an escape sequence which begins with `ESC [` (ECMA-48, section 5.4).
const SEQUENCE_ENDS: std::ops::RangeInclusive<char> = '@'..='~';

const ESCAPE: char = '\u{1b}';

/// Returns the end of a log: whole lines without control characters and without the runner's own marks, `bytes_max`
/// bytes at most. `is_cut` means that `bytes` does not begin at the beginning of the log.
pub(super) fn end_of_log(bytes: &[u8], bytes_max: usize, is_cut: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    // A line that was cut may have lost the beginning of an escape sequence, or of a secret's mask.
    let text = match text.split_once('\n') {
        Some((_, rest)) if is_cut => rest,
        Some(_) | None => &text,
    };
    let lines: Vec<String> = text.split('\n').map(line).filter(|line| !line.is_empty()).collect();
    let mut first = lines.len();
    let mut length = 0_usize;
    for shown in lines.iter().rev() {
        length = length.saturating_add(shown.len()).saturating_add(1);
        if length > bytes_max {
            break;
        }
        first -= 1;
    }
    match (lines.get(first..), lines.last()) {
        (Some(kept), _) if !kept.is_empty() => kept.join("\n"),
        // The last line alone is too long: its end says more than nothing.
        (_, Some(last)) => end_of(last, bytes_max).to_owned(),
        (_, None) => String::new(),
    }
}

/// Returns a short text in one line, without control characters.
pub(super) fn one_line(text: &str, bytes_max: usize) -> String {
    let words: Vec<&str> = text.split(|character: char| is_unshowable(character) || character == ' ').collect();
    let line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let mut end = bytes_max.min(line.len());
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.get(..end).unwrap_or_default().to_owned()
}

/// Returns the text that a terminal would finally show of a line: a carriage return begins it anew.
fn line(text: &str) -> String {
    let text = text.trim_end_matches('\r');
    let shown = text.rsplit('\r').find(|part| !part.starts_with("section_")).unwrap_or_default();
    let mut line = String::with_capacity(shown.len());
    let mut characters = shown.chars();
    while let Some(character) = characters.next() {
        if character == ESCAPE {
            // Other sequences end with the second character.
            if characters.next() == Some('[') {
                characters.by_ref().find(|character| SEQUENCE_ENDS.contains(character));
            }
        } else if character == '\t' {
            line.push(' ');
        } else if !is_unshowable(character) {
            line.push(character);
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns whether a character is a control character, or changes the direction of the text around it.
fn is_unshowable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn end_of(text: &str, bytes_max: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_log_has_whole_lines_without_marks_and_colours() {
        let log = b"section_start:1560896352:prepare[collapsed=true]\r\x1b[0K\x1b[36;1mPreparing\x1b[0;m\n\
            section_end:1560896353:prepare\r\x1b[0K\n10%\r50%\r100%\r\n\x1b]0;title\x07x\xff\tb\x08\n\xe2\x80\xaegnp.exe\n";
        assert_eq!(end_of_log(log, 4096, false), "Preparing\n100%\n0;titlex\u{fffd} b\ngnp.exe");
        assert_eq!(end_of_log(b"half a line\nwhole\n", 4096, true), "whole");
        assert_eq!(end_of_log(b"one\ntwo\nthree\n", 10, false), "two\nthree");
        assert_eq!(end_of_log("one\nä€ä€".as_bytes(), 6, false), "ä€");
        assert_eq!(end_of_log(b"", 10, false), "");
        assert_eq!(end_of_log(b"\n\n\r\n", 10, true), "");
    }

    #[test]
    fn line_of_a_server_is_short_and_has_no_control_characters() {
        assert_eq!(one_line("  Reference\r\n\tnot \u{202e}found\u{0}", 100), "Reference not found");
        assert_eq!(one_line("ää", 3), "ä");
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_a_job_writes_reaches_a_terminal_raw(bytes: Vec<u8>, bytes_max in 0_usize..64, is_cut: bool) {
            let shown = end_of_log(&bytes, bytes_max, is_cut);
            proptest::prop_assert!(shown.len() <= bytes_max);
            proptest::prop_assert!(shown.chars().all(|character| character == '\n' || !is_unshowable(character)));
        }
    }
}
