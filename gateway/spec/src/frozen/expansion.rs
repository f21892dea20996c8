//! Texts that Kubernetes would put variables into: a container's command, its arguments and the values of its variables
//! (Kubernetes, "Define Environment Variables for a Container", "Define a Command and Arguments for a Container").
//!
//! There, `$(NAME)` becomes the value of a variable and `$$` a single `$`, wherever it stands. What follows any other `$` is read
//! as one byte and written as one character, so that it stays as it is only while it is ASCII. A `$` before another one is
//! left alone in all three cases: with each `$` doubled, a container gets the text as it was given.

/// Writes a text so that a container gets it as it is.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a text as a kubelet does: byte by byte, with every variable that is asked for being set.
    fn expanded(text: &str) -> Vec<u8> {
        let mut written = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match (*first, after.split_first()) {
                (b'$', Some((b'$', after))) => {
                    written.push(b'$');
                    rest = after;
                }
                (b'$', Some((b'(', after))) => match after.iter().position(|byte| *byte == b')') {
                    Some(end) => {
                        written.extend(b"VALUE");
                        rest = &after[end + 1..];
                    }
                    None => {
                        written.extend(b"$(");
                        rest = after;
                    }
                },
                // Its byte is taken for a character of that number.
                (b'$', Some((byte, after))) => {
                    written.extend(format!("${}", char::from(*byte)).into_bytes());
                    rest = after;
                }
                (byte, _) => written.push(byte),
            }
        }
        written
    }

    #[test]
    fn kubelet_changes_what_is_not_written_for_it() {
        for (text, becomes) in [
            ("$(HOME)", &b"VALUE"[..]),
            ("kill $$", b"kill $"),
            ("$$(HOME)", b"$(HOME)"),
            ("$(", b"$("),
            ("$HOME $", b"$HOME $"),
            ("$\u{e9}", b"$\xc3\x83\xa9"),
        ] {
            assert_eq!(expanded(text), becomes, "{text}");
        }
    }

    #[test]
    fn each_dollar_is_doubled_also_the_last() {
        for (text, written) in [
            ("", ""),
            ("$(HOME)", "$$(HOME)"),
            ("$$(HOME)", "$$$$(HOME)"),
            ("kill -9 $$", "kill -9 $$$$"),
            ("$HOME ${HOME} $é $", "$$HOME $${HOME} $$é $$"),
        ] {
            assert_eq!(literal(text), written);
            assert_eq!(expanded(written), text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn container_gets_any_text_as_it_is(text in any::<String>(), hostile in "[$()A-Zé\u{1f600} ]{0,24}") {
            prop_assert_eq!(expanded(&literal(&text)), text.as_bytes());
            prop_assert_eq!(expanded(&literal(&hostile)), hostile.as_bytes());
        }
    }
}
