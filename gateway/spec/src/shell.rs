//! Words for a POSIX shell (POSIX.1, Shell Command Language, section 2.2).

/// Quotes a text, so that a shell reads it as one word and as it is. It must have no NUL, which no shell can hold.
pub(crate) fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a path in which variables of the environment count (`$NAME`, `${NAME}`), and nothing else does.
pub(crate) fn path(text: &str) -> String {
    let mut quoted = String::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((name, after)) = variable(rest) {
            if !literal.is_empty() {
                quoted.push_str(&word(&literal));
                literal.clear();
            }
            quoted.push_str(&format!("\"${{{name}}}\""));
            rest = after;
        } else {
            literal.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    if !literal.is_empty() || quoted.is_empty() {
        quoted.push_str(&word(&literal));
    }
    quoted
}

/// Reads a variable at the beginning of a text; returns its name and what follows.
fn variable(text: &str) -> Option<(&str, &str)> {
    let after = text.strip_prefix('$')?;
    let (name, rest) = match after.strip_prefix('{') {
        Some(inside) => inside.split_once('}')?,
        None => {
            let end =
                after.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(after.len());
            after.split_at_checked(end)?
        }
    };
    let is_inner = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_';
    let is_name = name.bytes().all(is_inner) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    is_name.then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a word as a shell does: the reading direction, for this kind of words alone.
    fn read(quoted: &str) -> Option<String> {
        let mut text = String::new();
        let mut rest = quoted;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('\'') {
                let (literal, after) = inside.split_once('\'')?;
                text.push_str(literal);
                rest = after;
            } else if let Some(after) = rest.strip_prefix("\\'") {
                text.push('\'');
                rest = after;
            } else {
                return None;
            }
        }
        Some(text)
    }

    #[test]
    fn variables_of_a_path_stay_variables_and_the_rest_is_literal() {
        for (text, quoted) in [
            ("", "''"),
            ("/projects", "'/projects'"),
            ("$PROJECT_SOURCE", "\"${PROJECT_SOURCE}\""),
            ("${PROJECTS_ROOT}/a b", "\"${PROJECTS_ROOT}\"'/a b'"),
            ("a$_1-$HOME", "'a'\"${_1}\"'-'\"${HOME}\""),
            ("$(id)`id`${a;id}$1$", "'$(id)`id`${a;id}$1$'"),
            ("${", "'${'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(path(text), quoted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_one_word_that_reads_back(text in "[^\\x00]{0,40}|['\\\\$\"`\n;& ]{0,20}") {
            prop_assert_eq!(read(&word(&text)), Some(text));
        }

        #[test]
        fn path_without_variables_is_a_word(text in "[^\\x00$]{0,40}") {
            prop_assert_eq!(path(&text), word(&text));
        }
    }
}
